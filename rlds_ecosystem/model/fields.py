"""The fields of steps and episodes: dtype, shape and meaning, and checks of columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rlds_ecosystem.model.columns import cast_exact, fits, known_field, missing
from rlds_ecosystem.model.nests import join_path

__all__ = [
    "BGR",
    "KINDS",
    "MEANING_ATTRIBUTES",
    "DepthCodes",
    "Field",
    "Fields",
    "MismatchError",
    "Opaque",
    "as_fields",
    "children_of",
    "fields_text",
    "is_absent",
    "is_known_mask",
    "match_columns",
]


BGR = ("blue", "green", "red")
"""The `names` of images with channels in this order, instead of red, green, blue."""

KINDS = ("absolute", "delta", "velocity", "scaled")
"""The kinds of numbers: targets, changes, changes in a second, and a range mapped to [-1, 1]."""

MEANING_ATTRIBUTES = ("unit", "names", "codes", "table", "kind")
"""The attributes of a `Field` that give its values their meaning."""


@dataclasses.dataclass(frozen=True)
class DepthCodes:
    """The quantisation of depth as integers, as LeRobot stores depth in videos.

    The codes 0 to `levels` stand for the depths `low` to `high`, in equal steps of the depth, or of
    the logarithm of `depth + shift`.

    Attributes:
      low: The depth of code 0, in metres.
      high: The depth of code `levels`, in metres.
      shift: The offset under the logarithm, in metres.
      is_log: True for equal steps of the logarithm.
      levels: The largest code.
    """

    low: float
    high: float
    shift: float = 0.0
    is_log: bool = False
    levels: int = 4095

    def __post_init__(self) -> None:
        low, high = (bound + self.shift * self.is_log for bound in (self.low, self.high))
        is_range = np.isfinite([low, high]).all() and low < high and self.levels > 0
        if not is_range or (self.is_log and low <= 0):
            raise ValueError(f"{self}: expected finite bounds, low < high and low + shift > 0")

    def decode(self, codes: npt.ArrayLike) -> np.ndarray:
        """Returns the depths in metres, float64, of the shape of the codes.

        >>> DepthCodes(0.01, 10.0, 3.5, is_log=True).decode([0, 397, 4095]).round(2).tolist()
        [0.01, 0.5, 10.0]
        """
        fraction = np.asarray(codes, np.float64) / self.levels
        if not self.is_log:
            return self.low + fraction * (self.high - self.low)
        low, high = np.log(self.low + self.shift), np.log(self.high + self.shift)
        return np.exp(low + fraction * (high - low)) - self.shift

    def to_json(self) -> dict[str, Any]:
        """Returns the attributes in the types of JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> DepthCodes:
        """Reads the result of `to_json`; raises for invalid content."""
        low, high, shift = (float(content[name]) for name in ("low", "high", "shift"))
        return cls(low, high, shift, bool(content["is_log"]), int(content["levels"]))


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of steps or of episodes: dtype, shape, and meaning of its values.

    Attributes:
      dtype: The dtype of a value: `str` for text, `bytes` for other strings.
      shape: The shape of a value; None for a size that varies.
      encoding: For images that are stored as files, `"png"` or `"jpeg"`: a value may be the bytes
        of a file, or the image itself. Empty for everything else.
      names: The names of the elements along the last dimension, such as the joints of a robot;
        None if unknown.
      unit: The unit of the numbers; None if unknown. For codes, the unit of the decoded values.
      doc: The description of the field, one sentence.
      codes: The quantisation, if the values are codes of depths.
      table: The name of the table of texts whose keys are the values, such as `"tasks"`.
      kind: The meaning of an action to the controller, apart from a gripper: one of `KINDS`, or
        empty if unknown.

    >>> Field(np.float32, (3,), names=("x", "y", "z"), unit="m").dtype
    dtype('float32')
    >>> str(Field(str))
    'string of shape ()'
    """

    dtype: npt.DTypeLike
    shape: tuple[int | None, ...] = ()
    encoding: str = ""
    names: tuple[str, ...] | None = None
    unit: str | None = None
    doc: str = ""
    codes: DepthCodes | None = None
    table: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype).newbyteorder("="))
        object.__setattr__(self, "shape", tuple(self.shape))

    @property
    def meaning(self) -> dict[str, Any]:
        """The attributes that give the values their meaning, such as unit and names."""
        return {name: value for name in MEANING_ATTRIBUTES if (value := getattr(self, name))}

    @property
    def meanings(self) -> list[str]:
        """The descriptions of the meaning of the values.

        >>> Field(np.int64, table="tasks").meanings
        ['numbers of tasks']
        """
        codes = self.codes and f"codes of {self.codes.low:g} to {self.codes.high:g} m"
        texts = {"unit": f"in {self.unit}", "names": ", ".join(self.names or ()), "codes": codes}
        texts |= {"table": f"numbers of {self.table}", "kind": self.kind}
        return [str(texts[name]) for name in self.meaning]

    @property
    def is_text(self) -> bool:
        """True if values are strings: text or bytes."""
        return self.column_dtype.kind == "O"

    @property
    def column_dtype(self) -> np.dtype:
        """The dtype of arrays of values: that of objects for strings."""
        dtype = np.dtype(self.dtype)
        return np.dtype(object) if dtype.kind in "USO" else dtype

    def __str__(self) -> str:
        name = "string" if self.is_text else self.column_dtype.name
        return f"{name} of shape {self.shape}"


@dataclasses.dataclass(frozen=True)
class Opaque:
    """A field whose values are checked elsewhere.

    Attributes:
      description: A description of the values.
      absent: The placeholder of a missing value; None if there is none.
    """

    description: str
    absent: Any = None

    def __str__(self) -> str:
        return self.description


# Fields in nested dicts.
Fields: TypeAlias = "Mapping[str, Field | Opaque | Fields]"


def as_fields(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested fields; scalars may be declared by their dtypes.

    >>> as_fields({"a": {"b": np.int64}})["a"]["b"] == Field(np.int64)
    True
    """
    fields: dict[str, Any] = {}
    for name, field in declared.items():
        if isinstance(field, Mapping):
            fields[name] = as_fields(field)
        else:
            fields[name] = Field(field) if isinstance(field, type | np.dtype | str) else field
    return fields


