"""The tables of LeRobot datasets: episodes, tasks, and the small files beside them."""

from __future__ import annotations

import abc
import base64
import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from rlds.formats.lerobot.layout import (
    EPISODES_JSONL,
    EPISODES_STATS,
    INFO,
    TASKS,
    TASKS_JSONL,
    EpisodeRow,
    Info,
    episode_key,
    video_columns,
)
from rlds.formats.lerobot.parquet_rows import ParquetRows, as_numpy, size_of
from rlds.raw_files.untrusted import check_is_file, source_errors
from rlds.sources.source import SourceError
from rlds_ecosystem import stores

__all__ = [
    "EpisodeTable",
    "encoded_schema",
    "episode_table",
    "named_by_tables",
    "other_files",
    "read_info",
    "read_tasks",
    "task_text",
    "walk",
]

_EPISODES = "meta/episodes"
_EPISODE_INDEX = "episode_index"
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
      lost: Those among `indices` that the tables say nothing of, with what is wrong.
      schema: The schema of the table (3.0), as `encoded_schema` returns it.
    """

    indices: np.ndarray
    lengths: np.ndarray
    lost: Mapping[int, SourceError]
    schema: str | None = None

    def __init__(self, info: Info) -> None:
        self._info, self.lost = info, {}

    def _set_episodes(
        self, known: np.ndarray, lengths: np.ndarray, lost: Mapping[int, SourceError]
    ) -> None:
        """Sets the attributes.

        Args:
          known: The `episode_index` of those that the tables name, in order.
          lengths: How many rows these have.
          lost: Those that they do not name.
        """
        self.lost = lost
        self.indices = np.union1d(known, np.array([*lost], np.int64))
        # Where they are among the known ones.
        self._places = np.full(len(self.indices), -1)
        self._places[np.isin(self.indices, known)] = np.arange(len(known))
        self.lengths = np.zeros(len(self.indices), np.int64)
        self.lengths[self._places >= 0] = lengths

    def _place(self, place: int) -> int:
        """Where an episode is among those that the tables name."""
        at = int(self._places[place])
        if at < 0:
            error = self.lost[int(self.indices[place])]
            key = episode_key(int(self.indices[place]))
            raise SourceError(error.what, file=error.file, episode=key)
        return at

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
        known = sorted(found)
        self._offsets = {index: found[index][0] for index in known}
        rows = [EpisodeRow(index, found[index][1], 0, 0, 0, {}, {}) for index in known]
        named = {info.data_file(row): None for row in rows}
        lost = _without_line(root, named, EPISODES_JSONL, {*known})
        lengths = np.array([row.length for row in rows], np.int64)
        self._set_episodes(np.array(known, np.int64), lengths, lost)
        self._stats: dict[int, int] | None = None

    def row(self, place: int) -> EpisodeRow:
        """See `EpisodeTable`."""
        self._place(place)
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
        self._rows: ParquetRows | None = None
        self._firsts = self._first_rows()
        self._shared: dict[str, dict[tuple[int, int], list[int]]] = {}
        lost = _without_line(root, self._named(), _EPISODES, {*known.tolist()})
        if unreadable:
            lost = self._unreadable(unreadable, lost)
        self._set_episodes(known, self._columns["length"], lost)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}

    def _unreadable(
        self, errors: Sequence[SourceError], lost: Mapping[int, SourceError]
    ) -> dict[int, SourceError]:
        """The episodes of which the rows are in tables that cannot be read."""
        total: Any = self._info.raw.get("total_episodes")
        total = total if isinstance(total, int) else 0
        # A file without footer may have lost all but a few bytes for each.
        most = sum(size_of(error.file) for error in errors)
        known = {*self._columns[_EPISODE_INDEX].tolist()}
        end = max(total, max(known | lost.keys(), default=-1) + 1)
        if end - len(known) > most:
            raise errors[0]
        words = "; ".join(map(str, errors))
        what = f"its row is in a table that cannot be read: {words}"
        error = SourceError(what, file=_EPISODES)
        return dict.fromkeys(sorted({*range(end)} - known), error)

    def _named(self) -> dict[str, _Named]:
        """What the table says of each data file."""
        names = ("data/chunk_index", "data/file_index", _EPISODE_INDEX, "length")
        named: dict[str, _Named] = {}
        for chunk, file, index, length in zip(*(self._columns[name].tolist() for name in names)):
            name = self._info.data_file(EpisodeRow(index, length, chunk, file, 0, {}, {}))
            found = named.setdefault(name, _Named(0, set()))
            found.episodes.add(index)
            named[name] = found._replace(num_rows=found.num_rows + length)
        return named

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


class _Named(NamedTuple):
    """How many rows of a data file the table of episodes names, and of which episodes."""

    num_rows: int
    episodes: set[int]


def _without_line(
    root: epath.Path, named: Mapping[str, _Named | None], table: str, known: Set[int]
) -> dict[int, SourceError]:
    """Finds episodes that have rows, but no line in the table: a recording was interrupted.

    Args:
      root: The folder of the dataset.
      named: What the table says of each data file; None if the file has one episode.
      table: The table.
      known: The episodes that it has.

    Returns:
      What is wrong, by `episode_index`; by a number that is free if that is not known.
    """
    lost: dict[int, SourceError] = {}
    for file in walk(root / "data", ".parquet"):
        said = named.get(os.fspath(file)[len(os.fspath(root)) + 1 :], _Named(0, set()))
        if said is None:
            continue
        indices: list[int] = []
        what = f"more rows than {table} says"
        try:
            rows = ParquetRows(file, [_EPISODE_INDEX])
            if rows.num_rows <= said.num_rows:
                continue
            column = _column(rows.read(0, rows.num_rows), _EPISODE_INDEX, rows.path)
            indices = sorted({*column[column >= 0].tolist()} - said.episodes)
        except SourceError as error:
            if said.num_rows:
                continue  # So are the episodes that are named.
            what = f"{table} does not name the file, and {error.what}"
        for index in indices or [-1]:
            if index >= 0:
                what = f"there are rows of it, but no line in {table}: was its recording stopped?"
            if index < 0 or index in known or index in lost:
                taken = known | lost.keys()
                index = next(i for i in itertools.count(len(known)) if i not in taken)
            lost[index] = SourceError(what, file=file)
    return lost


def read_tasks(root: epath.Path, info: Info) -> list[Mapping[str, Any]]:
    """Reads the tasks.

    Returns:
      Their rows in the order of the file, each with `task_index` and a text.

    Raises:
      SourceError: They are damaged.
      FileNotFoundError: There are none.
    """
    file = root / (TASKS if info.is_v3 else TASKS_JSONL)
    if info.is_v3:
        table = ParquetRows(file)
        if table.num_rows > size_of(file):  # No two texts are equal.
            raise SourceError(f"{table.num_rows} tasks, for which it is too small", file=file)
        with source_errors(file):
            rows: list[Mapping[str, Any]] = table.read(0, table.num_rows).to_pylist()
    else:
        rows = [raw for _, raw in _lines(file)]
    found: set[int] = set()
    for number, row in enumerate(rows):
        index, text = row.get("task_index"), task_text(row)
        if not isinstance(index, int) or not isinstance(text, str) or index in found:
            what = f"{row!r:.200}, expected a task_index of its own, and the text of a task"
            raise SourceError(what, file=file, row=number)
        found.add(index)
    return rows


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


@contextlib.contextmanager
def named_by_tables(file: stores.PathLike) -> Iterator[None]:
    """Makes it damage of an episode that the file is not there which the tables name for it."""
    try:
        yield
    except FileNotFoundError as error:
        what = "does not exist, but the tables name it: was all of the dataset downloaded?"
        raise SourceError(what, file=file) from error


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
        values = as_numpy(column)
    if values.dtype.kind not in ("f" if name.endswith("_timestamp") else "iu"):
        raise SourceError(f"{values.dtype}, expected numbers", file=file, field=name)
    return values
