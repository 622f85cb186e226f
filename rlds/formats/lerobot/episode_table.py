"""The table of episodes of a LeRobot dataset, with the locations of rows and frames."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from etils import epath

from rlds.formats.lerobot import layout
from rlds.formats.lerobot.columns import DataColumn, decode_values
from rlds.formats.lerobot.layout import Info
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.formats.lerobot.small_files import encode_schema, read_info, read_lines, walk
from rlds.raw_files.untrusted import source_errors
from rlds.sources.episode_fields import COMPLETE
from rlds.sources.source import SourceError
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field

__all__ = ["EpisodeMetadata", "EpisodeRow", "VideoSpan", "episodes_of_tasks"]

_INDEX, _LENGTH, _TASKS = "episode_index", "length", "tasks"
_DATA_FILE = ("data/chunk_index", "data/file_index")
_FROM, _TO = "dataset_from_index", "dataset_to_index"
# The location of an episode in the table: the file, and its row (3.0) or byte offset (2.x).
_FILE, _ROW_OR_OFFSET = "file of the table", "row or offset"
# The first row of an episode in its data file.
_FIRST_ROW = "first row"
_MAX_INDEX, _NEVER_S = 1 << 62, 1e18
# The number of rows to read at once from a wide table, which is as fast as reading one row.
_ROWS_PER_READ = 64


def episodes_of_tasks(root: epath.Path) -> Mapping[str, int]:
    """Returns the number of episodes of each task; empty if a table cannot be read."""
    with contextlib.suppress(SourceError):
        lists = (tasks for tasks in _task_lists(root) if isinstance(tasks, list))
        return collections.Counter(text for tasks in lists for text in {*map(str, tasks)})
    return {}


def _task_lists(root: epath.Path) -> Iterator[Any]:
    if not read_info(root).is_v3:
        yield from (raw.get(_TASKS) for _, raw in read_lines(root / layout.EPISODES_JSONL))
        return
    for path in walk(root / layout.EPISODES_FOLDER, ".parquet"):
        rows = ParquetRows(path, [_TASKS])
        if _TASKS in rows.schema.names:
            yield from rows.read(0, rows.num_rows)[_TASKS].to_pylist()


@dataclasses.dataclass(frozen=True)
class VideoSpan:
    """The location of an episode in a video file.

    Attributes:
      file: The file, below the dataset.
      start: The start of the episode in the video, in seconds.
      end: The end of the episode, in seconds; None at the end of the video.
      is_whole_file: True if the file has no other episode.
      next: The start of the next episode in the file; a large number for the last episode.
    """

    file: str
    start: float
    end: float | None
    is_whole_file: bool
    next: float


@dataclasses.dataclass(frozen=True)
class EpisodeRow:
    """The index, length and file locations of an episode, from the LeRobot episode table.

    Attributes:
      index: The `episode_index`.
      length: The number of rows.
      file: The data file, below the dataset.
      start: The first row in the file.
      is_whole_file: True if the file has no other rows (2.x).
      videos: The locations of the frames, by the names of video features.
      is_complete: False if the recorder marked the last step as missing.
    """

    index: int
    length: int
    file: str
    start: int
    is_whole_file: bool
    videos: Mapping[str, VideoSpan]
    is_complete: bool = True

    @property
    def key(self) -> str:
        """The key of the episode."""
        return layout.episode_key(self.index)


class EpisodeMetadata:
    """The table of episodes of a dataset: lines of JSON (2.x), or Parquet files (3.0).

    Args:
      root: The folder of the dataset.
      info: The content of `info.json`.

    Attributes:
      indices: The `episode_index` of all episodes, in order.
      lengths: The number of rows of each episode, 0 if unknown.
      errors: The errors of episodes without a row in the table, by their `episode_index`.
      schema: The schema of the table (3.0), encoded by `encode_schema`.
      is_valid: True if `row` raises no error for any episode.

    Raises:
      SourceError: The table is damaged.
      FileNotFoundError: There is no table.
    """

    def __init__(self, root: epath.Path, info: Info) -> None:
        self._root, self._info = root, info
        self.schema: str | None = None
        self._files: list[str] = []  # The files of the table.
        self._unreadable: list[SourceError] = []
        self._columns = self._read_tables() if info.is_v3 else self._read_lines()
        indices = self._columns[_INDEX]
        if (indices[1:] < indices[:-1]).any():
            order = np.argsort(indices, kind="stable")
            self._columns = {name: column[order] for name, column in self._columns.items()}
            indices = self._columns[_INDEX]
        duplicates = np.flatnonzero(indices[1:] == indices[:-1]) + 1
        if len(duplicates):
            file = self._files[self._columns[_FILE][duplicates[0]]]
            raise SourceError(
                f"episode {indices[duplicates[0]]} has a second row", file=file, field=_INDEX
            )
        self.errors = self._find_errors()
        self.indices, self.lengths = indices, self._columns[_LENGTH]
        if self.errors:
            self.indices = np.union1d(indices, np.array([*self.errors], np.int64))
            self.lengths = np.zeros(len(self.indices), np.int64)
            self.lengths[np.isin(self.indices, indices)] = self._columns[_LENGTH]
        self.is_valid = not self.errors and self._has_valid_numbers()
        self._stats_lines: dict[int, int] | None = None
        self._rows: ParquetRows | None = None
        self._cached_rows: tuple[str, int, dict[str, Any]] | None = None  # The last rows.

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None, "_cached_rows": None}

    def row(self, position: int) -> EpisodeRow:
        """Returns the index, length and file locations of an episode.

        Args:
          position: The position in `indices`.

        Raises:
          SourceError: The row is damaged or missing.
        """
        cells = self._cells(position)
        index, length, start = cells[_INDEX], cells[_LENGTH], cells.get(_FROM, 0)
        problem = ""
        for name, value in () if self.is_valid else cells.items():
            if not 0 <= value < _MAX_INDEX:
                problem = f"{name}: {value!r:.100}, expected a number"
        if cells.get(_TO, length) != start + length:
            problem = f"{_TO}: {cells[_TO]}, but {_FROM} is {start} and the length {length}"
        if problem:
            file = self._files[cells[_FILE]]
            raise SourceError(
                problem, file=file, row=cells[_ROW_OR_OFFSET], episode=layout.episode_key(index)
            )
        videos = {}
        for name in self._info.videos:
            chunk, file_index, from_s, to_s = map(cells.get, layout.video_columns(name))
            file = self._info.video_file(index, name, chunk or 0, file_index or 0)
            is_whole_file = bool(cells.get(_single_episode_column(name), True))
            next_start = cells.get(_next_start_column(name), _NEVER_S)
            videos[name] = VideoSpan(file, from_s or 0.0, to_s, is_whole_file, next_start)
        file = self._info.data_file(index, *(cells.get(name, 0) for name in _DATA_FILE))
        is_whole_file = not self._info.is_v3
        is_complete = bool(cells.get(COMPLETE, True))
        start = cells.get(_FIRST_ROW, 0)
        return EpisodeRow(index, length, file, start, is_whole_file, videos, is_complete)

    def full_row(self, position: int) -> dict[str, Any]:
        """Returns the complete row of an episode, with the names of version 3.0."""
        cells = self._cells(position)
        file, offset = self._files[cells[_FILE]], cells[_ROW_OR_OFFSET]
        if not self._info.is_v3:
            return {**_read_line(file, offset), **self._statistics(cells[_INDEX])}
        start, cached = offset - offset % _ROWS_PER_READ, self._cached_rows
        if cached is None or cached[:2] != (file, start):
            rows, self._rows = self._rows, None  # Concurrent threads open their own reader.
            if rows is None or rows.path != file:
                rows = ParquetRows(file)
            end = min(start + _ROWS_PER_READ, rows.num_rows)
            with source_errors(file, row=offset):
                cached = file, start, _decode_columns(rows.read(start, end))
            self._rows, self._cached_rows = rows, cached
        return {name: column[offset - start] for name, column in cached[2].items()}

    def rows_by_file(self, span: range) -> Iterator[tuple[range, Any]]:
        """Yields ranges of episodes in the same files, and their rows of the table (3.0).

        Args:
          span: The positions in `indices`, of a valid table in order.
        """
        columns = [self._columns[name][span.start : span.stop] for name in (_FILE, *_DATA_FILE)]
        differ = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        end_rows = [*(np.flatnonzero(differ) + 1).tolist(), len(span)]
        for start, end in zip([0, *end_rows], end_rows):
            positions = span[start:end]
            file, row = (self._columns[name][positions.start] for name in (_FILE, _ROW_OR_OFFSET))
            rows = ParquetRows(self._files[file])
            yield positions, rows.read(int(row), int(row) + len(positions))

    def column(self, name: str) -> np.ndarray:
        """Returns a numeric column of the table (3.0), in the order of the files."""
        tables = []
        for file in self._files:
            rows = ParquetRows(file, [name])
            tables.append(_read_numbers(rows.read(0, rows.num_rows), name, file))
        return np.concatenate(tables)

    def _has_valid_numbers(self) -> bool:
        columns = self._columns
        are_numbers = [((column >= 0) & (column < _MAX_INDEX)).all() for column in columns.values()]
        end_rows = columns.get(_FROM, 0) + columns[_LENGTH]
        return all(are_numbers) and bool((columns.get(_TO, end_rows) == end_rows).all())

    def _cells(self, position: int) -> dict[str, Any]:
        """Returns the numeric cells of an episode, by column."""
        index = int(self.indices[position])
        if index in self.errors:
            error = self.errors[index]
            raise SourceError(error.problem, file=error.file, episode=layout.episode_key(index))
        row = int(np.searchsorted(self._columns[_INDEX], index))
        return {name: column[row].item() for name, column in self._columns.items()}

    def _statistics(self, index: int) -> dict[str, Any]:
        """Returns the statistics of an episode (2.1), from a separate file."""
        file = self._root / layout.EPISODES_STATS
        if self._stats_lines is None:
            lines = read_lines(file) if file.exists() else ()
            self._stats_lines = {int(raw[_INDEX]): offset for offset, raw in lines}
        if index not in self._stats_lines:
            return {}
        features = _read_line(file, self._stats_lines[index])["stats"]
        return {
            f"stats/{feature}/{kind}": value
            for feature, kinds in features.items()
            for kind, value in kinds.items()
        }

    # --- Opening of the dataset.

    def _read_lines(self) -> dict[str, np.ndarray]:
        """Reads the numeric cells of versions 2.0 and 2.1."""
        file = self._root / layout.EPISODES_JSONL
        self._files = [os.fspath(file)]
        rows: dict[Any, tuple[Any, ...]] = {}
        for row_index, (offset, raw) in enumerate(read_lines(file)):
            index, length = raw.get(_INDEX), raw.get(_LENGTH)
            if not all(type(n) is int and 0 <= n < _MAX_INDEX for n in (index, length)):
                problem = f"{raw!r:.200}, expected an {_INDEX} and a {_LENGTH}"
                raise SourceError(problem, file=file, row=row_index)
            if index in rows:
                raise SourceError(f"episode {index} has a second line", file=file, row=row_index)
            rows[index] = (index, length, 0, offset)
        table = np.array([*rows.values()], np.int64).reshape(-1, 4)
        return dict(zip((_INDEX, _LENGTH, _FILE, _ROW_OR_OFFSET), table.T))

    def _read_tables(self) -> dict[str, np.ndarray]:
        """Reads the numeric cells of version 3.0."""
        folder = self._root / layout.EPISODES_FOLDER
        required = [_INDEX, _LENGTH, _FROM, _TO, *_DATA_FILE]
        required += [column for v in self._info.videos for column in layout.video_columns(v)]
        tables = []
        for file in sorted(walk(folder, ".parquet"), key=os.fspath):
            try:
                rows = ParquetRows(file)
                names = {*rows.schema.names}
                for name in required:
                    if name not in names:
                        raise SourceError("no such column", file=rows.path, field=name)
                rows.columns = [*required, *({COMPLETE} & names)]
                table = rows.read(0, rows.num_rows)
                columns = {name: _read_numbers(table, name, rows.path) for name in required}
                columns[COMPLETE] = np.ones(rows.num_rows, bool)
                if COMPLETE in names:
                    flags = [flag is not False for flag in table[COMPLETE].to_pylist()]
                    columns[COMPLETE] = np.array(flags, bool)
            except SourceError as error:
                self._unreadable.append(error)
                continue
            self.schema = self.schema or encode_schema(rows.schema)
            columns[_FILE] = np.full(rows.num_rows, len(self._files))
            columns[_ROW_OR_OFFSET] = np.arange(rows.num_rows)
            self._files.append(rows.path)
            tables.append(columns)
        if not tables:
            missing = FileNotFoundError(
                f"{os.fspath(folder)!r} has no Parquet files. If a recording was interrupted, run "
                "`rlds recover`"
            )
            raise self._unreadable[0] if self._unreadable else missing
        columns = tables[0]
        if len(tables) > 1:
            columns = {name: np.concatenate([table[name] for table in tables]) for name in columns}
        # Row offsets count over all data files; the least offset in a file is its first row.
        _, groups = _group_equal_rows(*(columns[name] for name in _DATA_FILE))
        file_starts = np.full(len(groups), _MAX_INDEX)
        np.minimum.at(file_starts, groups, columns[_FROM])
        columns[_FIRST_ROW] = columns[_FROM] - file_starts[groups]
        for video in self._info.videos:
            chunk, file_index = layout.video_columns(video)[:2]
            _, groups = _group_equal_rows(columns[chunk], columns[file_index])
            columns[_single_episode_column(video)] = np.bincount(groups)[groups] == 1
            start_times = columns[layout.video_columns(video)[2]]
            order = np.lexsort((start_times, groups))
            next_starts = np.append(start_times[order][1:], _NEVER_S)
            next_starts[np.diff(groups[order], append=-1) != 0] = _NEVER_S
            columns[_next_start_column(video)] = np.empty_like(next_starts)
            columns[_next_start_column(video)][order] = next_starts
        return columns

    def _find_errors(self) -> dict[int, SourceError]:
        """Returns errors of episodes without a row in the table, after an interrupted recording.

        Returns:
          The errors, by `episode_index`, or by an unused index if it is unknown.
        """
        table = layout.EPISODES_FOLDER if self._info.is_v3 else layout.EPISODES_JSONL
        table_indices = self._columns[_INDEX]
        paths = [self._columns[name] for name in _DATA_FILE if name in self._columns]
        is_shared = "{episode" not in self._info.data_path
        first_rows, groups = _group_equal_rows(*(paths if is_shared else [table_indices]))
        totals = np.zeros(len(first_rows), np.int64)
        np.add.at(totals, groups, self._columns[_LENGTH])
        num_listed: collections.Counter[str] = collections.Counter()
        columns = (totals[groups], table_indices, *paths)
        for total, index, *location in zip(*(column[first_rows].tolist() for column in columns)):
            num_listed[self._info.data_file(index, *location)] += total
        start = len(os.fspath(self._root)) + 1
        errors: dict[int, SourceError] = {}
        for file in walk(self._root / "data", ".parquet"):
            num_rows = num_listed[os.fspath(file)[start:]]
            if num_rows and not self._info.is_v3:
                continue  # A file of version 2.x has one episode.
            problem = (
                f"the data files have its rows, but {table} does not list it. If its recording "
                "was interrupted, run `rlds recover`"
            )
            indices: list[int] = []
            try:
                rows = ParquetRows(file, [_INDEX])
                if rows.num_rows <= num_rows:
                    continue
                column = _read_numbers(rows.read(0, rows.num_rows), _INDEX, rows.path)
                indices = np.setdiff1d(column[column >= 0], table_indices).tolist()
            except SourceError as error:
                if num_rows:
                    continue  # Reading its episodes raises the error.
                problem = f"{table} does not name the file, and {error.problem}"
            problem = "; ".join([problem, *map(str, self._unreadable)])
            for index in indices or [_unused_index({*table_indices.tolist(), *errors})]:
                errors[index] = SourceError(problem, file=file)
        if self._unreadable and not errors:
            errors[_unused_index({*table_indices.tolist()})] = self._unreadable[0]
        return errors


def _single_episode_column(video: str) -> str:
    """Returns the name of the column that marks single episodes of video files."""
    return f"videos/{video}/alone"


def _next_start_column(video: str) -> str:
    """Returns the column with the start of the next episode in a video file."""
    return f"videos/{video}/next"


def _group_equal_rows(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups equal rows: returns the first row of each group, and the group of each row."""
    rows = np.stack(columns)
    is_new = (rows[:, 1:] != rows[:, :-1]).any(axis=0)
    # Most rows equal the previous row.
    run_starts = np.flatnonzero(np.append(np.ones(min(rows.shape[1], 1), bool), is_new))
    _, runs, groups = np.unique(rows[:, run_starts], axis=1, return_index=True, return_inverse=True)
    return run_starts[runs], np.repeat(groups, np.diff(run_starts, append=rows.shape[1]))


def _unused_index(used: set[int]) -> int:
    return next(index for index in itertools.count(len(used)) if index not in used)


def _read_line(file: stores.PathLike, offset: int) -> dict[str, Any]:
    with source_errors(file), stores.open_binary(file) as stream:
        stream.seek(offset)
        line: dict[str, Any] = json.loads(stream.readline())
        return line


def _decode_columns(table: Any) -> dict[str, Any]:
    """Decodes table columns: statistics of equal shape to arrays, all other columns to lists."""
    values: dict[str, Any] = {}
    for name in table.column_names:
        if name.startswith("stats/"):
            with contextlib.suppress(ValueError):  # Shapes differ, or a value is missing.
                first_value = np.asarray(table[name][0].as_py())
                column = DataColumn(name, "numbers", Field(first_value.dtype, first_value.shape))
                values[name] = decode_values(column, table[name], partial(SourceError, file=name))
        if name not in values:
            values[name] = table[name].to_pylist()
    return values


def _read_numbers(table: Any, name: str, file: str) -> np.ndarray:
    field = Field(np.float64 if name.endswith("_timestamp") else np.int64)
    damage = partial(SourceError, file=file, field=name)
    return decode_values(DataColumn(name, "numbers", field), table[name], damage)
