import time

import dm_env
import numpy as np
import pytest

import envlogger
from envlogger.backends.in_memory_backend import InMemoryBackendWriter
from envlogger.callbacks import EpisodeStatistics, step_timestamp
from envlogger.testing.catch_env import Catch


def make_timesteps(*rewards):
    """Yields timesteps with these rewards, the last of which ends the episode."""
    yield dm_env.restart(0.0)
    for reward in rewards[:-1]:
        yield dm_env.transition(reward, 0.0)
    yield dm_env.termination(rewards[-1], 0.0)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ((1.0, 2.5), 3.5),
        ((1, 2, None), 3.0),
        ((np.float32(0.5),) * 4, 2.0),
        ((np.array([1.0, 2.0]), np.array([3.0, 4.0])), [4.0, 6.0]),
    ],
)
def test_statistics_of_an_episode_come_with_its_last_step(rewards, expected):
    seconds = iter(range(10, 100))
    statistics = EpisodeStatistics(clock=lambda: next(seconds))
    for _ in range(2):
        *earlier, metadata = [statistics(step, 0, None) for step in make_timesteps(*rewards)]
        assert earlier == [None] * len(rewards)
        np.testing.assert_array_equal(metadata.pop("return"), expected)
        assert metadata == {"length": len(rewards), "seconds": 1}


def test_episodes_that_are_cut_short_have_statistics():
    backend = InMemoryBackendWriter()
    statistics = EpisodeStatistics(at_every_step=True)
    with envlogger.EnvLogger(Catch(), backend=backend, episode_fn=statistics) as env:
        for length in (2, 0):
            env.reset()
            for _ in range(length):
                env.step(1)
    assert [backend.episode_metadata[i]["length"] for i in range(2)] == [2, 0]


def test_each_step_has_the_time_of_its_recording(tmp_path):
    begin = time.time()
    with envlogger.EnvLogger(Catch(), data_directory=tmp_path, step_fn=step_timestamp) as env:
        env.reset()
        env.step(1)
    with envlogger.Reader(tmp_path) as reader:
        times = [step.custom_data["timestamp"] for step in reader.steps]
    assert begin <= times[0] <= times[1] <= time.time()
