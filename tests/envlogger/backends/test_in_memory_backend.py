import pickle
from collections import namedtuple

import dm_env
import pytest

from envlogger import StepData
from envlogger.backends.in_memory_backend import InMemoryBackendReader, InMemoryBackendWriter


def record(writer, *observations, is_new_episode=True):
    for observation in observations:
        writer.record_step(StepData(dm_env.restart(observation), None), is_new_episode)
        is_new_episode = False


def test_recorded_steps_can_be_inspected():
    writer = InMemoryBackendWriter()
    record(writer, 1, 2)
    record(writer, 3)
    writer.set_episode_metadata("second")
    assert [step.timestep.observation for step in writer.steps] == [1, 2, 3]
    assert writer.episode_start_indices == [0, 2]
    assert writer.episode_metadata == {1: "second"}


def test_a_reader_sees_the_steps_recorded_before_its_creation():
    writer = InMemoryBackendWriter()
    record(writer, 1, 2)
    reader = InMemoryBackendReader(writer)
    record(writer, 3, is_new_episode=False)
    record(writer, 4)
    writer.set_episode_metadata("late")
    assert len(reader.steps) == 2
    assert [len(episode) for episode in reader.episodes] == [2]
    assert list(reader.episode_metadata()) == [None]
    reader = InMemoryBackendReader(writer)
    assert [len(episode) for episode in reader.episodes] == [3, 1]


def test_named_tuples_keep_their_type_in_columns():
    pose = namedtuple("pose", "x y")
    writer = InMemoryBackendWriter()
    record(writer, pose(1, 2.5))
    step = StepData(dm_env.termination(pose(1.0, 0.5), pose(3, 4.5)), pose(5, "go"))
    writer.record_step(step, is_new_episode=False)
    reader = InMemoryBackendReader(writer)
    recorded, episode = reader.columns(0), reader.columns(0, rlds=True)
    for columns, rows in ((recorded, [0, 5]), (episode, [5, 0])):
        assert columns["observation"].y.tolist() == [2.5, 4.5]
        assert columns["action"].x.tolist() == rows
    assert recorded["action"].y.tolist() == ["", "go"]
    assert recorded["reward"].x.tolist() == [0.0, 1.0]


def test_a_value_that_cannot_be_copied_leaves_no_trace():
    writer = InMemoryBackendWriter()
    record(writer, 1)
    with pytest.raises(TypeError, match="generator"):
        record(writer, (i for i in range(3)))
    assert len(writer.steps) == 1
    assert writer.episode_start_indices == [0]


def test_writers_can_be_pickled():
    writer = InMemoryBackendWriter()
    record(writer, 1)
    clone = pickle.loads(pickle.dumps(writer))
    record(clone, 2, is_new_episode=False)
    assert (len(writer.steps), len(clone.steps)) == (1, 2)
