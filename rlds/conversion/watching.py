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
from rlds.sources.digests import COMPARED_ATTRIBUTES, differences, iter_content
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

    def compute(self, episode: SourceEpisode | Location) -> int:
        """Returns the checksum of an episode, or of the stored form of a copied episode."""
        if isinstance(episode, Location):
            return self.export.stored_digest(episode)
        episode, skipped = self.export.compared(episode), self.uncompared_fields
        names = [name for name in COMPARED_ATTRIBUTES if name not in skipped]
        texts = [f"{name} {getattr(episode, name)}" for name in names]
        crc = google_crc32c.value("\n".join(texts).encode())
        fields = flat(episode.steps, episode.metadata)
        for data in iter_content({path: fields[path] for path in fields.keys() - {*skipped}}):
            crc = google_crc32c.extend(crc, bytes(data))
        return int(crc)


class Notes(Watch):
    """The records of a running export: checksums and origins of the written episodes.

    Args:
      export: The export.
      digests: Computes the checksums; None for no checksums.
      skip_damaged: True to leave out unreadable episodes.
      on_episode: Called after each episode.

    Attributes:
      written: The checksums of the written episodes, by index, in the order of writing.
      origins: The locations of the written episodes in the source files, by index.
      copied: The indices of the episodes that were copied in their stored form.
      left_out: The errors of the damaged episodes, by index.
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
            origin = episode.source.capabilities.origin
            self.written[index] = self._compute_digest(episode)
            self.origins[index] = origin and origin(episode.split, episode.index)
        elif episode is not None:
            digest = self._compute_digest(episode) if digest is None else digest
            self.written[index], self.origins[index] = digest, episode.origin
        self._on_episode()

    def _compute_digest(self, episode: SourceEpisode | Location) -> int:
        return 0 if self._digests is None else self._digests.compute(episode)

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
        """Returns the origins of the episodes of each written split."""
        episodes, record = self._export.episodes, self._export.lineage
        by_split: dict[str, lineage.Trace] = {}
        if record is None:
            return by_split
        bases = reading.roots(episodes.source)
        for index, origin in self.origins.items():
            source, (split, row) = episodes.source, episodes.locate(index)
            name = split if self._export.keeps_splits else ""
            if name not in by_split:
                by_split[name] = lineage.Trace(record, bases)
            if isinstance(source, Source):
                (source, split, row), _ = trace(source, split, row)
            by_split[name].add(source, split, row, origin)
        return by_split


@dataclasses.dataclass(frozen=True)
class ReadBack:
    """Compares the checksums of written and source episodes, a range of episodes at a time.

    Source episodes are only read again to describe a difference.

    Attributes:
      digests: Computes the checksums for the export.
      read_back: The written episodes; worker processes open them again.
      written: For each written episode its index in the source, its checksum, and True if this is
        the checksum of its stored form.
    """

    digests: Digests
    read_back: Episodes
    written: Sequence[tuple[int, int, bool]]

    @classmethod
    def create(cls, notes: Notes, read_back: Episodes, digests: Digests) -> ReadBack:
        """Returns the comparison of a written dataset with the records of its export."""
        copied = notes.written if digests.export.compares_stored else notes.copied
        checksums = [(index, crc, index in copied) for index, crc in notes.written.items()]
        return cls(digests, read_back, checksums)

    def __call__(self, rows: range) -> int:
        """Compares episodes; returns the number of steps of the episodes compared by values.

        Raises:
          ValueError: An episode differs; the message has its location.
        """
        with (self.read_back.source.capabilities.hold_open or contextlib.nullcontext)():
            return self._compare(rows)

    def _compare(self, rows: range) -> int:
        num_steps, format = 0, self.digests.export.format
        for row in rows:
            index, digest, is_stored = self.written[row]
            if not self.read_back.has(row):
                raise ValueError(f"{format}: episode {row} is missing in the written files")
            if is_stored:
                if self._read_copy_digest(row) != digest:
                    raise ValueError(
                        f"{format}, episode {row}: the data on disk differs from the written data; "
                        "write it again, to another disk"
                    )
            else:
                written = as_converted(self.read_back.episode(row))
                if self.digests.compute(written) != digest:
                    self._raise_difference(row, index, written)
                num_steps += written.num_steps
            advance()
        return num_steps

    def _read_copy_digest(self, row: int) -> int | None:
        copy = stored_location(self.read_back.source, *self.read_back.locate(row))
        return None if copy is None else self.digests.compute(copy)

    def _raise_difference(self, row: int, index: int, written: SourceEpisode) -> None:
        """Raises an error about the first difference between a source and a written episode."""
        export = self.digests.export
        episode, written = map(export.compared, (export.read_episode(index), written))
        for difference in differences(episode, written, self.digests.uncompared_fields):
            raise ValueError(
                f"{export.format}, episode {row} ({episode.key}): the written episode "
                f"differs from the original: {difference}"
            )
