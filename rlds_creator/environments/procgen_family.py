"""The games of Procgen, whose levels are generated from seeds."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from dm_env import specs
from typing_extensions import override

from rlds_creator.environments.key_maps import key_map
from rlds_creator.environments.playable import Family
from rlds_creator.environments.simulation import Simulated, SimulatedPlayable

__all__ = ["ProcgenFamily"]

# The keys of a player's keyboard, by the key names of Procgen.
_KEYS = {
    **{side.upper(): f"Arrow{side}" for side in ("Up", "Down", "Left", "Right")},
    **{"D": "Space", "A": "KeyA", "W": "KeyW", "S": "KeyS", "Q": "KeyQ", "E": "KeyE"},
}
_DISTRIBUTION = "procgen-mirror"
# The games of each mode. Other combinations end the process.
_GAMES = {
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
}


class _Levels(Simulated):
    """Levels of a game, each an episode.

    Args:
      options: The options of the game.
      start_level: The seed of the first level.
      num_levels: The number of levels; 0 for all seeds.
    """

    def __init__(self, options: Mapping[str, Any], start_level: int, num_levels: int) -> None:
        picture = specs.BoundedArray((64, 64, 3), np.uint8, 0, 255, "rgb")
        super().__init__(picture, specs.DiscreteArray(15, np.int32))
        self._options, self._start_level, self._num_levels = options, start_level, num_levels
        self._game: Any = None
        self._random = np.random.default_rng()

    @override
    def begin(self) -> Any:
        if self.next_seed is not None:
            self._random, self.next_seed = np.random.default_rng(self.next_seed), None
        offset = int(self._random.integers(self._num_levels or 2**31 - self._start_level))
        self.close()
        make = importlib.import_module("procgen").ProcgenGym3Env
        self._game = make(
            num=1,
            start_level=self._start_level + offset,
            num_levels=1,
            rand_seed=int(self._random.integers(2**31)),
            num_threads=0,
            render_mode="rgb_array",
            **self._options,
        )
        _, observation, _ = self._game.observe()
        return self._observe(observation)

    @override
    def advance(self, action: Any) -> tuple[Any, float, float, bool]:
        self._game.act(np.array([action], np.int32))
        rewards, observation, is_first = self._game.observe()
        if not is_first[0]:
            return self._observe(observation), rewards[0], 1.0, False
        # The game already shows the next level, not the end of this one.
        level = self._game.get_info()[0]
        self.info = {
            "level_seed": int(level["prev_level_seed"]),
            "is_complete": bool(level["prev_level_complete"]),
            "final_observation_known": False,
        }
        return self._last_observation, rewards[0], 0.0, True

    def _observe(self, observation: Mapping[str, Any]) -> np.ndarray:
        level = self._game.get_info()[0]
        self._picture: np.ndarray = level["rgb"]
        self.info = {"level_seed": int(level["level_seed"])}
        self._last_observation = np.array(observation["rgb"][0])
        return self._last_observation

    @override
    def draw(self) -> np.ndarray:
        return self._picture

    @override
    def close(self) -> None:
        if self._game is not None:
            self._game.close()


class ProcgenFamily(Family):
    """The games of Procgen: arrows move, the space bar fires."""

    title = "Procgen"
    requires = f"{_DISTRIBUTION} numpy<2"

    @override
    def identifiers(self) -> Sequence[str]:
        names: Sequence[str] = self._package().env.ENV_NAMES
        return names

    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        distribution_mode: Literal["easy", "hard", "extreme", "memory", "exploration"] = "hard",
        start_level: int = 0,
        num_levels: int = 0,
        center_agent: bool = True,
        use_backgrounds: bool = True,
    ) -> SimulatedPlayable:
        """See `Family`.

        Args:
          id: The name of the game.
          keys: The actions of keys, which replace the default actions.
          distribution_mode: The difficulty of the levels. Some games lack some modes.
          start_level: The seed of the first level.
          num_levels: The number of levels from which an episode draws its own; 0 for all seeds.
          center_agent: Whether the picture follows the agent, or shows the complete level.
          use_backgrounds: Whether levels have background images.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        if not (0 <= start_level < 2**31 and 0 <= num_levels < 2**31 - start_level):
            raise ValueError(
                f"levels {start_level} to {start_level + num_levels}: expected from 0 to 2**31"
            )
        package = self._package()
        games = _GAMES.get(distribution_mode, package.env.ENV_NAMES)
        if distribution_mode == "exploration":
            games = tuple(package.env.EXPLORATION_LEVEL_SEEDS)
        if id not in games:
            raise ValueError(f"no {distribution_mode} {id}; there are: {', '.join(games)}")
        options = {
            "env_name": id,
            "distribution_mode": distribution_mode,
            "center_agent": center_agent,
            "use_backgrounds": use_backgrounds,
        }
        levels = _Levels(options, start_level, num_levels)
        names = package.ProcgenGym3Env.get_combos(None)
        table = {"+".join(_KEYS[key] for key in combo): i for i, combo in enumerate(names) if combo}
        meanings = [_describe(combo) for combo in names]
        keymap = key_map(
            levels.action_spec(),
            table=table,
            meanings=meanings,
            idle=names.index(()),
            overrides=keys,
        )
        return SimulatedPlayable(levels, keymap, [_DISTRIBUTION])

    def _package(self) -> Any:
        self.package("procgen.env")
        return self.package("procgen")


def _describe(combo: Sequence[str]) -> str:
    """Describes the effect of an action from its keys.

    >>> _describe(["LEFT", "UP"]), _describe(["D"]), _describe([])
    ('left, up', 'fire', 'nothing')
    """
    words = [name.lower() if len(name) > 1 else f"fire {name}" for name in combo]
    return ", ".join(words).replace("fire D", "fire") or "nothing"
