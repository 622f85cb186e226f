"""The plan of the features of an export to LeRobot, by field of steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

import rlds
from rlds.formats.lerobot.layout import DEFAULT_COLUMNS, IMAGE_NAMES, TABLE, depth_info
from rlds.sources.texts import is_instruction
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.names import unused_name

__all__ = [
    "DONE",
    "REWARD",
    "TRUNCATED",
    "PlannedFeature",
    "choose_name",
    "find_instruction",
    "plan_features",
    "why_unsupported",
]

REWARD, DONE, TRUNCATED = "next.reward", "next.done", "next.truncated"

# Reserved names of LeRobot.
_RESERVED_NAMES = {*DEFAULT_COLUMNS, "task", "language_persistent", "language_events"}
# The usual paths of the instruction.
_INSTRUCTION_PATHS = ("language_instruction", "observation/natural_language_instruction")
_MAX_DIMS = 5
# The dtypes of torch, which has no uint64.
_DTYPES = {"bool", *(f"{kind}int{size}" for kind in ("", "u") for size in (8, 16, 32)), "int64"}
_DTYPES |= {"float16", "float32", "float64"}


@dataclasses.dataclass(frozen=True)
class PlannedFeature:
    """A feature of LeRobot for a field of steps.

    Attributes:
      path: The path of the field.
      name: The name of the feature.
      field: The type of a value.
    """

    path: str
    name: str
    field: Field

    @property
    def is_image(self) -> bool:
        """True if the values are image files."""
        return _is_image(self.field)

    def feature(self) -> dict[str, Any]:
        """Returns the entry of the feature in `info.json`."""
        field = self.field
        if self.is_image:
            entry = {"dtype": "image", "shape": field.shape, "names": IMAGE_NAMES}
            return {**entry, "info": depth_info(field)} if field.dtype == np.uint16 else entry
        dtype = "string" if field.is_text else str(field.dtype)
        table = {TABLE: field.table} if field.table else {}
        names = list(field.names) if field.names else None
        return {"dtype": dtype, "shape": field.shape or (1,), "names": names, **table}


def plan_features(
    fields: Mapping[str, Field], sidecar: Collection[str] = (), used: Collection[str] = ()
) -> list[PlannedFeature]:
    """Returns the features for fields of steps.

    Args:
      fields: The fields by path, without flags.
      sidecar: Paths of fields without a feature.
      used: Names of further features.
    """
    names = {*used}
    columns = []
    for path, field in fields.items():
        if path not in sidecar and not why_unsupported(field):
            name = choose_name(_name(path, field), names)
            names.add(name)
            columns.append(PlannedFeature(path, name, field))
    return columns


def why_unsupported(field: Field) -> str:
    """Returns the reason why LeRobot cannot hold a field; empty if it can."""
    if field.encoding or _is_image(field):
        return "" if _is_image(field) else "LeRobot has no such images"
    if None in field.shape:
        return "LeRobot has columns of one shape only"
    if 0 in field.shape or len(field.shape) > _MAX_DIMS:
        return "LeRobot has no columns of this shape"
    if field.is_text:
        if field.dtype != str:
            return "LeRobot has no columns of bytes"
        return "LeRobot has no columns of several texts" if field.shape else ""
    return "" if str(field.dtype) in _DTYPES else f"LeRobot has no columns of {field.dtype}"


def find_instruction(texts: Collection[str]) -> str:
    """Returns the path of the text of the task among text fields; empty if it is ambiguous.

    >>> find_instruction(["note", "instruction"]), find_instruction(["prompt", "instruction"])
    ('instruction', '')
    """
    for path in _INSTRUCTION_PATHS:
        if path in texts:
            return path
    paths = [path for path in texts if is_instruction(path)]
    return paths[0] if len(paths) == 1 else ""


def _is_image(field: Field) -> bool:
    if len(field.shape) != 3 or 0 in field.shape or field.is_text:
        return False
    *sizes, channels = field.shape
    if not field.encoding and None in sizes:
        return False
    return (field.dtype == np.uint8 and channels in (1, 3, 4)) or (
        field.dtype == np.uint16 and channels == 1
    )


def _name(path: str, field: Field) -> str:
    if path == rlds.REWARD:
        return REWARD
    if path == rlds.OBSERVATION:
        return f"{path}.image" if _is_image(field) else f"{path}.state"
    return path.replace("/", ".")


def choose_name(name: str, used: Iterable[str]) -> str:
    """Returns an unused name of a feature that is similar to a requested name."""
    used = {*used, *_RESERVED_NAMES}
    if name in used or not name.strip("."):
        name = f"{rlds.STEPS}.{name}"
    return unused_name(name, used)
