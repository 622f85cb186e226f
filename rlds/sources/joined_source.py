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
from rlds.sources.source import ALL_ROWS, Fields, SourceEpisode, SourceInfo, with_random_access
from rlds.sources.view import BaseEpisodes, View

__all__ = ["ALL", "JoinedSource"]

ALL = "all"
"""The single split of joined sources."""


class JoinedSource(View):
    """The episodes of several datasets with the same fields, one after the other, in one split.

    Args:
      datasets: The episodes of each dataset.
      prefixes: The unique prefix of the keys of each dataset.
      source_info: The description of the joined dataset; by default, of the first dataset.
    """

    splits = (ALL,)
    is_by_rows = True
    changes_only_keys = True

    def __init__(
        self,
        datasets: Sequence[Episodes],
        prefixes: Sequence[str] = (),
        source_info: SourceInfo | None = None,
    ) -> None:
        super().__init__(*(with_random_access(dataset.source) for dataset in datasets))
        self._source_info = source_info
        # Runs of episodes: base, its split, end index in the split, key prefix.
        self._runs, lengths = [], []
        for base, dataset, prefix in zip(self.bases, datasets, prefixes or [""] * len(datasets)):
            self._runs += [(base, split, end, prefix) for split, _, end in dataset.ranges]
            lengths += [end - start for _, start, end in dataset.ranges]
        self._stops = np.cumsum(lengths)

    @property
    @override
    def source_info(self) -> SourceInfo:
        return self.bases[0].source_info if self._source_info is None else self._source_info

    @property
    @override
    def fields(self) -> Fields:
        base_flags = [base.fields.flags for base in self.bases]
        common = [name for name in rlds.STEP_FLAGS if all(name in flags for flags in base_flags)]
        return super().fields.replace(flags=common)

    @override
    def num_episodes(self, split: str) -> int:
        return int(self._stops[-1])

    @override
    def base_episodes(self, split: str, episodes: np.ndarray) -> Sequence[BaseEpisodes]:
        runs = np.searchsorted(self._stops, episodes, side="right")
        groups = []
        for run in np.unique(runs).tolist():
            base, name, end, _ = self._runs[run]
            positions = np.flatnonzero(runs == run)
            rows = episodes[positions] + (end - self._stops[run])
            groups.append(BaseEpisodes(positions, base, name, rows))
        return groups

    def _prefix(self, index: int) -> str:
        return self._runs[int(np.searchsorted(self._stops, index, side="right"))][-1]

    @override
    def key(self, split: str, index: int) -> str:
        return self._prefix(index) + super().key(split, index)

    @override
    def changed_episodes(self, split: str, episodes: np.ndarray) -> np.ndarray:
        """Returns a mask of the episodes whose stored key lacks the prefix."""
        is_renamed = [
            prefix != "" and any(root.capabilities.keeps_keys for root in reading.roots(base))
            for base, _, _, prefix in self._runs
        ]
        mask: np.ndarray = np.array(is_renamed)[
            np.searchsorted(self._stops, episodes, side="right")
        ]
        return mask

    @override
    def values(
        self, split: str, index: int, fields: Collection[str] | None, rows: slice = ALL_ROWS
    ) -> tuple[SourceEpisode, dict[str, Any]]:
        episode, values = super().values(split, index, fields, rows)
        converted = as_converted(episode)
        if converted is not episode:
            roots = {rlds.metadata.EPISODE_ID, ORIGIN}
            values = {p: value for p, value in values.items() if p.partition("/")[0] not in roots}
        return dataclasses.replace(converted, key=self._prefix(index) + converted.key), values
