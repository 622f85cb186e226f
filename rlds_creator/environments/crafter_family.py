"""Crafter: an open world in which people survive, gather and make things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from typing_extensions import override

from rlds_creator.environments.key_maps import KeyedPlayable, key_map
from rlds_creator.environments.playable import Family

__all__ = ["CrafterFamily", "CrafterPlayable"]

_OBSERVED = 64
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


class _World(dm_env.Environment):  # type: ignore[misc]  # dm_env is untyped.
    """The world.

    Args:
      world: An environment of Crafter.

    Attributes:
      next_seed: The seed of the next episode.
      info: What the environment says beside the observation.
    """

    def __init__(self, world: Any) -> None:
        self.world = world
        self._is_over = True
        self.next_seed: int | None = None
        self.info: dict[str, Any] = {}

    @override
    def reset(self) -> dm_env.TimeStep:
        if self.next_seed is not None:
            # The world of an episode is that of its number and the seed.
            self.world._seed, self.next_seed = self.next_seed, None
            self.world._episode = 0
        self._is_over, self.info = False, {}
        return dm_env.restart(self.world.reset())

    @override
    def step(self, action: Any) -> dm_env.TimeStep:
        if self._is_over:
            return self.reset()
        observation, reward, self._is_over, info = self.world.step(int(action))
        discount = float(info["discount"])
        self.info = {name: info[name] for name in ("inventory", "achievements")}
        kind = dm_env.StepType.LAST if self._is_over else dm_env.StepType.MID
        return dm_env.TimeStep(kind, float(reward), discount, observation)

    @override
    def observation_spec(self) -> Any:
        return specs.BoundedArray((_OBSERVED, _OBSERVED, 3), np.uint8, 0, 255, "image")

    @override
    def action_spec(self) -> Any:
        return specs.DiscreteArray(len(self.world.action_names))


class CrafterPlayable(KeyedPlayable):
    """The world of Crafter.

    Args:
      world: The world.
      keys: What keys do in place of what they do by themselves.
      side: The side of pictures.
    """

    def __init__(self, world: _World, keys: Mapping[str, Any], side: int) -> None:
        names = list(world.world.action_names)
        maps = key_map(
            world.action_spec(),
            table={key: names.index(name) for name, key in _KEYS.items() if name in names},
            meanings=["nothing", *(name.replace("_", " ") for name in names[1:])],
            idle=names.index("noop"),
            overrides=keys,
        )
        super().__init__(world, maps, ["crafter"])
        self._world, self._side = world, side

    @override
    def render(self, camera: int = 0, *, is_draft: bool = False) -> np.ndarray:
        picture: np.ndarray = self._world.world.render((self._side, self._side))
        return picture

    @override
    def seed(self, seed: int) -> None:
        self._world.next_seed = seed

    @override
    def info(self) -> Mapping[str, Any]:
        return self._world.info


class CrafterFamily(Family):
    """Crafter: arrows move, the space bar does things to what is in front."""

    title = "Crafter"
    requires = "crafter"

    @override
    def identifiers(self) -> Sequence[str]:
        self.package("crafter")
        return ["CrafterReward", "CrafterNoReward"]

    def make(
        self, *, id: str, keys: Mapping[str, Any], length: int = 10_000, size: int = 450
    ) -> CrafterPlayable:
        """See `Family`.

        Args:
          id: Whether there are rewards.
          keys: What keys do in place of what they do by themselves.
          length: After how many steps an episode is truncated.
          size: The side of pictures.

        Raises:
          ValueError: An option, or an action of a key, is wrong; says which.
        """
        if length < 1 or not 64 <= size <= 1024:
            raise ValueError(f"length is {length} and size {size}, expected 1 and 64 to 1024")
        world = self.package("crafter").Env(
            size=(_OBSERVED, _OBSERVED), reward=id == "CrafterReward", length=length
        )
        return CrafterPlayable(_World(world), keys, size)
