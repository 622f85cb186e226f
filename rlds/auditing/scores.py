"""Scores of episodes, by which some are better demonstrations than others for some purposes.

Higher is better. No score is a verdict: docs/audit.md has the measured usefulness of each, and its
limits. A score that cannot be computed is NaN.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from rlds.statistics.ranks import midranks

__all__ = ["SCORES", "EpisodeScore", "alone", "together", "within_task"]

_LEAST_ROWS = 8
# The spectrum of speeds: the highest frequency in Hz, the least amplitude, the zero padding.
_HIGHEST, _LOWEST, _PADDING = 10.0, 0.05, 4
# The number of compared rows, and the numbers of neighbours (k of Kraskov et al.).
_BATCH, _NEIGHBOURS = 1024, (5, 6, 7)
# Repetitions of the comparison; the largest number of rows of all repetitions together.
_REPEATS, _MOST_COMPARED = 3, 200_000
# Rows whose distances to all others fit into the cache of a processor.
_BLOCK = 32
# The quantiles of rows, and those of the ends of episodes, beyond which values are clipped.
_CLIPPED, _UNUSUAL = (0.01, 0.99), (0.1, 0.9)
_LEAST_BATCH = 64


@dataclasses.dataclass(frozen=True)
class EpisodeScore:
    """A quality score of episodes.

    Attributes:
      name: The name of the score.
      what: The definition of the score, with its unit.
      source: The origin of the score: a reference, or "here".
      holds: The properties of an episode that the score does not depend on.
      doubt: The cases in which the score is misleading.
    """

    name: str
    what: str
    source: str
    holds: str
    doubt: str


SCORES: Sequence[EpisodeScore] = (
    EpisodeScore(
        "smoothness",
        "minus the arc length of the spectrum of the speed, up to 10 Hz; 0 at most",
        "spectral arc length, Balasubramanian et al. 2012",
        "duration and size of the motion",
        "pauses that belong to the task count as rough; it needs the rate",
    ),
    EpisodeScore(
        "steadiness",
        "minus the logarithm of the mean third difference over the mean first one",
        "here",
        "the size of the motion",
        "sensors with other noise, another rate",
    ),
    EpisodeScore(
        "efficiency",
        "the distance from the first to the last state over the length of the path; 0 to 1",
        "path efficiency",
        "duration",
        "tasks that end where they begin, or go round something",
    ),
    EpisodeScore(
        "activity",
        "the share of the rows in which something moves; 0 to 1",
        "here",
        "the size of the motion",
        "tasks that wait for something",
    ),
    EpisodeScore(
        "information",
        "the mutual information of states and actions, in nats, as far as the episode adds to it",
        "DemInf, Hejna et al. 2025, on the numbers as they are; Kraskov et al. 2004",
        "the scale of each element",
        "few rows, images that hold what matters",
    ),
    EpisodeScore(
        "agreement",
        "minus how far actions are from those of other episodes at like states, in deviations",
        "here",
        "the scale of each element",
        "tasks that are done in several ways",
    ),
    EpisodeScore(
        "novelty",
        "the distance to the next episode at 16 moments, in deviations of each element",
        "here",
        "duration, and the scale of each element",
        "faults are new, too",
    ),
)
"""All scores."""


def alone(
    states: np.ndarray, active: float, rate: float | None
) -> tuple[float, float, float, float]:
    """Returns smoothness, steadiness, efficiency and activity of an episode.

    Args:
      states: The states, in usual displacements; float64 of shape `[rows, elements]`.
      active: The share of the rows with motion.
      rate: The rows in a second; None if unknown.
    """
    displacements = np.diff(states, axis=0)
    speed = np.sqrt((displacements**2).sum(1))
    if len(states) < _LEAST_ROWS or not speed.any():
        return (float("nan"),) * 3 + (active,)
    third = np.sqrt((np.diff(states, 3, axis=0) ** 2).sum(1)).mean()
    steadiness = -float(np.log(third / speed.mean())) if third > 0 else float("nan")
    distance = float(np.sqrt(((states[-1] - states[0]) ** 2).sum()))
    arc = float("nan") if rate is None else _spectral_arc_length(speed, rate)
    return arc, steadiness, distance / float(speed.sum()), active


def _spectral_arc_length(speed: np.ndarray, rate: float) -> float:
    size = 2 ** int(np.ceil(np.log2(len(speed)))) * _PADDING
    spectrum = np.abs(np.fft.rfft(speed, size))
    spectrum /= spectrum.max()
    frequencies = np.fft.rfftfreq(size, 1 / rate)
    spectrum, frequencies = (each[frequencies <= _HIGHEST] for each in (spectrum, frequencies))
    last = int(np.flatnonzero(spectrum >= _LOWEST)[-1])
    if last == 0:
        return float("nan")
    parts = np.diff(frequencies[: last + 1]) / frequencies[last], np.diff(spectrum[: last + 1])
    return -float(np.sqrt(parts[0] ** 2 + parts[1] ** 2).sum())


def together(
    episode_rows: Sequence[np.ndarray], num_states: int, sketches: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns information, agreement and novelty of episodes.

    Args:
      episode_rows: Some rows of each episode: states, then actions.
      num_states: The number of elements of the state.
      sketches: The values of each episode at some moments, in deviations of each element.
    """
    episode = np.repeat(np.arange(len(episode_rows)), [len(each) for each in episode_rows])
    scores = {"novelty": _novelty(sketches)}
    states, actions = (
        _even([each[:, columns] for each in episode_rows if len(each)])
        for columns in (slice(num_states), slice(num_states, None))
    )
    if not (states.shape[1] and actions.shape[1]) or len(episode) < _LEAST_BATCH:
        return {
            **dict.fromkeys(("information", "agreement"), np.full(len(episode_rows), np.nan)),
            **scores,
        }
    sums = {name: np.zeros((2, len(episode_rows))) for name in ("information", "agreement")}
    for batch in _batches(len(episode)):
        distances = _farthest(states[batch]), _farthest(actions[batch])
        values = _information(*distances), _agreement(*distances, episode[batch])
        for total, value in zip(sums.values(), values):
            is_known = ~np.isnan(value)
            np.add.at(total[0], episode[batch][is_known], value[is_known])
            np.add.at(total[1], episode[batch][is_known], 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {**{name: total / count for name, (total, count) in sums.items()}, **scores}


def _even(episode_columns: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of all episodes without scales and outliers; equal rows are no longer exactly equal.

    Values beyond the range of most episodes are clipped, so that a faulty episode changes no scale.
    """
    if not episode_columns:
        return np.empty((0, 0))
    columns = np.concatenate(episode_columns)
    ends = np.quantile(columns, _CLIPPED, axis=0)
    usual_low = np.quantile([each.min(0) for each in episode_columns], _UNUSUAL[0], axis=0)
    usual_high = np.quantile([each.max(0) for each in episode_columns], _UNUSUAL[1], axis=0)
    clipped = np.clip(columns, np.maximum(ends[0], usual_low), np.minimum(ends[1], usual_high))
    spread = clipped.std(0)
    is_varying = spread > 0
    even = (clipped[:, is_varying] - clipped[:, is_varying].mean(0)) / spread[is_varying]
    return even + 1e-6 * np.random.default_rng(0).normal(size=even.shape)


def _batches(num_rows: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for _ in range(min(_REPEATS, max(_MOST_COMPARED // num_rows, 1))):
        parts = np.array_split(rng.permutation(num_rows), max(round(num_rows / _BATCH), 1))
        yield from parts


def _farthest(rows: np.ndarray) -> np.ndarray:
    """The largest difference of any element, of each pair of rows; infinite with itself."""
    num_rows = len(rows)
    distances = np.empty((num_rows, num_rows))
    columns = np.ascontiguousarray(rows.T)
    for begin in range(0, num_rows, _BLOCK):
        end = min(begin + _BLOCK, num_rows)
        farthest = np.zeros((end - begin, num_rows - begin))
        differences = np.empty_like(farthest)
        for column in columns:
            np.subtract(column[begin:end, None], column[begin:], out=differences)
            np.abs(differences, out=differences)
            np.maximum(farthest, differences, out=farthest)
        distances[begin:end, begin:] = farthest
        distances[begin:, begin:end] = farthest.T
    np.fill_diagonal(distances, np.inf)
    return distances


def _information(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Returns the contribution of each row to the mutual information (Kraskov et al.)."""
    num_rows = len(states)
    # The digamma function of whole numbers, but for a constant.
    psi = np.concatenate([[0.0, 0.0], np.cumsum(1 / np.arange(1, num_rows + 1))])
    max_k = max(_NEIGHBOURS)
    joint = np.sort(np.partition(np.maximum(states, actions), max_k - 1, axis=1)[:, :max_k], axis=1)
    information = np.zeros(num_rows)
    for neighbours in _NEIGHBOURS:
        reach = joint[:, neighbours - 1, None]
        near = [(each < reach).sum(1) for each in (states, actions)]
        information += psi[neighbours] + psi[num_rows] - psi[near[0] + 1] - psi[near[1] + 1]
    return information / len(_NEIGHBOURS)


def _agreement(states: np.ndarray, actions: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The negated distance to the actions at the nearest states of other episodes."""
    distances = np.where(own[:, None] == own, np.inf, states)
    nearest = np.argpartition(distances, _NEIGHBOURS[0] - 1, axis=1)[:, : _NEIGHBOURS[0]]
    indices = np.arange(len(states))[:, None]
    differences = np.where(
        np.isfinite(distances[indices, nearest]), actions[indices, nearest], np.nan
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # If there is no other episode.
        return -np.nanmedian(differences, axis=1)


def _novelty(sketches: np.ndarray) -> np.ndarray:
    """Returns the distance to the nearest other episode, as the quadratic mean over sketches."""
    novelty = np.full(len(sketches), np.nan)
    if len(sketches) < 2 or not sketches.shape[1]:
        return novelty
    squares = (sketches**2).sum(1)
    for begin in range(0, len(sketches), _BATCH):
        part = slice(begin, begin + _BATCH)
        distances = squares[part, None] + squares - 2 * sketches[part] @ sketches.T
        indices = np.arange(distances.shape[0])
        distances[indices, begin + indices] = np.inf
        novelty[part] = np.sqrt(np.maximum(distances.min(1), 0) / sketches.shape[1])
    return novelty


def within_task(scores: np.ndarray, tasks: Sequence[str | None]) -> np.ndarray:
    """Returns the share of the other episodes of the same task that have a lower score.

    Equal scores count half. NaN for a score of NaN, and for the only episode of a task.

    >>> within_task(np.array([1.0, 3.0, 2.0, np.nan, 5.0]), ["a", "a", "a", "a", "b"])
    array([0. , 1. , 0.5, nan, nan])
    """
    shares = np.full(len(scores), np.nan)
    groups: dict[str | None, list[int]] = {}
    for episode, task in enumerate(tasks):
        if not np.isnan(scores[episode]):
            groups.setdefault(task, []).append(episode)
    for group in groups.values():
        if len(group) > 1:
            shares[group] = midranks(scores[group]) / (len(group) - 1)
    return shares
