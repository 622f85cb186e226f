"""A Riegeli file with random access to records by position."""

from __future__ import annotations

import contextlib

from etils import epath

import riegeli
from envlogger.errors import DamagedDataError

__all__ = ["RandomAccessFile"]


class RandomAccessFile:
    """An open file with random access to records by position, fastest in the order of the file.

    Raises:
      OSError: The file cannot be opened.
    """

    def __init__(self, path: epath.Path) -> None:
        self._reader = riegeli.RecordReader(path)

    def read_run(self, position: int, count: int) -> list[bytes]:
        """Reads consecutive records.

        Args:
          position: The numeric position of the first record.
          count: The number of records.

        Raises:
          DamagedDataError: A record is missing or damaged.
          OSError: The file cannot be read.
          riegeli.UnimplementedError: The file uses an unsupported feature of Riegeli.
        """
        read_batch = self._reader.read_batch
        try:
            self._seek(position)
            records = read_batch(count)
            while len(records) < count and (next_records := read_batch(count - len(records))):
                records += next_records
        except riegeli.InvalidArgumentError as e:
            raise DamagedDataError(str(e)) from e
        self._check_run(position, count, len(records))
        return records

    def read_joined_run(
        self, position: int, count: int, *, into: memoryview | None = None, record_size: int = 0
    ) -> list[riegeli.JoinedRecords]:
        """Reads like `read_run`, with the records of a chunk in one buffer.

        Args:
          position: The position of the first record.
          count: The number of records.
          into: The buffer for the records, see `riegeli.RecordReader.read_joined`.
          record_size: The size of each record, see `riegeli.RecordReader.read_joined`.
        """
        batches = []
        num_read = 0
        try:
            self._seek(position)
            while num_read < count:
                batch = self._reader.read_joined(
                    count - num_read, into=into, record_size=record_size
                )
                if not batch.sizes:
                    break
                into = None  # The next batch has its own buffer; several batches are rare.
                batches.append(batch)
                num_read += len(batch.sizes)
        except riegeli.InvalidArgumentError as e:
            raise DamagedDataError(str(e)) from e
        self._check_run(position, count, num_read)
        return batches

    def _seek(self, position: int) -> None:
        if self._reader.pos.numeric != position:
            self._reader.seek_numeric(position)

    def _check_run(self, position: int, count: int, num_read: int) -> None:
        if num_read != count:
            raise DamagedDataError("the file ends before it")
        if self._reader.last_pos.numeric != position + count - 1:
            raise DamagedDataError("no record begins there")

    def close(self) -> None:
        """Closes the file."""
        # `read_run` has reported damage of requested records, so this error is ignored.
        with contextlib.suppress(riegeli.RiegeliError):
            self._reader.close()
