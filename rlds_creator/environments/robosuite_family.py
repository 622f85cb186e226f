"""Robot arms of robosuite, simulated by MuJoCo."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs
from typing_extensions import override

from rlds_creator.environments.arms import ArmPlayable, create_directions
from rlds_creator.environments.key_maps import key_map
from rlds_creator.environments.mujoco_pictures import MuJoCoPictures, draw_without_display
from rlds_creator.environments.playable import Family
from rlds_creator.environments.simulation import Simulated
from rlds_ecosystem.model.names import suggest_names

__all__ = ["RobosuiteFamily"]

# The seven elements of the action of an arm with a gripper, and the keys that move them, as seen
# from the front.
_ARM_AXES = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
_KEY_PAIRS = {
    "x": ("ArrowUp", "ArrowDown"),
    "y": ("ArrowLeft", "ArrowRight"),
    "z": ("KeyS", "KeyW"),
    "roll": ("KeyA", "KeyD"),
    "pitch": ("KeyF", "KeyR"),
    "yaw": ("KeyE", "KeyQ"),
}
_STICKS = {
    "Axis0": ("y", 1),
    "Axis1": ("x", 1),
    "Axis2": ("yaw", -1),
    "Axis3": ("z", -1),
    "Space0": ("y", 1),
    "Space1": ("x", 1),
    "Space2": ("z", -1),
    "Space3": ("pitch", 1),
    "Space4": ("roll", 1),
    "Space5": ("yaw", -1),
}
_WORDS = {
    "x": ("away", "near"),
    "y": ("left", "right"),
    "z": ("down", "up"),
    "roll": ("roll left", "roll right"),
    "pitch": ("pitch down", "pitch up"),
    "yaw": ("turn right", "turn left"),
}
# Collision shapes are not drawn.
_GEOM_GROUPS = {0: False, 1: True}
_MAX_EPISODE_STEPS = 1_000_000


class _Arm(Simulated):
    """A task of robosuite.

    Args:
      task: The task.
      horizon: The number of steps after which an episode is truncated.
    """

    def __init__(self, task: Any, horizon: int) -> None:
        self.task, self._horizon = task, horizon
        self._num_steps = 0
        low, high = task.action_spec
        observation = {
            name: specs.Array(value.shape, value.dtype, name)
            for name, value in self._copy(task.reset()).items()
        }
        super().__init__(observation, specs.BoundedArray(low.shape, np.float64, low, high))

    @override
    def begin(self) -> Any:
        self._num_steps = 0
        observation = self._copy(self.task.reset())
        self.info = {"success": bool(self.task._check_success())}
        return observation

    @override
    def advance(self, action: Any) -> tuple[Any, float, float, bool]:
        observation, reward, is_done, info = self.task.step(np.asarray(action))
        self._num_steps += 1
        self.info = {**info, "success": bool(self.task._check_success())}
        is_over = bool(is_done) or self._num_steps >= self._horizon
        return self._copy(observation), reward, 1.0, is_over

    @override
    def seed(self, seed: int) -> None:
        # One random generator draws the positions of objects and arms.
        self.task.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        np.random.seed(seed)  # Tasks may use the global generator.

    @staticmethod
    def _copy(observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {name: np.array(value) for name, value in observation.items()}

    @override
    def close(self) -> None:
        self.task.close()


class RobosuiteFamily(Family):
    """Robot arms: keys move and turn the hand, the space bar opens and closes it."""

    title = "robosuite"
    requires = "robosuite mujoco<3.10"

    @override
    def identifiers(self) -> Sequence[str]:
        return sorted(self._package().ALL_ENVIRONMENTS)

    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        robot: str = "Panda",
        strength: float = 0.5,
        control_freq: int = 20,
        horizon: int = 1000,
        reward_shaping: bool = True,
        width: int = 480,
        height: int = 480,
    ) -> ArmPlayable:
        """See `Family`.

        Args:
          id: The task.
          keys: The actions of keys, which replace the default actions.
          robot: The robot; two of them if a task needs two arms and the robot has one.
          strength: The speed of the hand under a key, from 0 to 1. A stick reaches full speed.
          control_freq: The number of steps per second.
          horizon: The number of steps after which an episode is truncated.
          reward_shaping: Whether progress is rewarded, or only success.
          width: The width of pictures.
          height: The height of pictures.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        package = self._package()
        if robot not in package.ALL_ROBOTS:
            raise ValueError(f"no robot {robot!r:.100}; {suggest_names(robot, package.ALL_ROBOTS)}")
        if not (1 <= control_freq <= 500 and 1 <= horizon <= _MAX_EPISODE_STEPS):
            raise ValueError("expected control_freq from 1 to 500, and horizon from 1")
        robots = [robot, robot] if id.startswith("TwoArm") and robot != "Baxter" else robot
        with contextlib.redirect_stdout(sys.stderr):
            task = package.make(
                id,
                robots=robots,
                has_renderer=False,
                has_offscreen_renderer=False,
                use_camera_obs=False,
                reward_shaping=reward_shaping,
                control_freq=control_freq,
                horizon=_MAX_EPISODE_STEPS,
                ignore_done=True,
                hard_reset=False,
            )
            arm = _Arm(task, horizon)
        pictures = MuJoCoPictures(
            lambda: (task.sim.model._model, task.sim.data._data),
            width,
            height,
            geom_groups=_GEOM_GROUPS,
            first_camera="agentview",
        )
        return _create_playable(arm, pictures, keys, strength)

    def _package(self) -> Any:
        draw_without_display()
        with contextlib.redirect_stdout(sys.stderr):
            return self.package("robosuite")


def _create_playable(
    arm: Simulated, pictures: MuJoCoPictures, overrides: Mapping[str, Any], strength: float
) -> ArmPlayable:
    """Returns the playable of an arm with a gripper, or of robots with other actions."""
    spec, grippers = arm.action_spec(), [_ARM_AXES.index("gripper")]
    if spec.shape == (len(_ARM_AXES),):
        table = create_directions(_ARM_AXES, _KEY_PAIRS, _STICKS, strength)
        keymap = key_map(spec, table=table, names=_ARM_AXES, words=_WORDS, overrides=overrides)
    else:
        keymap, grippers = key_map(spec, overrides=overrides, strength=strength), []
    return ArmPlayable(arm, keymap, ["robosuite", "mujoco"], pictures, grippers, open_command=-1.0)
