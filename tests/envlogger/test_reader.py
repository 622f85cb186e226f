import dm_env
import numpy as np
import pytest
from dm_env import specs

import envlogger
from envlogger import BackendType, Reader
from envlogger.backends.in_memory_backend import InMemoryBackendReader, InMemoryBackendWriter
from envlogger.errors import StorageError
from envlogger.testing.catch_env import Catch


def record(env, **kwargs):
    with envlogger.EnvLogger(env, **kwargs) as logger:
        timestep = logger.reset()
        while not timestep.last():
            timestep = logger.step(1)


def test_reads_from_a_directory(tmp_path):
    record(Catch(), data_directory=tmp_path, metadata={"robot": "none"})
    for reader in (Reader(tmp_path), Reader(data_directory=tmp_path)):
        with reader:
            assert (len(reader.steps), len(reader.episodes)) == (10, 1)
            assert reader.steps[0].timestep.first()
            assert reader.episodes[0][-1].timestep.last()
            assert list(reader.episode_metadata()) == [None]
            assert reader.metadata()["robot"] == "none"


def test_reads_from_memory():
    writer = InMemoryBackendWriter()
    record(Catch(), backend=writer)
    for reader in (
        Reader(writer, backend=BackendType.IN_MEMORY),
        Reader(in_memory_backend_writer=writer, backend=BackendType.IN_MEMORY),
        Reader(backend=InMemoryBackendReader(writer)),
    ):
        assert len(reader.steps) == 10
        assert reader.action_spec() == Catch().action_spec()


def test_specs(tmp_path):
    record(Catch(), data_directory=tmp_path)
    with Reader(tmp_path) as reader:
        assert reader.observation_spec() == Catch().observation_spec()
        assert reader.action_spec() == Catch().action_spec()
        assert reader.reward_spec() == Catch().reward_spec()
        assert reader.discount_spec() == Catch().discount_spec()
        assert type(reader.action_spec()) is specs.DiscreteArray
        assert reader.copy().action_spec() == Catch().action_spec()


def test_without_specs(tmp_path):
    envlogger.RiegeliBackendWriter(tmp_path).close()
    with Reader(tmp_path) as reader:
        assert reader.observation_spec() is None
        assert reader.discount_spec() is None


class NoActions(Catch):
    def action_spec(self):
        return {}

    def observation_spec(self):
        return {"shape": specs.Array((), np.int8), "dtype": [], "words": specs.StringArray(())}

    def reset(self):
        return dm_env.restart({"shape": 1, "dtype": [], "words": np.array("hi")})

    def step(self, action):
        return dm_env.termination(1.0, {"shape": 1, "dtype": [], "words": np.array("ho")})


def test_unusual_specs(tmp_path):
    record(NoActions(), data_directory=tmp_path)
    with Reader(tmp_path) as reader:
        assert reader.action_spec() == {}
        assert reader.observation_spec() == NoActions().observation_spec()
        assert type(reader.observation_spec()["words"]) is specs.StringArray


def test_a_copy_lives_on_its_own(tmp_path):
    record(Catch(), data_directory=tmp_path)
    with Reader(tmp_path) as reader:
        other = reader.copy()
    assert len(list(other.steps)) == 10
    other.close()


def test_the_metadata_dict_is_the_same_each_time(tmp_path):
    record(Catch(), data_directory=tmp_path, metadata={"a": 1})
    with Reader(tmp_path) as reader:
        del reader.metadata()["environment_specs"]
        assert reader.metadata() == {"a": 1}
        assert reader.observation_spec() == Catch().observation_spec()


def test_wrong_backends(tmp_path):
    with pytest.raises(TypeError, match="backend must be a BackendType or a BackendReader, got 'r"):
        Reader(tmp_path, backend="riegeli")
    backend = InMemoryBackendReader(InMemoryBackendWriter())
    with pytest.raises(TypeError, match="a backend that is made already takes no arguments"):
        Reader(tmp_path, backend=backend)
    with pytest.raises(TypeError, match="data_directory"):
        Reader()


def test_missing_directory(tmp_path):
    with pytest.raises(StorageError, match="does not exist"):
        Reader(tmp_path / "nowhere")
    with pytest.raises(RuntimeError):  # As upstream.
        Reader(str(tmp_path / "nowhere"))
