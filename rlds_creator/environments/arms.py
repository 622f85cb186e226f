"""Robot arms with grippers that stay open or closed until a key toggles them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from rlds_creator.environments.key_maps import KeyMap
from rlds_creator.environments.mujoco_pictures import MuJoCoPictures
from rlds_creator.environments.playable import Control, Inputs
from rlds_creator.environments.simulation import Simulated, SimulatedPlayable

__all__ = ["ArmPlayable", "create_directions"]

_TOGGLE_INPUTS = ("Space", "Button0")


class ArmPlayable(SimulatedPlayable):
    """Arms, drawn by MuJoCo. A key opens and closes their grippers.

    Args:
      environment: The environment.
      keys: The key map, without the grippers.
      packages: The packages of the environment, whose versions are recorded.
      pictures: The renderer.
      grippers: The indices of the gripper commands in an action.
      open_command: The command of an open gripper; that of a closed one is its negative.
    """

    def __init__(
        self,
        environment: Simulated,
        keys: KeyMap,
        packages: Sequence[str],
        pictures: MuJoCoPictures,
        grippers: Sequence[int],
        open_command: float,
    ) -> None:
        super().__init__(environment, keys, packages, pictures=pictures)
        self._grippers, self._open_command = list(grippers), open_command
        if self._grippers:
            toggle = Control(_TOGGLE_INPUTS, "open or close the gripper")
            self.controls = [*self.controls, toggle]
        self._open_grippers()

    @override
    def seed(self, seed: int) -> None:
        super().seed(seed)
        self._open_grippers()

    @override
    def action(self, inputs: Inputs) -> Any:
        presses = sum(name in _TOGGLE_INPUTS for name in inputs.pressed) if self._grippers else 0
        if presses % 2:
            self.idle_action = self.idle_action.copy()
            self.idle_action[self._grippers] *= -1
        action = self.keys.action(inputs)
        if action is None:
            return self.idle_action if presses else None
        action[self._grippers] = self.idle_action[self._grippers]
        return action

    def _open_grippers(self) -> None:
        """Sets the command of open grippers, their state at the start of an episode."""
        self.idle_action = self.keys.idle.copy()
        self.idle_action[self._grippers] = self._open_command


def create_directions(
    names: Sequence[str],
    key_pairs: Mapping[str, tuple[str, str]],
    sticks: Mapping[str, tuple[str, int]],
    strength: float,
) -> dict[str, list[float]]:
    """Returns the directions of inputs, the `table` of `key_map`.

    Args:
      names: The names of the elements of the action.
      key_pairs: The keys that decrease and increase an element, by its name.
      sticks: The element that a stick moves, and the sign of its direction.
      strength: The fraction of its bound by which a key moves an element; a stick moves it fully.

    Raises:
      ValueError: The strength is out of range.

    >>> create_directions(["x", "y"], {"x": ("KeyA", "KeyD")}, {"Axis0": ("y", -1)}, 0.5)
    {'KeyA': [-0.5, -0.0], 'KeyD': [0.5, 0.0], 'Axis0': [0, -1]}
    """
    if not 0 < strength <= 1:
        raise ValueError(f"strength is {strength}, expected a number above 0 and up to 1")

    def create_direction(name: str, size: float) -> list[float]:
        return [size * (name == other) for other in names]

    table = {
        key: create_direction(name, size)
        for name, pair in key_pairs.items()
        for key, size in zip(pair, (-strength, strength))
    }
    return table | {stick: create_direction(name, sign) for stick, (name, sign) in sticks.items()}
