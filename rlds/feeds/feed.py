"""Feeds: batches of samples for training by index; `feed[k]` is the same in every process.

Iterators, loaders of PyTorch and Grain, workers, ranks and resuming all read batches by index.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from rlds.feeds.mixture import Mixture, not_samples
from rlds.feeds.order import InOrder, Order, Segmented, SegmentShuffle, Shuffled, Weighted
from rlds.feeds.permutation import RowRandom, key_of
from rlds.feeds.planning import explain, planned_shuffle, samples_ahead
from rlds.feeds.samples import Batch, Columns, Samples
from rlds.feeds.storage import hash_of
from rlds.sources import arrays
from rlds.sources.arrays import stack_rows
from rlds_ecosystem.model.nests import nest

__all__ = ["Feed", "FeedIterator"]

_REMAINDER_MODES = ("carry", "drop", "short")
_STATE_VERSION = 1
_NUMBER_FIELDS = ("sample_number", "episode_number", "step_number", "part_number")
# The limits of a block of batches: small batches are faster in blocks. Each block checks the state
# of its files, which takes as long as copying `_BLOCK_ROWS_PER_FILE` rows.
_MAX_BLOCK_ROWS, _BLOCK_ROWS_PER_FILE, _MAX_BLOCK_BYTES = 4096, 512, 8 << 20
# The rows of a block with images: decoding is slow, so small blocks reduce the first latency.
_MAX_BLOCK_IMAGES = 64
# Row indices are 64-bit integers.
_MAX_ROWS = 1 << 62


class Feed:
    """Batches of samples for training.

    The order depends only on the seed and the epoch, not on the number of processes, workers or
    threads.

    Args:
      samples: The samples of the batches, or a mixture of samples of several datasets.
      batch_size: The number of samples in a batch, over all ranks.
      seed: The seed of the order.
      shuffle: "global" shuffles all samples. "segments" shuffles segments of episodes, and then the
        samples in a window of segments, for data that is read by whole episodes, or is larger than
        memory; `SegmentShuffle` sets the parameters. None leaves the samples in their stored order.
        "auto" chooses "global" or "segments" by the storage of the data and `cache_bytes`;
        `explain` describes the choice.
      epochs: The number of passes over the samples; endless if None. A pass over a mixture ends
        when each of its datasets has been passed once; smaller datasets repeat.
      remainder: The treatment of samples at the end of an epoch that do not fill a batch:
        "carry" begins the next epoch in the same batch, "short" makes a shorter batch, "drop"
        omits these samples. With "carry", the last batch of all epochs may be shorter.
      rank: The rank of this process in distributed training, from 0 on.
      world: The number of processes in distributed training. A rank gets every `world`-th row. If a
        shorter batch does not divide evenly, rows repeat, so all ranks get the same number.
      transform: A function of a batch that returns the changed batch. An optional second argument
        is a `RowRandom`, whose random numbers of a row do not depend on ranks and workers.
      number_fields: Whether to add the fields `sample_number` (the index of the sample in its
        dataset), `episode_number`, `step_number`, and `part_number` (the index of the dataset in a
        mixture), all int64.

    Raises:
      TypeError: An argument is not an integer.
      ValueError: An argument is out of range, or there are no samples.

    A batch is a dict of NumPy arrays, nested as the fields are. The feed does not reuse the memory
    of a batch. Text is `bytes`, in arrays of `object`.
    """

    def __init__(
        self,
        samples: Samples | Mixture,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: str | SegmentShuffle | None = "auto",
        epochs: int | None = None,
        remainder: str = "carry",
        rank: int = 0,
        world: int = 1,
        transform: Callable[..., Any] | None = None,
        number_fields: bool = False,
    ) -> None:
        if not isinstance(samples, Samples | Mixture):
            raise TypeError(not_samples(samples))
        # A state is JSON, which cannot hold NumPy integers.
        batch_size, seed, rank, world = map(operator.index, (batch_size, seed, rank, world))
        epochs = None if epochs is None else operator.index(epochs)
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, got {batch_size}")
        if epochs is not None and epochs < 1:
            raise ValueError(f"epochs must be positive, got {epochs}")
        if remainder not in _REMAINDER_MODES:
            raise ValueError(f"remainder must be one of {_REMAINDER_MODES}, got {remainder!r}")
        if not 0 <= rank < world:
            raise ValueError(f"rank must be from 0 to {world - 1}, got {rank}; world={world}")
        if batch_size % world:
            raise ValueError(f"batch_size {batch_size} must be a multiple of world={world}")
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.epochs, self.remainder, self.rank, self.world = epochs, remainder, rank, world
        self.transform, self.number_fields = transform, number_fields
        self._transform_takes_rng = transform is not None and _takes_rng(transform)
        self._datasets = samples.datasets if isinstance(samples, Mixture) else [samples]
        if number_fields and (duplicates := samples.spec.keys() & {*_NUMBER_FIELDS}):
            raise ValueError(f"number_fields: the samples already have a field {min(duplicates)!r}")
        self.plans = [planned_shuffle(dataset, shuffle) for dataset in self._datasets]
        self._orders = [
            _order(dataset, plan.shuffle, key_of("part", seed, index))
            for index, (dataset, plan) in enumerate(zip(self._datasets, self.plans))
        ]
        self._size = self._orders[0].size
        if isinstance(samples, Mixture) and epochs is not None:
            self._size = samples.size(seed)
        if any(not order.size for order in self._orders):
            raise ValueError(f"there are no samples: {samples!r}. The episodes may be too short")
        if remainder == "drop" and self._size < batch_size:
            shortage = f"{self._size} samples do not fill a batch of {batch_size}"
            raise ValueError(f"{shortage}: use a smaller batch_size, or another remainder")

    def __repr__(self) -> str:
        descriptions = [repr(self.samples), f"batches of {self.batch_size}"]
        descriptions += [f"shuffle={self.plans[0].shuffle!r}", f"seed={self.seed}"]
        descriptions += ["without end" if self.epochs is None else f"{len(self)} batches"]
        descriptions += [f"rank {self.rank} of {self.world}"] if self.world > 1 else []
        return f"Feed({', '.join(descriptions)})"

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None for an endless feed."""
        if self.epochs is None:
            return None
        if self.remainder == "carry":
            return -(-self.epochs * self._size // self.batch_size)
        return self.epochs * self._batches_per_epoch

    def __len__(self) -> int:
        num_batches = self.num_batches
        if num_batches is None:
            raise TypeError("an endless feed has no length; pass epochs=1 or more")
        return num_batches

    @property
    def _batches_per_epoch(self) -> int:
        num_full_batches, num_remaining = divmod(self._size, self.batch_size)
        return num_full_batches + (num_remaining > 0 and self.remainder == "short")

    def __getitem__(self, batch: int) -> Batch:
        """Returns a batch.

        Args:
          batch: The index of the batch; a negative index counts from the end.

        Raises:
          IndexError: The index is out of range.
          SourceError: The batch cannot be read; the message has the location.
        """
        if isinstance(batch, slice):
            raise TypeError(
                "an index gives one batch. For several batches, use feed.block(first_batch, count) "
                "or feed.iterate(start)"
            )
        num_batches, batch = self.num_batches, operator.index(batch)
        return self.block(batch if batch >= 0 or num_batches is None else batch + num_batches, 1)[0]

    def __iter__(self) -> FeedIterator:
        return self.iterate()

    def iterate(self, start: int | Mapping[str, Any] = 0, *, prefetch: bool = True) -> FeedIterator:
        """Returns an iterator over the batches.

        Args:
          start: The first batch, or a state to resume from.
          prefetch: Whether a thread prepares the next batches in advance.

        Raises:
          ValueError: The state is of another feed; the message has the difference.
        """
        return FeedIterator(self, self.start_of(start), prefetch)

    def block(self, first_batch: int, count: int, prefetch_end: int = 0) -> list[Batch]:
        """Returns a block of consecutive batches, which share memory.

        Args:
          first_batch: The index of the first batch.
          count: The number of batches; fewer at the end of the feed.
          prefetch_end: The end of the batches whose data is prefetched: see `read_ahead`.

        Raises:
          IndexError: The index is out of range.
          SourceError: The batches cannot be read; the message has the location.
        """
        num_batches = self.num_batches
        max_batches = _MAX_ROWS // self.batch_size if num_batches is None else num_batches
        if not 0 <= first_batch < max_batches:
            limits = "indices begin at 0" if num_batches is None else f"there are {num_batches}"
            raise IndexError(f"no batch {first_batch}: {limits}")
        if num_batches is not None:
            count = min(count, num_batches - first_batch)
        positions, sizes = self._batch_positions(first_batch, count)
        groups = [
            (dataset, epoch, rows, self._orders[dataset].indices_at(epoch, offsets))
            for dataset, epoch, rows, offsets in self._rows_by_dataset(positions)
        ]
        if self.is_remote and prefetch_end < first_batch + count:  # Prefetches all fields at once.
            for dataset, _, _, indices in groups:
                self._datasets[dataset].read_ahead(indices, indices)
        columns = self._read(groups, len(positions))
        batch_ends = np.cumsum(sizes)
        batches = [
            nest({path: stack_rows(column[end - size : end]) for path, column in columns.items()})
            for size, end in zip(sizes, batch_ends.tolist())
        ]
        if self.transform is None:
            return batches
        return [
            self._apply_transform(positions[end - size : end], batch)
            for size, end, batch in zip(sizes, batch_ends.tolist(), batches)
        ]

    @functools.cached_property
    def block_size(self) -> int:
        """The number of batches to compute at once, for speed."""
        tables = [dataset.table for dataset in self._datasets]
        fields = [field for table in tables for field in table.fields.values()]
        if any(None in field.shape for field in fields):
            return 1  # The memory of values of unknown shape is unknown.
        num_files = sum(table.storage.num_files for table in tables)
        num_rows = max(_MAX_BLOCK_ROWS, _BLOCK_ROWS_PER_FILE * num_files)
        if any(table.storage.is_image(path) for table in tables for path in table.fields):
            num_rows = _MAX_BLOCK_IMAGES
        num_rows //= self.batch_size // self.world
        return max(min(num_rows, _MAX_BLOCK_BYTES // self.batch_bytes), 1)

    @property
    def batch_bytes(self) -> int:
        """The memory of a batch, in bytes, before a `transform`, and without text."""
        leaves = self.samples.spec.values()
        row_bytes = sum(math.prod(shape) * dtype.itemsize for dtype, shape in leaves)
        return max(row_bytes * (self.batch_size // self.world), 1)

    @property
    def is_remote(self) -> bool:
        """True if some of the data is in an object store."""
        return self._batches_ahead > 0

    @functools.cached_property
    def _batches_ahead(self) -> int:
        """The number of batches to prefetch from remote storage; 0 if nothing is remote."""
        samples = sum(map(samples_ahead, self._datasets, self.plans))
        return max(samples // self.batch_size, 2) if samples else 0

    def read_ahead(self, batch: int, prefetch_end: int = 0) -> int:
        """Prefetches the data of the next batches, if it is in an object store.

        Args:
          batch: The index of the next batch.
          prefetch_end: The result of the previous call; 0 at first.

        Returns:
          The end of the batches whose data is prefetched.
        """
        if not self._batches_ahead:
            return 0
        end = batch + self._batches_ahead
        end = end if self.num_batches is None else min(end, self.num_batches)
        is_valid = batch <= prefetch_end <= end
        if is_valid and end - prefetch_end < self._batches_ahead // 4:
            return prefetch_end
        # The first ranges are small, so the first batches come soon.
        first_batch, range_size = (prefetch_end, end - prefetch_end) if is_valid else (batch, 1)
        while first_batch < end:
            num_batches = min(range_size, end - first_batch)
            self._prefetch_range(first_batch, num_batches, is_exact=first_batch == batch)
            first_batch, range_size = first_batch + range_size, 4 * range_size
        return end

    def _prefetch_range(self, first_batch: int, num_batches: int, *, is_exact: bool) -> None:
        """Prefetches the data of some batches; their whole segments if not `is_exact`."""
        positions, _ = self._batch_positions(first_batch, num_batches)
        for dataset, epoch, _, offsets in self._rows_by_dataset(positions):
            order = self._orders[dataset]
            indices = order.indices_at(epoch, offsets) if is_exact else None
            runs = order.runs(epoch, offsets) if indices is None else (indices, indices)
            self._datasets[dataset].read_ahead(*runs)

    def _rows_by_dataset(self, positions: np.ndarray) -> Iterator[tuple[int, int, Any, np.ndarray]]:
        """Yields (dataset, epoch, rows in the batch, positions in the epoch) for positions."""
        groups: list[tuple[int, Any, np.ndarray]] = [(0, slice(None), positions)]
        if isinstance(self.samples, Mixture):
            datasets, positions = self.samples.locate(positions, self.seed)
            row_groups = {i: np.flatnonzero(datasets == i) for i in np.unique(datasets).tolist()}
            groups = [(dataset, rows, positions[rows]) for dataset, rows in row_groups.items()]
        for dataset, rows, offsets in groups:
            size = self._orders[dataset].size
            first_epoch, last_epoch = int(offsets.min()) // size, int(offsets.max()) // size
            if first_epoch == last_epoch:
                yield dataset, first_epoch, rows, offsets - first_epoch * size
                continue
            epochs, offsets = np.divmod(offsets, size)
            for epoch in np.unique(epochs).tolist():
                group = np.flatnonzero(epochs == epoch)
                group_rows = group if isinstance(rows, slice) else rows[group]
                yield dataset, epoch, group_rows, offsets[group]

    def _apply_transform(self, positions: np.ndarray, batch: Batch) -> Any:
        assert self.transform is not None
        arguments: list[Any] = [batch]
        if self._transform_takes_rng:
            arguments.append(RowRandom(positions, key_of("transform", self.seed)))
        try:
            transformed = self.transform(*arguments)
        except StopIteration as error:  # StopIteration would silently end the feed.
            raise RuntimeError("the transform raised StopIteration") from error
        if transformed is None:
            raise TypeError("the transform returned None, expected the batch")
        return transformed

    def _batch_positions(self, first_batch: int, num_batches: int) -> tuple[np.ndarray, list[int]]:
        """Returns this rank's positions in consecutive batches, and the size of each batch.

        Positions are indices over the samples of all epochs.
        """
        start, end = first_batch * self.batch_size, (first_batch + num_batches) * self.batch_size
        if self.remainder == "carry" and (
            self.epochs is None or end <= self.epochs * self._size
        ):  # All batches are full: each batch begins with a row of the first rank.
            return self._rank_rows(start, end), [self.batch_size // self.world] * num_batches
        batches = range(first_batch, first_batch + num_batches)
        rows = [self._rank_rows(*self._find_bounds(batch)) for batch in batches]
        return np.concatenate(rows), [*map(len, rows)]

    def _find_bounds(self, batch: int) -> tuple[int, int]:
        """Returns the first and the end position of a batch of all ranks."""
        if self.remainder == "carry":
            start, end = batch * self.batch_size, (self.epochs or _MAX_ROWS) * self._size
        else:
            epoch, epoch_batch = divmod(batch, self._batches_per_epoch)
            start = epoch * self._size + epoch_batch * self.batch_size
            end = (epoch + 1) * self._size
        return start, min(start + self.batch_size, end)

    def _rank_rows(self, start: int, end: int) -> np.ndarray:
        """Returns this rank's positions of a batch; every rank gets the same number."""
        rows = np.arange(start, end, dtype=np.int64)
        if len(rows) % self.world:
            rows = np.resize(rows, -(-len(rows) // self.world) * self.world)
        return rows[self.rank :: self.world]

    def _read(self, groups: Sequence[tuple[int, int, Any, np.ndarray]], size: int) -> Columns:
        """Returns the columns of (dataset, epoch, rows in the batch, sample indices)."""
        merged: Columns = {}
        for dataset, epoch, rows, indices in groups:
            samples = self._datasets[dataset]
            columns = samples.batch_columns(indices, epoch)
            if self.number_fields:
                datasets = np.full(len(indices), dataset, np.int64)
                columns |= zip(_NUMBER_FIELDS, (indices, *samples.locate(indices), datasets))
            if len(groups) == 1:
                return columns
            for path, column in columns.items():
                if path not in merged:
                    merged[path] = arrays.empty((size, *column.shape[1:]), column.dtype)
                merged[path][rows] = column
        return merged

    def state_dict(self, batch: int) -> dict[str, Any]:
        """Returns the state to resume at a batch: less than 200 bytes of JSON.

        Args:
          batch: The next batch to train on.
        """
        return {"version": _STATE_VERSION, "batch": operator.index(batch), **self._identity}

    @functools.cached_property
    def _identity(self) -> dict[str, Any]:
        mixture = self.samples.counts.tolist() if isinstance(self.samples, Mixture) else None
        shuffles = [plan.shuffle for plan in self.plans]
        return {
            "batch_size": self.batch_size,
            "size": sum(order.size for order in self._orders),
            "data": hash_of(*(samples.table.fingerprint() for samples in self._datasets))[:8],
            "samples": hash_of(*(samples.describe() for samples in self._datasets))[:8],
            "order": hash_of(self.seed, shuffles, self.epochs, self.remainder, mixture)[:8],
        }

    def start_of(self, start: int | Mapping[str, Any]) -> int:
        """Returns the index of the batch to resume at, which may be a state.

        Raises:
          ValueError: The state is of another feed; the message has the difference.
        """
        if not isinstance(start, Mapping):
            if not hasattr(start, "__index__"):
                raise TypeError(
                    f"start: got {start!r}, expected the index of a batch, or the result of "
                    "state_dict()"
                )
            start = operator.index(start)
            if start < 0:
                raise ValueError(f"start: got {start}, expected 0 or more")
            return start
        if start.get("version") != _STATE_VERSION:
            version = start.get("version")
            raise ValueError(f"the state has version {version!r}, expected {_STATE_VERSION}")
        current = self._identity
        fields = {
            "data": "the data or the fields that are read differ",
            "samples": f"the samples were not {self._datasets[0].describe()}",
            "size": f"the number of samples was {start.get('size')}, now it is {current['size']}",
            "order": (
                "the seed, shuffle, cache_bytes, epochs, remainder or weights were not those of "
                f"{self!r}"
            ),
        }
        errors = [text for name, text in fields.items() if start.get(name) != current[name]]
        if errors:
            raise ValueError(f"the state does not fit this feed: {'; '.join(errors)}")
        batch, size = start.get("batch"), start.get("batch_size")
        if not (type(batch) is int and type(size) is int and batch >= 0 and size > 0):
            raise ValueError(f"the state is damaged: batch {batch!r}, of size {size!r}")
        must_be_equal = self.remainder != "carry"
        if batch * size % self.batch_size or (must_be_equal and size != self.batch_size):
            multiple = f"a multiple of batches of {self.batch_size}"
            raise ValueError(f"start: {batch} batches of {size} samples are not {multiple}")
        return batch * size // self.batch_size

    def torch(
        self, *, start: int | Mapping[str, Any] = 0, num_workers: int = 0, **arguments: Any
    ) -> Any:
        """Returns a `torch.utils.data.DataLoader` of the batches, as tensors.

        Its `state_dict()` resumes after the batches so far.

        Args:
          start: The first batch, or a state to resume from.
          num_workers: The number of worker processes. With 0, a thread of this process computes
            batches, which is fastest except for slow transforms.
          **arguments: Other arguments of the loader, such as `pin_memory`. The feed sets the size
            and the order of batches.

        Raises:
          ImportError: PyTorch is not installed.
          TypeError: An argument conflicts with the feed.
          ValueError: The state is of another feed; the message has the difference.
        """
        from rlds.feeds.adapters import torch_loader

        return torch_loader(self, start=start, num_workers=num_workers, **arguments)

    def grain(self) -> Any:
        """Returns a `grain.MapDataset` whose elements are the batches.

        The elements are already shuffled and batched. Map, prefetch and iterate over them.

        Raises:
          ImportError: Grain is not installed.
        """
        from rlds.feeds.adapters import grain_dataset

        return grain_dataset(self)

    def explain(self) -> str:
        """Explains the cost of a batch, and the ways to reduce it."""
        return explain(self._datasets, self.plans, self.batch_size)


class FeedIterator(Iterator[Batch]):
    """An iterator over the batches of a feed, which a thread computes in advance.

    Attributes:
      batch: The index of the next batch.
    """

    def __init__(self, feed: Feed, start: int, prefetch: bool) -> None:
        self.feed, self.batch = feed, start
        self._batches: list[Batch] = []
        self._index = self._prefetch_end = 0
        self._start = start
        self._prefetch, self._process = prefetch, os.getpid()
        self._thread: ThreadPoolExecutor | None = None
        self._pending: tuple[int, Future[list[Batch]], SimpleQueue[Any]] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to resume after the batches so far."""
        return self.feed.state_dict(self.batch)

    def __next__(self) -> Batch:
        if self._index == len(self._batches):
            self._batches, self._index = self._next_block(self.batch), 0
        if not self._batches:
            self.close()
            raise StopIteration
        batch, self._batches[self._index] = self._batches[self._index], {}
        self._index += 1
        self.batch += 1
        return batch

    def _next_block(self, first_batch: int) -> list[Batch]:
        """Returns the block that begins with a batch, and submits the next block to the thread."""
        if self.feed.num_batches is not None and first_batch >= self.feed.num_batches:
            return []
        if not self._prefetch:
            return self._block(first_batch)
        if self._process != os.getpid():  # After a fork, the thread is in the parent process.
            self._thread, self._pending, self._process = None, None, os.getpid()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "rlds-feed")
        if self._pending is None or self._pending[0] != first_batch:
            self._submit(first_batch)
        assert self._pending is not None
        _, future, done = self._pending
        # This wait can be interrupted. An interrupted `concurrent.futures.wait` may keep the lock
        # of the future, which blocks the thread for ever.
        while not future.done():
            with contextlib.suppress(Empty):
                done.get(timeout=0.1)
        self._pending = None
        batches = future.result()
        next_batch = first_batch + len(batches)
        if self.feed.num_batches is None or next_batch < self.feed.num_batches:
            self._submit(next_batch)
        return batches

    def _submit(self, first_batch: int) -> None:
        """Submits the block that begins with a batch to the thread."""
        assert self._thread is not None
        future = self._thread.submit(self._block, first_batch)
        done: SimpleQueue[Any] = SimpleQueue()
        future.add_done_callback(done.put)
        self._pending = first_batch, future, done

    def _block(self, first_batch: int) -> list[Batch]:
        """Returns the block that begins with a batch; after an error, only the first batch."""
        num_batches = self.feed.block_size
        if self.feed.is_remote:  # The first blocks are small, so the first batches come soon.
            num_batches = min(num_batches, max(first_batch - self._start, 1))
        try:
            batches = self.feed.block(first_batch, num_batches, self._prefetch_end)
        except Exception:
            if num_batches == 1:
                raise
            batches = self.feed.block(first_batch, 1, self._prefetch_end)
        self._prefetch_end = self.feed.read_ahead(first_batch + len(batches), self._prefetch_end)
        return batches

    def close(self) -> None:
        """Stops the thread, as deleting the iterator does."""
        if self._thread is not None and self._process == os.getpid():
            self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread = self._pending = None


def _order(samples: Samples, shuffle: str | SegmentShuffle | None, seed: int) -> Order:
    if samples.weights is not None:
        return Weighted(samples.weights, seed)
    if shuffle is None:
        return InOrder(len(samples))
    if isinstance(shuffle, SegmentShuffle):
        return Segmented(samples.counts(), seed, shuffle.length, shuffle.window, shuffle.lanes)
    return Shuffled(len(samples), seed)


def _takes_rng(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True
