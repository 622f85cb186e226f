"""Fast encoder of columns to TFDS examples (`tf.train.Example`), with the bytes of TFDS.

TFDS encodes an episode step by step; here a column is encoded at once. The bytes are those of TFDS,
but fields are sorted by name; their order in TFDS differs between processes. For the storage of
fields see the table of `tfds_files.examples`.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlds_ecosystem.model.columns import fits
from tfds_files import features as nodes
from tfds_files.columns import RaggedColumn
from tfds_files.features import Dataset, Feature, Features, Image, Tensor
from tfds_files.png import check_level, encode_png
from tfds_files.wire import delimited, encode_varint, encode_varints

__all__ = [
    "ExampleEncoder",
    "FieldLists",
    "Fields",
    "Path",
    "are_encoded_as_png",
    "bytes_lists",
    "feature_at",
    "list_rows",
    "png_files",
    "split_rows",
]

# The first bytes of the files of a codec.
_SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff"}

# The tags of the fields of `tf.train.Feature`, of the lists in it, and of the messages around it.
_BYTES_LIST_TAG, _FLOAT_LIST_TAG, _INT64_LIST_TAG = b"\x0a", b"\x12", b"\x1a"
_ITEMS_TAG = b"\x0a"
_FEATURES_TAG = _ENTRY_TAG = _KEY_TAG = b"\x0a"
_VALUE_TAG = b"\x12"

# Field heads of examples differ only in sizes, and most heads have the same length.
_MAX_CACHED_HEADS = 1 << 14

# The largest integer up to which float64 is exact.
_MAX_EXACT_INTEGER = 1 << 53


class FieldLists(NamedTuple):
    """A field of several examples.

    Attributes:
      contents: The bytes of the list of each example, or of its `tf.train.Feature`; None if the
        example lacks the field.
      tag: The tag of the lists; empty if the contents are features.
      is_packed: Whether the lists hold numbers.
    """

    contents: Sequence[bytes | None]
    tag: bytes = b""
    is_packed: bool = False


Fields = Iterator[tuple[str, FieldLists]]
"""The fields of examples, by their names."""

Path = tuple[str | None, ...]
"""The names that lead to a feature; None leads from a sequence to its elements."""

_COLUMN_TYPES = (Mapping, np.ndarray, RaggedColumn)

_Fallback = Callable[[Path, Any, np.ndarray], Fields]


class _Leaf(NamedTuple):
    """The column of a leaf feature, with the sequences around it.

    Attributes:
      feature: The feature of a row.
      rows: The rows of all sequences, one after the other.
      path: The path of the feature.
      lengths: The lengths of the sequences of each level of nesting, the outermost level first.
    """

    feature: Feature
    rows: Any
    path: Path
    lengths: list[np.ndarray]


class ExampleEncoder:
    """Encodes examples.

    Args:
      features: The features of an example, usually an episode.
      fallback: Encodes values that do not match their feature exactly, such as images to
        compress, and features of an unknown class. Its arguments are the path of the feature, a
        column of the rows of all examples (or a dict of columns), and the offsets of the rows of
        each example; outside of sequences, an example has one row. Yields fields under their full
        names. By default, images of PNG features become PNG files, and all other values are errors.
      png_level: The compression level of PNG files, see `tfds_files.png.encode_png`.

    Attributes:
      features: The features of an example.

    >>> steps = Dataset(feature=Features(features={"action": Tensor(dtype=np.dtype(np.float32))}))
    >>> features = Features(features={"steps": steps, "id": Tensor(dtype=np.dtype(np.int64))})
    >>> episode = {"steps": {"action": np.array([0.5, 1.5], np.float32)}, "id": 7}
    >>> data = ExampleEncoder(features).encode(episode)
    >>> from tfds_files import ExampleDecoder
    >>> ExampleDecoder(features).decode(data)["steps"]["action"]
    array([0.5, 1.5], dtype=float32)
    """

    def __init__(
        self, features: Features, fallback: _Fallback | None = None, *, png_level: int | None = None
    ) -> None:
        check_level(png_level)
        self.features = features
        self._fallback = fallback or self._encode_images
        self._png_level = png_level

    def encode(self, example: Mapping[str, Any]) -> bytes:
        """Returns the bytes of an example, the same in every process.

        Args:
          example: The fields. For a `Dataset`, such as `steps`, and for a `Sequence`, columns:
            arrays with a leading axis of one length, lists of arrays that differ in shape, or, for
            a sequence of sequences, a `RaggedColumn`.

        Raises:
          ValueError: Fields are missing or unexpected; columns differ in length; or a value does
            not match its feature. The error names the field.
        """
        return _join_fields(self._encode_values(self.features, example, (), None))[0]

    def encode_all(self, examples: Mapping[str, Any], lengths: np.ndarray) -> list[bytes]:
        """Encodes several examples like `encode`, but much faster.

        Args:
          examples: The fields, as columns with a row for each example. For a `Dataset`, columns
            with the rows of all examples, one after the other.
          lengths: The number of rows of each example in these columns; int[num_examples].

        Raises:
          ValueError: See `encode`.

        >>> number = Tensor(dtype=np.dtype(np.int64))
        >>> steps = Dataset(feature=Features(features={"action": number}))
        >>> encoder = ExampleEncoder(Features(features={"steps": steps, "id": number}))
        >>> columns = {"steps": {"action": np.array([1, 2, 3])}, "id": np.array([7, 8])}
        >>> encoder.encode_all(columns, np.array([1, 2]))[1] == encoder.encode(
        ...     {"steps": {"action": np.array([2, 3])}, "id": 8}
        ... )
        True
        """
        return _join_fields(self._encode_values(self.features, examples, (), _offsets_of(lengths)))

    def _encode_values(
        self, feature: Feature, values: Any, path: Path, offsets: np.ndarray | None
    ) -> Fields:
        """Yields the fields of examples.

        Args:
          feature: The encoded feature.
          values: The values of all examples, as columns; or, without `offsets`, of one example.
          path: The path of the feature.
          offsets: The offsets of the rows of each example in a `Dataset`.
        """
        if type(feature) is Features:
            for name, child, child_values in _children(feature, values, path):
                yield from self._encode_values(child, child_values, (*path, name), offsets)
        elif isinstance(feature, Dataset) and isinstance(values, _COLUMN_TYPES):
            lengths = set(_lengths(values)) | (set() if offsets is None else {int(offsets[-1])})
            if len(lengths) > 1:
                raise ValueError(f"{_name(path)}: the columns differ in length: {sorted(lengths)}")
            offsets = np.array([0, *lengths]) if offsets is None else offsets
            if feature.length is not None and (np.diff(offsets) != feature.length).any():
                got = np.diff(offsets).tolist()
                raise ValueError(f"{_name(path)}: got {got} rows, expected {feature.length}")
            yield from self._encode_rows(feature.feature, values, (*path, None), offsets)
        elif values is not None or not (isinstance(feature, Tensor) and feature.optional):
            yield from self._encode_by_fallback(feature, values, path, offsets)

    def _encode_by_fallback(
        self, feature: Feature, values: Any, path: Path, offsets: np.ndarray | None
    ) -> Fields:
        """Yields the fields of examples for columns with a row for each example."""
        rows = _as_one_row(feature, values) if offsets is None else values
        bounds = np.arange(2 if offsets is None else len(offsets))
        if offsets is not None and set(_lengths(rows)) != {len(offsets) - 1}:
            got = sorted(set(_lengths(rows)))
            raise ValueError(f"{_name(path)}: got {got} rows for {len(offsets) - 1} examples")
        leaves = None if isinstance(feature, Dataset) else _find_leaves(feature, rows, path)
        if leaves is None:
            yield from self._fallback(path, rows, bounds)
            return
        for leaf in leaves:
            if leaf.lengths:  # The first offsets separate the examples.
                lengths, *nested = leaf.lengths
                yield from self._encode_leaf(leaf._replace(lengths=nested), _offsets_of(lengths))
            else:
                yield from self._encode_leaf(leaf, bounds)

    def _encode_rows(self, feature: Feature, rows: Any, path: Path, offsets: np.ndarray) -> Fields:
        """Yields the fields of examples for a column, or a dict of columns."""
        if type(feature) is Features and isinstance(rows, Mapping):
            for name, child, child_rows in _children(feature, rows, path):
                yield from self._encode_rows(child, child_rows, (*path, name), offsets)
            return
        leaves = _find_leaves(feature, rows, path)
        if leaves is None:
            yield from self._fallback(path, rows, offsets)
        else:
            for leaf in leaves:
                yield from self._encode_leaf(leaf, offsets)

    def _encode_leaf(self, leaf: _Leaf, offsets: np.ndarray) -> Fields:
        """Yields the fields of examples for a column."""
        row_lengths = []
        for lengths in leaf.lengths:
            row_lengths.append(_encode_int64s(lengths, offsets))
            offsets = _offsets_of(lengths)[offsets]
        fields: Any = _encode_fields(leaf.feature, leaf.rows, offsets, _name(leaf.path))
        if fields is None:
            fields = self._fallback(leaf.path, leaf.rows, offsets)
        for name, lists in fields:
            for level, level_lengths in enumerate(row_lengths):
                yield f"{name}/ragged_row_lengths_{level}", level_lengths
            yield (f"{name}/ragged_flat_values" if row_lengths else name), lists

    def _encode_images(self, path: Path, rows: Any, offsets: np.ndarray) -> Fields:
        """Yields the field of images, as PNG files.

        Raises:
          ValueError: The rows are not images, or not stored as PNG files.
        """
        feature = feature_at(self.features, path)
        files = png_files(feature, rows, self._png_level)
        if files is None:
            raise _mismatch_error(feature, path, rows)
        yield _name(path), bytes_lists(files, offsets)


def _join_fields(fields: Fields) -> list[bytes]:
    """Returns the bytes of examples from their fields."""
    pieces: list[list[bytes]] = []
    for key, (contents, tag, is_packed) in sorted(fields, key=operator.itemgetter(0)):
        sizes = [None if content is None else len(content) for content in contents]
        pieces.append([b"" if size is None else _head(key, tag, is_packed, size) for size in sizes])
        pieces.append([content or b"" for content in contents])
    return [
        b"".join((_FEATURES_TAG, encode_varint(sum(map(len, example))), *example))
        for example in zip(*pieces, strict=True)
    ]


@functools.lru_cache(_MAX_CACHED_HEADS)
def _head(key: str, tag: bytes, is_packed: bool, size: int) -> bytes:
    """Returns the bytes before the content of a field: proto tags, lengths and the name."""
    items = _ITEMS_TAG + encode_varint(size) if is_packed and size else b""
    size += len(items)
    feature = tag + encode_varint(size) if tag else b""
    size += len(feature)
    entry = delimited(_KEY_TAG, key.encode()) + _VALUE_TAG + encode_varint(size)
    return b"".join((_ENTRY_TAG, encode_varint(len(entry) + size), entry, feature, items))


# --- Values and rows.


def feature_at(features: Any, path: Path) -> Any:
    """Returns the feature that a path leads to; the features may also be those of TFDS."""
    for name in path:
        features = features.feature if name is None else features[name]
    return features


@functools.lru_cache(_MAX_CACHED_HEADS)
def _name(path: Path) -> str:
    """Returns the name of a feature in examples."""
    return "/".join(name for name in path if name is not None)


def _children(feature: Features, values: Any, path: Path) -> Iterator[tuple[str, Feature, Any]]:
    """Yields the fields of a dict: the name, the feature, the value."""
    children = feature.features  # Access to a plain dict is faster than to the `Mapping`.
    if not isinstance(values, Mapping) or values.keys() != children.keys():
        got = list(values) if isinstance(values, Mapping) else type(values).__name__
        raise ValueError(f"{_name(path) or 'example'}: got {got}, expected the fields {[*feature]}")
    for name, child in children.items():
        yield name, child, values[name]


def _lengths(rows: Any) -> Iterator[int]:
    if isinstance(rows, Mapping):
        for child in rows.values():
            yield from _lengths(child)
    else:
        yield len(rows)


def _offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Returns the offsets of rows from their lengths, with the end of the last row."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _as_one_row(feature: Feature, value: Any) -> Any:
    """Returns a value as a column of one row if that is lossless; otherwise as a list."""
    if isinstance(feature, nodes.Sequence) and isinstance(value, Mapping) and value:
        return {name: _as_one_row(feature, child) for name, child in value.items()}
    if isinstance(value, RaggedColumn):
        return RaggedColumn(value, np.array([len(value)]))
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)[np.newaxis]
    if isinstance(value, str | bytes):
        column = np.empty(1, object)
        column[0] = value
        return column
    if isinstance(feature, Tensor) and _is_number_of(feature.dtype, value):
        return np.array([value], feature.dtype)
    return [value]


def _is_number_of(dtype: np.dtype, value: Any) -> bool:
    """Whether a Python number is of the kind of a dtype, and in its range."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return type(value) is int and int(limits.min) <= value <= int(limits.max)
    if dtype.kind == "f":
        return type(value) is float or (type(value) is int and abs(value) <= _MAX_EXACT_INTEGER)
    return dtype.kind == "b" and type(value) is bool


