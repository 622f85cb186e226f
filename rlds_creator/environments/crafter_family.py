"""Crafter: an open world in which people survive, gather and make things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs
from typing_extensions import override

from rlds_creator.environments.key_maps import key_map
from rlds_creator.environments.playable import Family
from rlds_creator.environments.simulation import Simulated, SimulatedPlayable

__all__ = ["CrafterFamily"]

_IMAGE_SIDE = 64
_KEYS = {
    "move_left": "ArrowLeft",
    "move_right": "ArrowRight",
    "move_up": "ArrowUp",
    "move_down": "ArrowDown",
    "do": "Space",
    "sleep": "KeyZ",
    "place_stone": "KeyS",
    "place_table": "KeyT",
    "place_furnace": "KeyF",
    "place_plant": "KeyX",
    "make_wood_pickaxe": "Digit1",
    "make_stone_pickaxe": "Digit2",
    "make_iron_pickaxe": "Digit3",
    "make_wood_sword": "Digit4",
    "make_stone_sword": "Digit5",
    "make_iron_sword": "Digit6",
}


class _World(Simulated):
    """The world.

    Args:
      world: An environment of Crafter.
      side: The side of pictures.
    """

    def __init__(self, world: Any, side: int) -> None:
        self.world, self._side = world, side
        picture = specs.BoundedArray((_IMAGE_SIDE, _IMAGE_SIDE, 3), np.uint8, 0, 255, "image")
        super().__init__(picture, specs.DiscreteArray(len(world.action_names)))

    @override
    def begin(self) -> Any:
        if self.next_seed is not None:
            # Crafter generates the world from the seed and the index of the episode.
            self.world._seed, self.next_seed = self.next_seed, None
            self.world._episode = 0
        self.info = {}
        return self.world.reset()

    @override
    def advance(self, action: Any) -> tuple[Any, float, float, bool]:
        observation, reward, is_over, info = self.world.step(int(action))
        self.info = {name: info[name] for name in ("inventory", "achievements")}
        return observation, reward, float(info["discount"]), is_over

    @override
    def draw(self) -> np.ndarray:
        picture: np.ndarray = self.world.render((self._side, self._side))
        return picture


class CrafterFamily(Family):
    """Crafter: arrows move, the space bar acts on the object in front."""

    title = "Crafter"
    requires = "crafter"

    @override
    def identifiers(self) -> Sequence[str]:
        self.package("crafter")
        return ["CrafterReward", "CrafterNoReward"]

    def make(
        self, *, id: str, keys: Mapping[str, Any], length: int = 10_000, size: int = 450
    ) -> SimulatedPlayable:
        """See `Family`.

        Args:
          id: The environment, with or without rewards.
          keys: The actions of keys, which replace the default actions.
          length: The number of steps after which an episode is truncated.
          size: The side of pictures.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        if length < 1 or not 64 <= size <= 1024:
            raise ValueError(f"length is {length} and size {size}, expected 1 and 64 to 1024")
        world = self.package("crafter").Env(
            size=(_IMAGE_SIDE, _IMAGE_SIDE), reward=id == "CrafterReward", length=length
        )
        environment, names = _World(world, size), list(world.action_names)
        keymap = key_map(
            environment.action_spec(),
            table={key: names.index(name) for name, key in _KEYS.items() if name in names},
            meanings=["nothing", *(name.replace("_", " ") for name in names[1:])],
            idle=names.index("noop"),
            overrides=keys,
        )
        return SimulatedPlayable(environment, keymap, ["crafter"])
