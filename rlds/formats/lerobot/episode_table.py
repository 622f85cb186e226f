"""The episode metadata of a LeRobot dataset, with the locations of rows and video frames."""

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
from rlds.formats.lerobot.columns import DataColumn, values_of
from rlds.formats.lerobot.layout import Info
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.formats.lerobot.small_files import encoded_schema, read_info, read_lines, walk
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
_FILE, _ROW_OR_OFFSET = "file of the table", "place in the file"
# The first row of an episode in its data file.
_FIRST_ROW = "first row"
_MAX_NUMBER, _NO_NEXT_S = 1 << 62, 1e18
# Rows of a wide table that are read together, which takes little more time than reading one.
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
      begin: The start of the episode in the video, in seconds.
      end: Its end, in seconds; None at the end of the video.
      is_whole_file: True if the file has no other episode.
      next: The start of the next episode in the file; far away if it is the last one.
    """

    file: str
    begin: float
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
      begin: The first row in the file.
      is_whole_file: True if the file has no other rows (2.x).
      videos: The locations of the frames, by the names of video features.
      is_complete: False if a recorder has noted that its last step is missing.
    """

    index: int
    length: int
    file: str
    begin: int
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
      lost: The errors of episodes without a row in the table, by their `episode_index`.
      schema: The schema of the table (3.0), as `encoded_schema` returns it.
      is_sound: True if `row` raises no error for any episode.

    Raises:
      SourceError: The table is damaged.
      FileNotFoundError: There is none.
    """

    def __init__(self, root: epath.Path, info: Info) -> None:
        self._root, self._info = root, info
        self.schema: str | None = None
        self._files: list[str] = []  # Of the table.
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
        self.lost = self._find_lost()
        self.indices, self.lengths = indices, self._columns[_LENGTH]
        if self.lost:
            self.indices = np.union1d(indices, np.array([*self.lost], np.int64))
            self.lengths = np.zeros(len(self.indices), np.int64)
            self.lengths[np.isin(self.indices, indices)] = self._columns[_LENGTH]
        self.is_sound = not self.lost and self._has_sound_numbers()
        self._stats_lines: dict[int, int] | None = None
        self._rows: ParquetRows | None = None
        self._cached: tuple[str, int, dict[str, Any]] | None = None  # The rows that were read last.

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None, "_cached": None}  # They are open.

    def row(self, position: int) -> EpisodeRow:
        """Returns the index, length and file locations of an episode.

        Args:
          position: The position in `indices`.

        Raises:
          SourceError: It is damaged or missing; says where.
        """
        cells = self._cells(position)
        index, length, begin = cells[_INDEX], cells[_LENGTH], cells.get(_FROM, 0)
        fault = ""
        for name, value in () if self.is_sound else cells.items():
            if not 0 <= value < _MAX_NUMBER:
                fault = f"{name}: {value!r:.100}, expected a number"
        if cells.get(_TO, length) != begin + length:
            fault = f"{_TO}: {cells[_TO]}, but {_FROM} is {begin} and the length {length}"
        if fault:
            file = self._files[cells[_FILE]]
            raise SourceError(
                fault, file=file, row=cells[_ROW_OR_OFFSET], episode=layout.episode_key(index)
            )
        videos = {}
        for name in self._info.videos:
            chunk, file_index, start, end = (
                cells.get(column) for column in layout.video_columns(name)
            )
            file = self._info.video_file(index, name, chunk or 0, file_index or 0)
            is_whole_file = bool(cells.get(_single_episode_column(name), True))
            after = cells.get(_next_start_column(name), _NO_NEXT_S)
            videos[name] = VideoSpan(file, start or 0.0, end, is_whole_file, after)
        file = self._info.data_file(index, *(cells.get(name, 0) for name in _DATA_FILE))
        is_whole_file = not self._info.is_v3
        is_complete = bool(cells.get(COMPLETE, True))
        begin = cells.get(_FIRST_ROW, 0)
        return EpisodeRow(index, length, file, begin, is_whole_file, videos, is_complete)

    def full_row(self, position: int) -> dict[str, Any]:
        """Returns the complete metadata of an episode, under the names of version 3.0.

        Numbers of statistics may be in an array.
        """
        cells = self._cells(position)
        file, at = self._files[cells[_FILE]], cells[_ROW_OR_OFFSET]
        if not self._info.is_v3:
            return {**_line_at(file, at), **self._statistics(cells[_INDEX])}
        begin, cached = at - at % _ROWS_PER_READ, self._cached
        if cached is None or cached[:2] != (file, begin):
            rows, self._rows = self._rows, None  # Another thread makes its own.
            if rows is None or rows.path != file:
                rows = ParquetRows(file)
            end = min(begin + _ROWS_PER_READ, rows.num_rows)
            with source_errors(file, row=at):
                cached = file, begin, _decoded_columns(rows.read(begin, end))
            self._rows, self._cached = rows, cached
        return {name: column[at - begin] for name, column in cached[2].items()}

    def rows_by_file(self, span: range) -> Iterator[tuple[range, Any]]:
        """Yields ranges of episodes in the same files, each with its rows of the table (3.0).

        Args:
          span: The positions in `indices`, of a sound table that has them in order.
        """
        columns = [self._columns[name][span.start : span.stop] for name in (_FILE, *_DATA_FILE)]
        differ = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        ends = [*(np.flatnonzero(differ) + 1).tolist(), len(span)]
        for begin, end in zip([0, *ends], ends):
            some = span[begin:end]
            file, first = (self._columns[name][some.start] for name in (_FILE, _ROW_OR_OFFSET))
            yield some, ParquetRows(self._files[file]).read(int(first), int(first) + len(some))

    def column(self, name: str) -> np.ndarray:
        """Returns the numbers that a column of the table has (3.0), in the order of its files."""
        parts = []
        for file in self._files:
            rows = ParquetRows(file, [name])
            parts.append(_numbers(rows.read(0, rows.num_rows), name, file))
        return np.concatenate(parts)

    def _has_sound_numbers(self) -> bool:
        columns = self._columns
        are_numbers = [
            ((column >= 0) & (column < _MAX_NUMBER)).all() for column in columns.values()
        ]
        ends = columns.get(_FROM, 0) + columns[_LENGTH]
        return all(are_numbers) and bool((columns.get(_TO, ends) == ends).all())

    def _cells(self, position: int) -> dict[str, Any]:
        """The numbers of an episode, by the names of columns."""
        index = int(self.indices[position])
        if index in self.lost:
            error = self.lost[index]
            raise SourceError(error.what, file=error.file, episode=layout.episode_key(index))
        at = int(np.searchsorted(self._columns[_INDEX], index))
        return {name: column[at].item() for name, column in self._columns.items()}

    def _statistics(self, index: int) -> dict[str, Any]:
        """Returns the statistics of an episode of version 2.1, which are in a file of their own."""
        file = self._root / layout.EPISODES_STATS
        if self._stats_lines is None:
            lines = read_lines(file) if file.exists() else ()
            self._stats_lines = {int(raw[_INDEX]): offset for offset, raw in lines}
        if index not in self._stats_lines:
            return {}
        features = _line_at(file, self._stats_lines[index])["stats"]
        return {
            f"stats/{feature}/{kind}": value
            for feature, kinds in features.items()
            for kind, value in kinds.items()
        }

    # --- What is read when the dataset is opened.

    def _read_lines(self) -> dict[str, np.ndarray]:
        """Reads the numbers of versions 2.0 and 2.1."""
        file = self._root / layout.EPISODES_JSONL
        self._files = [os.fspath(file)]
        rows: dict[Any, tuple[Any, ...]] = {}
        for row_index, (offset, raw) in enumerate(read_lines(file)):
            index, length = raw.get(_INDEX), raw.get(_LENGTH)
            if not all(type(n) is int and 0 <= n < _MAX_NUMBER for n in (index, length)):
                fault = f"{raw!r:.200}, expected an {_INDEX} and a {_LENGTH}"
                raise SourceError(fault, file=file, row=row_index)
            if index in rows:
                raise SourceError(f"episode {index} has a second line", file=file, row=row_index)
            rows[index] = (index, length, 0, offset)
        table = np.array([*rows.values()], np.int64).reshape(-1, 4)
        return dict(zip((_INDEX, _LENGTH, _FILE, _ROW_OR_OFFSET), table.T))

    def _read_tables(self) -> dict[str, np.ndarray]:
        """Reads the numbers of version 3.0."""
        folder = self._root / layout.EPISODES_FOLDER
        needed = [_INDEX, _LENGTH, _FROM, _TO, *_DATA_FILE]
        needed += [column for video in self._info.videos for column in layout.video_columns(video)]
        parts = []
        for file in sorted(walk(folder, ".parquet"), key=os.fspath):
            try:
                rows = ParquetRows(file)
                names = {*rows.schema.names}
                for name in needed:
                    if name not in names:
                        raise SourceError("no such column", file=rows.path, field=name)
                rows.columns = [*needed, *({COMPLETE} & names)]
                table = rows.read(0, rows.num_rows)
                part = {name: _numbers(table, name, rows.path) for name in needed}
                part[COMPLETE] = np.ones(rows.num_rows, bool)
                if COMPLETE in names:
                    flags = [flag is not False for flag in table[COMPLETE].to_pylist()]
                    part[COMPLETE] = np.array(flags, bool)
            except SourceError as error:
                self._unreadable.append(error)
                continue
            self.schema = self.schema or encoded_schema(rows.schema)
            part[_FILE] = np.full(rows.num_rows, len(self._files))
            part[_ROW_OR_OFFSET] = np.arange(rows.num_rows)
            self._files.append(rows.path)
            parts.append(part)
        if not parts:
            missing = FileNotFoundError(
                f"{os.fspath(folder)!r} has no Parquet files. If a recording was interrupted, run "
                "`rlds recover`"
            )
            raise self._unreadable[0] if self._unreadable else missing
        columns = parts[0]
        if len(parts) > 1:
            columns = {name: np.concatenate([part[name] for part in parts]) for name in columns}
        # Row offsets count over all data files; the least offset in a file is its first row.
        _, groups = _group_equal_rows(*(columns[name] for name in _DATA_FILE))
        firsts = np.full(len(groups), _MAX_NUMBER)
        np.minimum.at(firsts, groups, columns[_FROM])
        columns[_FIRST_ROW] = columns[_FROM] - firsts[groups]
        for video in self._info.videos:
            _, groups = _group_equal_rows(
                *(columns[name] for name in layout.video_columns(video)[:2])
            )
            columns[_single_episode_column(video)] = np.bincount(groups)[groups] == 1
            begins = columns[layout.video_columns(video)[2]]
            order = np.lexsort((begins, groups))
            after = np.append(begins[order][1:], _NO_NEXT_S)
            after[np.diff(groups[order], append=-1) != 0] = _NO_NEXT_S
            columns[_next_start_column(video)] = np.empty_like(after)
            columns[_next_start_column(video)][order] = after
        return columns

    def _find_lost(self) -> dict[int, SourceError]:
        """Returns errors of episodes that have rows but no table row: an interrupted recording.

        Returns:
          The errors, by `episode_index`; by an unused number if the index is unknown.
        """
        table = layout.EPISODES_FOLDER if self._info.is_v3 else layout.EPISODES_JSONL
        listed = self._columns[_INDEX]
        paths = [self._columns[name] for name in _DATA_FILE if name in self._columns]
        is_of_many = "{episode" not in self._info.data_path
        firsts, groups = _group_equal_rows(*(paths if is_of_many else [listed]))
        totals = np.zeros(len(firsts), np.int64)
        np.add.at(totals, groups, self._columns[_LENGTH])
        num_named: collections.Counter[str] = collections.Counter()
        files = zip(*(column[firsts].tolist() for column in (totals[groups], listed, *paths)))
        for total, index, *numbers in files:
            num_named[self._info.data_file(index, *numbers)] += total
        begin = len(os.fspath(self._root)) + 1
        lost: dict[int, SourceError] = {}
        for file in walk(self._root / "data", ".parquet"):
            named = num_named[os.fspath(file)[begin:]]
            if named and not self._info.is_v3:
                continue  # A file of version 2.x has one episode.
            fault = (
                f"the data files have its rows, but {table} does not list it. If its recording "
                "was interrupted, run `rlds recover`"
            )
            indices: list[int] = []
            try:
                rows = ParquetRows(file, [_INDEX])
                if rows.num_rows <= named:
                    continue
                column = _numbers(rows.read(0, rows.num_rows), _INDEX, rows.path)
                indices = np.setdiff1d(column[column >= 0], listed).tolist()
            except SourceError as error:
                if named:
                    continue  # The error of the listed episodes shows it.
                fault = f"{table} does not name the file, and {error.what}"
            fault = "; ".join([fault, *map(str, self._unreadable)])
            for index in indices or [_unused_index({*listed.tolist(), *lost})]:
                lost[index] = SourceError(fault, file=file)
        if self._unreadable and not lost:
            lost[_unused_index({*listed.tolist()})] = self._unreadable[0]
        return lost


def _single_episode_column(video: str) -> str:
    """Returns the name of the column that marks episodes alone in their video file."""
    return f"videos/{video}/alone"


def _next_start_column(video: str) -> str:
    """Returns the column with the start of the next episode in a video file."""
    return f"videos/{video}/next"


def _group_equal_rows(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups equal rows: returns the first row of each group, and the group of each row."""
    rows = np.stack(columns)
    is_new = (rows[:, 1:] != rows[:, :-1]).any(axis=0)
    # Most rows equal the one before.
    begins = np.flatnonzero(np.append(np.ones(min(rows.shape[1], 1), bool), is_new))
    _, firsts, groups = np.unique(rows[:, begins], axis=1, return_index=True, return_inverse=True)
    return begins[firsts], np.repeat(groups, np.diff(begins, append=rows.shape[1]))


def _unused_index(taken: set[int]) -> int:
    return next(index for index in itertools.count(len(taken)) if index not in taken)


def _line_at(file: stores.PathLike, offset: int) -> dict[str, Any]:
    with source_errors(file), stores.open_binary(file) as opened:
        opened.seek(offset)
        line: dict[str, Any] = json.loads(opened.readline())
        return line


def _decoded_columns(table: Any) -> dict[str, Any]:
    """Decodes table columns: statistics of equal shape to arrays, others to lists."""
    values: dict[str, Any] = {}
    for name in table.column_names:
        if name.startswith("stats/"):
            with contextlib.suppress(ValueError):  # Shapes differ, or a value is missing.
                first = np.asarray(table[name][0].as_py())
                column = DataColumn(name, "numbers", Field(first.dtype, first.shape))
                values[name] = values_of(column, table[name], partial(SourceError, file=name))
        if name not in values:
            values[name] = table[name].to_pylist()
    return values


def _numbers(table: Any, name: str, file: str) -> np.ndarray:
    field = Field(np.float64 if name.endswith("_timestamp") else np.int64)
    damage = partial(SourceError, file=file, field=name)
    return values_of(DataColumn(name, "numbers", field), table[name], damage)
