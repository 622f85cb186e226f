"""Trains with a script of CleanRL whose environments record themselves; see `test_cleanrl.py`.

Usage: train_with_cleanrl.py SCRIPT FOLDER [OPTION ...] , in a Python with what CleanRL needs.
"""

import re
import runpy
import sys
from pathlib import Path

import gymnasium
import numpy as np

import envlogger

LINE = re.compile(r"^( *)(env = gym\.wrappers\.RecordEpisodeStatistics\(env\))$", re.MULTILINE)


class EpisodeRecorder(gymnasium.Wrapper):
    """Keeps the values that an environment returns, by episode."""

    instances = ()

    def __init__(self, env):
        super().__init__(env)
        self.episodes = []
        EpisodeRecorder.instances = (*EpisodeRecorder.instances, self)

    def reset(self, **options):
        observation, info = self.env.reset(**options)
        self.episodes.append([(options.get("seed"), np.copy(observation))])
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        step = (np.copy(action), np.copy(observation), float(reward), terminated, truncated)
        self.episodes[-1].append(step)
        return observation, reward, terminated, truncated, info


def train(script, logs):
    """Runs the script with two additional lines."""
    recorded = rf"\1\2\n\1env = envlogger.GymnasiumLogger(env, data_directory={str(logs)!r})"
    text, count = LINE.subn(recorded, script.read_text())
    assert count == 1, script
    changed_script = logs.with_name(script.name)
    changed_script.write_text(f"import envlogger\n{text}")
    make = gymnasium.make
    gymnasium.make = lambda *args, **options: EpisodeRecorder(make(*args, **options))
    runpy.run_path(str(changed_script), run_name="__main__")


def check(logs):
    """Compares each episode of the logs with the values of its environment."""
    expected = [episode for env in EpisodeRecorder.instances for episode in env.episodes]
    expected.sort(key=lambda episode: episode[0][1].tobytes())
    with envlogger.Reader(logs) as reader:
        recorded = list(zip(map(list, reader.episodes), reader.episode_metadata(), strict=True))
    recorded.sort(key=lambda log: log[0][0].timestep.observation.tobytes())
    for ((seed, first), *transitions), (steps, metadata) in zip(expected, recorded, strict=True):
        np.testing.assert_array_equal(steps[0].timestep.observation, first)
        assert metadata["seed"] == seed
        for (action, observation, reward, *ends), step in zip(transitions, steps[1:], strict=True):
            np.testing.assert_array_equal(step.action, action)
            np.testing.assert_array_equal(step.timestep.observation, observation)
            assert step.timestep.observation.dtype == observation.dtype
            assert (step.timestep.reward, step.timestep.last()) == (reward, any(ends))
            assert step.timestep.discount == (0.0 if ends[0] else 1.0)
    return len(expected)


def main(script, folder, *options):
    sys.argv = [script, *options]
    train(Path(script), Path(folder) / "logs")
    print("episodes:", check(Path(folder) / "logs"))


if __name__ == "__main__":
    main(*sys.argv[1:])
