"""Columns of a sidecar: for each field, the concatenated values of all episodes.

A column is up to three streams of bytes. `data` has the elements, in NumPy's memory layout, or the
bytes of texts. `ends` has the end offset of each text. `rows` has the end offset and the shape of
each row, if shapes vary. The stream `episodes` has the length of every episode, and is read at
once. Streams are read with NumPy alone: they are files, arrays or attributes.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlds.sources.source import Lengths
from rlds_ecosystem.model.fields import Field
from tfds_files.columns import stack
from tfds_files.png import encode_png

__all__ = [
    "EPISODE",
    "EPISODES",
    "EPISODE_DTYPE",
    "FILE",
    "FINAL",
    "FLAGS",
    "KEY",
    "STEPS",
    "Columns",
    "ColumnsWriter",
    "Row",
    "pack",
    "unpack",
]

Row: TypeAlias = "Mapping[str, Any]"
"""The sidecar values of an episode: an array of rows per column; `EPISODE_DTYPE` at `EPISODES`."""

EPISODES = "episodes"
"""The stream of the lengths of episodes."""

EPISODE_DTYPE = np.dtype(
    [
        *((name, "<i8") for name in ("num_steps", "num_final", "begin", "end")),
        *((name, "?") for name in ("final_known", "is_terminal", "truncated", "complete")),
    ]
)
"""An element of the stream `EPISODES`. `num_final` is the number of rows in `final/` columns."""

KEY, FILE = "key", "file"
"""The columns of the keys and of the source files of episodes."""

FLAGS, EPISODE, FINAL, STEPS = "flags/", "episode/", "final/", "steps/"
"""The prefixes of other columns. Columns of `FINAL` and `STEPS` have a row for each step."""

# The size of the blocks of a stream.
_BLOCK_BYTES = 1 << 20

# The largest number of steps of an episode.
_MAX_STEPS = 1 << 31
_INVALID_CHARACTERS = re.compile("[^a-z0-9_]+")

Read: TypeAlias = "Callable[[str, int, int], Any]"


class _StorageType:
    """The storage type of a field: text or bytes, or an array of some dtype and shape."""

    def __init__(self, field: Field) -> None:
        self.is_text = field.is_text or bool(field.encoding)
        self.shape = () if field.encoding else field.shape
        self.open_axes = [axis for axis, size in enumerate(self.shape) if size is None]
        self.dtype = np.dtype(object) if self.is_text else field.column_dtype
        self.size = 0 if self.open_axes else math.prod(map(int, self.shape))  # type: ignore[arg-type]
        self.row_bytes = 8 * (1 + len(self.open_axes))


class _StoredRows(NamedTuple):
    """Rows of a sidecar column in their stored form.

    Attributes:
      num_rows: The number of rows.
      sizes: The number of elements and the sizes of variable axes of each row; None without
        variable axes, or if all rows are empty.
      offsets: The end offset of each text in the data; None for numbers.
      data: The elements.
    """

    num_rows: int
    sizes: np.ndarray | None
    offsets: np.ndarray | None
    data: Any


class ColumnsWriter:
    """Writes the columns of a sidecar.

    Args:
      fields: The types of rows, by the names of the columns.
      append: Adds bytes to a stream.
      block: The block size in bytes; the last block of a stream may be smaller.

    Attributes:
      num_episodes: The number of episodes.
      sizes: The size of each stream, in bytes.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        append: Callable[[str, bytes], object],
        block: int = _BLOCK_BYTES,
    ) -> None:
        self.num_episodes, self.sizes = 0, dict[str, int]()
        self._append, self._block = append, block
        self._buffers: dict[str, bytearray] = {}
        self._columns = {
            name: _ColumnWriter(_StorageType(field), functools.partial(self._put, stream))
            for (name, field), stream in zip(fields.items(), _streams(fields))
        }

    def add(self, row: Row) -> None:
        """Adds the next episode.

        Raises:
          ValueError: A value does not match its field.
        """
        for name, column in self._columns.items():
            column.add(row[name])
        self._put(EPISODES, "", np.array(row[EPISODES], EPISODE_DTYPE).tobytes())
        self.num_episodes += 1

    def extend(self, columns: Columns, start: int, end: int) -> None:
        """Appends episodes from columns of another sidecar with the same fields.

        Raises:
          ValueError: The columns are damaged.
        """
        for name, column in self._columns.items():
            column.extend(columns.stored_rows(name, start, end))
        self._put(EPISODES, "", columns.episode_rows[start:end].tobytes())
        self.num_episodes += end - start

    def close(self) -> None:
        """Writes the remaining rows."""
        for stream, buffer in self._buffers.items():
            self._append(stream, bytes(buffer))
        self._buffers.clear()

    def _put(self, stream: str, suffix: str, data: bytes) -> None:
        if data:
            stream += suffix
            self.sizes[stream] = self.sizes.get(stream, 0) + len(data)
            buffer = self._buffers.setdefault(stream, bytearray())
            buffer += data
            if full_size := len(buffer) // self._block * self._block:
                for start in range(0, full_size, self._block):
                    self._append(stream, bytes(buffer[start : start + self._block]))
                del buffer[:full_size]


