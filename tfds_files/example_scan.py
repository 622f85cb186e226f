"""Byte offsets of the fields of examples: one vectorized scan of a file without parsing examples.

The bytes of an example are a sequence of entries, each with the name of a field and its list; see
`tfds_files.wire`. One pass scans the first entry of all examples, the next pass the second, and so
on, vectorized by NumPy. Examples of another layout are parsed one by one; their fields are not
direct.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tfds_files import wire
from tfds_files.errors import DamagedFileError
from tfds_files.examples import BYTES, FLOATS, INTS, find_lists, has_dynamic_shape
from tfds_files.features import Dataset, Features, Image, Leaf, Sequence, leaves_of
from tfds_files.wire import encode_varint

__all__ = ["NOT_DIRECT", "FieldLayout", "Scanner", "direct_encoding", "head_sizes", "layouts_of"]

NOT_DIRECT = 0xFFFFFFFF
"""The `starts` of a field without a byte offset: its example has to be decoded."""

NO_VALUE = 255
_TAG = 0x0A  # Tags of a map entry, a name, a packed list, and a byte string.
_VALUE_TAG = 0x12
_TOO_LONG = 1 << 40  # A size that exceeds the size of any file.


class FieldLayout(NamedTuple):
    """The storage of the elements of a field: kind, and dtype and width of direct elements.

    A direct element is read from its byte offset, without decoding the example.

    Attributes:
      name: The name of the field, such as "steps/observation".
      kind: "floats"; "bytes" for arrays stored as their memory; "integers", of one byte each;
        "strings" of any size, which are text and files of images; empty if the field is never
        direct.
      dtype: The dtype of the stored values, as NumPy writes it; empty for strings.
      width: The number of bytes of an element; 0 for strings.
      in_sequence: True if each element of the sequence has a value, False if each example has one.
    """

    name: str
    kind: str
    dtype: str = ""
    width: int = 0
    in_sequence: bool = False

    @property
    def head(self) -> bytes:
        """The bytes before each element of the kind "bytes": tag and length."""
        return bytes([_TAG]) + encode_varint(self.width) if self.kind == "bytes" else b""


def layouts_of(features: Features) -> tuple[str, tuple[FieldLayout, ...]]:
    """Returns the name of the sequence in examples, empty without a sequence; and the fields.

    The sequence is `steps` if it exists, or else the first `Dataset`, or else the first `Sequence`.
    """
    sequences = [
        name
        for name, feature in features.items()
        if isinstance(feature, Sequence) and any(leaves_of(feature))
    ]
    sequences.sort(key=lambda name: (name != "steps", not isinstance(features[name], Dataset)))
    sequence = sequences[0] if sequences else ""
    layouts = (_find_layout(leaf, sequence) for leaf in leaves_of(features))
    return sequence, tuple(sorted(layouts))


def direct_encoding(shape: tuple[int | None, ...], dtype: np.dtype) -> str:
    """Returns the encoding that gives byte offsets to the elements of a `Tensor`, if possible.

    The encoding is "none" if plain numbers have a fixed width, and otherwise "bytes". TFDS cannot
    read the bytes of uint32; strings and arrays of unknown sizes have no fixed width.
    """
    is_plain = dtype.name in ("bool", "float32", "uint32") and not {0, None} & {*shape}
    return "none" if is_plain or dtype.kind == "O" else "bytes"


def _find_layout(leaf: Leaf, sequence: str) -> FieldLayout:
    feature = leaf.feature
    in_sequence = len(leaf.lengths) > 0 and leaf.path[0] == sequence
    not_direct = FieldLayout(leaf.name, "", in_sequence=in_sequence)
    if len(leaf.lengths) != in_sequence:  # The field is in other or nested sequences.
        return not_direct
    if isinstance(feature, Image) or (feature.is_text and not feature.shape):
        return FieldLayout(leaf.name, "strings", in_sequence=in_sequence)
    if None in feature.shape or 0 in feature.shape or feature.is_text:
        return not_direct
    count = math.prod(size or 0 for size in feature.shape)
    if feature.encoding == "bytes":
        dtype = feature.dtype.newbyteorder("<")
        kind, name = "bytes", feature.dtype.name if dtype.kind == "V" else dtype.str
    elif feature.encoding == "none" and feature.dtype == np.float32:
        kind, name, dtype = "floats", "<f4", np.dtype("<f4")
    elif feature.encoding == "none" and feature.dtype.kind in "biu":
        kind, name, dtype = "integers", "|u1", np.dtype(np.uint8)
    else:
        return not_direct
    return FieldLayout(leaf.name, kind, name, count * dtype.itemsize, in_sequence)


_LIST_OF_KIND = {"floats": FLOATS, "integers": INTS, "bytes": BYTES, "strings": BYTES}


class Scanner:
    """Finds the fields of the examples of a file.

    Args:
      features: The features of an example.
      raw: The file.
      path: The path of the file, for errors.
    """

    def __init__(self, features: Features, raw: mmap.mmap, path: str) -> None:
        self.sequence, self.layouts = layouts_of(features)
        self._counters = _find_counters(features, self.sequence)
        self._names = sorted({layout.name for layout in self.layouts} | self._counters.keys())
        self._columns = {name.encode(): i for i, name in enumerate(self._names)}
        self._max_name_length = max(map(len, self._columns), default=0)
        self._raw = raw
        self._path = path
        self._data = np.frombuffer(raw, np.uint8)

    def scan(
        self, offsets: np.ndarray, end_offsets: np.ndarray, first_index: int
    ) -> dict[str, np.ndarray]:
        """Finds the fields of examples.

        Args:
          offsets: The byte offsets of the examples in the file.
          end_offsets: The ends of the examples.
          first_index: The index of the first example.

        Returns:
          The arrays of fields of `ShardIndex`; and for each field of strings, the number of strings
          of each example (`counts/<name>`), and the ends of the strings (`ends/<name>`).

        Raises:
          DamagedFileError: The bytes are not an example.
        """
        kinds, list_starts, list_ends, is_irregular = self._find_lists(offsets, end_offsets)
        shape = len(offsets), len(self.layouts)
        starts, sizes, counts = (np.zeros(shape, np.int64) for _ in range(3))
        string_ends: dict[str, list[list[int]]] = {}
        for field, layout in enumerate(self.layouts):
            if not layout.kind:
                continue
            column = self._columns[layout.name.encode()]
            is_present = kinds[:, column] == _LIST_OF_KIND[layout.kind]
            is_present &= ~is_irregular & (list_ends[:, column] > list_starts[:, column])
            rows = np.flatnonzero(is_present)
            start, end = list_starts[rows, column], list_ends[rows, column]
            if layout.kind == "strings":
                item_ends = list(map(self._find_string_ends, start.tolist(), end.tolist()))
                string_ends[layout.name] = [[] for _ in range(len(offsets))]
                for row, row_ends in zip(rows.tolist(), item_ends):
                    string_ends[layout.name][row] = row_ends
                data_start, count = start, np.array(list(map(len, item_ends)), np.int64)
            elif layout.kind == "bytes":
                data_start, count = start + len(layout.head), self._count_items(layout, start, end)
            else:
                size, data_start = self._read_varints(start + 1)
                count = np.where(size % layout.width == 0, size // layout.width, 0)
                is_contiguous = (self._read_bytes(start) == _TAG) & (data_start + size == end)
                count[~is_contiguous] = 0
                if layout.kind == "integers":
                    ranges = map(slice, data_start.tolist(), end.tolist())
                    count *= np.array([self._raw[range_].isascii() for range_ in ranges], np.int64)
            starts[rows, field], counts[rows, field] = data_start - offsets[rows], count
            sizes[rows, field] = end - (start if layout.kind == "bytes" else data_start)
        in_sequence = np.array([layout.in_sequence for layout in self.layouts], bool)
        num_elements = counts[:, in_sequence].max(axis=1, initial=0)
        self._count_indirect(num_elements, offsets, end_offsets, first_index, kinds, is_irregular)
        expected = np.where(in_sequence, num_elements[:, np.newaxis], 1)
        is_direct = (counts > 0) & (counts == expected)
        is_direct &= (starts < NOT_DIRECT) & (sizes < NOT_DIRECT)
        starts[~is_direct], sizes[~is_direct] = NOT_DIRECT, 0
        last_bytes = np.full(shape, NO_VALUE, np.uint8)
        for field, layout in enumerate(self.layouts):
            if layout.kind == "integers":
                rows = np.flatnonzero(is_direct[:, field])
                last_bytes[rows, field] = self._read_bytes(
                    offsets[rows] + starts[rows, field] + sizes[rows, field] - 1
                )
            elif layout.kind == "strings":
                for row in np.flatnonzero(~is_direct[:, field]).tolist():
                    string_ends[layout.name][row] = []
        arrays = {
            "num_elements": num_elements.astype(np.uint32),
            "starts": starts.astype(np.uint32),
            "sizes": sizes.astype(np.uint32),
            "last_bytes": last_bytes,
        }
        for name, ends_of_rows in string_ends.items():
            arrays[f"counts/{name}"] = np.array(list(map(len, ends_of_rows)), np.int64)
            arrays[f"ends/{name}"] = np.array(
                [end for ends in ends_of_rows for end in ends], np.uint32
            )
        return arrays

    # The following functions take and return arrays with a row for each selected example.

    def _find_lists(self, offsets: np.ndarray, end_offsets: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the kinds, starts and ends of the lists of each example; and the irregular rows.

        A missing list has the kind 0.
        """
        shape = len(offsets), len(self._names)
        kinds = np.zeros(shape, np.int8)
        list_starts, list_ends = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        length, position = self._read_varints(offsets + 1)
        is_irregular = (self._read_bytes(offsets) != _TAG) | (position + length != end_offsets)
        rows = np.flatnonzero(~is_irregular)
        position = position[rows]
        while len(rows):
            size, entry = self._read_varints(position + 1)
            key_size, key = self._read_varints(entry + 1)
            value = key + key_size
            feature_size, feature = self._read_varints(value + 1)
            list_size, start = self._read_varints(feature + 1)
            tag, end = self._read_bytes(feature), entry + size
            is_empty = feature_size == 0
            is_list = (start + list_size == end) & (tag & 7 == wire.LENGTH) & (tag < 0x20)
            is_regular = (self._read_bytes(position) == _TAG) & (self._read_bytes(entry) == _TAG)
            is_regular &= (self._read_bytes(value) == _VALUE_TAG) & (end <= end_offsets[rows])
            is_regular &= (feature + feature_size == end) & (is_empty | (is_list & (tag > 7)))
            is_irregular[rows[~is_regular]] = True
            rows, key, key_size, tag, start, end, is_empty = (
                array[is_regular] for array in (rows, key, key_size, tag, start, end, is_empty)
            )
            for column, matches in self._match_names(key, key_size, rows, is_irregular):
                matches = matches[~is_empty[matches]]
                kinds[rows[matches], column] = tag[matches] >> 3
                list_starts[rows[matches], column] = start[matches]
                list_ends[rows[matches], column] = end[matches]
            has_more = (end < end_offsets[rows]) & ~is_irregular[rows]
            rows, position = rows[has_more], end[has_more]
        kinds[is_irregular] = 0
        return kinds, list_starts, list_ends, is_irregular

    def _match_names(
        self, starts: np.ndarray, sizes: np.ndarray, rows: np.ndarray, is_irregular: np.ndarray
    ) -> Iterable[tuple[int, np.ndarray]]:
        """Yields the column of each field name, with the indices of the matching names."""
        unmatched = np.arange(len(starts))
        for _ in range(2 * len(self._names) + 2):
            if not len(unmatched):
                return
            size = int(sizes[unmatched[0]])
            key_start = int(starts[unmatched[0]])
            name = self._raw[key_start : key_start + size]
            matches = sizes[unmatched] == size
            if size <= self._max_name_length:  # No field has a longer name.
                name_bytes = self._data[starts[unmatched[matches], np.newaxis] + np.arange(size)]
                matches[matches] = (name_bytes == np.frombuffer(name, np.uint8)).all(axis=1)
            column = self._columns.get(name)
            if column is not None:
                yield column, unmatched[matches]
            unmatched = unmatched[~matches]
        is_irregular[rows[unmatched]] = True  # The remaining names are not fields of the features.

    def _count_items(self, layout: FieldLayout, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Returns the number of arrays in each list; 0 if an array has another size."""
        stride = len(layout.head) + layout.width
        counts, remainders = np.divmod(ends - starts, stride)
        counts = np.where(remainders > 0, 0, counts)
        for row in np.flatnonzero(counts).tolist():
            items = self._data[starts[row] : ends[row]].reshape(-1, stride)
            if not all((items[:, i] == byte).all() for i, byte in enumerate(layout.head)):
                counts[row] = 0
        return counts

    def _find_string_ends(self, start: int, end: int) -> list[int]:
        """Returns the ends of the byte strings of a list; empty if its encoding is irregular."""
        raw, position, string_ends = self._raw, start, []
        with contextlib.suppress(IndexError):  # A string may exceed the file.
            while position < end:
                size, head = raw[position + 1], 2
                if size > 127:
                    size, head = (size & 127) | raw[position + 2] << 7, 3
                    if size > 0x3FFF:  # The length has more than two bytes.
                        size, head = _long_varint(raw, position + 1)
                if raw[position] != _TAG or head != _head_size(size):
                    return []
                position += head + size
                string_ends.append(position - start)
        return string_ends if position == end else []

    def _count_indirect(
        self,
        num_elements: np.ndarray,
        offsets: np.ndarray,
        end_offsets: np.ndarray,
        first_index: int,
        kinds: np.ndarray,
        is_irregular: np.ndarray,
    ) -> None:
        """Counts the elements of examples that have no direct field in the sequence."""
        columns = [self._columns[name.encode()] for name in self._counters]
        is_uncounted = (num_elements == 0) & (kinds[:, columns] > 0).any(axis=1)
        for row in np.flatnonzero(is_uncounted | is_irregular).tolist():
            example = self._raw[int(offsets[row]) : int(end_offsets[row])]
            try:
                lists = find_lists(example, set(self._counters))
                num_elements[row] = max(
                    (lists[name].num_values() // self._counters[name] for name in lists), default=0
                )
            except wire.WireError as e:
                raise DamagedFileError(
                    f"{self._path}, record {first_index + row}, at byte {offsets[row]}: "
                    f"not a tf.train.Example: {e}"
                ) from e

    def _read_bytes(self, positions: np.ndarray) -> np.ndarray:
        """Returns the bytes at offsets; offsets beyond the file get its last byte."""
        content: np.ndarray = self._data[np.minimum(positions, len(self._data) - 1)]
        return content

    def _read_varints(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns varints, and their ends; `_TOO_LONG` replaces varints of over five bytes."""
        groups = self._read_bytes(positions).astype(np.int64)
        values, end_offsets, shift = groups & 127, positions + 1, 7
        has_more = groups > 127
        while has_more.any():
            if shift > 28:
                values[has_more] = _TOO_LONG
                break
            groups = np.where(has_more, self._read_bytes(end_offsets), 0).astype(np.int64)
            values |= (groups & 127) << shift
            end_offsets += has_more
            has_more = groups > 127
            shift += 7
        return values, end_offsets


def _find_counters(features: Features, sequence: str) -> dict[str, int]:
    """Returns the lists that determine the length of the sequence, and their values per element."""
    counters = {}
    for leaf in leaves_of(features):
        feature, name = leaf.feature, leaf.name
        if not leaf.lengths or leaf.path[0] != sequence:
            continue
        if has_dynamic_shape(leaf):
            name += "/value"
        if len(leaf.lengths) > 1:
            counters[f"{name}/ragged_row_lengths_0"] = 1
        elif isinstance(feature, Image) or feature.encoding != "none":
            counters[name] = 1
        elif None not in feature.shape and 0 not in feature.shape:
            counters[name] = math.prod(size or 0 for size in feature.shape)
    return counters


def _long_varint(raw: mmap.mmap, position: int) -> tuple[int, int]:
    """Returns the size of a byte string, and the size of its head."""
    value = shift = 0
    for index in range(5):
        group = raw[position + index]
        value |= (group & 127) << shift
        if group < 128:
            return value, index + 2
        shift += 7
    return _TOO_LONG, 0


def _head_size(size: int) -> int:
    """Returns the size of the head of a byte string: tag and length."""
    if size < 0x80:
        return 2
    return 3 if size < 0x4000 else 1 + -(-size.bit_length() // 7)


def head_sizes(items: np.ndarray) -> np.ndarray:
    """Returns the sizes of the heads of byte strings, from their sizes including the heads."""
    heads = np.full(items.shape, 2, np.int64)
    for groups in range(1, 5):
        heads += items >= (1 << 7 * groups) + 2 + groups
    return heads
