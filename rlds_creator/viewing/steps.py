"""The steps of an episode, read as they are asked for, whatever they are stored as.

Episodes may be longer than memory. So a step is read without the others: of a log its two records,
of TFRecord files what an index says. Other formats are read by columns.
"""

from __future__ import annotations

import abc
import collections
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import rlds
from envlogger.converters.fields import Field
from envlogger.reader import Reader
from rlds._nests import named_leaves
from rlds.sources.episodes import Episodes
from rlds.sources.nests import at, leaves_at

__all__ = ["Cache", "LogSteps", "SourceSteps", "Steps"]


class Cache:
    """What was read last, up to a number of bytes. Threads may share it."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._kept: collections.OrderedDict[Any, tuple[Any, int]] = collections.OrderedDict()
        self._lock = threading.Lock()
        self.num_bytes = 0

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Returns what is kept under a key, or makes it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        value = make()
        size = _size_of(value)
        with self._lock:
            if key not in self._kept and size <= self.max_bytes // 2:
                self._kept[key] = value, size
                self.num_bytes += size
                while self.num_bytes > self.max_bytes:
                    self.num_bytes -= self._kept.popitem(last=False)[1][1]
        return value


def _size_of(value: Any) -> int:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.nbytes
    if isinstance(value, bytes | str):
        return len(value) + 50
    if isinstance(value, Mapping):
        return sum(map(_size_of, value.values())) + 100 * len(value)
    if isinstance(value, np.ndarray | list | tuple):
        return sum(map(_size_of, value)) + 16 * len(value)
    if hasattr(value, "lengths"):  # A ragged column.
        return _size_of(value.values) + _size_of(value.lengths)
    return 50


class Steps(abc.ABC):
    """The steps of an episode, in RLDS order.

    Attributes:
      num_steps: How many there are.
      fields: The fields of a step, by their paths.
      metadata: The fields of the episode.
      has_last_action: Whether the last step has an action and a reward of its own.
    """

    num_steps: int
    fields: Mapping[str, Any]
    metadata: Mapping[str, Any]
    has_last_action: bool = False

    @abc.abstractmethod
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        """Returns the values of some fields in a step; of those that it has."""

    @abc.abstractmethod
    def column(self, path: str, steps: Sequence[int]) -> Sequence[Any]:
        """Returns the values of a field in some steps, in their order; None where there is none."""


class LogSteps(Steps):
    """The steps of an episode of a log of EnvLogger.

    Args:
      reader: The log.
      index: Which episode of it.
      cache: Keeps steps.
      name: Names the log in the cache.
    """

    def __init__(self, reader: Reader, index: int, cache: Cache, name: str = "") -> None:
        self._reader, self._index, self._cache = reader, index, cache
        self._key = name, index
        self._records = reader.episodes[index]
        self.num_steps = len(self._records)
        self.metadata = _named(reader.episode_metadata()[index])
        examples = [self._leaves(step) for step in sorted({0, 1, self.num_steps - 1})]
        self.fields = {
            path: _field_like(value)
            for example in reversed(examples)
            for path, value in example.items()
            if value is not None
        }
        self.fields = {path: self.fields[path] for path in _in_order(self.fields)}

    def _record(self, number: int) -> Any:
        return self._cache.get((*self._key, number), lambda: self._records[number])

    def _leaves(self, step: int) -> dict[str, Any]:
        if step >= self.num_steps:
            return {}
        record = self._record(step)
        steps: dict[str, Any] = {rlds.OBSERVATION: record.timestep.observation}
        is_last = step + 1 == self.num_steps
        following = record if is_last else self._record(step + 1)
        arrived = {
            rlds.ACTION: following.action,
            rlds.REWARD: following.timestep.reward,
            rlds.DISCOUNT: following.timestep.discount,
        }
        steps |= {name: None if is_last else value for name, value in arrived.items()}
        ended = is_last and record.timestep.last() and _is_zero(record.timestep.discount)
        flags = zip(rlds.STEP_FLAGS, (step == 0, is_last, ended))
        return dict(named_leaves({**steps, **_named(record.custom_data), **dict(flags)}))

    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        """See `Steps`."""
        leaves = self._leaves(step)
        return {path: leaves[path] for path in paths if path in leaves}

    def column(self, path: str, steps: Sequence[int]) -> Sequence[Any]:
        """See `Steps`."""
        return [self._leaves(step).get(path) for step in steps]


def _named(data: Any) -> dict[str, Any]:
    """Custom data, or metadata, as fields."""
    if data is None:
        return {}
    return dict(data) if isinstance(data, Mapping) else {"custom_data": data}


def _in_order(fields: Iterable[str]) -> list[str]:
    first = [rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.DISCOUNT]

    def place(path: str) -> int:
        root = path.partition("/")[0]
        return first.index(root) if root in first else len(first) + (root in rlds.STEP_FLAGS)

    return sorted(fields, key=place)


def _field_like(value: Any) -> Any:
    if isinstance(value, str | bytes):
        return Field(type(value))
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return Field(str if array.dtype.kind == "U" else bytes, array.shape)
    return Field(array.dtype, array.shape)


def _is_zero(discount: Any) -> bool:
    leaves = [leaf for _, leaf in named_leaves(discount) if leaf is not None]
    return bool(leaves) and all(not np.any(leaf) for leaf in leaves)


# Values of fewer bytes are read as whole columns; of larger ones, so many bytes at once.
_SMALL, _BLOCK = 4096, 4 << 20


class SourceSteps(Steps):
    """The steps of an episode of any source.

    Args:
      episodes: The episodes.
      index: Which of them.
      cache: Keeps columns.
      name: Names the episodes in the cache.
    """

    def __init__(self, episodes: Episodes, index: int, cache: Cache, name: str = "") -> None:
        self._episodes, self._index, self._cache = episodes, index, cache
        self._key = name, index
        self.fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        episode = episodes.episode(index)
        self.num_steps = episode.num_steps
        self.metadata = {"episode_id": episode.key, **episode.metadata}
        self.has_last_action = not episode.final_observation_known
        del episode

    def _rows(self, path: str, step: int) -> tuple[Sequence[Any], int]:
        """A part of a column that has a step, and which step it begins with."""
        field = self.fields[path]
        size = 0
        if isinstance(field, Field) and not field.is_text:
            size = int(np.prod([side or 1 for side in field.shape])) * field.column_dtype.itemsize
        length = self.num_steps if size < _SMALL and not _is_encoded(field) else 0
        length = length or max(1, min(64, _BLOCK // max(size, 1 << 16)))
        begin = step // length * length

        def read() -> Any:
            return self._read(path, begin, begin + length)

        return self._cache.get((*self._key, path, begin), read), begin

    def _read(self, path: str, begin: int, end: int) -> Any:
        if not isinstance(self.fields[path], Field):
            return at(self._episodes.episode(self._index).steps, path)
        columns = self._episodes.columns(
            self._index, [path], begin, min(end, self.num_steps), decode_images=False
        )
        [column] = [column for _, column in leaves_at(columns, None)]
        is_view = isinstance(column, np.ndarray) and column.base is not None
        return column.copy() if is_view else column

    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        """See `Steps`."""
        values = {}
        for path in paths:
            rows, begin = self._rows(path, step)
            values[path] = _row(rows, step - begin)
        return values

    def column(self, path: str, steps: Sequence[int]) -> Sequence[Any]:
        """See `Steps`."""
        return [self.step(step, [path])[path] for step in steps]


def _row(column: Any, row: int) -> Any:
    if isinstance(column, Mapping):  # Of a field that has fields of its own.
        return {name: _row(inner, row) for name, inner in column.items()}
    return column[row]


def _is_encoded(field: Any) -> bool:
    return isinstance(field, Field) and bool(field.encoding)
