"""A Riegeli file that grows, and survives that the disk is full for a while."""

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

    One in a store is written to a temporary file, and is there when it is closed or synced.

    Records that were handed over but have not reached the file are kept: when the disk is full and
    the reserve makes room, they are written anew after what is complete in the file.

    Attributes:
      positions: The positions of the records. The caller may remove those of written records.
      is_out_of_reach: Whether `salvage` could not bring it to its store.

    Args:
      path: The file, which must not exist.
      options: See `riegeli.RecordWriter`.
      reserve: The disk space to release when the disk is full; None for none.
      compression: Chooses how to compress each chunk, see `RecordWriter.set_compression`.

    Raises:
      OSError: The file cannot be made or written.
      riegeli.RiegeliError: The options are wrong.
    """

    def __init__(
        self,
        path: epath.Path,
        options: str,
        reserve: DiskReserve | None = None,
        compression: Callable[[Sequence[bytes]], str] | None = None,
    ) -> None:
        self.positions: list[riegeli.RecordPosition] = []
        self.is_out_of_reach = False
        self._path = path
        self._options = options
        self._compression = compression
        self._reserve = reserve
        self._unwritten: deque[bytes] = deque()
        self._is_local = stores.is_local(path)
        self._published_end = 0
        # Unbuffered: the writer passes complete chunks directly to the operating system.
        self._file: Any = (
            open(path, "xb", buffering=0)  # noqa: SIM115 (kept open)
            if self._is_local
            else stores.open_binary(path, "wb")
        )
        try:
            self._writer = self._try(self._begin)
        except BaseException:
            self._file.close()
            raise
        self._end = self._writer.estimated_size()

    def _begin(self, end: int = 0) -> riegeli.RecordWriter:
        """Continues at the end of complete records; overwrites a torn end."""
        self._file.truncate(end)
        self._file.seek(end)
        writer = riegeli.RecordWriter(self._file, owns_dest=False, options=self._options)
        if self._compression is not None:
            writer.set_compression(self._compression)
        return writer

    def write(self, records: Sequence[bytes]) -> None:
        """Appends records, which are written once a chunk is full."""
        writer, positions = self._writer, self.positions
        num_positions = len(positions) + len(records)
        self._unwritten += records
        try:
            for record in records:
                writer.write_record(record)
                # Its offset depends on the sizes of the chunks before it, which threads may be
                # encoding.
                positions.append(writer.last_pos)
        except OSError as e:
            self._make_room_after(e)
            self._rewrite(num_positions - len(positions))
        if self._writer.estimated_size() != self._end:
            self._forget_written()

    def push(self) -> None:
        """Writes all records to the file, so that they survive a killed process.

        Not so in a store: there they survive it once the file is synced.
        """
        try:
            self._writer.flush(riegeli.FlushType.FROM_PROCESS)
        except OSError as e:
            self._make_room_after(e)
            self._rewrite()
            self._writer.flush(riegeli.FlushType.FROM_PROCESS)
        self._forget_written()

    def sync(self) -> None:
        """Syncs the file to disk, so that pushed records survive a power failure.

        Raises:
          OSError: It failed; or the file was deleted, so that nobody could read it.
        """
        if not self._is_local:
            self._file.publish()
            self._published_end = self._end
            return
        self._try(lambda: os.fsync(self._file.fileno()))
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise FileNotFoundError(f"{self._path} was deleted while it was being written")

    def close(self) -> None:
        """Closes the file; records that were not pushed are lost."""
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
          How many of the records at the beginning of `positions` are in it.
        """
        with contextlib.suppress(Exception):  # The failure that the caller knows of, again.
            self._writer.flush(riegeli.FlushType.FROM_PROCESS)
        self._end = self._writer.estimated_size()
        # File objects other than those of the system raise other errors than OSError too.
        with contextlib.suppress(Exception):
            self._file.truncate(self._end)
        try:
            self._file.close()
        except Exception:
            if not self._is_local:  # The store still has the last published state.
                self.is_out_of_reach = True
                self._end = self._published_end
        return sum(self._has_reached_file(position) for position in self.positions)

    def _try(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except OSError as e:
            self._make_room_after(e)
            return action()

    def _make_room_after(self, error: OSError) -> None:
        if self._reserve is None or not self._reserve.release_after(error):
            raise error

    def _rewrite(self, num_unplaced: int = 0) -> None:
        """Writes the unwritten records to the end of the file, over a torn chunk.

        Args:
          num_unplaced: See `_forget_written`.
        """
        self._forget_written(num_unplaced)
        del self.positions[len(self.positions) - (len(self._unwritten) - num_unplaced) :]
        self._writer = self._begin(self._end)
        for record in self._unwritten:
            self._writer.write_record(record)
            self.positions.append(self._writer.last_pos)

    def _forget_written(self, num_unplaced: int = 0) -> None:
        """Drops the records that are in the file.

        Args:
          num_unplaced: The number of the last unwritten records without a position.
        """
        self._end = self._writer.estimated_size()
        first = len(self.positions) - (len(self._unwritten) - num_unplaced)
        for position in self.positions[first:]:
            # It is known without waiting: the chunks before that of the first unwritten record are
            # in the file.
            if not self._has_reached_file(position):
                break
            self._unwritten.popleft()

    def _has_reached_file(self, position: riegeli.RecordPosition) -> bool:
        try:
            return bool(position.numeric < self._end)
        except Exception:  # Its chunk was dropped before it was encoded, or failed to encode.
            return False
