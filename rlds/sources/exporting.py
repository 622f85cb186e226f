"""Episodes of any source, written in the formats of others: any to any.

An `Export` of `rlds.sources.writing` writes a format. Here it is made and run: what it writes
appears when it is complete, is read back, and compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import google_crc32c
from typing_extensions import override

from rlds.sources import lineage, reading
from rlds.sources.digests import COMPARED_FACTS, content_of, differences
from rlds.sources.episode_fields import as_converted
from rlds.sources.episodes import Episodes
from rlds.sources.label_carrying import carry
from rlds.sources.opening import open as open_episodes
from rlds.sources.options import Option, options_of
from rlds.sources.registry import Format, formats
from rlds.sources.source import (
    FACTS,
    AnySource,
    Origin,
    Place,
    Source,
    SourceEpisode,
    SourceError,
)
from rlds.sources.view import flat, stored_at, traced
from rlds.sources.writing import Export, Placement, Watch
from rlds_ecosystem.files.whole_files import made_at_once
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.progress import show_progress

__all__ = [
    "Exported",
    "export",
    "export_class",
    "exports",
    "prepare",
    "write_export",
]

# The codes of a disk, a quota or a limit of the size of files that is used up.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Which placements keep no values.
_INEXACT = ("changed", "lost", "renumbered")


@dataclasses.dataclass(frozen=True)
class Exported:
    """What an export has made.

    Attributes:
      path: Where it is.
      format: Its format.
      num_episodes: How many episodes it has.
      num_steps: How many steps they have; None if they were copied, and not counted.
      placements: What has become of each field.
      left_out: What is wrong with the episodes that were left out, as they are damaged.
    """

    path: str
    format: str
    num_episodes: int
    num_steps: int | None
    placements: tuple[Placement, ...]
    left_out: tuple[str, ...] = ()


def exports() -> dict[str, Mapping[str, Option]]:
    """Returns the formats that can be written, each with the options of `export` for it."""
    return {name: options_of(format.load_export()) for name, format in _written().items()}


def export_class(format: str) -> type[Export]:
    """Returns the class that writes a format.

    Raises:
      ValueError: There is none; says which formats can be written.
    """
    known = _written()
    if format not in known:
        names = ", ".join(known)
        raise ValueError(
            f"format: got {format!r}, which cannot be written; expected one of {names}"
        )
    found: type[Export] = known[format].load_export()
    return found


def _written() -> dict[str, Format]:
    return {name: format for name, format in formats().items() if format.export}


def export(
    source: str | os.PathLike[str] | Episodes | AnySource,
    format: str,
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    source_format: str | None = None,
    source_options: Mapping[str, Any] | None = None,
    allow_loss: bool = False,
    skip_damaged: bool = False,
    verify: bool = True,
    progress: bool | None = False,
    **options: Any,
) -> Exported:
    """Writes episodes of any source in another format.

    Whatever can be read can be written. What the format has no place for is kept beside its data,
    where other readers do not look; `rlds.sources.open` gives the same episodes again. The file or
    the folder appears when it is complete.

    Args:
      source: What `open` takes, the episodes that it returns, or a source.
      format: The format to write, one of `exports()`.
      path: The file or the folder to make, here or in an object store.
      split: The split, or a part such as `train[:10%]`; needed if there are several splits.
      source_format: The format of the source, if it cannot be recognized.
      source_options: Options of the source.
      allow_loss: Whether fields may change, or be lost. If not, that is an error before anything is
        written.
      skip_damaged: Whether to leave out episodes that cannot be read, with a warning.
      verify: Whether to read back what was written, and to compare it.
      progress: Whether to show a progress bar; if None, on a terminal.
      **options: Options of the format, see `exports`.

    Raises:
      FileExistsError: There is something at the path; it is left as it is.
      SourceError: An episode is damaged; says where. Nothing is left at the path.
      TypeError: The format has no such option.
      ValueError: The format cannot hold the episodes as they are; says which fields. Or there is no
        such format.
      OSError: It cannot be written.
    """
    writer = prepare(
        source,
        format,
        split=split,
        source_format=source_format,
        source_options=source_options,
        **options,
    )
    return write_export(
        writer,
        path,
        allow_loss=allow_loss,
        skip_damaged=skip_damaged,
        verify=verify,
        progress=progress,
    )


def write_export(
    writer: Export,
    path: str | os.PathLike[str],
    *,
    allow_loss: bool = False,
    skip_damaged: bool = False,
    verify: bool = True,
    progress: bool | None = False,
    at: str | os.PathLike[str] | None = None,
    described: Mapping[str, Any] | None = None,
) -> Exported:
    """Does what `export` does, with what `prepare` returns.

    Args:
      writer: What `prepare` returns.
      path: See `export`, as for the others.
      allow_loss: See there.
      skip_damaged: See there.
      verify: See there.
      progress: See there.
      at: Where it gets to be when it is written, if that is another place than `path`.
      described: What is said anew of the data as a whole, by the names of facts and of metadata.
    """
    format = writer.format
    writer.check(at or path)
    placements = tuple(writer.placements())
    losses = [str(found) for found in placements if found.how in ("changed", "lost")]
    if losses and not allow_loss:
        raise ValueError(
            f"{format} cannot hold these fields unchanged: {'; '.join(losses)}. Pass "
            "allow_loss=True (--allow-loss on the command line) to write them anyway"
        )
    inexact = {place.field for place in placements if place.how in _INEXACT} | {*writer.unchecked}
    is_checked = verify and writer.is_exact
    # What is damaged has no digest, and is not copied.
    watch = _Watch(writer, inexact, digests=is_checked or skip_damaged, skip_damaged=skip_damaged)
    writer.watch = watch
    with (
        _advice(skip_damaged, at or path),
        made_at_once(path) as draft,
        show_progress(progress) as bars,
    ):
        total = len(writer.episodes) if writer.episodes.has_random_access else None
        task = bars.add_task(f"episodes to {format}", total=total)
        watch.advance = lambda: bars.advance(task)
        writer.write(draft)
        watch.warn()
        again = open_episodes(draft, "all", format=format, **writer.read_options())
        if not allow_loss:
            _check_is_described(again, described or {})
        counts = watch.compare(again, bars) if is_checked else watch.count(again)
        renumbers = any(place.how == "renumbered" for place in placements)
        pairs = enumerate(watch.written)
        others = (pair for pair in pairs if renumbers or pair[1] not in watch.copied)
        carry(writer.episodes, others, again, draft, at or path)
        traces = {split or again.splits[0]: trace for split, trace in watch.traces.items()}
        if writer.lineage is not None and not lineage.is_beside(draft):
            lineage.write_beside(draft, writer.lineage, traces)
    if writer.lineage is not None and os.path.exists(path) and lineage.is_beside(path):
        lineage.write_beside(path, writer.lineage, traces)
    writer.finish(path)
    left_out = tuple(map(str, watch.left_out))
    return Exported(os.fspath(path), format, *counts, placements, left_out)


@contextlib.contextmanager
def _advice(skip_damaged: bool, path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds to errors what to do; of a full disk, names the dataset rather than a draft of it."""
    try:
        yield
    except SourceError as error:
        if not skip_damaged:
            options = "skip_damaged=True (--skip-damaged on the command line)"
            error.add_note(f"Nothing was written. To skip unreadable episodes, pass {options}.")
        raise
    except (OSError, StorageError) as error:
        code = _full_disk(error)
        if code is None:
            raise
        full = OSError(code, os.strerror(code), os.fspath(path))
        full.add_note(
            "Nothing was changed. The new data needs disk space beside the present data. Free "
            "some, or write to another disk (--to on the command line)."
        )
        raise full from error


