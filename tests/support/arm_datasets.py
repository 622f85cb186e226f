"""A dataset of an arm in three formats, and the arguments of policy loaders for each."""

import shutil

import dm_env
import numpy as np
import policies
import raw_lerobot
from dm_env import specs

import envlogger

FORMATS = ("rlds", "lerobot", "log")
# The name of the dataset, its camera, its state, its instruction.
FIELDS = {
    "rlds": ("arm", "exterior_image_1_left", "joint_position", "language_instruction"),
    "lerobot": ("arm_lerobot", "images/wrist", "state", "language_instruction"),
    "log": ("arm_log", "image", "state", None),
}


class Arm(dm_env.Environment):
    """An arm that stops after some steps."""

    def __init__(self, length):
        self.rng, self.length = np.random.default_rng(length), length

    def observation_spec(self):
        image = specs.Array((6, 8, 3), np.uint8)
        return {"image": image, "state": specs.Array((3,), np.float64)}

    def action_spec(self):
        return specs.Array((4,), np.float64)

    def observation(self):
        image = self.rng.integers(0, 256, (6, 8, 3), np.uint8)
        return {"image": image, "state": self.rng.normal(5.0, size=3)}

    def reset(self):
        self.num_left = self.length
        return dm_env.restart(self.observation())

    def step(self, action):
        self.num_left -= 1
        make = dm_env.transition if self.num_left else dm_env.termination
        return make(reward=0.5, observation=self.observation())


def write_all(directory):
    """Writes the dataset in all three formats; returns the folder of the datasets."""
    shutil.copytree(policies.GOLDEN, directory)
    raw_lerobot.write_v3(directory / "arm_lerobot")
    rng = np.random.default_rng(0)
    with envlogger.EnvLogger(Arm(5), data_directory=str(directory / "arm_log")) as env:
        for length in (5, 2, 7):
            env._environment.length = length
            env.reset()
            while not env.step(rng.normal(size=4)).last():
                pass
    return directory


def loader_kwargs(format, directory):
    """The arguments of `make_dataset_from_rlds` of Octo and OpenVLA, without the state."""
    name, camera, _, language = FIELDS[format]
    kwargs = {"name": name, "data_dir": str(directory)}
    kwargs["image_obs_keys"] = {"primary": camera, "wrist": None}
    return kwargs if language is None else {**kwargs, "language_key": language}
