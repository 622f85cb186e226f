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

__all__ = ["DataColumn", "column_of", "contradiction", "image_field", "values_of"]

# Makes the error of a fault of a column, and of its row in the column.
Damage: TypeAlias = Callable[..., SourceError]

# Names of dtypes in NumPy, where those in Arrow differ.
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}


@dataclasses.dataclass(frozen=True)
class DataColumn:
    """A column of data files.

    Attributes:
      name: Its name.
      kind: The kind of its values. "json" is for values without a field: text in JSON.
      field: The field of a step.
    """

    name: str
    kind: Literal["numbers", "text", "bytes", "image", "json"]
    field: Field


def column_of(arrow_field: Any, feature: LeRobotFeature | None) -> DataColumn:
    """Returns the type of a column; of images, without their shape.

    Args:
      arrow_field: The field of the schema.
      feature: Its entry in `info.json`.
    """
    arrow, types = import_extra("pyarrow"), import_extra("pyarrow").types
    kind, name = _storage_type(arrow_field.type), arrow_field.name
    shape: list[int] = []
    while _is_list(kind):
        shape.append(kind.list_size if types.is_fixed_size_list(kind) else -1)
        kind = _storage_type(kind.value_type)
    doc = str(feature.raw.get("doc", "")) if feature is not None else ""
    if _is_number(kind):
        dtype = np.dtype(_FLOATS.get(str(kind), str(kind)))
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


def contradiction(column: DataColumn, feature: LeRobotFeature) -> str:
    """Describes the contradiction of a column to `info.json`; empty if there is none."""
    shape: Any = feature.shape
    dtype, stored = feature.dtype, column.field.shape
    if column.kind == "numbers":
        fits = dtype == str(column.field.dtype) and (stored or (1,)) == (shape or (1,))
    elif column.kind == "image":
        with contextlib.suppress(ValueError):  # It is not the shape of an image.
            shape = feature.image_shape
        fits = dtype == "image" and (not stored or stored == shape)
    elif column.kind == "text":
        fits = dtype in ("string", "language")
    else:
        fits = dtype not in ("string", "image") and dtype not in np.sctypeDict
    if fits:
        return ""
    kinds = {"json": "values of several shapes", "image": f"image files of shape {stored}"}
    return f"{dtype} of shape {shape}, but the data have {kinds.get(column.kind, column.field)}"


def image_field(data: bytes, unit: str | None = None) -> Field:
    """Returns the field of images like an encoded one.

    Args:
      data: The file of the image.
      unit: The unit of depths.

    Raises:
      ValueError: It is damaged.
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
    return Field(bytes)  # A file of another kind.


def values_of(column: DataColumn, array: Any, damage: Damage) -> np.ndarray:
    """Returns the values of a column, in an array with a leading axis for time.

    Args:
      column: The column.
      array: Its rows, of Arrow.
      damage: Makes the error that is raised where they are not what the column holds.
    """
    array = _storage(array.combine_chunks())
    if column.kind == "json":
        return objects([json.dumps(value, ensure_ascii=False) for value in array.to_pylist()])
    if _kind_of(array.type) != column.kind and not (
        column.kind == "numbers" and _is_list(array.type)
    ):
        raise damage(f"{array.type}, but {column.field} in the first file")
    if column.kind == "numbers":
        return _numbers(column.field, array, damage)
    _check_no_null(array, 1, damage)
    if column.kind == "image":
        array = array.field("bytes")
        _check_no_null(array, 1, damage)
        if not column.field.is_text and not column.field.encoding:
            return _tiff_images(column.field, array.to_pylist(), damage)
    return objects(array.to_pylist())


def _tiff_images(field: Field, files: list[bytes], damage: Damage) -> np.ndarray:
    images = np.empty((len(files), *map(int, field.shape)), field.dtype)  # type: ignore[arg-type]
    for row, data in enumerate(files):
        try:
            pixels = tiff_pixels(data)
        except (ValueError, OSError) as error:
            raise damage(f"a damaged TIFF file: {error}", row=row) from error
        if (pixels.shape, pixels.dtype) != (field.shape, field.dtype):
            got = f"an image of {pixels.dtype} of shape {pixels.shape}"
            raise damage(f"{got}, but {field} in the first file", row=row)
        images[row] = pixels
    return images


@functools.lru_cache(256)
def _kind_of(arrow_type: Any) -> str:
    """The kind of columns of a type."""
    return column_of(import_extra("pyarrow").field("", arrow_type), None).kind


def _numbers(field: Field, array: Any, damage: Damage) -> np.ndarray:
    compute = import_extra("pyarrow.compute")
    rows, shape = len(array), [size or 0 for size in field.shape]
    sizes = shape
    if shape and not (_is_list(array.type) and _is_list(_storage_type(array.type.value_type))):
        sizes = [math.prod(shape)]  # A list is one row.
    per_row = 1
    for size in sizes:
        _check_no_null(array, per_row, damage)
        if not _is_list(array.type):
            raise damage(f"{array.type}, expected {field}")
        lengths = as_numpy(compute.list_value_length(array))
        if (lengths != size).any():
            wrong = int(np.argmax(lengths != size))
            fault = f"{lengths[wrong]} values, expected {size}: the shape is {tuple(shape)}"
            raise damage(fault, row=wrong // per_row)
        per_row *= size
        array = _storage(array.flatten())
    _check_no_null(array, max(per_row, 1), damage)
    if not _is_number(array.type):
        raise damage(f"{array.type}, expected {field}")
    return _in_dtype(as_numpy(array).reshape(rows, *shape), field.column_dtype, damage)


def _in_dtype(values: np.ndarray, dtype: np.dtype, damage: Damage) -> np.ndarray:
    """Values in the dtype of the first file, if that changes none."""
    if values.dtype == dtype:
        return values
    with np.errstate(all="ignore"):
        converted = values.astype(dtype)
        same = (converted.astype(values.dtype) == values) | (values != values)
    if "b" in (values.dtype.kind, dtype.kind) or not same.all():
        row = int(np.argmin(same)) // max(same[:1].size, 1)
        got = f"{values.dtype} {values[row]!r:.100}"
        raise damage(f"{got} does not fit {dtype}, the dtype of the first file", row=row)
    return converted


def _check_no_null(array: Any, per_row: int, damage: Damage) -> None:
    if array.null_count:
        row = array.is_null().to_numpy(zero_copy_only=False).argmax() // per_row
        raise damage("no value", row=int(row))


def _storage(array: Any) -> Any:
    """Returns the storage array of an extension type of Arrow, which `datasets` uses for arrays."""
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
