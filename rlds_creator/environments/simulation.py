"""The base class of environments that adapt the interface of a package to dm_env."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import dm_env
import numpy as np
from typing_extensions import override

from rlds_creator.environments.key_maps import KeyedPlayable

__all__ = ["Simulated", "SimulatedPlayable"]


class Simulated(dm_env.Environment, abc.ABC):  # type: ignore[misc]  # dm_env is untyped.
    """An environment of a package, as a dm_env environment.

    Attributes:
      next_seed: The seed of the next episode; None for no new seed.
      info: The `info` of the package.
    """

    def __init__(self, observation_spec: Any, action_spec: Any) -> None:
        self._observation_spec, self._action_spec = observation_spec, action_spec
        self._is_over = True
        self.next_seed: int | None = None
        self.info: dict[str, Any] = {}

    @abc.abstractmethod
    def begin(self) -> Any:
        """Begins an episode; returns the first observation."""

    @abc.abstractmethod
    def advance(self, action: Any) -> tuple[Any, float, float, bool]:
        """Returns the observation, the reward, the discount, and whether the episode is over."""

    def seed(self, seed: int) -> None:
        """Sets the seed of the next episode."""
        self.next_seed = seed

    def draw(self) -> np.ndarray:
        """Returns the picture, unless MuJoCo renders it; see `Playable.render`."""
        raise NotImplementedError

    @override
    def reset(self) -> dm_env.TimeStep:
        observation = self.begin()
        self._is_over = False
        return dm_env.restart(observation)

    @override
    def step(self, action: Any) -> dm_env.TimeStep:
        if self._is_over:
            return self.reset()
        observation, reward, discount, self._is_over = self.advance(action)
        kind = dm_env.StepType.LAST if self._is_over else dm_env.StepType.MID
        return dm_env.TimeStep(kind, float(reward), discount, observation)

    @override
    def observation_spec(self) -> Any:
        return self._observation_spec

    @override
    def action_spec(self) -> Any:
        return self._action_spec


class SimulatedPlayable(KeyedPlayable):
    """A `Simulated` environment with a key map."""

    environment: Simulated

    @override
    def seed(self, seed: int) -> None:
        self.environment.seed(seed)

    @override
    def draw(self) -> np.ndarray:
        return self.environment.draw()

    @override
    def info(self) -> Mapping[str, Any]:
        return self.environment.info
