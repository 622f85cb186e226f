"""Any format to any other: exported episodes are read back with the same values."""

import dataclasses
import time
from typing import Any

import numpy as np
import pytest
from export_options import NAMES

import rlds.sources
from rlds import from_sars
from rlds.editing import Set
from rlds.raw_files.image_files import black_jpeg
from rlds.sources import Capabilities, Field, Lengths, Origin, Source, SourceEpisode, export
from rlds.sources.episode_fields import as_converted
from rlds.sources.source import Fields, SourceInfo
from rlds.sources.testing import differences
from rlds_ecosystem.model.nests import leaves_at, nest
from tfds_files.columns import stack
from tfds_files.png import encode_png

# The options of each format.
OPTIONS: dict[str, dict[str, Any]] = {
    "minari": {"data_format": "arrow"},  # Texts in HDF5 have no zeros.
    "mcap": {},
    "aloha": {"fields": {"observations/qpos": "observation/state", "action": "action"}},
    "maniskill": {},
    "d3rlpy": {},
    "d4rl": {"observation": "observation/state"},
    "lerobot": {
        "fps": 10,
        "to_sidecar": ["observation/view", "observation/photo"],
    },  # All images have one size.
    "webdataset": {},
    "robomimic": {},
    "zarr": {},
    "envlogger": {},
    "tfds": {},
}


def png(*size: int) -> bytes:
    return encode_png(np.full((*size, 3), sum(size), np.uint8))


class Sample(Source):
    """Episodes with fields of all types; two end in a terminal state, two are truncated."""

    source_info = SourceInfo(
        description="Éverything.",
        citation="@misc{x}",
        metadata={"robot": {"joints": ["a", "b"], "control_freq": 10, "limits": [0.1, None]}},
    )
    fields = Fields(
        {
            "observation": {
                "camera": Field(np.uint8, (4, 6, 3)),
                "state": Field(np.float64, (3,), names=("x", "y", "z"), unit="m"),
                "contact": np.bool_,
                "words": Field(str),
                "arm/speed": np.float32,
                "hits": Field(np.int64, (None,)),
                "view": Field(np.uint8, (None, None, 3), encoding="png"),
                "photo": Field(np.uint8, (None, None, 3), encoding="jpeg"),
            },
            "action": Field(np.float32, (2,)),
            "reward": np.float64,
            "discount": np.float32,
            "language_instruction": Field(str),
            "count": np.int64,
        },
        {
            "seed": np.int32,
            "operator": {"name": Field(str)},
            "gains": Field("f4", (None,)),
            "labels": Field(str, (None,)),
            "recording": Field(bytes),
        },
    )

    def __init__(self, *, all_known: bool) -> None:
        self._all_known = all_known

    def inputs(self) -> list[str]:
        return ["synthetic"]

    def num_episodes(self, split: str) -> int:
        return 4

    def key(self, split: str, index: int) -> str:
        return f"épisode/{index}"

    def read(
        self, split: str, index: int, fields: Any = None, rows: slice = slice(None)
    ) -> SourceEpisode:
        rng = np.random.default_rng(index)
        length = (4, 1, 3, 6)[index]
        is_final_known = self._all_known or index != 2  # Some formats need two steps or more.
        rows = length + is_final_known
        state = rng.random((rows, 3))
        state[0] = np.nan, -0.0, np.inf
        steps = from_sars(
            observation={
                "camera": rng.integers(0, 256, (rows, 4, 6, 3), np.uint8),
                "state": state,
                "contact": rng.integers(0, 2, rows).astype(bool),
                "words": np.array(["", "zero\0", "ünïcode", *"abcd"][:rows], object),
                "arm/speed": rng.random(rows, np.float32),
                "hits": stack([np.arange(row) for row in range(rows)]),
                "view": np.array([png(row + 1, index + 2) for row in range(rows)], object),
                "photo": np.array([black_jpeg((index + 1, 2, 3))] * rows, object),
            },
            action=rng.random((length, 2), np.float32),
            reward=rng.random(length) / 3,
            terminal=index < 2,
            observation_metadata={
                "language_instruction": np.array(["close it"] * rows, object),
                "count": np.arange(rows) - 2**62,
            },
        )
        return SourceEpisode(
            self.key(split, index),
            steps,
            Origin("synthetic", index, index + 1),
            truncated=index >= 2,
            final_observation_known=is_final_known,
            complete=index != 3,
            metadata={
                "seed": np.int32(index),
                "operator": {"name": "Zoë"},
                "gains": np.arange(index, dtype=np.float32),
                "labels": np.array(["push", "", "é"][:index], object),
                "recording": b"\x98\0" * 40_000,
            },
        )


