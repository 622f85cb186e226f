"""Files of ManiSkill, compared with plain loops over them."""

import json

import h5py
import numpy as np
import pytest
import raw_maniskill

import rlds.sources
from rlds.sources.source import SourceError
from rlds_ecosystem.model.nests import lookup

KINDS = {
    "ManiSkill 3": {},
    "states only": {"obs": "none", "rewards": False},
    "ManiSkill 2": {"obs": "array", "version": 2, "actions": "dict", "commit_info": False},
}


def check_episode(episode, path):
    """Compares an episode with its group, row by row."""
    with h5py.File(path) as file:
        group, steps = file[episode.key], episode.steps
        length = len(group["truncated"])
        assert episode.num_steps == length + 1
        assert episode.final_observation_known
        assert episode.truncated == (episode.key != "traj_1")
        fields = {"obs": "observation", "actions": "action", "rewards": "reward"}
        compared = set()

        def compare(name, array):
            if not isinstance(array, h5py.Dataset):
                return
            root, slash, subpath = name.partition("/")
            field = fields.get(root, root) + slash + subpath
            compared.add(field.partition("/")[0])
            if name == "env_init_state":
                np.testing.assert_array_equal(episode.metadata[name], array)
                return
            column = lookup(steps, field)
            assert column.dtype == array.dtype
            for row in range(length + 1):
                expected = array[row] if row < len(array) else np.zeros_like(array[0])
                assert column[row].tobytes() == expected.tobytes(), (name, row)

        group.visititems(compare)
        expected_fields = {"discount", "is_first", "is_last", "is_terminal", *compared}
        assert steps.keys() | episode.metadata.keys() & {"env_init_state"} == expected_fields
        terminal = episode.key == "traj_1"
        np.testing.assert_array_equal(steps["is_terminal"], [False] * length + [terminal])
        discount = [1] * (length - 1) + [1 - terminal, 0]
        np.testing.assert_array_equal(steps["discount"], discount)
    entries = json.loads(path.with_suffix(".json").read_text())["episodes"]
    (entry,) = (entry for entry in entries if f"traj_{entry['episode_id']}" == episode.key)
    assert json.loads(episode.metadata["entry"]) == entry
    assert episode.metadata["episode_seed"] == entry["episode_seed"]
    assert episode.metadata["control_mode"] == "pd_joint_pos"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_episodes_have_the_rows_of_the_file(tmp_path, kind):
    name = "trajectory.rgbd.pd_joint_pos.physx_cpu"
    path = raw_maniskill.write(tmp_path / f"{name}.h5", **KINDS[kind])
    for opened in (path, tmp_path):
        episodes = rlds.sources.open(opened)
        assert episodes.format == "maniskill"
        keys = [episode.key for episode in episodes]
        assert keys == ["traj_0", "traj_1", "traj_2", "traj_10"]  # Not in the order of the file.
    for episode in episodes:
        assert episode.complete
        check_episode(episode, path)
    content = json.loads(path.with_suffix(".json").read_text())
    metadata = episodes.metadata["maniskill"]
    assert metadata["file"] == name
    assert {**metadata["json"], "episodes": content["episodes"]} == content
    assert list(episodes.source.capabilities.faults("train")) == []
    # A range of rows has the same values, including the placeholder of the last step.
    all_steps, columns = episodes.columns(0), episodes.columns(0, ["success", "env_states"], 2, 5)
    np.testing.assert_array_equal(columns["success"], all_steps["success"][2:5])
    assert len(columns["success"]) == 3


def test_episodes_in_only_one_of_the_two_files_are_reported(tmp_path):
    path = raw_maniskill.write(tmp_path / "t.h5", {0: 3, 4: 2, 5: 3}, entries=[5, 0, 7])
    episodes = rlds.sources.open(path)
    assert [
        str(fault).partition(", ")[2] for fault in episodes.source.capabilities.faults("train")
    ] == [
        "episode traj_7, row 2: listed, but t.h5 has no traj_7",
        "episode traj_4: t.json does not list it",
    ]
    assert [bool(episode.metadata["entry"]) for episode in episodes] == [True, False, True]
    path.with_suffix(".json").unlink()
    assert [episode.metadata["entry"] for episode in rlds.sources.open(path)] == ["", "", ""]


def test_an_episode_with_fewer_steps_than_listed_is_incomplete(tmp_path):
    path = raw_maniskill.write(tmp_path / "t.h5")
    file = path.with_suffix(".json")
    content = json.loads(file.read_text())
    content["episodes"][2]["elapsed_steps"] = 9
    file.write_text(json.dumps(content))
    actual = {episode.key: episode.complete for episode in rlds.sources.open(path)}
    assert actual == {"traj_0": True, "traj_1": True, "traj_2": False, "traj_10": True}


def test_a_damaged_group_is_one_damaged_episode(tmp_path):
    path = raw_maniskill.write(tmp_path / "t.h5")
    with h5py.File(path, "a") as file:
        rows = file["traj_2/terminated"][:-1]
        del file["traj_2/actions"], file["traj_1/terminated"]
        file["traj_1/terminated"] = rows
    episodes = rlds.sources.open(path)
    with pytest.raises(SourceError, match=r"t\.h5, episode traj_2.*'actions': missing"):
        episodes.episode(2)
    with pytest.raises(SourceError, match=r"traj_1.*'terminated': 4 rows, expected 3"):
        episodes.episode(1)
    assert [episodes.episode(index).num_steps for index in (0, 3)] == [5, 3]


def test_files_that_cannot_be_opened_are_refused(tmp_path):
    path = raw_maniskill.write(tmp_path / "t.h5", {0: 2})
    path.with_suffix(".json").write_text("[")
    with pytest.raises(SourceError, match=r"t\.json"):
        rlds.sources.open(path)
    path.with_suffix(".json").unlink()
    path.write_bytes(path.read_bytes()[:-100])  # A recording that was not closed.
    with pytest.raises(SourceError, match=r"t\.h5.*not a complete HDF5 file"):
        rlds.sources.open(path, format="maniskill")
    with pytest.raises(FileNotFoundError, match=r"none. does not exist"):
        rlds.sources.open(tmp_path / "none", format="maniskill")
