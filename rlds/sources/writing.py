"""Exports: writers of episodes in a format, and the placement of each field in the format.

The placements of fields are available before writing. Fields that the format cannot hold are
stored in a sidecar, see `rlds.sources.sidecar`.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

import rlds
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import source_errors
from rlds.sources import lineage, reading
from rlds.sources.episode_fields import as_converted
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.registry import formats
from rlds.sources.restored_source import RestoredSource
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import (
    INFO_TEXTS,
    AnySource,
    EpisodeSummary,
    Location,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    check_flags,
    files_of,
    is_derived,
)
from rlds.sources.view import stored_location
from rlds.video.fields import DEPTH_CODES_DOC
from rlds_ecosystem.model.fields import BGR, Field
from rlds_ecosystem.model.nests import leaves_at, nest

__all__ = [
    "PNGS",
    "Export",
    "Placement",
    "Watch",
    "Workers",
    "check_arrays",
    "encoding_of",
    "is_array",
    "map_serially",
    "pngs_of",
    "sidecar_placements",
    "transition_needed",
    "unchanged_placements",
]

Workers: TypeAlias = "Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]"
"""See `Export.workers`."""

_PNG_ENCODING = "png"
# Suffixes that a folder cannot have.
_SUFFIXES_OF_FILES = (".bag", ".h5", ".hdf5", ".json", ".mcap", ".npz", ".parquet", ".tar", ".zip")
# The reason in the placement of a field whose image files are read back as arrays.
PNGS = "the pixels of PNG files; the files are not kept"


@dataclasses.dataclass(frozen=True)
class Placement:
    """The location of a field in a format, and the changes to the field.

    Attributes:
      field: The path of a field of an episode, such as `steps/action`.
      place: The name of the field in the format; empty if the format cannot hold it.
      how: "exact" if the format holds the field; "decoded" if it holds depths decoded from codes;
        "sidecar" if only the sidecar holds it, which only this library reads; "encoded" if it
        becomes video, as requested; "renumbered" if it counts the written rows, episodes or tasks;
        "changed" if its values change; "lost" if it is not written.
      why: The change, or the reason of the loss.
    """

    field: str
    place: str
    how: Literal["exact", "decoded", "encoded", "sidecar", "renumbered", "changed", "lost"]
    why: str = ""

    def with_reason(self, why: str) -> Placement:
        """Returns the placement of the field with a further reason of the change."""
        return dataclasses.replace(self, why="; ".join(filter(None, [self.why, why])))

    def __str__(self) -> str:
        target = f" -> {self.place}" if self.place else ""
        reason = f": {self.why}" if self.why else ""
        return f"{self.field}{target} ({self.how}{reason})"


class Watch:
    """The observer of an export, notified of each episode; the base class only raises read errors.

    Attributes:
      left_out: The errors of unreadable episodes, by index.
    """

    left_out: Mapping[int, SourceError] = MappingProxyType({})

    def begin(self) -> None:
        """Resets the records before the first episode."""

    def note(
        self, index: int, episode: SourceEpisode | Location | None, digest: int | None = None
    ) -> None:
        """Records the next episode of an export, or the location from which it is copied.

        Args:
          index: The index of the episode.
          episode: The episode; may be None if it is staged.
          digest: The `stored_digest` of the written values, if the export `compares_stored`.

        Raises:
          SourceError: The episode is damaged.
        """

    def leave_out(self, index: int, error: SourceError) -> None:
        """Records an unreadable episode, or raises its error."""
        raise error


class StagedEpisodes(Protocol):
    """The episodes of an export, which workers have written to parts: datasets of its format."""

    @property
    def left_out(self) -> Mapping[int, SourceError]:
        """Errors of unreadable episodes, by index."""

    @property
    def indices(self) -> Set[int]:
        """The indices of the staged episodes in the export."""

    def digest_and_origin(self, index: int) -> tuple[int, Origin | None]:
        """Returns the checksum of an episode as read from its source, and its origin."""

    def locate(self, index: int) -> Location:
        """Returns the location of an episode in the staged parts."""

    def sources(self) -> Iterator[AnySource]:
        """Yields the datasets of the staged parts."""


class Export(abc.ABC):
    """Writes episodes in a format.

    The constructor of a derived class takes episodes and options, and checks them without reading
    an episode. `docs/own_format.md` has an example.

    Args:
      episodes: The episodes.

    Attributes:
      format: The name of the format, as in `rlds.sources.open`.
      suffixes: The allowed suffixes of the written file; empty for a folder.
      keeps_splits: True if the written dataset has the splits of the episodes.
      statistics: Patterns of the names of statistics files of other tools in the dataset folder,
        which are invalid after a change of the episodes.
      needed_flags: The flags that the steps must have.
      episodes: The episodes.
      renumbers_copies: True if copied episodes get new indices in the tables of texts (tasks).
      copies_parts: True if `write` copies the stored form of staged episodes.
      is_exact: True if reading the written dataset gives the same episodes, except for fields that
        change or are lost. If False, the episodes are only counted.
      from_parts: True if the dataset is always joined from parts, even from a single part, because
        its files depend on the sizes of all episodes. For such a format, `staged` is None only
        while a part is written.
      compares_stored: True if the read-back check compares stored forms (`stored_digest`). The
        export itself then checks its encoded values, and passes their digests to `watch`.
      num_steps: The number of written steps, if the export counts them.
      unchecked: Paths of fields whose values may be read back in another form, such as a video in
        another container. These fields are not compared.
      pngs: Fields of steps that are PNG files, which the format stores as arrays of pixels.
      order: The indices of the episodes to write, in order; None for all episodes.
      index: The index of the episode that `iter_items` yielded last.
      lineage: The lineage of the episodes, see `rlds.sources.lineage`.
      watch: The observer of the export, which is notified of each episode.
      staged: The episodes that workers have written to parts; None without parts.
      workers: Maps a function over tasks in several processes; yields each task with its result,
        in order. `write` joins parts with it: the function is pickled, and must be idempotent.
      arguments: The episodes and the options of the constructor, for pickling; None if not set.
    """

    format: ClassVar[str]
    suffixes: tuple[str, ...] = ()
    keeps_splits: ClassVar[bool] = False
    renumbers_copies: ClassVar[bool] = False
    copies_parts: bool = False
    statistics: ClassVar[Sequence[str]] = ()
    needed_flags: ClassVar[Sequence[str]] = rlds.STEP_FLAGS
    is_exact: bool = True
    compares_stored: ClassVar[bool] = False
    num_steps: int | None = None
    from_parts: ClassVar[bool] = False
    unchecked: Collection[str] = ()

    def __init__(self, episodes: Episodes) -> None:
        self.episodes = episodes
        self.pngs: Mapping[str, Any] = {}
        self.order: Sequence[int] | None = None
        self.index = -1
        self.lineage: Mapping[str, Any] | None = None
        self.watch = Watch()
        self.staged: StagedEpisodes | None = None
        self.workers: Workers = map_serially
        self.arguments: tuple[Episodes, Mapping[str, Any]] | None = None

    def __reduce__(self) -> Any:
        if self.arguments is None:
            raise TypeError(f"{type(self).__name__}: only exports of `prepare` can be pickled")
        state = {name: getattr(self, name) for name in ("lineage", "arguments", "order", "staged")}
        return _rebuild, (type(self), *self.arguments), state

    @classmethod
    def part_name(cls, name: str) -> str:
        """Returns the name of the file or the folder of a part of the episodes."""
        return name + next(iter(cls.suffixes), "")

    @abc.abstractmethod
    def placements(self) -> Sequence[Placement]:
        """Returns the placement of each field in the format; reads no episode."""

    @abc.abstractmethod
    def write(self, path: Path) -> None:
        """Writes all episodes, in order.

        Args:
          path: The file or the folder; it must not exist.

        Raises:
          SourceError: An episode cannot be read.
          ValueError: The format cannot hold an episode.
        """

    def check_target(self, path: str | os.PathLike[str]) -> None:
        """Checks the target path before anything is written.

        Raises:
          ValueError: The format needs a file, but the path names a folder, or vice versa.
        """
        name = os.fspath(path)
        if self.suffixes and not name.endswith(self.suffixes):
            suffixes = " or ".join(self.suffixes)
            raise ValueError(
                f"{name!r}: {self.format} writes a file; its name must end with {suffixes}"
            )
        if not self.suffixes and name.endswith(_SUFFIXES_OF_FILES):
            raise ValueError(
                f"{name!r}: {self.format} writes a folder; choose a name without a file suffix"
            )

    def why_unsupported(self, summary: EpisodeSummary) -> str:
        """Explains why the format cannot hold an episode, with a remedy; empty if it can."""
        del summary
        return ""

    def check(self, path: str | os.PathLike[str]) -> None:
        """Checks the target, the flags, the first episode, and episodes without a transition.

        Raises:
          ValueError: The target is unsuitable, or the format cannot hold an episode.
        """
        self.check_target(path)
        source = self.episodes.source
        check_flags(source, self.needed_flags, self.format)
        supports_all = type(self).why_unsupported is Export.why_unsupported
        if supports_all or not isinstance(source, Source):
            return
        all_lengths = self.episodes.lengths()
        short = [] if all_lengths is None else np.flatnonzero(all_lengths.num_steps <= 1).tolist()
        for index in sorted({0, *short}) if len(self.episodes) else ():
            with contextlib.suppress(SourceError):  # Reading the episode raises the error.
                summary = reading.summary(source, *self.episodes.locate(index))
                if problem := self.why_unsupported(summary):
                    key = as_converted(self.episodes.peek(index)).key
                    raise ValueError(f"episode {key}: {problem}")

    def files_order(self) -> Sequence[int] | None:
        """Returns the indices of the episodes in the order of writing; None for all, unsorted."""
        return None

    @property
    def in_parts(self) -> bool:
        """True if workers may write parts of the export, which are then joined."""
        return self.is_exact

    def is_in_format(self, index: int) -> bool:
        """True if an episode is stored in the format of this export, so that it may be copied."""
        source, location = self.episodes.source, self.episodes.locate(index)
        base_location = stored_location(source, *location, ignore_names=True)
        if base_location is None:
            return False
        assert isinstance(source, Source)
        base = base_location.source
        if base.capabilities.keeps_keys and base.key(*base_location[1:]) != source.key(*location):
            return False
        return isinstance(base, self._source_class) or self._is_own(base)

    @functools.cached_property
    def _source_class(self) -> type[AnySource]:
        """The class that reads the format."""
        return formats()[self.format].load()

    def compared(self, episode: SourceEpisode) -> SourceEpisode:
        """Returns an episode with the values for the comparison with the written one."""
        return episode

    def is_stored(self, index: int) -> bool:
        """Whether the values of an episode are stored unchanged, see `stored_location`.

        Fields may be renamed, missing or added.
        """
        source, split, row = self._location_to_read(index)
        return not isinstance(source, Source) or (
            stored_location(source, split, row, ignore_names=True) is not None
        )

    def recorded_metadata(self) -> Mapping[str, Any]:
        """Returns the metadata of this format from the source files of the episodes.

        Empty if an edit has changed the episodes or their description.
        """
        source = self.episodes.source
        metadata = self.episodes.metadata.get(self.format)
        if not isinstance(metadata, Mapping):
            return {}
        if isinstance(source, Source):
            locations = [
                stored_location(source, *self.episodes.locate(index))
                for index in range(len(self.episodes))
            ]
            common = self._metadata_of(source)
            for base in {location.source if location else None for location in locations}:
                if base is None or self._metadata_of(base) != common or self._is_own(base):
                    return {}
        return metadata

    def _is_own(self, source: Source) -> bool:
        """Whether an export in this format wrote the files, with a sidecar."""
        return isinstance(source, RestoredSource) and isinstance(source.source, self._source_class)

    def _metadata_of(self, source: Source) -> dict[str, Any]:
        """Returns the metadata of a source, without the lineage and the metadata of this format."""
        texts = {name: getattr(source.source_info, name) for name in INFO_TEXTS}
        metadata = {**source.source_info.metadata, **texts}
        return {k: value for k, value in metadata.items() if k not in (self.format, lineage.KEY)}

    def finish(self, path: str | os.PathLike[str]) -> None:
        """Writes further files next to the path, before the dataset is moved to the path."""
        del path

    def read_options(self) -> Mapping[str, Any]:
        """Returns the options of `open` for the written dataset."""
        return {}

    def iter_episodes(self) -> Iterator[SourceEpisode]:
        """Yields the episodes in their `order`, and notifies the `watch` of each.

        Raises:
          SourceError: An episode cannot be read, and the `watch` does not leave it out.
          ValueError: There are no episodes, or the format cannot hold an episode.
        """
        for episode in self.iter_items():
            assert isinstance(episode, SourceEpisode)
            yield episode

    def iter_items(
        self, copies: Callable[[Location], bool] = lambda location: False
    ) -> Iterator[SourceEpisode | Location]:
        """Yields episodes, or the `Location` of each episode to copy in stored form.

        Staged episodes are copied if the export `copies_parts`.

        Args:
          copies: Takes a location. Returns True to copy an episode in stored form; the digest of
            the copy is then compared with its `stored_digest`.
        """
        damage = None
        self.watch.begin()
        self.index = -1
        for index in itertools.count() if self.order is None else self.order:
            if not self.episodes.has(index):
                break
            try:
                location = stored_location(*self._location_to_read(index))
                is_staged = self.copies_parts and self.staged_with(index) is not None
                is_copied = location and (is_staged or copies(location))
                episode = location if location and is_copied else self.read_episode(index)
                self.watch.note(index, episode)
            except SourceError as error:
                self.watch.leave_out(index, error)
                damage = damage or error
            else:
                self.index = index
                yield episode
        if self.index < 0:
            problem = f"the split {self.episodes.split!r} has no episodes to write"
            raise damage or ValueError(problem)

    @property
    def is_part(self) -> bool:
        """True while the export writes a part."""
        is_partial = self.order is not None and len(self.order) < len(self.episodes)
        return is_partial and self.staged is None

    def iter_staged(self) -> Iterator[int]:
        """Yields the indices of the staged episodes in their `order`, and notifies the `watch`.

        For exports whose `workers` join the parts.
        """
        assert self.order is not None
        assert self.staged is not None
        self.watch.begin()
        for index in self.order:
            self.watch.note(index, None)
            yield index

    def staged_with(self, index: int) -> StagedEpisodes | None:
        """Returns the staged episodes if they include an episode; None otherwise."""
        return self.staged if self.staged is not None and index in self.staged.indices else None

    def _location_to_read(self, index: int) -> tuple[AnySource, str, int]:
        """Returns the location of an episode: in a part if staged, otherwise in the source."""
        if (staged := self.staged_with(index)) is not None:
            return staged.locate(index)
        return self.episodes.source, *self.episodes.locate(index)

    def stored_digest(self, location: Location) -> int:
        """Returns a checksum of the stored form of an episode; copies have the same checksum.

        Raises:
          SourceError: The episode is damaged.
        """
        raise NotImplementedError

    def read_episode(self, index: int) -> SourceEpisode:
        """Reads an episode for writing, with arrays instead of PNG files (`pngs`).

        Raises:
          SourceError: The episode is damaged.
          ValueError: The format cannot hold the episode.
        """
        if (staged := self.staged_with(index)) is not None:
            episode = as_converted(reading.read(*staged.locate(index)))
        else:
            episode = self._with_pixels(as_converted(self.episodes.episode(index)))
        with source_errors(lambda: files_of(self.episodes.source), episode=episode.key):
            summary = episode.summary
        if problem := self.why_unsupported(summary):
            raise ValueError(f"episode {episode.key}: {problem}")
        return episode

    def _with_pixels(self, episode: SourceEpisode) -> SourceEpisode:
        """Replaces the PNG files of `pngs` by arrays."""
        if not self.pngs:
            return episode
        columns = dict(leaves_at(episode.steps, None))
        columns |= {path: as_values(columns[path], field) for path, field in self.pngs.items()}
        return dataclasses.replace(episode, steps=nest(columns))

    def order_of_origin(self) -> list[int] | None:
        """Returns the episodes of a TFDS dataset in the order of their origins; otherwise None.

        The origin is the location in the source files, before TFDS shuffled the examples.
        """
        if self.episodes.source.capabilities.examples is None:
            return None
        origins = []
        for index in range(len(self.episodes)):
            origin, key = Origin("", 0, 0), ""
            with contextlib.suppress(SourceError):  # Reading the episode raises this error.
                episode = as_converted(self.episodes.peek(index))
                origin, key = episode.origin, episode.key
            # If each episode has its own file or group, the order is that of the names.
            names = natural_order(origin.file), origin.begin, natural_order(key)
            origins.append((*names, index))
        return [index for *_, index in sorted(origins)]


def _rebuild(kind: type[Export], episodes: Episodes, options: Mapping[str, Any]) -> Export:
    return kind(episodes, **options)


def map_serially(function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
    """Maps a function over tasks in this process; yields each task with its result."""
    return ((task, function(task)) for task in tasks)


def pngs_of(steps: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Field]:
    """Returns the fields with PNG files among some paths of steps."""
    return {path: steps[path] for path in paths if encoding_of(steps[path]) == _PNG_ENCODING}


def encoding_of(field: Any) -> str:
    """Returns the image encoding of a field ("png", "jpeg"); empty if it holds no image files."""
    return field.encoding if isinstance(field, Field) else ""


def is_array(field: Any) -> bool:
    """Whether the values of a field of a step are numbers, or arrays of one shape."""
    if not isinstance(field, Field) or field.encoding or field.is_text:
        return False
    return None not in field.shape


def check_arrays(fields: Mapping[str, Any], paths: Iterable[str], reason: str) -> None:
    """Checks fields that the format stores as arrays.

    Args:
      fields: The fields of a step, by path.
      paths: The paths of the fields to check.
      reason: The reason of the requirement, for the error.

    Raises:
      ValueError: A field is missing, or not an array of numbers; the message lists the arrays.
    """
    paths = list(paths)
    for path in paths:
        if paths.count(path) > 1:
            raise ValueError(f"{path!r} is both the observation and the action; {reason}")
        if not is_array(fields.get(path)):
            arrays = [n for n in fields if is_array(fields[n]) and n not in rlds.STEP_FLAGS]
            raise ValueError(
                f"{path!r} is not an array of numbers; {reason}. Name them with observation=..., "
                f"action=... (--to-option on the command line); the steps have {arrays}"
            )


def transition_needed(num_transitions: int, format: str) -> str:
    """Returns the `why_unsupported` of a format that needs a transition in each episode."""
    if num_transitions:
        return ""
    return (
        f"{format} cannot hold an episode without a transition; leave it out with a split (--split "
        "on the command line) such as 'train[:3]+train[4:]'"
    )


def unchanged_placements(episodes: Episodes) -> list[Placement]:
    """Returns the placements of fields in an export that reproduces the source files unchanged."""
    return [
        Placement(path, "unchanged", _storage_kind(field), _channel_note(field))
        for path, field in leaves_at(episodes.spec, None)
    ]


def _storage_kind(field: Any) -> Literal["exact", "decoded"]:
    """Returns how a format holds the values of a field."""
    return "decoded" if getattr(field, "doc", "") == DEPTH_CODES_DOC else "exact"


def _channel_note(field: Any) -> str:
    """Returns the note on the channel order of a field."""
    is_bgr = isinstance(field, Field) and field.names == BGR
    return f"its channels are {', '.join(BGR)}" if is_bgr else ""


def sidecar_placements(
    sidecar: Sidecar, why: Mapping[str, str] | None = None, names: Mapping[str, str] | None = None
) -> list[Placement]:
    """Returns the placements of fields in an export with a sidecar, which keeps all values.

    Args:
      sidecar: The layout: fields in the format, and fields in the sidecar.
      why: The reason why fields are in the sidecar, by path.
      names: The names in the format, by `Placement.field`; by default, the paths of the source.
    """
    derived_paths = [path for path, field in sidecar.steps.items() if is_derived(path, field)]
    why = {**(why or {}), **dict.fromkeys(derived_paths, "it is derived from the flags")}
    steps, episode = sidecar.steps.items(), sidecar.episode.items()
    fields = [(path, f"{rlds.STEPS}/{path}", sidecar.paths, field) for path, field in steps]
    fields += [(path, path, sidecar.episode_paths, field) for path, field in episode]
    return [
        Placement(
            field,
            paths.get(path, "") if names is None else names.get(field, ""),
            _storage_kind(stored_field) if path in paths else "sidecar",
            why.get(path, ""),
        ).with_reason(_channel_note(stored_field))
        for path, field, paths, stored_field in fields
    ]
