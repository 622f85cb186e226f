"""Datasets of OGBench, compared with plain loops over their rows."""

import pickle

import numpy as np
import pytest
import raw_ogbench

import rlds.sources
from rlds.sources import SourceError
from rlds.sources.testing import differences

OGBenchSource = rlds.sources.formats()["ogbench"].load()


def check(episodes, raw):
    ends = np.flatnonzero(raw["terminals"]) + 1
    assert len(episodes) == len(ends)
    for episode, begin, end in zip(episodes, [0, *ends], ends):
        steps = episode.steps
        assert episode.num_steps == end - begin
        assert episode.truncated
        assert episode.final_observation_known
        assert not steps["is_terminal"].any()
        assert "reward" not in steps
        for row in range(begin, end):
            step = row - begin
            np.testing.assert_array_equal(steps["observation"][step], raw["observations"][row])
            np.testing.assert_array_equal(steps["qpos"][step], raw["qpos"][row])
            np.testing.assert_array_equal(steps["button_states"][step], raw["button_states"][row])
            if row < end - 1:
                np.testing.assert_array_equal(steps["action"][step], raw["actions"][row])
        assert not steps["action"][-1].any()
        np.testing.assert_array_equal(episode.metadata["last_action"], raw["actions"][end - 1])


@pytest.mark.parametrize("pixels", [False, True])
def test_episodes_have_the_values_of_the_rows(tmp_path, pixels):
    path = raw_ogbench.write(tmp_path, pixels=pixels)
    raw = raw_ogbench.arrays(pixels=pixels)
    episodes = rlds.sources.open(path, "train")
    assert (episodes.format, [*episodes.splits]) == ("ogbench", ["train", "val"])
    check(episodes, raw)
    check(rlds.sources.open(tmp_path, "val"), raw_ogbench.arrays((5,), seed=1, pixels=pixels))
    # Backwards, in a copy for another process, and only some fields.
    copy = pickle.loads(pickle.dumps(episodes))
    for index in (2, 0, 1):
        assert not [*differences(episodes[index], copy[index])]
    window = copy.columns(1, ["qpos"], 2, 4)
    np.testing.assert_array_equal(window["qpos"], raw["qpos"][4 + 2 : 4 + 4])
    assert [summary.num_steps for summary in copy.summaries()] == [4, 6, 3]


def test_compact_files_mark_two_rows(tmp_path):
    path = raw_ogbench.write(tmp_path, compact=True)
    lengths = [episode.num_steps for episode in rlds.sources.open(path, "train")]
    assert lengths == [4, 6, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terminals": np.zeros(13, np.float32)}, "the file is cut"),
        ({"actions": np.zeros((12, 2), np.float32)}, "12 rows, but terminals has 13"),
        ({"terminals": np.array([1] + [0] * 11 + [1.0])}, "an episode without a transition"),
        ({"qpos": np.zeros((13, 4), np.float32)}, "unlike in the file of the other split"),
        ({"qpos": np.array([None] * 13)}, "pickled objects"),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, message):
    path = raw_ogbench.write(tmp_path)
    np.savez(path, **{**raw_ogbench.arrays(), **change})
    with pytest.raises(SourceError, match=message):
        OGBenchSource(path)


def test_truncated_and_changed_files_are_refused(tmp_path):
    path = raw_ogbench.write(tmp_path)
    episodes = rlds.sources.open(path, "train")
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(SourceError):
        OGBenchSource(path)
    with pytest.raises(SourceError, match="changed"):
        pickle.loads(pickle.dumps(episodes)).episode(0)
