"""The rules that divide the rows of a file of D4RL into episodes; see `D4rlSource`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from rlds.formats.d4rl.rows import INFOS, NEXT_OBSERVATIONS, OBSERVATIONS, TIMEOUTS, RowReader
from rlds.formats.rows_source import differ
from rlds_ecosystem.model.fields import Field

__all__ = ["BOUNDARY_RULES", "Boundary", "has_index"]

BOUNDARY_RULES = ("flags", "timeouts", "infos_index", "observation_jump", "length", "file")


@dataclasses.dataclass(frozen=True)
class Boundary:
    """Rules for the ends of episodes, combined by union.

    Attributes:
      rules: The rules, some of `BOUNDARY_RULES`.
      length: The number of rows of a window, for the rule `length`.
      jump: The distance of a jump of the position, for the rule `observation_jump`.
    """

    rules: tuple[str, ...]
    length: int | None = None
    jump: float | None = None

    def check(self, arrays: Mapping[str, Field], name: str) -> None:
        """Checks that the rules are valid, and that their arrays exist.

        Args:
          arrays: The arrays of the file.
          name: The name of the file.

        Raises:
          ValueError: A rule or an option is invalid, or an array is missing.
        """
        rules, length = self.rules, self.length
        unknown = sorted(set(rules) - set(BOUNDARY_RULES))
        if unknown or not rules:
            actual = unknown or "no rule"
            raise ValueError(f"boundary: got {actual}, expected some of {BOUNDARY_RULES}")
        if TIMEOUTS in rules and TIMEOUTS not in arrays:
            raise ValueError(f"boundary: {name} has no timeouts; it has {list(arrays)}")
        if "infos_index" in rules and not has_index(arrays):
            raise ValueError(f"boundary: {name} has no array of integers 'infos'")
        if ("length" in rules) != (length is not None):
            raise ValueError(
                f"boundary: the rule 'length' needs the option length, and vice versa; got {length}"
            )
        if length is not None and length < 1:
            raise ValueError(f"length: got {length}, expected 1 or more")
        if "observation_jump" in rules and NEXT_OBSERVATIONS not in arrays:
            if self.jump is None:
                raise ValueError(
                    f"boundary: {name} has no next_observations; pass a distance as jump"
                )
            shape = arrays[OBSERVATIONS].shape
            if len(shape) != 1 or shape < (2,):
                raise ValueError(
                    f"boundary: {name} has observations of shape {shape}: no positions"
                )

    def find_ends(
        self,
        reader: RowReader,
        arrays: Collection[str],
        terminals: np.ndarray,
        timeouts: np.ndarray,
    ) -> np.ndarray:
        """Returns a mask of the last rows of episodes, by rules on rows.

        Args:
          reader: Reads the rows.
          arrays: The names of the arrays.
          terminals: The terminal flags of all rows.
          timeouts: The timeout flags of all rows.
        """
        is_end = np.zeros(len(terminals), bool)
        if "flags" in self.rules:
            is_end |= terminals | timeouts
        if "timeouts" in self.rules:
            is_end |= timeouts
        if "infos_index" in self.rules:
            is_end |= _compare(reader, INFOS, INFOS, np.not_equal)
        if "observation_jump" in self.rules:
            if NEXT_OBSERVATIONS in arrays:
                is_end |= _compare(reader, NEXT_OBSERVATIONS, OBSERVATIONS, differ)
            else:
                is_end |= _compare(reader, OBSERVATIONS, OBSERVATIONS, self._is_jump)
        return is_end

    def _is_jump(self, rows: np.ndarray, next_rows: np.ndarray) -> Any:
        """Whether the position (first two numbers) jumps farther than `jump` to the next row."""
        return np.linalg.norm((next_rows - rows)[:, :2], axis=1) > self.jump

    def cut(self, is_end: np.ndarray) -> np.ndarray:
        """Returns the end rows of episodes, including the ends of the file and of windows."""
        end_rows = np.union1d(np.flatnonzero(is_end) + 1, [len(is_end)])
        length = self.length
        if length is None:
            return end_rows
        starts = [0, *end_rows[:-1]]
        windows = [np.arange(start + length, end, length) for start, end in zip(starts, end_rows)]
        return np.union1d(end_rows, np.concatenate(windows))


def has_index(arrays: Mapping[str, Field]) -> bool:
    """Whether `infos` is an array of integers, the index of a demonstration."""
    infos = arrays.get(INFOS)
    return infos is not None and not infos.shape and infos.column_dtype.kind in "iu"


def _compare(reader: RowReader, name: str, next_name: str, compare: Callable[..., Any]) -> Any:
    """Returns the result of a comparison of each row with the next; false for the last row."""
    result = np.zeros(reader.sizes(name)[0], bool)
    for start, rows, next_rows in reader.pairs(name, next_name):
        result[start : start + len(rows)] = compare(rows, next_rows)
    return result
