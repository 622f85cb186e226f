"""Datasets of d3rlpy, compared with plain loops over their arrays, and exports."""

import pickle

import conversions
import foreign_readers
import h5py
import numpy as np
import pytest
import raw_d3rlpy
import raw_npz

import rlds.sources
import tfds_builders
from rlds.raw_files import hdf5_values
from rlds.sources import reading
from rlds.sources.source import SourceError

D3rlpySource = rlds.sources.formats()["d3rlpy"].load()


def read_arrays(path):
    """Returns all arrays of a file."""
    with h5py.File(path) as file:
        return {name: item[()] for name, item in file.items() if name != "rlds"}


def assert_same(path, expected_path):
    actual, expected = read_arrays(path), read_arrays(expected_path)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert np.asarray(actual[name]).dtype == np.asarray(value).dtype, name
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


@pytest.mark.parametrize("count", [0, 2])
def test_episodes_have_the_rows_of_the_arrays(tmp_path, count):
    path = raw_d3rlpy.write(tmp_path / "a.h5", num_arrays=count, discrete=bool(count))
    episodes = rlds.sources.open(path)
    assert (episodes.format, len(episodes)) == ("d3rlpy", 3)
    for index, episode in enumerate(pickle.loads(pickle.dumps(episodes))):
        raw = raw_d3rlpy.episode(index, num_arrays=count, discrete=bool(count))
        terminated = bool(raw["terminated"])
        rows = len(raw["actions"])
        transitions = rows if terminated else rows - 1
        assert episode.num_steps == rows
        assert (episode.truncated, episode.final_observation_known) == (
            not terminated,
            not terminated,
        )
        assert episode.steps["is_terminal"].tolist() == [False] * (rows - 1) + [terminated]
        for row in range(transitions):
            np.testing.assert_array_equal(episode.steps["action"][row], raw["actions"][row])
            assert episode.steps["reward"][row] == raw["rewards"][row, 0]
        observation = episode.steps["observation"]
        pairs = (
            [(observation[str(i)], raw["observations"][i]) for i in range(count)]
            if count
            else [(observation, raw["observations"])]
        )
        for column, values in pairs:
            np.testing.assert_array_equal(column, values)
        assert reading.summary(episodes.source, "train", index) == episode.summary
    last = episodes[1].metadata["last_row"]
    np.testing.assert_array_equal(
        last["action"], raw_d3rlpy.episode(1, num_arrays=count, discrete=bool(count))["actions"][-1]
    )
    rlds.sources.export(path, "d3rlpy", tmp_path / "again.h5")
    assert_same(tmp_path / "again.h5", path)