class MismatchError(ValueError):
    """Values do not fit the field that they are stored in.

    Attributes:
      path: The path of the field.
      problem: The actual and the expected values.
    """

    def __init__(self, where: str, path: str, problem: str) -> None:
        super().__init__(f"{where}, {path}: {problem}")
        self.path, self.problem = path, problem


def match_columns(
    columns: Any,
    expected: Fields | Field | Opaque,
    *,
    rows: int,
    where: str,
    path: str = "",
    rounds: bool | None = None,
) -> Any:
    """Checks that columns match fields, and returns them in the dtypes of the fields.

    Columns of None are absent, or arrays without elements if the field has none: an EnvLogger log
    does not distinguish them. A field is optional if it has a mask, the bool field `<name>_known`;
    missing masks are added.

    Args:
      columns: Arrays with a leading axis of length `rows`, nested in dicts, lists and tuples.
      expected: The fields of a row.
      rows: The number of rows.
      where: The beginning of error messages: the name of the data.
      path: The path of the field of `columns`.
      rounds: True to round float64 to float32 fields; None if the user has no such option.

    Raises:
      MismatchError: Fields are missing or unexpected; or a shape or a dtype differs, except for the
        width of integers and floats whose values fit; or a float64 to round exceeds float32.

    >>> fields = {"speed": Field(np.float32), "done": Field(np.bool_)}
    >>> columns = {"speed": np.array([0.5, 1.5]), "done": np.array([False, True])}
    >>> match_columns(columns, fields, rows=2, where="")["speed"]
    array([0.5, 1.5], dtype=float32)
    """
    has_no_values = _is_absent(columns, expected)
    if isinstance(expected, Mapping):
        if isinstance(columns, np.ndarray) and not has_no_values:
            raise _mismatch(where, path, _describe(columns), f"the fields {list(expected)}")
        children = {} if has_no_values else children_of(columns, path)
        children = {
            name: child
            for name, child in children.items()
            if not _is_absent(child, expected.get(name))
        }
        for name in sorted(children.keys() - expected.keys()):
            allowed = f"only the fields {list(expected)}"
            raise _mismatch(where, join_path(path, name), "a field", allowed)
        masks = {known_field(name): name for name in expected if known_field(name) not in children}
        masks = {mask: name for mask, name in masks.items() if is_known_mask(expected.get(mask))}
        result = {}
        for name, child in expected.items():
            column, child_path = children.get(name), join_path(path, name)
            if name in masks:
                result[name] = np.full(rows, masks[name] in children)
            elif column is None and known_field(name) in masks:
                result[name] = _missing_rows(child, rows, where, child_path)
            else:
                result[name] = match_columns(
                    column, child, rows=rows, where=where, path=child_path, rounds=rounds
                )
        return result
    if has_no_values:
        if isinstance(expected, Field) and 0 in expected.shape:
            return np.zeros((rows, *(size or 0 for size in expected.shape)), expected.column_dtype)
        raise _mismatch(where, path, "nothing", str(expected))
    if isinstance(expected, Opaque):
        return columns
    if not isinstance(columns, np.ndarray):
        got = f"the fields {list(children_of(columns, path))}"
        raise _mismatch(where, path, got, str(expected))
    if columns.dtype == object and expected.encoding:
        return columns  # The rows are files of images.
    dtype = expected.column_dtype
    is_wider = columns.dtype == np.float64 and dtype == np.float32
    if not fits(columns.shape[1:], expected.shape):
        raise _mismatch(where, path, _describe(columns), str(expected))
    if is_wider and rounds:
        return _round(columns, where, path)
    converted = _cast_exactly(columns, dtype)
    if converted is None:
        is_option = is_wider and rounds is not None
        remedy = "Pass float64='float32' to store it rounded." if is_option else ""
        raise _mismatch(where, path, _describe(columns), str(expected), remedy)
    return converted


