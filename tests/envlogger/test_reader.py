import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import dm_env
import numpy as np
import pytest
from dm_env import specs

import envlogger
from envlogger import BackendType, Reader
from envlogger.backends.in_memory_backend import InMemoryBackendReader, InMemoryBackendWriter
from envlogger.converters.rlds_episode import to_rlds_episode, to_rlds_episodes
from envlogger.errors import UsageError
from envlogger.testing.catch_env import Catch


def record(env, **kwargs):
    with envlogger.EnvLogger(env, **kwargs) as logger:
        timestep = logger.reset()
        while not timestep.last():
            timestep = logger.step(1)


def test_unknown_indices_and_fields_are_named(tmp_path):
    record(Catch(), data_directory=tmp_path)
    with Reader(tmp_path) as reader:
        assert repr(reader) == "<Reader of 1 episodes, 10 steps>"
        for read in (
            reader.columns,
            reader.episodes.__getitem__,
            lambda index: list(reader.pick(index, [0], [("action",)])),
        ):
            with pytest.raises(IndexError, match="index 99 is out of range for 1 episodes"):
                read(99)
            with pytest.raises(TypeError, match="index of episodes must be an integer, got 'a'"):
                read("a")


def test_a_reader_reads_from_memory():
    writer = InMemoryBackendWriter()
    record(Catch(), backend=writer)
    for reader in (
        Reader(writer, backend=BackendType.IN_MEMORY),
        Reader(in_memory_backend_writer=writer, backend=BackendType.IN_MEMORY),
        Reader(backend=InMemoryBackendReader(writer)),
    ):
        assert len(reader.steps) == 10
        assert reader.action_spec() == Catch().action_spec()
    with pytest.raises(TypeError, match="backend must be a BackendType or a BackendReader, got 'm"):
        Reader(writer, backend="memory")


def test_specs_of_the_environment_are_read_back(tmp_path):
    record(Catch(), data_directory=tmp_path)
    with Reader(tmp_path) as reader:
        assert reader.observation_spec() == Catch().observation_spec()
        assert reader.action_spec() == Catch().action_spec()
        assert reader.reward_spec() == Catch().reward_spec()
        assert reader.discount_spec() == Catch().discount_spec()
        assert type(reader.action_spec()) is specs.DiscreteArray
        assert reader.copy().action_spec() == Catch().action_spec()


class NoActions(Catch):
    def action_spec(self):
        return {}

    def observation_spec(self):
        return {"shape": specs.Array((), np.int8), "dtype": [], "words": specs.StringArray(())}

    def reset(self):
        return dm_env.restart({"shape": 1, "dtype": [], "words": np.array("hi")})

    def step(self, action):
        return dm_env.termination(1.0, {"shape": 1, "dtype": [], "words": np.array("ho")})


def test_empty_and_text_specs_are_read_back(tmp_path):
    record(NoActions(), data_directory=tmp_path)
    with Reader(tmp_path) as reader:
        assert reader.action_spec() == {}
        assert reader.observation_spec() == NoActions().observation_spec()
        assert type(reader.observation_spec()["words"]) is specs.StringArray


def test_arguments_for_an_existing_backend_are_ignored():
    backend = InMemoryBackendReader(InMemoryBackendWriter())
    with pytest.warns(UserWarning, match=r"'d', shard ignored, because the backend exists al"):
        assert len(Reader("d", shard=1, backend=backend).steps) == 0


# --- Columns.


@pytest.fixture(params=["directory", "memory"])
def reader(request, tmp_path):
    """Two episodes: a complete one, and one that is cut by a reset."""
    backend = InMemoryBackendWriter()
    arguments = {"directory": {"data_directory": tmp_path}, "memory": {"backend": backend}}
    with envlogger.EnvLogger(Catch(), **arguments[request.param]) as env:
        timestep = env.reset()
        while not timestep.last():
            timestep = env.step(np.int32(1))
        env.reset()
        env.step(np.int32(2))
    if request.param == "memory":
        return Reader(backend, backend=BackendType.IN_MEMORY)
    return Reader(tmp_path)


def test_columns_have_the_recorded_steps_in_order(reader):
    columns = reader.columns(0)
    assert columns.keys() == {
        *("step_type", "reward", "discount", "observation", "action", "custom_data")
    }
    assert columns["step_type"].tolist() == [0, *[1] * 8, 2]
    assert columns["action"].tolist() == [0, *[1] * 9]
    assert columns["action"].dtype == np.int32
    assert columns["reward"].dtype == np.float64
    for step, observation in zip(reader.episodes[0], columns["observation"], strict=True):
        np.testing.assert_array_equal(step.timestep.observation, observation)
    assert columns["custom_data"].tolist() == [None] * 10
    columns["observation"][0] = 7  # Columns are writable.


