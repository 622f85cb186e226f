"""Sources that change little of what another source gives."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rlds.sources import reading
from rlds.sources.source import (
    ALL_ROWS,
    FACTS,
    Outline,
    Outlines,
    Place,
    RandomAccessSource,
    Source,
    SourceEpisode,
    SourceError,
)

__all__ = ["WrappedSource"]


class WrappedSource(RandomAccessSource):
    """The episodes of another source, unless a derived class says otherwise.

    Args:
      source: The other source.

    Attributes:
      source: The other source.
      shares_table: Whether the table of episodes is that of the other source: they differ only in
        images that are decoded or encoded, or in labels.
    """

    shares_table: ClassVar[bool] = False

    def __init__(self, source: RandomAccessSource) -> None:
        self.source = source
        for name in (
            *FACTS,
            *("finite_fields", "inputs_may_grow", "images_as_png", "reads_rows"),
        ):
            setattr(self, name, getattr(source, name))

    @property
    def splits(self) -> Sequence[str]:
        """Those of the source."""
        return self.source.splits

    @property
    def step_flags(self) -> Sequence[str]:
        """Those of the source."""
        return self.source.step_flags

    def step_fields(self) -> Mapping[str, Any]:
        """Those of the source."""
        return self.source.step_fields()

    def episode_fields(self) -> Mapping[str, Any]:
        """Those of the source."""
        return self.source.episode_fields()

    def metadata(self) -> Mapping[str, Any]:
        """That of the source."""
        return self.source.metadata()

    def aliases(self) -> Mapping[str, str]:
        """Those of the source."""
        return self.source.aliases()

    def inputs(self) -> Sequence[Any]:
        """Those of the source."""
        return self.source.inputs()

    def options(self) -> Mapping[str, Any]:
        """Those of the source."""
        return self.source.options()

    def totals(self, split: str) -> Mapping[str, int]:
        """Those of the source."""
        return self.source.totals(split)

    def num_episodes(self, split: str) -> int:
        """As many as the source has."""
        return self.source.num_episodes(split)

    def num_steps(self, split: str) -> Sequence[int] | None:
        """Those of the source."""
        return self.source.num_steps(split)

    def shard_lengths(self, split: str) -> Sequence[int]:
        """Those of the source."""
        return self.source.shard_lengths(split)

    def faults(self, split: str) -> Iterator[SourceError]:
        """Those of the source."""
        return self.source.faults(split)

    def _number(self, split: str, index: int) -> int:
        """The number in the source of an episode."""
        del split
        return index

    def key(self, split: str, index: int) -> str:
        """That of the source."""
        return self.source.key(split, self._number(split, index))

    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        """What the source reads."""
        return reading.read(self.source, split, self._number(split, index), fields, rows)

    def stored_at(self, split: str, index: int, *, in_part: bool = False) -> Place | None:
        """None, as a wrapped episode is another one unless a derived class says otherwise."""
        del split, index, in_part
        return None

    def bases(self) -> Sequence[Source]:
        """Those of the source."""
        return self.source.bases()

    def base_at(self, split: str, index: int) -> tuple[Place, int]:
        """That of the source."""
        return self.source.base_at(split, self._number(split, index))

    def outline(self, split: str, index: int) -> Outline:
        """That of the source."""
        return reading.outline(self.source, split, self._number(split, index))

    def outlines(self, split: str) -> Outlines | None:
        """Those of the source."""
        return self.source.outlines(split)
