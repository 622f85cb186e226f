"""The episodes of several datasets as one dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources import reading
from rlds.sources.episode_fields import ORIGIN, as_converted
from rlds.sources.episodes import Episodes
from rlds.sources.source import (
    ALL_ROWS,
    About,
    Fields,
    SourceEpisode,
    with_random_access,
)
from rlds.sources.view import Chosen, View

__all__ = ["ALL", "JoinedSource"]

ALL = "all"
"""The single split of joined sources."""


class JoinedSource(View):
    """The episodes of several datasets with the same fields, one after the other, in one split.

    Args:
      parts: The episodes of each dataset.
      prefixes: The unique prefix of the keys of each dataset.
      about: The description of the joined dataset; that of the first one if None.
    """

    splits = (ALL,)
    is_by_rows = True
    touches_only_keys = True

    def __init__(
        self, parts: Sequence[Episodes], prefixes: Sequence[str] = (), about: About | None = None
    ) -> None:
        super().__init__(*(with_random_access(part.source) for part in parts))
        self._about = about
        # Runs of episodes: base, its split, end index there, key prefix.
        self._runs, lengths = [], []
        for base, part, prefix in zip(self.bases, parts, prefixes or [""] * len(parts)):
            self._runs += [(base, split, end, prefix) for split, _, end in part.ranges]
            lengths += [end - begin for _, begin, end in part.ranges]
        self._ends = np.cumsum(lengths)

    @property
    @override
    def about(self) -> About:
        return self.bases[0].about if self._about is None else self._about

    @property
    @override
    def fields(self) -> Fields:
        flags_of_bases = [base.fields.flags for base in self.bases]
        flags = [name for name in rlds.STEP_FLAGS if all(name in of for of in flags_of_bases)]
        return super().fields.replace(flags=flags)

    @override
    def num_episodes(self, split: str) -> int:
        return int(self._ends[-1])

    @override
    def where(self, split: str, episodes: np.ndarray) -> Sequence[Chosen]:
        runs = np.searchsorted(self._ends, episodes, side="right")
        chosen = []
        for run in np.unique(runs).tolist():
            base, name, end, _ = self._runs[run]
            at = np.flatnonzero(runs == run)
            chosen.append(Chosen(at, base, name, episodes[at] + (end - self._ends[run])))
        return chosen

    def _prefix(self, index: int) -> str:
        return self._runs[int(np.searchsorted(self._ends, index, side="right"))][-1]

    @override
    def key(self, split: str, index: int) -> str:
        return self._prefix(index) + super().key(split, index)

    @override
    def touches(self, split: str, episodes: np.ndarray) -> np.ndarray:
        """Returns a mask of the episodes whose stored key lacks the prefix."""
        is_renamed = [
            prefix != "" and any(it.can.keeps_keys for it in reading.bases(base))
            for base, _, _, prefix in self._runs
        ]
        mask: np.ndarray = np.array(is_renamed)[np.searchsorted(self._ends, episodes, side="right")]
        return mask

    @override
    def values(
        self, split: str, index: int, fields: Collection[str] | None, rows: slice = ALL_ROWS
    ) -> tuple[SourceEpisode, dict[str, Any]]:
        episode, values = super().values(split, index, fields, rows)
        named = as_converted(episode)
        if named is not episode:
            own = {rlds.metadata.EPISODE_ID, ORIGIN}
            values = {p: value for p, value in values.items() if p.partition("/")[0] not in own}
        return dataclasses.replace(named, key=self._prefix(index) + named.key), values
