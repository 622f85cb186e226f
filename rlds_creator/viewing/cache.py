"""A least-recently-used (LRU) cache of limited size."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["Cache", "size_of"]


class Cache:
    """A least-recently-used (LRU) cache of limited size. Threads may share it.

    Args:
      max_bytes: The maximum size of all values. A value above half of this size is not cached.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._entries: collections.OrderedDict[Any, tuple[Any, int]] = collections.OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Returns the cached value of a key, or computes it."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key][0]
        value = compute()
        size = size_of(value)
        with self._lock:
            if key not in self._entries and size <= self.max_bytes // 2:
                self._entries[key] = value, size
                self.num_bytes += size
                while self.num_bytes > self.max_bytes:
                    self.num_bytes -= self._entries.popitem(last=False)[1][1]
        return value


def size_of(value: Any) -> int:
    """Returns the approximate size of a value in memory, in bytes."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.nbytes + 100
    if isinstance(value, bytes | str):
        return len(value) + 50
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values())) + 100 * len(value)
    if isinstance(value, np.ndarray):
        return sum(map(size_of, value.flat)) + 8 * value.size
    if isinstance(value, list | tuple):
        return sum(map(size_of, value)) + 16 * len(value)
    if hasattr(value, "lengths"):  # The value is a ragged column.
        return size_of(value.values) + size_of(value.lengths)
    return 50
