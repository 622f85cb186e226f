"""Merging of the arrays of demonstrations, with a check for demonstrations that differ."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlds.formats.robomimic.files import Demo
from rlds.raw_files.hdf5_arrays import Kind, StoredArray
from rlds.raw_files.untrusted import SourceError
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import Paths, conflicts, root_of

__all__ = ["NEXT", "ArrayRows", "merge", "skip_damaged"]

NEXT = "next_obs"
# If one demonstration has a row per action in these arrays, all demonstrations must have one.
_STEP_ARRAYS = ("obs", NEXT, "rewards", "dones", "states")

_HasSteps: TypeAlias = Callable[[Demo, str], bool]


@dataclasses.dataclass
class ArrayRows:
    """An array or attribute with the dtype and shape that all demonstrations share.

    Attributes:
      kind: The kind of the values.
      dtype: The widest dtype.
      shape: The shape, with None for sizes that differ between demonstrations.
      count: The number of demonstrations with the array.
      has_step_rows: True if the array has a row for each step.
    """

    kind: Kind
    dtype: np.dtype
    shape: tuple[int | None, ...]
    count: int = 0
    has_step_rows: bool = True

    def add(self, array: StoredArray, has_step_rows: bool) -> None:
        """Adds the array of a demonstration."""
        self.count += 1
        self.has_step_rows &= has_step_rows
        if array.dtype != self.dtype:
            self.dtype = np.result_type(array.dtype, self.dtype)
        if array.shape != self.shape:
            pairs = zip(array.shape, self.shape)
            self.shape = tuple(size if size == other_size else None for size, other_size in pairs)

    def field(self, shape: tuple[int | None, ...], doc: str = "") -> Field:
        """Returns the field of a row, of some rows, or of all."""
        dtypes: Mapping[str, Any] = {"text": str, "bytes": bytes}
        return Field(dtypes.get(self.kind, self.dtype), shape, doc=doc)


def skip_damaged(demos: Iterable[Demo]) -> list[Demo]:
    """Returns the demonstrations that are not damaged."""
    return [demo for demo in demos if demo.damage is None]


def merge(
    demos: Sequence[Demo], has_steps: _HasSteps
) -> tuple[dict[str, ArrayRows], dict[str, ArrayRows]]:
    """Returns the arrays and the attributes of demonstrations, by path.

    Marks demonstrations that contradict earlier ones as damaged.

    Args:
      demos: The demonstrations.
      has_steps: Returns True if an array of a demonstration may have a row for each step.
    """
    earlier_arrays: Paths[StoredArray] = Paths()
    earlier_attributes: Paths[StoredArray] = Paths()
    for demo in skip_damaged(demos):
        demo.damage = _find_difference(demo, demo.arrays, earlier_arrays)
    _find_odd_lengths(demos, has_steps)
    for demo in skip_damaged(demos):
        demo.damage = _find_difference(demo, demo.attributes, earlier_attributes)
    arrays: dict[str, ArrayRows] = {}
    attributes: dict[str, ArrayRows] = {}
    for demo in skip_damaged(demos):
        for target, arrays_of_demo in ((arrays, demo.arrays), (attributes, demo.attributes)):
            for path, array in arrays_of_demo.items():
                entry = target.setdefault(path, ArrayRows(array.kind, array.dtype, array.shape))
                entry.add(array, target is arrays and has_steps(demo, path))
    return arrays, attributes


def _find_difference(
    demo: Demo, arrays: Mapping[str, StoredArray], earlier_arrays: Paths[StoredArray]
) -> SourceError | None:
    """Returns the difference between a demonstration and earlier ones as an error."""
    for path, array in arrays.items():
        earlier_array = earlier_arrays.get(path, array)
        if conflicts(earlier_arrays, path):
            problem = "an array here and a group in earlier demonstrations, or the reverse"
        elif earlier_array.kind != array.kind:
            problem = f"{array.kind}, but {earlier_array.kind} in earlier demonstrations"
        elif len(earlier_array.shape) != len(array.shape):
            problem = f"shape {array.shape}, but {earlier_array.shape} in earlier demonstrations"
        else:
            continue
        return demo.error(problem, path)
    for path, array in arrays.items():
        if path not in earlier_arrays:
            earlier_arrays[path] = array
    return None


def _find_odd_lengths(demos: Sequence[Demo], has_steps: _HasSteps) -> None:
    """Marks demonstrations with an invalid number of rows in arrays of steps as damaged."""

    def has_rows(demo: Demo, path: str) -> bool:
        """Returns True if an array has a row for each action, and maybe a final row."""
        if root_of(path) == NEXT:
            return demo.rows[path] == demo.length
        return has_steps(demo, path)

    fit_counts: dict[str, Counter[bool]] = {}
    for demo in skip_damaged(demos):
        for path in demo.rows:
            fit_counts.setdefault(path, Counter())[has_rows(demo, path)] += 1
    # An array of the episode may have this number of rows by chance: all demos are compared.
    step_arrays = {
        path
        for path, counts in fit_counts.items()
        if counts[True] >= max(1, counts[False]) or (counts[True] and root_of(path) in _STEP_ARRAYS)
    }
    for demo in skip_damaged(demos):
        for path in demo.rows:
            if path in step_arrays and not has_rows(demo, path):
                problem = (
                    f"{demo.rows[path]} rows, but there are {demo.length} actions; if it has no "
                    "row for each step, name it in per_episode"
                )
                demo.damage = demo.error(problem, path)
                break
