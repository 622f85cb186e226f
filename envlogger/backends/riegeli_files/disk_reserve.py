"""Disk space reserved for recorded steps that are not written yet."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from typing import IO

from rlds_ecosystem.files.stores import PathLike, is_local
from rlds_ecosystem.model.errors import StorageError

__all__ = ["DiskReserve"]

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_GROWTH_BYTES, _INDEX_RESERVE_BYTES = 1 << 22, 1 << 23


class DiskReserve:
    """Reserves space on the disk of a directory, and releases it when the disk is full.

    The space is occupied by a nameless file, which vanishes with the process. In object stores,
    nothing is reserved.

    Args:
      directory: The directory, which must exist.
      max_pending_bytes: The size of the write queue; space for its index is added.

    Attributes:
      cause: The error that ends the recording after the accepted steps are written, or None.
      ends_recording: Whether the writer accepts no more steps after an error. If false, a wrapper
        of the writer checks the cause and closes the writer.

    Raises:
      StorageError: The disk lacks the space, or the directory cannot be written to.
    """

    def __init__(self, directory: PathLike, max_pending_bytes: int) -> None:
        self.cause: BaseException | None = None
        self.ends_recording = True
        # Incompressible chunks are slightly larger than their content.
        self._min_size = max_pending_bytes + (max_pending_bytes >> 7) + _INDEX_RESERVE_BYTES
        self._lock, self._size = threading.Lock(), 0
        self._file: IO[bytes] | None = None
        if not is_local(directory):
            return
        try:
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 (kept open)
            self._grow(self._file, self._min_size)
        except OSError as error:
            self.close()
            raise StorageError(
                f"cannot write to data_directory {os.fspath(directory)}: {error}; check its "
                f"permissions, and that {self._min_size >> 20} MB are left (with a smaller "
                "max_pending_bytes it is less)"
            ) from error

    def _grow(self, file: IO[bytes], num_bytes: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), self._size, num_bytes)
        else:  # macOS lacks the call.
            file.write(bytes(num_bytes))
            file.flush()
        self._size += num_bytes

    def extend(self, num_bytes: int) -> bool:
        """Extends the reserve by the size of pending data; it never shrinks.

        Returns:
          True if the space is reserved; False if the disk is full or was full earlier.
        """
        with self._lock:
            missing = self._min_size + num_bytes - self._size
            if self.cause is None and missing > 0 and self._file is not None:
                try:
                    self._grow(self._file, -(-missing // _GROWTH_BYTES) * _GROWTH_BYTES)
                except OSError:
                    return False
            return self.cause is None

    def release_after(self, error: OSError) -> bool:
        """Releases the reserve, once, if an error means a full disk.

        Returns:
          True if the space was released, so that the caller can try again.
        """
        with self._lock:
            if self._file is None or self._file.closed or error.errno not in _DISK_FULL_ERRORS:
                return False
            self.cause = self.cause or error
            self._file.close()
        return True

    def close(self) -> None:
        """Releases the space for other programs."""
        if self._file is not None:
            self._file.close()
