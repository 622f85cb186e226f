"""Rows of the table of episodes, as columns of Arrow."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import rlds
from rlds.sources import reading
from rlds.sources.audit_rows import COLUMN as AUDIT
from rlds.sources.digests import as_array, digest_of_columns
from rlds.sources.episode_fields import as_converted
from rlds.sources.label_rows import COLUMN as LABELS
from rlds.sources.queries import ROW_COLUMN
from rlds.sources.rates import rate_in
from rlds.sources.source import (
    TRANSITION_FIELDS,
    AnySource,
    DamagedEpisode,
    Source,
    SourceEpisode,
    SourceError,
    summary_of,
)
from rlds.sources.texts import as_text, is_instruction
from rlds.video import VIDEO
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field, as_fields, is_known_mask
from rlds_ecosystem.model.nests import leaves_at, root_of

__all__ = ["RowMaker", "column_of"]

# Texts longer than this limit are not names of tasks, and are left out of the table.
_MAX_TEXT_LENGTH = 500
# The approximate limit of bytes of numbers in memory.
_MAX_BATCH_BYTES = 16 << 20
_EMPTY_COLUMN = np.empty(0)
# Limits of the episodes, and of their bytes, that are read before their rows are computed.
_MAX_READ_AHEAD, _MAX_READ_AHEAD_BYTES = 64, 1 << 20
_STATISTIC_NAMES = ("min", "max", "mean")
# The field of the recording times of steps, in nanoseconds.
_TIMESTAMP = "timestamp"


class RowMaker:
    """Computes rows of the episode table of a source.

    Image files are read undecoded; clips are not read.

    Args:
      source: The source.

    Attributes:
      schema: The columns, as `pyarrow.Schema`.
      fixed: The names of the columns of every table.
      columns: The column of each field, by the path of the field.
    """

    def __init__(self, source: AnySource) -> None:
        self._source = reading.with_image_files(source)
        with reading.errors_of(source):
            steps = dict(leaves_at(as_fields(self._source.fields.steps), None))
            episode = dict(leaves_at(as_fields(self._source.fields.episode), None))
        arrow = import_extra("pyarrow")
        columns = _fixed_columns(arrow)
        self.fixed = frozenset(columns)
        # Paths of fields by column: columns of episode values, and of statistics.
        self._values, self._numeric_paths = {}, {}
        for path, field in episode.items():
            if root_of(path) != VIDEO and (kind := _type_of_value(field, arrow)):
                name = _unique_name(path, "episode", columns)
                columns[name], self._values[name] = kind, path
        for path, field in steps.items():
            if path not in rlds.STEP_FLAGS and (kind := _type_of_statistics(field, arrow)):
                name = _unique_name(path, rlds.STEPS, columns)
                columns[name], self._numeric_paths[name] = kind, path
        self._transition_columns = [
            column
            for column, path in enumerate(self._numeric_paths.values())
            if root_of(path) in TRANSITION_FIELDS
        ]
        self.schema = arrow.schema([*columns.items()])
        texts = {p: field for p, field in (*episode.items(), *steps.items()) if is_instruction(p)}
        self._instructions = [p for p, f in texts.items() if isinstance(f, Field) and f.is_text]
        paths = [path if path in episode else f"{rlds.STEPS}/{path}" for path in self._instructions]
        # Paths of the mask fields (True if an episode has the value), by field path.
        marks = {path: known_field(path) for path in episode}
        self._masks = {p: mark for p, mark in marks.items() if is_known_mask(episode.get(mark))}
        stamp = steps.get(_TIMESTAMP)
        self._has_timestamps = isinstance(stamp, Field) and stamp.unit == "ns"
        self.columns = {
            **{path: name for name, path in self._values.items()},
            **{f"{rlds.STEPS}/{path}": name for name, path in self._numeric_paths.items()},
            **dict.fromkeys(paths[:1], "instruction"),
            rlds.STEPS: "steps",
        }
        has_clips = any(root_of(path) == VIDEO for path in episode)
        self._paths_to_read = None
        if has_clips:
            paths = [path for path in episode if root_of(path) != VIDEO]
            names = [*self._source.fields.flags, *steps]
            self._paths_to_read = [*paths, *(f"{rlds.STEPS}/{path}" for path in names)]

    @functools.cached_property
    def _rate(self) -> float | None:
        """The frame rate of all episodes; not needed for queries of the table."""
        with reading.errors_of(self._source):
            return rate_in(self._source.source_info.metadata)

    def rows(self, split: str, part: range | str, first: int = 0) -> Any:
        """Reads episodes, and returns their rows.

        Args:
          split: The split.
          part: The indices of the episodes; or the name of a part of a stream.
          first: The index of the first episode of a part of a stream.

        Returns:
          A `pyarrow.Table` with a row for each episode; damaged episodes have an `error`.
        """
        arrow = import_extra("pyarrow")
        tables, batch, group_size = [], _RowBatch(), 1
        index = part.start if isinstance(part, range) else first
        episodes = self._episodes(split, part)
        # Reading several small episodes before computing their rows is faster.
        while group := list(itertools.islice(episodes, group_size)):
            size = sum([self._add(batch, split, index + n, e) for n, e in enumerate(group)])
            index += len(group)
            fitting = _MAX_READ_AHEAD_BYTES * len(group) // (size + 1) + 1
            group_size = min(2 * group_size, _MAX_READ_AHEAD, fitting)
            group.clear()
            if batch.num_bytes > _MAX_BATCH_BYTES:
                tables.append(self._to_arrow(batch))
                batch = _RowBatch()
        return arrow.concat_tables([*tables, self._to_arrow(batch)])

    def _episodes(self, split: str, part: range | str) -> Iterator[SourceEpisode | DamagedEpisode]:
        source = self._source
        if isinstance(part, str):
            yield from reading.episodes(source, split, part)
            return
        assert isinstance(source, Source)
        for index in part:
            try:
                yield reading.read(source, split, index, self._paths_to_read)
            except SourceError as error:
                yield DamagedEpisode(source.key(split, index), error)

    def _add(
        self, batch: _RowBatch, split: str, index: int, episode: SourceEpisode | DamagedEpisode
    ) -> int:
        """Adds an episode to a batch; returns the number of bytes of its steps."""
        row: dict[str, Any] = {"split": split, "index": index, "key": episode.key}
        if isinstance(episode, DamagedEpisode):
            row["error"] = str(episode.error)
            batch.add(row, [_EMPTY_COLUMN] * len(self._numeric_paths))
            return 0
        episode = as_converted(episode)
        steps = dict(leaves_at(episode.steps, None))
        metadata = dict(leaves_at(episode.metadata, None))
        for path in [path for path, mark in self._masks.items() if not metadata.get(mark, True)]:
            metadata.pop(path, None)  # The value is a placeholder.
        summary = summary_of(steps, episode.final_observation_known)
        flags = steps.get(rlds.IS_TERMINAL, ())
        rate = rate_in(metadata) or self._rate
        row |= {
            "key": episode.key,
            "steps": summary.num_steps,
            "transitions": summary.num_transitions,
            "return": episode.total_reward,
            "terminal": bool(flags[-1]) if len(flags) else None,
            "truncated": episode.truncated,
            "complete": episode.complete,
            "duration": summary.num_steps / rate if rate else self._duration(steps),
            "instruction": self._instruction({**steps, **metadata}, steps),
            "bytes": sum(map(_num_bytes, steps.values())),
            "digest": digest_of_columns(steps),
            **{name: _as_cell(metadata.get(path)) for name, path in self._values.items()},
        }
        columns = [_as_numeric(steps.get(path)) for path in self._numeric_paths.values()]
        if episode.final_observation_known:
            for column in self._transition_columns:
                columns[column] = columns[column][:-1]
        batch.add(row, columns)
        return int(row["bytes"])

    def _instruction(self, values: Mapping[str, Any], steps: Mapping[str, Any]) -> str | None:
        for path in self._instructions:
            value = values.get(path)
            if path in steps:
                value = value[0] if value is not None and len(value) else None
            text = _as_cell(value)
            if isinstance(text, str):
                return text
        return None

    def _duration(self, steps: Mapping[str, Any]) -> float | None:
        """Returns the seconds from the first to the last step; None without times of steps."""
        times = _as_numeric(steps.get(_TIMESTAMP))
        has_duration = self._has_timestamps and len(times) > 1
        return float(times[-1] - times[0]) / 1e9 if has_duration else None

    def _to_arrow(self, batch: _RowBatch) -> Any:
        arrow = import_extra("pyarrow")
        columns = []
        statistics = dict(zip(self._numeric_paths, batch.statistics(len(self._numeric_paths))))
        for field in self.schema:
            if field.name in self._numeric_paths:
                numeric_columns, is_empty = statistics[field.name]
                # NaN becomes null (unknown), for which comparisons are false.
                arrays = [
                    arrow.array(column, mask=is_empty | np.isnan(column)).cast(field.type[0].type)
                    for column in numeric_columns
                ]
                columns.append(arrow.StructArray.from_arrays(arrays, fields=[*field.type]))
            else:
                values = [row.get(field.name) for row in batch.rows]
                columns.append(arrow.array(values, field.type, from_pandas=True))
        return arrow.table(columns, schema=self.schema)


class _RowBatch:
    """Rows and numeric columns of some episodes, collected for the table of episodes."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []
        # The numeric values of each episode, field by field, and their counts.
        self._values: list[np.ndarray] = []
        self._sizes: list[list[int]] = []
        self.num_bytes = 0

    def add(self, row: Mapping[str, Any], columns: Sequence[np.ndarray]) -> None:
        self.rows.append(row)
        self._sizes.append([column.size for column in columns])
        flat = [column if column.ndim == 1 else column.reshape(-1) for column in columns]
        self._values.append(np.concatenate([_EMPTY_COLUMN, *flat], dtype=np.float64))
        self.num_bytes += self._values[-1].nbytes

    def statistics(self, num_fields: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields minimum, maximum and mean of each field by episode, and a mask of empty episodes.

        NaN values are skipped.
        """
        values = np.concatenate([_EMPTY_COLUMN, *self._values])
        sizes = np.array(self._sizes, np.int64).reshape(-1)
        is_empty = sizes == 0
        starts, counts = (np.cumsum(sizes) - sizes)[~is_empty], sizes[~is_empty]
        statistics = np.zeros((len(_STATISTIC_NAMES), len(sizes)))
        if len(starts):
            statistics[0][~is_empty] = np.fmin.reduceat(values, starts)
            statistics[1][~is_empty] = np.fmax.reduceat(values, starts)
            is_unknown = np.isnan(values)
            if is_unknown.any():
                values[is_unknown] = 0
                counts -= np.add.reduceat(is_unknown, starts, dtype=np.int64)
            with np.errstate(invalid="ignore", divide="ignore"):  # Infinities also cause warnings.
                statistics[2][~is_empty] = np.add.reduceat(values, starts) / counts
        for first in range(num_fields):
            yield statistics[:, first::num_fields], is_empty[first::num_fields]


def _fixed_columns(arrow: Any) -> dict[str, Any]:
    """Returns the columns of every table, and their types."""
    return {
        "split": arrow.dictionary(arrow.int32(), arrow.string()),
        "index": arrow.int64(),
        "key": arrow.string(),
        "steps": arrow.int32(),
        "transitions": arrow.int32(),
        "return": arrow.float64(),
        "terminal": arrow.bool_(),
        "truncated": arrow.bool_(),
        "complete": arrow.bool_(),
        "duration": arrow.float64(),
        "instruction": arrow.string(),
        "bytes": arrow.int64(),
        "digest": arrow.binary(),
        "error": arrow.string(),
    }


def column_of(path: str) -> str:
    """Returns the column name of a field of episodes."""
    return _unique_name(path, "episode", _fixed_columns(import_extra("pyarrow")))


def _unique_name(path: str, prefix: str, columns: Mapping[str, Any]) -> str:
    """Returns an unused column name for a field; names of columns are case-insensitive."""
    used_names = {name.lower() for name in (*columns, AUDIT, LABELS, ROW_COLUMN)}
    while path.lower() in used_names:
        path = f"{prefix}/{path}"
    return path


def _type_of_value(field: Any, arrow: Any) -> Any:
    """Returns the column type of a field of episodes; None for a field without a column."""
    if not isinstance(field, Field) or field.shape or field.encoding:
        return None
    if field.is_text:
        return arrow.string()
    return arrow.from_numpy_dtype(field.column_dtype) if field.column_dtype.kind in "biuf" else None


def _type_of_statistics(field: Any, arrow: Any) -> Any:
    """Returns the column type of the statistics of a field of steps; None if not numeric."""
    if not isinstance(field, Field) or field.encoding or field.column_dtype.kind not in "biuf":
        return None
    if field.column_dtype == np.uint8 and len(field.shape) > 1:  # The field is an image.
        return None
    narrow = field.column_dtype in (np.float16, np.float32)
    kind = arrow.float32() if narrow else arrow.float64()
    return arrow.struct([(name, kind) for name in _STATISTIC_NAMES])


def _as_numeric(column: Any) -> np.ndarray:
    """Returns the column if it is an array of numbers, and an empty array otherwise."""
    is_numeric = type(column) is np.ndarray and column.dtype.kind in "biuf"
    return column if is_numeric else _EMPTY_COLUMN


def _as_cell(value: Any) -> Any:
    """Converts a value of a field of an episode to a cell of the table."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if np.ndim(value) == 0 else None
    if isinstance(value, str | bytes):
        try:
            text = as_text(value)
        except UnicodeDecodeError:
            return None
        return text if len(text) <= _MAX_TEXT_LENGTH else None
    return value


def _num_bytes(column: Any) -> int:
    if type(column) is np.ndarray and column.dtype.kind != "O":
        return column.nbytes
    values = column if isinstance(column, np.ndarray) else as_array(column)
    if values.dtype != object:
        return int(values.nbytes)
    return sum(getattr(v, "nbytes", None) or len(v) for v in values.flat if v is not None)
