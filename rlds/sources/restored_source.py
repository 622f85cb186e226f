"""Episodes of an export, restored with the values in its sidecar."""

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
    INFO_TEXTS,
    AnySource,
    Capabilities,
    Fields,
    Location,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    SourceInfo,
)
from rlds.sources.texts import is_instruction
from rlds.sources.view import View, flat, nested
from rlds.video.fields import camera_path
from rlds_ecosystem.model.fields import as_fields
from rlds_ecosystem.model.nests import lookup, nest

__all__ = ["DescribedSource", "RestoredSource", "UnrestoredSource", "stored_in", "with_sidecar"]

S = TypeVar("S", bound=Source)


def with_sidecar(source: AnySource) -> AnySource:
    """Returns a source restored from its sidecar; the source itself without a sidecar.

    Warns if the sidecar of the data is missing, or belongs to other data.
    """
    try:
        open_sidecar = source.capabilities.sidecar
        stored_sidecar = None if open_sidecar is None else open_sidecar()
        if stored_sidecar is None or not isinstance(source, Source):
            return source
        if stored_sidecar.splits is None:
            stored_sidecar.check_count(sum(map(source.num_episodes, source.splits)))
    except LostSidecarError as error:
        warnings.warn(str(error), stacklevel=2)
        return UnrestoredSource(source, error) if isinstance(source, Source) else source
    kind = DescribedSource if stored_sidecar.sidecar.is_metadata_only else RestoredSource
    return kind(source, stored_sidecar)


def _read_source_info(stored_sidecar: StoredSidecar) -> dict[str, Any]:
    """Returns the description and the metadata in a sidecar, as arguments of `SourceInfo`."""
    metadata = stored_sidecar.sidecar.metadata
    with source_errors(stored_sidecar.path):
        texts: dict[str, Any] = {name: str(metadata[name]) for name in INFO_TEXTS}
        return {**texts, "metadata": dict(metadata["metadata"])}


def stored_in(location: Location, kind: type[S]) -> tuple[S, StoredSidecar | None]:
    """Returns the source that reads a stored episode from files, and its sidecar or None."""
    stored_sidecar, source = None, location.source
    if isinstance(location.source, RestoredSource):
        stored_sidecar, source = location.source.stored_sidecar, location.source.source
    assert isinstance(source, kind)
    return source, stored_sidecar


class DescribedSource(View):
    """A source with a description and metadata from its sidecar.

    Args:
      source: The source.
      stored_sidecar: The sidecar.
    """

    shares_table = True

    def __init__(self, source: Source, stored_sidecar: StoredSidecar) -> None:
        super().__init__(source)
        self._stored_sidecar, self._stored_info = stored_sidecar, _read_source_info(stored_sidecar)

    @property
    @override
    def source_info(self) -> SourceInfo:
        info = super().source_info
        metadata = {**info.metadata, **self._stored_info["metadata"]}
        return info.replace(**{**self._stored_info, "metadata": metadata})

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        """The fields of the source, with units, names and other meaning from the sidecar."""
        fields, entries = super().fields, self._stored_sidecar.sidecar.metadata.get(FIELDS, {})
        if not entries:
            return fields
        leaves = flat(as_fields(fields.steps), as_fields(fields.episode))
        with source_errors(self._stored_sidecar.path):
            for path, field in ((path, field_from_json(entry)) for path, entry in entries.items()):
                if getattr(leaves.get(path), "shape", None) == field.shape:
                    leaves[path] = dataclasses.replace(leaves[path], **field.meaning)
        return Fields(*nested(leaves), fields.flags)

    @override
    def inputs(self) -> Sequence[Any]:
        return [*dict.fromkeys([*super().inputs(), *self._stored_sidecar.files])]


class UnrestoredSource(View):
    """The episodes of a source whose sidecar is lost: only the fields in the format.

    Args:
      source: The source.
      problem: The fault of the sidecar.
    """

    shares_table = True

    def __init__(self, source: Source, problem: SourceError) -> None:
        super().__init__(source)
        self._problem = problem

    @property
    @override
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(super().capabilities, faults=self._all_faults)

    def _all_faults(self, split: str) -> Iterator[SourceError]:
        yield self._problem
        yield from self._find_faults(split)


