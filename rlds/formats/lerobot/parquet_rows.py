"""Safe reads of rows of untrusted Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlds.raw_files.untrusted import SourceError, check_declared, check_is_file, source_errors
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores

__all__ = ["ParquetRows", "as_numpy"]

_BATCH_BYTES = 8 << 20
_MAX_BATCH_ROWS = 8192
# A file may decompress to a hundred times its size plus this many bytes.
_DECOMPRESSED_ALLOWANCE = 64 << 20
# Without a buffer, a complete column of a row group is read into memory.
_BUFFER_BYTES = 1 << 20


class ParquetRows:
    """A reader of the rows of a file.

    Access to a row decodes the earlier rows of its row group, without a cache. Reading rows in
    order is therefore fast, and needs little memory, independent of the size of row groups.

    Args:
      path: The file, on a local disk or in a store.
      columns: The columns to read; by default, all columns.

    Attributes:
      path: The file.
      columns: The columns.
      schema: The Arrow schema of the file.
      num_rows: The number of rows.

    Raises:
      SourceError: The file is damaged, for example without the footer at the end.
      FileNotFoundError: There is no such file.
    """

    def __init__(self, path: stores.PathLike, columns: Sequence[str] | None = None) -> None:
        self.path, self.columns = os.fspath(path), columns
        check_is_file(path)
        parquet = import_extra("pyarrow.parquet")
        with source_errors(self.path):
            size = int(stores.as_path(path).stat().length)
            source = self.path if stores.is_local(path) else stores.open_binary(path)
            self._file = parquet.ParquetFile(source, buffer_size=_BUFFER_BYTES)
            self.schema = self._file.schema_arrow
            self._metadata = self._file.metadata
        groups = [*map(self._metadata.row_group, range(self._metadata.num_row_groups))]
        if (
            declared := sum(group.total_byte_size for group in groups)
        ) > _DECOMPRESSED_ALLOWANCE + 100 * size:
            raise SourceError(f"{declared:,} bytes are declared in {size:,} bytes", file=self.path)
        sizes = [group.num_rows for group in groups]
        if min(sizes, default=0) < 0:
            raise SourceError("a row group has a negative number of rows", file=self.path)
        self._begins = np.cumsum([0, *sizes])
        self.num_rows = int(self._begins[-1])
        check_declared(8 * self.num_rows, size, file=self.path)  # A row stores a number.
        self._batches: Iterator[Any] = iter(())
        self._next_row = -1  # The first row of the next batch.
        self._batch: Any = None  # The last batch.

    def read(self, start: int, end: int, *, ahead: bool = False) -> Any:
        """Returns the rows from `start` to before `end` as an Arrow table.

        Args:
          start: The first row.
          end: The row after the last one.
          ahead: True to return later rows, too, if they are already decoded.

        Raises:
          SourceError: The rows are missing or damaged.
        """
        if not 0 <= start <= end <= self.num_rows:
            raise SourceError(
                f"the episode has rows {start} to {end}, but the file {self.num_rows}",
                file=self.path,
            )
        with source_errors(self.path):
            return self._read(start, end, ahead)

    def _read(self, start: int, end: int, ahead: bool) -> Any:
        arrow = import_extra("pyarrow")
        slices = []
        batch_begin = self._next_row - (self._batch.num_rows if self._batch is not None else 0)
        if self._batch is None or not batch_begin <= start <= self._next_row:
            self._seek(start)
            batch_begin = self._next_row
        while batch_begin < end:
            if self._batch is None or batch_begin == self._next_row:
                self._batch = next(self._batches)
                self._next_row += self._batch.num_rows
            batch_end = batch_begin + self._batch.num_rows
            if start < batch_end:
                first_row = max(start - batch_begin, 0)
                end_row = batch_end if ahead else min(end, batch_end)
                slices.append(self._batch.slice(first_row, end_row - batch_begin - first_row))
            batch_begin = batch_end
        schema = self.schema
        if self.columns is not None:
            schema = arrow.schema([schema.field(name) for name in self.columns])
        return (
            arrow.Table.from_batches(slices).select(schema.names)
            if slices
            else schema.empty_table()
        )

    def _seek(self, row: int) -> None:
        """Seeks to the row group of a row."""
        group = int(np.searchsorted(self._begins, row, "right")) - 1
        group = min(group, self._metadata.num_row_groups - 1)
        self._batch, self._next_row = None, int(self._begins[group])
        self._batches = self._batches_from(group)

    def _batches_from(self, group: int) -> Iterator[Any]:
        """Yields the batches of a row group and of later row groups."""
        metadata = self._metadata.row_group(group)
        row_bytes = max(metadata.total_byte_size, 1) / max(metadata.num_rows, 1)
        end, num_groups = self._metadata.num_row_groups, 1
        # Opening many row groups delays the first row, and usually few are needed.
        while group < end:
            yield from self._file.iter_batches(
                batch_size=int(min(max(_BATCH_BYTES / row_bytes, 1), _MAX_BATCH_ROWS)),
                row_groups=range(group, min(group + num_groups, end)),
                columns=self.columns,
                use_threads=False,  # A forked process has no threads.
            )
            group += num_groups
            num_groups *= 2


def as_numpy(array: Any) -> np.ndarray:
    """Converts Arrow numbers without missing values to an array.

    `to_numpy` would import pandas, which takes longer than opening a dataset.
    """
    arrow = import_extra("pyarrow")
    if arrow.types.is_boolean(array.type):
        return np.from_dlpack(array.cast(arrow.uint8())).view(bool)
    return np.from_dlpack(array)
