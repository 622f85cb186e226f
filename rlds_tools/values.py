"""Streaming statistics of numeric fields: extremes, counts and a sample, in little memory."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping

import numpy as np

from rlds import statistics

__all__ = ["NumericField", "ThinnedRows", "element_name", "statistics_of"]

# The maximum numbers of steps and of values of the sample for histograms and quantiles.
_MAX_KEPT_STEPS, _MAX_KEPT_VALUES = 20_000, 4_000_000
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# The minimum share of values at a limit that is reported; the maximum number of categories.
_MIN_LIMIT_SHARE, _MAX_CATEGORIES = 0.1, 16


class ThinnedRows:
    """A sample of evenly spread rows of a stream: every row, later every second, every fourth, ...

    Args:
      max_rows: The maximum number of kept rows.

    Attributes:
      stride: The distance of the kept rows.

    >>> rows = ThinnedRows(4)
    >>> for start in range(0, 12, 3):
    ...     rows.add(np.arange(start, start + 3))
    >>> rows.all().tolist(), rows.stride
    ([0, 4, 8], 4)
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows, self.stride = max_rows, 1
        self._num_seen = self._num_kept = 0
        self._chunks: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        """Adds rows."""
        chunk = rows[-self._num_seen % self.stride :: self.stride].copy()
        self._num_seen += len(rows)
        self._num_kept += len(chunk)
        self._chunks.append(chunk)
        while self._num_kept > self._max_rows:
            self._chunks = [self.all()[::2]]
            self.stride *= 2
            self._num_kept = len(self._chunks[0])

    def all(self) -> np.ndarray:
        """Returns the kept rows."""
        if len(self._chunks) != 1:
            self._chunks = [np.concatenate(self._chunks)] if self._chunks else [np.zeros(0)]
        return self._chunks[0]


class NumericField:
    """The streaming statistics of a numeric field, by element.

    Args:
      shape: The shape of a value.

    Attributes:
      shape: The shape of a value. The attributes below except `count` have a number per element.
      count: The number of values, without placeholders.
      not_finite: The number of NaN and infinite values.
      zeros: The number of zeros.
      min: The smallest finite value.
      max: The largest finite value.
      at_min: The number of values equal to `min`.
      at_max: The number of values equal to `max`.
      sampled: The values of evenly spread steps, `[steps, elements]`.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, size = shape, math.prod(shape)
        self.count = 0
        self.not_finite, self.zeros, self.at_min, self.at_max = np.zeros((4, size), np.int64)
        self.min, self.max = np.full(size, np.inf), np.full(size, -np.inf)
        self.sample = ThinnedRows(min(_MAX_KEPT_STEPS, max(1, _MAX_KEPT_VALUES // max(size, 1))))
        self._pass = statistics.StatisticsPass({"": shape}, quantiles=(), ddof=0, masks=None)

    def add(self, column: np.ndarray, is_valid: np.ndarray) -> None:
        """Adds the values of steps.

        Args:
          column: The values.
          is_valid: The mask that excludes placeholders.
        """
        rows = column.reshape(len(column), -1)
        rows = rows if is_valid.all() else rows[is_valid]
        if not len(rows) or not rows.shape[1]:
            return
        self.count += len(rows)
        self.sample.add(rows.astype(np.float32 if rows.dtype.itemsize < 8 else np.float64))
        is_finite = np.isfinite(rows)
        all_finite = bool(is_finite.all())
        if not all_finite:
            self.not_finite += np.count_nonzero(~is_finite, axis=0)
        self.zeros += np.count_nonzero(rows == 0, axis=0)
        finite = rows if all_finite else np.where(is_finite, rows, np.nan)
        low, high = np.fmin.reduce(finite, axis=0), np.fmax.reduce(finite, axis=0)
        self.min, self.at_min = _update_limit(rows, np.fmin(self.min, low), self.min, self.at_min)
        self.max, self.at_max = _update_limit(rows, np.fmax(self.max, high), self.max, self.at_max)
        no_steps = np.zeros(len(rows), np.bool_)
        valid = {} if all_finite else {"": is_finite.reshape(-1, *self.shape)}
        self._pass.add({"": rows.reshape(-1, *self.shape)}, valid, no_steps, no_steps, 0)

    @property
    def is_constant(self) -> np.ndarray:
        """A mask of the constant elements."""
        return np.asarray(self.at_min == self.count)

    def is_often_at(self, at_limit: np.ndarray) -> np.ndarray:
        """Returns a mask of the elements that are at a limit suspiciously often.

        Elements with few distinct values are exempt.

        Args:
          at_limit: The number of values at the limit: `at_min` or `at_max`.
        """
        is_frequent = ~self.is_constant & (at_limit >= _MIN_LIMIT_SHARE * self.count)
        for element in np.flatnonzero(is_frequent):
            is_frequent[element] = len(np.unique(self.sample.all()[:, element])) > _MAX_CATEGORIES
        return is_frequent

    def statistics(self) -> statistics.FieldStatistics:
        """Returns mean, deviation, extremes, and quantiles of the sampled values."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # An element may have only NaN.
            field = self._pass.result()[""]
            rows = self.sample.all().astype(np.float64)
            if rows.ndim == 2:
                rows[~np.isfinite(rows)] = np.nan
                quantiles = np.nanquantile(rows, QUANTILES, axis=0).reshape(-1, *self.shape)
            else:
                quantiles = np.full((len(QUANTILES), *self.shape), np.nan)
        return dataclasses.replace(field, quantiles=dict(zip(QUANTILES, quantiles)))


def _update_limit(
    rows: np.ndarray, limit: np.ndarray, known_limit: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a new limit, and the number of values at the limit."""
    return limit, np.where(limit == known_limit, count, 0) + np.count_nonzero(rows == limit, axis=0)


def element_name(path: str, shape: tuple[int, ...], element: int) -> str:
    """Formats an element of a field as a Python expression.

    >>> element_name("observation/board", (2, 3), 4), element_name("reward", (), 0)
    ('observation/board[1, 1]', 'reward')
    """
    if not shape:
        return path
    return f"{path}[{', '.join(map(str, np.unravel_index(element, shape)))}]"


def statistics_of(
    fields: Mapping[str, NumericField], num_transitions: int, num_episodes: int
) -> statistics.Statistics:
    """Converts streaming statistics to `Statistics`."""
    results = {name: field.statistics() for name, field in fields.items() if field.count}
    return statistics.Statistics(results, num_transitions, num_episodes)