class _ColumnWriter:
    """Writes one column of a sidecar."""

    def __init__(self, kind: _StorageType, put: Callable[[str, bytes], None]) -> None:
        self._type, self._put = kind, put
        self._num_elements = self._num_bytes = self._num_empty = 0

    def add(self, rows: Any) -> None:
        elements = self._flatten(rows) if self._type.open_axes else np.asarray(rows).reshape(-1)
        if not self._type.is_text:
            self._put(".data", elements.astype(self._type.dtype, copy=False).tobytes())
            return
        if self._type.shape == () and np.asarray(rows).ndim > 1:
            elements = rows  # Images are not encoded yet.
        texts = [_as_bytes(value) for value in elements]
        offsets = np.cumsum([len(text) for text in texts], dtype="<i8")
        self._put_texts(offsets, b"".join(texts))

    def extend(self, rows: _StoredRows) -> None:
        """Adds rows of another column of the field."""
        if self._type.open_axes:
            empty = np.zeros((rows.num_rows, self._type.row_bytes // 8), "<i8")
            self._put_sizes(empty if rows.sizes is None else rows.sizes)
        if rows.offsets is None:
            self._put(".data", rows.data)
        else:
            self._put_texts(rows.offsets, rows.data)

    def _put_texts(self, offsets: np.ndarray, data: Any) -> None:
        self._put(".ends", (self._num_bytes + offsets).tobytes())
        self._put(".data", data)
        self._num_bytes += len(data)

    def _flatten(self, rows: Any) -> np.ndarray:
        """Writes the shapes of rows; returns their elements."""
        arrays = [np.asarray(row) for row in rows]
        shape = self._type.shape
        for array in arrays:
            is_nested = array.dtype == object and not self._type.is_text
            if array.ndim != len(shape) or is_nested:
                raise ValueError(f"a value of shape {array.shape}, expected {shape}")
        axes = self._type.open_axes
        sizes = [[array.size, *(array.shape[axis] for axis in axes)] for array in arrays]
        self._put_sizes(np.array(sizes, "<i8").reshape(len(arrays), 1 + len(axes)))
        empty = np.zeros(0, self._type.dtype)
        return np.concatenate([array.reshape(-1) for array in arrays] or [empty])

    def _put_sizes(self, sizes: np.ndarray) -> None:
        if not self._num_elements and not sizes.any():
            self._num_empty += len(sizes)  # Columns with empty rows only are not written.
            return
        if self._num_empty:
            self._put(".rows", bytes(self._num_empty * self._type.row_bytes))
            self._num_empty = 0
        table = sizes.copy()
        table[:, 0] = self._num_elements + np.cumsum(sizes[:, 0])
        self._num_elements += int(sizes[:, 0].sum())
        self._put(".rows", table.tobytes())


class Columns:
    """Reads the columns of a sidecar; can be pickled if `read` can.

    Args:
      fields: The types of rows, by the names of the columns.
      read: Returns a range of bytes of a stream.
      num_episodes: The number of episodes.
      sizes: The size of each stream, in bytes.

    >>> row = {"key": ["a"], "episodes": (3, 1, 0, 3, True, False, True, True)}
    >>> columns = unpack(pack({"key": Field(str)}, [row]), {"key": Field(str)})
    >>> columns.keys, columns.summaries.num_transitions
    (['a'], array([2]))
    """

    def __init__(
        self, fields: Mapping[str, Field], read: Read, num_episodes: int, sizes: Mapping[str, int]
    ) -> None:
        self._read, self._num_episodes, self._sizes = read, num_episodes, sizes
        self._types = {
            name: (stream, _StorageType(field))
            for (name, field), stream in zip(fields.items(), _streams(fields))
        }

    def __len__(self) -> int:
        return self._num_episodes

    @functools.cached_property
    def episode_rows(self) -> np.ndarray:
        """An element of `EPISODE_DTYPE` for each episode."""
        data = self._bytes(EPISODES, 0, self._num_episodes * EPISODE_DTYPE.itemsize)
        rows = np.frombuffer(data, EPISODE_DTYPE)
        steps, final = rows["num_steps"], rows["num_final"]
        if ((steps > _MAX_STEPS) | (final < 0) | (final > steps)).any():
            raise ValueError(f"stream {EPISODES}: the length of an episode is not valid")
        return rows

    @functools.cached_property
    def keys(self) -> list[str]:
        """The keys of all episodes."""
        keys = self._decode(KEY, self._rows(KEY, 0, self._num_episodes))
        return [key.decode() for key in keys.tolist()]

    @functools.cached_property
    def summaries(self) -> Lengths:
        """The numbers of steps and transitions of each episode."""
        rows = self.episode_rows
        num_steps, is_known = rows["num_steps"].astype(np.int64), rows["final_known"]
        transitions = num_steps - 1 + (rows["is_terminal"] & ~is_known)
        return Lengths(num_steps, transitions.clip(0), is_known.copy())

    def row(self, index: int) -> _StoredRow:
        """Returns the row of an episode; each column is read on access."""
        return _StoredRow(self, index)

    def values(self, name: str, index: int) -> np.ndarray:
        """Returns the rows of an episode in a column.

        Raises:
          ValueError: The rows are damaged.
        """
        return self._decode(name, self.stored_rows(name, index, index + 1))

    def stored_rows(self, name: str, start: int, end: int) -> _StoredRows:
        """Returns the rows of some episodes in a column, in their stored form.

        Raises:
          ValueError: The rows are damaged.
        """
        for prefix, bounds in self._bounds.items():
            if name.startswith(prefix):
                start, end = int(bounds[start]), int(bounds[end])
        return self._rows(name, start, end)

    @functools.cached_property
    def _bounds(self) -> dict[str, np.ndarray]:
        """The row offsets of episodes, by the prefix of columns."""
        counts = {STEPS: self.episode_rows["num_steps"], FINAL: self.episode_rows["num_final"]}
        return {name: np.concatenate([[0], np.cumsum(n)]) for name, n in counts.items()}

    def _bytes(self, stream: str, start: int, end: int) -> Any:
        if not 0 <= start <= end <= self._sizes.get(stream, 0):
            raise ValueError(f"stream {stream}: bytes {start} to {end} are missing")
        data = self._read(stream, start, end) if end > start else b""
        if len(data) != end - start:
            raise ValueError(f"stream {stream}: truncated before byte {end}")
        return data

    def _rows(self, name: str, start: int, end: int) -> _StoredRows:
        stream, kind = self._types[name]
        num_rows, sizes = end - start, None
        if not kind.open_axes:
            start, end = start * kind.size, end * kind.size
        elif num_rows and self._sizes.get(f"{stream}.rows"):
            first, table = self._table(f"{stream}.rows", start, end, kind.row_bytes)
            start, end = first, int(table[-1, 0])
            sizes = table.copy()
            sizes[1:, 0] -= table[:-1, 0]
            sizes[0, 0] -= first
        else:
            start = end = 0
        if not kind.is_text:
            size = kind.dtype.itemsize
            data = self._bytes(f"{stream}.data", start * size, end * size)
            return _StoredRows(num_rows, sizes, None, data)
        first, offsets = self._table(f"{stream}.ends", start, end)
        offsets = offsets.reshape(-1) - first
        if len(offsets):
            data = self._bytes(f"{stream}.data", first, first + int(offsets[-1]))
        return _StoredRows(num_rows, sizes, offsets, data if len(offsets) else b"")

    def _table(self, stream: str, start: int, end: int, width: int = 8) -> tuple[int, np.ndarray]:
        """Reads rows of an offset table; returns the preceding end offset, and the rows."""
        first = max(start - 1, 0)
        data = self._bytes(stream, first * width, end * width) if end > start else b""
        table = np.frombuffer(data, "<i8").reshape(-1, width // 8)
        return (int(table[0, 0]), table[1:]) if start and len(table) else (0, table)

    def _decode(self, name: str, rows: _StoredRows) -> np.ndarray:
        stream, kind = self._types[name]
        if rows.offsets is None:
            elements = np.frombuffer(rows.data, kind.dtype).copy()
        else:
            data, start = memoryview(rows.data), 0
            elements = np.empty(len(rows.offsets), object)
            for index, end in enumerate(rows.offsets.tolist()):
                if end < start:
                    raise ValueError(f"stream {stream}: a text ends before it begins")
                elements[index] = bytes(data[start:end])
                start = end
        if rows.sizes is None:
            return elements.reshape(rows.num_rows, *(size or 0 for size in kind.shape))
        arrays, start = [], 0
        for count, *sizes in rows.sizes.tolist():
            shape = [*kind.shape]
            for axis, size in zip(kind.open_axes, sizes):
                shape[axis] = abs(size)
            arrays.append(elements[start : start + count].reshape(shape))  # type: ignore[arg-type]
            start += count
        return stack(arrays)


class _StoredRow(Mapping[str, Any]):
    """The sidecar values of an episode, read from the columns on access."""

    def __init__(self, columns: Columns, index: int) -> None:
        self._columns, self._index = columns, index

    def __getitem__(self, name: str) -> Any:
        if name == EPISODES:
            return self._columns.episode_rows[self._index]
        return self._columns.values(name, self._index)

    def __iter__(self) -> Iterator[str]:
        return iter([EPISODES, *self._columns._types])

    def __len__(self) -> int:
        return len(self._columns._types) + 1


def _streams(names: Iterable[str]) -> list[str]:
    """Returns the stream names of columns, which are valid in any file system."""
    texts = (_INVALID_CHARACTERS.sub("-", name.lower())[-40:] for name in names)
    return [f"{position}-{text}" for position, text in enumerate(texts)]


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray) and value.ndim:
        return encode_png(value.view(np.uint8) if value.dtype == np.float32 else value)
    if not isinstance(value, str | bytes):
        raise ValueError(f"got {type(value).__name__}, expected a text or bytes")
    return value.encode() if isinstance(value, str) else value


def pack(fields: Mapping[str, Field], rows: Iterable[Row]) -> bytes:
    """Returns sidecar columns as bytes: the sizes of their streams, then the streams."""
    streams: dict[str, bytearray] = {}

    def append(name: str, data: bytes) -> None:
        streams.setdefault(name, bytearray()).extend(data)

    writer = ColumnsWriter(fields, append)
    for row in rows:
        writer.add(row)
    writer.close()
    sizes = {name: len(data) for name, data in streams.items()}
    header = {EPISODES: writer.num_episodes, "sizes": sizes}
    return json.dumps(header).encode() + b"\n" + b"".join(streams.values())


def unpack(data: bytes, fields: Mapping[str, Field]) -> Columns:
    """Reads the bytes of `pack`.

    Raises:
      ValueError: The bytes are not sidecar columns.
    """
    header, _, body = data.partition(b"\n")
    content = json.loads(header)
    sizes = {str(name): int(size) for name, size in content["sizes"].items()}
    starts = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0)))
    read = functools.partial(_stream_slice, body, starts)
    return Columns(fields, read, int(content[EPISODES]), sizes)


def _stream_slice(body: bytes, starts: Mapping[str, int], name: str, start: int, end: int) -> bytes:
    return body[starts[name] + start : starts[name] + end]
