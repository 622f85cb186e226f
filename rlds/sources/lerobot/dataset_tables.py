"""The tables of LeRobot datasets: episodes, tasks, and the small files beside them."""

from __future__ import annotations

import abc
import base64
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rlds.sources.lerobot.layout import (
    EPISODES_JSONL,
    EPISODES_STATS,
    INFO,
    TASKS,
    TASKS_JSONL,
    EpisodeRow,
    Info,
    video_columns,
)
from rlds.sources.lerobot.parquet_rows import ParquetRows, size_of
from rlds.sources.source import SourceError
from rlds.sources.untrusted import check_is_file, source_errors
from rlds_ecosystem import stores

__all__ = [
    "EpisodeTable",
    "encoded_schema",
    "episode_table",
    "other_files",
    "read_info",
    "read_tasks",
    "task_text",
    "walk",
]

_EPISODES = "meta/episodes"
_MAX_JSON = 1 << 28
# The other files that a dataset's metadata keeps, together.
_MAX_OTHERS = 1 << 25


def read_info(root: epath.Path) -> Info:
    """Reads info.json; which version the files are of is seen from them."""
    file = root / INFO
    raw = _json(file)
    is_v3 = None
    if (root / EPISODES_JSONL).exists():
        is_v3 = False
    elif (root / _EPISODES).exists():
        is_v3 = True
    return Info.from_json(raw, file, is_v3=is_v3)


class EpisodeTable(abc.ABC):
    """What is said of each episode.

    Attributes:
      indices: The `episode_index` of all episodes, in order.
      lengths: How many rows each has, 0 if it is not known.
      lost: Why nothing is said of some, which are among `indices`.
      schema: The schema of the table (3.0), as `encoded_schema` returns it.
    """

    indices: np.ndarray
    lengths: np.ndarray
    lost: str = ""
    schema: str | None = None

    def __init__(self, info: Info) -> None:
        self._info = info

    @abc.abstractmethod
    def row(self, place: int) -> EpisodeRow:
        """Returns what is needed to read an episode.

        Args:
          place: Which of `indices`.

        Raises:
          SourceError: It is damaged or missing; says where.
        """

    @abc.abstractmethod
    def whole(self, place: int) -> tuple[Any, Any]:
        """Returns all that the tables say of an episode, and its statistics if they are apart."""

    def first_row(self, row: EpisodeRow) -> int:
        """Returns which row of its file an episode begins with."""
        del row
        return 0

    def is_alone(self, row: EpisodeRow, video: str) -> bool:
        """Whether the video of an episode has no other one."""
        del row, video
        return True

    def companions(self, row: EpisodeRow, video: str) -> list[EpisodeRow]:
        """Returns all episodes of the video of an episode, in order."""
        del video
        return [row]


def episode_table(root: epath.Path, info: Info) -> EpisodeTable:
    """Reads which episodes there are.

    Raises:
      SourceError: The table is damaged.
      FileNotFoundError: There is none.
    """
    return ParquetTable(root, info) if info.is_v3 else LineTable(root, info)


class LineTable(EpisodeTable):
    """That of versions 2.0 and 2.1: a line of JSON for each episode."""

    def __init__(self, root: epath.Path, info: Info) -> None:
        super().__init__(info)
        self._file, self._stats_file = root / EPISODES_JSONL, root / EPISODES_STATS
        found: dict[int, tuple[int, int]] = {}
        for number, (offset, raw) in enumerate(_lines(self._file)):
            try:
                row = EpisodeRow.from_json(raw, info.videos, is_v3=False)
            except ValueError as error:
                raise SourceError(str(error), file=self._file, row=number) from error
            if row.index in found:
                what = f"a second line of episode {row.index}"
                raise SourceError(what, file=self._file, row=number)
            found[row.index] = offset, row.length
        self.indices = np.array(sorted(found), np.int64)
        self._offsets = {index: offset for index, (offset, _) in found.items()}
        self.lengths = np.array([found[index][1] for index in sorted(found)], np.int64)
        self._stats: dict[int, int] | None = None

    def row(self, place: int) -> EpisodeRow:
        """See `EpisodeTable`."""
        raw = {"episode_index": int(self.indices[place]), "length": int(self.lengths[place])}
        return EpisodeRow.from_json(raw, self._info.videos, is_v3=False)

    def whole(self, place: int) -> tuple[Any, Any]:
        """See `EpisodeTable`."""
        index = int(self.indices[place])
        if self._stats is None:
            self._stats = {}
            if self._stats_file.exists():
                for offset, raw in _lines(self._stats_file):
                    self._stats[int(raw["episode_index"])] = offset
        raw = _line_at(self._file, self._offsets[index])
        if index not in self._stats:
            return raw, None
        return raw, _line_at(self._stats_file, self._stats[index])


