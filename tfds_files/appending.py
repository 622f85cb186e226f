"""Appends examples to a dataset: what all writers have in common that are called one by one."""

from __future__ import annotations

import contextlib
import time

from rlds_ecosystem.model.errors import StorageError
from tfds_files.growing import GrowingDataset, ShardDraft

__all__ = ["AppendingWriter"]


class AppendingWriter:
    """Appends examples to the splits of a dataset, in shards.

    A shard is part of the dataset from the moment when it is full or late, and the rest on `flush`.
    If the process dies, the next writer adds what is left of its shards.

    Args:
      dataset: The dataset; it has been opened.
      max_examples_per_shard: How many examples a shard takes.
      flush_interval: After how many seconds an example also ends its shard; None for never.
      max_bytes: How many bytes of examples end a shard; None for any number.
    """

    def __init__(
        self,
        dataset: GrowingDataset,
        max_examples_per_shard: int = 1000,
        flush_interval: float | None = None,
        *,
        max_bytes: int | None = None,
    ) -> None:
        self._dataset = dataset
        self._max_examples, self._max_seconds = max_examples_per_shard, flush_interval
        self._max_bytes = max_bytes
        self._num_bytes: dict[str, int] = {}
        self._shards: dict[str, tuple[ShardDraft, float]] = {}

    def add(self, example: bytes, split: str, where: str = "the example") -> None:
        """Appends an example, which survives the death of the process from now on.

        Args:
          example: Its bytes.
          split: The split, which the dataset has.
          where: What to call it in an error.

        Raises:
          StorageError: It cannot be written; those before are.
        """
        try:
            if split not in self._shards:
                self._shards[split] = ShardDraft(self._dataset, split), time.monotonic()
            shard, begin = self._shards[split]
            shard.add(example)
        except StorageError as e:
            with contextlib.suppress(StorageError):  # This one says so.
                self._finish(split)
            raise StorageError(f"{where} is not stored, but all before it are: {e}") from e
        self._num_bytes[split] = self._num_bytes.get(split, 0) + len(example)
        is_large = self._max_bytes is not None and self._num_bytes[split] >= self._max_bytes
        is_late = self._max_seconds is not None and time.monotonic() - begin >= self._max_seconds
        if is_late or is_large or shard.num_examples >= self._max_examples:
            self._finish(split)

    def _finish(self, split: str) -> None:
        self._num_bytes.pop(split, None)
        if split in self._shards:
            self._shards.pop(split)[0].finish()

    def flush(self) -> None:
        """Makes all examples part of the dataset.

        Raises:
          StorageError: They cannot be written.
        """
        try:
            for split in list(self._shards):
                self._finish(split)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leaves what is not part of the dataset to the next writer."""
        while self._shards:
            self._shards.popitem()[1][0].abandon()