def assert_same(episodes, actual):
    assert len(actual) == len(episodes)
    for original, copy in zip(episodes, map(as_converted, actual)):
        assert list(differences(original, copy)) == []
        assert original.origin == copy.origin
    assert dict(leaves_at(actual.spec, None)) == dict(leaves_at(episodes.spec, None))
    lineage = actual.metadata["lineage"]
    metadata = {name: it for name, it in actual.metadata.items() if name != "conversion"}
    assert metadata == {**episodes.metadata, "lineage": lineage}
    assert lineage["operations"][-1]["do"] == "convert"


def test_options_cover_all_formats():
    assert OPTIONS.keys() == rlds.sources.exports().keys()


@pytest.mark.parametrize("format", OPTIONS)
def test_export_keeps_every_value_of_an_episode(format, tmp_path):
    source = Sample(all_known=format == "minari")  # Minari needs final observations.
    if format == "tfds":  # Arrays would become PNG files.
        source.source_info = source.source_info.replace(images_as_png=False)
    exported = export(
        source, format, tmp_path / NAMES.get(format, "made"), verify=False, **OPTIONS[format]
    )
    options = {"decode_images": False} if format == "tfds" else {}
    episodes = rlds.sources.open(exported.path, **options)
    assert episodes.format == format
    assert_same(rlds.sources.Episodes(source, "all"), episodes)
    assert episodes.source.source_info.description == source.source_info.description


class Agents(Sample):
    """Several agents, each with its reward and discount."""

    fields = Sample.fields.replace(
        steps={
            **Sample.fields.steps,
            "reward": {"a": np.float32, "b": np.float32},
            "discount": {"a": np.float32, "b": np.float32},
        }
    )

    def read(self, *arguments: Any) -> SourceEpisode:
        episode = super().read(*arguments)
        for name in ("reward", "discount"):
            column = np.asarray(episode.steps[name], np.float32)
            episode.steps[name] = {"a": column, "b": column / 2}
        return episode


@pytest.mark.parametrize("format", [format for format in OPTIONS if format != "minari"])
def test_exports_keep_rewards_and_discounts_of_several_agents(format, tmp_path):
    source = Agents(all_known=False)
    exported = export(
        source, format, tmp_path / NAMES.get(format, "made"), verify=False, **OPTIONS[format]
    )
    for old, new in zip(rlds.sources.Episodes(source, "all"), rlds.sources.open(exported.path)):
        for name in ("reward", "discount"):
            assert new.steps[name].keys() == {"a", "b"}
            for agent, column in old.steps[name].items():
                np.testing.assert_array_equal(new.steps[name][agent], column)


class Plain(Sample):
    """Without values that HDF5 files of Minari cannot hold; Blosc splits its rows."""

    fields = Sample.fields.replace(
        steps={
            **Sample.fields.steps,
            "observation": {
                **Sample.fields.steps["observation"],
                "words": Field(np.float64, (250_000,)),
            },
        }
    )

    def read(self, *arguments: Any) -> SourceEpisode:
        episode = super().read(*arguments)
        rows = np.random.default_rng(0).random((len(episode), 250_000))
        episode.steps["observation"]["words"] = rows
        return episode


