"""Episodes as groups of HDF5 files: arrays, most of which have a row for each step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.hdf5_arrays import ArrayReader, StoredArray
from rlds.raw_files.hdf5_values import read_attributes, text_or_bytes
from rlds.raw_files.image_files import image_field, is_image_file
from rlds.raw_files.untrusted import SourceError
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field

__all__ = ["ComputedArray", "EpisodeGroup", "field_of_values"]


class ComputedArray(NamedTuple):
    """An array of an episode that is computed from arrays of the file.

    Attributes:
      shape: The shape of the array.
      field: Returns the type of the rows.
      rows: Returns a range of the rows.
    """

    shape: tuple[int, ...]
    field: Callable[[], Field]
    rows: Callable[[slice], np.ndarray]


class EpisodeGroup:
    """The checked arrays of an episode in an open HDF5 file.

    Encoded images may be rows of bytes of different lengths, strings, or rows of bytes with zeros
    at the end.

    Args:
      hdf5: The file.
      group: The group of the episode.

    Attributes:
      file: The file.
      arrays: The types of arrays with values, by path. Derived classes may add arrays.
    """

    def __init__(self, hdf5: Hdf5File, group: Any) -> None:
        self._hdf5, self._group = hdf5, group
        self.file = hdf5.path
        self._reader = ArrayReader(hdf5)
        self._items = [("", group.id), *hdf5.open_items(group.id)]
        arrays = {
            path: self._reader.describe_array(item, path)
            for path, item in self._items
            if is_array(item)
        }
        self.arrays: dict[str, StoredArray | ComputedArray] = {
            path: array for path, array in arrays.items() if array is not None
        }

    def error(self, message: str, path: str, row: int | None = None) -> SourceError:
        """Returns an error about an array."""
        return SourceError(message, file=self.file, field=path, row=row)

    def num_rows(self, path: str) -> int | None:
        """Returns the number of rows of an array; None for a scalar.

        Raises:
          SourceError: The array is missing.
        """
        if path not in self.arrays:
            raise self.error("missing", path)
        shape = self.arrays[path].shape
        return int(shape[0]) if shape else None

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes of the group itself that have values; UTF-8 as `str`."""
        attributes, empty = self._group.attrs, import_extra("h5py").Empty
        names = [name for name in attributes if isinstance(name, str)]
        values = {name: text_or_bytes(attributes[name]) for name in names}
        for name, value in values.items():
            if isinstance(value, np.ndarray) and value.dtype.kind in "US":
                values[name] = value.astype(object)
        return {name: value for name, value in values.items() if not isinstance(value, empty)}

    def other_attributes(self, excluded: Collection[str]) -> dict[str, dict[str, Any]]:
        """Returns attributes by the paths of their arrays and groups, in the types of JSON.

        Excluded are attributes of the group itself; for JSON see `rlds.raw_files.hdf5_values`.
        """
        h5py = import_extra("h5py")
        by_path = {}
        for path, item in self._items:
            if h5py.h5a.get_num_attrs(item):
                node = (h5py.Dataset if is_array(item) else h5py.Group)(item)
                by_path[path] = read_attributes(self._hdf5, node, path)
        attributes = by_path.pop("", {})
        attributes = {name: value for name, value in attributes.items() if name not in excluded}
        return {**({"": attributes} if attributes else {}), **by_path}

    def field(self, path: str) -> Field:
        """Returns the type of the rows of an array.

        Raises:
          SourceError: The rows are neither numbers nor text, or the first row is a damaged image.
        """
        array = self.arrays[path]
        if isinstance(array, ComputedArray):
            return array.field()
        if self._may_be_files(path) and array.shape[0]:
            row = self.files(path, slice(0, 1))[0]
            if is_image_file(row):
                return self._create_image_field(row, path, 0)
        return self._create_field(path, array.shape[1:])

    def value_field(self, path: str) -> Field:
        """Returns the type of an array with any number of rows."""
        array = self.arrays[path]
        return self._create_field(path, (None, *array.shape[1:]) if array.shape else ())

    def check(self, path: str, field: Field, *, as_rows: bool = True) -> None:
        """Checks that the type of an array fits a field.

        Raises:
          SourceError: The array is missing, or has another type.
        """
        self.num_rows(path)
        if isinstance(self.arrays[path], ComputedArray):
            return
        if as_rows and field.encoding:
            if self._may_be_files(path):
                return  # Reading checks each image.
            file_field = self._create_field(path, self.arrays[path].shape[1:])
        else:
            file_field = self.field(path) if as_rows else self.value_field(path)
        self._check_field(file_field, field, path)

    def rows(self, path: str, field: Field, rows: slice = slice(None)) -> np.ndarray:
        """Reads rows of an array.

        Raises:
          SourceError: The rows do not fit the field, or are damaged.
        """
        if not field.encoding:
            values: np.ndarray = self.value(path, rows)
            return values
        files = self.files(path, rows)
        for row, data in enumerate(files, rows.start or 0):
            self._check_field(self._create_image_field(data, path, row), field, path, row)
        return files

    def value(self, path: str, rows: slice = slice(None)) -> Any:
        """Reads an array, or rows of it: strings and rows of different lengths as objects."""
        array = self.arrays[path]
        if isinstance(array, ComputedArray):
            return array.rows(rows)
        return self._reader.read(self._group.id, path, array, rows)[()]

    def _create_field(self, path: str, shape: tuple[int | None, ...]) -> Field:
        array = self.arrays[path]
        assert isinstance(array, StoredArray)
        if array.kind == "numbers":
            return Field(array.dtype, shape)
        return Field(str if array.kind == "text" else bytes, shape)

    def _create_image_field(self, data: bytes, path: str, row: int) -> Field:
        try:
            return image_field(data)
        except ValueError as error:
            raise self.error(str(error), path, row) from error

    def _check_field(self, actual: Field, field: Field, path: str, row: int | None = None) -> None:
        same = (actual.dtype, actual.shape, bool(actual.encoding))
        if same != (field.dtype, field.shape, bool(field.encoding)):
            types = f"{actual}, expected {field}, as in the first episode"
            raise self.error(f"an image of {types}" if actual.encoding else types, path, row)

    def _may_be_files(self, path: str) -> bool:
        """Whether rows of an array may be encoded images, by its dtype and shape."""
        array = self.arrays[path]
        assert isinstance(array, StoredArray)
        is_matrix = array.dtype == np.uint8 and len(array.shape) == 2
        return is_matrix or (array.kind != "numbers" and len(array.shape) == 1)

    def files(self, path: str, rows: slice) -> np.ndarray:
        """Reads rows of encoded images."""
        values = self.value(path, rows)
        if values.dtype == object:
            return np.asarray(values)
        return objects(row.tobytes().rstrip(b"\0") for row in values)


def field_of_values(value: Any) -> Field:
    """Returns the field of an attribute."""
    array = np.asarray(value)
    if array.dtype.kind not in "USO":
        return Field(array.dtype, array.shape)
    is_text = all(isinstance(item, str) for item in np.asarray(value, object).flat)
    return Field(str if is_text else bytes, array.shape)
