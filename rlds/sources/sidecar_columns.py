"""Columns of a sidecar: for each field, the values of all episodes, one after the other.

A column is up to three streams of bytes. `data` has the elements, as NumPy has them in memory, or
the bytes of texts. `ends` says where each text ends, and `rows` where each row does, if rows differ
in shape, and which shape it has. The stream `episodes` has the length of every episode, and is read
at once. Nothing but NumPy is needed to read a stream; it is a file, an array, or in attributes.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from rlds.sources.source import Lengths
from rlds_ecosystem.model.fields import Field
from tfds_files.columns import stack
from tfds_files.png import encode_png

__all__ = [
    "EPISODE",
    "EPISODES",
    "FACTS",
    "FILE",
    "FINAL",
    "KEY",
    "STEPS",
    "USUAL",
    "Columns",
    "ColumnsWriter",
    "Row",
    "pack",
    "unpack",
]

Row: TypeAlias = "Mapping[str, Any]"
"""The values of an episode: an array of rows for each column, and `FACTS` as `EPISODES`."""

EPISODES = "episodes"
"""The stream of the lengths of episodes."""

FACTS = np.dtype(
    [
        *((name, "<i8") for name in ("num_steps", "num_final", "begin", "end")),
        *((name, "?") for name in ("final_known", "is_terminal", "truncated", "complete")),
    ]
)
"""An element of the stream `EPISODES`. `num_final` is how many rows are in `final/`."""

KEY, FILE = "key", "file"
"""The columns of keys, and of the files that episodes came from."""

USUAL, EPISODE, FINAL, STEPS = "flags/", "episode/", "final/", "steps/"
"""How the names of all other columns begin. `FINAL` and `STEPS` have rows of steps."""

# The bytes that are written, or fetched, at once.
_BLOCK = 1 << 20

# How many steps an episode may have.
_MAX_STEPS = 1 << 31
_NO_WORD = re.compile("[^a-z0-9_]+")

Read: TypeAlias = "Callable[[str, int, int], Any]"


class _Kind:
    """How the values of a field are kept."""

    def __init__(self, field: Field) -> None:
        self.is_text = field.is_text or bool(field.encoding)
        self.shape = () if field.encoding else field.shape
        self.open_axes = [axis for axis, size in enumerate(self.shape) if size is None]
        self.dtype = np.dtype(object) if self.is_text else field.column_dtype
        self.size = 0 if self.open_axes else math.prod(map(int, self.shape))  # type: ignore[arg-type]
        self.row_bytes = 8 * (1 + len(self.open_axes))


class ColumnsWriter:
    """Writes columns.

    Args:
      fields: What a row of each column holds, by the names of the columns.
      append: Adds bytes to a stream.
      block: How many bytes come at once, but for the last ones of a stream.

    Attributes:
      number: How many episodes there are.
      sizes: How many bytes each stream has.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        append: Callable[[str, bytes], object],
        block: int = _BLOCK,
    ) -> None:
        self.number, self.sizes = 0, dict[str, int]()
        self._append, self._block = append, block
        self._waiting: dict[str, bytearray] = {}
        self._columns = {
            name: _NewColumn(_Kind(field), functools.partial(self._put, stream))
            for (name, field), stream in zip(fields.items(), _streams(fields))
        }

    def add(self, row: Row) -> None:
        """Adds the next episode.

        Raises:
          ValueError: A value is not one of its field.
        """
        for name, column in self._columns.items():
            column.add(row[name])
        self._put(EPISODES, "", np.array(row[EPISODES], FACTS).tobytes())
        self.number += 1

    def close(self) -> None:
        """Writes what is left."""
        for stream, waiting in self._waiting.items():
            self._append(stream, bytes(waiting))
        self._waiting.clear()

    def _put(self, stream: str, part: str, data: bytes) -> None:
        if data:
            stream += part
            self.sizes[stream] = self.sizes.get(stream, 0) + len(data)
            waiting = self._waiting.setdefault(stream, bytearray())
            waiting += data
            if whole := len(waiting) // self._block * self._block:
                for begin in range(0, whole, self._block):
                    self._append(stream, bytes(waiting[begin : begin + self._block]))
                del waiting[:whole]


