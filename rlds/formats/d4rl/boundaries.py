"""The rules that divide the rows of a file of D4RL into episodes; see `D4rlSource`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlds.formats.d4rl.rows import INFOS, NEXT_OBSERVATIONS, OBSERVATIONS, TIMEOUTS, RowReader
from rlds_ecosystem.model.fields import Field

__all__ = ["BOUNDARY_RULES", "check_rules", "cut", "differ", "find_ends", "has_index"]

BOUNDARY_RULES = ("flags", "timeouts", "infos_index", "observation_jump", "length", "file")


def check_rules(
    rules: Sequence[str],
    arrays: Mapping[str, Field],
    *,
    length: int | None,
    jump: float | None,
    name: str,
) -> None:
    """Checks that rules are known, and that there is what they need.

    Args:
      rules: The rules.
      arrays: The arrays of the file.
      length: The number of rows of a window, if given.
      jump: The distance of a jump, if given.
      name: What to call the file.

    Raises:
      ValueError: It is not so.
    """
    unknown = sorted(set(rules) - set(BOUNDARY_RULES))
    if unknown or not rules:
        found = unknown or "no rule"
        raise ValueError(f"boundary: got {found}, expected some of {BOUNDARY_RULES}")
    if TIMEOUTS in rules and TIMEOUTS not in arrays:
        raise ValueError(f"boundary: {name} has no timeouts; it has {list(arrays)}")
    if "infos_index" in rules and not has_index(arrays):
        raise ValueError(f"boundary: {name} has no array of integers 'infos'")
    if ("length" in rules) != (length is not None):
        raise ValueError(
            f"boundary: the rule 'length' needs the option length, and the reverse; got {length}"
        )
    if length is not None and length < 1:
        raise ValueError(f"length: got {length}, expected 1 or more")
    if "observation_jump" in rules and NEXT_OBSERVATIONS not in arrays:
        if jump is None:
            raise ValueError(f"boundary: {name} has no next_observations; pass a distance as jump")
        shape = arrays[OBSERVATIONS].shape
        if len(shape) != 1 or shape < (2,):
            raise ValueError(f"boundary: {name} has observations of shape {shape}: no positions")


def has_index(arrays: Mapping[str, Field]) -> bool:
    """Whether `infos` is an array of integers, the index of a demonstration."""
    infos = arrays.get(INFOS)
    return infos is not None and not infos.shape and infos.column_dtype.kind in "iu"


def find_ends(
    rules: Sequence[str],
    reader: RowReader,
    arrays: Collection[str],
    *,
    terminals: np.ndarray,
    timeouts: np.ndarray,
    jump: float | None,
) -> np.ndarray:
    """Returns which rows are the last of their episode, by rules that look at rows.

    Args:
      rules: The rules, as `check_rules` takes them.
      reader: Reads the rows.
      arrays: The names of the arrays.
      terminals: The flags of all rows.
      timeouts: The flags of all rows.
      jump: The distance of a jump of the position.
    """
    find: dict[str, Callable[[], np.ndarray]] = {
        "flags": lambda: terminals | timeouts,
        "timeouts": lambda: timeouts,
        "infos_index": lambda: _compare(reader, INFOS, INFOS, np.not_equal),
        "observation_jump": lambda: (
            _compare(reader, NEXT_OBSERVATIONS, OBSERVATIONS, differ)
            if NEXT_OBSERVATIONS in arrays
            else _compare(reader, OBSERVATIONS, OBSERVATIONS, lambda *rows: _distance(*rows) > jump)
        ),
    }
    ends = np.zeros(len(terminals), bool)
    for rule in rules:
        if rule in find:
            ends |= find[rule]()
    return ends


def cut(ends: np.ndarray, num_rows: int, length: int | None) -> np.ndarray:
    """Returns the rows after the last of each episode, with the end of the file, and of windows."""
    ends = np.union1d(ends, [num_rows])
    if length is None:
        return ends
    begins = [0, *ends[:-1]]
    windows = [np.arange(begin + length, end, length) for begin, end in zip(begins, ends)]
    return np.union1d(ends, np.concatenate(windows))


def _compare(reader: RowReader, name: str, following: str, compare: Callable[..., Any]) -> Any:
    """What a comparison says of each row and the next; false for the last row."""
    found = np.zeros(reader.sizes(name)[0], bool)
    for begin, rows, others in reader.pairs(name, following):
        found[begin : begin + len(rows)] = compare(rows, others)
    return found


def _distance(rows: np.ndarray, others: np.ndarray) -> Any:
    """How far one position, the first two numbers, is from the other."""
    return np.linalg.norm((others - rows)[:, :2], axis=1)


def differ(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which rows differ in any bit; a NaN equals itself, and -0.0 does not equal 0.0."""
    different: np.ndarray = np.any(_bits(rows) != _bits(others), axis=1)
    return different


def _bits(rows: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    return flat.view(f"u{flat.itemsize}")
