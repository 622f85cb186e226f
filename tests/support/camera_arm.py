"""An environment with cameras, and recordings of it as video."""

import dm_env
import numpy as np
from dm_env import specs

import envlogger
from envlogger import Video

SHAPE = (48, 64, 3)


class Arm(dm_env.Environment):
    """Joints and two cameras, whose frames all differ."""

    def __init__(self, length=40):
        self._length, self._row = length, 0
        scene = np.random.default_rng(0).integers(0, 256, (6, 8, 3))
        self._scene = np.kron(scene, np.ones((8, 8, 1), int)).astype(np.uint8)

    def frames(self, row):
        return np.roll(self._scene, 3 * row, 1), np.roll(self._scene, -row, 0)

    def _observation(self):
        top, wrist = self.frames(self._row)
        return {"top": top, "robot": {"wrist": wrist, "joints": np.full(7, self._row, np.float32)}}

    def reset(self):
        self._row = 0
        return dm_env.restart(self._observation())

    def step(self, action):
        self._row += 1
        ends = self._row >= self._length - 1
        make = dm_env.termination if ends else dm_env.transition
        return make(1.0, self._observation())

    def observation_spec(self):
        camera = specs.BoundedArray(SHAPE, np.uint8, 0, 255)
        joints = specs.Array((7,), np.float32)
        return {"top": camera, "robot": {"wrist": camera, "joints": joints}}

    def action_spec(self):
        return specs.Array((2,), np.float32)


VIDEO = {"top": Video(lossless=True, gop=10), "robot/wrist": Video(quality=10, gop=10)}


def record(directory, episodes=2, **arguments):
    with envlogger.EnvLogger(
        Arm(), data_directory=directory, **{"video": VIDEO, **arguments}
    ) as env:
        for _ in range(episodes):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(np.zeros(2, np.float32))