class _NewColumn:
    """Writes a column."""

    def __init__(self, kind: _Kind, put: Callable[[str, bytes], None]) -> None:
        self._kind, self._put = kind, put
        self._num_elements = self._num_bytes = self._num_empty = 0

    def add(self, rows: Any) -> None:
        elements = self._flattened(rows) if self._kind.open_axes else np.asarray(rows).reshape(-1)
        if not self._kind.is_text:
            self._put(".data", elements.astype(self._kind.dtype, copy=False).tobytes())
            return
        if self._kind.shape == () and np.asarray(rows).ndim > 1:
            elements = rows  # Images, which are no files yet.
        texts = [_as_bytes(value) for value in elements]
        ends = self._num_bytes + np.cumsum([len(text) for text in texts], dtype="<i8")
        self._num_bytes += sum(map(len, texts))
        self._put(".ends", ends.tobytes())
        self._put(".data", b"".join(texts))

    def _flattened(self, rows: Any) -> np.ndarray:
        """Notes the shapes of rows; returns their elements."""
        arrays = [np.asarray(row) for row in rows]
        shape = self._kind.shape
        for array in arrays:
            is_nested = array.dtype == object and not self._kind.is_text
            if array.ndim != len(shape) or is_nested:
                raise ValueError(f"a value of shape {array.shape}, expected {shape}")
        axes = self._kind.open_axes
        sizes = [[array.size, *(array.shape[axis] for axis in axes)] for array in arrays]
        table = np.array(sizes, "<i8").reshape(len(arrays), 1 + len(axes))
        if not self._num_elements and not table.any():
            self._num_empty += len(table)  # Of flags that are as usual, nothing is written.
            return np.zeros(0, self._kind.dtype)
        if self._num_empty:
            self._put(".rows", bytes(self._num_empty * self._kind.row_bytes))
            self._num_empty = 0
        table[:, 0] = self._num_elements + np.cumsum(table[:, 0])
        self._num_elements = int(table[-1, 0]) if len(table) else self._num_elements
        self._put(".rows", table.tobytes())
        return np.concatenate([array.reshape(-1) for array in arrays] or [np.zeros(0)])


class Columns:
    """Columns that are read; can be pickled if `read` can.

    Args:
      fields: What a row of each column holds, by the names of the columns.
      read: Returns bytes of a stream, from one to another.
      number: How many episodes there are.
      sizes: How many bytes each stream has.

    >>> row = {"key": ["a"], "episodes": (3, 1, 0, 3, True, False, True, True)}
    >>> columns = unpack(pack({"key": Field(str)}, [row]), {"key": Field(str)})
    >>> columns.keys, columns.outlines.num_transitions
    (['a'], array([2]))
    """

    def __init__(
        self, fields: Mapping[str, Field], read: Read, number: int, sizes: Mapping[str, int]
    ) -> None:
        self._read, self._number, self._sizes = read, number, sizes
        self._kinds = {
            name: (stream, _Kind(field))
            for (name, field), stream in zip(fields.items(), _streams(fields))
        }

    def __len__(self) -> int:
        return self._number

    @functools.cached_property
    def facts(self) -> np.ndarray:
        """An element of `FACTS` for each episode."""
        data = self._bytes(EPISODES, 0, self._number * FACTS.itemsize)
        found = np.frombuffer(data, FACTS)
        steps, final = found["num_steps"], found["num_final"]
        if ((steps > _MAX_STEPS) | (final < 0) | (final > steps)).any():
            raise ValueError(f"stream {EPISODES}: an episode has a length that none can have")
        return found

    @functools.cached_property
    def keys(self) -> list[str]:
        """The keys of all episodes."""
        return [key.decode() for key in self._rows(KEY, 0, self._number).tolist()]

    @functools.cached_property
    def outlines(self) -> Lengths:
        """How long all episodes are."""
        num_steps, known = self.facts["num_steps"].astype(np.int64), self.facts["final_known"]
        transitions = num_steps - 1 + (self.facts["is_terminal"] & ~known)
        return Lengths(num_steps, transitions.clip(0), known.copy())

    def row(self, index: int) -> _StoredRow:
        """Returns what there is of an episode; each column is read when it is asked for."""
        return _StoredRow(self, index)

    def values(self, name: str, index: int) -> np.ndarray:
        """Returns the rows that a column has of an episode.

        Raises:
          ValueError: They are damaged.
        """
        begin, end = index, index + 1
        for prefix, bounds in self._bounds.items():
            if name.startswith(prefix):
                begin, end = bounds[index : index + 2].tolist()
        return self._rows(name, begin, end)

    @functools.cached_property
    def _bounds(self) -> dict[str, np.ndarray]:
        """Where the rows of episodes begin and end."""
        counts = {STEPS: self.facts["num_steps"], FINAL: self.facts["num_final"]}
        return {name: np.concatenate([[0], np.cumsum(n)]) for name, n in counts.items()}

    def _bytes(self, stream: str, begin: int, end: int) -> Any:
        if not 0 <= begin <= end <= self._sizes.get(stream, 0):
            raise ValueError(f"stream {stream}: bytes {begin} to {end} are not there")
        data = self._read(stream, begin, end) if end > begin else b""
        if len(data) != end - begin:
            raise ValueError(f"stream {stream}: cut short before byte {end}")
        return data

    def _rows(self, name: str, begin: int, end: int) -> np.ndarray:
        stream, kind = self._kinds[name]
        if not kind.open_axes:
            elements = self._elements(stream, kind, begin * kind.size, end * kind.size)
            return elements.reshape(end - begin, *kind.shape)
        if end == begin or not self._sizes.get(f"{stream}.rows"):
            return np.zeros((end - begin, *(size or 0 for size in kind.shape)), kind.dtype)
        before, width = max(begin - 1, 0), kind.row_bytes
        data = self._bytes(f"{stream}.rows", before * width, end * width)
        table = np.frombuffer(data, "<i8").reshape(end - before, -1)
        bounds = table[:, 0].tolist() if begin else [0, *table[:, 0].tolist()]
        elements = self._elements(stream, kind, bounds[0], bounds[-1])
        rows = []
        sizes_of_rows = table[begin - before :, 1:].tolist()
        for (first, last), sizes in zip(itertools.pairwise(bounds), sizes_of_rows):
            shape = [*kind.shape]
            for axis, size in zip(kind.open_axes, sizes):
                shape[axis] = abs(size)
            rows.append(elements[first - bounds[0] : last - bounds[0]].reshape(shape))  # type: ignore[arg-type]
        return stack(rows)

    def _elements(self, stream: str, kind: _Kind, begin: int, end: int) -> np.ndarray:
        if not kind.is_text:
            size = kind.dtype.itemsize
            data = self._bytes(f"{stream}.data", begin * size, end * size)
            return np.frombuffer(data, kind.dtype).copy()
        before = max(begin - 1, 0)
        data = self._bytes(f"{stream}.ends", before * 8, end * 8) if end > begin else b""
        bounds = np.frombuffer(data, "<i8").tolist()
        bounds = bounds if begin else [0, *bounds]
        data = memoryview(self._bytes(f"{stream}.data", bounds[0], bounds[-1])) if data else b""
        found = np.empty(end - begin, object)
        for number, (first, last) in enumerate(itertools.pairwise(bounds)):
            if last < first:
                raise ValueError(f"stream {stream}: a text ends before it begins")
            found[number] = bytes(data[first - bounds[0] : last - bounds[0]])
        return found


