import copy
import gc
import pickle
import unittest
from pathlib import Path

import dm_env
import numpy as np
import pytest
from dm_env import specs, test_utils

import envlogger
from envlogger import BackendType, EnvLogger, Reader
from envlogger.backends.backend_writer import BackendWriter
from envlogger.backends.in_memory_backend import InMemoryBackendReader, InMemoryBackendWriter
from envlogger.converters import spec_codec
from envlogger.errors import InvalidStepError, StorageError, UnsupportedTypeError, UsageError
from envlogger.testing.catch_env import Catch


class Count(dm_env.Environment):
    """Observations are increasing numbers, in a buffer that is reused."""

    def __init__(self, num_steps=3):
        self._num_steps = num_steps
        self._count = np.array([-1])
        self._step = 0
        self.actions = []
        self.times_closed = 0

    def reset(self):
        self._count += 1
        self._step = 0
        return dm_env.restart(self._count)

    def step(self, action):
        self.actions.append(action)
        self._count += 1
        self._step += 1
        if self._step == self._num_steps - 1:
            return dm_env.termination(1.0, self._count)
        return dm_env.transition(0.5, self._count)

    def observation_spec(self):
        return specs.Array((1,), np.int64, name="number")

    def action_spec(self):
        return specs.DiscreteArray(10)

    def close(self):
        self.times_closed += 1


def play(env, num_episodes=1):
    for _ in range(num_episodes):
        timestep = env.reset()
        while not timestep.last():
            timestep = env.step(7)


def observations(steps):
    return [int(step.timestep.observation[0]) for step in steps]


def read_episodes(reader):
    return [observations(episode) for episode in reader.episodes]


class TestEnvLogger(test_utils.EnvironmentTestMixin, unittest.TestCase):
    """The contract of dm_env."""

    def make_object_under_test(self):
        return EnvLogger(Catch(), backend=InMemoryBackendWriter())

    def make_action_sequence(self):
        for action in [0, 1, 2] * 12:
            yield np.int64(action)


# --- Recording.


@pytest.mark.parametrize("backend", [BackendType.RIEGELI, envlogger.RiegeliBackendWriter])
def test_a_logger_records_to_a_directory(backend, tmp_path):
    with EnvLogger(Count(), data_directory=tmp_path, backend=backend) as env:
        play(env, 2)
    with Reader(tmp_path) as reader:
        assert read_episodes(reader) == [[0, 1, 2], [3, 4, 5]]
        assert [step.action for step in reader.steps] == [None, 7, 7] * 2
        assert [step.timestep.reward for step in reader.steps] == [None, 0.5, 1.0] * 2
        assert [step.timestep.step_type for step in reader.steps] == list(dm_env.StepType) * 2
        assert reader.observation_spec() == Count().observation_spec()


def test_a_logger_records_to_memory():
    with EnvLogger(Count(), backend=BackendType.IN_MEMORY) as env:
        play(env)


def test_the_value_of_step_fn_is_recorded(tmp_path):
    calls = []

    def step_fn(timestep, action, env):
        calls.append((timestep.step_type, action, env))
        return {"count": len(calls)}

    environment = Count()
    with EnvLogger(environment, step_fn=step_fn, data_directory=tmp_path) as env:
        play(env)
    assert calls == [(*each, environment) for each in zip(dm_env.StepType, [None, 7, 7])]
    with Reader(tmp_path) as reader:
        assert [step.custom_data["count"] for step in reader.steps] == [1, 2, 3]


def test_the_last_value_of_episode_fn_is_recorded(tmp_path):
    def episode_fn(timestep, action, env):
        count = int(timestep.observation[0])
        return {"number": count} if count in (0, 1, 6, 8) else None

    with EnvLogger(Count(), episode_fn=episode_fn, data_directory=tmp_path) as env:
        play(env, 3)
    with Reader(tmp_path) as reader:
        assert list(reader.episode_metadata()) == [{"number": 1}, None, {"number": 8}]


# --- Metadata and specs.


def test_metadata_gets_the_specs_but_the_given_dict_does_not(tmp_path):
    metadata = {"a": 1}
    with EnvLogger(Count(), metadata=metadata, data_directory=tmp_path):
        pass
    assert metadata == {"a": 1}
    with Reader(tmp_path) as reader:
        assert list(reader.metadata()) == ["a", "environment_specs"] or len(reader.metadata()) == 2
        assert reader.metadata()["a"] == 1
        assert reader.metadata()["environment_specs"]["observation_spec"]["name"] == "number"