def test_columns_have_the_fields_of_rlds_episodes(reader):
    for i, episode in enumerate(reader.episodes):
        expected = to_rlds_episode(list(episode))
        columns = reader.columns(i, rlds=True)
        assert columns.keys() == expected.keys()
        for field in expected:
            np.testing.assert_array_equal(columns[field], expected[field])
            assert columns[field].dtype == expected[field].dtype


def test_columns_of_several_episodes_are_joined(reader):
    joined, single = reader.recorded_columns(0, 2), [reader.columns(0), reader.columns(1)]
    assert joined.keys() == single[0].keys()
    for field, column in joined.items():
        np.testing.assert_array_equal(column, np.concatenate([each[field] for each in single]))
    episodes = to_rlds_episodes(joined, [10, 2])
    single = [reader.columns(0, rlds=True), reader.columns(1, rlds=True)]
    assert episodes.keys() == single[0].keys()
    for field, column in episodes.items():
        np.testing.assert_array_equal(column, np.concatenate([each[field] for each in single]))
        assert column.dtype == single[0][field].dtype
    for lengths in ([3, 9], [11, 1], [10]):
        with pytest.raises(ValueError, match=r"inside an episode|There are 12 steps, expected 10"):
            to_rlds_episodes(joined, lengths)


def test_columns_of_episodes_out_of_range_are_refused(reader):
    for begin, end in ((-1, 1), (0, 3), (2, 1)):
        with pytest.raises(IndexError, match=f"episodes {begin} to {end} are out of range for 2"):
            reader.recorded_columns(begin, end)
    with pytest.raises(ValueError, match="at least one step"):
        reader.recorded_columns(1, 1)


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_columns_of_an_episode_of_one_step_take_the_dtypes_of_the_specs(tmp_path, is_in_memory):
    backend = InMemoryBackendWriter()
    arguments = {"backend": backend} if is_in_memory else {"data_directory": tmp_path}
    with envlogger.EnvLogger(Catch(), **arguments) as env:
        env.reset()
    reader_arguments = {"backend": InMemoryBackendReader(backend)} if is_in_memory else arguments
    with Reader(**reader_arguments) as reader:
        columns = reader.columns(0)
        assert columns["action"].tolist() == columns["reward"].tolist() == [None]
        assert columns["observation"].shape == (1, 10, 5)
        # Its placeholders take the specs.
        assert reader.columns(0, rlds=True)["action"].dtype == Catch().action_spec().dtype


# --- Other processes.


def test_readers_can_be_pickled(tmp_path):
    record(Catch(), data_directory=tmp_path)
    with Reader(tmp_path) as reader:
        clone = pickle.loads(pickle.dumps(reader))
        assert len(reader.steps) == len(clone.steps) == 10
        for step, twin in zip(reader.steps, clone.steps, strict=True):
            np.testing.assert_array_equal(step.timestep.observation, twin.timestep.observation)
        assert clone.action_spec() == Catch().action_spec()
    assert clone.columns(0)["reward"][-1] == -1
    clone.close()
    with pytest.raises(UsageError, match="closed"):
        pickle.loads(pickle.dumps(reader)).steps[0]


def test_forked_processes_do_not_disturb_each_other(tmp_path):
    with envlogger.RiegeliBackendWriter(tmp_path, writer_options="chunk_size:300") as writer:
        for i in range(2000):
            step = envlogger.StepData(dm_env.restart(np.array([i])), None)
            writer.record_step(step, is_new_episode=i % 100 == 0)
    code = """
        import multiprocessing, sys, threading
        import envlogger

        reader = envlogger.Reader(sys.argv[1])
        assert reader.steps[0].timestep.first()

        def check(first):
            for i in [*range(first, 2000), *range(first)]:
                assert reader.steps[i].timestep.observation[0] == i, i

        # The lock of the reader may be held while the process forks.
        threading.Thread(target=check, args=(7,)).start()
        context = multiprocessing.get_context("fork")
        workers = [context.Process(target=check, args=(100 * i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        check(1000)
        for worker in workers:
            worker.join(600)
            assert worker.exitcode == 0
    """
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(envlogger.__file__).parents[1])},
        timeout=600,
    )
    assert (process.returncode, process.stderr) == (0, "")
