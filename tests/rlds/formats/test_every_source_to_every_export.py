"""Raw data of every format, exported to every format: exports have the same values.

An export writes all values, or raises an error with the reason and leaves no files.
"""

import dataclasses
import re

import hostile_sources
import numpy as np
import pytest
import raw_d4rl
import raw_imitation
import raw_lerobot
import raw_ogbench
import raw_oxe
import raw_robomimic
import raw_webdataset
import raw_zarr
from export_options import options_for

import rlds.sources
from rlds.conversion.exporting import prepare, write_export
from rlds.sources.episode_fields import as_converted
from rlds.sources.rates import with_rate
from rlds.sources.testing import differences
from rlds.sources.writing import PNGS
from rlds_ecosystem.model.nests import leaves_at

# More raw data: functions that write it to a folder, and return the path to open.
MORE = {
    **{
        name: lambda path, name=name: getattr(raw_robomimic, name)(path / "demos.hdf5")
        for name in ("robosuite", "mimicgen", "libero", "libero_regenerated", "robocasa")
    },
    **{
        name: lambda path, name=name: getattr(raw_oxe, name)(path / name / "1.0.0")
        for name in ("bridge_dataset", "fractal", "kuka", "roboturk", "mt_opt")
    },
    "oxe_droid": lambda path: raw_oxe.droid(path / "droid" / "1.0.0"),
    **{
        name: lambda path, name=name: raw_d4rl.write_family(path, name)
        for name in ("halfcheetah_medium_replay-v1", "pen-v0_demos_clipped", "hammer-expert-v1")
    },
    "ogbench_pixels": lambda path: raw_ogbench.write(path, "visual-cube-v0", pixels=True),
    "ogbench_compact": lambda path: raw_ogbench.write(path, "cube-play-v0", compact=True),
    "imitation_pixels": lambda path: raw_imitation.write(
        path / "x", raw_imitation.trajectories(pixels=True, rewards=False)
    ),
    "libero_folder": lambda path: raw_robomimic.libero_folder(path / "x"),
    "webdataset_steps": raw_webdataset.write_steps,
    "zarr_pusht": lambda path: raw_zarr.write_pusht(path / "pusht.zarr"),
    "lerobot_frames": lambda path: raw_lerobot.write_v3(path, codecs={raw_lerobot.TOP: "h264"}),
}
OPTIONS = {
    **hostile_sources.OPTIONS,
    "lerobot_frames": {"video": "frames"},
}
NO_STEP = "cannot hold an episode without a transition; leave it out with a split"
NO_ARRAY = "is not an array of numbers; .* needs .* Name them with observation="
NO_OBSERVATION = "the steps have no 'observation', which Minari needs"
NO_ACTION = "no 'action', which Minari needs|needs actions that are numbers"
NO_PICTURE = dict.fromkeys(("d3rlpy", "d4rl"), NO_ARRAY)
NO_NUMBERS = {**NO_PICTURE, "aloha": "'(observation|action)' is not a step field of numbers"}
# Refused exports, and the messages.
REFUSED = {
    **{name: {"minari": NO_STEP} for name in ("webdataset", "d3rlpy")},
    "zarr": {**NO_NUMBERS, **dict.fromkeys(("minari", "maniskill", "robomimic"), NO_ACTION)},
    **dict.fromkeys(("dqn_replay", "rlu_atari_transitions"), NO_PICTURE),
    "roboturk": NO_NUMBERS,
    "webdataset_steps": {**NO_NUMBERS, "minari": NO_OBSERVATION},
    "robosuite": {"minari": NO_OBSERVATION},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*hostile_sources.NAMES, *MORE])
def test_every_export_keeps_every_value_of_every_source(name, tmp_path):
    (raw := tmp_path / "raw").mkdir()
    if name in MORE:
        path = MORE[name](raw)
    else:
        path = hostile_sources.write_raw(name, raw)
    options = {"decode_images": False} if rlds.sources.format_of(path) == "tfds" else {}
    episodes = rlds.sources.open(path, "all", **OPTIONS.get(name, options))
    refused = {}
    for format in rlds.sources.exports():
        (folder := tmp_path / format).mkdir()
        try:
            writer = prepare(episodes, format, **options_for(format, episodes))
            exported = write_export(writer, folder / f"made-v0{(*writer.suffixes, '')[0]}")
        except ValueError as error:
            refused[format] = f"{type(error).__name__}: {error}"
        if format in refused:
            assert list(folder.iterdir()) == []
            assert refused[format].startswith("ValueError: ")
        else:
            assert_same(writer, rlds.sources.open(exported.path, "all", **writer.read_options()))
    expected = REFUSED.get(name, {})
    assert refused.keys() == expected.keys(), refused
    for format, message in expected.items():
        assert re.search(message, refused[format])


def assert_same(writer, actual):
    """Checks that an export has the values of its source, except for the placements."""
    assert actual.format == writer.format
    before, placements = writer.episodes, writer.placements()
    assert {placement.how for placement in placements} <= {"exact", "renumbered", "sidecar"}
    is_exact = writer.is_exact
    order = writer.order
    if order is None:
        order = range(len(before)) if is_exact else writer.order_of_origin() or range(len(before))
    assert len(actual) == len(before)
    for index, episode in zip(order, actual, strict=True):
        renumbered = [placement.field for placement in placements if placement.how == "renumbered"]
        ignored = [*writer.unchecked, *renumbered]
        ignored += [] if is_exact else ["key"]  # The name of a file may be the key.
        pair = [as_converted(each) for each in (before.episode(index), episode)]
        assert list(differences(*map(writer.compared, pair), ignored)) == []
    spec = dict(leaves_at(before.spec, None))
    for path in (placement.field for placement in placements if placement.why.startswith(PNGS)):
        spec[path] = dataclasses.replace(spec[path], encoding="")
    actual_spec = dict(leaves_at(actual.spec, None))
    if writer.read_options().get("decode_images") is False:  # Arrays are PNG files in TFDS.
        for path, field in spec.items():
            if field.dtype == np.uint8 and len(field.shape) == 3 and not field.encoding:
                assert actual_spec[path].encoding in ("", "png")
                spec[path] = dataclasses.replace(field, encoding=actual_spec[path].encoding)
    assert actual_spec == spec
    if writer.format not in before.metadata:  # There, it describes its new files.
        has_rate = writer.format == "lerobot"  # See `options_for`.
        expected = with_rate(before.metadata, 10.0) if has_rate else before.metadata
        # TFDS counts episodes again.
        metadata, expected = ({**it, "conversion": None} for it in (actual.metadata, expected))
        assert metadata == expected
