"""Records with the published envlogger episodes whose values identify them.

python record_with_envlogger.py DIRECTORY
"""

import sys

import dm_env
import numpy as np
from dm_env import specs

import envlogger


class Counting(dm_env.Environment):
    """Observations count the steps of all episodes; the third step of an episode is the last."""

    def __init__(self):
        self._count = self._time = 0

    def _observe(self):
        self._count += 1
        return {"count": np.array([self._count], np.float64), "image": np.full((4, 4, 3), 7, "u1")}

    def reset(self):
        self._time = 0
        return dm_env.restart(self._observe())

    def step(self, action):
        self._time += 1
        if self._time < 3:
            return dm_env.transition(float(action[0]), self._observe())
        make = dm_env.termination if self._count % 8 == 7 else dm_env.truncation
        return make(float(action[0]), self._observe())

    def observation_spec(self):
        return {"count": specs.Array((1,), np.float64), "image": specs.Array((4, 4, 3), np.uint8)}

    def action_spec(self):
        return specs.Array((2,), np.float32)


if __name__ == "__main__":
    with envlogger.EnvLogger(
        Counting(),
        data_directory=sys.argv[1],
        metadata={"who": "the original"},
        step_fn=lambda timestep, action, env: {"last": timestep.last()},
        episode_fn=lambda timestep, action, env: {"reward": timestep.reward or 0.0},
    ) as env:
        for episode in range(4):
            env.reset()
            for step in range(3):
                env.step(np.array([10 * episode + step, 1], np.float32))
