"""What datasets state beside their rows: merges compare it, and edits keep it."""

import json

import h5py
import numpy as np
import pytest

import rlds.sources
from rlds import editing
from rlds.editing import Merge


def demonstrations(path, env_args=None, **attributes):
    """A file of robomimic with two demonstrations, whose actions name their file."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = 6
        attributes |= {} if env_args is None else {"env_args": json.dumps(env_args)}
        for name, value in attributes.items():
            data.attrs[name] = value
        for k in range(2):
            demo = data.create_group(f"demo_{k}")
            demo.attrs["num_samples"], demo.attrs["model_file"] = 3, "<mujoco/>"
            demo["actions"] = np.full((3, 2), hash(path.name) % 100 + k, np.float32)
            demo["obs/eef"], demo["obs/gripper"] = np.zeros((3, 3)), np.ones((3, 1))
            demo["rewards"], demo["dones"] = np.zeros(3), np.array([0, 0, 1])


def environment(*, is_delta):
    controller = {"type": "OSC_POSE", "control_delta": is_delta}
    return {"env_name": "Lift", "type": 1, "env_kwargs": {"controller_configs": controller}}


def stated(path):
    with h5py.File(path) as file:
        return {
            name: json.loads(value) if name == "env_args" else value
            for name, value in file["data"].attrs.items()
        }


def test_what_gives_rows_their_meaning_is_equal_or_is_decided(tmp_path):
    a, b, made = (tmp_path / name for name in ("a.hdf5", "b.hdf5", "made.hdf5"))
    demonstrations(a, environment(is_delta=True), date="monday", lab="x")
    demonstrations(b, environment(is_delta=False), date="tuesday")
    with pytest.raises(ValueError, match=r"control_delta: true in .*a.hdf5, false in .*b.hdf5"):
        editing.prepare_edit(a, [Merge([b])])
    plan = str(editing.prepare_edit(a, [Merge([b], metadata="first")]))
    assert "control_delta: true in" in plan
    assert "the first dataset's is stated of all" in plan
    assert "/date: " in plan
    assert f"attributes/lab: not in {b}; stated of all" in plan
    rlds.edit(a, Merge([b], metadata="first"), to=made)
    assert stated(made)["env_args"] == environment(is_delta=True)
    assert stated(made)["lab"] == "x"
    assert "date" not in stated(made)
    with pytest.raises(ValueError, match="metadata: got 'last', expected one of"):
        editing.prepare_edit(a, [Merge([b], metadata="last")])


def test_metadata_that_differs_is_kept_with_the_episodes(tmp_path):
    a, b, made = (tmp_path / name for name in ("a.hdf5", "b.hdf5", "made.hdf5"))
    demonstrations(a, environment(is_delta=True))
    demonstrations(b, environment(is_delta=False))
    rlds.edit(a, Merge([b], metadata="episodes"), to=made)
    episodes = rlds.sources.open(made)
    found = [json.loads(episode.metadata["dataset_metadata"]) for episode in episodes]
    texts = [
        it["robomimic"]["files"][name]["attributes"]["env_args"]
        for it, name in zip(found, ("a.hdf5",) * 2 + ("b.hdf5",) * 2)
    ]
    deltas = [
        json.loads(text)["env_kwargs"]["controller_configs"]["control_delta"] for text in texts
    ]
    assert deltas == [True, True, False, False]
    assert stated(made)["env_args"]["env_name"] == ""  # Of no environment is it said of all.
    assert "dataset_metadata" in str(editing.prepare_edit(a, [Merge([b], metadata="episodes")]))


def test_files_that_were_opened_together_do_not_get_one_environment(tmp_path):
    (tmp_path / "all").mkdir()
    for name, is_delta in (("a", True), ("b", False)):
        demonstrations(tmp_path / f"all/{name}.hdf5", environment(is_delta=is_delta))
    with pytest.raises(ValueError, match="2 unlike env_args, .* Pass env_args="):
        rlds.sources.export(tmp_path / "all", "robomimic", tmp_path / "made.hdf5")
    given = environment(is_delta=True)
    rlds.sources.export(tmp_path / "all", "robomimic", tmp_path / "made.hdf5", env_args=given)
    assert stated(tmp_path / "made.hdf5")["env_args"] == given
