"""Records of RL Unplugged: `tf.train.Example`s with all rows of an episode or a window.

Floats and integers of all rows are concatenated; byte strings are one per row. A record does not
store the number and width of rows, which follow from a field with one value per row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

import rlds
from rlds.raw_files.image_files import is_png, png_shape
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field as DatasetField
from rlds_ecosystem.model.nests import put
from tfds_files.png import HEADER_SIZE, encode_png

__all__ = [
    "ARRIVED",
    "FIRST",
    "LAST",
    "STEP_TYPE",
    "TRANSITION",
    "Alignment",
    "FieldError",
    "Level",
    "Path",
    "RecordContents",
    "RecordField",
    "Values",
    "are_whole",
    "count",
    "field_of_strings",
    "num_rows",
    "read_fields",
]

# The order of the rows, see `rlds.alignment`.
Alignment: TypeAlias = Literal["sar", "rsa"]

# The first name in paths of fields that belong to the reward of their row.
ARRIVED = "<arrived>"
# Fields of transitions, not of observations.
TRANSITION = (rlds.ACTION, rlds.REWARD, rlds.DISCOUNT, ARRIVED)

STEP_TYPE = "step_type"
FIRST, MID, LAST = 0, 1, 2

# The values of a field of a record: float32, int64, or byte strings.
Values: TypeAlias = np.ndarray | list[bytes]
# The last chunk of every PNG file, without data, and its checksum.
_PNG_END = b"IEND\xaeB`\x82"

# The path of a field in nested dicts.
Path: TypeAlias = tuple[str, ...]
# The unit with one value: each row, each row but the last, or the episode.
Level: TypeAlias = Literal["row", "transition", "episode"]


class FieldError(ValueError):
    """A field of a record is invalid."""

    def __init__(self, field: str, problem: str, row: int | None = None) -> None:
        super().__init__(problem)
        self.field, self.row = field, row


@dataclasses.dataclass(frozen=True)
class RecordField:
    """The layout of a field in the records.

    Attributes:
      path: The path of the field in the dataset.
      level: The unit that has one value: row, transition or episode.
      shape: The shape of a value.
      dtype: The dtype; `object` for byte strings other than images.
      stored_as: The dtype in the record, `object` for all byte strings.
      png: The common first bytes of all files, if the values are PNG images.
    """

    path: Path
    level: Level
    shape: tuple[int, ...]
    dtype: np.dtype
    stored_as: np.dtype
    png: bytes | None = None

    @property
    def is_image(self) -> bool:
        """Whether the values are images, PNG files or raw."""
        return self.stored_as.kind == "O" and self.dtype.kind != "O"

    def declared(self) -> DatasetField:
        """Returns the field in the dataset."""
        encoding = "png" if self.is_image else ""
        dtype = bytes if self.dtype.kind == "O" else self.dtype
        return DatasetField(dtype, self.shape, encoding)


class RecordContents(NamedTuple):
    """The contents of a record: columns of rows and transitions, and values of the episode.

    Attributes:
      rows: Columns with a value for each row.
      transitions: Columns with a value for each row but the last.
      episode: Values of the episode.
    """

    rows: dict[str, Any]
    transitions: dict[str, Any]
    episode: dict[str, Any]


def num_rows(values: Mapping[str, Values], row_field: str) -> int:
    """Returns the number of rows of a record.

    Raises:
      FieldError: `row_field` is missing.
    """
    if not len(values.get(row_field, ())):
        raise FieldError(
            row_field, f"no such field, or it is empty; the record has {sorted(values)}"
        )
    return len(values[row_field])


def count(level: Level, rows: int) -> int:
    """Returns the number of values of a field in a record, by the number of rows."""
    return {"row": rows, "transition": rows - 1, "episode": 1}[level]


def field_of_strings(
    name: str,
    path: Path,
    level: Level,
    strings: list[bytes],
    raw_shape: tuple[int, int, int] | None,
) -> RecordField:
    """Returns the layout of a field of strings.

    Args:
      name: The name of the field.
      path: The path of the field in the dataset.
      level: The unit that has one value: row, transition or episode.
      strings: The values of the field.
      raw_shape: The shape of images that are stored as raw values; None for other strings.

    Raises:
      FieldError: A PNG image is damaged.
    """
    text, byte = np.dtype(object), np.dtype(np.uint8)
    if is_png(strings[0]):
        try:
            shape, dtype = png_shape(strings[0])
        except ValueError as error:
            raise FieldError(name, str(error), row=0) from error
        header = strings[0][:HEADER_SIZE]
        return RecordField(path, level, shape, np.dtype(dtype), text, header)
    if raw_shape is None:
        return RecordField(path, level, (), text, text)
    return RecordField(path, level, raw_shape, byte, text)


def read_fields(
    values: Mapping[str, Values], fields: Mapping[str, RecordField], row_field: str
) -> RecordContents:
    """Returns the fields of a record.

    PNG files stay unchanged; raw images are encoded as PNG files.

    Raises:
      FieldError: The fields have another layout.
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
        if field.level == "episode":
            put(contents.episode, field.path, column[0])
        else:
            put(contents.rows if field.level == "row" else contents.transitions, field.path, column)
    return contents


