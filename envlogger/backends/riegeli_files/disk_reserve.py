"""Keeps space on the disk for what was accepted but is not written yet."""

from __future__ import annotations

import errno
import os
import tempfile
import threading

from etils import epath

__all__ = ["DiskReserve"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_BLOCK = 1 << 22


class DiskReserve:
    """Occupies space on the disk of a directory, to be released when the disk is full.

    The file that occupies it has no name: it vanishes with the process.

    Args:
      directory: A local directory.
      num_bytes: How much to keep.

    Attributes:
      cause: The error after which the space was released; None before.

    Raises:
      OSError: The space is not there, or the directory cannot be written to.
    """

    def __init__(self, directory: epath.Path, num_bytes: int) -> None:
        self.cause: OSError | None = None
        self._lock, self._least, self._size = threading.Lock(), num_bytes, 0
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 (kept open)
        try:
            self._grow(num_bytes)
        except BaseException:
            self._file.close()
            raise

    def _grow(self, num_bytes: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.fileno(), self._size, num_bytes)
        else:  # macOS.
            self._file.write(bytes(num_bytes))
            self._file.flush()
        self._size += num_bytes

    def hold(self, num_bytes: int) -> bool:
        """Occupies so much more than at the beginning; what was occupied stays so.

        Returns:
          Whether the space is there: false if the disk is full, or the space was released.
        """
        with self._lock:
            missing = self._least + num_bytes - self._size
            if self.cause is None and missing > 0:
                try:
                    self._grow(-(-missing // _BLOCK) * _BLOCK)
                except OSError:
                    return False
            return self.cause is None

    def release_after(self, error: OSError) -> bool:
        """Makes room if the error says that the disk is full, once.

        Returns:
          Whether it is worth trying again; `cause` is the error then.
        """
        with self._lock:
            if self.cause is not None or error.errno not in _FULL:
                return False
            self.cause = error
            self._file.close()
        return True

    def close(self) -> None:
        """Frees the space."""
        self._file.close()
