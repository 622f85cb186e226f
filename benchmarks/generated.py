"""Any number of episodes that are generated on read, without files."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources import (
    Capabilities,
    Field,
    Fields,
    Lengths,
    Origin,
    Source,
    SourceEpisode,
    SourceInfo,
)

STEPS = 20  # Of an episode.


class GeneratedSource(Source):
    """Small episodes of a robot arm.

    Args:
      num_episodes: The number of episodes.
      knows_lengths: True if the lengths are available before the episodes are read.
    """

    fields = Fields(
        steps={
            "observation": {"state": Field(np.float32, (8,))},
            "action": Field(np.float32, (7,)),
            "reward": np.float32,
            "discount": np.float32,
        }
    )

    def __init__(self, num_episodes: int, *, knows_lengths: bool = True) -> None:
        self._num_episodes, self._knows_lengths = num_episodes, knows_lengths

    @property
    @override
    def source_info(self) -> SourceInfo:
        return SourceInfo(options={"number": self._num_episodes})

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(lengths=self._lengths if self._knows_lengths else None)

    def _lengths(self, split: str) -> Lengths:
        return Lengths.create([STEPS] * self._num_episodes, final_observation_known=True)

    @override
    def inputs(self) -> list[Path]:
        return [Path(__file__)]

    @override
    def num_episodes(self, split: str) -> int:
        return self._num_episodes

    @override
    def key(self, split: str, index: int) -> str:
        return f"{index:07d}"

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = slice(None),
    ) -> SourceEpisode:
        rng = np.random.default_rng(index)
        steps: Any = rlds.from_sars(
            observation={"state": rng.random((STEPS, 8), np.float32)},
            action=rng.random((STEPS - 1, 7), np.float32),
            reward=rng.random(STEPS - 1, np.float32),
            terminal=True,
        )
        return SourceEpisode(
            self.key(split, index), steps, Origin("", index, index + 1), truncated=False
        )