def _full_disk(error: BaseException | None) -> int | None:
    """Returns the code of a full disk, if that caused an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def prepare(
    source: str | os.PathLike[str] | Episodes | AnySource,
    format: str,
    *,
    split: str | None = None,
    source_format: str | None = None,
    source_options: Mapping[str, Any] | None = None,
    said: Mapping[str, Any] | None = None,
    **options: Any,
) -> Export:
    """Returns what will write episodes in a format, for its `placements`; see `export`.

    `said` is their lineage; if it is None, that of a conversion.
    """
    written_by = export_class(format)
    known = options_of(written_by)
    if unknown := options.keys() - known.keys():
        names = ", ".join(map(str, known.values())) or "none"
        what = f"the format {format} has no option {min(unknown)!r}"
        raise TypeError(f"{what}; its options are: {names}")
    name = ""
    if isinstance(source, Episodes):
        split, source_format = split or source.split, source.format
        source = source.source
    elif isinstance(source, AnySource):
        split = split or "all"
    else:
        found = open_episodes(source, split, format=source_format, **(source_options or {}))
        name = os.fspath(source)
        split, source_format, source = found.split, found.format, found.source
    source, source_format = reading.with_image_files(source), source_format or ""
    if said is None:
        said = lineage.converted(
            source, format, options, name=name, source_format=source_format, split=split
        )
    about = {lineage.KEY: lineage.without_episodes(said)}
    writer = written_by(Episodes(source, split, format=source_format, said=about), **options)
    writer.lineage = said
    return writer


# --- What was written is what was read.


class _Watch(Watch):
    """Notes what an export writes: digests, to compare it when it is read back, and lineage.

    Args:
      export: It.
      inexact: The fields that are not compared.
      digests: Whether digests are needed.
      skip_damaged: Whether episodes that cannot be read are left out.

    Attributes:
      written: The episodes that were written, in their order, each with its digest.
      copied: Which of them were copied as they are stored.
      left_out: What is wrong with those that were left out.
      traces: Where those of each split come from that were written.
      advance: Called after each.
    """

    def __init__(
        self, export: Export, inexact: Collection[str], *, digests: bool, skip_damaged: bool
    ) -> None:
        self._export, self._inexact = export, inexact
        self._has_digests, self._skip_damaged = digests, skip_damaged
        self.advance: Callable[[], None] = lambda: None
        self.begin()

    @override
    def begin(self) -> None:
        self.written: dict[int, int] = {}
        self.copied: set[int] = set()
        self.left_out: list[SourceError] = []
        self.traces: dict[str, lineage.Trace] = {}

    @override
    def note(self, index: int, episode: SourceEpisode | Place) -> None:
        self.written[index] = self._digest(episode) if self._has_digests else 0
        if isinstance(episode, Place):
            self.copied.add(index)
            origin = episode.source.can.origin
            self._trace(index, None if origin is None else origin(episode.split, episode.index))
        else:
            self._trace(index, episode.origin)
        self.advance()

    @override
    def leave_out(self, error: SourceError) -> None:
        if not self._skip_damaged:
            raise error
        self.left_out.append(error)
        self.advance()

    def _trace(self, index: int, origin: Origin | None) -> None:
        episodes, said = self._export.episodes, self._export.lineage
        if said is None:
            return
        source, (split, number) = episodes.source, episodes.place(index)
        name = split if self._export.keeps_splits else ""
        if name not in self.traces:
            self.traces[name] = lineage.Trace(said, reading.bases(source))
        if isinstance(source, Source):
            (source, split, number), _ = traced(source, split, number)
        self.traces[name].add(source, split, number, origin)

    def _digest(self, episode: SourceEpisode | Place) -> int:
        """Returns a CRC-32C of all that `differences` compares."""
        if isinstance(episode, Place):
            return self._export.stored_digest(episode)
        episode, but = self._export.compared(episode), self._inexact
        facts = [f"{name} {getattr(episode, name)}" for name in COMPARED_FACTS if name not in but]
        crc = google_crc32c.value("\n".join(facts).encode())
        fields = flat(episode.steps, episode.metadata)
        for part in content_of({path: fields[path] for path in fields.keys() - {*but}}):
            crc = google_crc32c.extend(crc, bytes(part))
        return int(crc)

    def warn(self) -> None:
        """Warns of episodes that were left out."""
        if self.left_out:
            number = len(self.left_out)
            what = "1 episode is" if number == 1 else f"{number} episodes are"
            first = "" if number == 1 else ", the first"
            warnings.warn(f"{what} damaged and left out{first}: {self.left_out[0]}", stacklevel=3)

    def count(self, found: Episodes) -> tuple[int, int | None]:
        """Returns how many episodes and steps were written."""
        if self.copied:
            return len(found), _num_steps(found)
        steps = [outline.num_steps for outline in found.outlines()]
        return len(steps), sum(steps)

    def compare(self, found: Episodes, bars: Any) -> tuple[int, int | None]:
        """Compares what was written with what was read; returns how many episodes and steps it has.

        Digests do: an episode is read from its source again only to say how it differs.

        Raises:
          ValueError: They differ; says where.
        """
        num_steps, format = 0, self._export.format
        for number, (index, digest) in enumerate(
            bars.track(self.written.items(), description="episodes read back")
        ):
            if not found.has(number):
                raise ValueError(f"{format}: episode {number} is missing in the written files")
            if index in self.copied:
                copy = stored_at(found.source, *found.place(number))
                if copy is None or self._export.stored_digest(copy) != digest:
                    raise ValueError(
                        f"{format}, episode {number}: the copy differs from the original"
                    )
                continue
            other = as_converted(found.episode(number))
            if self._digest(other) != digest:
                self._refuse(number, index, other)
            num_steps += other.num_steps
        if found.has(len(self.written)):
            raise ValueError(
                f"{format}: the files hold more than the {len(self.written)} written episodes"
            )
        return len(self.written), _num_steps(found) if self.copied else num_steps

    def _refuse(self, number: int, index: int, other: SourceEpisode) -> None:
        """Says how an episode differs from what was written."""
        episode, other = map(self._export.compared, (self._export.prepared(index), other))
        for difference in differences(episode, other, self._inexact):
            raise ValueError(
                f"{self._export.format}, episode {number} ({episode.key}): the written episode "
                f"differs from the original: {difference}"
            )


def _num_steps(episodes: Episodes) -> int | None:
    """How many steps there are, where the format says so without the episodes being read."""
    lengths = episodes.lengths()
    return None if lengths is None else int(lengths.num_steps.sum())


def _check_is_described(found: Episodes, described: Mapping[str, Any]) -> None:
    for name, value in described.items():
        said = getattr(found.source.about, name) if name in FACTS else found.metadata.get(name)
        if said != value:
            raise ValueError(
                f"describe: {found.format} cannot hold {name!r}. Leave it out, or allow the loss "
                "(allow_loss=True, --allow-loss on the command line)"
            )
