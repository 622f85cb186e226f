"""The datasets that `rlds view` was given, and their episodes."""

from __future__ import annotations

import bisect
import concurrent.futures
import contextlib
import functools
import hashlib
import itertools
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from typing_extensions import override

import envlogger
from rlds import sources
from rlds.labels import Labels
from rlds.raw_files.input_files import Files
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import audit_rows, label_rows, reading
from rlds.sources.dataset_search import find_datasets, find_logs, marked_format
from rlds.sources.episode_table import (
    EpisodeTable,
    audit_files,
    audit_of,
    has_table,
    key_of,
    table_row,
)
from rlds.sources.video_frames import frames_of
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.episode_columns import (
    ORDERS,
    Column,
    cell,
    columns_of,
    defaults,
    labels_in,
    labels_key,
    order,
    ranges,
    ranks,
)
from rlds_creator.viewing.episode_view import ViewedEpisode
from rlds_creator.viewing.labels import DatasetLabels
from rlds_creator.viewing.log_steps import LogSteps
from rlds_creator.viewing.source_steps import SourceSteps, Tables
from rlds_creator.viewing.steps import EpisodeSteps
from rlds_creator.viewing.thumbnails import Thumbnails, state_of
from rlds_creator.viewing.values import as_json
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.errors import EnvLoggerError
from rlds_tools.reading import indices_at

__all__ = ["Shelf", "neighbours"]

# The size of the cache of all datasets together.
_CACHE_BYTES = 128 << 20
_MAX_OPEN = 32
# The rows that are kept of episodes read without the table, and the rows with example values.
_MAX_CACHED_ROWS, _EXAMPLE_ROWS = 2_000, 1_000
# The seconds for which a listing reads lengths of episodes; the remaining lengths are unknown.
_LISTING_SECONDS = 0.5
# The seconds for which a listing reads rows of episodes; a later listing continues.
_READING_SECONDS = 0.25
# The seconds for which a listing waits for the table of episodes; then it shows the progress.
_TABLE_SECONDS = 1.0
# The seconds for which the state of files is cached, as checking many files is slow.
_STATE_SECONDS = 2.0


