"""RoboDesk: a robot arm at a desk with drawers, buttons, blocks and a ball."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from dm_env import specs
from PIL import Image
from typing_extensions import override

from rlds_creator.environments.arms import ArmPlayable, create_directions
from rlds_creator.environments.key_maps import key_map
from rlds_creator.environments.mujoco_pictures import (
    FREE,
    MuJoCoPictures,
    check_size,
    draw_without_display,
)
from rlds_creator.environments.playable import Family
from rlds_creator.environments.simulation import Simulated

__all__ = ["RoboDeskFamily"]

_TASKS = (
    "open_slide",
    "open_drawer",
    "push_green",
    "stack",
    "upright_block_off_table",
    "flat_block_in_bin",
    "flat_block_in_shelf",
    "lift_upright_block",
    "lift_ball",
    "push_blue",
    "push_red",
    "flat_block_off_table",
    "ball_off_table",
    "upright_block_in_bin",
    "ball_in_bin",
    "upright_block_in_shelf",
    "ball_in_shelf",
    "lift_flat_block",
)
# The five elements of an action, and the keys that move them, seen from the front of the desk.
_HAND_AXES = ("x", "y", "z", "wrist", "gripper")
_KEY_PAIRS = {
    "x": ("ArrowLeft", "ArrowRight"),
    "y": ("ArrowDown", "ArrowUp"),
    "z": ("KeyS", "KeyW"),
    "wrist": ("KeyQ", "KeyE"),
}
_STICKS = {
    "Axis0": ("x", 1),
    "Axis1": ("y", -1),
    "Axis2": ("wrist", 1),
    "Axis3": ("z", -1),
    "Space0": ("x", 1),
    "Space1": ("y", -1),
    "Space2": ("z", -1),
    "Space5": ("wrist", 1),
}
_WORDS = {
    "x": ("left", "right"),
    "y": ("near", "away"),
    "z": ("down", "up"),
    "wrist": ("turn left", "turn right"),
}
# The camera of the observation, moved back so that it shows the complete desk.
_CAMERA = {"distance": 1.8, "azimuth": 90, "elevation": -60, "lookat": np.array([0, 0.535, 1.1])}
_MAX_EPISODE_STEPS = 1_000_000


class _Desk(Simulated):
    """A task of RoboDesk.

    Args:
      desk: The task.
    """

    def __init__(self, desk: Any) -> None:
        self.desk = desk
        space = desk.action_space
        observation = {
            name: specs.Array(value.shape, value.dtype, name)
            for name, value in self.begin().items()
        }
        action = specs.BoundedArray(space.shape, space.dtype, space.low, space.high)
        super().__init__(observation, action)

    @override
    def begin(self) -> dict[str, np.ndarray]:
        self._select_context()
        return self._convert(self.desk.reset())

    @override
    def advance(self, action: Any) -> tuple[Any, float, float, bool]:
        self._select_context()
        observation, reward, is_over, info = self.desk.step(action)
        return self._convert(observation), reward, info["discount"], is_over

    @override
    def seed(self, seed: int) -> None:
        np.random.seed(seed)  # Tasks have no generator of their own.

    def _select_context(self) -> None:
        """Selects the drawing context of dm_control, which does not notice that it lost it."""
        context = self.desk.physics.contexts.gl
        with context.make_current() as thread:
            thread.call(context._platform_make_current)

    def _convert(self, observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
        self.info = {"success": bool(self.desk._get_task_reward(self.desk.task, "success"))}
        # Arrays are copied, because some arrays change with the simulation.
        return {name: np.array(value) for name, value in observation.items()}

    @override
    def close(self) -> None:
        self.desk.physics.free()  # The context must be freed before the renderer ends.


class RoboDeskFamily(Family):
    """An arm at a desk: keys move and turn the hand, the space bar opens and closes it."""

    title = "RoboDesk"
    requires = "robodesk pillow<10"

    @override
    def identifiers(self) -> Sequence[str]:
        self._package()
        return _TASKS

    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        reward: Literal["dense", "sparse", "success"] = "dense",
        action_repeat: int = 1,
        episode_length: int = 500,
        image_size: int = 64,
        strength: float = 1.0,
        width: int = 480,
        height: int = 480,
    ) -> ArmPlayable:
        """See `Family`.

        Args:
          id: The task.
          keys: The actions of keys, which replace the default actions.
          reward: "dense": also for progress. "sparse": for each step with the task done. "success":
            once, when the task is done for the first time.
          action_repeat: The number of times that each action is repeated.
          episode_length: The number of actions, repeats included, after which an episode ends.
          image_size: The side of the picture in the observation.
          strength: The speed of the hand under a key, from 0 to 1. A stick reaches full speed.
          width: The width of pictures.
          height: The height of pictures.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        check_size(image_size, image_size)
        if not (1 <= action_repeat <= 100 and 1 <= episode_length <= _MAX_EPISODE_STEPS):
            raise ValueError("expected action_repeat from 1 to 100, and episode_length from 1")
        desk = _Desk(
            self._package().RoboDesk(
                task=id,
                reward=reward,
                action_repeat=action_repeat,
                episode_length=episode_length,
                image_size=image_size,
            )
        )
        physics = desk.desk.physics
        pictures = MuJoCoPictures(
            lambda: (physics.model.ptr, physics.data.ptr), width, height, _CAMERA, first_camera=FREE
        )
        return _create_playable(desk, pictures, keys, strength)

    def _package(self) -> Any:
        draw_without_display()
        with contextlib.redirect_stdout(sys.stderr):
            package = self.package("robodesk")
        if not hasattr(Image, "ANTIALIAS"):
            raise ImportError("RoboDesk draws with Pillow before 10: pip install 'pillow<10'")
        return package


def _create_playable(
    desk: Simulated, pictures: MuJoCoPictures, overrides: Mapping[str, Any], strength: float
) -> ArmPlayable:
    """Returns a playable desk."""
    table, spec = create_directions(_HAND_AXES, _KEY_PAIRS, _STICKS, strength), desk.action_spec()
    keymap = key_map(spec, table=table, names=_HAND_AXES, words=_WORDS, overrides=overrides)
    grippers = [_HAND_AXES.index("gripper")]
    return ArmPlayable(desk, keymap, ["robodesk", "mujoco"], pictures, grippers, open_command=1.0)
