"""Some of the episodes of a source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.sources.source import Outlines, Place, RandomAccessSource
from rlds.sources.wrapped import WrappedSource

__all__ = ["SelectedSource"]


class SelectedSource(WrappedSource):
    """Some of the episodes of another source, in any order.

    Args:
      source: The other source.
      chosen: For each split to have, the numbers of its episodes.
      condition: The condition that holds for them, if they were chosen by one.

    Attributes:
      chosen: The numbers.
      condition: The condition.
    """

    def __init__(
        self,
        source: RandomAccessSource,
        chosen: Mapping[str, Sequence[int] | np.ndarray],
        condition: str | None = None,
    ) -> None:
        super().__init__(source)
        self.condition = condition
        self.chosen = {split: np.asarray(rows, np.int64) for split, rows in chosen.items()}

    @property
    @override
    def splits(self) -> Sequence[str]:
        return list(self.chosen)

    @override
    def options(self) -> Mapping[str, Any]:
        rows = {split: rows.tobytes() for split, rows in self.chosen.items()}
        digests = {split: hashlib.sha256(content).hexdigest() for split, content in rows.items()}
        return {**self.source.options(), "episodes": digests}

    @override
    def totals(self, split: str) -> Mapping[str, int]:
        del split
        return {}

    @override
    def shard_lengths(self, split: str) -> Sequence[int]:
        del split
        return ()

    @override
    def num_episodes(self, split: str) -> int:
        return len(self.chosen[split])

    @override
    def num_steps(self, split: str) -> Sequence[int] | None:
        known = self.source.num_steps(split)
        return None if known is None else np.asarray(known)[self.chosen[split]].tolist()

    @override
    def _number(self, split: str, index: int) -> int:
        return int(self.chosen[split][index])

    @override
    def stored_at(self, split: str, index: int, *, in_part: bool = False) -> Place | None:
        return self.source.stored_at(split, self._number(split, index), in_part=in_part)

    @override
    def outlines(self, split: str) -> Outlines | None:
        found = self.source.outlines(split)
        return None if found is None else Outlines(*(a[self.chosen[split]] for a in found))
