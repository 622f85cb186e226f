"""Orders of samples in an epoch: in order, shuffled, weighted, or shuffled by segments.

An order is computed, not stored: it needs no memory per sample, and has random access.
"""

from __future__ import annotations

import abc
import dataclasses

import numpy as np
from typing_extensions import override

from rlds.feeds._core import locate, permute
from rlds.feeds.permutation import key_of, uniform_of
from rlds_ecosystem.model.columns import concat_ranges

__all__ = ["InOrder", "Order", "SegmentShuffle", "Segmented", "Shuffled", "Weighted"]


class Order(abc.ABC):
    """An order of samples, which may differ from epoch to epoch.

    Args:
      size: The number of samples.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    @abc.abstractmethod
    def indices_at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Returns the indices of the samples at some positions of an epoch.

        Args:
          epoch: The epoch.
          positions: Positions in the epoch, from 0 to `size - 1`, int64 of shape `[n]`.
        """

    def runs(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the runs of consecutive samples to read for some positions of an epoch.

        Args:
          epoch: The epoch.
          positions: See `indices_at`.

        Returns:
          The first sample of each run, and the last sample of each run.
        """
        indices = self.indices_at(epoch, positions)
        return indices, indices


class InOrder(Order):
    """The samples in their stored order.

    >>> InOrder(3).indices_at(0, np.array([0, 2]))
    array([0, 2])
    """

    @override
    def indices_at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        del epoch
        return positions


class Shuffled(Order):
    """A global shuffle: a pseudorandom permutation of all samples, with a key of 64 bits.

    Args:
      size: The number of samples.
      seed: The seed of the order.

    >>> sorted(Shuffled(5, seed=1).indices_at(0, np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, size: int, seed: int) -> None:
        super().__init__(size)
        self._seed = seed

    @override
    def indices_at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        return permute(positions, self.size, key_of("samples", self._seed, epoch))


class Weighted(Order):
    """Random sampling by weight, with replacement; an epoch has `size` samples.

    Args:
      weights: The weight of each sample.
      seed: The seed of the order.

    >>> Weighted(np.array([1.0, 0.0, 1.0]), seed=1).indices_at(0, np.arange(8)).tolist()
    [2, 0, 0, 0, 2, 2, 2, 2]
    """

    def __init__(self, weights: np.ndarray, seed: int) -> None:
        super().__init__(len(weights))
        self._seed, self._bounds = seed, np.cumsum(weights, dtype=np.float64)
        self._last_sample = int(np.searchsorted(self._bounds, self._bounds[-1]))

    @override
    def indices_at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        uniform = uniform_of(positions, key_of("weighted", self._seed, epoch))
        # Rounding may reach the end, where samples may have no weight.
        samples = np.searchsorted(self._bounds, uniform * self._bounds[-1], side="right")
        return np.minimum(samples, self._last_sample)


class Segmented(Order):
    """A shuffle of segments of consecutive samples, then of the samples in a window of segments.

    The samples of a window come from few ranges of the data, which are read as a whole, and fit in
    memory. The order takes 32 bytes of memory for each segment.

    Lanes share no segments. Samples alternate between lanes, so a rank that gets every
    second or fourth row reads only the segments of its lanes.

    Args:
      counts: The number of samples of each episode.
      seed: The seed of the order.
      length: The approximate number of samples in a segment: a range of a long episode, or several
        consecutive episodes. None for one episode per segment.
      window: The number of segments that are shuffled together.
      lanes: The number of lanes: a power of two.

    Raises:
      ValueError: An argument is not positive, or the number of lanes is not a power of two.

    >>> order = Segmented(np.full(10, 100), seed=1, length=50, window=2)
    >>> len({int(n) // 50 for n in order.indices_at(0, np.arange(100))})
    2
    >>> order = Segmented(np.full(10, 100), seed=1, length=50, window=2, lanes=2)
    >>> len({int(n) // 50 for n in order.indices_at(0, np.arange(0, 1000, 2))})
    10
    """

    def __init__(
        self, counts: np.ndarray, seed: int, length: int | None, window: int, lanes: int = 1
    ) -> None:
        super().__init__(int(counts.sum()))
        for name, value in (("length", length), ("window", window), ("lanes", lanes)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        if lanes & (lanes - 1):
            raise ValueError(f"lanes must be a power of two, got {lanes}")
        self._seed, self.length, self.window, self.lanes = seed, length, window, lanes
        self._segment_starts = _list_segment_starts(counts[counts > 0], length)
        self._sizes = np.diff(self._segment_starts, append=self.size)
        # The lanes of a rank are adjacent, so few segments belong to two ranks.
        sizes = (self.size - np.arange(lanes) + lanes - 1) // lanes
        lane_order = _list_bit_reversed(lanes)
        self._lane_starts = np.empty(lanes, np.int64)
        self._lane_starts[lane_order] = np.cumsum(sizes[lane_order]) - sizes[lane_order]
        self._lane_ends = self._lane_starts + sizes
        self._cached_order: tuple[int, np.ndarray, np.ndarray] | None = None

    @override
    def indices_at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        order, segment_ends = self._shuffle_segments(epoch)
        lanes = positions % self.lanes
        positions = positions // self.lanes + self._lane_starts[lanes]
        first_segments = locate(self._lane_starts, segment_ends)
        lane_window = max(self.window // self.lanes, 1)
        windows = (locate(positions, segment_ends) - first_segments[lanes]) // lane_window
        groups = windows * self.lanes + lanes
        rows = np.argsort(groups, kind="stable")
        shuffled = np.empty_like(positions)
        group_bounds = np.flatnonzero(np.diff(groups[rows])) + 1
        for group in np.split(rows, group_bounds) if len(rows) else ():
            window, lane = divmod(int(groups[group[0]]), self.lanes)
            first = int(first_segments[lane]) + window * lane_window
            window_end = min(first + lane_window, len(segment_ends))
            begin = max(int(segment_ends[first - 1]) if first else 0, int(self._lane_starts[lane]))
            size = min(int(segment_ends[window_end - 1]), int(self._lane_ends[lane])) - begin
            key = key_of("window", self._seed, epoch, window, *([lane] if self.lanes > 1 else []))
            shuffled[group] = begin + permute(positions[group] - begin, size, key)
        ranks = locate(shuffled, segment_ends)
        segments = order[ranks]
        offsets = shuffled - (segment_ends[ranks] - self._sizes[segments])
        return self._segment_starts[segments] + offsets

    @override
    def runs(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the segments of the shuffle windows around some positions."""
        order, segment_ends = self._shuffle_segments(epoch)
        first_segments = locate(self._lane_starts, segment_ends)
        lane_window = max(self.window // self.lanes, 1)
        last_segments = locate(self._lane_ends - 1, segment_ends)
        extremes = np.array([positions.min(), positions.max()]) // self.lanes
        lane_segments = []
        for lane in np.unique(positions % self.lanes).tolist():
            lane_bounds = np.minimum(extremes + self._lane_starts[lane], self._lane_ends[lane] - 1)
            begin = first_segments[lane]
            offsets = locate(lane_bounds, segment_ends) - begin
            first, last = offsets // lane_window * lane_window + begin
            lane_segments.append(order[first : min(last + lane_window, last_segments[lane] + 1)])
        segments = np.concatenate(lane_segments)
        starts = self._segment_starts[segments]
        return starts, starts + self._sizes[segments] - 1

    def _shuffle_segments(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the segments in the order of an epoch, and the cumulative sum of their sizes."""
        cached = self._cached_order
        if cached is None or cached[0] != epoch:
            num_segments, key = len(self._segment_starts), key_of("segments", self._seed, epoch)
            order = permute(np.arange(num_segments), num_segments, key)
            cached = self._cached_order = epoch, order, np.cumsum(self._sizes[order])
        return cached[1:]


def _list_bit_reversed(count: int) -> np.ndarray:
    """Returns the integers below a power of two in bit-reversed order.

    >>> _list_bit_reversed(4)
    array([0, 2, 1, 3])
    """
    integers = np.zeros(1, np.int64)
    while len(integers) < count:
        integers = np.concatenate([2 * integers, 2 * integers + 1])
    return integers


def _list_segment_starts(counts: np.ndarray, length: int | None) -> np.ndarray:
    segment_starts: np.ndarray = np.cumsum(counts) - counts
    if length is None:
        return segment_starts
    num_segments = -(-counts // length)
    segment_starts = np.repeat(segment_starts, num_segments) + concat_ranges(num_segments) * length
    # Short episodes that begin within the same `length` samples share a segment.
    is_first: np.ndarray = np.diff(segment_starts // length, prepend=-1) != 0
    return segment_starts[is_first]


@dataclasses.dataclass(frozen=True)
class SegmentShuffle:
    """The parameters of a shuffle of segments, see `Segmented`.

    Attributes:
      length: The approximate number of samples in a segment: a range of a long episode, or several
        consecutive episodes. None for one episode per segment.
      window: The number of segments that are shuffled together.
      lanes: A power of two: the largest number of ranks that read disjoint segments.
    """

    length: int | None
    window: int
    lanes: int = 1
