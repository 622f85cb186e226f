"""Exported datasets combine facts of their files and of their sidecar."""

import json
import shutil

import h5py
import numpy as np
import pytest

import rlds.sources
from rlds.sources import SourceError
from rlds.sources.rates import rate_in
from rlds_creator.viewing import Catalog
from rlds_tools import inspection, validating


@pytest.fixture
def raw(tmp_path):
    """Three episodes in NumPy files, which state no rate."""
    (tmp_path / "raw").mkdir()
    for index in range(3):
        arrays = {
            "observation": np.ones((5 + index, 2), np.float32),
            "action": np.ones((4 + index, 1), np.float32),
        }
        np.savez(tmp_path / f"raw/episode_{index}.npz", **arrays)
    return tmp_path / "raw"


def _rate_of(episodes):
    return rate_in(episodes.metadata)


def test_export_has_the_frame_rate_of_its_files(raw, tmp_path):
    rlds.sources.export(raw, "lerobot", tmp_path / "lerobot", fps=10)
    episodes = rlds.sources.open(tmp_path / "lerobot")
    assert _rate_of(episodes) == 10
    assert _rate_of(episodes.select([2, 0])) == 10
    assert _rate_of(episodes.where("steps > 5")) == 10
    catalog = Catalog([tmp_path / "lerobot"])
    [dataset] = catalog.datasets()["datasets"]
    assert catalog.view(dataset["id"], "train", 1).summary()["fps"] == 10

    # The rate survives formats that cannot store it.
    rlds.sources.export(tmp_path / "lerobot", "robomimic", tmp_path / "demos.hdf5")
    assert _rate_of(rlds.sources.open(tmp_path / "demos.hdf5")) == 10
    rlds.sources.export(tmp_path / "demos.hdf5", "lerobot", tmp_path / "again")
    assert json.loads((tmp_path / "again/meta/info.json").read_text())["fps"] == 10


def test_rate_option_of_an_export_overrides_the_rate_of_its_source(raw, tmp_path):
    rlds.sources.export(raw, "lerobot", tmp_path / "slow", fps=10)
    rlds.sources.export(tmp_path / "slow", "lerobot", tmp_path / "fast", fps=20)
    assert _rate_of(rlds.sources.open(tmp_path / "fast")) == 20
    rlds.sources.export(tmp_path / "fast", "mcap", tmp_path / "mcap", rate=5)
    assert _rate_of(rlds.sources.open(tmp_path / "mcap")) == 5


def test_assumed_rate_is_not_stored(raw, tmp_path):
    rlds.sources.export(raw, "mcap", tmp_path / "mcap")
    assert _rate_of(rlds.sources.open(tmp_path / "mcap")) is None


def test_lengths_and_faults_are_available_with_a_sidecar(raw, tmp_path):
    rlds.sources.export(raw, "lerobot", tmp_path / "lerobot", fps=10)
    episodes = rlds.sources.open(tmp_path / "lerobot")
    assert episodes.lengths().num_steps.tolist() == [5, 6, 7]
    assert [*episodes.summaries()] == [episode.summary for episode in episodes]
    (split,) = inspection.inspect(tmp_path / "lerobot").splits
    assert split.steps == 18

    file = tmp_path / "lerobot/meta/info.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"total_frames": 9999}))
    report = validating.validate(tmp_path / "lerobot")
    (check,) = report.checks
    assert any("9999" in finding.text for finding in check.findings)


def test_splits_added_to_an_export_have_their_own_episodes(raw, tmp_path):
    rlds.sources.export(raw, "lerobot", tmp_path / "lerobot", fps=10)
    exported = rlds.sources.open(tmp_path / "lerobot")
    info = tmp_path / "lerobot/meta/info.json"
    splits = {"val": "1:3", "train": "0:1"}
    info.write_text(json.dumps(json.loads(info.read_text()) | {"splits": splits}))
    split = rlds.sources.open(tmp_path / "lerobot", "val")
    assert [episode.key for episode in split] == [exported.episode(i).key for i in (1, 2)]
    assert split.lengths().num_steps.tolist() == [6, 7]


def _copy(source, target):
    shutil.copytree(source, target)
    return target


def test_missing_or_foreign_sidecar_causes_a_warning(raw, tmp_path):
    target = tmp_path / "made"
    rlds.sources.export(raw, "lerobot", target, fps=10)
    bare, swapped = _copy(target, tmp_path / "bare"), _copy(target, tmp_path / "swapped")
    shutil.rmtree(bare / ".rlds")
    with pytest.warns(UserWarning, match=r"bare/\.rlds: it is missing\. The data has a sidecar"):
        episodes = rlds.sources.open(bare)
    assert [len(episode) for episode in episodes] == [4, 5, 6]  # The lengths of LeRobot.
    faults = episodes.source.capabilities.faults("train")
    [fault] = [fault for fault in faults if ".rlds" in str(fault)]
    assert isinstance(fault, SourceError)
    rlds.sources.export(rlds.sources.open(target).select([0, 1]), "lerobot", tmp_path / "two")
    shutil.rmtree(swapped / ".rlds")
    shutil.copytree(tmp_path / "two/.rlds", swapped / ".rlds")
    with pytest.warns(UserWarning, match="it belongs to other data: its digest is"):
        rlds.sources.open(swapped)
    (swapped / "meta/rlds.json").unlink()  # Like data that another program rewrote.
    with pytest.warns(UserWarning, match="it has 2 episodes, and the data 3"):
        rlds.sources.open(swapped)


def test_error_of_a_damaged_sidecar_names_the_file(raw, tmp_path):
    rlds.sources.export(raw, "lerobot", tmp_path / "made", fps=10)
    [keys] = (tmp_path / "made/.rlds/columns").glob("*-key.data")
    keys.write_bytes(keys.read_bytes()[:-1])
    with pytest.raises(SourceError, match=r"about\.json.*-key\.data: truncated before byte"):
        rlds.sources.open(tmp_path / "made").source.key("train", 0)


@pytest.mark.parametrize("format", ["robomimic", "d4rl", "d3rlpy"])
def test_visitors_of_an_exported_file_see_only_arrays_of_its_format(format, raw, tmp_path):
    """D4RL reads row `i` of every array of a file."""
    rlds.sources.export(raw, format, tmp_path / "data.hdf5")
    with h5py.File(tmp_path / "data.hdf5") as file:
        actual = []
        file.visititems(lambda name, item: actual.append(name) if hasattr(item, "shape") else None)
    assert actual
    assert not [name for name in actual if name.startswith("rlds")]
