"""Gymnasium environments that record themselves."""

import os
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import envlogger
import rlds.sources
from envlogger.backends.in_memory_backend import InMemoryBackendWriter
from envlogger.gymnasium_adapter import record_info


class Count(gymnasium.Env):
    """Counts to `length`; is truncated there if `length` is odd, and else terminated."""

    observation_space = spaces.Box(0, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length=3):
        self.length = length

    def _observation(self):
        return np.array([self.start, self.count], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start = (options or {}).get("start", self.np_random.integers(1000))
        self.count = 0
        return self._observation(), {"start": self.start}

    def step(self, action):
        self.count += 1
        is_end, truncates = self.count == self.length, self.length % 2
        ends = is_end and not truncates, is_end and bool(truncates)
        return self._observation(), np.float32(action), *ends, {"count": self.count}


def make_logger(length, directory):
    return lambda: envlogger.GymnasiumLogger(Count(length), data_directory=directory)


def test_the_logger_returns_what_the_environment_returns():
    backend = InMemoryBackendWriter()
    env = envlogger.GymnasiumLogger(Count(), record_info(), backend=backend, validate=True)
    plain = Count()
    with env:
        assert isinstance(env, gymnasium.Wrapper)
        assert isinstance(env.unwrapped, Count)
        for options in (None, {"start": 5}):
            for actual, expected in zip(
                env.reset(seed=7, options=options), plain.reset(seed=7, options=options)
            ):
                np.testing.assert_equal(actual, expected)
            for action in (0, 2, 1):
                actual, expected = env.step(action), plain.step(action)
                np.testing.assert_equal(actual, expected)
                assert type(actual[1]) is np.float32
        assert actual[2:4] == (False, True)
        env.reset()
        env.recorder.discard_episode()
        assert env.step(1)[1:4] == (0.0, False, False)  # The first step of the next episode.
    assert [step.action for step in backend.steps] == [None, 0, 2, 1, None, 0, 2, 1, None]
    assert backend.steps[3].timestep.last()
    assert backend.steps[3].timestep.discount == 1.0
    assert backend.steps[3].custom_data == {"info": {"count": 3}, "truncated": True}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
def test_vector_environments_record_all_episodes(tmp_path, vector, mode):
    lengths, num_steps = [3, 4], 12
    names = ["both", "both"] if vector is SyncVectorEnv else ["one", "other"]
    make = [make_logger(length, tmp_path / name) for length, name in zip(lengths, names)]
    envs, rng = vector(make, autoreset_mode=mode), np.random.default_rng(0)
    envs.reset(seed=42)
    for _ in range(num_steps):
        envs.step(rng.integers(3, size=2))
    envs.close()
    episodes = list(rlds.sources.open(tmp_path))
    assert len(episodes) == {AutoresetMode.NEXT_STEP: 4 + 3, AutoresetMode.SAME_STEP: 5 + 4}[mode]
    seeds = []
    for episode in episodes:
        steps, end = episode.steps, episode.num_steps - 1
        start = steps["observation"][0, 0]
        np.testing.assert_array_equal(steps["observation"][:, 0], start)
        np.testing.assert_array_equal(steps["observation"][:, 1], np.arange(end + 1))
        np.testing.assert_array_equal(steps["reward"][:-1], steps["action"][:-1])
        if episode.complete:
            assert (steps["is_terminal"][-1], episode.truncated) == (end == 4, end == 3)
        if episode.metadata["seed_known"]:
            seeds.append(int(episode.metadata["seed"]))
            assert start == Count().reset(seed=seeds[-1])[0][0]
    assert sorted(seeds) == [42, 43]


def test_a_killed_process_keeps_its_steps(tmp_path):
    script = f"""
import os, signal, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_gymnasium_logger import make_logger
env = make_logger(3, {os.fspath(tmp_path)!r})()
for _ in range(2):
    env.reset()
    for action in (0, 1, 2):
        env.step(action)
env.reset(seed=3)
env.step(1)
env.recorder.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    envlogger.recover(tmp_path, in_place=True)
    with envlogger.Reader(tmp_path) as reader:
        assert [len(episode) for episode in reader.episodes] == [4, 4, 2]


def test_importing_envlogger_does_not_import_gymnasium():
    script = (
        "import sys; import envlogger; envlogger.EnvLogger; assert 'gymnasium' not in sys.modules\n"
        "sys.modules['gymnasium'] = None\n"
        "try: envlogger.GymnasiumLogger\n"
        "except ImportError as error: assert 'install' in str(error)\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_star_import_skips_names_of_missing_packages():
    script = (
        "import importlib.util as util, sys\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name: None if name == 'gymnasium' else find(name)\n"
        "sys.modules['gymnasium'] = None\n"
        "from envlogger import *; EnvLogger; assert 'GymnasiumLogger' not in globals()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