def _column(name: str, values: Values, field: RecordField, rows: int) -> np.ndarray:
    rows = count(field.level, rows)
    stored_as = values.dtype if isinstance(values, np.ndarray) else np.dtype(object)
    if stored_as != field.stored_as and len(values):  # Empty lists have no recorded kind.
        kinds = [_describe(dtype) for dtype in (stored_as, field.stored_as)]
        raise FieldError(name, f"{kinds[0]}, but {kinds[1]} in the first record")
    stored_as = field.stored_as
    width = 1 if stored_as.kind == "O" else math.prod(field.shape)
    if len(values) != rows * width:
        raise FieldError(name, f"{len(values)} values, expected {width} for each of {rows} rows")
    if stored_as.kind != "O":
        return np.asarray(values, stored_as).reshape(rows, *field.shape)
    return objects(_as_png_files(name, list(values), field) if field.is_image else values)


def _as_png_files(name: str, images: list[bytes], field: RecordField) -> list[bytes]:
    for row, image in enumerate(images):
        if field.png is not None and not image.startswith(field.png):
            problem = f"expected a PNG image of shape {field.shape}, as in the first record"
            raise FieldError(name, problem, row)
        if field.png is not None and not image.endswith(_PNG_END):
            raise FieldError(name, "the PNG image is cut off", row)
        if field.png is None and len(image) != math.prod(field.shape):
            problem = f"{len(image)} bytes, but a raw image of shape {field.shape} has "
            raise FieldError(name, f"{problem}{math.prod(field.shape)}", row)
    if field.png is not None:
        return images
    return [
        encode_png(np.frombuffer(image, np.uint8).reshape(field.shape), filters=False)
        for image in images
    ]


def _describe(dtype: np.dtype) -> str:
    return "strings" if dtype.kind == "O" else f"{dtype.name} numbers"


def are_whole(step_types: np.ndarray, *, is_piece: bool) -> bool:
    """Whether rows are an episode from its beginning to its end.

    Args:
      step_types: The types of the rows.
      is_piece: Whether they may begin in the middle of an episode.

    Raises:
      FieldError: The order of types is impossible in an episode.
    """
    index = np.arange(len(step_types))
    is_inner = (step_types == MID) | ((step_types == LAST) & (index == index[-1]))
    is_possible = ((step_types == FIRST) & (index == 0)) | (is_inner & (is_piece | (index > 0)))
    if not is_possible.all():
        row = int(np.argmin(is_possible))
        expected = "1, or 0 in the first row, or 2 in the last" if row or is_piece else "0"
        raise FieldError(STEP_TYPE, f"{step_types[row]:g}, expected {expected}", row)
    return bool(step_types[0] == FIRST and step_types[-1] == LAST)
