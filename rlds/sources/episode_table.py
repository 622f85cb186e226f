"""The table of episodes: stored next to the data, queried in SQL.

A table is a Parquet file for each split, in the folder `.rlds` of the data. If that folder is not
writable, or the data is one file, the table is in the cache. The table is recomputed if the size or
the modification time of a file of the data changes.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import rlds
from rlds.sources import audit_rows, label_rows, queries, reading
from rlds.sources.dataset_folders import cache_folder_of, file_versions, folder_of, root_of
from rlds.sources.episode_rows import RowMaker
from rlds.sources.source import AnySource, Source, SourceError
from rlds.sources.view import View
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.processes import default_jobs, run_tasks
from rlds_ecosystem.files.replacing import FOLDER
from rlds_ecosystem.files.whole_files import try_to_lock, write_atomically
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.nests import is_below
from rlds_ecosystem.progress import show_progress

__all__ = [
    "EpisodeTable",
    "Progress",
    "audit_files",
    "audit_of",
    "has_table",
    "key_of",
    "row_maker",
    "store_audit",
    "table_file",
    "table_row",
]

# True for a progress bar, None for a progress bar on a terminal only; or a callback with the number
# of done episodes and of all episodes (None if unknown).
Progress = bool | Callable[[int, int | None], None] | None

# A table of another version is recomputed.
_VERSION = 5
_METADATA_KEY = b"rlds"
# Limits of the episodes of a task, whose rows are kept in a file to resume. Small datasets get
# small tasks, as their episodes may be long.
_MAX_TASK_EPISODES, _MIN_TASK_EPISODES = 2_000, 64
_ROW_GROUP_SIZE = 100_000
# Worker processes start if one process would need more seconds.
_SERIAL_SECONDS = 10.0


class TableFile(NamedTuple):
    """A file of the episode table of a split, with the rows of a range of episodes.

    Attributes:
      file: The Parquet file of the table.
      key: The key of the data in the metadata of the file, see `key_of`.
      rows: The indices of the episodes in the split.
      labels: The folders of labels, which each query reads again.
      aliases: The columns by their aliases.
    """

    file: Path
    key: str
    rows: range | np.ndarray
    labels: Sequence[Path] = ()
    aliases: Mapping[str, str] = MappingProxyType({})


class EpisodeTable:
    """A table with a row for each episode; see `Episodes.table`.

    Args:
      tables: The rows of each range of episodes.
    """

    def __init__(self, tables: Sequence[TableFile]) -> None:
        self._tables = list(tables)

    def _checked_tables(self) -> list[TableFile]:
        for table in self._tables:
            if _stored_key(table.file) != table.key:
                raise StorageError(f"{table.file}: the data has changed since; open it again")
        return self._tables

    def __len__(self) -> int:
        return sum(len(table.rows) for table in self._tables)

    def __repr__(self) -> str:
        return f"EpisodeTable({len(self)} episodes: {', '.join(self.columns)})"

    @property
    def columns(self) -> dict[str, str]:
        """The types of the columns, by their names."""
        table = self._checked_tables()[0]
        schema = import_extra("pyarrow.parquet").read_schema(table.file)
        types = {field.name: str(field.type) for field in schema}
        for column, values in _labels_and_audit(table, [label_rows.COLUMN, audit_rows.COLUMN]):
            types[column] = str(values[column].type)
        return types

    @property
    def aliases(self) -> Mapping[str, str]:
        """The columns by their aliases in conditions."""
        return self._tables[0].aliases

    def arrow(self, columns: Sequence[str] | None = None) -> Any:
        """Returns the table as a `pyarrow.Table`.

        Args:
          columns: The names of the columns; all if None.

        Raises:
          StorageError: The data has changed since it was opened.
        """
        arrow = import_extra("pyarrow")
        tables = [
            _with_labels_and_audit(t, columns).take(arrow.array(np.asarray(t.rows, np.int64)))
            for t in self._checked_tables()
        ]
        return arrow.concat_tables(tables, promote_options="permissive").combine_chunks()

    def where(self, condition: str, *, first: int = 0) -> np.ndarray:
        """Returns the indices of the episodes that fulfil a condition.

        Args:
          condition: An expression of SQL over the columns, such as
            `steps > 50 and success and instruction like '%red%'`. Numeric fields of steps have
            statistics: `reward.max > 1`, `"observation/state".mean < 0`. `number` counts the
              episodes of all splits, `index` counts per split. An audit adds the column
            `audit`: `audit.efficiency > 0.5`, `list_contains(audit.findings, 'lag')`.
          first: The `number` of the first episode.

        Raises:
          StorageError: The data has changed since it was opened.
          ValueError: The condition is not valid, or has an unknown column.
        """
        indices, start = [np.empty(0, np.int64)], first
        for table in self._checked_tables():
            columns = _condition_columns(condition, table)
            rows = queries.matching_rows(
                table.file,
                condition,
                table.rows,
                first=start,
                columns=columns,
                aliases=table.aliases,
            )
            indices.append(rows - first)
            start += len(table.rows)
        return np.concatenate(indices)


def table_file(
    source: AnySource,
    split: str,
    rows: range | np.ndarray,
    *,
    progress: Progress = None,
    jobs: int | None = None,
) -> TableFile:
    """Returns rows of the episode table of a split; computes the table unless it is up to date.

    Args:
      source: The source.
      split: The split.
      rows: The indices of the episodes.
      progress: True for a progress bar, None for a progress bar on a terminal only; or a callback.
      jobs: The largest number of processes that read episodes; one for each processor if None.

    Raises:
      OSError: No folder for the table is writable.
    """
    source, split, rows = _with_table(source, split, rows)
    key = key_of(source)
    file = _table_file(source, split, key, progress, jobs)
    aliases = _columns_of_aliases(source)
    return TableFile(file, key, rows, label_rows.folders_of(source), aliases)


def store_audit(
    source: AnySource,
    split: str,
    rows: range | np.ndarray,
    findings: Sequence[Sequence[str]],
    scores: Mapping[str, np.ndarray],
    meanings: Sequence[str],
) -> bool:
    """Stores the results of an audit as the column `audit` of the table of episodes.

    Args:
      source: The source.
      split: The split.
      rows: The indices of the episodes.
      findings: The names of the findings of each episode.
      scores: The scores of each episode, by name; NaN for unknown scores.
      meanings: The meaning of actions and observations, in sentences.

    Returns:
      True if the column is stored. False if `rows` are not all rows of the table in order, or no
      folder is writable.
    """
    source, split, rows = _with_table(source, split, rows)
    if not isinstance(source, Source):
        return False
    if not np.array_equal(rows, np.arange(source.num_episodes(split))):
        return False
    for table in _candidate_files(source, split):
        try:
            table.parent.mkdir(parents=table.parent.name != FOLDER, exist_ok=True)
            file = audit_rows.audit_file(table)
            audit_rows.write(file, key_of(source), findings, scores, meanings)
        except OSError:  # The folder cannot be written.
            continue
        return True
    return False


def audit_of(source: AnySource, split: str) -> Any:
    """Returns the columns `index` and `audit` of the episodes of a split; None without an audit."""
    source, split, _ = _with_table(source, split, range(0))
    key = key_of(source)
    files = _candidate_files(source, split)
    audits = (audit_rows.read_audit(audit_rows.audit_file(file), key) for file in files)
    return next((audit for audit in audits if audit is not None), None)


def audit_files(source: AnySource, split: str) -> list[Path]:
    """Returns the files that may hold the audit of a split."""
    source, split, _ = _with_table(source, split, range(0))
    return [*map(audit_rows.audit_file, _candidate_files(source, split))]


def _condition_columns(condition: str, table: TableFile) -> Any:
    """Returns the label and audit columns for a condition, with `index`; None without any."""
    names = [audit_rows.COLUMN] if audit_rows.COLUMN in condition.casefold() else []
    try:
        extra_columns = _labels_and_audit(table, [label_rows.COLUMN, *names])
    except SourceError:  # The labels are damaged.
        if label_rows.COLUMN in condition.casefold():
            raise
        extra_columns = _labels_and_audit(table, names)
    if not extra_columns:
        return None
    columns = _read(table.file, ["index"])
    for column, values in extra_columns:
        columns = columns.append_column(column, values[column])
    return columns


def _labels_and_audit(table: TableFile, columns: Sequence[str]) -> list[tuple[str, Any]]:
    """Returns the label and audit columns of a table, in the order of its rows."""
    extra_columns = []
    labels = label_rows.summary(table.labels) if label_rows.COLUMN in columns else None
    if labels is not None:
        column = label_rows.label_column(_read(table.file, ["digest"])["digest"], labels)
        extra_columns.append((label_rows.COLUMN, {label_rows.COLUMN: column}))
    if audit_rows.COLUMN in columns:
        audit = audit_rows.read_audit(audit_rows.audit_file(table.file), table.key)
        if audit is not None:
            extra_columns.append((audit_rows.COLUMN, audit))
    return extra_columns


def table_row(source: AnySource, split: str, index: int) -> dict[str, Any]:
    """Computes the table row of a single episode."""
    source, split, rows = _with_table(source, split, np.array([index]))
    index = int(rows[0])
    row: dict[str, Any] = RowMaker(source).rows(split, range(index, index + 1)).to_pylist()[0]
    return row


def row_maker(source: AnySource, split: str) -> RowMaker:
    """Returns the `RowMaker` of the table of a split."""
    return RowMaker(_with_table(source, split, range(0))[0])


def has_table(source: AnySource, split: str) -> bool:
    """Whether the table of a split is stored and up to date."""
    source, split, _ = _with_table(source, split, range(0))
    key = key_of(source)
    return any(_stored_key(file) == key for file in _candidate_files(source, split))


def _with_table(
    source: AnySource, split: str, rows: range | np.ndarray
) -> tuple[AnySource, str, range | np.ndarray]:
    """Resolves views: returns the source, split and rows of the shared table."""
    while isinstance(source, View) and source.shares_table:
        if source.has_all:
            [source] = source.bases
        else:
            [(_, source, split, rows)] = source.base_episodes(split, np.asarray(rows, np.int64))
    return source, split, rows


def _columns_of_aliases(source: AnySource) -> dict[str, str]:
    """Returns the columns of a table by the aliases of their fields."""
    if not (aliases := source.source_info.aliases):
        return {}
    maker = RowMaker(source)
    names = (*maker.schema.names, label_rows.COLUMN, audit_rows.COLUMN, queries.ROW_COLUMN)
    used_names = {name.lower() for name in names}
    columns: dict[str, str] = {}
    for (alias, path), (field, column) in itertools.product(aliases.items(), maker.columns.items()):
        name = alias + field.removeprefix(path)
        is_named = field == path or (path != rlds.STEPS and is_below(field, path))
        if is_named and name.lower() not in used_names:
            columns[name] = column
            used_names.add(name.lower())
    return columns


def _with_labels_and_audit(table: TableFile, columns: Sequence[str] | None) -> Any:
    """Reads columns of a table, with the current labels and audit of the episodes."""
    extra_names = [label_rows.COLUMN, audit_rows.COLUMN]
    names = None if columns is None else [name for name in columns if name not in extra_names]
    result = _read(table.file, names)
    for column, values in _labels_and_audit(table, extra_names if columns is None else columns):
        result = result.append_column(column, values[column])
    return result


def _read(file: Path, columns: Sequence[str] | None = None) -> Any:
    # `read_table` would load pandas.
    with import_extra("pyarrow.parquet").ParquetFile(file) as parquet_file:
        return parquet_file.read(columns)


def _table_file(
    source: AnySource, split: str, key: str, progress: Progress, jobs: int | None
) -> Path:
    """Returns the table file of a split; computes it unless it is up to date."""
    files = _candidate_files(source, split)
    for file in files:
        if _stored_key(file) == key:
            return file
    failure: OSError | None = None
    for file in files:
        try:
            file.parent.mkdir(parents=file.parent.name != FOLDER, exist_ok=True)
            _TableWriter(source, split, key, file).write(progress, jobs or default_jobs())
        except OSError as error:  # The folder cannot be written.
            failure = error
        if _stored_key(file) == key:  # Another process may have written the table.
            return file
    raise OSError(
        f"cannot write the table of episodes next to {files[0].parent.parent} or to the cache: "
        f"{failure}. Set RLDS_CACHE_DIR to a folder that can be written"
    ) from failure


def _candidate_files(source: AnySource, split: str) -> list[Path]:
    """Returns the files that may hold the table of a split."""
    name = f"episodes-{split}.parquet"
    return [folder / name for folder in (*folder_of(source), *cache_folder_of(source, "episodes"))]


class _TableWriter:
    """Computes and writes an episode table; resumes after a killed process."""

    def __init__(self, source: AnySource, split: str, key: str, file: Path) -> None:
        self._source, self._split, self._key, self._file = source, split, key, file
        self._drafts = file.with_name(f".{file.name}.{key[:16]}")

    def write(self, progress: Progress, jobs: int) -> None:
        for other in self._file.parent.glob(f".{self._file.name}.*"):
            if other != self._drafts:
                shutil.rmtree(other, ignore_errors=True)
        self._drafts.mkdir(exist_ok=True)
        descriptor = try_to_lock(self._drafts)
        try:
            self._write_tables(self._tables(progress, jobs, keeps_rows=descriptor is not None))
        finally:
            if descriptor is not None:
                os.close(descriptor)
        shutil.rmtree(self._drafts, ignore_errors=True)

    def _tables(self, progress: Progress, jobs: int, *, keeps_rows: bool) -> Iterator[Any]:
        """Yields the rows of all episodes, in order."""
        tasks = _tasks(self._source, self._split)
        with show_progress(False if callable(progress) else progress) as bars:
            num_episodes = reading.count(self._source, self._split)
            bar = bars.add_task("table of episodes", total=num_episodes)
            first = 0
            for table in self._read(tasks, jobs, keeps_rows=keeps_rows):
                if not isinstance(self._source, Source):
                    table = _with_index(table, first)
                first += len(table)
                bars.update(bar, completed=first)
                if callable(progress):
                    progress(first, num_episodes)
                yield table

    def _read(self, tasks: Sequence[range | str], jobs: int, *, keeps_rows: bool) -> Iterator[Any]:
        files = [self._drafts / f"{index}.parquet" for index in range(len(tasks))]
        missing = [index for index, file in enumerate(files) if not file.exists()]
        new_tables = _read_all(self._source, self._split, [tasks[i] for i in missing], jobs)
        for index, file in enumerate(files):
            if index not in missing:
                yield _read(file)
                continue
            table = next(new_tables)
            if keeps_rows and len(tasks) > 1:
                write_atomically(file, _as_bytes(table), durable=False)
            yield table

    def _write_tables(self, tables: Iterator[Any]) -> None:
        arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
        schema = RowMaker(self._source).schema.with_metadata({_METADATA_KEY: self._key})
        draft = self._drafts / f"{os.getpid()}.whole"
        with parquet.ParquetWriter(draft, schema, compression="zstd") as writer:
            pending: list[Any] = []
            for table in itertools.chain(tables, [None]):
                if table is not None:
                    pending.append(table)
                if pending and (table is None or sum(map(len, pending)) >= _ROW_GROUP_SIZE):
                    writer.write_table(
                        arrow.concat_tables(pending).unify_dictionaries().cast(schema),
                        row_group_size=_ROW_GROUP_SIZE,
                    )
                    pending = []
        os.replace(draft, self._file)


def _tasks(source: AnySource, split: str) -> list[range | str]:
    """Returns the tasks of a table: ranges of episodes, or the parts of a stream."""
    if not isinstance(source, Source):
        return [*reading.parts(source, split)]
    total = source.num_episodes(split)
    size = min(_MAX_TASK_EPISODES, max(_MIN_TASK_EPISODES, total // 64))
    return [range(start, min(start + size, total)) for start in range(0, total, size)]


def _read_all(
    source: AnySource, split: str, tasks: Sequence[range | str], jobs: int
) -> Iterator[Any]:
    """Yields the table rows of each task, in order; uses worker processes for long runs."""
    rows = functools.partial(RowMaker(source).rows, split)
    return (table for _, table in run_tasks(rows, tasks, jobs, delay=_SERIAL_SECONDS))


def _with_index(table: Any, first: int) -> Any:
    arrow = import_extra("pyarrow")
    indices = arrow.array(np.arange(first, first + len(table)))
    return table.set_column(table.column_names.index("index"), "index", indices)


def _as_bytes(table: Any) -> bytes:
    sink = import_extra("pyarrow").BufferOutputStream()
    import_extra("pyarrow.parquet").write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _stored_key(file: Path) -> str:
    """Returns the data key stored in a table file; empty if it is missing or damaged."""
    if not file.is_file():
        return ""
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    try:
        metadata = parquet.read_schema(file).metadata or {}
    except (OSError, arrow.ArrowInvalid):
        return ""
    return metadata.get(_METADATA_KEY, b"").decode(errors="replace")


def key_of(source: AnySource) -> str:
    """Returns a key that changes with the files and the options of a source."""
    kind = type(source)
    files = file_versions(source.inputs(), root_of(source))
    content = [_VERSION, kind.__module__, kind.__qualname__, source.source_info.options, files]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()