def _find_leaves(
    feature: Feature, rows: Any, path: Path, sizes: tuple[int | None, ...] = ()
) -> list[_Leaf] | None:
    """Returns rows of sequences as columns of their elements; None if that is impossible.

    Args:
      feature: The feature of a row.
      rows: A column, or a dict of columns.
      path: The path of the feature.
      sizes: The required lengths of the sequences around the feature, which are axes of the rows.
    """
    if type(feature) is Features:
        if not isinstance(rows, Mapping) or rows.keys() != feature.features.keys():
            return None
        leaves: list[_Leaf] = []
        for name, child in feature.features.items():
            child_leaves = _find_leaves(child, rows[name], (*path, name), sizes)
            if child_leaves is None:
                return None
            leaves += child_leaves
        # The fields of a sequence must have the same length.
        outer = [leaf.lengths[: len(sizes)] for leaf in leaves]
        are_equal = all(all(map(np.array_equal, lengths, outer[0])) for lengths in outer[1:])
        return leaves if are_equal else None
    if isinstance(feature, nodes.Sequence):
        return _find_leaves(feature.feature, rows, (*path, None), (*sizes, feature.length))
    lengths = []
    for size in sizes:
        column = _as_ragged(rows)
        if column is None or (size is not None and (column.lengths != size).any()):
            return None
        lengths.append(column.lengths)
        rows = column.values
    return [_Leaf(feature, rows, path, lengths)]


