"""Checksums and origins of the episodes that a conversion writes, and the read-back check."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Collection, Sequence

import google_crc32c
from typing_extensions import override

from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import lineage, reading
from rlds.sources.digests import COMPARED_FACTS, differences, hashed_content
from rlds.sources.episode_fields import as_converted
from rlds.sources.episodes import Episodes
from rlds.sources.source import Location, Origin, Source, SourceEpisode, SourceError
from rlds.sources.view import flat, stored_location, trace
from rlds.sources.writing import Export, Watch
from rlds_ecosystem.files.processes import advance

__all__ = ["Digests", "Notes", "ReadBack"]


@dataclasses.dataclass(frozen=True)
class Digests:
    """Computes the CRC-32C of the values and facts of an episode, for the read-back check.

    Attributes:
      export: The export that writes the episodes.
      uncompared_fields: The fields without a checksum.
    """

    export: Export
    uncompared_fields: Collection[str]

    def of(self, episode: SourceEpisode | Location) -> int:
        """Returns the checksum of an episode, or of the stored form of a copied one."""
        if isinstance(episode, Location):
            return self.export.stored_digest(episode)
        episode, but = self.export.compared(episode), self.uncompared_fields
        facts = [f"{name} {getattr(episode, name)}" for name in COMPARED_FACTS if name not in but]
        crc = google_crc32c.value("\n".join(facts).encode())
        fields = flat(episode.steps, episode.metadata)
        for part in hashed_content({path: fields[path] for path in fields.keys() - {*but}}):
            crc = google_crc32c.extend(crc, bytes(part))
        return int(crc)


class Notes(Watch):
    """The records of a running export: checksums and origins of the written episodes.

    Args:
      export: The export.
      digests: Computes the checksums; None if they are not needed.
      skip_damaged: True to leave out unreadable episodes.
      on_episode: Called after each episode.

    Attributes:
      written: The checksums of the written episodes, by their numbers, in the order of writing.
      origins: The locations of the written episodes in the source files, by their numbers.
      copied: The numbers of the episodes that were copied in their stored form.
      left_out: The errors of the damaged episodes, by their numbers.
    """

    def __init__(
        self,
        export: Export,
        digests: Digests | None,
        *,
        skip_damaged: bool,
        on_episode: Callable[[], None] = advance,
    ) -> None:
        self._export, self._digests = export, digests
        self._skip_damaged, self._on_episode = skip_damaged, on_episode
        self.begin()

    @override
    def begin(self) -> None:
        self.written: dict[int, int] = {}
        self.origins: dict[int, Origin | None] = {}
        self.copied: set[int] = set()
        self.left_out: dict[int, SourceError] = {}

    @override
    def note(
        self, index: int, episode: SourceEpisode | Location | None, digest: int | None = None
    ) -> None:
        if (staged := self._export.staged_with(index)) is not None:
            self.written[index], self.origins[index] = staged.digest_and_origin(index)
        elif isinstance(episode, Location):
            self.copied.add(index)
            origin = episode.source.can.origin
            origin_of_copy = None if origin is None else origin(episode.split, episode.index)
            self.written[index], self.origins[index] = self._digest(episode), origin_of_copy
        elif episode is not None:
            digest = self._digest(episode) if digest is None else digest
            self.written[index], self.origins[index] = digest, episode.origin
        self._on_episode()

    def _digest(self, episode: SourceEpisode | Location) -> int:
        return 0 if self._digests is None else self._digests.of(episode)

    @override
    def leave_out(self, index: int, error: SourceError) -> None:
        if not self._skip_damaged or isinstance(error, SourceChangedError):
            raise error
        self.left_out[index] = error
        self._on_episode()

    def warn(self) -> None:
        """Warns of damaged episodes that were left out."""
        if self.left_out:
            num_left_out = len(self.left_out)
            subject = "1 episode is" if num_left_out == 1 else f"{num_left_out} episodes are"
            first = "" if num_left_out == 1 else ", the first"
            error = next(iter(self.left_out.values()))
            warnings.warn(f"{subject} damaged and left out{first}: {error}", stacklevel=3)

    def traces(self) -> dict[str, lineage.Trace]:
        """Returns the lineage of the episodes of each split that was written."""
        episodes, record = self._export.episodes, self._export.lineage
        by_split: dict[str, lineage.Trace] = {}
        if record is None:
            return by_split
        bases = reading.bases(episodes.source)
        for index, origin in self.origins.items():
            source, (split, at) = episodes.source, episodes.locate(index)
            name = split if self._export.keeps_splits else ""
            if name not in by_split:
                by_split[name] = lineage.Trace(record, bases)
            if isinstance(source, Source):
                (source, split, at), _ = trace(source, split, at)
            by_split[name].add(source, split, at, origin)
        return by_split


@dataclasses.dataclass(frozen=True)
class ReadBack:
    """Compares the checksums of written and source episodes, a range of episodes at a time.

    An episode is read from its source again only to describe a difference.

    Attributes:
      digests: Computes the checksums, for the export that has written the episodes.
      read_back: The written episodes. Another process opens them again.
      written: For each written episode its number in the source, its checksum, and True if this is
        the checksum of its stored form.
    """

    digests: Digests
    read_back: Episodes
    written: Sequence[tuple[int, int, bool]]

    @classmethod
    def of(cls, notes: Notes, read: Episodes, digests: Digests) -> ReadBack:
        """Returns the comparison of a written dataset with the records of its export."""
        stored = notes.written if digests.export.compares_stored else notes.copied
        written = [(index, crc, index in stored) for index, crc in notes.written.items()]
        return cls(digests, read, written)

    def __call__(self, numbers: range) -> int:
        """Compares episodes; returns the number of steps of those compared by their values.

        Raises:
          ValueError: An episode differs; the message has its location.
        """
        with (self.read_back.source.can.hold_open or contextlib.nullcontext)():
            return self._compare(numbers)

    def _compare(self, numbers: range) -> int:
        num_steps, format = 0, self.digests.export.format
        for number in numbers:
            index, digest, is_stored = self.written[number]
            if not self.read_back.has(number):
                raise ValueError(f"{format}: episode {number} is missing in the written files")
            if is_stored:
                if self._digest_of_copy(number) != digest:
                    raise ValueError(
                        f"{format}, episode {number}: what is read back differs from what was "
                        "written; write it again, to another disk"
                    )
            else:
                other = as_converted(self.read_back.episode(number))
                if self.digests.of(other) != digest:
                    self._raise_difference(number, index, other)
                num_steps += other.num_steps
            advance()
        return num_steps

    def _digest_of_copy(self, number: int) -> int | None:
        copy = stored_location(self.read_back.source, *self.read_back.locate(number))
        return None if copy is None else self.digests.of(copy)

    def _raise_difference(self, number: int, index: int, other: SourceEpisode) -> None:
        """Raises an error with the differences between an episode and the written one."""
        export = self.digests.export
        episode, other = map(export.compared, (export.read_episode(index), other))
        for difference in differences(episode, other, self.digests.uncompared_fields):
            raise ValueError(
                f"{export.format}, episode {number} ({episode.key}): the written episode "
                f"differs from the original: {difference}"
            )
