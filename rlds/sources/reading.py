"""Reading from sources: checks and errors that all callers share.

Sources raise errors of the libraries that read their files. This module turns them into a
`SourceError` with the file and the episode; see `rlds.raw_files.untrusted`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import rlds
from rlds.raw_files.input_files import Files
from rlds.raw_files.untrusted import SourceChangedError, SourceError, as_source_error, source_errors
from rlds.sources.source import (
    ALL_ROWS,
    AnySource,
    DamagedEpisode,
    EpisodeSummary,
    Lengths,
    Source,
    SourceEpisode,
    Stream,
    files_of,
    programming_errors,
)
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.nests import is_below, leaves_at, nest

__all__ = [
    "check",
    "count",
    "cut",
    "episodes",
    "errors_of",
    "lengths",
    "open_source",
    "parts",
    "read",
    "read_steps",
    "roots",
    "summary",
    "unchanged",
    "with_image_files",
]

S = TypeVar("S", bound=AnySource)

# The number of episodes in a part of a source with random access.
_EPISODES_PER_PART = 100
# Cached lengths of sources.
_length_cache: weakref.WeakKeyDictionary[Source, dict[str, Lengths | None]]
_length_cache = weakref.WeakKeyDictionary()
# Errors of wrong arguments of a source.
_ARGUMENT_ERRORS = (ValueError, TypeError, KeyError, NotImplementedError, FileNotFoundError)


def open_source(
    kind: Callable[..., S], path: str | os.PathLike[str], *args: Any, **options: Any
) -> S:
    """Opens a source.

    Args:
      kind: The class of the source.
      path: The path of the data: the first argument of the class.
      *args: Further arguments of the class.
      **options: Options of the class.

    Raises:
      SourceChangedError: The data was replaced during opening.
      SourceError: The data is damaged.
    """
    is_path = isinstance(path, str | os.PathLike)
    files = Files(path, may_grow=getattr(kind, "may_grow", False)) if is_path else None
    try:
        source = kind(path, *args, **options)
        if source.opened_files is None:
            source.opened_files = files
        check(source)
        return source
    except Exception as error:
        if files is not None:
            files.check(list, failed=True)
        is_argument = isinstance(error, _ARGUMENT_ERRORS) and not isinstance(error, UnicodeError)
        damage = None
        if is_path and not is_argument:
            damage = as_source_error(error, file=path, mistakes=programming_errors([kind]))
        if damage is None or damage is error:
            raise
        raise damage from error


@contextlib.contextmanager
def errors_of(
    source: AnySource, episode: int | str | Callable[[], str] | None = None
) -> Iterator[None]:
    """Adds the files of a source, and the episode, to read errors.

    Raises:
      SourceChangedError: The files have changed since the source was opened.
    """
    mistakes = programming_errors(map(type, roots(source)))
    with unchanged(source):
        with source_errors(lambda: files_of(source), episode=episode, mistakes=mistakes):
            yield


@contextlib.contextmanager
def unchanged(source: AnySource) -> Iterator[None]:
    """Checks after reading that the files of a source have not changed since it was opened.

    Raises:
      SourceChangedError: A file has changed; the values may mix old and new files.
    """
    try:
        yield
    except SourceChangedError:
        raise
    except Exception as error:
        try:
            check(source, failed=True)
        except SourceChangedError as change:
            raise change from error
        raise
    check(source)


def check(source: AnySource, *, failed: bool = False) -> None:
    """Checks that the files of a source have not changed since it was opened.

    Args:
      source: The source.
      failed: See `Files.check`.

    Raises:
      SourceChangedError: A file has changed; the message names it.
    """
    for base in roots(source):
        if base.opened_files is not None:
            base.opened_files.check(base.inputs, failed=failed)


def read(
    source: Source,
    split: str,
    index: int,
    fields: Collection[str] | None = None,
    rows: slice = ALL_ROWS,
) -> SourceEpisode:
    """Reads an episode, or some of its fields and steps; see `Source.read`.

    Args:
      source: The source.
      split: The split.
      index: The episode.
      fields: The paths of the requested fields; all if None.
      rows: The requested steps; consecutive.

    Raises:
      SourceError: The episode is damaged.
    """
    with errors_of(source, lambda: source.key(split, index)):
        if rows == ALL_ROWS or source.capabilities.reads_rows:
            return source.read(split, index, fields, rows)
        return cut(source.read(split, index, fields), rows)


def read_steps(
    source: Source,
    split: str,
    index: int,
    fields: Collection[str] | None = None,
    rows: slice = ALL_ROWS,
) -> Mapping[str, Any]:
    """Reads the columns of some fields of steps; may read further columns.

    Args:
      source: The source.
      split: The split.
      index: The episode.
      fields: The paths of fields of a step; all if None.
      rows: The requested steps; consecutive.

    Raises:
      SourceError: The episode is damaged.
    """
    paths = source.fields.step_paths() if fields is None else fields
    return read(source, split, index, [f"{rlds.STEPS}/{path}" for path in paths], rows).steps


def summary(source: Source, split: str, index: int) -> EpisodeSummary:
    """Returns the summary (steps, transitions) of an episode; reads as little as possible.

    Raises:
      SourceError: The episode is damaged.
    """
    known_lengths = lengths(source, split)
    if known_lengths is not None and known_lengths.are_complete:
        return EpisodeSummary(*(array[index].item() for array in known_lengths))
    fields = source.fields
    paths = list(fields.flags)
    if rlds.IS_TERMINAL not in paths:  # TFDS datasets may lack flags.
        discounts = [path for path in fields.step_paths() if is_below(path, rlds.DISCOUNT)]
        paths = [*paths, *discounts] or fields.step_paths()[:1]
    return read(source, split, index, [f"{rlds.STEPS}/{path}" for path in paths]).summary


def lengths(source: Source, split: str) -> Lengths | None:
    """Returns the lengths of the episodes of a split; None if unknown without reading them.

    Raises:
      SourceError: The files with the lengths are damaged.
    """
    lengths_by_split = _length_cache.setdefault(source, {})
    if split not in lengths_by_split:
        read_lengths = source.capabilities.lengths
        with errors_of(source):
            lengths_by_split[split] = None if read_lengths is None else read_lengths(split)
    return lengths_by_split[split]


def roots(source: AnySource) -> Sequence[AnySource]:
    """Returns the sources that read files, below all views; the source itself if it is no view."""
    if not source.bases:
        return [source]
    return [*dict.fromkeys(base for view in source.bases for base in roots(view))]


def count(source: AnySource, split: str) -> int | None:
    """Returns the number of episodes of a split; None for a stream."""
    return source.num_episodes(split) if isinstance(source, Source) else None


def with_image_files(source: S) -> S:
    """Returns the source with undecoded image files, if it supports that."""
    files = source.capabilities.image_files
    return source if files is None else cast(S, files())


def parts(source: AnySource, split: str) -> Sequence[str]:
    """Returns the names of the parts of a split, in order, for sources and streams."""
    if isinstance(source, Stream):
        return source.parts(split)
    assert isinstance(source, Source)
    total, size = source.num_episodes(split), _EPISODES_PER_PART
    return [f"{start}-{min(start + size, total)}" for start in range(0, total, size)]


def episodes(source: AnySource, split: str, part: str, after: str | None = None) -> Iterator[Any]:
    """Yields the episodes of a part, or only those after the episode with a key.

    An unreadable episode is a `DamagedEpisode`. After an error of a generator of a source, the
    `DamagedEpisode` is the last one of its part.

    Raises:
      SourceChangedError: A file has changed.
    """
    position = f"first of {part!r}" if after is None else f"after {after!r}"
    try:
        with errors_of(source, lambda: position):
            for episode in _read_part(source, split, part, after):
                check(source, failed=isinstance(episode, DamagedEpisode))
                position = f"after {episode.key!r}"
                yield episode
                if isinstance(episode, DamagedEpisode) and episode.ends_part:
                    return
                del episode  # Frees the memory of a large episode before the next one is read.
    except SourceChangedError:
        raise
    except SourceError as error:
        yield DamagedEpisode(f"{part}, {position}", error, ends_part=True)


def _read_part(
    source: AnySource, split: str, part: str, after: str | None
) -> Iterator[SourceEpisode | DamagedEpisode]:
    if isinstance(source, Stream):
        return source.episodes(split, part, after)
    assert isinstance(source, Source)
    return _read_range(source, split, part, after)


def _read_range(
    source: Source, split: str, part: str, after: str | None
) -> Iterator[SourceEpisode | DamagedEpisode]:
    start, end = map(int, part.split("-"))
    begin = start if after is None else _index_of_key(source, split, range(start, end), after) + 1
    hold_open = source.capabilities.hold_open or contextlib.nullcontext
    with hold_open():
        for index in range(begin, end):
            try:
                episode = read(source, split, index)
            except SourceChangedError:
                raise
            except SourceError as error:
                yield DamagedEpisode(source.key(split, index), error)
                continue
            yield dataclasses.replace(episode, fraction=(index + 1 - start) / (end - start))
            del episode


def _index_of_key(source: Source, split: str, indices: range, key: str) -> int:
    for index in indices:
        if source.key(split, index) == key:
            return index
    raise StorageError(
        f"cannot resume after {key!r}: the episodes {indices.start} to {indices.stop} of the split "
        f"{split!r} have no such key. The staged data is from another source; remove it"
    )


def cut(episode: SourceEpisode, rows: slice) -> SourceEpisode:
    """Returns an episode with the columns of some of its steps."""
    steps = {path: column[rows] for path, column in leaves_at(episode.steps, None)}
    return dataclasses.replace(episode, steps=nest(steps))
