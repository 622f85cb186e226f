"""Files of ManiSkill that are written, of episodes of ManiSkill and of others."""

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


def check_same_values(one, other, keys):
    """Compares files, of which the second has the groups in another order."""
    first, second = (json.loads(path.with_suffix(".json").read_text()) for path in (one, other))
    entries = {entry["episode_id"]: entry for entry in first.pop("episodes")}
    listed = second.pop("episodes")
    assert first == {name: value for name, value in second.items() if name != "rlds_sidecar"}
    with h5py.File(one) as raw, h5py.File(other) as exported:
        assert dict(raw.attrs) == dict(exported.attrs)
        assert len(raw) == len(exported) == len(keys)
        for number, key in enumerate(keys):
            entry = entries[int(key.removeprefix("traj_"))]
            assert listed[number] == {**entry, "episode_id": number}
            group = exported[f"traj_{number}"]
            assert dict(raw[key].attrs) == dict(group.attrs)
            for name, array in leaves_at(raw[key], None):
                assert array.dtype == group[name].dtype
                np.testing.assert_array_equal(array, group[name])


def write_raw(path, kind):
    raw_maniskill.write(path, **KINDS[kind])
    with h5py.File(path, "a") as file:
        file.attrs["made by"] = "ü"
        file["traj_2"].attrs["note"] = "odd"
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_files_hold_what_they_held(tmp_path, kind):
    path = write_raw(tmp_path / "raw" / "trajectory.none.pd_joint_pos.h5", kind)
    export(path, "maniskill", tmp_path / "made")
    keys = [episode.key for episode in rlds.sources.open(tmp_path / "made")]
    assert keys == ["traj_0", "traj_1", "traj_2", "traj_10"]
    check_same_values(path, tmp_path / "made" / path.name, keys)


@pytest.mark.slow
def test_a_tfds_dataset_of_maniskill_is_exported_with_the_same_values(tmp_path):
    path = write_raw(tmp_path / "raw" / "t.h5", "ManiSkill 2")
    built = tfds_builders.convert(ManiSkillSource(path), name="toy", data_dir=tmp_path / "tfds")
    export(built.data_path, "maniskill", tmp_path / "made")
    keys = [episode.key for episode in rlds.sources.open(tmp_path / "made")]
    check_same_values(path, tmp_path / "made" / "t.h5", keys)


def write_npz(directory):
    """Episodes with and without their final observation, terminal ones and others."""
    files = raw_npz.sample()
    without = raw_npz.episode(4, seed=7)
    cut = {"observation/camera", "observation/joints", "info/qpos"}
    files["episode_11.npz"] = {k: v[:-1] if k in cut else v for k, v in without.items()}
    return raw_npz.write_folder(directory, files)


@pytest.mark.slow
def test_episodes_of_other_formats_are_exported(tmp_path):
    path = write_npz(tmp_path / "raw")
    exported = export(path, "maniskill", tmp_path / "made", env_id="Stack-v1")
    how = {placement.field: placement.how for placement in exported.placements}
    assert how["steps/observation/camera"] == how["steps/action"] == "exact"
    assert how["steps/note"] == how["goal"] == "sidecar"
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
    opened = rlds.sources.open(tmp_path / "made")
    assert opened.format == "maniskill"
    for one, two in zip(rlds.sources.Episodes(NpzSource(path)), opened, strict=True):
        assert list(differences(one, two)) == []


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
def test_the_merge_tool_of_maniskill_reads_it(tmp_path):
    """The wheel is unpacked; the packages are stubs, as their own need a simulator."""
    wheel = os.environ.get("MANISKILL_WHEEL", "")
    if not wheel:
        pytest.skip("MANISKILL_WHEEL names no wheel of mani_skill 3.0.1")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    raw = write_raw(tmp_path / "raw" / "t.h5", "states only")
    export(raw, "maniskill", tmp_path / "again")
    export(write_npz(tmp_path / "npz"), "maniskill", tmp_path / "others")
    parts = [tmp_path / "again" / "t.h5", tmp_path / "others" / "trajectory.h5"]
    merged = tmp_path / "merged" / "trajectory.h5"
    merged.parent.mkdir()
    command = [sys.executable, "-c", _MERGE, str(tmp_path / "wheel"), str(merged), *map(str, parts)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path("/"))
    assert not done.returncode, done.stderr
    episodes = rlds.sources.open(merged, format="maniskill").source
    assert episodes.num_episodes("train") == 8
    with h5py.File(merged) as file:
        originals = []
        for part in parts:
            with h5py.File(part) as opened:
                entries = json.loads(part.with_suffix(".json").read_text())["episodes"]
                for entry in entries:
                    group = opened[f"traj_{entry['episode_id']}"]
                    originals.append(group["actions"][:])
        for number, actions in enumerate(originals):
            np.testing.assert_array_equal(file[f"traj_{number}/actions"], actions)
