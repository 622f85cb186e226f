"""Training samples with the interface of a `tf.data.Dataset`, for scripts of Octo and OpenVLA."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rlds.feeds._core import permute
from rlds.feeds.feed import Feed
from rlds.feeds.mixture import Mixture
from rlds.feeds.openvla import rows_of
from rlds.feeds.permutation import RowRandom, key_of
from rlds.feeds.samples import Batch, Samples

__all__ = ["Chain", "Resumable", "Rows", "find_shard"]

# The number of rows to read at once for iteration over single rows.
_ROWS_PER_READ = 64


def find_shard() -> tuple[int, int]:
    """Returns the index of this reading process, and the number of reading processes.

    The processes are the ranks of `torch.distributed`, of torchrun, or of JAX, each with the
    workers of its `DataLoader`.
    """
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    rank, world = 0, 1
    if (
        torch is not None
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
    ):
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    elif "WORLD_SIZE" in os.environ and "RANK" in os.environ:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    elif jax is not None and _is_distributed(jax, has_torch=torch is not None):
        rank, world = jax.process_index(), jax.process_count()
    data = sys.modules.get("torch.utils.data")
    worker = None if data is None else data.get_worker_info()
    if worker is None:
        return rank, world
    return rank * worker.num_workers + worker.id, world * worker.num_workers


def _is_distributed(jax: Any, has_torch: bool) -> bool:
    """True if JAX may run several processes; a call for the rank would occupy the accelerator."""
    if hasattr(jax.distributed, "is_initialized"):
        return bool(jax.distributed.is_initialized())
    return not has_torch  # JAX versions of 2023, which Octo uses, lack `is_initialized`.


class Rows(Iterator[Batch]):
    """An iterator over the samples of this process, one by one or in batches.

    Args:
      samples: The samples.
      batch_size: The number of rows in a batch; None for single rows.
      start: A result of `state_dict`, to resume from.
      limit: The maximum number of items, counted from the beginning.
      **options: Options of `Feed`.
    """

    def __init__(
        self,
        samples: Samples | Mixture,
        batch_size: int | None,
        start: Mapping[str, Any] | None = None,
        limit: int | None = None,
        **options: Any,
    ) -> None:
        rank, world = find_shard()
        is_unbatched, self._limit = batch_size is None, limit
        size = (batch_size or _ROWS_PER_READ) * world
        self.feed = Feed(samples, size, rank=rank, world=world, **options)
        self._num_read = first_batch = skipped = 0
        if start is not None:
            self._num_read = int(start["items"])
            first_batch, skipped = divmod(self._num_read, _ROWS_PER_READ if is_unbatched else 1)
            first_batch = self.feed.start_of({**start["feed"], "batch": first_batch})
            if is_unbatched and start["feed"]["batch_size"] != size:
                raise ValueError("the state comes from a run with another number of processes")
        items: Iterator[Batch] = self.feed.iterate(first_batch)
        if is_unbatched:
            items = itertools.chain.from_iterable(map(rows_of, items))
        self._items = itertools.islice(items, skipped, None)

    def __next__(self) -> Batch:
        if self._num_read == self._limit:
            raise StopIteration
        item = next(self._items)
        self._num_read += 1
        return item

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to resume after the items so far, in this process."""
        return {"items": self._num_read, "feed": self.feed.state_dict(0)}


