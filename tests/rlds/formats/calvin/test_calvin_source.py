"""CALVIN, compared with plain loops over its files."""

import os

import numpy as np
import pytest
import raw_calvin

import rlds.sources
from rlds.sources import SourceError

CalvinSource = rlds.sources.formats()["calvin"].load()


@pytest.mark.slow
@pytest.mark.parametrize("action", ["actions", "rel_actions"])
def test_steps_have_the_arrays_of_their_files(tmp_path, action):
    path = raw_calvin.write(tmp_path)
    for split, ranges in raw_calvin.RANGES.items():
        episodes = rlds.sources.open(path, split, action=action)
        assert episodes.format == "calvin"
        assert len(episodes) == len(ranges)
        for episode, (first, last) in zip(episodes, ranges):
            assert episode.key == f"episode_{first:07d}"
            assert (episode.origin.begin, episode.origin.end) == (first, last + 1)
            assert episode.truncated
            assert not episode.final_observation_known
            for row, frame in enumerate(range(first, last + 1)):
                with np.load(path / split / f"episode_{frame:07d}.npz") as raw:
                    for name in raw.files:
                        column = {**episode.steps, **episode.steps["observation"]}.get(name)
                        if name == action:
                            column = episode.steps["action"]
                        assert column.dtype == raw[name].dtype
                        np.testing.assert_array_equal(column[row], raw[name])
            assert not episode.steps["is_terminal"].any()
    field = episodes.spec["steps"]["observation"]["scene_obs"]
    assert field.names[6:8] == ("red_block_x", "red_block_y")


def test_overlapping_annotations_are_all_kept(tmp_path):
    path = raw_calvin.write(tmp_path)
    episodes = rlds.sources.open(path, "training")
    annotations = raw_calvin.annotations(raw_calvin.WINDOWS["training"])
    for episode, rows in zip(episodes, ([0, 1], [2])):
        actual = episode.metadata["annotations"]
        first = episode.origin.begin
        for position, row in enumerate(rows):
            begin, end = raw_calvin.WINDOWS["training"][row]
            assert (actual["begin"][position], actual["end"][position]) == (
                begin - first,
                end - first + 1,
            )
            assert actual["text"][position] == annotations["language"]["ann"][row]
            assert actual["task"][position] == annotations["language"]["task"][row]
            np.testing.assert_array_equal(
                actual["embedding"][position], annotations["language"]["emb"][row, 0]
            )
        assert len(actual["text"]) == len(rows)
    assert [e.metadata["scene"] for e in episodes] == ["calvin_scene_A", "calvin_scene_B"]
    faults = [str(fault) for fault in episodes.source.capabilities.faults("training")]
    assert len(faults) == 3
    assert "row 3: the window from 64 to 70 is outside all ranges" in faults[0]
    assert "row 4: the window from 104 to 107" in faults[1]
    assert (
        "episode_0000064.npz: the step is outside all ranges of ep_start_end_ids.npy" in faults[2]
    )
    metadata = episodes.metadata["calvin"]["training"]
    assert metadata["statistics.yaml"].startswith("robot_obs:")
    assert metadata["scene_info"] == {"calvin_scene_B": [0, 80], "calvin_scene_A": [81, 200]}
    (episode,) = rlds.sources.open(path / "validation")
    assert episode.metadata["annotations"]["text"].tolist() == []


def test_errors_name_the_file_and_row_of_damaged_steps(tmp_path):
    path = raw_calvin.write(tmp_path, splits=("training",))
    (path / "training" / "episode_0000062.npz").unlink()
    file = path / "training" / "episode_0000103.npz"
    np.savez(file, **{**raw_calvin.step(103), "robot_obs": np.zeros(14)})
    episodes = rlds.sources.open(path)
    assert episodes.columns(1, ["action"], 0, 2)["action"].shape == (2, 7)
    with pytest.raises(SourceError, match=r"0000062\.npz, episode episode_0000060, row 2: no such"):
        episodes[1]
    with pytest.raises(SourceError, match=r"row 3, field 'robot_obs': float64 of shape \(14,\), b"):
        episodes[0]
    assert episodes.peek(1).num_steps == 4


class Harm:
    def __reduce__(self):
        return print, ("harm",)


DAMAGE = {
    "ranges": ("ep_start_end_ids.npy", np.zeros((2, 3), int), "expected two integers"),
    "overlap": ("ep_start_end_ids.npy", np.array([(0, 5), (5, 6)]), "overlaps another range"),
    "backwards": (
        "ep_start_end_ids.npy",
        np.array([(5, 2)]),
        "row 0: the range 5 to 2 ends before",
    ),
    "too many": ("ep_start_end_ids.npy", np.array([(5, 2**62)]), "4,611,686,018,427,387,900 steps"),
    "no ranges": ("ep_start_end_ids.npy", np.zeros((0, 2), int), "expected at least one range"),
    "harm": ("lang_annotations/auto_lang_ann.npy", np.array([Harm()]), "names builtins.print"),
    "texts": (
        "lang_annotations/auto_lang_ann.npy",
        np.array({"language": {"ann": ["a"], "task": []}, "info": {"indx": []}}),
        "auto_lang_ann.npy: cannot be read: ",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_tables_are_refused(tmp_path, case):
    path = raw_calvin.write(tmp_path, splits=("training",))
    name, content, message = DAMAGE[case]
    np.save(path / "training" / name, content, allow_pickle=True)
    with pytest.raises(SourceError, match=message):
        CalvinSource(path)


def test_a_named_pipe_is_refused(tmp_path):
    file = raw_calvin.write(tmp_path, splits=("training",)) / "training" / "statistics.yaml"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(SourceError, match=r"statistics\.yaml: not a regular file"):
        CalvinSource(tmp_path)
