"""Episodes of any source, written in the formats of others: any to any.

An `Export` says for each field where its format has it, before anything is written. What the format
has no place for is kept beside its data (`rlds.sources.sidecar`), so that reading it back gives the
same episodes. What is written is read back, and compared.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import errno
import itertools
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import google_crc32c

import rlds
from rlds.raw_files.input_files import natural_order
from rlds.sources import lineage, reading
from rlds.sources.digests import COMPARED_FACTS, content_of, differences
from rlds.sources.episode_fields import as_converted
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.label_carrying import carry
from rlds.sources.opening import open as open_episodes
from rlds.sources.options import Option, options_of
from rlds.sources.registry import Format, formats
from rlds.sources.restored import RestoredSource
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import (
    FACTS,
    Origin,
    Outline,
    Place,
    RandomAccessSource,
    Source,
    SourceEpisode,
    SourceError,
    StoredSource,
    check_flags,
    is_derived,
)
from rlds.video.fields import DEPTHS_OF_CODES
from rlds_ecosystem.files.whole_files import made_at_once
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.fields import BGR, Field
from rlds_ecosystem.model.nests import leaves_at, nest
from rlds_ecosystem.progress import show_progress

__all__ = [
    "PNGS",
    "Export",
    "Exported",
    "Placement",
    "as_it_was",
    "check_arrays",
    "encoding_of",
    "export",
    "export_class",
    "exports",
    "is_array",
    "pngs_of",
    "prepare",
    "sidecar_placements",
    "with_arrays",
    "without_transitions",
    "write_export",
]

_PNG = "png"
# The codes of a disk, a quota or a limit of the size of files that is used up.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Which placements keep no values.
_INEXACT = ("changed", "lost", "renumbered")
# How files are called that no format has a folder for.
_SUFFIXES_OF_FILES = (".bag", ".h5", ".hdf5", ".json", ".mcap", ".npz", ".parquet", ".tar", ".zip")
# Why a field whose images are files is none of files when it is read back.
PNGS = "the pixels of PNG files; the files are not kept"


@dataclasses.dataclass(frozen=True)
class Placement:
    """What becomes of a field.

    Attributes:
      field: The path of a field of an episode, such as `steps/action`.
      place: Where the format has it; empty if nowhere.
      how: "exact" if the format holds it; "decoded" if it holds what was decoded from codes of
        depths; "sidecar" if it is kept beside the data, where only this library reads it; "encoded"
        if it becomes video, as was asked for; "renumbered" if it counts the rows, episodes or tasks
        that are written; "changed" if its values become others; "lost" if nothing is left of it.
      why: What changes, or why it is lost.
    """

    field: str
    place: str
    how: Literal["exact", "decoded", "encoded", "sidecar", "renumbered", "changed", "lost"]
    why: str = ""

    def with_reason(self, why: str) -> Placement:
        """Returns a placement that says something more of what changes."""
        return dataclasses.replace(self, why="; ".join(filter(None, [self.why, why])))

    def __str__(self) -> str:
        where = f" -> {self.place}" if self.place else ""
        why = f": {self.why}" if self.why else ""
        return f"{self.field}{where} ({self.how}{why})"


class Export(abc.ABC):
    """Writes episodes in a format.

    Derived classes are made from episodes and options, and check there what can be checked without
    reading an episode. `docs/own_format.md` shows one.

    Args:
      episodes: The episodes.

    Attributes:
      format: The name of the format, which `rlds.sources.open` has it by.
      suffixes: With which of them the name of the file ends that it makes; none for a folder.
      keeps_splits: Whether what it writes has the splits that the episodes are in.
      statistics: Patterns of the names of files that others keep in the folder of a dataset, and
        that are wrong once it has other episodes.
      needed_flags: The flags that the steps must have.
      episodes: The episodes.
      renumbers_copies: Whether episodes that are copied get the numbers of its tables of texts.
      is_exact: Whether reading back what was written gives the same episodes, but for the fields
        that change or are lost. If not, they are only counted.
      unchecked: Paths of fields that reading back may give in another form: a video in another
        container, say. Their values are not compared.
      pngs: Fields of steps that are PNG files, of which the format gets the pixels.
      order: In which order the episodes are written; None for that in which they are.
      skip_damaged: Whether `each` leaves out episodes that cannot be read.
      left_out: What is wrong with those that it left out.
      number: Which of the episodes `each` yielded last.
      lineage: What is said of where they come from, see `rlds.sources.lineage`.
      traces: Where those of each split come from that were written.
    """

    format: ClassVar[str]
    suffixes: tuple[str, ...] = ()
    keeps_splits: ClassVar[bool] = False
    renumbers_copies: ClassVar[bool] = False
    statistics: ClassVar[Sequence[str]] = ()
    needed_flags: ClassVar[Sequence[str]] = rlds.STEP_FLAGS
    is_exact: bool = True
    unchecked: Collection[str] = ()

    def __init__(self, episodes: Episodes) -> None:
        self.episodes = episodes
        self.pngs: Mapping[str, Any] = {}
        self.order: Sequence[int] | None = None
        self.skip_damaged = False
        self.left_out: list[SourceError] = []
        self.number = -1
        self.lineage: Mapping[str, Any] | None = None
        self.traces: dict[str, lineage.Trace] = {}
        self._advance: Callable[[], None] = lambda: None
        self._digest: Callable[[SourceEpisode | Place], int] = lambda episode: 0
        self._digests: dict[int, int] = {}
        self._copied: set[int] = set()

    @classmethod
    def part_name(cls, name: str) -> str:
        """Returns what the file or the folder is called that has a part of the episodes."""
        return name + next(iter(cls.suffixes), "")

    @abc.abstractmethod
    def placements(self) -> Sequence[Placement]:
        """Returns what becomes of each field; reads no episode."""

    @abc.abstractmethod
    def write(self, path: Path) -> None:
        """Writes all episodes, in their order.

        Args:
          path: The file or the folder, at which there is nothing yet.

        Raises:
          SourceError: An episode cannot be read.
          ValueError: The format cannot hold an episode.
        """

    def check_target(self, path: str | os.PathLike[str]) -> None:
        """Checks the place where it is to be, before anything is written.

        Raises:
          ValueError: The format cannot be there: it is a file, and not a folder, or vice versa.
        """
        name = os.fspath(path)
        if self.suffixes and not name.endswith(self.suffixes):
            ends = " or ".join(self.suffixes)
            raise ValueError(
                f"{name!r}: {self.format} writes a file; choose a name that ends with {ends}"
            )
        if not self.suffixes and name.endswith(_SUFFIXES_OF_FILES):
            raise ValueError(
                f"{name!r}: {self.format} writes a folder; choose a name without a file suffix"
            )

    def why_unsupported(self, outline: Outline) -> str:
        """Returns why the format cannot hold such an episode, and what to do; or nothing."""
        del outline
        return ""

    def check(self, path: str | os.PathLike[str]) -> None:
        """Checks the target, the flags, the first episode, and those known to be very short.

        Raises:
          ValueError: The format cannot be there, or cannot hold one.
        """
        self.check_target(path)
        source = self.episodes.source
        check_flags(source, self.needed_flags, self.format)
        says_nothing = type(self).why_unsupported is Export.why_unsupported
        if says_nothing or not isinstance(source, RandomAccessSource):
            return
        places = [self.episodes.place(index) for index in range(len(self.episodes))]
        lengths = {split: source.num_steps(split) for split, _ in places}
        for index, (split, number) in enumerate(places):
            known = lengths[split]
            if index and (known is None or known[number] > 1):
                continue
            with contextlib.suppress(SourceError):  # Reading it says so.
                if what := self.why_unsupported(reading.outline(source, split, number)):
                    key = as_converted(self.episodes.peek(index)).key
                    raise ValueError(f"episode {key}: {what}")

    def compared(self, episode: SourceEpisode) -> SourceEpisode:
        """Returns an episode with the values that what was written is compared by."""
        return episode

    def is_stored(self, index: int) -> bool:
        """Whether the values of an episode are in files as they are given here.

        Some may be under other names, left out or added, see `stored_at` of its source.
        """
        source = self.episodes.source
        if not isinstance(source, RandomAccessSource):
            return True
        return source.stored_at(*self.episodes.place(index), in_part=True) is not None

    def recorded(self) -> Mapping[str, Any]:
        """Returns what is said of the files of this format that the episodes came from.

        Nothing if an edit has made others of them, or says something else of them: such files are
        not all that there is then.
        """
        source = self.episodes.source
        found = self.episodes.metadata.get(self.format)
        if not isinstance(found, Mapping):
            return {}
        if isinstance(source, RandomAccessSource):
            places = [
                source.stored_at(*self.episodes.place(index)) for index in range(len(self.episodes))
            ]
            said = self._said_of(source)
            for other in {place.source if place else None for place in places}:
                if other is None or self._said_of(other) != said or self._is_own(other):
                    return {}
        return found

    def _is_own(self, source: Source) -> bool:
        """Whether an export in this format made the files, which have more than others have."""
        kind = formats()[self.format].load()
        return isinstance(source, RestoredSource) and isinstance(source.source, kind)

    def _said_of(self, source: Source) -> dict[str, Any]:
        """What is said of data as a whole, but for what files of this format say, and lineage."""
        said = {**source.metadata(), **{name: getattr(source, name) for name in FACTS}}
        beside = (self.format, lineage.KEY)
        return {name: value for name, value in said.items() if name not in beside}

    def finish(self, path: str | os.PathLike[str]) -> None:
        """Does what has to be done beside it, once it is at its place."""
        del path

    def read_options(self) -> Mapping[str, Any]:
        """Returns the options with which the format reads it back."""
        return {}

    def each(self, order: Iterable[int] | None = None) -> Iterator[SourceEpisode]:
        """Yields the episodes in their `order`; counts them for the progress bar.

        Args:
          order: What becomes their `order`.

        Raises:
          SourceError: One cannot be read; or none, with `skip_damaged`.
          ValueError: There are none, or the format cannot hold one.
        """
        if order is not None:
            self.order = list(order)
        for episode in self._each(lambda place: False):
            assert isinstance(episode, SourceEpisode)
            yield episode

    def _each(self, copies: Callable[[Place], bool]) -> Iterator[SourceEpisode | Place]:
        source = self.episodes.source
        self._digests, self._copied, self.traces = {}, set(), {}
        for index in itertools.count() if self.order is None else self.order:
            if not self.episodes.has(index):
                break
            place = None
            if isinstance(source, RandomAccessSource):
                place = source.stored_at(*self.episodes.place(index))
            try:
                if place is not None and copies(place):
                    self._digests[index] = self._digest(place)
                    self._copied.add(index)
                    self._note(index, place.source.origin(place.split, place.index))
                    yield place
                    self._advance()
                    continue
                episode = self._prepared(index)
            except SourceError as error:
                if not self.skip_damaged:
                    raise
                self.left_out.append(error)
            else:
                if what := self.why_unsupported(episode.outline):
                    raise ValueError(f"episode {episode.key}: {what}")
                self._digests[index] = self._digest(self.compared(episode))
                self._note(index, episode.origin)
                yield episode
            self._advance()
        if not self._digests:
            none = ValueError(f"the split {self.episodes.split!r} has no episodes to write")
            raise self.left_out[0] if self.left_out else none

    def _note(self, index: int, origin: Origin | None) -> None:
        self.number = index
        source, (split, number) = self.episodes.source, self.episodes.place(index)
        if self.lineage is None:
            return
        name = split if self.keeps_splits else ""
        if name not in self.traces:
            self.traces[name] = lineage.Trace(self.lineage, source.bases())
        if isinstance(source, RandomAccessSource):
            base, _ = source.base_at(split, number)
            source, split, number = base.source, base.split, base.index
        self.traces[name].add(source, split, number, origin)

    def each_or_stored(self, copies: Callable[[Place], bool]) -> Iterator[SourceEpisode | Place]:
        """Yields the episodes as `each` does; those to be copied as they are stored, as places.

        Args:
          copies: Whether an episode that is stored there is copied. Its `stored_digest` is
            compared with that of the copy then.
        """
        yield from self._each(copies)

    def stored_digest(self, place: Place) -> int:
        """Returns a digest of an episode as it is stored; a copy has the same.

        Raises:
          SourceError: It is damaged.
        """
        raise NotImplementedError

    def _prepared(self, index: int) -> SourceEpisode:
        return with_arrays(as_converted(self.episodes.episode(index)), self.pngs)

    def order_of_origin(self) -> list[int] | None:
        """Returns the episodes of a TFDS dataset in the order that they had in their files.

        Those of other sources are in the order that they are to have: None.
        """
        if not isinstance(self.episodes.source, StoredSource):
            return None
        origins = []
        for index in range(len(self.episodes)):
            origin, key = Origin("", 0, 0), ""
            with contextlib.suppress(SourceError):  # Reading it raises this error.
                episode = as_converted(self.episodes.peek(index))
                origin, key = episode.origin, episode.key
            # Where each has a file or a group of its own, the names have the order.
            names = natural_order(origin.file), origin.begin, natural_order(key)
            origins.append((*names, index))
        return [index for *_, index in sorted(origins)]


def with_arrays(episode: SourceEpisode, fields: Mapping[str, Any]) -> SourceEpisode:
    """Returns an episode with arrays in place of files of images, in these fields of its steps."""
    if not fields:
        return episode
    columns = dict(leaves_at(episode.steps, None))
    columns |= {path: as_values(columns[path], field) for path, field in fields.items()}
    return dataclasses.replace(episode, steps=nest(columns))


def pngs_of(steps: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Field]:
    """Returns the fields, of some of the steps, that are PNG files: these can become arrays."""
    return {path: steps[path] for path in paths if encoding_of(steps[path]) == _PNG}


def encoding_of(field: Any) -> str:
    """Returns which files of images a field has; or nothing."""
    return field.encoding if isinstance(field, Field) else ""


def is_array(field: Any) -> bool:
    """Whether what a field of a step holds is an array of numbers of one shape, or a number."""
    if not isinstance(field, Field) or field.encoding or field.is_text:
        return False
    return None not in field.shape


def check_arrays(fields: Mapping[str, Any], paths: Iterable[str], what: str) -> None:
    """Checks fields that a format has one array each for.

    Args:
      fields: The fields of a step, by path.
      paths: The fields that were chosen.
      what: Who needs what, for the error.

    Raises:
      ValueError: One is missing, or no array of numbers; says which there are.
    """
    paths = list(paths)
    for path in paths:
        if paths.count(path) > 1:
            raise ValueError(f"{path!r} is both the observation and the action; {what}")
        if not is_array(fields.get(path)):
            arrays = [
                name for name in fields if is_array(fields[name]) and name not in rlds.STEP_FLAGS
            ]
            raise ValueError(
                f"{path!r} is not an array of numbers; {what}. Name them with observation=..., "
                f"action=... (--to-option on the command line); the steps have {arrays}"
            )


def without_transitions(number: int, format: str) -> str:
    """Returns the `why_unsupported` to an episode with as many transitions."""
    if number:
        return ""
    return (
        f"{format} cannot hold an episode without a transition; leave it out with a split (--split "
        "on the command line) such as 'train[:3]+train[4:]'"
    )


def as_it_was(episodes: Episodes) -> list[Placement]:
    """Returns the placements of an export that makes the files again that episodes came from."""
    spec = leaves_at(episodes.spec, None)
    return [Placement(path, "unchanged", _held(field), _order_of(field)) for path, field in spec]


def _held(field: Any) -> Literal["exact", "decoded"]:
    """Returns how a format holds the values of a field."""
    return "decoded" if getattr(field, "doc", "") == DEPTHS_OF_CODES else "exact"


def _order_of(field: Any) -> str:
    """Returns what to say of the channels of a field."""
    is_bgr = isinstance(field, Field) and field.names == BGR
    return f"its channels are {', '.join(BGR)}" if is_bgr else ""


def sidecar_placements(sidecar: Sidecar, why: Mapping[str, str] | None = None) -> list[Placement]:
    """Returns the placements of an export that changes nothing.

    Args:
      sidecar: What the format holds, and what is in the sidecar.
      why: Why fields are in the sidecar, by path.
    """
    derived = [path for path, field in sidecar.steps.items() if is_derived(path, field)]
    why = {**(why or {}), **dict.fromkeys(derived, "it is derived from the flags")}
    steps, episode = sidecar.steps.items(), sidecar.episode.items()
    fields = [(path, f"{rlds.STEPS}/{path}", sidecar.places, field) for path, field in steps]
    fields += [(path, path, sidecar.episode_places, field) for path, field in episode]
    return [
        Placement(
            field,
            places.get(path, ""),
            _held(declared) if path in places else "sidecar",
            why.get(path, ""),
        ).with_reason(_order_of(declared))
        for path, field, places, declared in fields
    ]


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
    return known[format].load_export()


def _written() -> dict[str, Format]:
    return {name: format for name, format in formats().items() if format.export}


def export(
    source: str | os.PathLike[str] | Episodes | Source,
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
    writer.skip_damaged = skip_damaged
    with (
        _advice(skip_damaged, at or path),
        made_at_once(path) as draft,
        show_progress(progress) as bars,
    ):
        total = len(writer.episodes) if writer.episodes.has_random_access else None
        task = bars.add_task(f"episodes to {format}", total=total)
        writer._advance = lambda: bars.advance(task)
        is_checked = verify and writer.is_exact
        inexact = {place.field for place in placements if place.how in _INEXACT}
        inexact |= {*writer.unchecked}
        if is_checked or skip_damaged:  # What is damaged has no digest, and is not copied.
            writer._digest = lambda episode: (
                writer.stored_digest(episode)
                if isinstance(episode, Place)
                else _digest(episode, inexact)
            )
        writer.write(draft)
        if writer.left_out:
            number = len(writer.left_out)
            what = "1 episode is" if number == 1 else f"{number} episodes are"
            first = "" if number == 1 else ", the first"
            warnings.warn(f"{what} damaged and left out{first}: {writer.left_out[0]}", stacklevel=2)
        again = open_episodes(draft, "all", format=format, **writer.read_options())
        if not allow_loss:
            _check_is_described(again, described or {})
        counts = _check(writer, again, inexact, bars) if is_checked else _count(writer, again)
        renumbers = any(place.how == "renumbered" for place in placements)
        pairs = enumerate(writer._digests)
        others = (pair for pair in pairs if renumbers or pair[1] not in writer._copied)
        carry(writer.episodes, others, again, draft, at or path)
        traces = {split or again.splits[0]: trace for split, trace in writer.traces.items()}
        if writer.lineage is not None and not lineage.is_beside(draft):
            lineage.write_beside(draft, writer.lineage, traces)
    if writer.lineage is not None and os.path.exists(path) and lineage.is_beside(path):
        lineage.write_beside(path, writer.lineage, traces)
    writer.finish(path)
    left_out = tuple(map(str, writer.left_out))
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
    source: str | os.PathLike[str] | Episodes | Source,
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
    elif isinstance(source, Source):
        split = split or "all"
    else:
        found = open_episodes(source, split, format=source_format, **(source_options or {}))
        name = os.fspath(source)
        split, source_format, source = found.split, found.format, found.source
    source, source_format = source.with_image_files(), source_format or ""
    if said is None:
        said = lineage.converted(
            source, format, options, name=name, source_format=source_format, split=split
        )
    about = {lineage.KEY: lineage.without_episodes(said)}
    writer = written_by(Episodes(source, split, format=source_format, said=about), **options)
    writer.lineage = said
    return writer


# --- What was written is what was read.


def _num_steps(episodes: Episodes) -> int | None:
    """How many steps there are, where the format says so without the episodes being read."""
    total = 0
    for split, begin, end in episodes.ranges:
        lengths = episodes.source.num_steps(split)
        if lengths is None:
            return None
        total += int(sum(lengths[begin:end]))
    return total


def _count(writer: Export, episodes: Episodes) -> tuple[int, int | None]:
    if writer._copied:
        return len(episodes), _num_steps(episodes)
    steps = [outline.num_steps for outline in episodes.outlines()]
    return len(steps), sum(steps)


def _check_is_described(found: Episodes, described: Mapping[str, Any]) -> None:
    for name, value in described.items():
        said = getattr(found.source, name) if name in FACTS else found.metadata.get(name)
        if said != value:
            raise ValueError(
                f"describe: {found.format} cannot hold {name!r}. Leave it out, or allow the loss "
                "(allow_loss=True, --allow-loss on the command line)"
            )


def _check(
    writer: Export, found: Episodes, inexact: Collection[str], bars: Any
) -> tuple[int, int | None]:
    """Compares what was written with what was read; returns how many episodes and steps it has.

    Digests do: an episode is read from its source again only to say how it differs.
    """
    num_steps = 0
    for number, (index, digest) in enumerate(
        bars.track(writer._digests.items(), description="episodes read back")
    ):
        if not found.has(number):
            raise ValueError(f"{writer.format}: episode {number} is missing in the written files")
        if index in writer._copied:
            copy = _random_access(found).stored_at(*found.place(number))
            if copy is None or writer.stored_digest(copy) != digest:
                raise ValueError(
                    f"{writer.format}, episode {number}: the copy differs from the original"
                )
            continue
        other = writer.compared(as_converted(found.episode(number)))
        num_steps += other.num_steps
        if _digest(other, inexact) == digest:
            continue
        episode = writer.compared(writer._prepared(index))
        for difference in differences(episode, other, inexact):
            raise ValueError(
                f"{writer.format}, episode {number} ({episode.key}): the written episode differs "
                f"from the original: {difference}"
            )
    if found.has(len(writer._digests)):
        raise ValueError(
            f"{writer.format}: the files hold more than the {len(writer._digests)} written episodes"
        )
    return len(writer._digests), _num_steps(found) if writer._copied else num_steps


def _random_access(episodes: Episodes) -> RandomAccessSource:
    assert isinstance(episodes.source, RandomAccessSource)  # Formats that are copied are.
    return episodes.source


def _digest(episode: SourceEpisode, but: Collection[str]) -> int:
    """Returns a CRC-32C of all that `differences` compares."""
    facts = [f"{name} {getattr(episode, name)}" for name in COMPARED_FACTS if name not in but]
    crc = google_crc32c.value("\n".join(facts).encode())
    fields = {f"steps/{path}": leaf for path, leaf in leaves_at(episode.steps, None)}
    fields |= leaves_at(episode.metadata, None)
    for part in content_of({path: fields[path] for path in fields.keys() - {*but}}):
        crc = google_crc32c.extend(crc, bytes(part))
    return int(crc)
