"""The datasets of `rlds view`, and their episodes."""

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
    SORT_COLUMNS,
    Column,
    default_columns,
    labels_sort_key,
    list_columns,
    rank_columns,
    read_cell,
    row_labels,
    sort_episodes,
    table_columns,
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

__all__ = ["Catalog", "link_neighbours"]

# The size of the cache of all datasets together.
_CACHE_BYTES = 128 << 20
_MAX_OPEN = 32
# The maximum numbers of cached rows of episodes without a table, and of rows for example values.
_MAX_CACHED_ROWS, _NUM_EXAMPLE_ROWS = 2_000, 1_000
# The seconds for which a listing reads lengths of episodes; the remaining lengths are unknown.
_LENGTHS_TIMEOUT_S = 0.5
# The seconds for which a listing reads rows of episodes; a later listing continues.
_ROWS_TIMEOUT_S = 0.25
# The seconds for which a listing waits for the table of episodes; then it shows the progress.
_TABLE_TIMEOUT_S = 1.0
# The seconds for which the state of files is cached, because checks of many files are slow.
_FILE_STATE_CACHE_S = 2.0


class Catalog:
    """Datasets, opened at the first request, and reopened after an edit.

    Args:
      paths: Paths of datasets or logs, see `rlds.sources.open`, or folders that contain several.
      format: The name of the format; None to detect it.
      options: Options of the format, see `rlds.sources.open`.
      split: The split, or a slice such as `train[:10%]`; None for all splits.
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      may_label: Whether episodes can be labelled.

    Raises:
      FileNotFoundError: A path does not exist, or has no dataset.
      SourceError: The format is unknown, or the data is damaged; the message has the location.
      ValueError: The format does not exist.
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
        arguments = _OpenArguments(options or {}, split, where)
        self._thumbnails, self._lock = Thumbnails(), threading.Lock()
        datasets_by_path = (_scan(os.fspath(path), format, options or {}) for path in paths)
        datasets = [*itertools.chain.from_iterable(datasets_by_path)]
        if not datasets:
            raise FileNotFoundError("there are no datasets")
        self._datasets: dict[str, _Dataset] = {}
        for path, dataset_format in dict.fromkeys(datasets):
            name, has_default = _dataset_name(path), arguments == _OpenArguments()
            kind = _LogDataset if dataset_format == "envlogger" and has_default else _SourceDataset
            id = _create_identifier(name, path)
            self._datasets[id] = kind(id, name, path, dataset_format, cache, arguments)
        if len(self._datasets) == 1:  # A single dataset raises errors.
            next(iter(self._datasets.values())).open()

    def datasets(self) -> dict[str, Any]:
        """Returns the datasets of the catalog: {"datasets": [..]}."""
        return {"datasets": [self._get_dataset(id).describe() for id in self._datasets]}

    def listing(
        self,
        dataset_id: str,
        split: str,
        offset: int = 0,
        limit: int = 50,
        where: str = "",
        sort: str = "",
        columns: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Returns a page of a split: {"id", "columns", "episodes", "total", "is_complete"}.

        "values" of an episode are cells by the names of columns, and "ranks" the ranks of its
        scores within the task; None until the episode is read. "is_complete" is false if a later
        call may have more values. A condition or an order needs the table of episodes: until it is
        computed, "episodes" is empty, and "making" has the progress, {"done", "total"}.

        Args:
          dataset_id: The identifier of the dataset.
          split: The split.
          offset: The number of episodes before the first one.
          limit: The maximum number of episodes.
          where: A condition, see `rlds.sources.Episodes.where`; all episodes if it is empty.
          sort: The name of the column to sort by, with "-" in front for the largest first.
          columns: The names of the columns; if empty, the default columns.

        Raises:
          ImportError: The package for conditions is not installed.
          KeyError: The dataset or the split does not exist.
          SourceError: The dataset is damaged.
          ValueError: The condition is invalid.
        """
        dataset = self._open_dataset(dataset_id, split)
        page = {"id": dataset.open_id, "columns": [], "is_complete": True}
        try:
            indices, total = dataset.indices(split, where, sort), dataset.count(split)
        except _TableInProgressError as task:
            return {**page, "episodes": [], "total": None, "making": task.progress}
        offset, limit = max(offset, 0), min(max(limit, 0), 1_000)
        total = len(indices) if where or sort else total
        end = offset + limit
        page_indices = indices[offset:end] if total is not None else range(offset, end)
        return {**page, **dataset.listing(split, page_indices, columns), "total": total}

    def columns(self, dataset_id: str, split: str) -> dict[str, Any]:
        """Returns the columns of the table of episodes, and the titles of layers by their names.

        {"columns": [{"name", "title", "kind", "examples"}], "layers": {..}}; conditions use the
        names, and the examples are from cached rows.
        """
        dataset = self._open_dataset(dataset_id, split)
        layers = dataset.labels(split).all_layers()
        titles = {layer.name: layer.title or layer.name for layer in layers}
        columns = [*list_columns(dataset.columns(split), dataset.rows(split))]
        return {"columns": columns, "layers": titles}

    def find_neighbours(
        self, dataset_id: str, split: str, index: int, where: str = "", sort: str = ""
    ) -> dict[str, Any]:
        """Returns the neighbours of an episode in a list: {"previous", "next", "place"}.

        "previous" and "next" are URLs of pages, "place" is the index of the episode in the list.
        """
        dataset = self._open_dataset(dataset_id, split)
        try:
            indices = dataset.indices(split, where, sort, at_least=index + 2)
        except (ImportError, LookupError, ValueError, _TableInProgressError):  # Lists show errors.
            return {"previous": None, "next": None, "place": None}
        if sort:
            before = indices.index(index) if index in indices else len(indices)
            after = before + 1
        else:
            before, after = bisect.bisect_left(indices, index), bisect.bisect_right(indices, index)
        query = urlencode({k: v for k, v in (("where", where), ("sort", sort)) if v})
        pages = link_neighbours(indices, before, after, lambda i: dataset.address(split, i), query)
        return {**pages, "place": before}

    def view(self, dataset_id: str, split: str, index: int) -> ViewedEpisode:
        """Returns an episode.

        Raises:
          KeyError: The dataset or the split does not exist.
          IndexError: The episode does not exist.
          SourceError: The episode is damaged.
        """
        return self._open_dataset(dataset_id, split).view(split, index)

    def thumbnail(
        self, dataset_id: str, split: str, index: int, frames: int = 1
    ) -> tuple[bytes, str] | None:
        """Returns a thumbnail, see `ViewedEpisode.thumbnail`; the errors are those of `view`."""
        dataset, state = self._open_dataset(dataset_id, split), ""
        with contextlib.suppress(OSError):  # The reader of the table reports errors.
            state = dataset.state(split, index)

        def create() -> tuple[bytes, str] | None:
            return dataset.view(split, index).thumbnail(frames)

        return self._thumbnails.get(f"{state} {frames}", create) if state else create()

    def labels(self, dataset_id: str, split: str, index: int, by: str) -> DatasetLabels:
        """Returns the labels of an episode for an annotator; the errors are those of `view`."""
        dataset = self._open_dataset(dataset_id, split)
        dataset.view(split, index)
        return DatasetLabels(dataset.labels(split), index, by, may_label=self._may_label)

    def page_of(self, episode: int) -> str:
        """Returns the URL of an episode of the first dataset, by its stored index.

        Raises:
          IndexError: The episode does not exist.
          SourceError: The episode is damaged.
        """
        dataset = self._get_dataset(next(iter(self._datasets)))
        dataset.open()
        if not dataset.splits:
            raise IndexError("There are no episodes.")
        index = dataset.find(dataset.splits[0], episode)
        dataset.view(dataset.splits[0], index)
        return dataset.address(dataset.splits[0], index)

    def _open_dataset(self, dataset_id: str, split: str) -> _Dataset:
        id, has_open_id, _ = dataset_id.partition("@")
        if id not in self._datasets:
            raise KeyError(f"There is no dataset {dataset_id!r}.")
        dataset = self._get_dataset(id)
        if has_open_id and dataset_id != dataset.open_id:
            problem = "the dataset was changed or opened again after this page; reload the page"
            raise SourceChangedError(problem, file=dataset.path)
        dataset.open()
        if split not in dataset.splits:
            raise KeyError(f"There is no split {split!r}.")
        return dataset

    def _get_dataset(self, id: str) -> _Dataset:
        """Returns a dataset, reopened if its files have changed."""
        with self._lock:
            try:
                self._datasets[id].check()
            except SourceChangedError:
                self._datasets[id] = self._datasets[id].reopen()
            return self._datasets[id]


