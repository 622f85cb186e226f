"""Robots of Gymnasium and Gymnasium-Robotics, simulated by MuJoCo."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from rlds_creator.environments.gymnasium_family import (
    GymnasiumPlayable,
    list_ids,
    make_gymnasium,
    spec_of,
)
from rlds_creator.environments.key_maps import key_map
from rlds_creator.environments.mujoco_pictures import (
    FREE,
    MuJoCoPictures,
    actuator_names,
    camera_names,
    draw_without_display,
)
from rlds_creator.environments.playable import Family

__all__ = ["MuJoCoFamily"]

_ENVIRONMENT_MODULES = ("gymnasium.envs.mujoco", "gymnasium_robotics")
_VERSION_SUFFIX = re.compile(r"-v(\d+)$")

# Arguments of `key_map` for a gripper that moves along three axes, and opens and closes.
_GRIPPER = {
    "table": {
        "ArrowLeft": [0, -1, 0, 0],
        "ArrowRight": [0, 1, 0, 0],
        "ArrowUp": [-1, 0, 0, 0],
        "ArrowDown": [1, 0, 0, 0],
        "KeyW": [0, 0, 1, 0],
        "KeyS": [0, 0, -1, 0],
        "KeyA": [0, 0, 0, 1],
        "KeyD": [0, 0, 0, -1],
        "Axis0": [0, 1, 0, 0],
        "Axis1": [1, 0, 0, 0],
        "Axis3": [0, 0, -1, 0],
        "Button0": [0, 0, 0, -1],
        "Button1": [0, 0, 0, 1],
        "Space0": [0, 1, 0, 0],
        "Space1": [1, 0, 0, 0],
        "Space2": [0, 0, -1, 0],
    },
    "names": ["x", "y", "z", "gripper"],
    "words": {
        "x": ("away", "near"),
        "y": ("left", "right"),
        "z": ("down", "up"),
        "gripper": ("close the gripper", "open the gripper"),
    },
}


class MuJoCoFamily(Family):
    """Robots of Gymnasium, and of Gymnasium-Robotics if it is installed."""

    title = "MuJoCo"
    requires = "gymnasium[mujoco]"

    @override
    def identifiers(self) -> Sequence[str]:
        self._register()
        ids = list_ids(lambda module: module.startswith(_ENVIRONMENT_MODULES))
        newest_ids: dict[str, str] = {}  # Old versions need an old MuJoCo.
        for id in sorted(ids, key=_parse_version):
            newest_ids[_VERSION_SUFFIX.sub("", id)] = id
        return sorted(newest_ids.values())

    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        arguments: Mapping[str, Any] = {},
        has_time_limit: bool = True,
        strength: float | Sequence[float] = 1.0,
        has_pointer: bool = False,
        width: int = 480,
        height: int = 480,
    ) -> GymnasiumPlayable:
        """See `Family`.

        Args:
          id: The identifier of the environment.
          keys: The actions of keys, which replace the default actions.
          arguments: Arguments of the environment: flags, numbers and words.
          has_time_limit: Whether episodes end at the registered number of steps.
          strength: The fraction of its bound by which a key moves an element of the action, from 0
            to 1; or a fraction for each element.
          has_pointer: Whether the first two elements of the action follow the mouse while its
            button is down; a single element follows it to the left and right.
          width: The width of pictures.
          height: The height of pictures.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        self._register()
        env = make_gymnasium(id, arguments, has_time_limit=has_time_limit)
        robot = env.unwrapped
        map_options = (
            dict(_GRIPPER)
            if id.startswith("Fetch")
            else {"names": actuator_names(robot.model, env.action_space.shape)}
        )
        if strength != 1.0:
            map_options.pop("table", None)
        keymap = key_map(
            spec_of(env), overrides=keys, strength=strength, has_pointer=has_pointer, **map_options
        )
        renderer = getattr(robot, "mujoco_renderer", None)
        pictures = MuJoCoPictures(
            lambda: (robot.model, robot.data),
            width,
            height,
            getattr(renderer, "default_cam_config", None),
            # Other cameras of a model are views of the robot.
            first_camera="track" if "track" in camera_names(robot.model) else FREE,
        )
        is_robotics = type(robot).__module__.startswith("gymnasium_robotics")
        packages = ["mujoco", "gymnasium-robotics"] if is_robotics else ["mujoco"]
        return GymnasiumPlayable(env, keymap, packages, pictures=pictures)

    def _register(self) -> None:
        draw_without_display()
        self.package("mujoco")
        gymnasium = self.package("gymnasium")
        if importlib.util.find_spec("gymnasium_robotics"):
            gymnasium.register_envs(self.package("gymnasium_robotics"))


def _parse_version(id: str) -> int:
    match = _VERSION_SUFFIX.search(id)
    return int(match[1]) if match else -1
