"""Caches: the folder on disk, and the least-recently-used cache in memory."""

from __future__ import annotations

import collections
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

from rlds_ecosystem.files.forking import reset_in_forks

__all__ = ["LruCache", "cache_folder"]

# The entries of parent processes, which must not be closed in a forked process.
_inherited_entries: list[Any] = []


def cache_folder(kind: str, name: str) -> Path | None:
    """Returns the cache folder of some data, which may not exist.

    The parent is `RLDS_CACHE_DIR`, or the folder `rlds` in `XDG_CACHE_HOME`.

    Args:
      kind: The kind of cached data.
      name: The name of the data, such as the real path of a folder.

    Returns:
      The folder; None for users without a home folder.
    """
    cache = os.environ.get("RLDS_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "rlds"
    )
    key = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    folder = Path(os.path.expanduser(cache), kind, key)
    return None if folder.parts[0] == "~" else folder


class LruCache:
    """A least-recently-used (LRU) cache of limited size. Several threads may use it.

    Args:
      max_bytes: The maximum total size of the values.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock, self._num_bytes = threading.Lock(), 0
        self._entries: collections.OrderedDict[Any, tuple[Any, int]] = collections.OrderedDict()
        reset_in_forks(self)

    def _reset(self) -> None:
        # Closing a decoder may wait for threads, which do not exist in a forked process.
        _inherited_entries.append(self._entries)
        self._lock, self._num_bytes, self._entries = threading.Lock(), 0, collections.OrderedDict()

    def get(self, key: Any) -> Any:
        """Returns the cached value of a key; None if it is not cached."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def pop(self, key: Any) -> Any:
        """Removes and returns the cached value of a key; None if it is not cached."""
        with self._lock:
            value, size = self._entries.pop(key, (None, 0))
            self._num_bytes -= size
            return value

    def put(self, key: Any, value: Any, size: int) -> list[Any]:
        """Adds a value of `size` bytes; returns the evicted values."""
        with self._lock:
            evicted = [self._entries.pop(key, (None, 0))]
            self._entries[key] = value, size
            self._num_bytes += size - evicted[0][1]
            while self._num_bytes > self._max_bytes and self._entries:
                evicted.append(self._entries.popitem(last=False)[1])
                self._num_bytes -= evicted[-1][1]
            return [value for value, _ in evicted if value is not None]
