"""`rlds diff`: what two datasets have not in common."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlds_tools.describing import Stats, stats
from rlds_tools.inspection import Inspection, inspect
from rlds_tools.results import Block, Result, Table

__all__ = ["Difference", "Differences", "diff"]


@dataclasses.dataclass(frozen=True)
class Difference:
    """A thing that is not the same.

    Attributes:
      what: What it is, such as "step field action".
      one: What it is in the first dataset; None if that does not have it.
      other: What it is in the second one.
    """

    what: str
    one: str | None
    other: str | None


@dataclasses.dataclass(frozen=True)
class Differences(Result):
    """What two datasets have not in common.

    Attributes:
      one: The first dataset.
      other: The second one.
      differences: What is not the same.
      compared: What was compared.
    """

    one: str
    other: str
    differences: tuple[Difference, ...]
    compared: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1 if there are differences, as for `diff`."""
        return 1 if self.differences else 0

    def blocks(self) -> Iterator[Block]:
        """See `Result`."""
        number = len(self.differences)
        found = "no differences" if not number else f"{number} difference{'s'[: number > 1]}"
        yield f"{found} in {', '.join(self.compared)}"
        if self.differences:
            rows = [[d.what, _shown(d.one), _shown(d.other)] for d in self.differences]
            yield Table(["", self.one, self.other], rows)
        if "statistics" not in self.compared:
            yield f"next: rlds diff {self.one} {self.other} --statistics"


def diff(
    one: str | os.PathLike[str],
    other: str | os.PathLike[str],
    *,
    statistics: bool = False,
    tolerance: float = 1e-6,
    progress: bool | None = None,
) -> Differences:
    """Compares two datasets, which may have different formats.

    Args:
      one: A dataset, as `inspect` takes it.
      other: Another one.
      statistics: Whether to compare lengths, total rewards and the statistics of the fields too,
        which takes reading both.
      tolerance: How large a relative difference of numbers may be.
      progress: Whether to show a progress bar; if None, on a terminal.

    Returns:
      The differences in fields, splits, numbers of episodes and steps, and metadata.
    """
    facts = []
    for path in (one, other):
        found = inspect(path)
        if not isinstance(found, Inspection):
            raise ValueError(f"{os.fspath(path)}: a file of records, expected a dataset")
        facts.append(dict(_facts_of(found)))
        if statistics:
            for split in found.splits:
                facts[-1] |= dict(
                    _numbers_of(split.name, stats(path, split.name, progress=progress))
                )
    differences = [
        Difference(what, _text(facts[0].get(what)), _text(facts[1].get(what)))
        for what in {**facts[0], **facts[1]}
        if not _is_same(facts[0].get(what), facts[1].get(what), tolerance)
    ]
    compared = ("fields", "splits", "metadata", *(("statistics",) if statistics else ()))
    return Differences(os.fspath(one), os.fspath(other), tuple(differences), compared)


def _facts_of(found: Inspection) -> Iterator[tuple[str, Any]]:
    yield "format", found.format
    for kind, fields in (("step", found.step_fields), ("episode", found.episode_fields)):
        for field in fields:
            yield f"{kind} field {field.name}", f"{field.dtype} {field.shape} {field.notes}".strip()
    for split in found.splits:
        yield f"{split.name}: episodes", split.episodes
        yield f"{split.name}: steps", split.steps
    for name, value in found.metadata.items():
        if name != "conversion":  # How it was made.
            yield f"metadata {name}", value


def _numbers_of(split: str, described: Stats) -> Iterator[tuple[str, Any]]:
    yield f"{split}: steps", described.steps
    for name, spread in (("length", described.lengths), ("return", described.returns)):
        for part, number in dataclasses.asdict(spread).items() if spread else ():
            yield f"{split}: {part} {name}", number
    for name, field in described.fields.items():
        for part in ("mean", "std", "min", "max"):
            yield f"{split}: {part} of {name}", np.asarray(getattr(field, part))


def _is_same(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, np.ndarray | float) and isinstance(other, np.ndarray | float):
        one, other = np.asarray(one), np.asarray(other)
        same_shape = one.shape == other.shape
        return same_shape and np.allclose(one, other, tolerance, 0, equal_nan=True)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return dict(one) == dict(other)
    return bool(one == other)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=6, threshold=8)
    return str(value)


def _shown(text: str | None, most: int = 40) -> str:
    text = "-" if text is None else " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
