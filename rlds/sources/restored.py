"""Episodes that were exported to another format, as they were before; with what is said of them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

import rlds
from rlds.raw_files.untrusted import source_errors
from rlds.sources import reading
from rlds.sources.sidecar import LostSidecarError, StoredSidecar
from rlds.sources.source import (
    ALL_ROWS,
    FACTS,
    Origin,
    Outline,
    Outlines,
    Place,
    RandomAccessSource,
    Source,
    SourceEpisode,
    SourceError,
)
from rlds.sources.texts import is_instruction
from rlds.sources.wrapped import WrappedSource
from rlds.video.fields import camera_path
from rlds_ecosystem.model.nests import at, nest

__all__ = ["DescribedSource", "RestoredSource", "UnrestoredSource", "with_sidecar"]


def with_sidecar(source: Source) -> Source:
    """Returns a source with what its sidecar has; or the source itself, without one.

    Warns if the data has one that is missing, or is of other data.
    """
    try:
        kept = source.stored_sidecar()
        if kept is None or not isinstance(source, RandomAccessSource):
            return source
        if kept.splits is None:
            kept.check_number(sum(map(source.num_episodes, source.splits)))
    except LostSidecarError as error:
        warnings.warn(str(error), stacklevel=2)
        return UnrestoredSource(source, error) if isinstance(source, RandomAccessSource) else source
    return (DescribedSource if kept.sidecar.is_about else RestoredSource)(source, kept)


def _with_facts(source: Source, kept: StoredSidecar) -> dict[str, Any]:
    """Gives a source the description that a sidecar has; returns its metadata."""
    said = kept.sidecar.metadata
    with source_errors(kept.place):
        for name in FACTS:
            setattr(source, name, str(said[name]))
        return dict(said["metadata"])


class DescribedSource(WrappedSource):
    """The episodes of a source as they are stored, with what is said of them beside the format.

    Args:
      source: The source.
      kept: What is said.
    """

    shares_table = True

    def __init__(self, source: RandomAccessSource, kept: StoredSidecar) -> None:
        super().__init__(source)
        self._kept = kept
        self._said = _with_facts(self, kept)

    @override
    def metadata(self) -> Mapping[str, Any]:
        return {**self.source.metadata(), **self._said}

    @override
    def inputs(self) -> Sequence[Any]:
        return [*dict.fromkeys([*self.source.inputs(), *self._kept.files])]

    @override
    def stored_at(self, split: str, index: int, *, in_part: bool = False) -> Place | None:
        return self.source.stored_at(split, index, in_part=in_part)


class UnrestoredSource(WrappedSource):
    """The episodes of a source whose sidecar is lost: what the format has of them.

    Args:
      source: The source.
      fault: What is wrong with the sidecar.
    """

    shares_table = True

    def __init__(self, source: RandomAccessSource, fault: SourceError) -> None:
        super().__init__(source)
        self._fault = fault

    @override
    def faults(self, split: str) -> Iterator[SourceError]:
        yield self._fault
        yield from self.source.faults(split)

    @override
    def stored_at(self, split: str, index: int, *, in_part: bool = False) -> Place | None:
        return self.source.stored_at(split, index, in_part=in_part)


class RestoredSource(WrappedSource):
    """The episodes of a source, put together with what its sidecar has of them.

    Args:
      source: The source. The places that were noted are paths of the fields of its steps.
      kept: The sidecar.

    Attributes:
      source: See above.
      kept: See above.
    """

    def __init__(self, source: RandomAccessSource, kept: StoredSidecar) -> None:
        super().__init__(source)
        self.kept, self.opened = kept, source.opened
        self.finite_fields, self.images_as_png, self.reads_rows = (), True, False
        self._metadata = _with_facts(self, kept)

    # What is put together is none of the episodes of the source.
    totals, bases = RandomAccessSource.totals, RandomAccessSource.bases
    base_at, stored_at = RandomAccessSource.base_at, RandomAccessSource.stored_at
    stored_names = RandomAccessSource.stored_names

    def step_fields(self) -> Mapping[str, Any]:
        """The fields that the steps had."""
        return nest(self.kept.sidecar.steps)

    def episode_fields(self) -> Mapping[str, Any]:
        """The fields that the episodes had."""
        return nest(self.kept.sidecar.episode)

    def metadata(self) -> Mapping[str, Any]:
        """What was said of the data as a whole."""
        return dict(self._metadata)

    def aliases(self) -> Mapping[str, str]:
        """Those of the source, with the paths that its fields have here."""
        said = self.kept.sidecar
        fields = {**said.episode, **{f"{rlds.STEPS}/{p}": it for p, it in said.steps.items()}}
        # The text of the task may be that of a field of episodes.
        texts = [path for path, it in fields.items() if it.is_text and is_instruction(path)]
        places = {f"{rlds.STEPS}/{place}": f"{rlds.STEPS}/{p}" for p, place in said.places.items()}
        places |= {place: path for path, place in said.episode_places.items()}
        now = {path: path for path in fields}
        now |= {camera_path(place): camera_path(path) for place, path in places.items()}
        return {
            name: now.get(path, texts[0] if texts and is_instruction(name) else path)
            for name, path in self.source.aliases().items()
            if path != rlds.STEPS
        }

    def inputs(self) -> Sequence[Any]:
        """The files of the source, and those that were kept beside them."""
        return [*self.source.inputs(), *self.kept.files]

    @override
    def num_steps(self, split: str) -> Sequence[int] | None:
        known = self.source.num_steps(split) is not None
        return self.outlines(split).num_steps.tolist() if known else None

    def key(self, split: str, index: int) -> str:
        """The key that the episode had."""
        return self.kept.key(split, index)

    @override
    def outline(self, split: str, index: int) -> Outline:
        num_steps, num_transitions, known = self.kept.outlines(split)
        return Outline(int(num_steps[index]), int(num_transitions[index]), bool(known[index]))

    @override
    def outlines(self, split: str) -> Outlines:
        return self.kept.outlines(split)

    @override
    def origin(self, split: str, index: int) -> Origin:
        return self.read(split, index, ()).origin

    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        """Puts what the source has of the wanted fields together with what the sidecar has."""
        del rows
        sidecar, steps = self.kept.sidecar, self.step_paths(fields)
        places = {path: sidecar.places[path] for path in steps if path in sidecar.places}
        others = {
            path: sidecar.episode_places[path]
            for path in self.episode_paths(fields)
            if path in sidecar.episode_places
        }
        columns, values = self._columns(split, index, places, others)
        with source_errors(self.kept.place, row=self.kept.row(split, index)):
            return sidecar.unpack(self.kept.read(split, index), columns, steps, values)

    def _columns(
        self, split: str, index: int, places: Mapping[str, str], others: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the source has of fields of the steps, and of the episode."""
        columns, values = {}, {}
        if places:
            found = reading.read_steps(self.source, split, index, [*places.values()])
            columns = {path: at(found, place) for path, place in places.items()}
        if others:
            found = reading.read_metadata(self.source, split, index, [*others.values()])
            values = {path: at(found, place) for path, place in others.items()}
        return columns, values