def _as_ragged(rows: Any) -> RaggedColumn | None:
    if isinstance(rows, np.ndarray) and rows.ndim >= 2:
        num_rows, length, *shape = rows.shape
        return RaggedColumn(rows.reshape(num_rows * length, *shape), np.full(num_rows, length))
    return rows if isinstance(rows, RaggedColumn) else None


def list_rows(rows: Any) -> list[Any]:
    """Returns the list of the rows of a column, or of a dict of columns."""
    if isinstance(rows, Mapping):
        by_row = zip(*map(list_rows, rows.values()), strict=True)
        return [dict(zip(rows, row)) for row in by_row]
    return list(rows)


def split_rows(rows: Any, offsets: np.ndarray) -> list[Any]:
    """Returns the rows of each example.

    Args:
      rows: A column, or a dict of columns, with the rows of all examples.
      offsets: The offset of the first row of each example, and the end of the rows.
    """
    if len(offsets) == 2:  # A single example has all rows, so no slicing is needed.
        return [rows]
    if isinstance(rows, Mapping):
        cuts = zip(*(split_rows(child, offsets) for child in rows.values()))
        return [dict(zip(rows, cut)) for cut in cuts]
    if isinstance(rows, RaggedColumn):
        values = split_rows(rows.values, _offsets_of(rows.lengths)[offsets])
        return [RaggedColumn(*cut) for cut in zip(values, split_rows(rows.lengths, offsets))]
    return [rows[start:end] for start, end in itertools.pairwise(offsets.tolist())]