def link_neighbours(
    episodes: Sequence[Any], before: int, after: int, address: Callable[[Any], str], query: str
) -> dict[str, str | None]:
    """Returns the URLs of the pages before and after the page of an episode in a list.

    Args:
      episodes: The episodes of the list.
      before: The number of episodes before the episode.
      after: The number of episodes before the next one.
      address: Returns the URL of the page of an episode.
      query: The query of the list.
    """
    suffix = f"?{query}" if query else ""
    previous_url = address(episodes[before - 1]) + suffix if before else None
    next_url = address(episodes[after]) + suffix if after < len(episodes) else None
    return {"previous": previous_url, "next": next_url}


def _scan(path: str, format: str | None, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the path and the format of each dataset at or below a path."""
    if (
        format is None
        and not options
        and "://" not in path
        and os.path.isdir(path)
        and not marked_format(path)
    ):
        datasets = sorted(find_datasets(path))
        logs = [path for path, kind in datasets if kind == "envlogger"]
        for folder in dict.fromkeys(map(os.path.dirname, logs)):
            # Logs in one folder are one dataset: `rlds create` writes a log for each episode.
            siblings = [log for log in logs if os.path.dirname(log) == folder]
            yield folder if len(siblings) > 1 else siblings[0], "envlogger"
        other_datasets = [(path, kind) for path, kind in datasets if kind != "envlogger"]
        yield from other_datasets
        if logs or other_datasets:
            return
    yield path, format or marked_format(path) or sources.format_of(path)


def _dataset_name(path: str) -> str:
    """Returns the name of a dataset: its folder; for a version, also the folder above.

    >>> _dataset_name("logs/run7"), _dataset_name("data/walker2d/1.0.0")
    ('run7', 'walker2d/1.0.0')
    """
    if "://" in path:
        return path
    folder, name = os.path.split(os.path.abspath(path))
    is_version = re.fullmatch(r"\d+\.\d+\.\d+", name)
    return f"{os.path.basename(folder)}/{name}" if is_version else name


def _create_identifier(name: str, path: str) -> str:
    """Returns the identifier of a dataset in URLs, which hides most of its path."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40]
    digest = hashlib.sha256(os.path.abspath(path).encode(errors="surrogateescape")).hexdigest()
    return f"{plain}-{digest[:8]}".strip("-")


class _TableInProgressError(Exception):
    """The table of episodes is still being computed."""

    def __init__(self, progress: Mapping[str, int | None]) -> None:
        super().__init__(progress)
        self.progress = progress


class _TableTask:
    """The background computation of a table of episodes."""

    def __init__(self, episodes: sources.Episodes) -> None:
        self.progress: Mapping[str, int | None] = {"done": 0, "total": None}
        self.future: concurrent.futures.Future[EpisodeTable] = concurrent.futures.Future()
        threading.Thread(target=self._compute, args=(episodes,), daemon=True).start()

    def _compute(self, episodes: sources.Episodes) -> None:
        try:
            self.future.set_result(episodes.table(progress=self._set_progress))
        except BaseException as error:
            self.future.set_exception(error)

    def _set_progress(self, done: int, total: int | None) -> None:
        self.progress = {"done": done, "total": total}


class _OpenArguments(NamedTuple):
    """The options, the split and the condition of all datasets; see `Catalog`."""

    options: Mapping[str, Any] = MappingProxyType({})
    split: str | None = None
    where: str | None = None


class _Dataset:
    """A dataset of a catalog."""

    def __init__(
        self, id: str, name: str, path: str, format: str, cache: Cache, arguments: _OpenArguments
    ) -> None:
        self.id, self.name, self.path, self.format = id, name, path, format
        self.open_id = f"{id}@{secrets.token_hex(4)}"  # Each opening has its own id.
        self.cache, self.arguments = cache, arguments
        self.description = ""
        self.metadata: Mapping[str, Any] = {}
        self.splits: Sequence[str] = ()
        self._is_open = False
        self._lock = threading.RLock()
        self._table_tasks: dict[str, _TableTask] = {}
        self._get_view = functools.lru_cache(_MAX_OPEN)(self._create_view)
        self._get_labels = functools.cache(lambda split: Labels(self.episodes(split)))
        self._get_columns = functools.lru_cache(1)(
            lambda split, state: table_columns(self.labels(split), split)
        )
        self._cached_rows: dict[tuple[str, int], dict[str, Any]] = {}
        self._has_table = functools.cache(
            lambda split: has_table(self.labels(split).episodes.source, split)
        )
        self._tables_by_split: dict[str, tuple[Any, Any]] = {}
        self._get_audit_files = functools.cache(
            lambda split: audit_files(self.labels(split).episodes.source, split)
        )
        self._get_audit = functools.lru_cache(1)(
            lambda split, state: audit_of(self.labels(split).episodes.source, split)
        )

    def open(self) -> None:
        """Opens the dataset and reads its splits; does nothing if it is open."""
        with self._lock:
            if not self._is_open:
                self._open()
                self._is_open = True

    def check(self) -> None:
        """Raises a `SourceChangedError` if the files have changed since they were opened."""
        if self._is_open:
            self._check_files()

    def reopen(self) -> _Dataset:
        """Returns a new dataset with the same arguments, not opened yet."""
        return type(self)(self.id, self.name, self.path, self.format, self.cache, self.arguments)

    def describe(self) -> dict[str, Any]:
        """Returns the description of the dataset, or the error if it cannot be opened."""
        description = {"id": self.id, "name": self.name, "format": self.format, "description": ""}
        try:
            self.open()
        except (OSError, ValueError, LookupError, ImportError, RuntimeError) as error:
            return {**description, "splits": [], "error": str(error)}
        splits = [{"name": split, "episodes": self.count(split)} for split in self.splits]
        return {**description, "description": as_json(self.description), "splits": splits}

    def view(self, split: str, index: int) -> ViewedEpisode:
        with self._lock:
            return self._get_view(split, index)

    def _create_view(self, split: str, index: int) -> ViewedEpisode:
        total = self.count(split)
        if index < 0 or (total is not None and index >= total):
            raise IndexError(f"There are {total} episodes, from 0 on, and no episode {index}.")
        return ViewedEpisode(
            self.steps(split, index),
            title=f"{self.name}, {split} {self.stored_index(split, index)}",
            dataset_metadata=self.metadata,
            base_url=f"/api/datasets/{self.open_id}/{quote(split, safe='')}/{index}/view",
            cache_seconds=300,  # Files may change.
        )

    def indices(self, split: str, where: str, sort: str = "", at_least: int = 0) -> Sequence[int]:
        """Returns the indices of the episodes that match a condition, sorted by a column.

        Args:
          split: The split.
          where: The condition; if it is empty, all episodes match.
          sort: A column, see `Catalog.listing`; if it is empty, the order of the dataset.
          at_least: The assumed number of episodes if it is unknown.

        Raises:
          KeyError: The column does not exist.
        """
        if sort:
            key = self.open_id, split, "sort", where, sort, self._sidecar_state(split)
            indices: Sequence[int] = self.cache.get(key, lambda: self._sort(split, where, sort))
            return indices
        if not where:
            total = self.count(split)
            return range(at_least if total is None else total)
        where_key = self.open_id, split, "where", where, self._sidecar_state(split)
        rows: Sequence[int] = self.cache.get(where_key, lambda: self._table(split).where(where))
        return rows

    def _sort(self, split: str, where: str, sort: str) -> list[int]:
        name = sort.removeprefix("-")
        column = self.columns(split).get(name) or SORT_COLUMNS.get(name)
        if not column:
            raise KeyError(f"There is no column {name}.")
        # Without labels, the table has no column of labels; the sort keys are None.
        names = dict.fromkeys(("index", column.path[0]))
        rows = self._table(split).arrow([*names]).to_pylist()
        indices = self.indices(split, where) if where else range(len(rows))
        key = (
            labels_sort_key
            if column is SORT_COLUMNS["labels"]
            else lambda row: read_cell(row, column)
        )
        cells = [key(rows[index]) for index in indices]
        return sort_episodes(indices, cells, reverse=sort != name)

    def columns(self, split: str) -> dict[str, Column]:
        """Returns the columns of the table of episodes, by their names in conditions."""
        return self._get_columns(split, self._sidecar_state(split))

    def _sidecar_state(self, split: str) -> tuple[Any, ...]:
        """Returns a value that changes with each label and each audit of a split."""
        audits = [file for file in self._get_audit_files(split) if file.is_file()]
        return self.labels(split).state(), state_of(audits)

    def rows(self, split: str) -> list[dict[str, Any]]:
        """Returns rows of the table or cached rows of read episodes, for examples of values."""
        if (table := self._labelled_table(split)) is not None:
            rows: list[dict[str, Any]] = table.slice(0, _NUM_EXAMPLE_ROWS).to_pylist()
            return rows
        return self._add_labels(split, [*self._cached_rows.values()][:_NUM_EXAMPLE_ROWS])

    def _labelled_table(self, split: str) -> Any:
        """Returns the table of episodes with their labels; None if it is not computed yet."""
        task = self._table_tasks.get(split)
        is_computed = task is not None and task.future.done() and not task.future.exception()
        if not (is_computed or self._has_table(split)):
            return None
        state = self._sidecar_state(split)
        if self._tables_by_split.get(split, (None, None))[0] != state:
            with contextlib.suppress(_TableInProgressError):
                self._tables_by_split[split] = state, self._table(split).arrow()
        return self._tables_by_split.get(split, (None, None))[1]

    def _read_rows(
        self, split: str, indices: Sequence[int], deadline: float
    ) -> tuple[Sequence[dict[str, Any] | None], bool]:
        """Returns the rows of episodes, None for unread ones; and True if no row is missing."""
        if (table := self._labelled_table(split)) is not None:
            return table.take(indices).to_pylist(), True
        source = self.labels(split).episodes.source
        if not isinstance(source, sources.Source):
            return [None] * len(indices), True
        for index in indices:
            if time.monotonic() > deadline:
                break
            if (split, index) not in self._cached_rows:
                self._cached_rows[split, index] = table_row(source, split, index)
        while len(self._cached_rows) > _MAX_CACHED_ROWS:
            del self._cached_rows[next(iter(self._cached_rows))]
        read_indices = [index for index in indices if (split, index) in self._cached_rows]
        rows = self._add_labels(split, [self._cached_rows[split, index] for index in read_indices])
        rows_by_index = dict(zip(read_indices, rows))
        return [rows_by_index.get(index) for index in indices], len(read_indices) == len(indices)

    def _add_labels(self, split: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        if (audit := self._get_audit(split, self._sidecar_state(split))) is not None:
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
            return task.future.result(_TABLE_TIMEOUT_S)
        except concurrent.futures.TimeoutError:
            raise _TableInProgressError(task.progress) from None

    def listing(self, split: str, indices: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
        """Returns a page of episodes with values read in time, see `Catalog.listing`."""
        summaries = self._summarize(split, indices)
        try:
            columns = self.columns(split)
            read_indices = [summary["index"] for summary in summaries]
            deadline = time.monotonic() + _ROWS_TIMEOUT_S
            rows, is_complete = self._read_rows(split, read_indices, deadline)
        except (ImportError, OSError, ValueError, RuntimeError):  # The episodes have no table.
            return {"episodes": summaries}
        names = [name for name in names if name in columns] or default_columns(columns)
        score_ranks = rank_columns(names, columns)
        for episode, row in zip(summaries, rows):
            if row is None:
                continue
            episode["ranks"] = {name: read_cell(row, rank) for name, rank in score_ranks.items()}
            cells = {name: as_json(read_cell(row, columns[name])) for name in names}
            steps = episode["num_steps"] if row["steps"] is None else row["steps"]
            episode |= {"values": cells, "labels": row_labels(row), "num_steps": steps}
            if row["error"] is not None:
                episode["error"] = row["error"]
        return {"episodes": summaries, "columns": names, "is_complete": is_complete}

    def _summarize(self, split: str, indices: Sequence[int]) -> list[dict[str, Any]]:
        deadline = time.monotonic() + _LENGTHS_TIMEOUT_S
        summaries = []
        for index in map(int, indices):
            row: dict[str, Any] = {"index": index, "num_steps": None, "values": None, "labels": []}
            row["number"] = self.stored_index(split, index)
            if time.monotonic() < deadline:
                try:
                    row |= self.summary(split, index)
                except IndexError:
                    break
                except (OSError, ValueError, RuntimeError) as error:
                    row["error"] = str(error)
            summaries.append(row)
        return summaries

    def labels(self, split: str) -> Labels:
        """Returns the labels of the episodes of a split."""
        with self._lock:
            return self._get_labels(split)

    def address(self, split: str, index: int) -> str:
        """Returns the URL of the page of an episode."""
        return f"/datasets/{self.id}/{split}/{index}"

    def _open(self) -> None:
        raise NotImplementedError

    def _check_files(self) -> None:
        raise NotImplementedError

    def count(self, split: str) -> int | None:
        """Returns the number of episodes of a split; None if unknown."""
        raise NotImplementedError

    def stored_index(self, split: str, index: int) -> int:
        """Returns the stored index of an episode, which differs from the index in a subset."""
        return index

    def find(self, split: str, stored_index: int) -> int:
        """Returns the index of an episode by its stored index; the errors are those of `view`."""
        return stored_index

    def episodes(self, split: str) -> sources.Episodes:
        """Returns the episodes of a split."""
        raise NotImplementedError

    def steps(self, split: str, index: int) -> EpisodeSteps:
        """Returns the steps of an episode."""
        raise NotImplementedError

    def state(self, split: str, index: int) -> str:
        """Returns a text that changes when the files of an episode change; "" if unknown."""
        raise NotImplementedError

    def summary(self, split: str, index: int) -> dict[str, Any]:
        """Returns the number of steps of an episode, if it is available without the steps."""
        raise NotImplementedError


class _LogDataset(_Dataset):
    """EnvLogger logs, possibly of different environments."""

    def _open(self) -> None:
        paths = find_logs(self.path)
        self._paths, counts, first_error = [], [], None
        for path in paths:
            try:
                with envlogger.Reader(path) as reader:
                    counts.append(len(reader.episodes))
                    self.metadata = reader.metadata() if len(paths) == 1 else {}
                self._paths.append(path)
            except EnvLoggerError as error:
                first_error = first_error or error
        if first_error is not None and not counts:
            raise first_error
        self._end_indices = list(itertools.accumulate(counts))
        self._files = Files(self.path, *self._paths[:_MAX_OPEN], may_grow=True)
        self.splits = ["train"]
        self.description = "Episodes recorded with EnvLogger."
        if first_error is not None:
            self.description += f" {len(paths) - len(counts)} of {len(paths)} logs cannot be read."

    def count(self, split: str) -> int:
        return self._end_indices[-1]

    @override
    def _check_files(self) -> None:
        self._files.check(lambda: self._paths, failed=False)

    def _log_and_index(self, index: int) -> tuple[str, int]:
        self._check_files()
        log = bisect.bisect_right(self._end_indices, index)
        return self._paths[log], index - (self._end_indices[log - 1] if log else 0)

    @override
    def episodes(self, split: str) -> sources.Episodes:
        self._check_files()
        episodes = sources.open(self.path, split=split, format=self.format)
        if len(episodes) != self.count(split):
            raise ValueError("Some logs cannot be read: these episodes cannot be filtered.")
        return episodes

    def steps(self, split: str, index: int) -> EpisodeSteps:
        path, log_index = self._log_and_index(index)
        # The reader is closed when no page shows the episode any more.
        return LogSteps(envlogger.Reader(path), log_index, self.cache, f"{self.open_id}/{index}")

    def state(self, split: str, index: int) -> str:
        path, log_index = self._log_and_index(index)
        if not stores.is_local(path):
            return ""
        return f"{os.path.realpath(path)} {log_index} {state_of(Path(path).rglob('*.riegeli'))}"

    def summary(self, split: str, index: int) -> dict[str, Any]:
        path, log_index = self._log_and_index(index)
        with envlogger.Reader(path) as reader:
            return {"num_steps": len(reader.episodes[log_index])}


class _SourceDataset(_Dataset):
    """A dataset of any other format."""

    def _open(self) -> None:
        options, split, where = self.arguments
        image_options = {"decode_images": False} if self.format == "tfds" else {}
        source = sources.formats()[self.format].source(self.path, **{**image_options, **options})
        is_subset = where is not None or not (split is None or split in source.splits)
        if is_subset:
            episodes = sources.Episodes(source, split or "all", format=self.format)
            subset = episodes.where(where) if where else episodes.select(range(len(episodes)))
            source = subset.source
        self._source = source
        self.splits = [*source.splits] if is_subset or split is None else [split]
        self.description = source.source_info.description
        self.metadata = source.source_info.metadata
        self._episodes = {
            split: sources.Episodes(source, split, format=self.format) for split in self.splits
        }
        self._picture_source = frames_of(source) or source
        self._tables = Tables.create(source)
        self._checked_at, self._files_key = -math.inf, ""

    @override
    def _check_files(self) -> None:
        reading.check(self._source)

    def count(self, split: str) -> int | None:
        return reading.count(self._source, split)

    @override
    def stored_index(self, split: str, index: int) -> int:
        return self._episodes[split].stored_index(index)

    @override
    def find(self, split: str, stored_index: int) -> int:
        [index] = indices_at(self._episodes[split], [stored_index])
        return index

    @override
    def episodes(self, split: str) -> sources.Episodes:
        return self._episodes[split]

    def steps(self, split: str, index: int) -> EpisodeSteps:
        episodes = sources.Episodes(self._picture_source, split, format=self.format)
        row = None if self._tables is None else self._tables.find(split, index)
        return SourceSteps(episodes, index, self.cache, f"{self.open_id}/{split}", row)

    def state(self, split: str, index: int) -> str:
        with self._lock:
            if time.monotonic() > self._checked_at + _FILE_STATE_CACHE_S:
                self._checked_at, self._files_key = time.monotonic(), key_of(self._picture_source)
        return f"{os.path.realpath(self.path)} {split} {index} {self._files_key}"

    def summary(self, split: str, index: int) -> dict[str, Any]:
        if self._tables is not None:
            table, row = self._tables.find(split, index)
            return {"num_steps": int(table.summaries.num_steps[row])}
        if not isinstance(self._source, sources.Source):
            return {}
        return {"num_steps": reading.summary(self._source, split, index).num_steps}