class Shelf:
    """Datasets, opened when they are first looked at, and again after an edit.

    Args:
      paths: Folders of datasets, logs, or anything that `rlds.sources.open` takes; or folders with
        several of these.
      format: The name of their format, if it cannot be recognized.
      options: Options of the format, as `rlds.sources.open` takes them.
      split: The split, or a part such as `train[:10%]`; all splits if None.
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      may_label: Whether episodes can be labelled.

    Raises:
      FileNotFoundError: There is nothing at a path, or nothing that can be shown.
      SourceError: The format is unknown, or the data is damaged; the message has the location.
      ValueError: There is no such format.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        split: str | None = None,
        where: str | None = None,
        may_label: bool = True,
    ) -> None:
        cache, self._may_label = Cache(_CACHE_BYTES), may_label
        chosen = _OpenArguments(options or {}, split, where)
        self._thumbnails, self._lock = Thumbnails(), threading.Lock()
        datasets = [it for path in paths for it in _scan(os.fspath(path), format, chosen.options)]
        if not datasets:
            raise FileNotFoundError("there is nothing to be shown")
        self._datasets: dict[str, _Dataset] = {}
        for path, its_format in dict.fromkeys(datasets):
            name = _name(path)
            kind = _Logs if its_format == "envlogger" and chosen == _OpenArguments() else _Source
            dataset = kind(_identifier(name, path), name, path, its_format, cache, chosen)
            self._datasets[dataset.id] = dataset
        if len(self._datasets) == 1:  # Errors of a single dataset are raised at once.
            next(iter(self._datasets.values())).open()

    def datasets(self) -> dict[str, Any]:
        """Returns the datasets of the shelf: {"datasets": [..]}."""
        return {"datasets": [self._current(id).described() for id in self._datasets]}

    def listing(
        self,
        dataset: str,
        split: str,
        offset: int = 0,
        limit: int = 50,
        where: str = "",
        sort: str = "",
        columns: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Returns a page of a split: {"id", "columns", "episodes", "total", "is_complete"}.

        "values" of an episode are cells by the names of columns; None until the episode was read.
        "ranks" are the ranks of its scores within the task, likewise.
        "is_complete" is false if a later call may have more values. While the table is computed
        that a condition or an order needs, "episodes" is empty, and "making" has the progress:
        {"done", "total"}.

        Args:
          dataset: The dataset.
          split: The split.
          offset: The number of episodes before the first one.
          limit: The maximum number of episodes.
          where: A condition, see `rlds.sources.Episodes.where`; all episodes if it is empty.
          sort: The name of the column to sort by, with "-" in front for the largest first.
          columns: The names of the columns; those that most people want if there are none.

        Raises:
          ImportError: The package for conditions is not installed.
          KeyError: There is no such dataset, or no such split.
          SourceError: The dataset is damaged.
          ValueError: It is no such condition.
        """
        current = self._dataset(dataset, split)
        described = {"id": current.opened, "columns": [], "is_complete": True}
        try:
            numbers, total = current.numbers(split, where, sort), current.count(split)
        except _TableInProgressError as task:
            return {**described, "episodes": [], "total": None, "making": task.progress}
        offset, limit = max(offset, 0), min(max(limit, 0), 1_000)
        total = len(numbers) if where or sort else total
        end = offset + limit
        chosen = numbers[offset:end] if total is not None else range(offset, end)
        return {**described, **current.listing(split, chosen, columns), "total": total}

    def columns(self, dataset: str, split: str) -> dict[str, Any]:
        """Returns the columns of the table of episodes, and the titles of layers by their names.

        {"columns": [{"name", "title", "kind", "examples"}], "layers": {..}}; the name is that in
        conditions, the examples are of the episodes that were read.
        """
        current = self._dataset(dataset, split)
        layers = {layer.name: layer.title for layer in current.labels(split).described()}
        titles = {name: title or name for name, title in layers.items()}
        return {"columns": [*ranges(current.columns(split), current.rows(split))], "layers": titles}

    def beside(
        self, dataset: str, split: str, index: int, where: str = "", sort: str = ""
    ) -> dict[str, Any]:
        """Returns the neighbours of an episode in a list: {"previous", "next", "place"}.

        "previous" and "next" are addresses of pages, "place" is the number of episodes before it.
        """
        current = self._dataset(dataset, split)
        try:
            numbers = current.numbers(split, where, sort, at_least=index + 2)
        except (ImportError, LookupError, ValueError, _TableInProgressError):  # The list has it.
            return {"previous": None, "next": None, "place": None}
        if sort:
            before = numbers.index(index) if index in numbers else len(numbers)
            after = before + 1
        else:
            before, after = bisect.bisect_left(numbers, index), bisect.bisect_right(numbers, index)
        query = urlencode({k: v for k, v in (("where", where), ("sort", sort)) if v})
        pages = neighbours(numbers, before, after, lambda n: current.address(split, int(n)), query)
        return {**pages, "place": before}

    def view(self, dataset: str, split: str, index: int) -> ViewedEpisode:
        """Returns an episode.

        Raises:
          KeyError: There is no such dataset, or no such split.
          IndexError: There is no such episode.
          SourceError: It is damaged.
        """
        return self._dataset(dataset, split).view(split, index)

    def thumbnail(
        self, dataset: str, split: str, index: int, frames: int = 1
    ) -> tuple[bytes, str] | None:
        """Returns a thumbnail, see `ViewedEpisode.thumbnail`; the errors are those of `view`."""
        current, state = self._dataset(dataset, split), ""
        with contextlib.suppress(OSError):  # The reader of the table reports errors.
            state = current.state(split, index)

        def make() -> tuple[bytes, str] | None:
            return current.view(split, index).thumbnail(frames)

        return self._thumbnails.get(f"{state} {frames}", make) if state else make()

    def labels(self, dataset: str, split: str, index: int, by: str) -> DatasetLabels:
        """Returns the labels of an episode for somebody of that name; the errors are of `view`."""
        current = self._dataset(dataset, split)
        current.view(split, index)
        return DatasetLabels(current.labels(split), index, by, may_label=self._may_label)

    def page_of(self, episode: int) -> str:
        """Returns the address of the page of an episode of the first dataset, by its stored number.

        Raises:
          IndexError: There is no such episode.
          SourceError: It is damaged.
        """
        first = self._current(next(iter(self._datasets)))
        first.open()
        if not first.splits:
            raise IndexError("There are no episodes.")
        index = first.find(first.splits[0], episode)
        first.view(first.splits[0], index)
        return first.address(first.splits[0], index)

    def _dataset(self, dataset: str, split: str) -> _Dataset:
        id, at, _ = dataset.partition("@")
        if id not in self._datasets:
            raise KeyError(f"There is no dataset {dataset!r}.")
        current = self._current(id)
        if at and dataset != current.opened:
            problem = "the dataset was changed or opened again after this page; reload the page"
            raise SourceChangedError(problem, file=current.path)
        current.open()
        if split not in current.splits:
            raise KeyError(f"There is no split {split!r}.")
        return current

    def _current(self, id: str) -> _Dataset:
        """Returns a dataset, opened again if its files have changed."""
        with self._lock:
            try:
                self._datasets[id].check()
            except SourceChangedError:
                self._datasets[id] = self._datasets[id].again()
            return self._datasets[id]