def png_files(feature: Feature, rows: Any, level: int | None) -> list[bytes] | None:
    """Returns images as PNG files; None if the feature is not stored as PNG.

    Args:
      feature: The feature of an image.
      rows: The images.
      level: The compression level, see `tfds_files.png.encode_png`.
    """
    if not are_encoded_as_png(feature, rows):
        return None
    if feature.dtype == np.float32:  # type: ignore[attr-defined]  # As four channels of bytes.
        rows = [np.ascontiguousarray(image).view(np.uint8) for image in rows]
    return [encode_png(image, level) for image in rows]


def are_encoded_as_png(feature: Feature, rows: Any) -> bool:
    """Whether rows are images that match their feature, and are stored as PNG files."""
    return (
        isinstance(feature, Image)
        and feature.encoding_format in ("", "png")
        and isinstance(rows, np.ndarray | list)
        and all(
            isinstance(image, np.ndarray)
            and image.dtype == feature.dtype
            and fits(image.shape, feature.shape)
            for image in rows
        )
    )


def _mismatch_error(feature: Feature, path: Path, rows: Any) -> ValueError:
    """Returns the error that values do not match their feature."""
    is_array = isinstance(rows, np.ndarray)
    got = f"{rows.dtype} of shape {rows.shape[1:]}" if is_array else f"{rows!r:.100}"
    if isinstance(feature, Tensor):
        expected = f"{feature.dtype} of shape {feature.shape}"
        if feature.num_classes is not None:
            expected += f", from -1 to {feature.num_classes - 1}"
    elif isinstance(feature, Image):
        expected = f"{feature.encoding_format or 'png'} files, as bytes"
        if feature.encoding_format in ("", "png"):
            expected += f", or {feature.dtype} of shape {feature.shape}"
    elif isinstance(feature, nodes.Sequence):
        length = "" if feature.length is None else f" of the length {feature.length}"
        expected = f"arrays{length}, or a RaggedColumn"
    else:
        expected = f"a supported feature, not {feature.class_name or 'an unknown one'}"
    return ValueError(f"{_name(path)}: got {got}, expected {expected}")


