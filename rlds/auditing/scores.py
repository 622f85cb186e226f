"""Quality scores of episodes as demonstrations.

Higher is better; undefined scores are NaN. docs/audit.md has the measured usefulness of each score
and its limits.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from rlds.statistics.ranks import midranks

__all__ = ["SCORES", "EpisodeScore", "compare_episodes", "rank_within_task", "score_episode"]

_MIN_SPEED_ROWS = 8
# The spectrum of speeds: the highest frequency in Hz, the least amplitude, the zero padding.
_MAX_HERTZ, _MIN_AMPLITUDE, _PADDING_FACTOR = 10.0, 0.05, 4
# The number of compared rows, and the numbers of neighbours (k of Kraskov et al.).
_BATCH_ROWS, _NUM_NEIGHBOURS = 1024, (5, 6, 7)
# Repetitions of the comparison; the largest number of rows in all repetitions together.
_MAX_REPETITIONS, _MAX_COMPARED_ROWS = 3, 200_000
# Rows per block, so that their distances to a batch fit into the cache of a processor.
_BLOCK_ROWS = 32
# Quantiles at which values are clipped: of rows, and of the extremes of episodes.
_ROW_QUANTILES, _LIMIT_QUANTILES = (0.01, 0.99), (0.1, 0.9)
_MIN_COMPARED_ROWS = 64


@dataclasses.dataclass(frozen=True)
class EpisodeScore:
    """A quality score of episodes.

    Attributes:
      name: The name of the score.
      definition: The definition of the score, with its unit.
      source: The origin of the score: a reference, or "here".
      invariances: The properties of an episode that do not affect the score.
      limitation: The cases in which the score is misleading.
    """

    name: str
    definition: str
    source: str
    invariances: str
    limitation: str


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
        "the contribution to the mutual information of states and actions, in nats",
        "DemInf, Hejna et al. 2025, on raw values; Kraskov et al. 2004",
        "the scale of each element",
        "few rows, images with the relevant information",
    ),
    EpisodeScore(
        "agreement",
        "minus the distance to the actions of other episodes at similar states, in deviations",
        "here",
        "the scale of each element",
        "tasks with several solutions",
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


def score_episode(
    states: np.ndarray, active: float, rate: float | None
) -> tuple[float, float, float, float]:
    """Returns smoothness, steadiness, efficiency and activity of an episode.

    Args:
      states: The states, in usual displacements; float64 of shape `[rows, elements]`.
      active: The share of the rows with motion.
      rate: The rows per second; None if unknown.
    """
    displacements = np.diff(states, axis=0)
    speed = np.sqrt((displacements**2).sum(1))
    if len(states) < _MIN_SPEED_ROWS or not speed.any():
        return (float("nan"),) * 3 + (active,)
    third = np.sqrt((np.diff(states, 3, axis=0) ** 2).sum(1)).mean()
    steadiness = -float(np.log(third / speed.mean())) if third > 0 else float("nan")
    distance = float(np.sqrt(((states[-1] - states[0]) ** 2).sum()))
    arc = float("nan") if rate is None else _spectral_arc_length(speed, rate)
    return arc, steadiness, distance / float(speed.sum()), active


def _spectral_arc_length(speed: np.ndarray, rate: float) -> float:
    size = 2 ** int(np.ceil(np.log2(len(speed)))) * _PADDING_FACTOR
    spectrum = np.abs(np.fft.rfft(speed, size))
    spectrum /= spectrum.max()
    frequencies = np.fft.rfftfreq(size, 1 / rate)
    spectrum, frequencies = (array[frequencies <= _MAX_HERTZ] for array in (spectrum, frequencies))
    cutoff = int(np.flatnonzero(spectrum >= _MIN_AMPLITUDE)[-1])
    if cutoff == 0:
        return float("nan")
    across = np.diff(frequencies[: cutoff + 1]) / frequencies[cutoff]
    return -float(np.hypot(across, np.diff(spectrum[: cutoff + 1])).sum())


def compare_episodes(
    episode_rows: Sequence[np.ndarray], num_states: int, sketches: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns information, agreement and novelty of episodes.

    Args:
      episode_rows: Some rows of each episode: states, then actions.
      num_states: The number of elements of the state.
      sketches: The values of each episode at some moments, in deviations of each element.
    """
    episode = np.repeat(np.arange(len(episode_rows)), [len(rows) for rows in episode_rows])
    scores = {"novelty": _score_novelty(sketches)}
    states, actions = (
        _normalize([rows[:, columns] for rows in episode_rows if len(rows)])
        for columns in (slice(num_states), slice(num_states, None))
    )
    if not (states.shape[1] and actions.shape[1]) or len(episode) < _MIN_COMPARED_ROWS:
        return {
            **dict.fromkeys(("information", "agreement"), np.full(len(episode_rows), np.nan)),
            **scores,
        }
    sums = {name: np.zeros((2, len(episode_rows))) for name in ("information", "agreement")}
    for batch in _draw_batches(len(episode)):
        distances = _max_distances(states[batch]), _max_distances(actions[batch])
        values = _score_information(*distances), _score_agreement(*distances, episode[batch])
        for total, value in zip(sums.values(), values):
            is_finite = ~np.isnan(value)
            np.add.at(total[0], episode[batch][is_finite], value[is_finite])
            np.add.at(total[1], episode[batch][is_finite], 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {**{name: total / count for name, (total, count) in sums.items()}, **scores}


def _normalize(episode_columns: Sequence[np.ndarray]) -> np.ndarray:
    """Joins and normalizes the rows of all episodes; noise makes equal rows distinct.

    Values beyond the range of most episodes are clipped, so that faulty episodes change no scale.
    """
    if not episode_columns:
        return np.empty((0, 0))
    columns = np.concatenate(episode_columns)
    low, high = np.quantile(columns, _ROW_QUANTILES, axis=0)
    usual_low = np.quantile([rows.min(0) for rows in episode_columns], _LIMIT_QUANTILES[0], axis=0)
    usual_high = np.quantile([rows.max(0) for rows in episode_columns], _LIMIT_QUANTILES[1], axis=0)
    clipped = np.clip(columns, np.maximum(low, usual_low), np.minimum(high, usual_high))
    spread = clipped.std(0)
    is_varying = spread > 0
    normalized = (clipped[:, is_varying] - clipped[:, is_varying].mean(0)) / spread[is_varying]
    return normalized + 1e-6 * np.random.default_rng(0).normal(size=normalized.shape)


def _draw_batches(num_rows: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for _ in range(min(_MAX_REPETITIONS, max(_MAX_COMPARED_ROWS // num_rows, 1))):
        yield from np.array_split(rng.permutation(num_rows), max(round(num_rows / _BATCH_ROWS), 1))


def _max_distances(rows: np.ndarray) -> np.ndarray:
    """Returns the largest difference of any element for each pair of rows; infinite for one row."""
    num_rows = len(rows)
    distances = np.empty((num_rows, num_rows))
    columns = np.ascontiguousarray(rows.T)
    for begin in range(0, num_rows, _BLOCK_ROWS):
        end = min(begin + _BLOCK_ROWS, num_rows)
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


def _score_information(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Returns the contribution of each row to the mutual information (Kraskov et al.)."""
    num_rows = len(states)
    # The digamma function of integers, except for a constant.
    psi = np.concatenate([[0.0, 0.0], np.cumsum(1 / np.arange(1, num_rows + 1))])
    max_k = max(_NUM_NEIGHBOURS)
    joint = np.sort(np.partition(np.maximum(states, actions), max_k - 1, axis=1)[:, :max_k], axis=1)
    information = np.zeros(num_rows)
    for neighbours in _NUM_NEIGHBOURS:
        radius = joint[:, neighbours - 1, None]
        num_near = [(distances < radius).sum(1) for distances in (states, actions)]
        information += psi[neighbours] + psi[num_rows] - psi[num_near[0] + 1] - psi[num_near[1] + 1]
    return information / len(_NUM_NEIGHBOURS)


def _score_agreement(states: np.ndarray, actions: np.ndarray, episodes: np.ndarray) -> np.ndarray:
    """Returns the negated distance to the actions at the nearest states of other episodes."""
    distances = np.where(episodes[:, None] == episodes, np.inf, states)
    nearest = np.argpartition(distances, _NUM_NEIGHBOURS[0] - 1, axis=1)[:, : _NUM_NEIGHBOURS[0]]
    indices = np.arange(len(states))[:, None]
    differences = np.where(
        np.isfinite(distances[indices, nearest]), actions[indices, nearest], np.nan
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # A single episode gives NaN.
        return -np.nanmedian(differences, axis=1)


def _score_novelty(sketches: np.ndarray) -> np.ndarray:
    """Returns the distance to the nearest other episode, as the quadratic mean over sketches."""
    novelty = np.full(len(sketches), np.nan)
    if len(sketches) < 2 or not sketches.shape[1]:
        return novelty
    squares = (sketches**2).sum(1)
    for begin in range(0, len(sketches), _BATCH_ROWS):
        batch = slice(begin, begin + _BATCH_ROWS)
        distances = squares[batch, None] + squares - 2 * sketches[batch] @ sketches.T
        indices = np.arange(distances.shape[0])
        distances[indices, begin + indices] = np.inf
        novelty[batch] = np.sqrt(np.maximum(distances.min(1), 0) / sketches.shape[1])
    return novelty


def rank_within_task(scores: np.ndarray, tasks: Sequence[str | None]) -> np.ndarray:
    """Returns the share of the other episodes of the same task that have a lower score.

    Equal scores count half. NaN for a score of NaN, and for the only episode of a task.

    >>> rank_within_task(np.array([1.0, 3.0, 2.0, np.nan, 5.0]), ["a", "a", "a", "a", "b"])
    array([0. , 1. , 0.5, nan, nan])
    """
    ranks = np.full(len(scores), np.nan)
    groups: dict[str | None, list[int]] = {}
    for episode, task in enumerate(tasks):
        if not np.isnan(scores[episode]):
            groups.setdefault(task, []).append(episode)
    for group in groups.values():
        if len(group) > 1:
            ranks[group] = midranks(scores[group]) / (len(group) - 1)
    return ranks