def test_recording_the_same_environment_again_gives_no_warning(tmp_path):
    for _ in range(2):
        with EnvLogger(Count(), data_directory=tmp_path, metadata={"a": [1.5]}) as env:
            play(env)
    with Reader(tmp_path) as reader:
        assert len(reader.episodes) == 2


def test_a_backend_in_memory_gets_the_specs():
    backend = InMemoryBackendWriter(metadata={"a": 1})
    with EnvLogger(Count(), backend=backend):
        pass
    reader = Reader(backend=InMemoryBackendReader(backend))
    assert reader.observation_spec() == Count().observation_spec()
    assert reader.metadata()["a"] == 1


def test_a_backend_without_specs_gives_a_warning(tmp_path):
    with envlogger.RiegeliBackendWriter(tmp_path) as backend:
        with pytest.warns(UserWarning, match="not recorded, because this RiegeliBackendWriter was"):
            EnvLogger(Count(), backend=backend)
    metadata = {"environment_specs": spec_codec.encode_environment_specs(Count())}
    with envlogger.RiegeliBackendWriter(tmp_path / "with", metadata=metadata) as backend:
        EnvLogger(Count(), backend=backend)


@pytest.mark.parametrize(
    ("kwargs", "names"),
    [
        ({"metadata": {}}, "metadata"),
        ({"data_directory": "d"}, "data_directory"),
        ({"metadata": {"a": 1}, "scheduler": None}, "metadata, scheduler"),
    ],
)
def test_arguments_for_an_existing_backend_are_ignored(kwargs, names):
    message = f"{names} ignored, .* pass it to the InMemoryBackendWriter"
    backend = InMemoryBackendWriter()
    with pytest.warns(UserWarning, match=message) as warned:
        env = EnvLogger(Count(), backend=backend, **kwargs)
    assert warned[0].filename == __file__
    env.reset()
    assert len(backend.steps) == 1
    assert list(backend.metadata()) == ["environment_specs"]


def test_unknown_arguments_are_refused(tmp_path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'bogus'"):
        EnvLogger(Count(), data_directory=tmp_path, bogus=1)
    with pytest.raises(TypeError, match="data_directory"):
        EnvLogger(Count())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Catch(), Path("logs")), r"step_fn must be a function, got .*logs.*data_directory="),
        ((Catch(), None, "logs"), r"episode_fn must be a function, got 'logs'"),
        (("logs", Catch()), r"env must be an environment of dm_env or Gymnasium, got 'logs'"),
    ],
)
def test_arguments_in_the_wrong_position_are_named(arguments, message):
    with pytest.raises(TypeError, match=message):
        EnvLogger(*arguments)


def test_a_backend_function_must_return_a_backend():
    with pytest.raises(TypeError, match="backend returned None, expected a BackendWriter"):
        EnvLogger(Count(), backend=lambda metadata: None)


def test_a_directory_that_cannot_be_recorded_to_is_reported_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    for path, message in [
        (tmp_path / "file", "is not a directory"),
        (tmp_path / "file/logs", "cannot be created: .*Not a"),
        ("", "data_directory is empty"),
    ]:
        with pytest.raises(StorageError, match=message):
            EnvLogger(Count(), data_directory=path)
    gc.collect()


# --- Steps that cannot be recorded.


def test_an_episode_with_a_gap_takes_no_more_steps(tmp_path):
    environment = Count(num_steps=5)
    is_broken = False

    def step_fn(timestep, action, env):
        if is_broken:
            raise ZeroDivisionError("oops")

    with EnvLogger(environment, step_fn=step_fn, data_directory=tmp_path) as env:
        env.reset()
        env.step(1)
        is_broken = True
        with pytest.raises(ZeroDivisionError):
            env.step(2)
        is_broken = False
        for _ in range(2):
            with pytest.raises(UsageError, match=r"taken but not recorded.*a gap.*call reset\(\)"):
                env.step(3)
        assert environment.actions == [1, 2]
        env.discard_episode()
        assert env.step(3).first()
    with Reader(tmp_path) as reader:
        assert read_episodes(reader) == [[3]]


def test_an_episode_whose_first_step_was_refused_takes_no_more_steps(tmp_path):
    environment = Count()
    with EnvLogger(environment, step_fn=lambda *args: {1}, data_directory=tmp_path) as env:
        for _ in range(2):
            with pytest.raises(UnsupportedTypeError, match=r"cannot store step\.custom_data: "):
                env.reset()
        with pytest.raises(UsageError, match="a gap in the episode"):
            env.step(1)
    with Reader(tmp_path) as reader:
        assert len(reader.steps) == 0


