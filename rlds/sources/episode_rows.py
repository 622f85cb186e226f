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
from rlds.sources.queries import NUMBER
from rlds.sources.rates import rate_in
from rlds.sources.source import (
    OF_TRANSITIONS,
    AnySource,
    DamagedEpisode,
    Source,
    SourceEpisode,
    SourceError,
    outline_of,
)
from rlds.sources.texts import as_text, is_instruction
from rlds.video import VIDEO
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field, as_fields, is_mark
from rlds_ecosystem.model.nests import leaves_at, root_of

__all__ = ["RowMaker", "column_of"]

# Longer texts are no names of tasks: they are left out, so that the table stays small.
_LONGEST_TEXT = 500
# So many bytes of numbers are in memory at once, about.
_BYTES_AT_ONCE = 16 << 20
_NO_NUMBERS = np.empty(0)
# So many small episodes are read before they are looked at; they may have so many bytes together.
_MOST_AHEAD, _BYTES_AHEAD = 64, 1 << 20
_STATISTICS = ("min", "max", "mean")
# The times of steps that were recorded, in nanoseconds.
_STAMP = "timestamp"


class RowMaker:
    """Makes rows of the table of a source.

    Images that are files are read as files; clips are not read.

    Args:
      source: The source.

    Attributes:
      schema: The columns, as `pyarrow.Schema`.
      fixed: The names of the columns that each table has.
      columns: The columns that have the values of fields, by the paths of these.
    """

    def __init__(self, source: AnySource) -> None:
        self._source = reading.with_image_files(source)
        with reading.errors_of(source):
            steps = dict(leaves_at(as_fields(self._source.fields.steps), None))
            episode = dict(leaves_at(as_fields(self._source.fields.episode), None))
        arrow = import_extra("pyarrow")
        columns = _fixed_columns(arrow)
        self.fixed = frozenset(columns)
        # By the names of columns, the paths of fields.
        self._values, self._numbers = {}, {}
        for path, field in episode.items():
            if root_of(path) != VIDEO and (kind := _type_of_value(field, arrow)):
                name = _free_name(path, "episode", columns)
                columns[name], self._values[name] = kind, path
        for path, field in steps.items():
            if path not in rlds.STEP_FLAGS and (kind := _type_of_statistics(field, arrow)):
                name = _free_name(path, rlds.STEPS, columns)
                columns[name], self._numbers[name] = kind, path
        self._of_transitions = [
            column
            for column, path in enumerate(self._numbers.values())
            if root_of(path) in OF_TRANSITIONS
        ]
        self.schema = arrow.schema([*columns.items()])
        texts = {p: it for p, it in (*episode.items(), *steps.items()) if is_instruction(p)}
        self._instructions = [p for p, it in texts.items() if isinstance(it, Field) and it.is_text]
        paths = [path if path in episode else f"{rlds.STEPS}/{path}" for path in self._instructions]
        # Paths of the mask fields (whether an episode has a value), by field path.
        marks = {path: known_field(path) for path in episode}
        self._marks = {p: mark for p, mark in marks.items() if is_mark(episode.get(mark))}
        stamp = steps.get(_STAMP)
        self._has_stamps = isinstance(stamp, Field) and stamp.unit == "ns"
        self.columns = {
            **{path: name for name, path in self._values.items()},
            **{f"{rlds.STEPS}/{path}": name for name, path in self._numbers.items()},
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
        """The steps in a second of all episodes; a query of the table does not need it."""
        with reading.errors_of(self._source):
            return rate_in(self._source.about.metadata)

    def rows(self, split: str, part: range | str, first: int = 0) -> Any:
        """Reads episodes, and returns their rows.

        Args:
          split: The split.
          part: The numbers of the episodes, of a source that can read any; or the name of a part.
          first: The number of the first episode of a part with a name.

        Returns:
          A `pyarrow.Table` with a row for each. What is wrong with a damaged one is its `error`.
        """
        arrow = import_extra("pyarrow")
        tables, batch, number = [], _Batch(), 1
        index = part.start if isinstance(part, range) else first
        episodes = self._episodes(split, part)
        # Several small ones are read before they are looked at: one thing at a time is faster.
        while group := list(itertools.islice(episodes, number)):
            size = sum([self._add(batch, split, index + n, each) for n, each in enumerate(group)])
            index += len(group)
            number = min(2 * number, _MOST_AHEAD, _BYTES_AHEAD * len(group) // (size + 1) + 1)
            group.clear()
            if batch.num_bytes > _BYTES_AT_ONCE:
                tables.append(self._finished(batch))
                batch = _Batch()
        return arrow.concat_tables([*tables, self._finished(batch)])

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
        self, batch: _Batch, split: str, index: int, episode: SourceEpisode | DamagedEpisode
    ) -> int:
        """Adds an episode to a batch; returns how many bytes its steps have."""
        row: dict[str, Any] = {"split": split, "index": index, "key": episode.key}
        if isinstance(episode, DamagedEpisode):
            row["error"] = str(episode.error)
            batch.add(row, [_NO_NUMBERS] * len(self._numbers))
            return 0
        episode = as_converted(episode)
        steps = dict(leaves_at(episode.steps, None))
        metadata = dict(leaves_at(episode.metadata, None))
        for path in [path for path, mark in self._marks.items() if not metadata.get(mark, True)]:
            metadata.pop(path, None)  # A placeholder.
        outline = outline_of(steps, episode.final_observation_known)
        flags = steps.get(rlds.IS_TERMINAL, ())
        rate = rate_in(metadata) or self._rate
        row |= {
            "key": episode.key,
            "steps": outline.num_steps,
            "transitions": outline.num_transitions,
            "return": episode.total_reward,
            "terminal": bool(flags[-1]) if len(flags) else None,
            "truncated": episode.truncated,
            "complete": episode.complete,
            "duration": outline.num_steps / rate if rate else self._span(steps),
            "instruction": self._instruction({**steps, **metadata}, steps),
            "bytes": sum(map(_size_of, steps.values())),
            "digest": digest_of_columns(steps),
            **{name: _value_of(metadata.get(path)) for name, path in self._values.items()},
        }
        columns = [_numbers_in(steps.get(path)) for path in self._numbers.values()]
        if episode.final_observation_known:
            for column in self._of_transitions:
                columns[column] = columns[column][:-1]
        batch.add(row, columns)
        return int(row["bytes"])

    def _instruction(self, values: Mapping[str, Any], steps: Mapping[str, Any]) -> str | None:
        for path in self._instructions:
            value = values.get(path)
            if path in steps:
                value = value[0] if value is not None and len(value) else None
            text = _value_of(value)
            if isinstance(text, str):
                return text
        return None

    def _span(self, steps: Mapping[str, Any]) -> float | None:
        """The seconds from the first to the last step, if the steps have times."""
        times = _numbers_in(steps.get(_STAMP))
        return float(times[-1] - times[0]) / 1e9 if self._has_stamps and len(times) > 1 else None

    def _finished(self, batch: _Batch) -> Any:
        arrow = import_extra("pyarrow")
        columns = []
        statistics = dict(zip(self._numbers, batch.statistics(len(self._numbers))))
        for field in self.schema:
            if field.name in self._numbers:
                columns_of_statistics, is_empty = statistics[field.name]
                # NaN becomes null, which means unknown: no comparison holds for it.
                parts = [
                    arrow.array(part, mask=is_empty | np.isnan(part)).cast(field.type[0].type)
                    for part in columns_of_statistics
                ]
                columns.append(arrow.StructArray.from_arrays(parts, fields=[*field.type]))
            else:
                values = [row.get(field.name) for row in batch.rows]
                columns.append(arrow.array(values, field.type, from_pandas=True))
        return arrow.table(columns, schema=self.schema)


class _Batch:
    """Rows and numeric columns of some episodes, collected for the table of episodes."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []
        # The numbers of each episode, field by field, and their counts.
        self._values: list[np.ndarray] = []
        self._sizes: list[list[int]] = []
        self.num_bytes = 0

    def add(self, row: Mapping[str, Any], columns: Sequence[np.ndarray]) -> None:
        self.rows.append(row)
        self._sizes.append([column.size for column in columns])
        flat = [column if column.ndim == 1 else column.reshape(-1) for column in columns]
        self._values.append(np.concatenate([_NO_NUMBERS, *flat], dtype=np.float64))
        self.num_bytes += self._values[-1].nbytes

    def statistics(self, num_fields: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields minimum, maximum and mean of each field by episode, and a mask of empty episodes.

        NaN values are skipped.
        """
        values = np.concatenate([_NO_NUMBERS, *self._values])
        sizes = np.array(self._sizes, np.int64).reshape(-1)
        is_empty = sizes == 0
        begins, counts = (np.cumsum(sizes) - sizes)[~is_empty], sizes[~is_empty]
        statistics = np.zeros((len(_STATISTICS), len(sizes)))
        if len(begins):
            statistics[0][~is_empty] = np.fmin.reduceat(values, begins)
            statistics[1][~is_empty] = np.fmax.reduceat(values, begins)
            is_unknown = np.isnan(values)
            if is_unknown.any():
                values[is_unknown] = 0
                counts -= np.add.reduceat(is_unknown, begins, dtype=np.int64)
            with np.errstate(invalid="ignore", divide="ignore"):  # Of infinities, too.
                statistics[2][~is_empty] = np.add.reduceat(values, begins) / counts
        for first in range(num_fields):
            yield statistics[:, first::num_fields], is_empty[first::num_fields]


def _fixed_columns(arrow: Any) -> dict[str, Any]:
    """Returns the columns that the table has for every dataset, and their types."""
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
    return _free_name(path, "episode", _fixed_columns(import_extra("pyarrow")))


def _free_name(path: str, prefix: str, columns: Mapping[str, Any]) -> str:
    """A name for the column of a field: queries do not tell `Success` from `success`."""
    taken = {name.lower() for name in (*columns, AUDIT, LABELS, NUMBER)}
    while path.lower() in taken:
        path = f"{prefix}/{path}"
    return path


def _type_of_value(field: Any, arrow: Any) -> Any:
    """The type of the column of a field of episodes; None if it has none."""
    if not isinstance(field, Field) or field.shape or field.encoding:
        return None
    if field.is_text:
        return arrow.string()
    return arrow.from_numpy_dtype(field.column_dtype) if field.column_dtype.kind in "biuf" else None


def _type_of_statistics(field: Any, arrow: Any) -> Any:
    """The type of the column with statistics of a field of steps; None if it is no number."""
    if not isinstance(field, Field) or field.encoding or field.column_dtype.kind not in "biuf":
        return None
    if field.column_dtype == np.uint8 and len(field.shape) > 1:  # Images.
        return None
    narrow = field.column_dtype in (np.float16, np.float32)
    kind = arrow.float32() if narrow else arrow.float64()
    return arrow.struct([(name, kind) for name in _STATISTICS])


def _numbers_in(column: Any) -> np.ndarray:
    """Returns the column if it is an array of numbers, and an empty array otherwise."""
    is_of_numbers = type(column) is np.ndarray and column.dtype.kind in "biuf"
    return column if is_of_numbers else _NO_NUMBERS


def _value_of(value: Any) -> Any:
    """A value of a field of an episode, as a cell of the table."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if np.ndim(value) == 0 else None
    if isinstance(value, str | bytes):
        try:
            text = as_text(value)
        except UnicodeDecodeError:
            return None
        return text if len(text) <= _LONGEST_TEXT else None
    return value


def _size_of(column: Any) -> int:
    if type(column) is np.ndarray and column.dtype.kind != "O":
        return column.nbytes
    values = column if isinstance(column, np.ndarray) else as_array(column)
    if values.dtype != object:
        return int(values.nbytes)
    return sum(getattr(v, "nbytes", None) or len(v) for v in values.flat if v is not None)
