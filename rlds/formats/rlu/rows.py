"""From the rows of a record to the steps of an episode, and what is left over then."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

import rlds
from rlds.alignment import from_rsa, from_sars
from rlds.formats.rlu.records import FieldError, RecordContents
from rlds_ecosystem.model.columns import map_columns

__all__ = [
    "ARRIVED",
    "FIRST",
    "LAST",
    "STEP_TYPE",
    "TRANSITION",
    "Alignment",
    "RowOrder",
    "check_piece",
    "check_whole",
]

# The order of the rows, see `rlds.alignment`.
Alignment: TypeAlias = Literal["sar", "rsa"]

# Stands before the names of fields that belong to the reward of their row.
ARRIVED = "<arrived>"
# What is of transitions, not of observations.
TRANSITION = (rlds.ACTION, rlds.REWARD, rlds.DISCOUNT, ARRIVED)

STEP_TYPE = "step_type"
FIRST, MID, LAST = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class RowOrder:
    """Which values of the rows of an episode belong together.

    Attributes:
      alignment: "sar" or "rsa", see `rlds.alignment`.
      ends_with_observation: Whether the last row is that of the final observation. In the order RSA
        that is always so.
      action_led_here: In the order RSA, whether the action of a row led to its observation.
    """

    alignment: Alignment
    ends_with_observation: bool
    action_led_here: bool

    @property
    def is_final_observation_known(self) -> bool:
        """Whether there is an observation after the last transition."""
        return self.alignment == "rsa" or self.ends_with_observation

    def steps(self, contents: RecordContents) -> dict[str, Any]:
        """Returns the columns of the steps, in the order of RLDS."""
        rows = contents.rows
        others = {
            name: columns
            for name, columns in rows.items()
            if name not in (rlds.OBSERVATION, *TRANSITION)
        }
        transitions = {name: rows.get(name, {}) for name in TRANSITION}
        if self.alignment == "sar" and self.ends_with_observation:
            transitions = map_columns(lambda column: column[:-1], transitions)
        transitions = _merged(transitions, contents.transitions)
        discounts = transitions[rlds.DISCOUNT][1 if self.alignment == "rsa" else 0 :]
        fields: dict[str, Any] = {
            "observation": rows[rlds.OBSERVATION],
            "action": transitions[rlds.ACTION],
            "reward": transitions[rlds.REWARD],
            "discount": transitions[rlds.DISCOUNT],
            "terminal": bool(np.any(discounts[-1:] == 0.0)),
            "transition_metadata": transitions[ARRIVED],
            "observation_metadata": others,
        }
        if self.alignment == "rsa":
            return from_rsa(**fields, action_led_here=self.action_led_here)
        return from_sars(**fields)

    def placeholders(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of the rows that belong to no transition."""
        row = self.unused_row
        action_row = row if self.alignment == "sar" or self.action_led_here else -1
        named = {
            name: map_columns(operator.itemgetter(index), rows[name])
            for name, index in (
                (rlds.ACTION, action_row),
                (rlds.REWARD, row),
                (rlds.DISCOUNT, row),
            )
            if name in rows
        }
        return {**named, **map_columns(operator.itemgetter(row), rows.get(ARRIVED, {}))}

    @property
    def unused_row(self) -> int:
        """The row whose reward belongs to no transition, if there is such a row."""
        return 0 if self.alignment == "rsa" else -1


def check_whole(step_types: np.ndarray) -> bool:
    """Returns whether an episode is there to its end: whether its last row is that of the end.

    Raises:
      FieldError: Another row is that of the end, or of a beginning; or the first one is not.
    """
    expected = np.full(len(step_types), MID)
    expected[-1] = LAST
    expected[0] = FIRST  # An episode of one row has only begun.
    wrong = np.flatnonzero(step_types != expected)
    if wrong.tolist() == [len(step_types) - 1] and step_types[-1] == MID:
        return False
    if len(wrong):
        row = int(wrong[0])
        raise FieldError(
            STEP_TYPE, f"{step_types[row]:g}, expected {expected[row]} (0 first, 1, 2 last)", row
        )
    return len(step_types) > 1


def check_piece(step_types: np.ndarray) -> bool:
    """Returns whether a piece of an episode is all of it, from the beginning to the end.

    Raises:
      FieldError: A row is that of a beginning, but not the first; or of an end, but not the last.
    """
    index = np.arange(len(step_types))
    is_possible = (
        (step_types == MID)
        | ((step_types == FIRST) & (index == 0))
        | ((step_types == LAST) & (index == index[-1]))
    )
    wrong = np.flatnonzero(~is_possible)
    if len(wrong):
        row = int(wrong[0])
        raise FieldError(
            STEP_TYPE,
            f"{step_types[row]:g}, expected 1, or 0 in the first row, or 2 in the last",
            row,
        )
    return bool(step_types[0] == FIRST and step_types[-1] == LAST)


def _merged(columns: Any, more: Any) -> Any:
    """Columns with more of them, which may be at other places of the same dicts."""
    if not isinstance(more, Mapping):
        return more
    return {
        **columns,
        **{name: _merged(columns.get(name, {}), child) for name, child in more.items()},
    }
