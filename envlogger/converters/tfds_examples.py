"""The bytes of an example, from columns: those that TFDS stores, made many times faster.

TFDS encodes an episode step by step, even if it is given columns. Here a column is encoded at once.
The bytes are the same as those of TFDS, so nothing changes for a reader; but the fields, which TFDS
has in an order that differs from process to process, are sorted by name. What is not known here
(features of other types, values that are not exactly what the feature says) is left to TFDS.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

__all__ = ["ExampleEncoder", "RaggedColumn"]

# How the files of a codec begin.
_SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff"}

# The fields of a `tf.train.Feature`, as they are tagged in its bytes; those of the lists in it,
# which are all one; and those of the messages around it.
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"
_ITEMS = b"\x0a"
_FEATURES = _ENTRY = _KEY = b"\x0a"
_VALUE = b"\x12"

# The fields of an example, each with the bytes of its `tf.train.Feature`.
_Features = Iterator[tuple[str, bytes]]


class RaggedColumn(NamedTuple):
    """A column whose rows are sequences of different lengths.

    Attributes:
      values: The elements of all rows, as a column.
      lengths: For each row, how many elements it has.
    """

    values: Any
    lengths: np.ndarray


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
        fields = sorted(_encode_value(self._features, example, ""))
        entries = [
            _delimited(_ENTRY, _delimited(_KEY, key.encode()) + _delimited(_VALUE, feature))
            for key, feature in fields
        ]
        return _delimited(_FEATURES, b"".join(entries))


def _encode_value(feature: Any, value: Any, key: str) -> _Features:
    """Yields the fields of an example for a value, in the order in which TFDS has them."""
    if type(feature) is tfds.features.FeaturesDict:
        for name, child, child_value in _children(feature, value, key):
            yield from _encode_value(child, child_value, name)
    elif type(feature) is tfds.features.Dataset and isinstance(value, Mapping):
        if len(set(_lengths(value))) > 1:
            raise ValueError(f"{key}: the columns differ in length: {sorted(set(_lengths(value)))}")
        yield from _encode_rows(feature.feature, value, key)
    else:
        fields = _fields_of_value(feature, value)
        if fields is None:
            yield from _encode_by_tfds(feature, value, key)
        else:
            yield from ((key + suffix, field) for suffix, field in fields.items())


def _fields_of_value(feature: Any, value: Any) -> dict[str, bytes] | None:
    """The fields for a single tensor, which is a column of one row; None if TFDS has to do it."""
    if type(feature) not in (tfds.features.Tensor, tfds.features.Scalar, tfds.features.Text):
        return None
    if None in feature.shape:
        return None
    if isinstance(value, str | bytes):
        row = np.empty((), object)
        row[()] = value
    elif isinstance(value, np.ndarray | np.generic):
        row = np.asarray(value)
    else:
        return None
    return _tensor_fields(feature, row[np.newaxis])


def _encode_rows(feature: Any, rows: Any, key: str) -> _Features:
    """Yields the fields of an example for a column, or a dict of columns."""
    kind = type(feature)
    values: Any = None
    if kind is tfds.features.FeaturesDict and isinstance(rows, Mapping):
        for name, child, child_rows in _children(feature, rows, key):
            yield from _encode_rows(child, child_rows, name)
        return
    if kind is tfds.features.Sequence and _is_ragged(feature, rows):
        yield from _encode_sequences(feature.feature, rows, key)
        return
    if kind in (tfds.features.Tensor, tfds.features.Scalar, tfds.features.Text):
        values = _tensor_fields(feature, rows)
    elif kind is tfds.features.Image and _is_column_of(feature.get_tensor_info(), rows):
        values = {"": _bytes_list(_encode_images(feature, rows))}
    elif kind is tfds.features.Image and _are_encoded_as(feature.encoding_format, rows):
        values = {"": _bytes_list(list(rows))}
    if values is None:
        yield from _encode_by_tfds(tfds.features.Dataset(feature), rows, key)
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


def _encode_sequences(inner: Any, rows: Any, key: str) -> _Features:
    if type(inner) is tfds.features.FeaturesDict:
        for name, child, child_rows in _children(inner, rows, key):
            yield from _encode_sequences(child, child_rows, name)
        return
    if isinstance(rows, np.ndarray):
        shape = rows.shape
        lengths = np.full(shape[0], shape[1])
        rows = RaggedColumn(rows.reshape(shape[0] * shape[1], *shape[2:]), lengths)
    for name, values in _encode_rows(inner, rows.values, key):
        yield f"{name}/ragged_row_lengths_0", _int64_list(rows.lengths)
        yield f"{name}/ragged_flat_values", values


def _tensor_fields(feature: Any, rows: Any) -> dict[str, bytes] | None:
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
        values = _list_of(rows)
        return None if values is None else {"": values}
    is_compressed = feature.to_json_content().encoding == tfds.features.Encoding.ZLIB.value
    if _is_column_of(info, rows):
        shapes = np.tile(np.array(rows.shape[1:], np.int64), len(rows))
        values = _compressed_list(rows) if is_compressed else _raw_list(rows)
    elif isinstance(rows, list) and all(_is_column_of(info, row, axis=None) for row in rows):
        shapes = np.array([size for row in rows for size in row.shape], np.int64)
        values = (
            _compressed_list(rows) if is_compressed else _bytes_list(map(np.ndarray.tobytes, rows))
        )
    else:
        return None
    if has_dynamic_shape:
        return {"/shape": _int64_list(shapes), "/value": values}
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


def _encode_by_tfds(feature: Any, value: Any, key: str) -> _Features:
    """Yields what TFDS makes of a value."""
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


def _refused_step(feature: Any, rows: Any) -> str:
    """In words, which row it is that cannot be encoded, if it is one."""
    if isinstance(feature, tfds.features.Dataset) and not isinstance(rows, Mapping):
        for index, row in enumerate(rows):
            try:
                feature.feature.encode_example(row)
            except Exception:
                return f", step {index}"
    return ""


def _list_of(rows: np.ndarray) -> bytes | None:
    if rows.dtype == object:
        return _bytes_list([item.encode() if isinstance(item, str) else item for item in rows.flat])
    if rows.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            # By way of float64, as TFDS goes: it makes signalling NaNs quiet.
            floats = rows.astype(np.float64).astype("<f4")
        return _packed(_FLOAT_LIST, floats.tobytes())
    if rows.dtype.kind in "bui":
        return _int64_list(rows)
    return None


def _raw_list(rows: np.ndarray) -> bytes:
    """A list of byte strings, the values of each row: all at once, as they have the same length."""
    size = rows.nbytes // max(len(rows), 1)
    head = _ITEMS + _length(size)
    items = np.empty((len(rows), len(head) + size), np.uint8)
    items[:, : len(head)] = np.frombuffer(head, np.uint8)
    items[:, len(head) :] = np.frombuffer(rows.tobytes(), np.uint8).reshape(len(rows), size)
    return _delimited(_BYTES_LIST, items.tobytes())


def _compressed_list(rows: Iterable[np.ndarray]) -> bytes:
    return _bytes_list(zlib.compress(row.tobytes()) for row in rows)


def _bytes_list(values: Iterable[bytes]) -> bytes:
    return _delimited(_BYTES_LIST, b"".join(_delimited(_ITEMS, value) for value in values))


def _int64_list(values: np.ndarray) -> bytes:
    return _packed(_INT64_LIST, _varints(values.ravel().astype(np.int64).view(np.uint64)))


def _packed(tag: bytes, values: bytes) -> bytes:
    """A list of numbers."""
    return _delimited(tag, _delimited(_ITEMS, values) if values else b"")


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


def _varints(values: np.ndarray) -> bytes:
    """Encodes uint64s in groups of 7 bits, of which all but the last have a mark."""
    largest = int(values.max(initial=0))
    if largest < 128:
        return values.astype(np.uint8).tobytes()
    num_groups = -(-largest.bit_length() // 7)
    rest = values[:, np.newaxis] >> np.arange(0, 7 * num_groups, 7, dtype=np.uint64)
    is_there = rest != 0
    is_there[:, 0] = True
    groups = (rest & np.uint64(127)).astype(np.uint8)
    groups[:, :-1] |= is_there[:, 1:].astype(np.uint8) << 7
    return bytes(groups[is_there].tobytes())


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
