"""Quantiles of a stream of numbers, in bounded memory and with an error bound."""

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

CAPACITY: Final = 8192
"""The number of values of a column to sort together; quantiles of fewer values are exact."""


@dataclasses.dataclass
class _Level:
    """Values that each represent 2 ** level values.

    Attributes:
      half: sorted values that wait for a second half, [columns, CAPACITY / 2].
      num_rounded: the numbers of halvings that kept values of even and of odd index.
    """

    half: np.ndarray | None = None
    num_rounded: list[int] = dataclasses.field(default_factory=lambda: [0, 0])


class QuantileSketch:
    """The quantiles of several columns of numbers, which come in rows.

    The sketch is exact up to `CAPACITY` rows. Beyond that, sorted values are halved repeatedly by
    dropping alternately the values of odd and of even index, so that errors cancel: then the
    returned quantile q of n values is the exact quantile q', and abs(q - q') <= `error`. In the
    worst case, `error` is about log2(n / 8192) / 16384:
    0.05 % for 3 million values, 0.1 % for 10^9. The sketch keeps 8192 values of each column, and
    4096 for each of log2(n / 8192) halvings.

    >>> sketch = QuantileSketch(num_columns=2)
    >>> sketch.add(np.array([[0.0, 5.0], [1.0, 6.0], [2.0, 7.0]]))
    >>> sketch.quantile(0.25).tolist(), sketch.error
    ([0.5, 5.5], 0.0)
    """

    def __init__(self, num_columns: int, dtype: np.dtype | type = np.float64) -> None:
        self._buffer = np.empty([num_columns, CAPACITY], dtype)
        self._num_buffered = 0
        self._levels: dict[int, _Level] = collections.defaultdict(_Level)
        self.count = 0

    @property
    def error(self) -> float:
        """The bound of abs(q - q') in the docstring of the class, as a share of all values."""
        error = sum(max(level.num_rounded) << i for i, level in self._levels.items())
        return error / max(self.count - 1, 1)

    def add(self, rows: np.ndarray) -> None:
        """Adds values of shape [rows, columns]."""
        self.count += len(rows)
        start = 0
        while start < len(rows):
            chunk = rows[start : start + CAPACITY - self._num_buffered]
            end = self._num_buffered + len(chunk)
            self._buffer[:, self._num_buffered : end] = chunk.T
            self._num_buffered = end
            start += len(chunk)
            if end == CAPACITY:
                self._num_buffered = 0
                self._buffer.sort(axis=1)
                self._halve(0, self._buffer)

    def merge(self, other: "QuantileSketch") -> None:
        """Adds all values of the other sketch."""
        self.add(other._buffer[:, : other._num_buffered].T)
        self.count += other.count - other._num_buffered
        for i, level in other._levels.items():
            for parity in (0, 1):
                self._levels[i].num_rounded[parity] += level.num_rounded[parity]
            if level.half is not None:
                self._add_half(i, level.half)

    def quantile(self, q: float) -> np.ndarray:
        """Returns the quantile q of each column as in `np.quantile`; NaN without values."""
        return self.quantiles([q])[0]

    def quantiles(self, qs: Sequence[float]) -> list[np.ndarray]:
        """Returns several quantiles; faster than repeated calls of `quantile`."""
        num_columns = len(self._buffer)
        if not self.count or not num_columns:
            return [np.full(num_columns, np.nan) for _ in qs]
        arrays = [self._buffer[:, : self._num_buffered]]
        weights = [np.ones(self._num_buffered, np.int64)]
        for i, level in self._levels.items():
            if level.half is not None:
                arrays.append(level.half)
                weights.append(np.full(level.half.shape[1], 1 << i))
        values = np.concatenate(arrays, axis=1)
        order = np.argsort(values, axis=1)
        values = np.take_along_axis(values, order, axis=1)
        # The number of represented values up to and including each value.
        ranks = np.cumsum(np.concatenate(weights)[order], axis=1)

        def value_at(rank: int) -> np.ndarray:
            indices = [np.searchsorted(row, rank, side="right") for row in ranks]
            last = values.shape[1] - 1
            return np.asarray(values[np.arange(num_columns), np.minimum(indices, last)], np.float64)

        def interpolate(position: float) -> np.ndarray:
            rank = math.floor(position)
            low = value_at(rank)
            return low + (position - rank) * (value_at(rank + 1) - low) if position > rank else low

        return [interpolate(q * (self.count - 1)) for q in qs]

    def _halve(self, index: int, values: np.ndarray) -> None:
        """Moves every second sorted value to the next level, and drops the rest."""
        num_rounded = self._levels[index].num_rounded
        parity = 0 if num_rounded[0] <= num_rounded[1] else 1
        num_rounded[parity] += 1
        self._add_half(index + 1, values[:, parity::2])

    def _add_half(self, index: int, half: np.ndarray) -> None:
        level = self._levels[index]
        if level.half is None:
            level.half = half.copy()
            return
        merged = np.concatenate([level.half, half], axis=1)
        merged.sort(axis=1)
        level.half = None
        self._halve(index, merged)