# --- Lists.


def _encode_fields(
    feature: Feature, rows: Any, offsets: np.ndarray, name: str
) -> list[tuple[str, FieldLists]] | None:
    """Returns the fields of a column; None if this encoder does not support it."""
    if isinstance(feature, Tensor):
        return _encode_tensors(feature, rows, offsets, name)
    if isinstance(feature, Image) and _are_encoded_as(feature.encoding_format, rows):
        return [(name, bytes_lists(rows, offsets))]
    return None


def _encode_tensors(
    feature: Tensor, rows: Any, offsets: np.ndarray, name: str
) -> list[tuple[str, FieldLists]] | None:
    """Returns the fields of a column of tensors; None if this encoder does not support it."""
    if isinstance(rows, np.ndarray) and rows.dtype == object and not feature.is_text:
        rows = list(rows)  # The tensors differ in shape.
    has_dynamic_shape = feature.shape.count(None) > 1
    is_column = isinstance(rows, np.ndarray) and _has_type(feature, rows.dtype, rows.shape[1:])
    if feature.encoding == "none":
        if has_dynamic_shape or not is_column or not _are_class_indices(feature, rows):
            return None
        values = _encode_lists(rows, offsets)
        return None if values is None else [(name, values)]
    if is_column:
        shapes = np.tile(np.array(rows.shape[1:], np.int64), len(rows))
    elif isinstance(rows, list) and all(
        isinstance(row, np.ndarray) and _has_type(feature, row.dtype, row.shape) for row in rows
    ):
        shapes = np.array([size for row in rows for size in row.shape], np.int64)
    else:
        return None
    if feature.encoding == "zlib":
        values = bytes_lists((zlib.compress(row.tobytes()) for row in rows), offsets)
    elif is_column:
        values = _encode_raw_lists(rows, offsets)
    else:
        values = bytes_lists((row.tobytes() for row in rows), offsets)
    if has_dynamic_shape:
        shape_lists = _encode_int64s(shapes, offsets * len(feature.shape))
        return [(f"{name}/shape", shape_lists), (f"{name}/value", values)]
    return [(name, values)]