@pytest.fixture(scope="module")
def exported_twice(tmp_path_factory):
    """Folders with exports to all formats, written at different times."""
    blosc = pytest.importorskip("numcodecs.blosc")
    patch = pytest.MonkeyPatch()
    patch.setattr(blosc, "use_threads", True)  # Importing zarr sets it to False.
    folders = [tmp_path_factory.mktemp("made") for _ in range(2)]
    for index, folder in enumerate(folders):
        time.sleep(1.2 * index)  # Formats that store times have seconds.
        for format, options in OPTIONS.items():
            source = Sample(all_known=format == "minari")
            path = folder / format / NAMES.get(format, "made")
            export(source, format, path, verify=False, **options)
        for format, options in {"minari": {"data_format": "hdf5"}, "zarr": {}}.items():
            path = folder / f"plain_{format}" / NAMES.get(format, "made")
            export(Plain(all_known=True), format, path, verify=False, **options)
    assert blosc.use_threads
    patch.undo()
    return folders


@pytest.mark.parametrize("format", [*OPTIONS, "plain_minari", "plain_zarr"])
def test_exports_at_different_times_have_the_same_bytes(exported_twice, format):
    first, second = (
        {
            file.relative_to(folder): file.read_bytes()
            for file in folder.rglob("*")
            if file.is_file()
        }
        for folder in (root / format for root in exported_twice)
    )
    assert first.keys() == second.keys() != set()
    assert [str(file) for file in first if first[file] != second[file]] == []


def test_names_with_the_suffix_of_another_kind_are_refused(tmp_path):
    for format, options in OPTIONS.items():
        is_file = "." in NAMES.get(format, "")
        path, kind = (
            tmp_path / ("made" if is_file else "made.h5"),
            "file" if is_file else "folder",
        )
        with pytest.raises(ValueError, match=f"{path.name}': {format} writes a {kind}"):
            export(Sample(all_known=True), format, path, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["minari", "lerobot", "robomimic"])
def test_an_episode_without_a_transition_is_an_error_before_others_are_read(tmp_path, format):
    class Short(Sample):
        @property
        def capabilities(self) -> Capabilities:
            return Capabilities(
                lengths=lambda split: Lengths.create([9, 9, 1, *[9] * (len(self) - 3)])
            )

        def __len__(self) -> int:
            return self.num_episodes("train")

        def read(
            self, split: str, index: int, fields: Any = None, rows: slice = slice(None)
        ) -> SourceEpisode:
            assert index in (0, 2)
            episode = super().read(split, index)
            if index == 0:
                return episode
            steps = {path: column[:1] for path, column in leaves_at(episode.steps, None)}
            return dataclasses.replace(episode, steps=nest(steps))

    path = tmp_path / NAMES.get(format, "made")
    with pytest.raises(ValueError, match=r"episode épisode/2: .*without a transition; .*--split"):
        export(Short(all_known=True), format, path, **OPTIONS[format])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["minari", "lerobot", "webdataset", "robomimic", "zarr", "mcap"])
def test_discounts_that_follow_from_the_flags_are_only_in_the_sidecar(tmp_path, format):
    """They are data if an edit sets them."""
    discounts, arrays = {}, {"observation": np.eye(3), "action": np.ones((2, 1)), "terminal": True}
    for name, discount in {"derived": {}, "data": {"discount": np.float32([0.5, 0])}}.items():
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "episode_0.npz", **arrays, **discount)
    stored = export(tmp_path / "derived", "zarr", tmp_path / "stored.zarr").path
    rlds.edit(stored, Set("discount", 0.5), to=tmp_path / "edited")
    options = {"fps": 10} if format == "lerobot" else {}
    suffix = ".hdf5" if format == "robomimic" else ""
    for path in (tmp_path / "derived", tmp_path / "data", tmp_path / "edited"):
        exported = export(path, format, tmp_path / f"made-{path.name}-v0{suffix}", **options)
        discount_placement = {placement.field: placement for placement in exported.placements}[
            "steps/discount"
        ]
        discounts[path.name] = discount_placement.how, discount_placement.why
        for old, new in zip(rlds.sources.open(path), rlds.sources.open(exported.path), strict=True):
            assert not [*differences(old, new)]
    assert discounts == {
        "derived": ("sidecar", "it is derived from the flags"),
        "data": ("exact", ""),
        "edited": ("exact", ""),
    }
