"""Lossless conversion of robot actions between absolute targets and deltas of the state.

A delta is the target minus the state of the same step, element by element; grippers are unchanged.
The rounding remainder of each sum, which is a float, too, is kept in the field `action_rest`. The
opposite conversion adds the remainder and drops the field, so it restores all bits.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.auditing.declared import contradictions_in
from rlds.auditing.vectors import vector_meanings
from rlds.editing.changes import STEPS, Change, fields_of
from rlds.sources.episode_fields import ACTION_REMAINDER
from rlds.sources.episodes import Episodes
from rlds.sources.source import Source, SourceError
from rlds.sources.view import RowContext
from rlds_ecosystem.model.fields import Field

__all__ = ["ActionsView"]

_ACTION, _REMAINDER_PATH = f"{STEPS}{rlds.ACTION}", f"{STEPS}{ACTION_REMAINDER}"
_OTHER_KIND = {"delta": "absolute", "absolute": "delta"}
# Rotations cannot be added by element. `wrist_roll` is a joint, `left_roll` is a rotation.
_ROTATION_NAME = re.compile(
    r"((left|right|eef?|tcp|arm)[\W_])*(roll|pitch|yaw|[rq][xyzw]|(rot|quat|euler|axis).*)"
)


class ActionsView(Change):
    """A view of episodes with actions of another kind.

    Args:
      base: The source. The source declares the element names, kind and unit of the actions, and the
        unit of the observation elements with the same names.
      kind: The new kind: "delta" or "absolute".

    Raises:
      ValueError: The meaning is not declared or contradicts the stored numbers; or rows hold the
        state after the action.
    """

    uses_all_steps = True  # Only whole episodes show if the last row has an action.

    def __init__(self, base: Source, kind: str) -> None:
        fields = fields_of(base)
        if kind not in _OTHER_KIND:
            raise ValueError(f"action-as: got {kind!r}, expected one of {', '.join(_OTHER_KIND)}")
        self._sign, self._has_remainder = (-1 if kind == "delta" else 1), _REMAINDER_PATH in fields
        field = fields.get(_ACTION)
        if not isinstance(field, Field) or field.column_dtype.kind != "f" or len(field.shape) != 1:
            raise ValueError("action-as: expected a field `action` that is a vector of floats")
        if field.kind != _OTHER_KIND[kind] or not field.names or not field.unit:
            raise ValueError(
                f"action-as: expected an action declared as {_OTHER_KIND[kind]}, with a unit and "
                f"names, got {', '.join(field.meanings) or 'none'}. Declare the meaning, as in "
                f"rlds edit PATH --set-meaning action={_OTHER_KIND[kind]},unit=rad,names=A/B/…"
            )
        self._state_elements = [*_state_elements(field, fields)]
        if not self._state_elements:
            raise ValueError("action-as: the action has only grippers, which are not converted")
        new_field = Field(field.dtype, field.shape, doc="The rounding remainder of the action.")
        old_field = fields.get(_REMAINDER_PATH, new_field)
        if (old_field.dtype, old_field.shape) != (new_field.dtype, new_field.shape):
            raise ValueError("action-as: the steps have another field `action_rest`; rename it")
        new_fields = {p: field for p, field in fields.items() if p != _REMAINDER_PATH}
        new_fields[_ACTION] = dataclasses.replace(field, kind=kind)
        self.changed_paths = {_ACTION} if self._has_remainder else {_ACTION, _REMAINDER_PATH}
        self.options = {"action_as": kind}
        if not self._has_remainder:
            new_fields[_REMAINDER_PATH] = new_field
        super().__init__(base, new_fields)
        episodes = Episodes(base, "+".join(base.splits))
        for conflict in contradictions_in(episodes):
            raise ValueError(f"action-as: {conflict}. Correct it with `rlds edit --set-meaning`")
        for element in vector_meanings(episodes, most=20)[0].elements:
            if element.kind == field.kind and element.lag < (kind == "delta"):
                raise ValueError("action-as: the state of a step is the result of its action")

    @functools.cached_property
    @override
    def base_paths(self) -> Mapping[str, str]:
        return {path: path for path in self.paths if path not in (_ACTION, _REMAINDER_PATH)}

    @override
    def needs(self, fields: Collection[str]) -> Collection[str]:
        paths = {*fields} - {_REMAINDER_PATH}
        if not self.makes(fields):
            return paths
        remainder_paths = [_REMAINDER_PATH] if self._has_remainder else []
        return paths | {_ACTION, *remainder_paths, *(path for _, path, _ in self._state_elements)}

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        if _ACTION not in values:
            return values
        action = values[_ACTION]
        states = np.zeros_like(action)
        for element, path, column in self._state_elements:
            states[:, element] = values[path][:, column]
        if values[rlds.FINAL_OBSERVATION_KNOWN]:
            states[-1:] = 0
        stored_remainder = values.get(_REMAINDER_PATH) if self._has_remainder else None
        total, remainder = _sum_with_remainder(action, self._sign * states, stored_remainder)
        values = {p: values[p] for p in values if p != _REMAINDER_PATH} | {_ACTION: total}
        return values if self._has_remainder else {**values, _REMAINDER_PATH: remainder}


def _state_elements(action: Field, fields: Mapping[str, Any]) -> Iterator[tuple[int, str, int]]:
    """Yields each action element other than grippers, with its state field and state element."""
    for element, name in enumerate(action.names or ()):
        if "gripper" in name.lower():
            continue
        if _ROTATION_NAME.fullmatch(name.lower()):
            raise ValueError(f"action-as: {name!r} is an angle of a rotation, which has no sum")
        matches = [
            (path, field, field.names.index(name))  # type: ignore[union-attr]
            for path, field in fields.items()
            if path.startswith(f"{STEPS}{rlds.OBSERVATION}")
            and isinstance(field, Field)
            and len(field.shape) == 1
            and name in (field.names or ())
        ]
        if len(matches) != 1 or matches[0][1].unit != action.unit:
            units = [f"{path} in {field.unit or 'no known unit'}" for path, field, _ in matches]
            raise ValueError(
                f"action-as: expected one {name!r} in {action.unit} in the observation, got "
                f"{' and '.join(units) or 'none'}. Declare names and units of the state, as in "
                f"rlds edit PATH --set-meaning observation/state=unit={action.unit},names=A/B/…"
            )
        yield element, matches[0][0], matches[0][2]


def _sum_with_remainder(
    action: np.ndarray, states: np.ndarray, stored_remainder: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns actions plus states with their rounding remainder; or adds a stored remainder.

    The remainder of a negative zero is the negative zero. Values that are not finite are kept.
    """
    is_finite = np.isfinite(action)
    with np.errstate(all="ignore"):
        total = action + states
        back = total - action
        remainder = (action - (total - back)) + (states - back) + 0.0
        if stored_remainder is not None:
            if (is_finite & (np.abs(stored_remainder) > np.spacing(np.abs(action)))).any():
                raise SourceError("it is not a rounding remainder", field=ACTION_REMAINDER)
            total = total + (remainder + stored_remainder)
            total = np.where((total == 0) & np.signbit(stored_remainder), stored_remainder, total)
    if (is_finite & ~np.isfinite(total)).any():
        raise SourceError("the state of a step with an action is not finite", field=rlds.ACTION)
    is_negative_zero = (action == 0) & np.signbit(action)
    remainder = np.where(is_finite, np.where(is_negative_zero, action, remainder), 0)
    return np.where(is_finite, total, action).astype(action.dtype), remainder.astype(action.dtype)