@dataclasses.dataclass(frozen=True)
class Chain:
    """A dataset of episodes, samples or batches, with the methods of a `tf.data.Dataset`.

    Each method returns a new chain. Unlike in tf.data, samples are shuffled over the whole dataset,
    in an order that depends only on the seed, and an epoch has each sample once.

    Attributes:
      samples: The samples, of one dataset or of several.
      dataset_statistics: Statistics that normalize the action and the state, in the project's form.
      transform: A random augmentation of each batch.
      sample_weights: The weights of the datasets of a mixture.
      seed: The seed of the order and of all random choices.
      is_flat: True if the items are samples or batches, not episodes.
      batch_size: The number of samples in a batch.
    """

    samples: Samples | Mixture
    dataset_statistics: dict[str, Any]
    transform: Callable[[Batch, RowRandom], Batch] | None = None
    sample_weights: Any = None
    seed: int = 0
    is_flat: bool = False
    is_shuffled: bool = False
    is_endless: bool = False
    batch_size: int | None = None
    limit: int | None = None

    def repeat(self) -> Chain:
        """Repeats the dataset endlessly."""
        if self.limit is not None and self.is_flat:
            raise NotImplementedError("repeat() after take() of samples: take episodes instead")
        return dataclasses.replace(self, is_endless=True)

    def unbatch(self) -> Chain:
        """Converts episodes to samples."""
        if self.is_flat:
            raise ValueError("unbatch(): the elements are samples already")
        if self.limit is None:
            return dataclasses.replace(self, is_flat=True)
        assert isinstance(self.samples, Samples)
        is_kept = np.isin(np.arange(len(self.samples.counts())), self._episodes(0)[: self.limit])
        indices = np.flatnonzero(np.repeat(is_kept, self.samples.counts()))
        return dataclasses.replace(
            self, is_flat=True, samples=self.samples.choose(indices), limit=None
        )

    def shuffle(self, buffer_size: int, seed: int | None = None) -> Chain:
        """Shuffles all samples, or episodes.

        Args:
          buffer_size: Ignored: there is no buffer.
          seed: The seed of the order.
        """
        del buffer_size
        if self.batch_size is not None:
            raise NotImplementedError("shuffle() after batch(): shuffle the samples before")
        return dataclasses.replace(self, is_shuffled=True, seed=self.seed if seed is None else seed)

    def batch(self, batch_size: int, drop_remainder: bool = False, **options: Any) -> Chain:
        """Combines samples to batches in each process.

        Args:
          batch_size: The number of samples in a batch.
          drop_remainder: Must be False for a finite dataset: the last batch may be shorter.
          **options: Ignored performance options of tf.data.
        """
        if drop_remainder and not self.is_endless:
            raise NotImplementedError("batch(drop_remainder=True): call repeat() before")
        if set(options) - {"num_parallel_calls", "deterministic", "name"}:
            raise TypeError(f"batch: unexpected options {sorted(options)}")
        if not self.is_flat or self.batch_size is not None or self.limit is not None:
            raise NotImplementedError("batch(): expected samples, without take() or batch() before")
        return dataclasses.replace(self, batch_size=batch_size)

    def take(self, count: int) -> Chain:
        """Keeps the first items; all items if `count` is -1."""
        return dataclasses.replace(self, limit=None if count < 0 else count)

    def cardinality(self) -> _Cardinality:
        """Returns the number of items in an epoch; -1 for an endless dataset."""
        if self.is_endless:
            return _Cardinality(-1)
        assert isinstance(self.samples, Samples)
        if self.is_flat:
            count = -(-len(self.samples) // (self.batch_size or 1))
        else:
            count = len(self._episodes(0))
        return _Cardinality(count if self.limit is None else min(count, self.limit))

    def iterator(
        self, *, prefetch: Any = None, start: Mapping[str, Any] | None = None
    ) -> Iterator[Batch]:
        """Returns an iterator over the items of this process; for samples, with a `state_dict`.

        Args:
          prefetch: Ignored: a thread always prepares the next items.
          start: A result of `state_dict` of an iterator, to resume from.
        """
        del prefetch
        if not self.is_flat:
            if start is not None:
                raise NotImplementedError("episodes cannot be resumed: call unbatch() first")
            return self._iterate_episodes()
        options: dict[str, Any] = {}
        if not isinstance(self.samples, Mixture):
            options = {"epochs": None} if self.is_endless else {"epochs": 1, "remainder": "short"}
        shuffle = "auto" if self.is_shuffled else None
        options |= {"seed": self.seed, "shuffle": shuffle, "transform": self.transform}
        return Rows(self.samples, self.batch_size, start, self.limit, **options)

    def as_numpy_iterator(self) -> Iterator[Batch]:
        """Returns an iterator over the items of this process."""
        return self.iterator()

    def __iter__(self) -> Iterator[Batch]:
        return self.iterator()

    def _episodes(self, epoch: int) -> np.ndarray:
        """Returns the episodes with samples in the order of an epoch."""
        assert isinstance(self.samples, Samples)
        episodes = np.flatnonzero(self.samples.counts())
        if not self.is_shuffled or not len(episodes):
            return episodes
        key = key_of("episodes", self.seed, epoch)
        return episodes[permute(np.arange(len(episodes)), len(episodes), key)]

    def _iterate_episodes(self) -> Iterator[Batch]:
        assert isinstance(self.samples, Samples)
        rank, world = find_shard()
        sample_ends = np.cumsum(self.samples.counts())
        for epoch in itertools.count():
            episodes = self._episodes(0 if self.limit is not None else epoch)[: self.limit]
            for episode in episodes[rank::world].tolist():
                first_sample = int(sample_ends[episode] - self.samples.counts()[episode])
                indices = np.arange(first_sample, int(sample_ends[episode]))
                batch = self.samples.batch(indices, epoch)
                if self.transform is not None:
                    positions = indices + epoch * len(self.samples)
                    batch = self.transform(batch, RowRandom(positions, key_of("rows", self.seed)))
                yield batch
            if not self.is_endless or not len(episodes):
                return


class Resumable:
    """The base class of resumable datasets for training scripts.

    Attributes:
      dataset: The chain.
    """

    dataset: Chain
    _start: Mapping[str, Any] | None = None
    _items: Any = None

    def iterate(self) -> Iterator[Batch]:
        """Returns an iterator over the items of this process."""
        self._items, self._start = self.dataset.iterator(start=self._start), None
        items: Iterator[Batch] = self._items
        return items

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to resume after the items so far, in this process.

        `torchdata.stateful_dataloader.StatefulDataLoader` calls it in each worker.
        """
        items: Any = self._items or self.dataset.iterator(start=self._start)
        state: dict[str, Any] = items.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the state from which the next iteration resumes."""
        self._start, self._items = state, None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_items": None}


class _Cardinality(int):
    def numpy(self) -> int:
        return int(self)
