"""Records of RL Unplugged: `tf.train.Example`s with all rows of an episode, or of a piece of one.

Floats and integers of all rows are stored one after the other, byte strings one per row. A record
does not say how many rows there are, nor how wide they are; that follows from a field that is known
to have one value per row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from rlds.raw_files import png_images
from rlds_ecosystem.model.fields import Field as DatasetField
from rlds_ecosystem.model.nests import put
from tfds_files.png import HEADER_SIZE, encode_png

__all__ = [
    "FieldError",
    "Path",
    "RecordContents",
    "RecordField",
    "Values",
    "lay_out",
    "num_rows",
    "read_fields",
]

# What a field of a record holds: float32, int64, or byte strings.
Values: TypeAlias = np.ndarray | list[bytes]
# The last chunk of every PNG file: no data, and the checksum of that.
_PNG_END = b"IEND\xaeB`\x82"

# Where a field goes, in nested dicts.
Path: TypeAlias = tuple[str, ...]
# What a field has a value for: each row, each row but the last, or the episode.
Per: TypeAlias = Literal["row", "transition", "episode"]


class FieldError(ValueError):
    """A field of a record is not as it has to be."""

    def __init__(self, field: str, what: str, row: int | None = None) -> None:
        super().__init__(what)
        self.field, self.row = field, row


@dataclasses.dataclass(frozen=True)
class RecordField:
    """How a field of the records is laid out.

    Attributes:
      path: Where it goes in the dataset.
      per: What it has a value for.
      shape: The shape of a value.
      dtype: Its dtype; `object` for byte strings that are no images.
      stored_as: The dtype in the record, `object` for all byte strings.
      png: What all files begin with, if the values are PNG images.
    """

    path: Path
    per: Per
    shape: tuple[int, ...]
    dtype: np.dtype
    stored_as: np.dtype
    png: bytes | None = None

    def count(self, rows: int) -> int:
        """Returns how many values there are in a record with this many rows."""
        return _count(self.per, rows)

    @property
    def is_image(self) -> bool:
        """Whether the values are images, PNG files or raw."""
        return self.stored_as.kind == "O" and self.dtype.kind != "O"

    def declared(self) -> DatasetField:
        """Returns the field that it becomes in the dataset."""
        encoding = "png" if self.is_image else ""
        dtype = bytes if self.dtype.kind == "O" else self.dtype
        return DatasetField(dtype, self.shape, encoding)


class RecordContents(NamedTuple):
    """What a record has: nested columns of the rows and of the transitions, values of the episode.

    Attributes:
      rows: Columns with a value for each row.
      transitions: Columns with a value for each row but the last.
      episode: Values that are of the episode.
    """

    rows: dict[str, Any]
    transitions: dict[str, Any]
    episode: dict[str, Any]


def lay_out(
    values: Mapping[str, Values],
    *,
    row_field: str,
    place: Callable[[str], Path],
    is_of_episode: Callable[[Path], bool],
    may_lack_last: Callable[[Path], bool],
    is_vector: Callable[[Path], bool],
    raw_image_shape: Callable[[str], tuple[int, int, int] | None],
) -> dict[str, RecordField]:
    """Returns how the fields of a record are laid out, by their names.

    Args:
      values: The fields of the record.
      row_field: The field that has one value per row.
      place: Says where a field goes.
      is_of_episode: Whether what goes to a path may be, and is if there is one value of it, that of
        the episode. Other fields have values for each row.
      may_lack_last: Whether what goes to a path may, and does if it is one value less than there
        are rows, have no value for the last row.
      is_vector: Whether floats are vectors there: one of them per row is a vector with one element,
        not a scalar, and none is a vector without elements, as walkers without such sensors have.
      raw_image_shape: The shape of images that are stored as strings of raw values, if they are.

    Raises:
      FieldError: A field does not fit the number of rows, or is not known to be anything.
    """
    rows = num_rows(values, row_field)
    fields = {}
    for name, found in sorted(values.items()):
        path = place(name)
        per: Per = "row"
        if len(found) == 1 and is_of_episode(path):
            per = "episode"
        elif len(found) == rows - 1 > 0 and may_lack_last(path):
            per = "transition"
        width, rest = divmod(len(found), _count(per, rows))
        is_floats = isinstance(found, np.ndarray) and found.dtype == np.float32
        must_be_vector = is_floats and is_vector(path)
        if rest or not (width or must_be_vector):
            what = f"{len(found)} values, expected a multiple of {rows}, the rows of {row_field!r}"
            raise FieldError(name, what)
        if isinstance(found, np.ndarray):
            shape = () if width == 1 and not must_be_vector else (width,)
            fields[name] = RecordField(path, per, shape, found.dtype, found.dtype)
        elif width > 1:
            raise FieldError(name, f"{width} strings per row, expected one")
        else:
            fields[name] = _field_of_strings(name, path, per, found, raw_image_shape(name))
    return fields


def num_rows(values: Mapping[str, Values], row_field: str) -> int:
    """Returns how many rows a record has.

    Raises:
      FieldError: `row_field` is missing.
    """
    if not len(values.get(row_field, ())):
        raise FieldError(
            row_field, f"no such field, or it is empty; the record has {sorted(values)}"
        )
    return len(values[row_field])


def _field_of_strings(
    name: str,
    path: Path,
    per: Per,
    found: list[bytes],
    raw_shape: tuple[int, int, int] | None,
) -> RecordField:
    text, byte = np.dtype(object), np.dtype(np.uint8)
    if png_images.is_png(found[0]):
        try:
            shape, dtype = png_images.png_shape(found[0])
        except ValueError as error:
            raise FieldError(name, str(error), row=0) from error
        begin = found[0][:HEADER_SIZE]
        return RecordField(path, per, shape, np.dtype(dtype), text, begin)
    if raw_shape is None:
        return RecordField(path, per, (), text, text)
    return RecordField(path, per, raw_shape, byte, text)


def read_fields(
    values: Mapping[str, Values], fields: Mapping[str, RecordField], row_field: str
) -> RecordContents:
    """Returns what a record has.

    Images are PNG files: those that are, unchanged, and raw ones encoded.

    Raises:
      FieldError: The fields are not laid out so.
    """
    rows = num_rows(values, row_field)
    contents = RecordContents({}, {}, {})
    for name in sorted(fields.keys() | values.keys()):
        if name not in values:
            raise FieldError(name, "no such field, but the first record has it")
        if name not in fields:
            raise FieldError(name, "the first record has no such field")
        field = fields[name]
        column = _column(name, values[name], field, rows)
        if field.per == "episode":
            put(contents.episode, field.path, column[0])
        else:
            put(contents.rows if field.per == "row" else contents.transitions, field.path, column)
    return contents


def _count(per: Per, rows: int) -> int:
    return {"row": rows, "transition": rows - 1, "episode": 1}[per]


def _column(name: str, found: Values, field: RecordField, rows: int) -> np.ndarray:
    rows = field.count(rows)
    stored_as = found.dtype if isinstance(found, np.ndarray) else np.dtype(object)
    if stored_as != field.stored_as and len(found):  # Of what is empty, no kind is recorded.
        kinds = [_in_words(dtype) for dtype in (stored_as, field.stored_as)]
        raise FieldError(name, f"{kinds[0]}, but {kinds[1]} in the first record")
    stored_as = field.stored_as
    width = 1 if stored_as.kind == "O" else math.prod(field.shape)
    if len(found) != rows * width:
        raise FieldError(name, f"{len(found)} values, expected {width} for each of {rows} rows")
    if stored_as.kind != "O":
        return np.asarray(found, stored_as).reshape(rows, *field.shape)
    column = np.empty(rows, object)
    column[:] = _as_png_files(name, list(found), field) if field.is_image else found
    return column


def _as_png_files(name: str, images: list[bytes], field: RecordField) -> list[bytes]:
    for row, image in enumerate(images):
        if field.png is not None and not image.startswith(field.png):
            what = f"expected a PNG image of shape {field.shape}, as in the first record"
            raise FieldError(name, what, row)
        if field.png is not None and not image.endswith(_PNG_END):
            raise FieldError(name, "the PNG image is cut off", row)
        if field.png is None and len(image) != math.prod(field.shape):
            what = f"{len(image)} bytes, but a raw image of shape {field.shape} has "
            raise FieldError(name, f"{what}{math.prod(field.shape)}", row)
    if field.png is not None:
        return images
    return [
        encode_png(np.frombuffer(image, np.uint8).reshape(field.shape), filters=False)
        for image in images
    ]


def _in_words(dtype: np.dtype) -> str:
    return "strings" if dtype.kind == "O" else f"{dtype.name} numbers"
