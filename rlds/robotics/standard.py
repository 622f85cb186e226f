"""Conversion of robot actions and states to the standard that Octo and OpenVLA train on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlds.robotics.expressions import Piece, parse
from rlds.robotics.registry import ACTIONS, DatasetMeaning
from rlds.robotics.rules import RULES
from rlds_ecosystem.model.nests import named_leaves, suggest_fields

__all__ = ["fields_of", "standard_columns", "widths_of"]


def standard_columns(steps: Mapping[str, Any], meaning: DatasetMeaning) -> dict[str, np.ndarray]:
    """Returns the standard action and state of each step of an episode, in float32.

    The stored fields do not change. A gripper of 1 is open.

    Args:
      steps: The columns of all steps of the episode: rules use earlier and later steps.
      meaning: The meaning of the fields.

    Returns:
      The columns "action" and "state", if `meaning` defines their conversion, and "is_kept": False
      in steps without a standard action, such as the first and the last step of Bridge.

    Raises:
      KeyError: A field is missing; the message names it.
      ValueError: A field has an unexpected number of elements.

    >>> from rlds.robotics import meaning_of
    >>> steps = {
    ...     "observation": {"state": np.arange(21.0).reshape(3, 7)},
    ...     "action": np.tile([0, 0, 0, 0, 0, 0, 0.99], (3, 1)),
    ... }
    >>> columns = standard_columns(steps, meaning_of("bridge_dataset"))
    >>> columns["action"][1].tolist(), columns["is_kept"].tolist()
    ([7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 1.0], [False, True, False])
    """
    leaves = dict(named_leaves(steps))
    standard, length = {}, 0
    for name, expressions in _parse_expressions(meaning).items():
        pieces = [parse(text) for text in expressions]
        columns = {piece.path: _compute(leaves, piece.path) for piece in pieces if piece.path}
        length = len(next(iter(columns.values())))
        arrays = [_evaluate(columns, piece, length) for piece in pieces]
        standard[name] = np.concatenate(arrays, axis=1, dtype=np.float32, casting="same_kind")
    _check_width(meaning, {name: column.shape[1] for name, column in standard.items()})
    is_kept = np.zeros(length, np.bool_)
    is_kept[slice(*meaning.kept)] = True
    return {**standard, "is_kept": is_kept}


def fields_of(meaning: DatasetMeaning) -> dict[str, tuple[str, ...]]:
    """Returns the source fields of the standard action and state."""
    return {
        name: tuple(dict.fromkeys(piece.path for piece in map(parse, expressions) if piece.path))
        for name, expressions in _parse_expressions(meaning).items()
    }


def widths_of(
    meaning: DatasetMeaning, shapes: Mapping[str, Sequence[int | None]]
) -> dict[str, int]:
    """Returns the numbers of elements of the standard action and state.

    Args:
      meaning: The meaning of the fields.
      shapes: The shapes of the fields of a step, by path.

    Raises:
      KeyError: A field is missing; the message names it.
      ValueError: A field has an unexpected number of elements.
    """
    widths = {}
    for name, expressions in _parse_expressions(meaning).items():
        widths[name] = 0
        for piece in map(parse, expressions):
            size = 1
            if piece.path:
                if piece.path not in shapes:
                    raise KeyError(_describe_missing_field(piece.path, shapes))
                total = math.prod(n or 0 for n in shapes[piece.path])
                size = len(range(total)[piece.elements])
                _check_size(piece, size, total)
            widths[name] += 3 if "euler" in piece.rules else size
    _check_width(meaning, widths)
    return widths


def _parse_expressions(meaning: DatasetMeaning) -> dict[str, tuple[str, ...]]:
    by_name = {"action": meaning.standard_action, "state": meaning.standard_state}
    return {name: expressions for name, expressions in by_name.items() if expressions}


def _evaluate(columns: Mapping[str, np.ndarray], piece: Piece, length: int) -> np.ndarray:
    if not piece.path:
        return np.full((length, 1), piece.constant, np.float32)
    column = columns[piece.path]
    values = column[:, piece.elements]
    _check_size(piece, values.shape[1], column.shape[1])
    for rule in piece.rules if length else ():
        values = RULES[rule](values)
    return values


def _compute(leaves: Mapping[str, Any], path: str) -> np.ndarray:
    if path not in leaves:
        raise KeyError(_describe_missing_field(path, leaves))
    rows = np.asarray(leaves[path])
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    return rows if rows.dtype == np.float64 else rows.astype(np.float32)


def _describe_missing_field(path: str, columns: Mapping[str, Any]) -> str:
    return f"no field {path!r}, which the standard needs; {suggest_fields(path, columns)}"


def _check_size(piece: Piece, size: int, total: int) -> None:
    expected_size = 4 if "euler" in piece.rules else piece.size
    if expected_size not in (None, size):
        begin, end = ("" if n is None else n for n in (piece.begin, piece.end))
        raise ValueError(f"{piece.path}[{begin}:{end}]: the field has {total} elements")


def _check_width(meaning: DatasetMeaning, widths: Mapping[str, int]) -> None:
    expected = len(ACTIONS.get(meaning.action_encoding, ()))
    if expected and widths.get("action", expected) != expected:
        raise ValueError(
            f"{meaning.name}: the action would have {widths['action']} elements, but "
            f"{meaning.action_encoding} has {expected}: the fields differ from the registry"
        )
