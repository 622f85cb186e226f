"""Measured episodes, their findings, and medians over them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlds.auditing.measures import SKETCH_ROWS, Measures, Profile

__all__ = [
    "EpisodeFinding",
    "Fingerprints",
    "MeasuredEpisodes",
    "deviations",
    "first_of",
    "in_deviations",
    "log",
    "mean",
    "median",
    "originals",
    "quantile",
]


# The least number of episodes of a task that are compared within the task.
_LEAST_OF_TASK = 12
# The deviations between the quantiles 0.1 and 0.9 of a normal distribution.
_TENTHS = 2.563


@dataclasses.dataclass(frozen=True)
class EpisodeFinding:
    """A finding of an audit about one episode.

    Attributes:
      episode: The number of the episode.
      check: The name of the check.
      text: The finding as a sentence; it names other episodes by their stored numbers.
      row: The row of the finding; -1 if it is not about a single row.
      size: The ratio to the threshold of the check; 1 is on the threshold.
    """

    episode: int
    check: str
    text: str
    row: int = -1
    size: float = 1.0


class Fingerprints(NamedTuple):
    """Digests and sketches of the episodes of a split, which identify duplicates.

    Attributes:
      split: The name of the split.
      numbers: The stored numbers of the episodes.
      names: The names of the elements of sketches.
      rows: The number of rows of each episode.
      digests: Equal for episodes of equal numbers; uint64, 0 if no number of the state changes.
      sketches: See `Measures`; without elements if no number of the state changes.
    """

    split: str
    numbers: Sequence[int]
    names: Sequence[str]
    rows: np.ndarray
    digests: np.ndarray
    sketches: np.ndarray


class MeasuredEpisodes:
    """The measures of all episodes of a dataset, as arrays.

    Args:
      measures: The measures of each episode.
      names: The names of the elements: of the state, then of the action.
      num_states: The number of elements of the state.
      profile: The usual values of the dataset.
      tasks: The instruction of each episode; "" if it is empty, None if there is none.
      digests: See `Fingerprints`.
      cameras: The paths of the cameras.
      earlier: Earlier splits, whose episodes must not be repeated.
      numbers: The stored numbers of the episodes.
      personal: A description of the personal data in each episode; "" if there is none.

    Attributes:
      filmed: The numbers of the episodes with measured pictures.
      parts: The elements of the state and of the action.
    """

    def __init__(
        self,
        measures: Sequence[Measures],
        names: Sequence[str],
        num_states: int,
        profile: Profile,
        tasks: Sequence[str | None] = (),
        digests: Sequence[int] = (),
        cameras: Sequence[str] = (),
        earlier: Sequence[Fingerprints] = (),
        numbers: Sequence[int] = (),
        personal: Sequence[str] = (),
    ) -> None:
        self.measures, self.names, self.num_states = measures, names, num_states
        self.profile, self.cameras = profile, cameras
        self.digests = digests or [0] * len(measures)
        self.earlier, self.numbers = earlier, numbers or range(len(measures))
        self.filmed = np.flatnonzero([each.pictures is not None for each in measures])
        self.parts = {"state": slice(num_states), "action": slice(num_states, None)}
        self.tasks = tasks or [None] * len(measures)
        self.personal = personal or [""] * len(measures)
        self.rows = self.of("rows")
        self.range = self.of("high") - self.of("low")

    def __len__(self) -> int:
        return len(self.measures)

    def of(self, name: str) -> np.ndarray:
        """A measure of all episodes; they are the first axis."""
        return np.array([getattr(each, name) for each in self.measures], np.float64)

    def of_pictures(self, name: str) -> np.ndarray:
        """A measure of the pictures of all episodes that are filmed."""
        pictures = (self.measures[episode].pictures for episode in self.filmed.tolist())
        return np.array([getattr(each, name) for each in pictures], np.float64)

    def of_times(self, name: str) -> np.ndarray:
        """A measure of the times of all episodes; NaN where there is none."""
        times = (each.times for each in self.measures)
        return np.array([np.nan if it is None else getattr(it, name) for it in times], np.float64)

    def fingerprints(self, split: str) -> Fingerprints:
        """Returns the digests and sketches of the episodes, under the name of their split."""
        sketches = self.of("sketch") if self.num_states else np.zeros((len(self), 0))
        digests = np.array(self.digests, np.uint64)
        return Fingerprints(split, self.numbers, self.names, self.rows, digests, sketches)

    @property
    def groups(self) -> list[np.ndarray]:
        """The numbers of the episodes of each task; all rare tasks together are one group."""
        by_task: dict[str | None, list[int]] = {}
        for episode, task in enumerate(self.tasks):
            by_task.setdefault(task, []).append(episode)
        large = [np.array(group) for group in by_task.values() if len(group) >= _LEAST_OF_TASK]
        rare = [n for group in by_task.values() if len(group) < _LEAST_OF_TASK for n in group]
        return [*large, np.array(rare)] if rare else large

    @property
    def sketches(self) -> np.ndarray:
        """The values of each episode at some moments, in deviations of each element."""
        return in_deviations(self.of("sketch"))

    @property
    def has_levels(self) -> np.ndarray:
        """Whether each element is a measured quantity, and no flag or category."""
        values = np.median(self.of("values"), axis=0)
        return (values > 8) & ((self.of("is_whole").mean(0) < 0.9) | (values > 64))


def first_of(names: Sequence[str], max_names: int) -> str:
    """Returns the first names as text, and the number of further names.

    >>> first_of(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return ", ".join(names[:max_names]) + more


def in_deviations(sketches: np.ndarray) -> np.ndarray:
    """Sketches of episodes, in deviations of each element over all moments."""
    sketches = np.nan_to_num(sketches)
    if not sketches.size:
        return sketches
    moments = sketches.reshape(len(sketches), SKETCH_ROWS, -1)
    # By quantiles, so that one episode in degrees does not make all others look alike.
    low, high = np.quantile(moments, (0.1, 0.9), axis=(0, 1))
    scale = np.where(high > low, (high - low) / _TENTHS, moments.std((0, 1)))
    scaled: np.ndarray = sketches / np.tile(np.where(scale > 0, scale, 1), SKETCH_ROWS)
    return scaled


def originals(digests: np.ndarray) -> np.ndarray:
    """Returns for each digest the index of the first one that equals it."""
    _, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
    indices: np.ndarray = first[inverse]
    return indices


def median(values: np.ndarray) -> np.ndarray:
    """Returns the median along the first axis, without NaN."""
    return _without_nan(np.nanmedian, values)


def deviations(values: np.ndarray, least: float) -> np.ndarray:
    """Returns values less their median, in median deviations, along the first axis.

    Args:
      values: The values; NaN where there is none.
      least: The least deviation that counts.
    """
    middle = median(values)
    spread = 1.4826 * median(np.abs(values - middle))
    with np.errstate(invalid="ignore"):
        return np.nan_to_num((values - middle) / np.maximum(spread, least), nan=0.0)


def quantile(values: np.ndarray, part: float) -> np.ndarray:
    """Returns a quantile along the first axis, without NaN."""
    return _without_nan(np.nanquantile, values, part)


def log(values: np.ndarray) -> np.ndarray:
    """The logarithm, NaN where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    return np.where(np.isfinite(logs), logs, np.nan)


def mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean along the last axis, without NaN."""
    return _without_nan(np.nanmean, values, axis=-1)


def _without_nan(function: Callable[..., Any], *values: Any, axis: int = 0) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN alone gives NaN.
        reduced: np.ndarray = function(*values, axis=axis)
    return reduced