def _has_type(feature: Tensor, dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    return dtype == feature.dtype and (shape == feature.shape or fits(shape, feature.shape))


def _are_class_indices(feature: Tensor, rows: np.ndarray) -> bool:
    """Whether class labels are in range; -1 stands for no class."""
    if feature.num_classes is None or not rows.size:
        return True
    return bool(rows.min() >= -1 and rows.max() < feature.num_classes)


def _are_encoded_as(codec: str, rows: Any) -> bool:
    """Whether the rows are already encoded images, which are stored unchanged."""
    if not isinstance(rows, np.ndarray) or rows.dtype != object or rows.ndim != 1:
        return False
    signature = _SIGNATURES.get(codec or "png")
    return signature is not None and all(
        isinstance(row, bytes) and row.startswith(signature) for row in rows
    )


def _encode_lists(rows: np.ndarray, offsets: np.ndarray) -> FieldLists | None:
    width = math.prod(rows.shape[1:])
    if rows.dtype == object:
        items = [item.encode() if isinstance(item, str) else item for item in rows.flat]
        if not all(isinstance(item, bytes) for item in items):
            return None
        return bytes_lists(items, offsets * width)
    if rows.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            # Like TFDS, the conversion through float64 turns signalling NaNs into quiet NaNs.
            floats = rows.astype(np.float64).astype("<f4")
        contents = _slice_bytes(floats.tobytes(), offsets * (4 * width))
        return FieldLists(contents, _FLOAT_LIST_TAG, is_packed=True)
    if rows.dtype.kind in "bui":
        return _encode_int64s(rows, offsets * width)
    return None


def _encode_raw_lists(rows: np.ndarray, offsets: np.ndarray) -> FieldLists:
    """Returns byte-string lists of rows, which have the same length."""
    size = rows.nbytes // max(len(rows), 1)
    head = _ITEMS_TAG + encode_varint(size)
    items = np.empty((len(rows), len(head) + size), np.uint8)
    items[:, : len(head)] = np.frombuffer(head, np.uint8)
    items[:, len(head) :] = np.frombuffer(rows.tobytes(), np.uint8).reshape(len(rows), size)
    return FieldLists(_slice_bytes(items.tobytes(), offsets * items.shape[1]), _BYTES_LIST_TAG)


def bytes_lists(values: Iterable[bytes], offsets: np.ndarray) -> FieldLists:
    """Returns a field of byte strings.

    Args:
      values: The strings of all examples.
      offsets: The offset of the first string of each example, and the end of the strings.
    """
    items = [delimited(_ITEMS_TAG, value) for value in values]
    bounds = itertools.pairwise(offsets.tolist())
    return FieldLists([b"".join(items[start:end]) for start, end in bounds], _BYTES_LIST_TAG)


def _encode_int64s(values: np.ndarray, offsets: np.ndarray) -> FieldLists:
    data, ends = encode_varints(values.ravel())
    bounds = offsets if ends is None else ends[offsets]
    return FieldLists(_slice_bytes(data, bounds), _INT64_LIST_TAG, is_packed=True)


def _slice_bytes(data: bytes, bounds: np.ndarray) -> list[bytes]:
    return [data[start:end] for start, end in itertools.pairwise(bounds.tolist())]
