"""Restored episodes: those of an export, with the values in its sidecar."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from typing_extensions import override

import rlds
from rlds.raw_files.untrusted import source_errors
from rlds.sources import reading
from rlds.sources.sidecar import FIELDS, LostSidecarError, StoredSidecar, field_from_json
from rlds.sources.source import (
    ALL_ROWS,
    FACTS,
    About,
    AnySource,
    Can,
    Fields,
    Origin,
    Place,
    Source,
    SourceEpisode,
    SourceError,
)
from rlds.sources.texts import is_instruction
from rlds.sources.view import View, flat, nested
from rlds.video.fields import camera_path
from rlds_ecosystem.model.fields import as_fields
from rlds_ecosystem.model.nests import at, nest

__all__ = ["DescribedSource", "RestoredSource", "UnrestoredSource", "stored_in", "with_sidecar"]

S = TypeVar("S", bound=Source)


def with_sidecar(source: AnySource) -> AnySource:
    """Returns a source restored from its sidecar; or the source itself, without one.

    Warns if the data has one that is missing, or is of other data.
    """
    try:
        kept = None if source.can.sidecar is None else source.can.sidecar()
        if kept is None or not isinstance(source, Source):
            return source
        if kept.splits is None:
            kept.check_number(sum(map(source.num_episodes, source.splits)))
    except LostSidecarError as error:
        warnings.warn(str(error), stacklevel=2)
        return UnrestoredSource(source, error) if isinstance(source, Source) else source
    return (DescribedSource if kept.sidecar.is_about else RestoredSource)(source, kept)


def _facts_in(kept: StoredSidecar) -> dict[str, Any]:
    """Returns the description that a sidecar has, and its metadata, as `About` has them."""
    metadata = kept.sidecar.metadata
    with source_errors(kept.place):
        facts: dict[str, Any] = {name: str(metadata[name]) for name in FACTS}
        return {**facts, "metadata": dict(metadata["metadata"])}


def stored_in(place: Place, kind: type[S]) -> tuple[S, StoredSidecar | None]:
    """Returns the source of a format that has a stored episode, and the sidecar beside it."""
    kept, source = None, place.source
    if isinstance(place.source, RestoredSource):
        kept, source = place.source.kept, place.source.source
    assert isinstance(source, kind)
    return source, kept


class DescribedSource(View):
    """The episodes of a source as they are stored, described beside the format.

    Args:
      source: The source.
      kept: The description.
    """

    shares_table = True

    def __init__(self, source: Source, kept: StoredSidecar) -> None:
        super().__init__(source)
        self._kept, self._facts = kept, _facts_in(kept)

    @property
    @override
    def about(self) -> About:
        about = super().about
        metadata = {**about.metadata, **self._facts["metadata"]}
        return about.replace(**{**self._facts, "metadata": metadata})

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        """The fields of the source, with units, names and other meaning from the sidecar."""
        fields, stored = super().fields, self._kept.sidecar.metadata.get(FIELDS, {})
        if not stored:
            return fields
        known = flat(as_fields(fields.steps), as_fields(fields.episode))
        with source_errors(self._kept.place):
            for path, field in ((path, field_from_json(it)) for path, it in stored.items()):
                if getattr(known.get(path), "shape", None) == field.shape:
                    known[path] = dataclasses.replace(known[path], **field.meaning)
        return Fields(*nested(known), fields.flags)

    @override
    def inputs(self) -> Sequence[Any]:
        return [*dict.fromkeys([*super().inputs(), *self._kept.files])]


class UnrestoredSource(View):
    """The episodes of a source whose sidecar is lost: only the fields in the format.

    Args:
      source: The source.
      fault: The fault of the sidecar.
    """

    shares_table = True

    def __init__(self, source: Source, fault: SourceError) -> None:
        super().__init__(source)
        self._fault = fault

    @property
    @override
    def can(self) -> Can:
        return dataclasses.replace(super().can, faults=self._all_faults)

    def _all_faults(self, split: str) -> Iterator[SourceError]:
        yield self._fault
        yield from self._faults(split)


class RestoredSource(Source):
    """The episodes of a source, combined with the values in its sidecar.

    They are no view: what is put together is none of the episodes of the source.

    Args:
      source: The source. The places that were noted are paths of the fields of its steps.
      kept: The sidecar.

    Attributes:
      source: See above.
      kept: See above.
    """

    def __init__(self, source: Source, kept: StoredSidecar) -> None:
        self.source, self.kept, self.opened = source, kept, source.opened
        self.splits, self.may_grow = source.splits, source.may_grow
        self._facts = _facts_in(kept)

    @property
    @override
    def about(self) -> About:
        there = self.source.about
        aliases = self._aliases(there.aliases)
        return there.replace(**self._facts, aliases=aliases, finite=(), images_as_png=True)

    @property
    @override
    def fields(self) -> Fields:
        sidecar = self.kept.sidecar
        return Fields(nest(sidecar.steps), nest(sidecar.episode), self.source.fields.flags)

    def _aliases(self, there: Mapping[str, str]) -> dict[str, str]:
        """Returns the aliases of the source, with the paths of its fields in this one."""
        sidecar = self.kept.sidecar
        fields = {**sidecar.episode, **{f"{rlds.STEPS}/{p}": it for p, it in sidecar.steps.items()}}
        # The text of the task may be that of a field of episodes.
        texts = [path for path, it in fields.items() if it.is_text and is_instruction(path)]
        places = {f"{rlds.STEPS}/{old}": f"{rlds.STEPS}/{p}" for p, old in sidecar.places.items()}
        places |= {old: path for path, old in sidecar.episode_places.items()}
        now = {path: path for path in fields}
        now |= {camera_path(old): camera_path(path) for old, path in places.items()}
        return {
            name: now.get(path, texts[0] if texts and is_instruction(name) else path)
            for name, path in there.items()
            if path != rlds.STEPS
        }

    @override
    def inputs(self) -> Sequence[Any]:
        return [*self.source.inputs(), *self.kept.files]

    @property
    @override
    def can(self) -> Can:
        there = self.source.can
        files = there.image_files
        return Can(
            lengths=self.kept.outlines,
            video=there.video,
            quality=there.quality,
            faults=there.faults,
            origin=self._origin,
            shards=there.shards,
            image_files=None if files is None else self._with_image_files,
            hold_open=there.hold_open,
            keeps_keys=True,
        )

    def _with_image_files(self) -> RestoredSource:
        return RestoredSource(reading.with_image_files(self.source), self.kept)

    @override
    def num_episodes(self, split: str) -> int:
        return self.source.num_episodes(split)

    @override
    def key(self, split: str, index: int) -> str:
        return self.kept.key(split, index)

    def _origin(self, split: str, index: int) -> Origin:
        return self.read(split, index, ()).origin

    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        """Combines the values of fields in the source with those in the sidecar."""
        del rows
        sidecar, steps = self.kept.sidecar, self.fields.step_paths(fields)
        places = {path: sidecar.places[path] for path in steps if path in sidecar.places}
        others = {
            path: sidecar.episode_places[path]
            for path in self.fields.episode_paths(fields)
            if path in sidecar.episode_places
        }
        columns, values = {}, {}
        if places or others:
            fields = [*map(f"{rlds.STEPS}/".__add__, places.values()), *others.values()]
            stored = reading.read(self.source, split, index, fields)
            columns = {path: at(stored.steps, old) for path, old in places.items()}
            values = {path: at(stored.metadata, old) for path, old in others.items()}
        with source_errors(self.kept.place, row=self.kept.row(split, index)):
            return sidecar.unpack(self.kept.read(split, index), columns, steps, values)
