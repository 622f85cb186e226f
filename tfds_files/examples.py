"""The examples of a dataset, from the bytes of `tf.train.Example` to columns.

An example is a dict of lists of byte strings, of float32 or of int64. TFDS stores a field under
the names that lead to it, joined by "/". The storage depends on the sequences around it:

| field | storage |
|---|---|
| plain numbers | all values one after the other, smaller types as int64 or float32 |
| numbers with an encoding, images | a byte string for each value |
| arrays with several unknown sizes | `<name>/value` and `<name>/shape` |
| in a sequence | as above, for all elements |
| in a sequence of sequences | `<name>/ragged_flat_values`, and `.../ragged_row_lengths_<level>` |
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfds_files import images, wire
from tfds_files.columns import RaggedColumn, stack
from tfds_files.errors import DamagedFileError, TfdsFilesError, UnsupportedFileError
from tfds_files.features import Features, Image, Leaf, Tensor, leaves_of
from tfds_files.wire import Buffer

__all__ = [
    "BYTES",
    "FLOATS",
    "INTS",
    "ExampleDecoder",
    "StoredList",
    "find_lists",
    "has_dynamic_shape",
    "parse_example",
]

BYTES, FLOATS, INTS = 1, 2, 3
_KIND_NAMES = {BYTES: "byte strings", FLOATS: "floats", INTS: "integers"}


class ExampleDecoder:
    """Decodes the bytes of examples to columns.

    A field is an array; strings are `bytes` in an array of objects (a single one is `bytes`). In a
    sequence, such as the steps of an episode, the array has a leading axis for the elements.
    Sequences in sequences are a `RaggedColumn`, and arrays that differ in shape are an array of
    arrays. Numbers share the memory of the example if they are stored in their own dtype.

    Args:
      features: The features of an example.
      fields: The fields to decode, such as `["steps/observation", "steps/action"]`; all by
        default. Other fields take hardly any time.

    Raises:
      KeyError: There is no such field.
    """

    def __init__(self, features: Features, fields: Iterable[str] | None = None) -> None:
        leaves = list(leaves_of(features))
        if fields is not None:
            leaves = _select(leaves, list(fields))
        self._leaves = leaves
        self._names = {name for leaf in leaves for name in _stored_names(leaf)}

    def decode(self, example: Buffer) -> dict[str, Any]:
        """Returns the fields of an example, nested as its features are.

        Raises:
          DamagedFileError: The bytes do not fit the features; the error names the field.
          UnsupportedFileError: The storage of a field is not supported.
        """
        try:
            lists = find_lists(example, self._names)
        except wire.WireError as e:
            raise DamagedFileError(f"no tf.train.Example: {e}") from e
        decoded: dict[str, Any] = {}
        for leaf in self._leaves:
            try:
                value = _decode_leaf(leaf, lists)
            except wire.WireError as e:
                raise DamagedFileError(f"{leaf.name}: {e}") from e
            except TfdsFilesError as e:
                raise type(e)(f"{leaf.name}: {e}") from e
            parent = decoded
            for name in leaf.path[:-1]:
                parent = parent.setdefault(name, {})
            parent[leaf.path[-1]] = value
        return decoded


def parse_example(example: Buffer) -> dict[str, np.ndarray | list[bytes]]:
    r"""Returns the undecoded lists of a `tf.train.Example`, by name.

    Args:
      example: The bytes of the example.

    Returns:
      For each field an array of float32 or of int64, or a list of byte strings; an empty list for a
      field without values.

    Raises:
      DamagedFileError: The bytes are no example.

    >>> parse_example(b"\n\x0e\n\x0c\n\x03age\x12\x05\x1a\x03\n\x01\x2a")
    {'age': array([42])}
    """
    readers: dict[int, Any] = {BYTES: _read_strings, FLOATS: _read_floats, INTS: _read_ints}
    try:
        lists = find_lists(example, None)
        return {name: readers[lists[name].kind](lists[name]) for name in lists}
    except (wire.WireError, UnicodeDecodeError) as e:
        raise DamagedFileError(f"no tf.train.Example: {e}") from e


def _select(leaves: list[Leaf], fields: list[str]) -> list[Leaf]:
    for field in fields:
        if not any(_selects(leaf, field) for leaf in leaves):
            names = ", ".join(leaf.name for leaf in leaves)
            raise KeyError(f"no field {field!r}; there are {names}")
    return [leaf for leaf in leaves if any(_selects(leaf, field) for field in fields)]


def _selects(leaf: Leaf, field: str) -> bool:
    return leaf.name == field or leaf.name.startswith(f"{field}/")


# --- Stored lists.


class StoredList(NamedTuple):
    """A list of an example: its kind, and the byte range of its message."""

    kind: int
    example: Buffer
    begin: int
    end: int

    def fields(self) -> Iterator[tuple[int, int, int, int]]:
        """Yields the fields of the message, see `wire.fields_of`."""
        return wire.fields_of(self.example, self.begin, self.end)

    def num_values(self) -> int:
        """Returns the number of values of the list; raises a WireError if it is damaged."""
        if self.kind == BYTES:
            return sum(1 for _ in self.fields())
        return len(_read_ints(self) if self.kind == INTS else _read_floats(self))


def find_lists(example: Buffer, names: set[str] | None) -> dict[str, StoredList]:
    """Finds the lists of some fields, or of all.

    Raises:
      WireError: The bytes are no example.
    """
    lists: dict[str, StoredList] = {}
    keys = None if names is None else {name.encode() for name in names}
    for tag, _, begin, end in wire.fields_of(example, 0, len(example)):
        if tag != 1:
            continue
        for _, _, entry, entry_end in wire.fields_of(example, begin, end):
            name, feature = b"", None
            for tag, _, value, value_end in wire.fields_of(example, entry, entry_end):
                if tag == 1:
                    name = bytes(example[value:value_end])
                elif tag == 2:
                    feature = value, value_end
            if keys is None:
                lists.setdefault(name.decode(), StoredList(BYTES, example, 0, 0))
            if (keys is None or name in keys) and feature is not None:
                for kind, _, list_begin, list_end in wire.fields_of(example, *feature):
                    if kind in _KIND_NAMES:
                        lists[name.decode()] = StoredList(kind, example, list_begin, list_end)
    return lists


def _read_ints(stored_list: StoredList) -> np.ndarray:
    """Returns the values of a list of int64s."""
    _check_kind(stored_list, INTS)
    arrays = []
    for _, wire_type, begin, end in stored_list.fields():
        if wire_type not in (wire.LENGTH, wire.VARINT):
            raise wire.WireError("an integer of another size")
        arrays.append(wire.decode_varints(memoryview(stored_list.example)[begin:end]))
    return _concatenate(arrays, np.int64)


def _read_floats(stored_list: StoredList) -> np.ndarray:
    """Returns the values of a float list; contiguous values are a view of the example."""
    _check_kind(stored_list, FLOATS)
    arrays = []
    for _, wire_type, begin, end in stored_list.fields():
        if wire_type == wire.VARINT or (end - begin) % 4:
            raise wire.WireError("a float of another size")
        arrays.append(np.frombuffer(stored_list.example, "<f4", (end - begin) // 4, begin))
    return _concatenate(arrays, np.float32)


def _concatenate(arrays: list[np.ndarray], dtype: Any) -> np.ndarray:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)


def _read_items(stored_list: StoredList) -> np.ndarray | list[bytes]:
    """Returns the values of a byte-string list; equal lengths become rows of bytes."""
    _check_kind(stored_list, BYTES)
    example, begin, end = stored_list.example, stored_list.begin, stored_list.end
    if begin == end:
        return []
    _, _, item_begin, item_end = next(stored_list.fields())
    head, size = item_begin - begin, item_end - begin
    if (end - begin) % size == 0:
        rows = np.frombuffer(example, np.uint8, end - begin, begin).reshape(-1, size)
        if (rows[:, :head] == rows[0, :head]).all():
            return rows[:, head:]
    return [bytes(example[begin:end]) for _, _, begin, end in stored_list.fields()]


def _read_strings(stored_list: StoredList) -> list[bytes]:
    items = _read_items(stored_list)
    return items if isinstance(items, list) else [row.tobytes() for row in items]


def _check_kind(stored_list: StoredList, kind: int) -> None:
    if stored_list.kind != kind:
        got, expected = _KIND_NAMES[stored_list.kind], _KIND_NAMES[kind]
        raise DamagedFileError(f"got a list of {got}, expected one of {expected}")


# --- Decoding.


def has_dynamic_shape(leaf: Leaf) -> bool:
    """Whether the examples also hold the shapes of a field."""
    return isinstance(leaf.feature, Tensor) and leaf.feature.shape.count(None) > 1


def _stored_names(leaf: Leaf) -> list[str]:
    """Returns the names of all lists that store a field."""
    bases = [leaf.name]
    if has_dynamic_shape(leaf):
        bases = [f"{leaf.name}/shape", f"{leaf.name}/value"]
    if len(leaf.lengths) < 2:
        return bases
    lengths = [f"ragged_row_lengths_{level}" for level in range(len(leaf.lengths) - 1)]
    return [f"{base}/{name}" for base in bases for name in ("ragged_flat_values", *lengths)]


def _decode_leaf(leaf: Leaf, lists: dict[str, StoredList]) -> Any:
    rank = len(leaf.lengths)
    suffix = "/ragged_flat_values" if rank > 1 else ""
    base = f"{leaf.name}/value" if has_dynamic_shape(leaf) else leaf.name
    values = lists.get(base + suffix)
    shapes = None
    if has_dynamic_shape(leaf):
        sizes = lists.get(f"{leaf.name}/shape{suffix}")
        shapes = np.zeros(0, np.int64) if sizes is None else _read_ints(sizes)
        if len(shapes) % len(leaf.feature.shape):
            raise DamagedFileError("a shape is incomplete")
        shapes = shapes.reshape(-1, len(leaf.feature.shape))
    if rank == 0:
        return _decode_value(leaf.feature, values, shapes)
    column: Any = _decode_column(leaf.feature, values, shapes)
    for level in reversed(range(rank - 1)):
        sizes = lists.get(f"{base}/ragged_row_lengths_{level}")
        lengths = np.zeros(0, np.int64) if sizes is None else _read_ints(sizes)
        column = _split_rows(column, lengths)
    if leaf.lengths[0] not in (None, len(column)):
        raise DamagedFileError(f"got {len(column)} elements, expected {leaf.lengths[0]}")
    return column


def _split_rows(values: Any, lengths: np.ndarray) -> RaggedColumn:
    if (lengths < 0).any() or int(lengths.sum()) != len(values):
        raise DamagedFileError(
            f"got {len(values)} elements, expected the {int(lengths.sum())} that the lengths of "
            "their sequences say"
        )
    return RaggedColumn(values, lengths)


def _decode_value(
    feature: Tensor | Image, stored_list: StoredList | None, shapes: np.ndarray | None
) -> Any:
    """Returns the value of a field outside of sequences."""
    if isinstance(feature, Tensor) and feature.encoding == "none":
        if stored_list is None:
            return _create_placeholder(feature)
        values = _read_plain_values(feature, stored_list)
        if not feature.shape and len(values) == 1:
            return values[0] if feature.is_text else values.reshape(())[()]
        return _reshape(values, feature.shape)
    if stored_list is None:
        return _create_placeholder(feature)
    column = _decode_column(feature, stored_list, shapes)
    if len(column) != 1:
        raise DamagedFileError(f"got {len(column)} values, expected one")
    return column[0]


def _create_placeholder(feature: Tensor | Image) -> Any:
    """Returns the placeholder of TFDS for a field that an example lacks."""
    if isinstance(feature, Image):
        raise DamagedFileError("it is missing")
    if feature.optional:
        dtype = feature.dtype
        if feature.is_text:
            placeholder: Any = b""
        elif dtype.kind in "iu":
            placeholder = np.iinfo(dtype).min
        else:
            placeholder = False if dtype.kind == "b" else np.finfo(dtype).min
        if not feature.shape:
            return placeholder if feature.is_text else dtype.type(placeholder)
        return np.full([size or 0 for size in feature.shape], placeholder, dtype)
    if feature.encoding == "none" and feature.shape.count(None) == 1:
        return np.zeros([size or 0 for size in feature.shape], feature.dtype)
    raise DamagedFileError("it is missing")


def _decode_column(
    feature: Tensor | Image, stored_list: StoredList | None, shapes: np.ndarray | None
) -> np.ndarray:
    """Returns the values of all elements of a sequence."""
    if isinstance(feature, Image):
        files = [] if stored_list is None else _read_strings(stored_list)
        if files:
            return stack([images.decode_image(file, feature) for file in files])
        return np.zeros((0, *(size or 0 for size in feature.shape)), feature.dtype)
    if feature.encoding != "none":
        return _decode_arrays(feature, stored_list, shapes)
    if None in feature.shape:
        raise UnsupportedFileError("plain arrays of an unknown size in a sequence")
    if 0 in feature.shape:
        raise UnsupportedFileError("plain arrays without elements in a sequence")
    no_values = np.zeros(0, feature.dtype)
    values = no_values if stored_list is None else _read_plain_values(feature, stored_list)
    return _reshape(values, (None, *feature.shape))


def _read_plain_values(feature: Tensor, stored_list: StoredList) -> np.ndarray:
    dtype = feature.dtype
    if feature.is_text:
        items = _read_strings(stored_list)
        values = np.empty(len(items), object)
        values[:] = items
        return values
    if dtype.kind in "biu":
        values = _read_ints(stored_list)
        return values.view(dtype) if dtype == np.uint64 else values.astype(dtype, copy=False)
    if dtype.kind == "c":
        raise UnsupportedFileError("plain complex numbers")
    floats = _read_floats(stored_list)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.require(floats.astype(dtype, copy=False), requirements="A")


def _reshape(values: np.ndarray, shape: Sequence[int | None]) -> np.ndarray:
    """Reshapes values; one size of the shape may be unknown."""
    if None not in shape:
        sizes = [int(size or 0) for size in shape]
    elif shape.count(None) == 1:
        known_size = math.prod(size for size in shape if size is not None)
        count = len(values) // known_size if known_size else 0
        sizes = [count if size is None else size for size in shape]
    else:
        raise UnsupportedFileError("plain arrays of several unknown sizes")
    if math.prod(sizes) != len(values):
        raise DamagedFileError(f"got {len(values)} values, expected the shape {tuple(shape)}")
    return values.reshape(sizes)


def _decode_arrays(
    feature: Tensor, stored_list: StoredList | None, shapes: np.ndarray | None
) -> np.ndarray:
    """Returns arrays that are stored as their memory."""
    items: Any = [] if stored_list is None else _read_items(stored_list)
    sizes = [size or 0 for size in feature.shape]
    if shapes is not None and len(shapes) != len(items):
        raise DamagedFileError(f"got {len(items)} arrays, and {len(shapes)} shapes")
    if not len(items):
        return np.zeros((0, *sizes), feature.dtype)
    if feature.encoding == "bytes" and None not in feature.shape and isinstance(items, np.ndarray):
        _check_size(items.shape[1], feature.shape, feature.dtype)
        if not items.shape[1]:
            return np.zeros((len(items), *sizes), feature.dtype)
        values = np.require(items.view(feature.dtype.newbyteorder("<")), requirements="A")
        return values.reshape(len(items), *sizes)
    rows = []
    for index, item in enumerate(items):
        shape = feature.shape if shapes is None else _merge_shapes(shapes[index], feature.shape)
        rows.append(_decode_array(bytes(item), feature, shape))
    return stack(rows)


def _merge_shapes(sizes: np.ndarray, shape: Sequence[int | None]) -> tuple[int, ...]:
    stored_shape = tuple(sizes.tolist())
    if any(size < 0 or expected not in (None, size) for size, expected in zip(stored_shape, shape)):
        raise DamagedFileError(f"got the shape {stored_shape}, expected {tuple(shape)}")
    return stored_shape


def _decode_array(data: bytes, feature: Tensor, shape: Sequence[int | None]) -> np.ndarray:
    if feature.encoding == "zlib":
        try:
            data = zlib.decompress(data)
        except zlib.error as e:
            raise DamagedFileError(f"the compressed array is damaged: {e}") from e
    if None not in shape:
        _check_size(len(data), shape, feature.dtype)
    elif len(data) % feature.dtype.itemsize:
        raise DamagedFileError(f"{len(data)} bytes are not an array of {feature.dtype}")
    values = np.frombuffer(bytearray(data), feature.dtype.newbyteorder("<"))
    return _reshape(values, shape)


def _check_size(size: int, shape: Sequence[int | None], dtype: np.dtype) -> None:
    expected = math.prod(int(length or 0) for length in shape) * dtype.itemsize
    if size != expected:
        raise DamagedFileError(
            f"got an array of {size} bytes, expected {expected} for {dtype} of shape {tuple(shape)}"
        )