@pytest.mark.parametrize("discrete", [False, True])
def test_files_of_d3rlpy_1_are_read(tmp_path, monkeypatch, discrete):
    """An end that is not terminal has its final observation in the last row, as in d3rlpy."""
    path = raw_d3rlpy.write_first_version(tmp_path / "a.h5", discrete=discrete)
    episodes = rlds.sources.open(path)
    assert (episodes.format, len(episodes)) == ("d3rlpy", 3)
    assert [e.summary.num_transitions for e in episodes] == [4, 3, 3]
    assert [e.truncated for e in episodes] == [False, True, True]
    for begin, episode in zip((0, 4, 8), episodes):
        assert episode.complete
        assert reading.summary(episodes.source, "train", begin // 4) == episode.summary
        assert episode.steps["observation"][:, 0].tolist() == [*range(begin, begin + 4)]
        length = episode.summary.num_transitions
        np.testing.assert_array_equal(
            episode.steps["reward"][:length], np.float32(range(begin, begin + length)) / 10
        )
    exported = rlds.sources.export(path, "d3rlpy", tmp_path / "b.h5")
    with h5py.File(path) as original, h5py.File(exported.path) as copy:
        for name in ("observations", "actions", "rewards"):
            rows = np.concatenate([copy[f"{name}_{index}"][()] for index in range(3)])
            np.testing.assert_array_equal(rows, original[name][()].reshape(12, -1))
    with h5py.File(path, "a") as file:
        file["weights"] = np.zeros(100)
    monkeypatch.setattr(hdf5_values, "_MAX_CONSTANT_BYTES", 500)
    with pytest.raises(SourceError, match=r"'weights': 800 bytes .*, expected at most 500"):
        rlds.sources.open(path)
    unfinished = raw_d3rlpy.write_first_version(tmp_path / "c.h5", ends=(3, 7))
    assert [e.complete for e in rlds.sources.open(unfinished)] == [True, True, False]


@pytest.mark.slow
def test_files_of_d3rlpy_1_are_read_as_d3rlpy_reads_them(tmp_path):
    path = raw_d3rlpy.write_first_version(tmp_path / "a.h5", terminals=(3, 9))
    script = """
import json, sys
from d3rlpy.dataset.io import load_v1
with open(sys.argv[1], "rb") as file:
    episodes = load_v1(file)
lengths = [[e.transition_count, bool(e.terminated)] for e in episodes]
print(json.dumps([lengths, [e.observations.tolist() for e in episodes]]))
"""
    actual = foreign_readers.run("d3rlpy.dataset", script, path)
    episodes = rlds.sources.open(path)
    assert actual == [
        [[e.summary.num_transitions, not e.truncated] for e in episodes],
        [e.steps["observation"].tolist() for e in episodes],
    ]


def write_sample(tmp_path):
    """Writes episodes with all kinds of ends, with and without final observations."""
    files = raw_npz.sample()
    arrays = files["unknown.npz"] = raw_npz.episode(4, terminal=True, seed=5)
    cut = files["cut.npz"] = raw_npz.episode(3, terminal=False, truncated=True, seed=6)
    for short in (arrays, cut):
        for name in ("observation/camera", "observation/joints"):
            short[name] = short[name][:-1]
        del short["info/qpos"]
    for arrays in files.values():
        arrays.pop("info/qpos", None)
    return raw_npz.write_folder(tmp_path / "raw", files)


@pytest.mark.slow
def test_d3rlpy_reads_an_exported_file(tmp_path):
    raw = write_sample(tmp_path)
    episodes = rlds.sources.open(raw)
    exported = rlds.sources.export(
        raw, "d3rlpy", tmp_path / "a.h5", observation="observation/joints"
    )
    script = """
import json, sys
from d3rlpy.dataset import io, components
with open(sys.argv[1], "rb") as file:
    episodes = io.load(components.Episode, file)
print(json.dumps([
    [e.transition_count, bool(e.terminated), float(e.rewards.sum()), e.observations.tolist()]
    for e in episodes
]))
"""
    actual = foreign_readers.run("d3rlpy.dataset", script, exported.path)
    for (count, terminated, total, observations), episode in zip(actual, episodes, strict=True):
        steps = episode.steps
        assert terminated == steps["is_terminal"][-1]
        is_final_known = episode.final_observation_known
        num_transitions = episode.num_steps - is_final_known
        # Without a terminal step, d3rlpy takes the last observation for the final one.
        assert count == (num_transitions if terminated or is_final_known else num_transitions - 1)
        joints = steps["observation"]["joints"]
        num_rows = len(joints) - (terminated and is_final_known)
        np.testing.assert_array_equal(np.float32(observations), joints[:num_rows])
        assert total == pytest.approx(float(steps["reward"].sum()))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("version", "2.0", "version '2.0', expected '2.1'"),
        ("num_episodes", 10**9, "1000000000 episodes, but"),
        ("actions_1", np.zeros((2, 2), np.float32), "columns of different lengths"),
        ("rewards_1", np.zeros((6, 2), np.float32), "but the first episode has"),
        ("observations_1", None, "'observations_1': missing"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, value, message):
    path = raw_d3rlpy.write(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        del file[name]
        if value is not None:
            file[name] = value
    with pytest.raises(SourceError, match=message):
        D3rlpySource(path).read("train", 1)


@pytest.mark.slow
def test_a_converted_file_is_exported_with_the_same_arrays(tmp_path):
    path = raw_d3rlpy.write(tmp_path / "a.h5", num_arrays=2)
    builder = conversions.check_conversion(
        lambda: D3rlpySource(path), tmp_path, builder=tfds_builders.RldsD3rlpy, path=path
    )
    rlds.sources.export(builder.data_path, "d3rlpy", tmp_path / "again.h5")
    assert_same(tmp_path / "again.h5", path)
