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
    "first_equal",
    "log",
    "mean",
    "median",
    "quantile",
    "shorten",
    "to_deviations",
]


# The least number of episodes of a task that is a group of its own.
_MIN_TASK_EPISODES = 12
# Standard deviations between the quantiles 0.1 and 0.9 of a normal distribution.
_QUANTILE_RANGE = 2.563


@dataclasses.dataclass(frozen=True)
class EpisodeFinding:
    """A finding of an audit about one episode.

    Attributes:
      episode: The index of the episode.
      check: The name of the check.
      text: The finding as a sentence, with the stored indices of further episodes.
      row: The row of the finding; -1 if no single row is affected.
      size: The ratio to the threshold of the check.
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
      stored_indices: The stored indices of the episodes.
      names: The names of the elements of sketches.
      rows: The number of rows of each episode.
      digests: Digests of the values of episodes; uint64, 0 if the state is constant.
      sketches: See `Measures`; without elements if the state is constant.
    """

    split: str
    stored_indices: Sequence[int]
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
      tasks: The instruction of each episode; "" if empty, None if missing.
      digests: See `Fingerprints`.
      cameras: The paths of the cameras.
      earlier: Earlier splits, to search for copies.
      stored_indices: The stored indices of the episodes.
      personal: A description of the personal data in each episode; "" if there is none.

    Attributes:
      filmed: The indices of the episodes with measured pictures.
      vectors: The ranges of the elements of the state and of the action.
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
        stored_indices: Sequence[int] = (),
        personal: Sequence[str] = (),
    ) -> None:
        self.measures, self.names, self.num_states = measures, names, num_states
        self.profile, self.cameras = profile, cameras
        self.digests = digests or [0] * len(measures)
        self.earlier, self.stored_indices = earlier, stored_indices or range(len(measures))
        self.filmed = np.flatnonzero([measure.pictures is not None for measure in measures])
        self.vectors = {"state": slice(num_states), "action": slice(num_states, None)}
        self.tasks = tasks or [None] * len(measures)
        self.personal = personal or [""] * len(measures)
        self.rows = self.array("rows")
        self.range = self.array("high") - self.array("low")

    def __len__(self) -> int:
        return len(self.measures)

    def array(self, name: str) -> np.ndarray:
        """Returns a measure of all episodes, which are the first axis."""
        return np.array([getattr(measure, name) for measure in self.measures], np.float64)

    def picture_array(self, name: str) -> np.ndarray:
        """Returns a measure of the pictures of the `filmed` episodes."""
        pictures = (self.measures[episode].pictures for episode in self.filmed.tolist())
        return np.array([getattr(picture, name) for picture in pictures], np.float64)

    def time_array(self, name: str) -> np.ndarray:
        """Returns a measure of the times of all episodes; NaN without times."""
        times = [measure.times for measure in self.measures]
        return np.array([np.nan if t is None else getattr(t, name) for t in times], np.float64)

    def fingerprints(self, split: str) -> Fingerprints:
        """Returns the digests and sketches of the episodes, under the name of their split."""
        sketches = self.array("sketch") if self.num_states else np.zeros((len(self), 0))
        digests = np.array(self.digests, np.uint64)
        return Fingerprints(split, self.stored_indices, self.names, self.rows, digests, sketches)

    @property
    def groups(self) -> list[np.ndarray]:
        """The indices of the episodes of each task; rare tasks share one group."""
        by_task: dict[str | None, list[int]] = {}
        for episode, task in enumerate(self.tasks):
            by_task.setdefault(task, []).append(episode)
        groups = [np.array(group) for group in by_task.values() if len(group) >= _MIN_TASK_EPISODES]
        rare = [n for group in by_task.values() if len(group) < _MIN_TASK_EPISODES for n in group]
        return [*groups, np.array(rare)] if rare else groups

    @property
    def sketches(self) -> np.ndarray:
        """The values of each episode at a few moments, in deviations of the element."""
        return to_deviations(self.array("sketch"))

    @property
    def has_levels(self) -> np.ndarray:
        """A mask of the elements that are measured quantities, not flags or categories."""
        values = np.median(self.array("values"), axis=0)
        return (values > 8) & ((self.array("is_whole").mean(0) < 0.9) | (values > 64))


def shorten(names: Sequence[str], max_names: int) -> str:
    """Returns the first names, and the number of further names, as text.

    >>> shorten(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    ellipsis = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return ", ".join(names[:max_names]) + ellipsis


def to_deviations(sketches: np.ndarray) -> np.ndarray:
    """Divides sketches of episodes by the deviation of each element over all moments."""
    sketches = np.nan_to_num(sketches)
    if not sketches.size:
        return sketches
    moments = sketches.reshape(len(sketches), SKETCH_ROWS, -1)
    # Quantiles: one episode in degrees does not determine the scale.
    low, high = np.quantile(moments, (0.1, 0.9), axis=(0, 1))
    scale = np.where(high > low, (high - low) / _QUANTILE_RANGE, moments.std((0, 1)))
    scaled: np.ndarray = sketches / np.tile(np.where(scale > 0, scale, 1), SKETCH_ROWS)
    return scaled


def first_equal(digests: np.ndarray) -> np.ndarray:
    """Returns for each digest the index of the first equal digest."""
    _, first_indices, inverse = np.unique(digests, return_index=True, return_inverse=True)
    indices: np.ndarray = first_indices[inverse]
    return indices


def median(values: np.ndarray) -> np.ndarray:
    """Returns the median along the first axis, without NaN."""
    return _drop_nan(np.nanmedian, values)


def deviations(values: np.ndarray, min_deviation: float) -> np.ndarray:
    """Returns values less their median, in median deviations, along the first axis.

    Args:
      values: The values; NaN where missing.
      min_deviation: The lower limit of the median deviation.
    """
    middle = median(values)
    spread = 1.4826 * median(np.abs(values - middle))
    with np.errstate(invalid="ignore"):
        return np.nan_to_num((values - middle) / np.maximum(spread, min_deviation), nan=0.0)


def quantile(values: np.ndarray, fraction: float) -> np.ndarray:
    """Returns a quantile along the first axis, without NaN."""
    return _drop_nan(np.nanquantile, values, fraction)


def log(values: np.ndarray) -> np.ndarray:
    """Returns the logarithm; NaN if undefined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    return np.where(np.isfinite(logs), logs, np.nan)


def mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean along the last axis, without NaN."""
    return _drop_nan(np.nanmean, values, axis=-1)


def _drop_nan(function: Callable[..., Any], *values: Any, axis: int = 0) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # The result of no values is NaN.
        reduced: np.ndarray = function(*values, axis=axis)
    return reduced
