"""Readers of the data files of LeRobot datasets: columns of the rows of an episode."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from etils import epath

from rlds.formats.lerobot.columns import DataColumn, data_column, decode_values, image_field
from rlds.formats.lerobot.episode_table import EpisodeMetadata, EpisodeRow
from rlds.formats.lerobot.layout import INFO, LeRobotFeature
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.formats.lerobot.small_files import encode_schema
from rlds.formats.lerobot.tables import flatten_column
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds_ecosystem.model.columns import objects

__all__ = ["PATH", "DataFiles"]

# The suffix for the column of file names of an image column.
PATH = "/path"

_EPISODE_INDEX, _FRAME_INDEX = "episode_index", "frame_index"
_MAX_OPEN_FILES = 8


class DataFiles:
    """A reader of the rows of episodes, which checks their episode and frame indices.

    The first readable data file determines the columns.

    Args:
      root: The folder of the dataset.
      features: The features of `info.json`.
      table: The episodes.

    Attributes:
      columns: The columns, by name.
      schema: The schema of the files, encoded by `encode_schema`. (Pickling an Arrow schema loses
        the names of list elements.)

    Raises:
      SourceError: No data file can be read.
    """

    def __init__(
        self, root: epath.Path, features: Mapping[str, LeRobotFeature], table: EpisodeMetadata
    ) -> None:
        self._root, self._features = root, features
        self._readers: dict[tuple[str, ...], ParquetRows] = {}
        # The last rows: file, columns, first row, Arrow table, decoded values.
        self._cached_rows: tuple[str, list[str], int, Any, dict[str, np.ndarray]] | None = None
        self.columns, self.schema = self._find_columns(table)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}, "_cached_rows": None}

    def _find_columns(self, table: EpisodeMetadata) -> tuple[dict[str, DataColumn], str]:
        damage: SourceError | None = None
        tested_files: set[str] = set()
        for position in range(len(table.indices)):
            try:
                row = table.row(position)
                if row.file not in tested_files:
                    tested_files.add(row.file)
                    with source_errors(self._root / row.file, episode=row.key):
                        rows = ParquetRows(self._root / row.file)
                        return self._read_columns(rows), encode_schema(rows.schema)
            except SourceError as error:
                damage = damage or error
        raise damage or SourceError("there is no episode", file=self._root / INFO)

    def _read_columns(self, rows: ParquetRows) -> dict[str, DataColumn]:
        columns = {}
        for field in rows.schema:
            if field.name in columns:
                raise SourceError("two columns have this name", file=rows.path, field=field.name)
            feature = self._features.get(field.name)
            column = data_column(field, feature)
            if column.kind == "image" and rows.num_rows:
                first = ParquetRows(rows.path, [field.name]).read(0, 1)[field.name]
                data = first.combine_chunks().field("bytes")[0].as_py()
                with source_errors(rows.path, row=0, field=field.name):
                    image = image_field(data or b"", feature.unit if feature else None)
                column = DataColumn(field.name, "image", image)
            columns[field.name] = column
        for name in (_EPISODE_INDEX, _FRAME_INDEX):
            if name not in columns:
                raise SourceError("no such column", file=rows.path, field=name)
        return columns

    def read(
        self, row: EpisodeRow, names: Collection[str], span: range | None = None
    ) -> dict[str, np.ndarray]:
        """Reads columns, by name; for images also their file names, with the suffix `PATH`.

        Args:
          row: The episode.
          names: The columns.
          span: The rows; by default, all rows.

        Raises:
          SourceError: The rows are damaged, or belong to another episode.
        """
        span = range(row.length) if span is None else span
        columns_to_read = _add_key_columns(names)
        table = self._read_table(row, columns_to_read, span)
        columns = self._values(row, columns_to_read, span, table)
        self._check_indices(row, span, columns)
        return columns

    def read_stored(
        self, row: EpisodeRow, names: Collection[str], values: Collection[str]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Reads columns as a stored Arrow table, and decodes some of them.

        Decoded rows of the next episodes are cached.

        Args:
          row: The episode.
          names: The columns.
          values: The columns to decode.

        Raises:
          SourceError: The rows are damaged, or belong to another episode.
        """
        key_columns, cache = (
            [*_add_key_columns(names), "", *_add_key_columns(values)],
            self._cached_rows,
        )
        end = row.start + row.length
        if (
            cache is None
            or cache[:2] != (row.file, key_columns)
            or not (cache[2] <= row.start and end <= cache[2] + cache[3].num_rows)
        ):
            ahead = self._read_ahead(row, _add_key_columns(names), _add_key_columns(values))
            cache = self._cached_rows = row.file, key_columns, row.start, *ahead
        start = row.start - cache[2]
        columns = {name: column[start : start + row.length] for name, column in cache[4].items()}
        self._check_indices(row, range(row.length), columns)
        return cache[3].slice(start, row.length), columns

    def read_stored_rows(self, row: EpisodeRow, lengths: np.ndarray) -> Any:
        """Reads the stored rows of an episode and of the next episodes, as an Arrow table.

        Args:
          row: The first episode.
          lengths: The number of rows of each episode.

        Raises:
          SourceError: The rows are damaged, or belong to other episodes.
        """
        span = range(int(lengths.sum()))
        table = self._read_table(row, [*self.columns], span)
        expected = row.index + np.repeat(np.arange(len(lengths)), lengths)
        if not np.array_equal(flatten_column(table[_EPISODE_INDEX]), expected):
            problem = f"expected rows of {len(lengths)} episodes: they are shifted or missing"
            raise self._damage_error(row, span, _EPISODE_INDEX, problem)
        return table

    def _read_ahead(
        self, row: EpisodeRow, names: Sequence[str], values: Sequence[str]
    ) -> tuple[Any, Any]:
        """Reads the rows of an episode, and further rows unless one of them is damaged."""
        with contextlib.suppress(SourceError):
            table = self._read_table(row, names, range(row.length), ahead=True)
            return table, self._values(row, values, range(table.num_rows), table)
        table = self._read_table(row, names, range(row.length))
        return table, self._values(row, values, range(row.length), table)

    def _values(
        self, row: EpisodeRow, names: Sequence[str], span: range, table: Any
    ) -> dict[str, np.ndarray]:
        values: dict[str, np.ndarray] = {}
        for name in names:
            damage = partial(self._damage_error, row, span, name)
            values[name] = decode_values(self.columns[name], table[name], damage)
            if self.columns[name].kind == "image":
                paths = table[name].combine_chunks().field("path").to_pylist()
                values[name + PATH] = objects([path or "" for path in paths])
        return values

    def _check_indices(self, row: EpisodeRow, span: range, read: Mapping[str, np.ndarray]) -> None:
        """Checks that rows belong to an episode.

        Raises:
          SourceError: Rows are shifted or missing.
        """
        frames = read[_FRAME_INDEX]
        expected_values = {
            _EPISODE_INDEX: np.full(len(span), row.index),
            _FRAME_INDEX: frames[:1] + np.arange(len(span)),
        }
        for name, values in expected_values.items():
            invalid = np.flatnonzero(read[name] != values)
            if len(invalid):
                step = int(invalid[0])
                fault = f"{read[name][step]}, expected {values[step]}: rows are shifted or missing"
                raise self._damage_error(row, span, name, fault, step)

    def _damage_error(
        self, episode: EpisodeRow, span: range, field: str, problem: str, row: int | None = None
    ) -> SourceError:
        row_of_file = None if row is None else episode.start + span.start + row
        file = self._root / episode.file
        return SourceError(problem, file=file, episode=episode.key, row=row_of_file, field=field)

    def _read_table(
        self, row: EpisodeRow, names: Sequence[str], span: range, *, ahead: bool = False
    ) -> Any:
        """Reads rows with a cached reader, which is fast for consecutive rows."""
        file, key = os.fspath(self._root / row.file), tuple(names)
        with source_errors(file, episode=row.key):
            rows = self._readers.pop(key, None)  # Concurrent threads open their own reader.
            if rows is None or rows.path != file:
                rows = ParquetRows(file, names)
                self._check_columns(rows)
            if row.is_whole_file and rows.num_rows != row.length:
                problem = f"{rows.num_rows} rows, but the table of episodes says {row.length}"
                raise SourceError(problem, file=file)
            table = rows.read(row.start + span.start, row.start + span.stop, ahead=ahead)
        while len(self._readers) >= _MAX_OPEN_FILES:
            self._readers.pop(next(iter(self._readers)), None)
        self._readers[key] = rows
        return table

    def _check_columns(self, rows: ParquetRows) -> None:
        expected, names = self.columns.keys(), {*rows.schema.names}
        for name in sorted(expected ^ names):
            problem = "no such column, but other files have it"
            problem = "other files have no such column" if name in names else problem
            raise SourceError(problem, file=rows.path, field=name)


def _add_key_columns(names: Collection[str]) -> list[str]:
    """Adds the columns that identify the rows of an episode to names of columns."""
    return [*dict.fromkeys([*names, _EPISODE_INDEX, _FRAME_INDEX])]
