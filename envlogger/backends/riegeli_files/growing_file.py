"""A growing Riegeli file of a recording, which tolerates a full disk."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from etils import epath

import riegeli
from envlogger.backends.riegeli_files.disk_reserve import DiskReserve
from rlds_ecosystem.files import stores

__all__ = ["GrowingFile"]


class GrowingFile:
    """Appends records to a new file.

    In an object store, records go to a temporary file, which `close` and `sync` upload.

    Records are kept in memory until they are in the file: if the disk is full and the reserve is
    released, they are written again after the last complete chunk.

    Attributes:
      positions: The positions of the records. The caller may remove positions of written records.
      has_failed_upload: Whether `salvage` could not upload the file to its store.

    Args:
      path: The file, which must not exist.
      options: The Riegeli options of the file, see `riegeli.RecordWriter`.
      reserve: The disk space to release when the disk is full, or None.
      compression: Chooses how to compress each chunk, see `RecordWriter.set_compression`.

    Raises:
      OSError: The file cannot be created or written.
      riegeli.RiegeliError: The options are invalid.
    """

    def __init__(
        self,
        path: epath.Path,
        options: str,
        reserve: DiskReserve | None = None,
        compression: Callable[[Sequence[bytes]], str] | None = None,
    ) -> None:
        self.positions: list[riegeli.RecordPosition] = []
        self.has_failed_upload = False
        self._path = path
        self._options = options
        self._compression = compression
        self._reserve = reserve
        self._unwritten: deque[bytes] = deque()
        self._is_local = stores.is_local(path)
        self._published_end = 0
        # The file is unbuffered, so complete chunks go directly to the operating system.
        self._file: Any = (
            open(path, "xb", buffering=0)  # noqa: SIM115 (kept open)
            if self._is_local
            else stores.open_binary(path, "wb")
        )
        try:
            self._writer = self._retry_if_full(self._open_writer)
        except BaseException:
            self._file.close()
            raise
        self._end_offset = self._writer.estimated_size()

    def _open_writer(self, offset: int = 0) -> riegeli.RecordWriter:
        """Opens a writer at the end of complete records; overwrites a truncated chunk."""
        self._file.truncate(offset)
        self._file.seek(offset)
        writer = riegeli.RecordWriter(self._file, owns_dest=False, options=self._options)
        if self._compression is not None:
            writer.set_compression(self._compression)
        return writer

    def write(self, records: Sequence[bytes]) -> None:
        """Appends records, which are written to the file when a chunk is full."""
        writer, positions = self._writer, self.positions
        num_positions = len(positions) + len(records)
        self._unwritten += records
        try:
            for record in records:
                writer.write_record(record)
                # The position is computed later, because threads may still encode earlier chunks.
                positions.append(writer.last_pos)
        except OSError as e:
            self._release_reserve(e)
            self._rewrite(num_positions - len(positions))
        if self._writer.estimated_size() != self._end_offset:
            self._drop_written()

    def push(self) -> None:
        """Writes all records to the file, so that they survive a crash of the process.

        In an object store, `sync` is needed, too.
        """
        try:
            self._writer.flush(riegeli.FlushType.FROM_PROCESS)
        except OSError as e:
            self._release_reserve(e)
            self._rewrite()
            self._writer.flush(riegeli.FlushType.FROM_PROCESS)
        self._drop_written()

    def sync(self) -> None:
        """Syncs the file to disk, so that pushed records survive a power failure.

        Raises:
          OSError: The disk reports an error, or the file was deleted.
        """
        if not self._is_local:
            self._file.publish()
            self._published_end = self._end_offset
            return
        self._retry_if_full(lambda: os.fsync(self._file.fileno()))
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise FileNotFoundError(f"{self._path} was deleted while it was being written")

    def close(self) -> None:
        """Closes the file, and drops records that were not pushed."""
        try:
            self._writer.close()
        finally:
            self._file.close()

    def discard(self) -> None:
        """Closes a file in an object store without changing it."""
        self._file.discard()

    def salvage(self) -> int:
        """Closes the file after a failure, with its complete chunks.

        Returns:
          The number of records of `positions` that are in the file.
        """
        with contextlib.suppress(Exception):  # The caller knows the failure.
            self._writer.flush(riegeli.FlushType.FROM_PROCESS)
        self._end_offset = self._writer.estimated_size()
        # Custom file objects may raise other errors than OSError.
        with contextlib.suppress(Exception):
            self._file.truncate(self._end_offset)
        try:
            self._file.close()
        except Exception:
            if not self._is_local:  # The store keeps the last published state.
                self.has_failed_upload = True
                self._end_offset = self._published_end
        return sum(self._has_reached_file(position) for position in self.positions)

    def _retry_if_full(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except OSError as e:
            self._release_reserve(e)
            return action()

    def _release_reserve(self, error: OSError) -> None:
        if self._reserve is None or not self._reserve.release_after(error):
            raise error

    def _rewrite(self, num_without_position: int = 0) -> None:
        """Writes the unwritten records to the end of the file, over a truncated chunk.

        Args:
          num_without_position: See `_drop_written`.
        """
        self._drop_written(num_without_position)
        del self.positions[len(self.positions) - (len(self._unwritten) - num_without_position) :]
        self._writer = self._open_writer(self._end_offset)
        for record in self._unwritten:
            self._writer.write_record(record)
            self.positions.append(self._writer.last_pos)

    def _drop_written(self, num_without_position: int = 0) -> None:
        """Drops the records that are in the file.

        Args:
          num_without_position: The number of the last unwritten records without a position.
        """
        self._end_offset = self._writer.estimated_size()
        first_unwritten = len(self.positions) - (len(self._unwritten) - num_without_position)
        for position in self.positions[first_unwritten:]:
            # Positions need no wait: all chunks before the first unwritten record are in the file.
            if not self._has_reached_file(position):
                break
            self._unwritten.popleft()

    def _has_reached_file(self, position: riegeli.RecordPosition) -> bool:
        try:
            return bool(position.numeric < self._end_offset)
        except Exception:  # The chunk was dropped before its encoding, or the encoding failed.
            return False
