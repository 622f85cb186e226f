"""A disk cache of thumbnails."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from rlds_creator.viewing.pictures import media_type_of
from rlds_ecosystem.files.caches import cache_folder
from rlds_ecosystem.files.whole_files import write_atomically

__all__ = ["Thumbnails", "state_of"]

_MAX_CACHE_BYTES = 64 << 20
# The number of new thumbnails after which the size of the cache is checked.
_CHECK_PERIOD = 200
# The version of thumbnails in the cache.
_CACHE_VERSION = 1


class Thumbnails:
    """The cache of thumbnails in the cache folder of the user.

    Args:
      max_bytes: The maximum size; above it, the least recently used thumbnails are deleted.
    """

    def __init__(self, max_bytes: int = _MAX_CACHE_BYTES) -> None:
        self._max_bytes, self._num_new = max_bytes, 0
        self._folder = cache_folder("thumbnails", f"version {_CACHE_VERSION}")

    def get(
        self, state: str, create: Callable[[], tuple[bytes, str] | None]
    ) -> tuple[bytes, str] | None:
        """Returns a thumbnail and its media type; creates it if it is not cached.

        Args:
          state: The key: the episode, and the state of its files.
          create: Creates the thumbnail; returns None if the episode has no pictures.
        """
        if self._folder is None:
            return create()
        file = self._folder / hashlib.sha256(state.encode(errors="surrogateescape")).hexdigest()
        try:
            data = file.read_bytes()
            with contextlib.suppress(OSError):
                os.utime(file)
        except OSError:
            data = (create() or (b"", ""))[0]
            with contextlib.suppress(OSError):  # The cache may be read-only.
                self._store(file, data)
        return (data, media_type_of(data) or "") if data else None

    def _store(self, file: Path, data: bytes) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, data, durable=False)
        self._num_new += 1
        if self._num_new % _CHECK_PERIOD != 1:
            return
        files = sorted(
            ((stat := path.stat()).st_mtime, stat.st_size, path) for path in file.parent.iterdir()
        )
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self._max_bytes:
                break
            os.unlink(path)
            total -= size


def state_of(files: Iterable[Path]) -> str:
    """Returns a text that changes if files are written."""
    stats = [(os.fspath(file), file.stat()) for file in sorted(files)]
    return repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
