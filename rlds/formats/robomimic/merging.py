"""The common arrays of demonstrations, and the demonstrations that differ from them."""

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

__all__ = ["NEXT", "Merged", "merge", "sound"]

NEXT = "next_obs"
# Arrays with a row for each action in all demonstrations, if they have it in one.
_STEP_ARRAYS = ("obs", NEXT, "rewards", "dones", "states")

_HasSteps: TypeAlias = Callable[[Demo, str], bool]


@dataclasses.dataclass
class Merged:
    """An array or attribute with the dtype and shape that all demonstrations share.

    Attributes:
      kind: The kind of its values.
      dtype: The widest of its dtypes.
      shape: Its shape; None for a size that is not the same in all.
      count: The number of demonstrations with it.
      is_of_steps: Whether it has a row for each step.
    """

    kind: Kind
    dtype: np.dtype
    shape: tuple[int | None, ...]
    count: int = 0
    is_of_steps: bool = True

    def add(self, array: StoredArray, is_of_steps: bool) -> None:
        """Adds the array of a demonstration."""
        self.count += 1
        self.is_of_steps &= is_of_steps
        if array.dtype != self.dtype:
            self.dtype = np.result_type(array.dtype, self.dtype)
        if array.shape != self.shape:
            pairs = zip(array.shape, self.shape)
            self.shape = tuple(one if one == two else None for one, two in pairs)

    def field(self, shape: tuple[int | None, ...], doc: str = "") -> Field:
        """Returns the field of a row, of some rows, or of all."""
        dtypes: Mapping[str, Any] = {"text": str, "bytes": bytes}
        return Field(dtypes.get(self.kind, self.dtype), shape, doc=doc)


def sound(demos: Iterable[Demo]) -> list[Demo]:
    """Returns the demonstrations that are not damaged."""
    return [demo for demo in demos if demo.damage is None]


def merge(
    demos: Sequence[Demo], has_steps: _HasSteps
) -> tuple[dict[str, Merged], dict[str, Merged]]:
    """Returns the arrays and the attributes of demonstrations, by path.

    Demonstrations that are no episodes of one dataset with the others become damaged.

    Args:
      demos: The demonstrations.
      has_steps: Whether an array of a demonstration may have a row for each step.
    """
    known_arrays: Paths[StoredArray] = Paths()
    known_attributes: Paths[StoredArray] = Paths()
    for demo in sound(demos):
        demo.damage = _why_unlike(demo, demo.arrays, known_arrays)
    _find_odd_lengths(demos, has_steps)
    for demo in sound(demos):
        demo.damage = _why_unlike(demo, demo.attributes, known_attributes)
    arrays: dict[str, Merged] = {}
    attributes: dict[str, Merged] = {}
    for demo in sound(demos):
        for merged, of_demo in ((arrays, demo.arrays), (attributes, demo.attributes)):
            for path, stored in of_demo.items():
                at_path = merged.setdefault(path, Merged(stored.kind, stored.dtype, stored.shape))
                at_path.add(stored, merged is arrays and has_steps(demo, path))
    return arrays, attributes


def _why_unlike(
    demo: Demo, arrays: Mapping[str, StoredArray], arrays_before: Paths[StoredArray]
) -> SourceError | None:
    """Describes why a demonstration does not fit the ones before it."""
    for path, array in arrays.items():
        before = arrays_before.get(path, array)
        if conflicts(arrays_before, path):
            fault = "an array here and a group in earlier demonstrations, or the reverse"
        elif before.kind != array.kind:
            fault = f"{array.kind}, but {before.kind} in earlier demonstrations"
        elif len(before.shape) != len(array.shape):
            fault = f"shape {array.shape}, but {before.shape} in earlier demonstrations"
        else:
            continue
        return demo.error(fault, path)
    for path, array in arrays.items():
        if path not in arrays_before:
            arrays_before[path] = array
    return None


def _find_odd_lengths(demos: Sequence[Demo], has_steps: _HasSteps) -> None:
    """Finds demonstrations with too few or too many rows of arrays of steps."""

    def fits(demo: Demo, path: str) -> bool:
        """Whether an array has a row for each action, or, like observations, one more."""
        if root_of(path) == NEXT:
            return demo.rows[path] == demo.length
        return has_steps(demo, path)

    fitting: dict[str, Counter[bool]] = {}
    for demo in sound(demos):
        for path in demo.rows:
            fitting.setdefault(path, Counter())[fits(demo, path)] += 1
    # An array of the episode may have as many rows as there are actions by chance.
    of_steps = {
        path
        for path, counts in fitting.items()
        if counts[True] >= max(1, counts[False]) or (counts[True] and root_of(path) in _STEP_ARRAYS)
    }
    for demo in sound(demos):
        for path in demo.rows:
            if path in of_steps and not fits(demo, path):
                fault = (
                    f"{demo.rows[path]} rows, but there are {demo.length} actions; if it has no "
                    "row for each step, name it in per_episode"
                )
                demo.damage = demo.error(fault, path)
                break
