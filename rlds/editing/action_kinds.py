"""Actions as changes of the state, or as its targets; each has the bits of the other one again.

A change is the target minus the state of the same step, element by element; a gripper stays as it
is. What rounding leaves out is a field of its own, `action_rest`: of a sum of two floats, that is a
float, too. The way back adds it, and drops the field.
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
from rlds.sources.episode_fields import ACTION_REST
from rlds.sources.episodes import Episodes
from rlds.sources.source import Source, SourceError
from rlds.sources.view import RowContext
from rlds_ecosystem.model.fields import Field

__all__ = ["ActionsAs"]

_ACTION, _REST = f"{STEPS}{rlds.ACTION}", f"{STEPS}{ACTION_REST}"
_FROM = {"delta": "absolute", "absolute": "delta"}
# Turns do not add up as numbers do. `wrist_roll` is a joint, `left_roll` none.
_TURN = re.compile(
    r"((left|right|eef?|tcp|arm)[\W_])*(roll|pitch|yaw|[rq][xyzw]|(rot|quat|euler|axis).*)"
)


class ActionsAs(Change):
    """Episodes with actions of another kind.

    Args:
      base: The episodes. The names of the elements, the kind and the unit of their actions are
        declared, and so is the unit of the elements of the observation that have these names.
      kind: "delta" or "absolute".

    Raises:
      ValueError: The meaning is not declared; or the numbers of some episodes contradict it, or
        rows have the state after the action.
    """

    looks_around = True  # The last row may have no action.

    def __init__(self, base: Source, kind: str) -> None:
        fields = fields_of(base)
        if kind not in _FROM:
            raise ValueError(f"action-as: got {kind!r}, expected one of {', '.join(_FROM)}")
        self._sign, self._restores = (-1 if kind == "delta" else 1), _REST in fields
        field = fields.get(_ACTION)
        if not isinstance(field, Field) or field.column_dtype.kind != "f" or len(field.shape) != 1:
            raise ValueError("action-as: expected a field `action` that is a vector of floats")
        if field.kind != _FROM[kind] or not field.names or not field.unit:
            raise ValueError(
                f"action-as: expected an action that is declared as {_FROM[kind]}, with a unit and "
                f"names, got {', '.join(field.facts) or 'none'}. Declare what you know, as in "
                f"rlds edit PATH --set-meaning action={_FROM[kind]},unit=rad,names=A/B/…"
            )
        self._moved = [*_moved(field, fields)]
        if not self._moved:
            raise ValueError("action-as: the action has grippers only, which stay as they are")
        rest_field = Field(field.dtype, field.shape, doc="What rounding leaves out of the action.")
        stored = fields.get(_REST, rest_field)
        if (stored.dtype, stored.shape) != (rest_field.dtype, rest_field.shape):
            raise ValueError("action-as: the steps have another field `action_rest`; rename it")
        after = {path: it for path, it in fields.items() if path != _REST}
        after[_ACTION] = dataclasses.replace(field, kind=kind)
        self.changed_paths = {_ACTION} if self._restores else {_ACTION, _REST}
        self.options = {"action_as": kind}
        super().__init__(base, after if self._restores else {**after, _REST: rest_field})
        episodes = Episodes(base, "+".join(base.splits))
        for conflict in contradictions_in(episodes):
            raise ValueError(f"action-as: {conflict}. Correct it with `rlds edit --set-meaning`")
        for element in vector_meanings(episodes, most=20)[0].elements:
            if element.kind == field.kind and element.lag < (kind == "delta"):
                raise ValueError("action-as: the state of a step is what its action has led to")

    @functools.cached_property
    @override
    def names(self) -> Mapping[str, str]:
        return {path: path for path in self.paths if path not in (_ACTION, _REST)}

    @override
    def needs(self, fields: Collection[str]) -> Collection[str]:
        needed = {*fields} - {_REST}
        if not self.makes(fields):
            return needed
        rest_paths = [_REST] if self._restores else []
        return needed | {_ACTION, *rest_paths, *(path for _, path, _ in self._moved)}

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        if _ACTION not in values:
            return values
        action = values[_ACTION]
        states = np.zeros_like(action)
        for element, path, column in self._moved:
            states[:, element] = values[path][:, column]
        if values[rlds.FINAL_OBSERVATION_KNOWN]:
            states[-1:] = 0
        stored_residue = values.get(_REST) if self._restores else None
        total, residue = _sums(action, self._sign * states, stored_residue)
        other_values = {path: it for path, it in values.items() if path != _REST}
        return {**other_values, _ACTION: total} | ({} if self._restores else {_REST: residue})


def _moved(action: Field, fields: Mapping[str, Any]) -> Iterator[tuple[int, str, int]]:
    """Yields the elements that move, each with the field of the state and its element."""
    for element, name in enumerate(action.names or ()):
        if "gripper" in name.lower():
            continue
        if _TURN.fullmatch(name.lower()):
            raise ValueError(f"action-as: {name!r} is of a rotation, which is no sum of changes")
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


def _sums(
    action: np.ndarray, states: np.ndarray, stored_residue: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns actions plus states with their rounding residue; or adds a stored residue.

    The residue of a negative zero is the negative zero. Values that are not finite stay.
    """
    is_finite = np.isfinite(action)
    with np.errstate(all="ignore"):
        total = action + states
        back = total - action
        residue = (action - (total - back)) + (states - back) + 0.0
        if stored_residue is not None:
            if (is_finite & (np.abs(stored_residue) > np.spacing(np.abs(action)))).any():
                raise SourceError("it is not what rounding left out", field=ACTION_REST)
            total = total + (residue + stored_residue)
            total = np.where((total == 0) & np.signbit(stored_residue), stored_residue, total)
    if (is_finite & ~np.isfinite(total)).any():
        raise SourceError("the state of a step with an action is not finite", field=rlds.ACTION)
    is_negative_zero = (action == 0) & np.signbit(action)
    residue = np.where(is_finite, np.where(is_negative_zero, action, residue), 0)
    return np.where(is_finite, total, action).astype(action.dtype), residue.astype(action.dtype)
