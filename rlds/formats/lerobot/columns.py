"""Conversion of columns of LeRobot data files to fields of steps."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from rlds.formats.lerobot.layout import LeRobotFeature
from rlds.formats.lerobot.parquet_rows import as_numpy
from rlds.raw_files.image_files import is_png, jpeg_shape, png_shape
from rlds.raw_files.tiff_images import is_depth_tiff, tiff_pixels
from rlds.sources.source import SourceError
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field

__all__ = ["DataColumn", "data_column", "decode_values", "find_contradiction", "image_field"]

# Returns the error for a fault of a column, and of a row in the column.
MakeError: TypeAlias = Callable[..., SourceError]

# The names of dtypes in NumPy, if they differ from Arrow.
_FLOAT_DTYPES = {"halffloat": "float16", "float": "float32", "double": "float64"}


@dataclasses.dataclass(frozen=True)
class DataColumn:
    """A column of data files.

    Attributes:
      name: The name of the column.
      kind: The kind of the values; "json" for values without a dtype, which become JSON text.
      field: The field of steps.
    """

    name: str
    kind: Literal["numbers", "text", "bytes", "image", "json"]
    field: Field


def data_column(arrow_field: Any, feature: LeRobotFeature | None) -> DataColumn:
    """Returns the type of a column, without the shape of images.

    Args:
      arrow_field: The field of the schema.
      feature: The entry of the column in `info.json`.
    """
    arrow, types = import_extra("pyarrow"), import_extra("pyarrow").types
    kind, name = _storage_type(arrow_field.type), arrow_field.name
    shape: list[int] = []
    while _is_list(kind):
        shape.append(kind.list_size if types.is_fixed_size_list(kind) else -1)
        kind = _storage_type(kind.value_type)
    doc = str(feature.raw.get("doc", "")) if feature is not None else ""
    if _is_number(kind):
        dtype = np.dtype(_FLOAT_DTYPES.get(str(kind), str(kind)))
        names = feature.element_names if feature is not None else None
        if feature is not None and shape and len(shape) in (1, len(feature.shape)):
            shape = list(feature.shape)
        if -1 not in shape:
            return DataColumn(name, "numbers", Field(dtype, tuple(shape), names=names, doc=doc))
    elif not shape and (types.is_string(kind) or types.is_large_string(kind)):
        return DataColumn(name, "text", Field(str, doc=doc))
    elif not shape and (types.is_binary(kind) or types.is_large_binary(kind)):
        return DataColumn(name, "bytes", Field(bytes, doc=doc))
    elif not shape and types.is_struct(kind):
        members = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        if members == {"bytes": arrow.binary(), "path": arrow.string()}:
            return DataColumn(name, "image", Field(bytes, doc=doc))
    return DataColumn(name, "json", Field(str, doc=doc or "JSON"))


def find_contradiction(column: DataColumn, feature: LeRobotFeature) -> str:
    """Returns the contradiction between a column and `info.json`; empty if they agree."""
    shape: Any = feature.shape
    dtype, column_shape = feature.dtype, column.field.shape
    if column.kind == "numbers":
        is_match = dtype == str(column.field.dtype) and (column_shape or (1,)) == (shape or (1,))
    elif column.kind == "image":
        with contextlib.suppress(ValueError):  # The shape does not fit an image.
            shape = feature.image_shape
        is_match = dtype == "image" and (not column_shape or column_shape == shape)
    elif column.kind == "text":
        is_match = dtype in ("string", "language")
    else:
        is_match = dtype not in ("string", "image") and dtype not in np.sctypeDict
    if is_match:
        return ""
    kinds = {"json": "values of several shapes", "image": f"image files of shape {column_shape}"}
    return f"{dtype} of shape {shape}, but the data have {kinds.get(column.kind, column.field)}"


def image_field(data: bytes, unit: str | None = None) -> Field:
    """Returns the field of images with the shape and encoding of a file.

    Args:
      data: The file of the image.
      unit: The unit of depths.

    Raises:
      ValueError: The file is damaged.
    """
    if is_png(data):
        shape, dtype = png_shape(data)
        return Field(dtype, shape, encoding="png", unit=unit)
    if data.startswith(b"\xff\xd8"):
        height, width, *channels = jpeg_shape(data)
        return Field(np.uint8, (height, width, *(channels or [1])), encoding="jpeg")
    if is_depth_tiff(data):
        pixels = tiff_pixels(data)
        return Field(pixels.dtype, pixels.shape, unit=unit)
    return Field(bytes)  # The file is of another kind.


def decode_values(column: DataColumn, array: Any, make_error: MakeError) -> np.ndarray:
    """Decodes the rows of a column to an array, with a leading axis for time.

    Args:
      column: The column.
      array: The rows as an Arrow array.
      make_error: Returns the error for a value that does not fit the column.
    """
    array = _storage(array.combine_chunks())
    if column.kind == "json":
        return objects([json.dumps(value, ensure_ascii=False) for value in array.to_pylist()])
    if _column_kind(array.type) != column.kind and not (
        column.kind == "numbers" and _is_list(array.type)
    ):
        raise make_error(f"{array.type}, but {column.field} in the first file")
    if column.kind == "numbers":
        return _decode_numbers(column.field, array, make_error)
    _check_no_null(array, 1, make_error)
    if column.kind == "image":
        array = array.field("bytes")
        _check_no_null(array, 1, make_error)
        if not column.field.is_text and not column.field.encoding:
            return _decode_tiff_images(column.field, array.to_pylist(), make_error)
    return objects(array.to_pylist())


def _decode_tiff_images(field: Field, files: list[bytes], make_error: MakeError) -> np.ndarray:
    images = np.empty((len(files), *map(int, field.shape)), field.dtype)  # type: ignore[arg-type]
    for row, data in enumerate(files):
        try:
            pixels = tiff_pixels(data)
        except (ValueError, OSError) as error:
            raise make_error(f"a damaged TIFF file: {error}", row=row) from error
        if (pixels.shape, pixels.dtype) != (field.shape, field.dtype):
            actual = f"an image of {pixels.dtype} of shape {pixels.shape}"
            raise make_error(f"{actual}, but {field} in the first file", row=row)
        images[row] = pixels
    return images


@functools.lru_cache(256)
def _column_kind(arrow_type: Any) -> str:
    """Returns the kind of columns of an Arrow type."""
    return data_column(import_extra("pyarrow").field("", arrow_type), None).kind


def _decode_numbers(field: Field, array: Any, make_error: MakeError) -> np.ndarray:
    compute = import_extra("pyarrow.compute")
    rows, shape = len(array), [size or 0 for size in field.shape]
    sizes = shape
    if shape and not (_is_list(array.type) and _is_list(_storage_type(array.type.value_type))):
        sizes = [math.prod(shape)]  # The list of a row is flat.
    values_per_row = 1
    for size in sizes:
        _check_no_null(array, values_per_row, make_error)
        if not _is_list(array.type):
            raise make_error(f"{array.type}, expected {field}")
        lengths = as_numpy(compute.list_value_length(array))
        if (lengths != size).any():
            invalid = int(np.argmax(lengths != size))
            problem = f"{lengths[invalid]} values, expected {size}: the shape is {tuple(shape)}"
            raise make_error(problem, row=invalid // values_per_row)
        values_per_row *= size
        array = _storage(array.flatten())
    _check_no_null(array, max(values_per_row, 1), make_error)
    if not _is_number(array.type):
        raise make_error(f"{array.type}, expected {field}")
    return _cast(as_numpy(array).reshape(rows, *shape), field.column_dtype, make_error)


def _cast(values: np.ndarray, dtype: np.dtype, make_error: MakeError) -> np.ndarray:
    """Converts values to the dtype of the first file, if no value changes."""
    if values.dtype == dtype:
        return values
    with np.errstate(all="ignore"):
        new_values = values.astype(dtype)
        is_equal = (new_values.astype(values.dtype) == values) | (values != values)
    if "b" in (values.dtype.kind, dtype.kind) or not is_equal.all():
        row = int(np.argmin(is_equal)) // max(is_equal[:1].size, 1)
        actual = f"{values.dtype} {values[row]!r:.100}"
        raise make_error(f"{actual} does not fit {dtype}, the dtype of the first file", row=row)
    return new_values


def _check_no_null(array: Any, values_per_row: int, make_error: MakeError) -> None:
    if array.null_count:
        row = array.is_null().to_numpy(zero_copy_only=False).argmax() // values_per_row
        raise make_error("no value", row=int(row))


def _storage(array: Any) -> Any:
    """Returns the storage of an Arrow extension type, which the library datasets uses."""
    return getattr(array, "storage", array)


def _storage_type(kind: Any) -> Any:
    return getattr(kind, "storage_type", kind)


@functools.lru_cache(256)
def _is_list(kind: Any) -> Any:
    types = import_extra("pyarrow").types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


@functools.lru_cache(256)
def _is_number(kind: Any) -> Any:
    types = import_extra("pyarrow").types
    return types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
