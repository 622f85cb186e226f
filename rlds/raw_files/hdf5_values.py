"""Attributes and small arrays of HDF5 files, in the types of JSON, and their writer."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlds.raw_files.hdf5_access import Hdf5File
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import objects

__all__ = [
    "SIDECAR_GROUP",
    "decode_value",
    "encode_value",
    "read_attributes",
    "read_constant",
    "text_or_bytes",
    "write_attributes",
]


# The group for metadata of this project in HDF5 files of other formats.
SIDECAR_GROUP = "rlds"
# The largest constant, such as policy weights, in the metadata of a dataset.
_MAX_CONSTANT_BYTES = 64 << 20


def read_attributes(hdf5: Hdf5File, item: Any, path: str) -> dict[str, Any]:
    """Returns the attributes of a group or an array, in the types of JSON.

    Args:
      hdf5: The file.
      item: The group or the array.
      path: The name of the group or array in errors.

    Raises:
      SourceError: An attribute holds neither numbers nor text.
    """
    values = {}
    for name in item.attrs:
        location = f"{path}@{name}"
        if isinstance(name, bytes):
            raise hdf5.error(f"the name {name!r} is not valid UTF-8", path)
        try:
            values[name] = encode_value(item.attrs[name])
        except (ValueError, TypeError) as error:
            raise hdf5.error(f"cannot be read: {error}", location) from error
    return values


def read_constant(hdf5: Hdf5File, array: Any, path: str) -> Any:
    """Returns the values of an array that is not a column of steps, in the types of JSON.

    Args:
      hdf5: The file.
      array: The array.
      path: The name of the array in errors.

    Raises:
      SourceError: The array is too large for metadata, or holds neither numbers nor text.
    """
    if array.shape is not None and array.nbytes > _MAX_CONSTANT_BYTES:
        raise hdf5.error(
            f"{array.nbytes:,} bytes of metadata, expected at most {_MAX_CONSTANT_BYTES:,}", path
        )
    try:
        return encode_value(array[()])
    except ValueError as error:
        raise hdf5.error(str(error), path) from error


def write_attributes(item: Any, attributes: Mapping[str, Any]) -> None:
    """Adds the attributes that `read_attributes` returned."""
    for name, value in attributes.items():
        item.attrs[name] = decode_value(value)


def text_or_bytes(value: Any) -> Any:
    r"""Returns the value of an attribute, as bytes if it is a text that h5py could not decode.

    >>> text_or_bytes("K\udcf6ln"), text_or_bytes("Köln")
    (b'K\xf6ln', 'Köln')
    """
    if not isinstance(value, str) or value.isascii():
        return value
    encoded = value.encode(errors="surrogateescape")
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return encoded


def encode_value(value: Any) -> Any:
    """Returns a value in the types of JSON; the inverse of `decode_value`.

    Args:
      value: An array of numbers or of strings, a string, bytes, a number, or a dict of these.

    Raises:
      ValueError: The value has another type.

    >>> decode_value(encode_value({"gain": np.float32(0.5), "names": np.array([b"a", b"b"])}))
    {'gain': np.float32(0.5), 'names': array([b'a', b'b'], dtype='|S1')}
    """
    if isinstance(value, Mapping):
        return {"dict": {name: encode_value(child) for name, child in value.items()}}
    value = text_or_bytes(value)
    if isinstance(value, str):
        return {"json": str(value)}
    if isinstance(value, np.ndarray | np.generic):
        shape = list(value.shape)
        if value.dtype.kind in "biufcSU":
            data = base64.b64encode(value.tobytes()).decode()
            return {"dtype": value.dtype.str, "shape": shape, "data": data}
        if value.dtype == object:
            items = np.asarray(value).flat
            return {"objects": [encode_value(item) for item in items], "shape": shape}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if value is None or isinstance(value, int | float | list):
        return {"json": value}
    if type(value).__name__ == "Empty":  # A class of h5py, which may be missing.
        return {"empty": value.dtype.str}
    kind = value.dtype if hasattr(value, "dtype") else type(value).__name__
    raise ValueError(f"values of {kind} are not supported, only numbers and strings")


def decode_value(encoded: Mapping[str, Any]) -> Any:
    """Returns the value of the JSON that `encode_value` returned."""
    if "dict" in encoded:
        return {name: decode_value(child) for name, child in encoded["dict"].items()}
    if "dtype" in encoded:
        values = np.frombuffer(base64.b64decode(encoded["data"]), encoded["dtype"])
        return values.reshape(encoded["shape"])[()]
    if "objects" in encoded:
        items = [decode_value(item) for item in encoded["objects"]]
        return objects(items).reshape(encoded["shape"])
    if "bytes" in encoded:
        return base64.b64decode(encoded["bytes"])
    if "empty" in encoded:
        return import_extra("h5py").Empty(encoded["empty"])
    return encoded["json"]