class ParquetTable(EpisodeTable):
    """That of version 3.0: Parquet files with a row for each episode."""

    def __init__(self, root: epath.Path, info: Info) -> None:
        super().__init__(info)
        wanted = ["episode_index", "length", "dataset_from_index", "dataset_to_index"]
        wanted += ["data/chunk_index", "data/file_index"]
        for video in info.videos:
            wanted += video_columns(video)
        self._files: list[str] = []
        parts, unreadable = [], []
        for file in sorted(walk(root / _EPISODES, ".parquet"), key=os.fspath):
            try:
                rows = ParquetRows(file)
                missing = [name for name in wanted if name not in rows.schema.names]
                if missing:
                    raise SourceError("no such column", file=rows.path, field=missing[0])
                part = ParquetRows(file, wanted).read(0, rows.num_rows)
            except SourceError as error:
                unreadable.append(error)
                continue
            self.schema = self.schema or encoded_schema(rows.schema)
            numbers = {name: _column(part, name, rows.path) for name in wanted}
            numbers["file"] = np.full(rows.num_rows, len(self._files))
            numbers["row"] = np.arange(rows.num_rows)
            self._files.append(rows.path)
            parts.append(numbers)
        if not parts:
            raise (
                unreadable[0]
                if unreadable
                else FileNotFoundError(f"{os.fspath(root / _EPISODES)!r} has no Parquet files.")
            )
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.argsort(columns["episode_index"], kind="stable")
        self._columns = {name: column[order] for name, column in columns.items()}
        known = self._columns["episode_index"]
        twice = np.flatnonzero(known[1:] == known[:-1])
        if len(twice) or (len(known) and known[0] < 0):
            index = int(known[twice[0]]) if len(twice) else int(known[0])
            file = self._files[self._columns["file"][twice[0] + 1 if len(twice) else 0]]
            what = f"a second row of episode {index}" if len(twice) else f"an episode {index}"
            raise SourceError(what, file=file, field="episode_index")
        self._places = np.arange(len(known))
        self.indices, self.lengths = known, self._columns["length"]
        if unreadable:
            self._add_lost(unreadable)
        self._rows: ParquetRows | None = None
        self._firsts = self._first_rows()
        self._shared: dict[str, dict[tuple[int, int], list[int]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}

    def _add_lost(self, unreadable: Sequence[SourceError]) -> None:
        """Adds episodes of which the rows are in tables that cannot be read."""
        self.lost = "; ".join(map(str, unreadable))
        total: Any = self._info.raw.get("total_episodes")
        total = total if isinstance(total, int) else 0
        # A file without footer may have lost all but a few bytes for each.
        most = sum(size_of(error.file) for error in unreadable)
        known = self.indices
        end = max(total, int(known[-1]) + 1 if len(known) else 0)
        if end - len(known) > most:
            raise unreadable[0]
        self.indices = np.arange(end)
        self._places = np.full(end, -1)
        self._places[known] = np.arange(len(known))
        self.lengths = np.where(self._places < 0, 0, self._columns["length"][self._places])

    def _first_rows(self) -> dict[tuple[int, int], int]:
        """The first row of each data file, counted over all, as far as episodes are known."""
        columns = self._columns
        firsts: dict[tuple[int, int], int] = {}
        for *place, begin in zip(
            columns["data/chunk_index"].tolist(),
            columns["data/file_index"].tolist(),
            columns["dataset_from_index"].tolist(),
        ):
            firsts[place[0], place[1]] = min(begin, firsts.get((place[0], place[1]), begin))
        return firsts

    def row(self, place: int) -> EpisodeRow:
        """See `EpisodeTable`."""
        at = self._place(place)
        raw = {name: column[at].item() for name, column in self._columns.items()}
        try:
            return EpisodeRow.from_json(raw, self._info.videos, is_v3=True)
        except ValueError as error:
            file = self._files[raw["file"]]
            raise SourceError(str(error), file=file, row=raw["row"]) from error

    def _place(self, place: int) -> int:
        at = int(self._places[place])
        if at < 0:
            what = f"its row is in a table that cannot be read: {self.lost}"
            raise SourceError(what, file=_EPISODES, episode=int(self.indices[place]))
        return at

    def whole(self, place: int) -> tuple[Any, Any]:
        """See `EpisodeTable`."""
        at = self._place(place)
        file, row = self._files[self._columns["file"][at]], int(self._columns["row"][at])
        rows, self._rows = self._rows, None  # Another thread makes its own.
        if rows is None or rows.path != file:
            rows = ParquetRows(file)
        with source_errors(file, row=row):
            found = rows.read(row, row + 1).to_pylist()[0]
        self._rows = rows
        return found, None

    def first_row(self, row: EpisodeRow) -> int:
        """See `EpisodeTable`."""
        return row.begin - self._firsts[row.data_chunk, row.data_file]

    def is_alone(self, row: EpisodeRow, video: str) -> bool:
        """See `EpisodeTable`."""
        return len(self._companions(row, video)) == 1

    def companions(self, row: EpisodeRow, video: str) -> list[EpisodeRow]:
        """See `EpisodeTable`."""
        return [self.row(place) for place in self._companions(row, video)]

    def _companions(self, row: EpisodeRow, video: str) -> list[int]:
        if video not in self._shared:
            chunk, file, begin, _ = (self._columns[name] for name in video_columns(video))
            shared: dict[tuple[int, int], list[int]] = {}
            places = np.flatnonzero(self._places >= 0).tolist()
            for place in sorted(places, key=lambda place: begin[self._places[place]]):
                at = self._places[place]
                shared.setdefault((int(chunk[at]), int(file[at])), []).append(place)
            self._shared[video] = shared
        span = row.videos[video]
        return self._shared[video][span.chunk, span.file]


def read_tasks(root: epath.Path, info: Info) -> tuple[list[dict[str, Any]], str | None]:
    """Reads the tasks.

    Returns:
      Their rows in the order of the file, each with `task_index` and a text, and the schema of the
      table (3.0).

    Raises:
      SourceError: They are damaged.
      FileNotFoundError: There are none.
    """
    file = root / (TASKS if info.is_v3 else TASKS_JSONL)
    schema = None
    if info.is_v3:
        table = ParquetRows(file)
        if table.num_rows > size_of(file):  # No two texts are equal.
            raise SourceError(f"{table.num_rows} tasks, for which it is too small", file=file)
        with source_errors(file):
            rows = table.read(0, table.num_rows).to_pylist()
        schema = encoded_schema(table.schema)
    else:
        rows = [raw for _, raw in _lines(file)]
    found: set[int] = set()
    for number, row in enumerate(rows):
        index, text = row.get("task_index"), task_text(row)
        if not isinstance(index, int) or not isinstance(text, str) or index in found:
            what = f"{row!r:.200}, expected a task_index of its own, and the text of a task"
            raise SourceError(what, file=file, row=number)
        found.add(index)
    return rows, schema


def task_text(row: Mapping[str, Any]) -> Any:
    """Returns the text of a task; if the index had no name, pandas gave it one."""
    return row.get("task", row.get("__index_level_0__"))


def other_files(root: epath.Path) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Reads the small files beside the tables.

    Returns:
      The contents by path, each as `text`, or as `base64` if it is none; and the paths of those
      that are too large to be kept.
    """
    left = _MAX_OTHERS
    kept: dict[str, dict[str, str]] = {}
    left_out = []
    for folder in ("", "meta", "extras"):
        place = root / folder if folder else root
        if not place.exists():
            continue
        for entry in sorted(stores.list_directory(place), key=lambda entry: entry.name):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir or entry.name.startswith(".") or _is_table(name):
                continue
            check_is_file(root / name)
            with stores.open_binary(root / name) as file:
                data = file.read(left + 1)
            if len(data) > left:
                left_out.append(name)
                continue
            left -= len(data)
            try:
                kept[name] = {"text": data.decode()}
            except UnicodeDecodeError:
                kept[name] = {"base64": base64.b64encode(data).decode()}
    return kept, left_out


def _is_table(name: str) -> bool:
    tables = (INFO, TASKS, TASKS_JSONL, EPISODES_JSONL, EPISODES_STATS)
    return name in tables or name.startswith("meta/rlds")


def encoded_schema(schema: Any) -> str:
    """Returns a schema of Arrow in base64, for `pyarrow.ipc.read_schema`."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def walk(folder: epath.Path, suffix: str = "") -> Iterator[epath.Path]:
    """Yields the files in a folder, and in those in it."""
    if not folder.exists():
        return
    for entry in sorted(stores.list_directory(folder), key=lambda entry: entry.name):
        if entry.is_dir:
            yield from walk(folder / entry.name, suffix)
        elif entry.name.endswith(suffix) and not entry.name.startswith("."):
            yield folder / entry.name


def _json(file: epath.Path) -> Any:
    check_is_file(file)
    with source_errors(file), stores.open_binary(file) as opened:
        data = opened.read(_MAX_JSON + 1)
        if len(data) > _MAX_JSON:
            raise SourceError("too large", file=file)
        return json.loads(data)


def _lines(file: epath.Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the lines of a file, each with where it begins."""
    check_is_file(file)
    offset = 0
    with stores.open_binary(file) as opened:
        for number, line in enumerate(opened):
            begin, offset = offset, offset + len(line)
            if not line.strip():
                continue
            with source_errors(file, row=number):
                raw = json.loads(line)
                if not isinstance(raw, dict):
                    raise SourceError("no object of JSON", file=file, row=number)
            yield begin, raw


def _line_at(file: epath.Path, offset: int) -> Any:
    with source_errors(file), stores.open_binary(file) as opened:
        opened.seek(offset)
        return json.loads(opened.readline())


def _column(table: Any, name: str, file: str) -> np.ndarray:
    with source_errors(file, field=name):
        column = table[name].combine_chunks()
        if column.null_count:
            row = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
            raise SourceError("no value", file=file, row=row, field=name)
        values: np.ndarray = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in ("f" if name.endswith("_timestamp") else "iu"):
        raise SourceError(f"{values.dtype}, expected numbers", file=file, field=name)
    return values
