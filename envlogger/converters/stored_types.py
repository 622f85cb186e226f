"""The wire format of values in a `Datum`, shared by the encoder and the decoder."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from envlogger.proto.storage_pb2 import Datum

__all__ = ["ARRAYS", "FIELDS", "SCALAR_DIM_SIZE", "ArrayEncoding", "field_tag", "tag"]

SCALAR_DIM_SIZE = -438
"""The size of the only dimension of a scalar, see storage.proto."""


def tag(field_number: int) -> bytes:
    """Returns the wire tag of a length-delimited field: bytes, a message or packed values."""
    return bytes([field_number << 3 | 2])  # Field numbers are below 16.


def field_tag(field: str) -> bytes:
    """Returns the tag of a field of `Datum.Values`, by name."""
    return tag(Datum.Values.DESCRIPTOR.fields_by_name[field].number)


class ArrayEncoding(NamedTuple):
    """The encoding of the elements of an array: proto field, and dtypes.

    Attributes:
      field: The name of the field of `Datum.Values`.
      tag: The tag of the field.
      dtype: The dtype of the elements in memory.
      stored_dtype: The dtype of the elements in the bytes of the field; None for varints.
      is_blob: Whether the field is a single bytes value, instead of packed elements.
    """

    field: str
    tag: bytes
    dtype: np.dtype[Any]
    stored_dtype: np.dtype[Any] | None
    is_blob: bool


def _create_encoding(field: str, dtype: str, stored_dtype: str | None) -> ArrayEncoding:
    return ArrayEncoding(
        field,
        field_tag(field),
        np.dtype(dtype),
        None if stored_dtype is None else np.dtype(stored_dtype),
        stored_dtype is not None and stored_dtype.startswith(">"),
    )


FIELDS = {
    field: _create_encoding(field, dtype, stored_dtype)
    for field, dtype, stored_dtype in (
        ("float_values", "float32", "<f4"),
        ("double_values", "float64", "<f8"),
        ("int32_values", "int32", None),
        ("int64_values", "int64", None),
        ("uint32_values", "uint32", None),
        ("uint64_values", "uint64", None),
        ("bool_values", "bool", "?"),  # A bool is a varint of one byte.
        ("float_values_buffer", "float32", ">f4"),  # Only old writers write this field.
        ("int8_values", "int8", ">i1"),
        ("int16_values", "int16", ">i2"),
        ("uint8_values", "uint8", ">u1"),
        ("uint16_values", "uint16", ">u2"),
    )
}
"""The encodings by field, in the order of precedence for scalars with several fields."""

ARRAYS = {
    f"{encoding.dtype.kind}{encoding.dtype.itemsize}": encoding
    for encoding in FIELDS.values()
    if encoding.field != "float_values_buffer"
}
"""The encodings that are written, by kind and item size of the dtype."""