def children_of(nest: Any, path: str) -> dict[str, Any]:
    """Returns the children of a container by their names in a dataset."""
    if not isinstance(nest, (Mapping, list, tuple)):
        raise ValueError(f"{path}: {nest!r} is neither a spec nor a dict, list or tuple of specs.")
    items = list(nest.items() if isinstance(nest, Mapping) else enumerate(nest))
    children = {str(key): child for key, child in items}
    if len(children) < len(items):
        raise ValueError(f"{path}: some keys are equal as strings: {list(nest)}.")
    return children


def is_absent(columns: Any) -> bool:
    """True if columns are None, or containers that hold only None."""
    if columns is None:
        return True
    if isinstance(columns, np.ndarray):
        return columns.dtype == object and all(item is None for item in columns.flat)
    return all(is_absent(child) for child in children_of(columns, "").values())


def _is_absent(columns: Any, expected: Fields | Field | Opaque | None) -> bool:
    """Whether columns are absent; empty arrays of texts are not, if the field may be empty."""
    if isinstance(expected, Mapping) and isinstance(columns, Mapping):
        return all(_is_absent(child, expected.get(name)) for name, child in columns.items())
    are_texts = isinstance(expected, Field) and expected.is_text
    if are_texts and isinstance(columns, np.ndarray) and not columns.size:
        return not fits(columns.shape[1:], expected.shape)  # type: ignore[union-attr]
    return is_absent(columns)


def fields_text(fields: Fields | Field | Opaque | None) -> str:
    """Describes fields for a sentence.

    >>> fields_text({"position": Field(np.float32, (3,)), "on": Field(bool)})
    '{position: float32 of shape (3,), on: bool of shape ()}'
    """
    if not isinstance(fields, Mapping):
        return "nothing" if fields is None else str(fields)
    children = ", ".join(f"{name}: {fields_text(child)}" for name, child in fields.items())
    return f"{{{children}}}"


def is_known_mask(expected: Any) -> bool:
    """True if a field can be the mask of the known values of another field."""
    return isinstance(expected, Field) and (expected.shape, expected.dtype) == ((), np.bool_)


def _missing_rows(expected: Fields | Field | Opaque, rows: int, where: str, path: str) -> Any:
    """Returns columns of missing values for a field."""
    if isinstance(expected, Mapping):
        return {
            name: _missing_rows(child, rows, where, join_path(path, name))
            for name, child in expected.items()
        }
    if isinstance(expected, Opaque) and expected.absent is not None:
        return np.full(rows, expected.absent)
    if isinstance(expected, Opaque) or (expected.encoding and None in expected.shape):
        raise _mismatch(where, path, "nothing", str(expected))
    return missing((rows, *(size or 0 for size in expected.shape)), expected.column_dtype)


def _cast_exactly(column: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """Returns a column in another dtype of the same kind; None if a value would change.

    Python's numbers are recorded in the widest dtype, whatever the dtype of the spec.
    """
    if column.dtype == dtype:
        return column
    if not any(column.dtype.kind in kinds and dtype.kind in kinds for kinds in ("iu", "f")):
        return None
    converted: np.ndarray | None = cast_exact(column, dtype)
    return converted


def _round(column: np.ndarray, where: str, path: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        rounded = column.astype(np.float32)
    overflows = np.isinf(rounded) & np.isfinite(column)
    if overflows.any():
        row, *_ = index = tuple(np.argwhere(overflows)[0])
        raise MismatchError(
            where,
            path,
            f"{column[index].item()!r} in row {row} is beyond float32. float64='bytes' keeps it, "
            "float64='float32' cannot.",
        )
    return rounded


def _describe(column: np.ndarray) -> str:
    is_text = column.dtype == object and column.size > 0
    name = type(column.flat[0]).__name__ if is_text else column.dtype.name
    return f"{name} of shape {column.shape[1:]}"


def _mismatch(where: str, path: str, got: str, expected: str, remedy: str = "") -> MismatchError:
    remedy = remedy or ("If the data is right, declare this feature in the DatasetConfig.")
    return MismatchError(where, path, f"got {got}, expected {expected}. {remedy}")
