"""The data files of LeRobot datasets: their columns, for the rows of an episode."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from etils import epath

from rlds.formats.lerobot.columns import Column, column_of, image_field, objects, values_of
from rlds.formats.lerobot.episode_table import EpisodeRow, EpisodeTable
from rlds.formats.lerobot.layout import INFO, Feature
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.formats.lerobot.small_files import encoded_schema
from rlds.raw_files.untrusted import SourceError, source_errors

__all__ = ["PATH", "DataFiles"]

# Ends the name of what a column of images has beside their bytes.
PATH = "/path"

_EPISODE_INDEX, _FRAME_INDEX = "episode_index", "frame_index"
_MAX_OPEN = 8


class DataFiles:
    """Reads columns of the rows of an episode, and checks that they are its rows.

    The first data file that can be read decides what the columns are.

    Args:
      root: The folder of the dataset.
      features: What `info.json` says of the features.
      table: The episodes.

    Attributes:
      columns: The columns, by name.
      schema: The schema of the files, as `encoded_schema` returns it. (A pickle of one of Arrow
        forgets what the elements of lists are called.)

    Raises:
      SourceError: No file can be read.
    """

    def __init__(
        self, root: epath.Path, features: Mapping[str, Feature], table: EpisodeTable
    ) -> None:
        self._root, self._features = root, features
        self._opened: dict[tuple[str, ...], ParquetRows] = {}
        self.columns, self.schema = self._first_columns(table)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}

    def _first_columns(self, table: EpisodeTable) -> tuple[dict[str, Column], str]:
        damage: SourceError | None = None
        tried: set[str] = set()
        for place in range(len(table.indices)):
            try:
                row = table.row(place)
                if row.file not in tried:
                    tried.add(row.file)
                    with source_errors(self._root / row.file, episode=row.key):
                        rows = ParquetRows(self._root / row.file)
                        return self._columns_of(rows), encoded_schema(rows.schema)
            except SourceError as error:
                damage = damage or error
        raise damage or SourceError("there is no episode", file=self._root / INFO)

    def _columns_of(self, rows: ParquetRows) -> dict[str, Column]:
        columns = {}
        for field in rows.schema:
            if field.name in columns:
                raise SourceError("two columns have one name", file=rows.path, field=field.name)
            feature = self._features.get(field.name)
            column = column_of(field, feature)
            if column.kind == "image" and rows.num_rows:
                first = ParquetRows(rows.path, [field.name]).read(0, 1)[field.name]
                data = first.combine_chunks().field("bytes")[0].as_py()
                with source_errors(rows.path, row=0, field=field.name):
                    image = image_field(data or b"", feature.unit if feature else None)
                column = Column(field.name, "image", image)
            columns[field.name] = column
        for name in (_EPISODE_INDEX, _FRAME_INDEX):
            if name not in columns:
                raise SourceError("no such column", file=rows.path, field=name)
        return columns

    def read(
        self,
        row: EpisodeRow,
        names: Collection[str],
        span: range | None = None,
        table: Any = None,
    ) -> dict[str, np.ndarray]:
        """Returns columns by name; of images the names of the files, too, with `PATH`.

        Args:
          row: The episode.
          names: The columns.
          span: Which of its rows; all by default.
          table: These rows, if they have been read already; see `table`.

        Raises:
          SourceError: They are damaged, or not those of the episode.
        """
        span = range(row.length) if span is None else span
        wanted = [*dict.fromkeys([_EPISODE_INDEX, _FRAME_INDEX, *names])]
        table = self._read_table(row, wanted, span) if table is None else table
        found: dict[str, np.ndarray] = {}
        for name in wanted:
            damage = partial(self._damage, row, span, name)
            found[name] = values_of(self.columns[name], table[name], damage)
            if self.columns[name].kind == "image":
                paths = table[name].combine_chunks().field("path").to_pylist()
                found[name + PATH] = objects([path or "" for path in paths])
        frames = found[_FRAME_INDEX]
        numbers = {
            _EPISODE_INDEX: np.full(len(span), row.index),
            _FRAME_INDEX: frames[:1] + np.arange(len(span)),
        }
        for name, expected in numbers.items():
            wrong = np.flatnonzero(found[name] != expected)
            if len(wrong):
                at = int(wrong[0])
                what = f"{found[name][at]}, expected {expected[at]}: rows are shifted or missing"
                raise self._damage(row, span, name, what, at)
        return found

    def table(self, row: EpisodeRow) -> Any:
        """Returns all columns of the rows of an episode as they are stored: a table of Arrow.

        `read` says whether they are its rows.

        Raises:
          SourceError: They are damaged.
        """
        return self._read_table(row, list(self.columns), range(row.length))

    def _damage(
        self, row: EpisodeRow, span: range, field: str, what: str, at: int | None = None
    ) -> SourceError:
        number = None if at is None else row.begin + span.start + at
        file = self._root / row.file
        return SourceError(what, file=file, episode=row.key, row=number, field=field)

    def _read_table(self, row: EpisodeRow, names: Sequence[str], span: range) -> Any:
        """Reads rows, with a reader that goes on where it was last."""
        file, key = os.fspath(self._root / row.file), tuple(names)
        with source_errors(file, episode=row.key):
            rows = self._opened.pop(key, None)  # Another thread has its own.
            if rows is None or rows.path != file:
                rows = ParquetRows(file, names)
                self._check_columns(rows)
            if row.is_whole_file and rows.num_rows != row.length:
                what = f"{rows.num_rows} rows, but the table of episodes says {row.length}"
                raise SourceError(what, file=file)
            table = rows.read(row.begin + span.start, row.begin + span.stop)
        while len(self._opened) >= _MAX_OPEN:
            self._opened.pop(next(iter(self._opened)), None)
        self._opened[key] = rows
        return table

    def _check_columns(self, rows: ParquetRows) -> None:
        missing = self.columns.keys() - {*rows.schema.names}
        others = {*rows.schema.names} - self.columns.keys()
        if missing:
            what = "no such column, but others have one"
            raise SourceError(what, file=rows.path, field=min(missing))
        if others:
            what = "a column that others do not have"
            raise SourceError(what, file=rows.path, field=min(others))