def test_an_error_of_episode_fn_makes_no_gap(tmp_path):
    def episode_fn(timestep, action, env):
        if action == 0:
            raise ZeroDivisionError

    with EnvLogger(Count(), episode_fn=episode_fn, data_directory=tmp_path) as env:
        env.reset()
        with pytest.raises(ZeroDivisionError):
            env.step(0)
        env.step(1)
    with Reader(tmp_path) as reader:
        assert read_episodes(reader) == [[0, 1, 2]]


# --- Closing.


def test_closing_closes_the_environment_too_and_may_be_repeated(tmp_path):
    environment = Count()
    env = EnvLogger(environment, data_directory=tmp_path)
    play(env)
    env.close()
    env.close()
    assert environment.times_closed == 2
    with Reader(tmp_path) as reader:
        assert len(reader.steps) == 3


def test_the_recording_is_closed_even_if_the_environment_fails_to(tmp_path):
    environment = Count()

    def fail():
        raise ValueError("the robot does not answer")

    environment.close = fail
    env = EnvLogger(environment, data_directory=tmp_path)
    play(env)
    with pytest.raises(ValueError, match="the robot does not answer"):
        env.close()
    with Reader(tmp_path) as reader:
        assert len(reader.steps) == 3


def test_a_logger_cannot_be_copied(tmp_path):
    with EnvLogger(Count(), data_directory=tmp_path) as env:
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="EnvLogger instances cannot be serialized/pickled"):
                duplicate(env)


# --- Custom backends.


class Collecting(BackendWriter):
    """Implements the abstract methods of upstream."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls = []

    def _record_step(self, data, is_new_episode):
        self.calls.append((int(data.timestep.observation[0]), is_new_episode))

    def close(self):
        self.calls.append("closed")
        self._closed = True


def test_a_custom_backend_can_record_an_environment():
    with EnvLogger(Count(), backend=Collecting) as env:
        play(env)
        with pytest.raises(NotImplementedError, match="Collecting cannot discard episodes"):
            env.discard_episode()
        with pytest.raises(NotImplementedError, match="does not store metadata of episodes"):
            env._backend._set_episode_metadata(1)
    assert env._backend.calls == [(0, True), (1, False), (2, False), "closed"]
    assert "environment_specs" in env._backend.metadata()


# --- Discarding, flushing and validating.


def test_discarded_episodes_are_not_recorded():
    backend = InMemoryBackendWriter()
    metadata = iter("abc")
    with EnvLogger(
        Count(), backend=backend, episode_fn=lambda t, *_: next(metadata) if t.last() else None
    ) as env:
        play(env)
        play(env)
        env.discard_episode()
        with pytest.raises(UsageError, match="there is no episode to discard"):
            env.discard_episode()
        assert env.step(7).first()
        env.step(7)
        env.discard_episode()
        play(env)
    episodes = InMemoryBackendReader(backend).episodes
    assert [[int(s.timestep.observation[0]) for s in episode] for episode in episodes] == [
        *([0, 1, 2], [8, 9, 10])
    ]
    assert backend.episode_metadata == {0: "a", 1: "c"}


class InvalidStep(Count):
    """Returns an invalid second step."""

    invalid_timestep = dm_env.transition(0.5, np.array([1]))

    def step(self, action):
        timestep = super().step(action)
        return self.invalid_timestep if self._step == 2 else timestep


@pytest.mark.parametrize(
    ("timestep", "action", "message"),
    [
        (dm_env.transition(0.5, None), 7, r"timestep\.observation: expected .*, got None"),
        (dm_env.transition(np.zeros(2), np.array([1])), 7, r"timestep\.reward: .*shape"),
        (dm_env.transition(0.5, np.array([1]), 1.5), 7, r"timestep\.discount: .*1\.5"),
        (dm_env.transition(0.5, np.array([1])), 10, "action: .*10"),
    ],
)
def test_validation_names_the_invalid_value(timestep, action, message):
    backend = InMemoryBackendWriter()
    environment = InvalidStep(4)
    environment.invalid_timestep = timestep
    with EnvLogger(environment, backend=backend, validate=True) as env:
        env.reset()
        env.step(7)
        with pytest.raises(InvalidStepError, match=message):
            env.step(action)
        with pytest.raises(UsageError, match=r"call reset\(\)"):
            env.step(7)
    assert len(backend.steps) == 2
