"""Predefined functions for the arguments `step_fn` and `episode_fn` of `EnvLogger`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np

__all__ = ["EpisodeStatistics", "step_timestamp"]


def step_timestamp(
    timestep: dm_env.TimeStep, action: Any, env: dm_env.Environment
) -> dict[str, float]:
    """A `step_fn` that stores the time of the step.

    Returns:
      A dict with `timestamp`, in seconds since the epoch (UTC).
    """
    return {"timestamp": time.time()}


class EpisodeStatistics:
    """An `episode_fn` that stores the return, the length and the duration of each episode.

    The metadata of the episode is a dict with

      `return`: The sum of the rewards; a float, or an array if the rewards are arrays.
      `length`: The number of steps with a reward: one less than the recorded steps.
      `seconds`: The time from the first step to the last.

    Args:
      at_every_step: Whether to store the statistics after every step, so that unfinished episodes
        have them too. This slows down each step.
      clock: Returns the current time in seconds.

    >>> from envlogger.backends.in_memory_backend import InMemoryBackendWriter
    >>> from envlogger.testing.catch_env import Catch
    >>> import envlogger
    >>> backend = InMemoryBackendWriter()
    >>> with envlogger.EnvLogger(Catch(), backend=backend, episode_fn=EpisodeStatistics()) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> backend.episode_metadata[0]["length"]
    9
    """

    def __init__(
        self, *, at_every_step: bool = False, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._at_every_step = at_every_step
        self._clock = clock
        self._begin_episode()

    def _begin_episode(self) -> None:
        self._return: Any = 0.0
        self._length = 0
        self._start_time = self._clock()

    def __call__(
        self, timestep: dm_env.TimeStep, action: Any, env: dm_env.Environment
    ) -> dict[str, Any] | None:
        """Updates the statistics with a step.

        Returns:
          The statistics of the episode so far; None if the episode goes on.
        """
        if timestep.first():
            self._begin_episode()
        else:
            self._length += 1
            if timestep.reward is not None:
                self._return = self._return + np.asarray(timestep.reward, np.float64)
        if not (timestep.last() or self._at_every_step):
            return None
        return {
            "return": self._return[()] if isinstance(self._return, np.ndarray) else self._return,
            "length": self._length,
            "seconds": self._clock() - self._start_time,
        }
