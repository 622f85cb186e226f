"""The order in which samples are trained on: which one is at a place of an epoch.

An order is a formula, not a list: it takes no memory, whatever number of samples there is, and any
place of it can be had without those before.
"""

from __future__ import annotations

import abc
import dataclasses

import numpy as np
from typing_extensions import override

from rlds.feeds._core import locate, permute
from rlds.feeds.permutation import key_of, uniform_of
from rlds_ecosystem.model.columns import numbered

__all__ = ["InOrder", "Order", "SegmentShuffle", "Segmented", "Shuffled", "Weighted"]


class Order(abc.ABC):
    """An order of samples, which may differ from epoch to epoch.

    Args:
      size: The number of samples.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    @abc.abstractmethod
    def numbers(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Returns the numbers of the samples at some positions of an epoch.

        Args:
          epoch: The epoch.
          positions: From 0 to the number of samples, int64 of shape `[n]`.
        """

    def runs(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns runs of samples that are read together, and have those at some positions.

        Args:
          epoch: The epoch.
          positions: As above.

        Returns:
          The first sample of each run, and the last one of each.
        """
        numbers = self.numbers(epoch, positions)
        return numbers, numbers


class InOrder(Order):
    """As the samples are numbered.

    >>> InOrder(3).numbers(0, np.array([0, 2]))
    array([0, 2])
    """

    @override
    def numbers(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        del epoch
        return positions


class Shuffled(Order):
    """Every order of all samples is as likely as any other, as far as 64 bits of a key go.

    Args:
      size: The number of samples.
      seed: Decides about the order.

    >>> sorted(Shuffled(5, seed=1).numbers(0, np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, size: int, seed: int) -> None:
        super().__init__(size)
        self._seed = seed

    @override
    def numbers(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        return permute(positions, self.size, key_of("samples", self._seed, epoch))


class Weighted(Order):
    """Draws samples by weight, with replacement: an epoch has as many draws as there are samples.

    Args:
      weights: The probability weight of each.
      seed: Decides what is drawn.

    >>> Weighted(np.array([1.0, 0.0, 1.0]), seed=1).numbers(0, np.arange(8)).tolist()
    [2, 0, 0, 0, 2, 2, 2, 2]
    """

    def __init__(self, weights: np.ndarray, seed: int) -> None:
        super().__init__(len(weights))
        self._seed, self._ends = seed, np.cumsum(weights, dtype=np.float64)
        self._last = int(np.searchsorted(self._ends, self._ends[-1]))

    @override
    def numbers(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        drawn = uniform_of(positions, key_of("weighted", self._seed, epoch)) * self._ends[-1]
        # Rounding may lead to the very end, where samples may have no weight.
        return np.minimum(np.searchsorted(self._ends, drawn, side="right"), self._last)


class Segmented(Order):
    """Shuffles segments of consecutive samples, and then the samples of so many segments at a time.

    So the samples of a while come from few places of the data, which can be read as a whole, and
    kept in memory for that while: a *window*. It takes 32 bytes of memory for each segment.

    Lanes have segments of their own. They take turns, so that a rank that gets every second row, or
    every fourth, reads no segments but those of its lanes.

    Args:
      counts: The number of samples of each episode, in the order of their numbers.
      seed: Decides about the order.
      length: The approximate number of samples in a segment: a part of a long episode, or several
        whole episodes in a row. None for one episode per segment.
      window: The number of segments that are shuffled at a time.
      lanes: The number of lanes: a power of two.

    Raises:
      ValueError: A number is not positive, or that of the lanes is no power of two.

    >>> order = Segmented(np.full(10, 100), seed=1, length=50, window=2)
    >>> len({int(n) // 50 for n in order.numbers(0, np.arange(100))})
    2
    >>> order = Segmented(np.full(10, 100), seed=1, length=50, window=2, lanes=2)
    >>> len({int(n) // 50 for n in order.numbers(0, np.arange(0, 1000, 2))})
    10
    """

    def __init__(
        self, counts: np.ndarray, seed: int, length: int | None, window: int, lanes: int = 1
    ) -> None:
        super().__init__(int(counts.sum()))
        for name, number in (("length", length), ("window", window), ("lanes", lanes)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be positive, got {number}")
        if lanes & (lanes - 1):
            raise ValueError(f"lanes must be a power of two, got {lanes}")
        self._seed, self.length, self.window, self.lanes = seed, length, window, lanes
        self._begins = _begins_of_segments(counts[counts > 0], length)
        self._sizes = np.diff(self._begins, append=self.size)
        # Lanes of one rank are next to each other, so that few segments are of two ranks.
        sizes = (self.size - np.arange(lanes) + lanes - 1) // lanes
        turns = _bits_reversed(lanes)
        self._firsts = np.empty(lanes, np.int64)
        self._firsts[turns] = np.cumsum(sizes[turns]) - sizes[turns]
        self._afters = self._firsts + sizes
        self._epoch: tuple[int, np.ndarray, np.ndarray] | None = None

    @override
    def numbers(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        order, ends = self._segments(epoch)
        lanes = positions % self.lanes
        positions = positions // self.lanes + self._firsts[lanes]
        first_segments = locate(self._firsts, ends)
        of_lane = max(self.window // self.lanes, 1)
        windows = (locate(positions, ends) - first_segments[lanes]) // of_lane
        groups = windows * self.lanes + lanes
        rows = np.argsort(groups, kind="stable")
        shuffled = np.empty_like(positions)
        cuts = np.flatnonzero(np.diff(groups[rows])) + 1
        for chosen in np.split(rows, cuts) if len(rows) else ():
            window, lane = divmod(int(groups[chosen[0]]), self.lanes)
            first = int(first_segments[lane]) + window * of_lane
            after = min(first + of_lane, len(ends))
            begin = max(int(ends[first - 1]) if first else 0, int(self._firsts[lane]))
            size = min(int(ends[after - 1]), int(self._afters[lane])) - begin
            key = key_of("window", self._seed, epoch, window, *([lane] if self.lanes > 1 else []))
            shuffled[chosen] = begin + permute(positions[chosen] - begin, size, key)
        at = locate(shuffled, ends)
        segments = order[at]
        offsets = shuffled - (ends[at] - self._sizes[segments])
        return self._begins[segments] + offsets

    @override
    def runs(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The segments of all windows that have one of the positions."""
        order, ends = self._segments(epoch)
        first_segments = locate(self._firsts, ends)
        of_lane = max(self.window // self.lanes, 1)
        last_segments = locate(self._afters - 1, ends)
        extremes = np.array([positions.min(), positions.max()]) // self.lanes
        lane_segments = []
        for lane in np.unique(positions % self.lanes).tolist():
            lane_bounds = np.minimum(extremes + self._firsts[lane], self._afters[lane] - 1)
            begin = first_segments[lane]
            first, last = (locate(lane_bounds, ends) - begin) // of_lane * of_lane + begin
            lane_segments.append(order[first : min(last + of_lane, last_segments[lane] + 1)])
        segments = np.concatenate(lane_segments)
        return self._begins[segments], self._begins[segments] + self._sizes[segments] - 1

    def _segments(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The segments in the order of an epoch, and the cumulated number of their samples."""
        cached_epoch = self._epoch
        if cached_epoch is None or cached_epoch[0] != epoch:
            num_segments, key = len(self._begins), key_of("segments", self._seed, epoch)
            order = permute(np.arange(num_segments), num_segments, key)
            cached_epoch = self._epoch = epoch, order, np.cumsum(self._sizes[order])
        return cached_epoch[1:]


def _bits_reversed(count: int) -> np.ndarray:
    """The numbers below a power of two in bit-reversed order.

    >>> _bits_reversed(4)
    array([0, 2, 1, 3])
    """
    numbers = np.zeros(1, np.int64)
    while len(numbers) < count:
        numbers = np.concatenate([2 * numbers, 2 * numbers + 1])
    return numbers


def _begins_of_segments(counts: np.ndarray, length: int | None) -> np.ndarray:
    begins: np.ndarray = np.cumsum(counts) - counts
    if length is None:
        return begins
    parts = -(-counts // length)
    begins = np.repeat(begins, parts) + numbered(parts) * length
    # Of those that begin within the same `length` samples only the first begins a segment.
    is_first: np.ndarray = np.diff(begins // length, prepend=-1) != 0
    return begins[is_first]


@dataclasses.dataclass(frozen=True)
class SegmentShuffle:
    """The parameters of a shuffle of segments, see `Segmented`.

    Attributes:
      length: The approximate number of samples in a segment: a part of a long episode, or several
        whole episodes in a row. None for one episode per segment.
      window: The number of segments that are shuffled at a time.
      lanes: A power of two: of so many ranks, or half as many and so on, each reads segments of its
        own.
    """

    length: int | None
    window: int
    lanes: int = 1