class RestoredSource(Source):
    """The episodes of a source, combined with the values in its sidecar.

    It is not a view, because its episodes differ from the episodes of the source.

    Args:
      source: The source; its fields are the fields of the format in the layout of the sidecar.
      stored_sidecar: The sidecar.

    Attributes:
      source: See above.
      stored_sidecar: See above.
    """

    def __init__(self, source: Source, stored_sidecar: StoredSidecar) -> None:
        self.source, self.opened_files = source, source.opened_files
        self.stored_sidecar = stored_sidecar
        self.splits, self.may_grow = source.splits, source.may_grow
        self._stored_info = _read_source_info(stored_sidecar)

    @property
    @override
    def source_info(self) -> SourceInfo:
        info = self.source.source_info
        aliases = self._aliases(info.aliases)
        return info.replace(
            **self._stored_info, aliases=aliases, finite_fields=(), images_as_png=True
        )

    @property
    @override
    def fields(self) -> Fields:
        sidecar = self.stored_sidecar.sidecar
        return Fields(nest(sidecar.steps), nest(sidecar.episode), self.source.fields.flags)

    def _aliases(self, source_aliases: Mapping[str, str]) -> dict[str, str]:
        """Returns the aliases of the source, with the paths of the restored fields."""
        sidecar = self.stored_sidecar.sidecar
        fields = {**sidecar.episode, **{f"{rlds.STEPS}/{p}": f for p, f in sidecar.steps.items()}}
        # The instruction may be a field of episodes.
        texts = [path for path, field in fields.items() if field.is_text and is_instruction(path)]
        paths = {f"{rlds.STEPS}/{old}": f"{rlds.STEPS}/{p}" for p, old in sidecar.paths.items()}
        paths |= {old: path for path, old in sidecar.episode_paths.items()}
        old_paths = {path: path for path in fields}
        old_paths |= {camera_path(old): camera_path(path) for old, path in paths.items()}
        return {
            name: old_paths.get(path, texts[0] if texts and is_instruction(name) else path)
            for name, path in source_aliases.items()
            if path != rlds.STEPS
        }

    @override
    def inputs(self) -> Sequence[Any]:
        return [*self.source.inputs(), *self.stored_sidecar.files]

    @property
    @override
    def capabilities(self) -> Capabilities:
        capabilities = self.source.capabilities
        files = capabilities.image_files
        return Capabilities(
            lengths=self.stored_sidecar.summaries,
            video=capabilities.video,
            quality=capabilities.quality,
            faults=capabilities.faults,
            origin=self._origin,
            shards=capabilities.shards,
            image_files=None if files is None else self._with_image_files,
            hold_open=capabilities.hold_open,
            keeps_keys=True,
        )

    def _with_image_files(self) -> RestoredSource:
        return RestoredSource(reading.with_image_files(self.source), self.stored_sidecar)

    @override
    def num_episodes(self, split: str) -> int:
        return self.source.num_episodes(split)

    @override
    def key(self, split: str, index: int) -> str:
        return self.stored_sidecar.key(split, index)

    def _origin(self, split: str, index: int) -> Origin:
        return self.read(split, index, ()).origin

    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        """Combines the values in the source with the values in the sidecar."""
        del rows
        sidecar, steps = self.stored_sidecar.sidecar, self.fields.step_paths(fields)
        step_paths = {path: sidecar.paths[path] for path in steps if path in sidecar.paths}
        episode_paths = {
            path: sidecar.episode_paths[path]
            for path in self.fields.episode_paths(fields)
            if path in sidecar.episode_paths
        }
        columns, values = {}, {}
        if step_paths or episode_paths:
            fields = [*map(f"{rlds.STEPS}/".__add__, step_paths.values()), *episode_paths.values()]
            episode = reading.read(self.source, split, index, fields)
            columns = {path: lookup(episode.steps, old) for path, old in step_paths.items()}
            values = {path: lookup(episode.metadata, old) for path, old in episode_paths.items()}
        with source_errors(self.stored_sidecar.path, row=self.stored_sidecar.row(split, index)):
            return sidecar.unpack(self.stored_sidecar.read(split, index), columns, steps, values)
