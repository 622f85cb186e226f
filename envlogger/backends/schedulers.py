"""Schedulers, which choose the steps to record, or the steps after which to flush.

A scheduler is a function that is called with every step and returns True for chosen steps. The
`scheduler` of a backend chooses the steps to record; the `flush_scheduler` chooses the recorded
steps after which data are flushed.

Episode schedulers choose at the first step of an episode for all of its steps, so that episodes are
recorded completely or not at all.

>>> import dm_env
>>> every_other_episode = NEpisodeScheduler(2)
>>> first = StepData(dm_env.restart(observation=0.0), action=None)
>>> [every_other_episode(first) for _ in range(4)]
[True, False, True, False]
"""

from __future__ import annotations

import abc
import datetime
import itertools
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from envlogger.step_data import StepData

__all__ = [
    "BernoulliEpisodeScheduler",
    "BernoulliStepScheduler",
    "EpisodeScheduler",
    "ListEpisodeScheduler",
    "ListStepScheduler",
    "NEpisodeScheduler",
    "NStepScheduler",
    "Scheduler",
    "TimeScheduler",
]

Scheduler = Callable[[StepData], bool]

_Interval = TypeVar("_Interval", int, float)


class NStepScheduler:
    """Chooses the first step and every `step_interval`-th step after it.

    Args:
      step_interval: A positive number of steps.

    Raises:
      ValueError: `step_interval` is not positive.
    """

    def __init__(self, step_interval: int) -> None:
        self._step_interval = _check_interval(step_interval, "step_interval")
        self._counter = itertools.count()

    def __call__(self, data: StepData | None = None) -> bool:
        """Returns whether the step is chosen."""
        return next(self._counter) % self._step_interval == 0


class BernoulliStepScheduler:
    """Chooses each step with the same probability, independently.

    Args:
      keep_probability: The probability of choosing a step, from 0 to 1.
      seed: The seed of the random choices; None for a random seed.

    Raises:
      ValueError: `keep_probability` is not a probability.
    """

    def __init__(self, keep_probability: float, seed: int | None = None) -> None:
        self._keep_probability = _check_probability(keep_probability)
        self._rng = np.random.default_rng(seed)

    def __call__(self, data: StepData | None = None) -> bool:
        """Returns whether the step is chosen."""
        return bool(self._rng.random() < self._keep_probability)


class ListStepScheduler:
    """Chooses steps by index, counted from 0 over all episodes.

    Args:
      desired_steps: The indices: a list, or an array of int32 or int64.

    Raises:
      TypeError: `desired_steps` is an array of another dtype.
      ValueError: `desired_steps` is empty.
    """

    def __init__(self, desired_steps: Sequence[int] | np.ndarray) -> None:
        self._desired_steps = _check_indices(desired_steps, "desired_steps")
        self._counter = itertools.count()

    def __call__(self, data: StepData | None = None) -> bool:
        """Returns whether the step is chosen."""
        return next(self._counter) in self._desired_steps


class TimeScheduler:
    """Chooses the first step after each interval.

    An interval begins at the last chosen step, at first at construction.

    Args:
      interval: A positive time, as `datetime.timedelta` or in seconds.
      clock: Returns the current time in seconds. If the clock is set back by more than the
        interval, a new interval begins; otherwise the interval goes on.

    Raises:
      ValueError: `interval` is not positive.
    """

    def __init__(
        self, interval: datetime.timedelta | float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        seconds = interval.total_seconds() if isinstance(interval, datetime.timedelta) else interval
        self._interval = _check_interval(seconds, "interval")
        self._clock = clock
        self._start_time = clock()

    def __call__(self, data: StepData | None = None) -> bool:
        """Returns whether the interval has passed."""
        now = self._clock()
        elapsed = now - self._start_time
        if -self._interval <= elapsed < self._interval:
            return False
        self._start_time = now
        return elapsed >= self._interval


class EpisodeScheduler(abc.ABC):
    """Chooses episodes, at the first step of each episode.

    Episodes are counted by their first steps, so truncated episodes count too. As a
    `flush_scheduler`, it flushes once, at the first step of the chosen episode; all earlier
    episodes are then complete and on disk.
    """

    def __init__(self) -> None:
        self._num_episodes = 0
        self._is_chosen = False

    def __call__(self, data: StepData) -> bool:
        """Returns whether the episode of the step is chosen."""
        if data.timestep.first() or self._num_episodes == 0:
            self._is_chosen = self._choose(self._num_episodes)
            self._num_episodes += 1
        return self._is_chosen

    @abc.abstractmethod
    def _choose(self, episode: int) -> bool:
        """Returns whether to choose an episode by its index; called once for each, in order."""


class NEpisodeScheduler(EpisodeScheduler):
    """Chooses the first episode and every `episode_interval`-th episode after it.

    Args:
      episode_interval: A positive number of episodes.

    Raises:
      ValueError: `episode_interval` is not positive.
    """

    def __init__(self, episode_interval: int) -> None:
        super().__init__()
        self._episode_interval = _check_interval(episode_interval, "episode_interval")

    def _choose(self, episode: int) -> bool:
        return episode % self._episode_interval == 0


class BernoulliEpisodeScheduler(EpisodeScheduler):
    """Chooses each episode with the same probability, independently.

    Args:
      keep_probability: The probability of choosing an episode, from 0 to 1.
      seed: The seed of the random choices; None for a random seed.

    Raises:
      ValueError: `keep_probability` is not a probability.
    """

    def __init__(self, keep_probability: float, seed: int | None = None) -> None:
        super().__init__()
        self._keep_probability = _check_probability(keep_probability)
        self._rng = np.random.default_rng(seed)

    def _choose(self, episode: int) -> bool:
        return bool(self._rng.random() < self._keep_probability)


class ListEpisodeScheduler(EpisodeScheduler):
    """Chooses episodes by index, counted from 0.

    Args:
      desired_episodes: The indices: a list, or an array of int32 or int64.

    Raises:
      TypeError: `desired_episodes` is an array of another dtype.
      ValueError: `desired_episodes` is empty.
    """

    def __init__(self, desired_episodes: Sequence[int] | np.ndarray) -> None:
        super().__init__()
        self._desired_episodes = _check_indices(desired_episodes, "desired_episodes")

    def _choose(self, episode: int) -> bool:
        return episode in self._desired_episodes


def _check_interval(interval: _Interval, name: str) -> _Interval:
    if not interval > 0:
        raise ValueError(f"{name} must be positive, got {interval}")
    return interval


def _check_probability(probability: float) -> float:
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"keep_probability must be in [0, 1], got {probability}")
    return probability


def _check_indices(indices: Sequence[int] | np.ndarray, name: str) -> frozenset[int]:
    if isinstance(indices, np.ndarray) and indices.dtype not in (np.int32, np.int64):
        raise TypeError(f"{name} must be an array of int32 or int64, got one of {indices.dtype}")
    if len(indices) == 0:
        raise ValueError(f"{name} cannot be empty")
    return frozenset(map(int, indices))
