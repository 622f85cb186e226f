"""Fast reads of many small arrays of untrusted HDF5 files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.input_files import changed
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import objects

__all__ = ["ArrayReader", "Kind", "StoredArray"]

# The kind of an array: "text" is strings of UTF-8, "bytes" other strings, "ragged" rows
# of different lengths.
Kind: TypeAlias = Literal["numbers", "text", "bytes", "ragged"]


class StoredArray(NamedTuple):
    """The type, shape and offset of an array or an attribute.

    Attributes:
      dtype: The dtype in the byte order of this machine; object for values other than numbers.
      kind: The kind of values: numbers, text, bytes, or rows of different lengths.
      shape: The shape of the array.
      offset: The offset of the values, see `Hdf5File.check_values`; None if not available.
    """

    dtype: np.dtype
    kind: Kind
    shape: tuple[int, ...]
    offset: int | None = None


class ArrayReader:
    """Describes and reads the arrays of a file; can be pickled.

    Args:
      hdf5: The file.
    """

    def __init__(self, hdf5: Hdf5File) -> None:
        self._hdf5 = hdf5
        # Reading a dtype from HDF5 is slow, and most arrays have few types.
        self._types: dict[bytes, tuple[np.dtype, Kind, bool]] = {}

    def describe(self, group: Any) -> Iterator[tuple[str, Any, StoredArray | None]]:
        """Yields all arrays and groups below a group.

        Args:
          group: The `h5py.h5g.GroupID`.

        Yields:
          The path, the object in the low-level types of h5py, and the type of an array or None.

        Raises:
          SourceError: See `Hdf5File.array`; or an array holds neither numbers nor text.
        """
        for path, item in self._hdf5.open_items(group):
            if not is_array(item):
                yield path, item, None
                continue
            if (array_type := self.describe_array(item, path)) is None:
                raise self._hdf5.error("an array without values", path)
            yield path, item, array_type

    def describe_array(self, array: Any, path: str) -> StoredArray | None:
        """Returns the type of a `DatasetID`; None if it has no values. See `describe`."""
        shape, offset = self._hdf5.check_values(array, path)
        if shape is None:
            return None
        dtype, kind, is_native = self._describe_type(array, path)
        return StoredArray(dtype, kind, shape, offset if is_native else None)

    def attributes(self, item: Any, path: str = "") -> dict[str, StoredArray]:
        """Returns the types of the attributes of a group or an array, except those without values.

        Args:
          item: The `GroupID` or `DatasetID`.
          path: The name of the object in errors.

        Raises:
          SourceError: An attribute holds neither numbers nor text.
        """
        h5py = import_extra("h5py")
        types = {}
        for name in (h5py.Dataset if is_array(item) else h5py.Group)(item).attrs:
            attribute = h5py.h5a.open(item, name.encode())
            if attribute.get_space().get_simple_extent_type() != h5py.h5s.NULL:
                dtype, kind, _ = self._describe_type(attribute, f"{path}@{name}")
                types[name] = StoredArray(dtype, kind, attribute.shape)
        return types

    def _describe_type(self, item: Any, path: str) -> tuple[np.dtype, Kind, bool]:
        """Returns dtype and kind, and True for numbers in the byte order of this machine."""
        h5py = import_extra("h5py")
        file_type = item.get_type()
        key = file_type.encode()
        if key not in self._types:
            dtype, string = file_type.dtype, h5py.check_string_dtype(file_type.dtype)
            if string is not None:
                kind: Kind = "text" if string.encoding == "utf-8" else "bytes"
                self._types[key] = np.dtype(object), kind, False
            elif dtype.kind in "biufc":
                native = dtype.newbyteorder("=")
                is_native = dtype.kind in "iuf" and h5py.h5t.py_create(native).equal(file_type)
                self._types[key] = np.dtype(native.str), "numbers", is_native
            elif h5py.check_vlen_dtype(dtype) == np.uint8:
                self._types[key] = np.dtype(object), "ragged", False
            else:
                raise self._hdf5.error(f"values of {dtype} are not supported", path)
        return self._types[key]

    def read(
        self, group: Any, path: str, array_type: StoredArray, rows: slice = slice(None)
    ) -> np.ndarray:
        """Reads rows of an array: text as `str`, bytes and rows of other lengths as `bytes`.

        Args:
          group: The open `GroupID`.
          path: The path of the array in the group.
          array_type: The type of the array.
          rows: The range of rows to read.

        Raises:
          SourceChangedError: The shape has changed.
          SourceError: The array is damaged.
        """
        if array_type.offset is not None:
            return self._read_at(path, array_type, rows)
        h5py = import_extra("h5py")
        array = h5py.h5d.open(group, path.encode())
        if array.shape != array_type.shape:
            raise changed(self._hdf5.path)
        is_full = rows == slice(None)
        if array_type.kind == "numbers" and is_full and 0 not in array_type.shape:
            values = np.empty(array_type.shape, array_type.dtype)
            array.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
            return values
        read = np.asarray(h5py.Dataset(array, readonly=True)[() if is_full else rows])
        if array_type.kind == "numbers":
            return read.astype(array_type.dtype, copy=False)
        items = [item if isinstance(item, bytes) else item.tobytes() for item in read.reshape(-1)]
        texts = [item.decode() for item in items] if array_type.kind == "text" else items
        return objects(texts).reshape(read.shape)

    def _read_at(self, path: str, array_type: StoredArray, rows: slice) -> np.ndarray:
        assert array_type.offset is not None
        offset, shape = array_type.offset, array_type.shape
        if shape:
            begin, end, _ = rows.indices(shape[0])
            offset += begin * math.prod(shape[1:]) * array_type.dtype.itemsize
            shape = (max(0, end - begin), *shape[1:])
        values = np.empty(shape, array_type.dtype)
        self._hdf5.read_at(offset, values, path)
        return values
