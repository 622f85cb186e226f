"""The bytes of an example, from columns: those that TFDS stores, made many times faster.

TFDS encodes an episode step by step, even if it is given columns. Here a column is encoded at once.
The bytes are the same as those of TFDS, so nothing changes for a reader; but the fields, which TFDS
has in an order that differs from process to process, are sorted by name. What is not known here
(features of other types, values that are not exactly what the feature says) is left to TFDS.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from tfds_files import RaggedColumn

__all__ = ["ExampleEncoder", "RaggedColumn"]

# How the files of a codec begin.
_SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff"}

# The fields of a `tf.train.Feature`, as they are tagged in its bytes; those of the lists in it,
# which are all one; and those of the messages around it.
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"
_ITEMS = b"\x0a"
_FEATURES = _ENTRY = _KEY = b"\x0a"
_VALUE = b"\x12"

# The heads of the fields of an example differ by their sizes only, and most are as long as others.
_NUM_HEADS = 1 << 14


class _Lists(NamedTuple):
    """A field of several examples.

    Attributes:
      contents: For each example the bytes of its list, or of its `tf.train.Feature`; None if the
        example does not have the field.
      tag: The kind of the lists; none if these are features.
      is_packed: Whether they are lists of numbers.
    """

    contents: Sequence[bytes | None]
    tag: bytes = b""
    is_packed: bool = False


# The fields of examples, by their names.
_Fields = Iterator[tuple[str, _Lists]]


class ExampleEncoder:
    """Makes the bytes of examples.

    Args:
      features: What an example looks like, usually an episode.

    >>> features = tfds.features.FeaturesDict({
    ...     "steps": tfds.features.Dataset({"action": np.float32}), "id": np.int64
    ... })
    >>> episode = {"steps": {"action": np.array([0.5, 1.5], np.float32)}, "id": 7}
    >>> example = tf.train.Example.FromString(ExampleEncoder(features).encode(episode))
    >>> example == tf.train.Example.FromString(features.serialize_example(episode))
    True
    """

    def __init__(self, features: tfds.features.FeaturesDict) -> None:
        self._features = features

    def encode(self, example: Mapping[str, Any]) -> bytes:
        """Returns the bytes of an example, the same in every process.

        Args:
          example: The fields. For a `tfds.features.Dataset`, such as `steps`, columns: arrays with
            a leading axis of one length, lists of rows, or, for a sequence, a `RaggedColumn`.

        Raises:
          ValueError: Fields are missing, or there are others; columns differ in length; a value is
            not what its feature says. Names the field and, if it knows it, the step.
        """
        return _join(_encode_values(self._features, example, "", None))[0]

    def encode_all(self, examples: Mapping[str, Any], lengths: np.ndarray) -> list[bytes]:
        """Returns the bytes of several examples: the same as those of each, in much less time.

        Args:
          examples: The fields, as columns with a row for each example. For a
            `tfds.features.Dataset`, columns with the rows of all examples, one after the other.
          lengths: How many rows each example has in those, of shape `[num_examples]`.

        Raises:
          ValueError: See `encode`.

        >>> features = tfds.features.FeaturesDict({
        ...     "steps": tfds.features.Dataset({"action": np.int64}), "id": np.int64
        ... })
        >>> encoder = ExampleEncoder(features)
        >>> columns = {"steps": {"action": np.array([1, 2, 3])}, "id": np.array([7, 8])}
        >>> encoder.encode_all(columns, np.array([1, 2]))[1] == encoder.encode(
        ...     {"steps": {"action": np.array([2, 3])}, "id": np.int64(8)}
        ... )
        True
        """
        splits = np.concatenate([[0], np.cumsum(lengths)])
        return _join(_encode_values(self._features, examples, "", splits))


def _join(fields: _Fields) -> list[bytes]:
    pieces: list[list[bytes]] = []
    for key, (contents, tag, is_packed) in sorted(fields, key=operator.itemgetter(0)):
        sizes = [None if content is None else len(content) for content in contents]
        pieces.append([b"" if size is None else _head(key, tag, is_packed, size) for size in sizes])
        pieces.append([content or b"" for content in contents])
    return [
        b"".join((_FEATURES, _length(sum(map(len, example))), *example))
        for example in zip(*pieces, strict=True)
    ]


@functools.lru_cache(_NUM_HEADS)
def _head(key: str, tag: bytes, is_packed: bool, size: int) -> bytes:
    """What is before the content of a field: tags, lengths and the name."""
    items = _ITEMS + _length(size) if is_packed and size else b""
    size += len(items)
    feature = tag + _length(size) if tag else b""
    size += len(feature)
    entry = _delimited(_KEY, key.encode()) + _VALUE + _length(size)
    return b"".join((_ENTRY, _length(len(entry) + size), entry, feature, items))


def _encode_values(feature: Any, values: Any, key: str, splits: np.ndarray | None) -> _Fields:
    """Yields the fields of examples, in the order in which TFDS has them.

    Args:
      feature: What is encoded.
      values: The values of all examples, as columns; or, without `splits`, that of one.
      key: The name.
      splits: Where the rows of each example begin and end in a `Dataset`.
    """
    if type(feature) is tfds.features.FeaturesDict:
        for name, child, child_values in _children(feature, values, key):
            yield from _encode_values(child, child_values, name, splits)
    elif type(feature) is tfds.features.Dataset and isinstance(values, Mapping):
        lengths = set(_lengths(values)) | (set() if splits is None else {int(splits[-1])})
        if len(lengths) > 1:
            raise ValueError(f"{key}: the columns differ in length: {sorted(lengths)}")
        rows = np.array([0, *lengths]) if splits is None else splits
        yield from _encode_rows(feature.feature, values, key, rows)
    else:
        column = _as_column(values) if splits is None else values
        fields = None if column is None else _fields_of_column(feature, column)
        if fields is None:
            every_value = [values] if splits is None else _each(values)
            yield from _encode_by_tfds(feature, every_value, key)
        else:
            yield from ((key + suffix, lists) for suffix, lists in fields.items())


def _as_column(value: Any) -> np.ndarray | None:
    """A single value as a column of one row; None if TFDS has to look at it."""
    if isinstance(value, str | bytes):
        column = np.empty(1, object)
        column[0] = value
        return column
    return np.asarray(value)[np.newaxis] if isinstance(value, np.ndarray | np.generic) else None


def _fields_of_column(feature: Any, column: Any) -> dict[str, _Lists] | None:
    """The fields for a tensor of each example; None if TFDS has to encode them."""
    if type(feature) not in (tfds.features.Tensor, tfds.features.Scalar, tfds.features.Text):
        return None
    if None in feature.shape:
        return None
    return _tensor_fields(feature, column, np.arange(len(column) + 1))


def _encode_rows(feature: Any, rows: Any, key: str, splits: np.ndarray) -> _Fields:
    """Yields the fields of examples for a column, or a dict of columns."""
    kind = type(feature)
    values: Any = None
    if kind is tfds.features.FeaturesDict and isinstance(rows, Mapping):
        for name, child, child_rows in _children(feature, rows, key):
            yield from _encode_rows(child, child_rows, name, splits)
        return
    if kind is tfds.features.Sequence and _is_ragged(feature, rows):
        yield from _encode_sequences(feature.feature, rows, key, splits)
        return
    if kind in (tfds.features.Tensor, tfds.features.Scalar, tfds.features.Text):
        values = _tensor_fields(feature, rows, splits)
    elif kind is tfds.features.Image and _is_column_of(feature.get_tensor_info(), rows):
        values = {"": _bytes_lists(_encode_images(feature, rows), splits)}
    elif kind is tfds.features.Image and _are_encoded_as(feature.encoding_format, rows):
        values = {"": _bytes_lists(rows, splits)}
    if values is None:
        yield from _encode_by_tfds(tfds.features.Dataset(feature), _cut(rows, splits), key)
        return
    for suffix, value in values.items():
        yield key + suffix, value


def _is_ragged(feature: Any, rows: Any) -> bool:
    """Whether the rows are sequences that can be encoded as the column of all their elements."""
    inner = feature.feature
    if type(inner) is tfds.features.FeaturesDict:
        is_known = isinstance(rows, Mapping) and rows.keys() == inner.keys()
        return is_known and all(
            _is_ragged(tfds.features.Sequence(child, length=_length_of(feature)), rows[name])
            for name, child in inner.items()
        )
    if isinstance(inner, tfds.features.Sequence):
        return False
    if isinstance(rows, np.ndarray) and rows.ndim >= 2:
        lengths = {rows.shape[1]} if len(rows) else set()
    elif isinstance(rows, RaggedColumn):
        lengths = set(rows.lengths.tolist())
    else:
        return False
    return _length_of(feature) is None or lengths <= {_length_of(feature)}


def _length_of(feature: Any) -> int | None:
    """The length that all sequences of a feature have, if there is one."""
    length: int | None = tf.nest.flatten(feature.get_tensor_info())[0].shape[0]
    return length


def _encode_sequences(inner: Any, rows: Any, key: str, splits: np.ndarray) -> _Fields:
    if type(inner) is tfds.features.FeaturesDict:
        for name, child, child_rows in _children(inner, rows, key):
            yield from _encode_sequences(child, child_rows, name, splits)
        return
    if isinstance(rows, np.ndarray):
        shape = rows.shape
        lengths = np.full(shape[0], shape[1])
        rows = RaggedColumn(rows.reshape(shape[0] * shape[1], *shape[2:]), lengths)
    ends = np.concatenate([[0], np.cumsum(rows.lengths, dtype=np.int64)])
    for name, values in _encode_rows(inner, rows.values, key, ends[splits]):
        yield f"{name}/ragged_row_lengths_0", _int64_lists(rows.lengths, splits)
        yield f"{name}/ragged_flat_values", values


def _tensor_fields(feature: Any, rows: Any, splits: np.ndarray) -> dict[str, _Lists] | None:
    """The fields for a column of tensors by the end of their names; None if TFDS has to do it."""
    info, stored = feature.get_tensor_info(), feature.get_serialized_info()
    has_dynamic_shape = isinstance(stored, dict)
    stored_value = stored["value"] if has_dynamic_shape else stored
    if info.optional or getattr(feature, "encoder", None) is not None:
        return None
    is_raw = np.dtype(stored_value.np_dtype) == object and np.dtype(info.np_dtype) != object
    if not is_raw:
        if has_dynamic_shape or not _is_column_of(stored, rows):
            return None
        values = _lists_of(rows, splits)
        return None if values is None else {"": values}
    is_compressed = feature.to_json_content().encoding == tfds.features.Encoding.ZLIB.value
    if _is_column_of(info, rows):
        shapes = np.tile(np.array(rows.shape[1:], np.int64), len(rows))
        values = _compressed_lists(rows, splits) if is_compressed else _raw_lists(rows, splits)
    elif isinstance(rows, list) and all(_is_column_of(info, row, axis=None) for row in rows):
        shapes = np.array([size for row in rows for size in row.shape], np.int64)
        values = (
            _compressed_lists(rows, splits)
            if is_compressed
            else _bytes_lists(map(np.ndarray.tobytes, rows), splits)
        )
    else:
        return None
    if has_dynamic_shape:
        return {"/shape": _int64_lists(shapes, splits * len(info.shape)), "/value": values}
    return {"": values}


def _is_column_of(info: Any, rows: Any, axis: int | None = 0) -> bool:
    """Whether this is an array of what the `TensorInfo` says, below the axis of the rows."""
    if not isinstance(rows, np.ndarray) or rows.dtype != np.dtype(info.np_dtype):
        return False
    shape = rows.shape if axis is None else rows.shape[1:]
    return len(shape) == len(info.shape) and all(
        size == expected or expected is None for size, expected in zip(shape, info.shape)
    )


def _encode_images(feature: Any, rows: np.ndarray) -> list[bytes]:
    if not len(rows):
        return []
    if rows.dtype == np.float32:  # Stored as four channels of bytes.
        rows = np.ascontiguousarray(rows).view(np.uint8)
    if feature.encoding_format == "jpeg":
        return [tf.io.encode_jpeg(row).numpy() for row in rows]
    return list(tf.io.encode_png(rows).numpy())


def _are_encoded_as(codec: str | None, rows: Any) -> bool:
    """Whether the rows are images that were encoded with a codec before: they stay as they are."""
    if not isinstance(rows, np.ndarray) or rows.dtype != object or rows.ndim != 1:
        return False
    signature = _SIGNATURES.get(codec or "png")
    return signature is not None and all(
        isinstance(row, bytes) and row.startswith(signature) for row in rows
    )


def _encode_by_tfds(feature: Any, values: Sequence[Any], key: str) -> _Fields:
    """Yields what TFDS makes of the value of each example."""
    made = [dict(_features_by_tfds(feature, value, key)) for value in values]
    for name in dict.fromkeys(name for features in made for name in features):
        yield name, _Lists([features.get(name) for features in made])


def _features_by_tfds(feature: Any, value: Any, key: str) -> Iterator[tuple[str, bytes]]:
    if isinstance(value, RaggedColumn):
        value = np.split(value.values, np.cumsum(value.lengths))[:-1]
    info = feature.get_serialized_info()
    serializer = tfds.core.example_serializer.ExampleSerializer({key: info})
    try:
        encoded = feature.encode_example(value)
        # Its own type, not `tf.train.Example`.
        fields = serializer.get_tf_example({key: encoded}).features.feature
    except Exception as e:  # Whatever a feature raises.
        raise ValueError(f"{key}{_refused_step(feature, value)}: {e}") from e
    for name in tfds.core.utils.flatten_nest_dict({key: info}):
        ragged = sorted(other for other in fields if other.startswith(f"{name}/ragged_row_lengths"))
        for part in [name, *ragged, f"{name}/ragged_flat_values"]:
            if part in fields:
                yield part, fields[part].SerializeToString()


def _each(columns: Any) -> list[Any]:
    """The value of each example."""
    if isinstance(columns, Mapping):
        rows = zip(*map(_each, columns.values()), strict=True)
        return [dict(zip(columns, row)) for row in rows]
    return list(columns)


def _cut(rows: Any, splits: np.ndarray) -> list[Any]:
    """The rows of each example."""
    if len(splits) == 2:  # All of them, of whatever type they are.
        return [rows]
    if isinstance(rows, Mapping):
        cuts = zip(*(_cut(child, splits) for child in rows.values()))
        return [dict(zip(rows, cut)) for cut in cuts]
    if isinstance(rows, RaggedColumn):
        ends = np.concatenate([[0], np.cumsum(rows.lengths, dtype=np.int64)])
        values, lengths = _cut(rows.values, ends[splits]), _cut(rows.lengths, splits)
        return [RaggedColumn(*cut) for cut in zip(values, lengths)]
    return [rows[begin:end] for begin, end in itertools.pairwise(splits.tolist())]


def _refused_step(feature: Any, rows: Any) -> str:
    """In words, which row it is that cannot be encoded, if it is one."""
    if isinstance(feature, tfds.features.Dataset) and not isinstance(rows, Mapping):
        for index, row in enumerate(rows):
            try:
                feature.feature.encode_example(row)
            except Exception:
                return f", step {index}"
    return ""


def _lists_of(rows: np.ndarray, splits: np.ndarray) -> _Lists | None:
    width = math.prod(rows.shape[1:])
    if rows.dtype == object:
        items = [item.encode() if isinstance(item, str) else item for item in rows.flat]
        return _bytes_lists(items, splits * width)
    if rows.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            # By way of float64, as TFDS goes: it makes signalling NaNs quiet.
            floats = rows.astype(np.float64).astype("<f4")
        contents = _slices(floats.tobytes(), splits * (4 * width))
        return _Lists(contents, _FLOAT_LIST, is_packed=True)
    if rows.dtype.kind in "bui":
        return _int64_lists(rows, splits * width)
    return None


def _raw_lists(rows: np.ndarray, splits: np.ndarray) -> _Lists:
    """Lists of byte strings, the values of each row: all at once, as they have the same length."""
    size = rows.nbytes // max(len(rows), 1)
    head = _ITEMS + _length(size)
    items = np.empty((len(rows), len(head) + size), np.uint8)
    items[:, : len(head)] = np.frombuffer(head, np.uint8)
    items[:, len(head) :] = np.frombuffer(rows.tobytes(), np.uint8).reshape(len(rows), size)
    return _Lists(_slices(items.tobytes(), splits * items.shape[1]), _BYTES_LIST)


def _compressed_lists(rows: Iterable[np.ndarray], splits: np.ndarray) -> _Lists:
    return _bytes_lists((zlib.compress(row.tobytes()) for row in rows), splits)


def _bytes_lists(values: Iterable[bytes], splits: np.ndarray) -> _Lists:
    items = [_delimited(_ITEMS, value) for value in values]
    bounds = itertools.pairwise(splits.tolist())
    return _Lists([b"".join(items[begin:end]) for begin, end in bounds], _BYTES_LIST)


def _int64_lists(values: np.ndarray, splits: np.ndarray) -> _Lists:
    data, ends = _varints(values.ravel().astype(np.int64).view(np.uint64))
    bounds = splits if ends is None else ends[splits]
    return _Lists(_slices(data, bounds), _INT64_LIST, is_packed=True)


def _slices(data: bytes, bounds: np.ndarray) -> list[bytes]:
    return [data[begin:end] for begin, end in itertools.pairwise(bounds.tolist())]


def _delimited(tag: bytes, content: bytes) -> bytes:
    """A field of a message whose length goes before it."""
    return b"".join((tag, _length(len(content)), content))


def _length(length: int) -> bytes:
    if length < 128:
        return bytes((length,))
    groups = bytearray()
    while length >= 128:
        groups.append(length & 127 | 128)
        length >>= 7
    groups.append(length)
    return bytes(groups)


def _varints(values: np.ndarray) -> tuple[bytes, np.ndarray | None]:
    """Encodes uint64s in groups of 7 bits, of which all but the last have a mark.

    Returns:
      The bytes; and how many of them there are before each value, and in all. None if every value
      is one byte.
    """
    largest = int(values.max(initial=0))
    if largest < 128:
        return values.astype(np.uint8).tobytes(), None
    num_groups = -(-largest.bit_length() // 7)
    rest = values[:, np.newaxis] >> np.arange(0, 7 * num_groups, 7, dtype=np.uint64)
    is_there = rest != 0
    is_there[:, 0] = True
    groups = (rest & np.uint64(127)).astype(np.uint8)
    groups[:, :-1] |= is_there[:, 1:].astype(np.uint8) << 7
    ends = np.concatenate([[0], np.cumsum(is_there.sum(axis=1))])
    return groups[is_there].tobytes(), ends


def _children(feature: Any, value: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields the fields of a `FeaturesDict`: the key, the feature, the value."""
    if not isinstance(value, Mapping) or value.keys() != feature.keys():
        got = list(value) if isinstance(value, Mapping) else type(value).__name__
        raise ValueError(f"{key or 'example'}: got {got}, expected the fields {list(feature)}")
    for name, child in feature.items():
        yield f"{key}/{name}" if key else name, child, value[name]


def _lengths(rows: Any) -> Iterator[int]:
    if isinstance(rows, Mapping):
        for child in rows.values():
            yield from _lengths(child)
    else:
        yield len(rows.lengths if isinstance(rows, RaggedColumn) else rows)
