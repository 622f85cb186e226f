"""Sources that change little of what another source gives."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, cast

from typing_extensions import override

from rlds.sources import reading
from rlds.sources.source import (
    ALL_ROWS,
    FACTS,
    Origin,
    Outline,
    Place,
    RandomAccessSource,
    SourceEpisode,
)

__all__ = ["WrappedSource"]

F = TypeVar("F", bound=Callable[..., Any])


def _forwarded(method: F) -> F:
    """Returns a method that is that of the source."""

    @functools.wraps(method, updated=())  # Without the mark of an abstract method.
    def call(self: WrappedSource, *args: Any, **named: Any) -> Any:
        return getattr(self.source, method.__name__)(*args, **named)

    return cast(F, call)


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
        others = "finite_fields", "inputs_may_grow", "images_as_png", "reads_rows"
        for name in (*FACTS, *others, "video", "quality"):
            setattr(self, name, getattr(source, name))

    @property
    @override
    def splits(self) -> Sequence[str]:
        return self.source.splits

    @property
    @override
    def step_flags(self) -> Sequence[str]:
        return self.source.step_flags

    step_fields = _forwarded(RandomAccessSource.step_fields)
    episode_fields = _forwarded(RandomAccessSource.episode_fields)
    metadata = _forwarded(RandomAccessSource.metadata)
    aliases = _forwarded(RandomAccessSource.aliases)
    inputs = _forwarded(RandomAccessSource.inputs)
    options = _forwarded(RandomAccessSource.options)
    totals = _forwarded(RandomAccessSource.totals)
    num_episodes = _forwarded(RandomAccessSource.num_episodes)
    num_steps = _forwarded(RandomAccessSource.num_steps)
    shard_lengths = _forwarded(RandomAccessSource.shard_lengths)
    faults = _forwarded(RandomAccessSource.faults)
    bases = _forwarded(RandomAccessSource.bases)
    outlines = _forwarded(RandomAccessSource.outlines)

    @override
    def with_image_files(self) -> Self:
        source = self.source.with_image_files()
        if source is self.source or not isinstance(source, RandomAccessSource):
            return self
        again = copy.copy(self)
        again.source = source
        return again

    def _number(self, split: str, index: int) -> int:
        """The number in the source of an episode."""
        del split
        return index

    @override
    def key(self, split: str, index: int) -> str:
        return self.source.key(split, self._number(split, index))

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        return reading.read(self.source, split, self._number(split, index), fields, rows)

    @override
    def origin(self, split: str, index: int) -> Origin | None:
        return self.source.origin(split, self._number(split, index))

    @override
    def stored_names(self) -> Mapping[str, str]:
        here = super().stored_names()
        return {path: at for path, at in self.source.stored_names().items() if path in here}

    def stored_at(self, split: str, index: int, *, in_part: bool = False) -> Place | None:
        """Returns None: a wrapped episode is another one, unless a derived class says otherwise."""
        del split, index, in_part
        return None

    @override
    def base_at(self, split: str, index: int) -> tuple[Place, int]:
        return self.source.base_at(split, self._number(split, index))

    @override
    def outline(self, split: str, index: int) -> Outline:
        return reading.outline(self.source, split, self._number(split, index))
