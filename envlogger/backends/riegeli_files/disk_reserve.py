"""Keeps space on the disk for what was accepted but is not written yet."""

from __future__ import annotations

import errno
import os
import tempfile

from etils import epath

__all__ = ["DiskReserve"]

_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskReserve:
    """Occupies space on the disk of a directory, to be released when the disk is full.

    The file that occupies it has no name: it vanishes with the process.

    Args:
      directory: A local directory.
      num_bytes: How much to keep.

    Raises:
      OSError: The space is not there, or the directory cannot be written to.
    """

    def __init__(self, directory: epath.Path, num_bytes: int) -> None:
        self.cause: OSError | None = None
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 (kept open)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, num_bytes)
            else:  # macOS.
                self._file.write(bytes(num_bytes))
                self._file.flush()
        except BaseException:
            self._file.close()
            raise

    def release_after(self, error: OSError) -> bool:
        """Makes room if the error says that the disk is full, once.

        Returns:
          Whether it is worth trying again; `cause` is the error then.
        """
        if self.cause is not None or error.errno not in _FULL:
            return False
        self.cause = error
        self._file.close()
        return True

    def close(self) -> None:
        """Frees the space."""
        self._file.close()