class _StoredRow(Mapping[str, Any]):
    """What columns have of an episode."""

    def __init__(self, columns: Columns, index: int) -> None:
        self._columns, self._index = columns, index

    def __getitem__(self, name: str) -> Any:
        if name == EPISODES:
            return self._columns.facts[self._index]
        return self._columns.values(name, self._index)

    def __iter__(self) -> Iterator[str]:
        return iter([EPISODES, *self._columns._kinds])

    def __len__(self) -> int:
        return len(self._columns._kinds) + 1


def _streams(names: Iterable[str]) -> list[str]:
    """How the streams of columns are called: so that any file system takes it."""
    return [f"{n}-{_NO_WORD.sub('-', name.lower())[-40:]}" for n, name in enumerate(names)]


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray) and value.ndim:
        return encode_png(value.view(np.uint8) if value.dtype == np.float32 else value)
    if not isinstance(value, str | bytes):
        raise ValueError(f"got {type(value).__name__}, expected a text or bytes")
    return value.encode() if isinstance(value, str) else value


def pack(fields: Mapping[str, Field], rows: Iterable[Row]) -> bytes:
    """Returns columns in one piece: how large their streams are, and these."""
    streams: dict[str, bytearray] = {}

    def append(name: str, data: bytes) -> None:
        streams.setdefault(name, bytearray()).extend(data)

    writer = ColumnsWriter(fields, append)
    for row in rows:
        writer.add(row)
    writer.close()
    head = {EPISODES: writer.number, "sizes": {name: len(data) for name, data in streams.items()}}
    return json.dumps(head).encode() + b"\n" + b"".join(streams.values())


def unpack(data: bytes, fields: Mapping[str, Field]) -> Columns:
    """Reads what `pack` returns.

    Raises:
      ValueError: It is something else.
    """
    head, _, body = data.partition(b"\n")
    content = json.loads(head)
    sizes = {str(name): int(size) for name, size in content["sizes"].items()}
    firsts = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0)))
    read = functools.partial(_part_of, body, firsts)
    return Columns(fields, read, int(content[EPISODES]), sizes)


def _part_of(body: bytes, firsts: Mapping[str, int], name: str, begin: int, end: int) -> bytes:
    return body[firsts[name] + begin : firsts[name] + end]
