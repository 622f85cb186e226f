"""A small source for tests of conversions."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from rlds.alignment import from_sars
from rlds.sources.source import (
    Capabilities,
    Fields,
    Lengths,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    SourceInfo,
)


class ToySource(Source):
    """Generated episodes of varying length; every second one terminates."""

    fields = Fields(
        {
            "observation": np.float64,
            "action": np.int64,
            "reward": np.float32,
            "discount": np.float32,
        },
        {"seed": np.int64},
    )

    def __init__(
        self, path: Any, num_episodes: int = 10, damaged: int | None = None, nan: int | None = None
    ) -> None:
        self.path = epath.Path(path)
        self.count, self.damaged, self.nan = num_episodes, damaged, nan

    @functools.cached_property
    def source_info(self) -> SourceInfo:
        metadata, options = {"made_by": "nobody"}, {"num_episodes": self.count}
        return SourceInfo(metadata=metadata, options=options, finite_fields=("observation",))

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(totals=self._totals, lengths=self._lengths)

    def inputs(self) -> list[epath.Path]:
        return [self.path]

    def num_episodes(self, split: str) -> int:
        return self.count

    def _totals(self, split: str) -> Mapping[str, int]:
        return {"rows": sum(1 + index % 3 for index in range(self.count))}

    def _lengths(self, split: str) -> Lengths:
        lengths = [2 + index % 3 for index in range(self.num_episodes(split))]
        return Lengths.create(lengths, final_observation_known=True)

    def key(self, split: str, index: int) -> str:
        return f"{self.path.name}:{index}"

    def read(
        self, split: str, index: int, fields: Any = None, rows: slice = slice(None)
    ) -> SourceEpisode:
        if index == self.damaged:
            raise SourceError("scratched", file=self.path, episode=index, row=3, field="action")
        length = 1 + index % 3
        observation = (np.arange(length + 1) + index) / 7
        if index == self.nan:
            observation[1] = np.nan
        return SourceEpisode(
            self.key(split, index),
            from_sars(
                observation=observation,
                action=np.arange(length),
                reward=np.ones(length, np.float32),
                terminal=index % 2 == 0,
            ),
            Origin(self.path.name, index * 10, index * 10 + length),
            truncated=index % 2 == 1,
            metadata={"seed": np.int64(index)},
            counts={"rows": length},
        )