def neighbours(
    listed: Sequence[Any], before: int, after: int, address: Callable[[Any], str], query: str
) -> dict[str, str | None]:
    """Returns the addresses of the pages before and after the page of an episode.

    Args:
      listed: The episodes of a list.
      before: The number of episodes before it.
      after: The number of episodes before the next one.
      address: Returns the address of the page of one.
      query: The query of the list.
    """
    around = {"previous": listed[:before][-1:], "next": listed[after : after + 1]}
    end = f"?{query}" if query else ""
    return {name: address(one[0]) + end if len(one) else None for name, one in around.items()}


def _scan(path: str, format: str | None, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields path and format of each dataset at or below a path; options need a single one."""
    if (
        format is None
        and not options
        and "://" not in path
        and os.path.isdir(path)
        and not marked_format(path)
    ):
        below = sorted(find_datasets(path))
        logs = [path for path, kind in below if kind == "envlogger"]
        for folder in dict.fromkeys(map(os.path.dirname, logs)):
            # Logs in one folder are one dataset: `rlds create` writes a log for each episode.
            beside = [log for log in logs if os.path.dirname(log) == folder]
            yield folder if len(beside) > 1 else beside[0], "envlogger"
        other_datasets = [(path, kind) for path, kind in below if kind != "envlogger"]
        yield from other_datasets
        if logs or other_datasets:
            return
    yield path, format or marked_format(path) or sources.format_of(path)


def _name(path: str) -> str:
    """Returns the name of a dataset: its folder, with the one above if it is a version.

    >>> _name("logs/run7"), _name("data/walker2d/1.0.0"), _name("gs://bucket/logs")
    ('run7', 'walker2d/1.0.0', 'gs://bucket/logs')
    """
    if "://" in path:
        return path
    folder, name = os.path.split(os.path.abspath(path))
    is_version = re.fullmatch(r"\d+\.\d+\.\d+", name)
    return f"{os.path.basename(folder)}/{name}" if is_version else name


def _identifier(name: str, path: str) -> str:
    """Returns the address part of a dataset, which hides most of its path."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40]
    digest = hashlib.sha256(os.path.abspath(path).encode(errors="surrogateescape")).hexdigest()
    return f"{plain}-{digest[:8]}".strip("-")


class _TableInProgressError(Exception):
    """The table of episodes is still being computed."""

    def __init__(self, how_far: Mapping[str, int | None]) -> None:
        super().__init__(how_far)
        self.progress = how_far


class _TableTask:
    """The background computation of a table of episodes."""

    def __init__(self, episodes: sources.Episodes) -> None:
        self.progress: Mapping[str, int | None] = {"done": 0, "total": None}
        self.future: concurrent.futures.Future[EpisodeTable] = concurrent.futures.Future()
        threading.Thread(target=self._make, args=(episodes,), daemon=True).start()

    def _make(self, episodes: sources.Episodes) -> None:
        try:
            self.future.set_result(episodes.table(progress=self._set_progress))
        except BaseException as error:
            self.future.set_exception(error)

    def _set_progress(self, done: int, total: int | None) -> None:
        self.progress = {"done": done, "total": total}


class _OpenArguments(NamedTuple):
    """The options, the split and the condition by which datasets are opened; see `Shelf`."""

    options: Mapping[str, Any] = MappingProxyType({})
    split: str | None = None
    where: str | None = None


class _Dataset:
    """A dataset of a shelf."""

    def __init__(
        self, id: str, name: str, path: str, format: str, cache: Cache, chosen: _OpenArguments
    ) -> None:
        self.id, self.name, self.path, self.format = id, name, path, format
        self.opened = f"{id}@{secrets.token_hex(4)}"  # Unique for each opening of the dataset.
        self.cache, self.chosen = cache, chosen
        self.description = ""
        self.metadata: Mapping[str, Any] = {}
        self.splits: Sequence[str] = ()
        self._is_open = False
        self._lock = threading.RLock()
        self._table_tasks: dict[str, _TableTask] = {}
        self._views = functools.lru_cache(_MAX_OPEN)(self._viewed)
        self._labels = functools.cache(lambda split: Labels(self.episodes(split)))
        self._columns = functools.lru_cache(1)(
            lambda split, state: columns_of(self.labels(split), split)
        )
        self._read: dict[tuple[str, int], dict[str, Any]] = {}
        self._has_table = functools.cache(
            lambda split: has_table(self.labels(split).episodes.source, split)
        )
        self._table_of: dict[str, tuple[Any, Any]] = {}
        self._audit_files = functools.cache(
            lambda split: audit_files(self.labels(split).episodes.source, split)
        )
        self._audit = functools.lru_cache(1)(
            lambda split, state: audit_of(self.labels(split).episodes.source, split)
        )

    def open(self) -> None:
        """Opens the dataset and reads its splits; does nothing if it is open."""
        with self._lock:
            if not self._is_open:
                self._open()
                self._is_open = True

    def check(self) -> None:
        """Raises a `SourceChangedError` if its files are not those that were opened."""
        if self._is_open:
            self._check_files()

    def again(self) -> _Dataset:
        """Returns the dataset with the same arguments, not opened yet."""
        return type(self)(self.id, self.name, self.path, self.format, self.cache, self.chosen)

    def described(self) -> dict[str, Any]:
        """Returns the description of the dataset, or the error if it cannot be opened."""
        described = {"id": self.id, "name": self.name, "format": self.format, "description": ""}
        try:
            self.open()
        except (OSError, ValueError, LookupError, ImportError, RuntimeError) as error:
            return {**described, "splits": [], "error": str(error)}
        splits = [{"name": split, "episodes": self.count(split)} for split in self.splits]
        return {**described, "description": as_json(self.description), "splits": splits}

    def view(self, split: str, index: int) -> ViewedEpisode:
        with self._lock:
            return self._views(split, index)

    def _viewed(self, split: str, index: int) -> ViewedEpisode:
        total = self.count(split)
        if index < 0 or (total is not None and index >= total):
            raise IndexError(f"There are {total} episodes, from 0 on, and no episode {index}.")
        return ViewedEpisode(
            self.steps(split, index),
            title=f"{self.name}, {split} {self.number(split, index)}",
            about=self.metadata,
            base=f"/api/datasets/{self.opened}/{quote(split, safe='')}/{index}/view",
            cache_seconds=300,  # The dataset may be written again.
        )

    def numbers(self, split: str, where: str, sort: str = "", at_least: int = 0) -> Sequence[int]:
        """Returns the numbers of the episodes that match a condition; of all if it is empty.

        Where nobody knows how many there are, there are at least so many.

        Args:
          split: The split.
          where: The condition.
          sort: A column, see `Shelf.listing`; the order of the dataset if it is empty.
          at_least: See above.

        Raises:
          KeyError: There is no such column.
        """
        if sort:
            key = (self.opened, split, "sort", where, sort, self._beside(split))
            in_order: Sequence[int] = self.cache.get(key, lambda: self._sorted(split, where, sort))
            return in_order
        if not where:
            total = self.count(split)
            return range(at_least if total is None else total)
        matching: Sequence[int] = self.cache.get(
            (self.opened, split, "where", where, self._beside(split)),
            lambda: self._table(split).where(where),
        )
        return matching

    def _sorted(self, split: str, where: str, sort: str) -> list[int]:
        name = sort.removeprefix("-")
        column = self.columns(split).get(name) or ORDERS.get(name)
        if not column:
            raise KeyError(f"There is no column {name}.")
        # The column of labels is missing without labels: then no label is before another one.
        names = dict.fromkeys(("index", column.path[0]))
        rows = self._table(split).arrow([*names]).to_pylist()
        numbers = self.numbers(split, where) if where else range(len(rows))
        key = labels_key if column is ORDERS["labels"] else lambda row: cell(row, column)
        cells = [key(rows[number]) for number in numbers]
        return order(numbers, cells, falls=sort != name)

    def columns(self, split: str) -> dict[str, Column]:
        """Returns the columns of the table of episodes, by their names in conditions."""
        return self._columns(split, self._beside(split))

    def _beside(self, split: str) -> tuple[Any, ...]:
        """Returns the state of the sidecars, which changes with each label and each audit."""
        audits = [file for file in self._audit_files(split) if file.is_file()]
        return self.labels(split).state(), state_of(audits)

    def rows(self, split: str) -> list[dict[str, Any]]:
        """Returns the table rows of the read episodes, for examples of values."""
        if (table := self._labelled_table(split)) is not None:
            rows: list[dict[str, Any]] = table.slice(0, _EXAMPLE_ROWS).to_pylist()
            return rows
        return self._labelled(split, [*self._read.values()][:_EXAMPLE_ROWS])

    def _labelled_table(self, split: str) -> Any:
        """Returns the table of episodes with their labels; None if it is not complete."""
        task = self._table_tasks.get(split)
        is_made = task is not None and task.future.done() and not task.future.exception()
        if not (is_made or self._has_table(split)):
            return None
        state = self._beside(split)
        if self._table_of.get(split, (None, None))[0] != state:
            with contextlib.suppress(_TableInProgressError):
                self._table_of[split] = state, self._table(split).arrow()
        return self._table_of.get(split, (None, None))[1]

    def _rows(
        self, split: str, numbers: Sequence[int], deadline: float
    ) -> tuple[Sequence[dict[str, Any] | None], bool]:
        """Returns the rows of episodes, None for unread ones; and True if no row is missing."""
        if (table := self._labelled_table(split)) is not None:
            return table.take(numbers).to_pylist(), True
        source = self.labels(split).episodes.source
        if not isinstance(source, sources.Source):
            return [None] * len(numbers), True
        for number in numbers:
            if time.monotonic() > deadline:
                break
            if (split, number) not in self._read:
                self._read[split, number] = table_row(source, split, number)
        while len(self._read) > _MAX_CACHED_ROWS:
            del self._read[next(iter(self._read))]
        there = [number for number in numbers if (split, number) in self._read]
        rows = self._labelled(split, [self._read[split, number] for number in there])
        by_number = dict(zip(there, rows))
        return [by_number.get(number) for number in numbers], len(there) == len(numbers)

    def _labelled(self, split: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        if (audit := self._audit(split, self._beside(split))) is not None:
            column = audit[audit_rows.COLUMN]
            rows = [{**row, audit_rows.COLUMN: column[row["index"]].as_py()} for row in rows]
        summary = label_rows.summary(label_rows.folders_of(self.labels(split).episodes.source))
        if summary is None:
            return [*rows]
        digests = import_extra("pyarrow").array([row["digest"] for row in rows], "binary")
        labels = label_rows.label_column(digests, summary).to_pylist()
        return [{**row, label_rows.COLUMN: label} for row, label in zip(rows, labels)]

    def _table(self, split: str) -> EpisodeTable:
        with self._lock:
            if split not in self._table_tasks or self._table_tasks[split].future.done():
                self._table_tasks[split] = _TableTask(self.episodes(split))
            task = self._table_tasks[split]
        try:
            return task.future.result(_TABLE_SECONDS)
        except concurrent.futures.TimeoutError:
            raise _TableInProgressError(task.progress) from None

    def listing(self, split: str, numbers: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
        """A page of episodes with their values, if these are known soon; see `Shelf.listing`."""
        listed = self._summaries(split, numbers)
        try:
            columns = self.columns(split)
            deadline, chosen = time.monotonic() + _READING_SECONDS, [e["index"] for e in listed]
            rows, is_complete = self._rows(split, chosen, deadline)
        except (ImportError, OSError, ValueError, RuntimeError):  # These episodes have no table.
            return {"episodes": listed}
        names = [name for name in names if name in columns] or defaults(columns)
        of_scores = ranks(names, columns)
        for episode, row in zip(listed, rows):
            if row is None:
                continue
            episode["ranks"] = {name: cell(row, rank) for name, rank in of_scores.items()}
            cells = {name: as_json(cell(row, columns[name])) for name in names}
            steps = episode["num_steps"] if row["steps"] is None else row["steps"]
            episode |= {"values": cells, "labels": labels_in(row), "num_steps": steps}
            if row["error"] is not None:
                episode["error"] = row["error"]
        return {"episodes": listed, "columns": names, "is_complete": is_complete}

    def _summaries(self, split: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
        deadline = time.monotonic() + _LISTING_SECONDS
        listed = []
        for index in map(int, numbers):
            row: dict[str, Any] = {"index": index, "num_steps": None, "values": None, "labels": []}
            row["number"] = self.number(split, index)
            if time.monotonic() < deadline:
                try:
                    row |= self.summary(split, index)
                except IndexError:
                    break
                except (OSError, ValueError, RuntimeError) as error:
                    row["error"] = str(error)
            listed.append(row)
        return listed

    def labels(self, split: str) -> Labels:
        """Returns the labels of the episodes of a split."""
        with self._lock:
            return self._labels(split)

    def address(self, split: str, index: int) -> str:
        """Returns the address of the page of an episode."""
        return f"/datasets/{self.id}/{split}/{index}"

    def _open(self) -> None:
        raise NotImplementedError

    def _check_files(self) -> None:
        raise NotImplementedError

    def count(self, split: str) -> int | None:
        """Returns the number of episodes of a split; None if unknown."""
        raise NotImplementedError

    def number(self, split: str, index: int) -> int:
        """Returns the stored number of an episode; a condition may have chosen some of them."""
        return index

    def find(self, split: str, number: int) -> int:
        """Returns the index of an episode by its stored number; the errors are those of `view`."""
        return number

    def episodes(self, split: str) -> sources.Episodes:
        """Returns the episodes of a split."""
        raise NotImplementedError

    def steps(self, split: str, index: int) -> EpisodeSteps:
        """Returns the steps of an episode."""
        raise NotImplementedError

    def state(self, split: str, index: int) -> str:
        """Returns a tag that changes when the files of an episode change; empty if unknown."""
        raise NotImplementedError

    def summary(self, split: str, index: int) -> dict[str, Any]:
        """Returns the number of steps of an episode, if known without reading it."""
        raise NotImplementedError


class _Logs(_Dataset):
    """Logs of EnvLogger, which may be of different environments."""

    def _open(self) -> None:
        paths = find_logs(self.path)
        self._paths, counts, damage = [], [], None
        for path in paths:
            try:
                with envlogger.Reader(path) as reader:
                    counts.append(len(reader.episodes))
                    self.metadata = reader.metadata() if len(paths) == 1 else {}
                self._paths.append(path)
            except EnvLoggerError as error:
                damage = damage or error
        if damage is not None and not counts:
            raise damage
        self._ends = list(itertools.accumulate(counts))
        self._files = Files(self.path, *self._paths[:_MAX_OPEN], may_grow=True)
        self.splits = ["train"]
        self.description = "Episodes recorded with EnvLogger."
        if damage is not None:
            self.description += f" {len(paths) - len(counts)} of {len(paths)} logs cannot be read."

    def count(self, split: str) -> int:
        return self._ends[-1]

    @override
    def _check_files(self) -> None:
        self._files.check(lambda: self._paths, failed=False)

    def _log_and_index(self, index: int) -> tuple[str, int]:
        self._check_files()
        number = bisect.bisect_right(self._ends, index)
        return self._paths[number], index - (self._ends[number - 1] if number else 0)

    @override
    def episodes(self, split: str) -> sources.Episodes:
        self._check_files()
        episodes = sources.open(self.path, split=split, format=self.format)
        if len(episodes) != self.count(split):
            raise ValueError("Some logs cannot be read: these episodes cannot be filtered.")
        return episodes

    def steps(self, split: str, index: int) -> EpisodeSteps:
        path, number = self._log_and_index(index)
        # It is closed when no page shows the episode any more.
        return LogSteps(envlogger.Reader(path), number, self.cache, f"{self.opened}/{index}")

    def state(self, split: str, index: int) -> str:
        path, number = self._log_and_index(index)
        if not stores.is_local(path):
            return ""
        return f"{os.path.realpath(path)} {number} {state_of(Path(path).rglob('*.riegeli'))}"

    def summary(self, split: str, index: int) -> dict[str, Any]:
        path, number = self._log_and_index(index)
        with envlogger.Reader(path) as reader:
            return {"num_steps": len(reader.episodes[number])}


class _Source(_Dataset):
    """A dataset of any other format."""

    def _open(self) -> None:
        options, split, where = self.chosen
        as_files = {"decode_images": False} if self.format == "tfds" else {}
        source = sources.formats()[self.format].source(self.path, **{**as_files, **options})
        is_part = where is not None or not (split is None or split in source.splits)
        if is_part:
            episodes = sources.Episodes(source, split or "all", format=self.format)
            some = episodes.where(where) if where else episodes.select(range(len(episodes)))
            source = some.source
        self._source = source
        self.splits = [*source.splits] if is_part or split is None else [split]
        self.description, self.metadata = source.about.description, source.about.metadata
        self._episodes = {
            split: sources.Episodes(source, split, format=self.format) for split in self.splits
        }
        self._with_pictures = frames_of(source) or source
        self._tables = Tables.of(source)
        self._looked, self._key = -math.inf, ""

    @override
    def _check_files(self) -> None:
        reading.check(self._source)

    def count(self, split: str) -> int | None:
        return reading.count(self._source, split)

    @override
    def number(self, split: str, index: int) -> int:
        return self._episodes[split].stored_index(index)

    @override
    def find(self, split: str, number: int) -> int:
        [index] = indices_at(self._episodes[split], [number])
        return index

    @override
    def episodes(self, split: str) -> sources.Episodes:
        return self._episodes[split]

    def steps(self, split: str, index: int) -> EpisodeSteps:
        episodes = sources.Episodes(self._with_pictures, split, format=self.format)
        in_place = None if self._tables is None else self._tables.find(split, index)
        return SourceSteps(episodes, index, self.cache, f"{self.opened}/{split}", in_place)

    def state(self, split: str, index: int) -> str:
        with self._lock:
            if time.monotonic() > self._looked + _STATE_SECONDS:
                self._looked, self._key = time.monotonic(), key_of(self._with_pictures)
        return f"{os.path.realpath(self.path)} {split} {index} {self._key}"

    def summary(self, split: str, index: int) -> dict[str, Any]:
        if self._tables is not None:
            table, row = self._tables.find(split, index)
            return {"num_steps": int(table.outlines.num_steps[row])}
        if not isinstance(self._source, sources.Source):
            return {}
        return {"num_steps": reading.outline(self._source, split, index).num_steps}
