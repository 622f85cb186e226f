"""Exports of ManiSkill files, from episodes of ManiSkill and of another format."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import raw_maniskill
import raw_npz

import rlds.sources
import tfds_builders
from rlds.sources import export
from rlds.sources.testing import differences
from rlds_ecosystem.model.nests import leaves_at

ManiSkillSource = rlds.sources.formats()["maniskill"].load()
NpzSource = rlds.sources.formats()["npz"].load()

KINDS = {
    "ManiSkill 3": {"entries": [10, 0, 1, 2]},
    "states only": {"obs": "none", "rewards": False},
    "ManiSkill 2": {"obs": "array", "version": 2, "actions": "dict", "commit_info": False},
}


def check_same_values(original, copy, keys):
    """Compares two files; the groups of the second are in the order of the keys."""
    first, second = (json.loads(path.with_suffix(".json").read_text()) for path in (original, copy))
    entries = {entry["episode_id"]: entry for entry in first.pop("episodes")}
    new_entries = second.pop("episodes")
    assert first == {name: value for name, value in second.items() if name != "rlds_sidecar"}
    with h5py.File(original) as raw, h5py.File(copy) as exported:
        assert dict(raw.attrs) == dict(exported.attrs)
        assert len(raw) == len(exported) == len(keys)
        for index, key in enumerate(keys):
            entry = entries[int(key.removeprefix("traj_"))]
            assert new_entries[index] == {**entry, "episode_id": index}
            group = exported[f"traj_{index}"]
            assert dict(raw[key].attrs) == dict(group.attrs)
            for name, array in leaves_at(raw[key], None):
                assert array.dtype == group[name].dtype
                np.testing.assert_array_equal(array, group[name])


def write_raw(path, kind):
    raw_maniskill.write(path, **KINDS[kind])
    with h5py.File(path, "a") as file:
        file.attrs["written by"] = "ü"
        file["traj_2"].attrs["note"] = "odd"
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_exported_files_have_the_values_of_the_originals(tmp_path, kind):
    path = write_raw(tmp_path / "raw" / "trajectory.none.pd_joint_pos.h5", kind)
    export(path, "maniskill", tmp_path / "made")
    keys = [episode.key for episode in rlds.sources.open(tmp_path / "made")]
    assert keys == ["traj_0", "traj_1", "traj_2", "traj_10"]
    check_same_values(path, tmp_path / "made" / path.name, keys)


@pytest.mark.slow
def test_tfds_dataset_of_maniskill_is_exported_with_the_same_values(tmp_path):
    path = write_raw(tmp_path / "raw" / "t.h5", "ManiSkill 2")
    built = tfds_builders.convert(ManiSkillSource(path), name="toy", data_dir=tmp_path / "tfds")
    export(built.data_path, "maniskill", tmp_path / "made")
    keys = [episode.key for episode in rlds.sources.open(tmp_path / "made")]
    check_same_values(path, tmp_path / "made" / "t.h5", keys)


def write_npz(directory):
    """Writes episodes with and without final observations, terminal and truncated."""
    files = raw_npz.sample()
    arrays = raw_npz.episode(4, seed=7)
    names = {"observation/camera", "observation/joints", "info/qpos"}
    files["episode_11.npz"] = {k: v[:-1] if k in names else v for k, v in arrays.items()}
    return raw_npz.write_folder(directory, files)


@pytest.mark.slow
def test_episodes_of_other_formats_are_exported(tmp_path):
    path = write_npz(tmp_path / "raw")
    exported = export(path, "maniskill", tmp_path / "made", env_id="Stack-v1")
    placements = {placement.field: placement.how for placement in exported.placements}
    assert placements["steps/observation/camera"] == placements["steps/action"] == "exact"
    assert placements["steps/note"] == placements["goal"] == "sidecar"
    content = json.loads((tmp_path / "made" / "trajectory.json").read_text())
    assert content["env_info"]["env_id"] == "Stack-v1"
    assert [entry["elapsed_steps"] for entry in content["episodes"]] == [3, 5, 4, 4]
    with (
        h5py.File(tmp_path / "made" / "trajectory.h5") as file,
        np.load(path / "episode_1.npz") as raw,
    ):
        np.testing.assert_array_equal(file["traj_0/obs/joints"], raw["observation/joints"])
        np.testing.assert_array_equal(file["traj_0/actions"], raw["action"])
        np.testing.assert_array_equal(file["traj_0/terminated"], [False, False, True])
        assert file["traj_0/obs/camera"].compression == "gzip"
        assert len(file["traj_3/obs/joints"]) == len(file["traj_3/actions"])
    episodes = rlds.sources.open(tmp_path / "made")
    assert episodes.format == "maniskill"
    for original, copy in zip(rlds.sources.Episodes(NpzSource(path)), episodes, strict=True):
        assert list(differences(original, copy)) == []


_MERGE = """
import sys, types
for name in ("mani_skill", "mani_skill.utils", "mani_skill.trajectory"):
    package = types.ModuleType(name)
    package.__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
    sys.modules[name] = package
from mani_skill.trajectory.merge_trajectory import merge_trajectories
merge_trajectories(sys.argv[2], sys.argv[3:])
"""


@pytest.mark.slow
def test_the_merge_tool_of_maniskill_reads_exports(tmp_path):
    """The wheel is unpacked; the packages are stubs, as their own need a simulator."""
    wheel = os.environ.get("MANISKILL_WHEEL", "")
    if not wheel:
        pytest.skip("MANISKILL_WHEEL names no wheel of mani_skill 3.0.1")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    raw = write_raw(tmp_path / "raw" / "t.h5", "states only")
    export(raw, "maniskill", tmp_path / "again")
    export(write_npz(tmp_path / "npz"), "maniskill", tmp_path / "others")
    paths = [tmp_path / "again" / "t.h5", tmp_path / "others" / "trajectory.h5"]
    merged = tmp_path / "merged" / "trajectory.h5"
    merged.parent.mkdir()
    command = [sys.executable, "-c", _MERGE, str(tmp_path / "wheel"), str(merged), *map(str, paths)]
    process = subprocess.run(command, capture_output=True, text=True, cwd=Path("/"))
    assert not process.returncode, process.stderr
    episodes = rlds.sources.open(merged, format="maniskill").source
    assert episodes.num_episodes("train") == 8
    with h5py.File(merged) as file:
        originals = []
        for path in paths:
            with h5py.File(path) as opened:
                entries = json.loads(path.with_suffix(".json").read_text())["episodes"]
                for entry in entries:
                    group = opened[f"traj_{entry['episode_id']}"]
                    originals.append(group["actions"][:])
        for index, actions in enumerate(originals):
            np.testing.assert_array_equal(file[f"traj_{index}/actions"], actions)
