"""The door to a source: all callers read one through these functions.

Sources raise what the libraries raise that read their files. Here it becomes a `SourceError`, which
names the file and the episode; see `rlds.raw_files.untrusted`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import rlds
from rlds.raw_files.input_files import Files
from rlds.raw_files.untrusted import (
    SourceChangedError,
    as_source_error,
    source_errors,
)
from rlds.sources.source import (
    ALL_ROWS,
    DamagedEpisode,
    Outline,
    RandomAccessSource,
    Source,
    SourceEpisode,
    files_of,
    mistakes_of,
)
from rlds_ecosystem.model.nests import leaves_at, nest

__all__ = [
    "check",
    "cut",
    "episodes",
    "errors_of",
    "made",
    "outline",
    "read",
    "read_metadata",
    "read_steps",
    "unchanged",
]

S = TypeVar("S", bound=Source)

# What an argument of a source can be wrong about.
_OF_ARGUMENTS = (ValueError, TypeError, KeyError, NotImplementedError, FileNotFoundError)


def made(kind: Callable[..., S], path: str | os.PathLike[str], *args: Any, **options: Any) -> S:
    """Makes a source.

    Args:
      kind: Its class.
      path: The data, its first argument.
      *args: Its other arguments.
      **options: Its options.

    Raises:
      SourceChangedError: The data was replaced meanwhile.
      SourceError: The data is damaged.
    """
    is_path = isinstance(path, str | os.PathLike)
    opened = Files(path, may_grow=getattr(kind, "inputs_may_grow", False)) if is_path else None
    try:
        source = kind(path, *args, **options)
        if source.opened is None:
            source.opened = opened
        check(source)
        return source
    except Exception as error:
        if opened is not None:
            opened.check(list, failed=True)
        of_argument = isinstance(error, _OF_ARGUMENTS) and not isinstance(error, UnicodeError)
        damage = None
        if is_path and not of_argument:
            damage = as_source_error(error, file=path, mistakes=mistakes_of([kind]))
        if damage is None or damage is error:
            raise
        raise damage from error


@contextlib.contextmanager
def errors_of(
    source: Source, episode: int | str | Callable[[], str] | None = None
) -> Iterator[None]:
    """Names the files of a source, and the episode, in the errors that reading it raises.

    Raises:
      SourceChangedError: They are not those that were opened.
    """
    mistakes = mistakes_of(map(type, source.bases()))
    with unchanged(source):
        with source_errors(lambda: files_of(source), episode=episode, mistakes=mistakes):
            yield


@contextlib.contextmanager
def unchanged(source: Source) -> Iterator[None]:
    """Checks after reading that the files of a source are those that were opened.

    Raises:
      SourceChangedError: They are not, so what was read may be of the old ones and the new ones.
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


def check(source: Source, *, failed: bool = False) -> None:
    """Checks that the files of a source are those that were opened.

    Args:
      source: The source.
      failed: See `Files.check`.

    Raises:
      SourceChangedError: They are not.
    """
    for base in source.bases():
        if base.opened is not None:
            base.opened.check(base.inputs, failed=failed)


def read(
    source: RandomAccessSource,
    split: str,
    index: int,
    fields: Collection[str] | None = None,
    rows: slice = ALL_ROWS,
) -> SourceEpisode:
    """Reads an episode, or some of it; see `RandomAccessSource.read`.

    Args:
      source: The source.
      split: The split.
      index: The episode.
      fields: The paths of the fields that are wanted; all if None.
      rows: The steps that are wanted; consecutive.

    Raises:
      SourceError: It is damaged.
    """
    with errors_of(source, lambda: source.key(split, index)):
        if rows == ALL_ROWS or source.reads_rows:
            return source.read(split, index, fields, rows)
        return cut(source.read(split, index, fields), rows)


def read_steps(
    source: RandomAccessSource,
    split: str,
    index: int,
    fields: Collection[str] | None = None,
    rows: slice = ALL_ROWS,
) -> Mapping[str, Any]:
    """Reads the columns of steps, at least those of some fields.

    Args:
      source: The source.
      split: The split.
      index: The episode.
      fields: The paths of fields of a step; all if None.
      rows: The steps that are wanted; consecutive.

    Raises:
      SourceError: The episode is damaged.
    """
    paths = source.step_paths() if fields is None else fields
    return read(source, split, index, [f"{rlds.STEPS}/{path}" for path in paths], rows).steps


def read_metadata(
    source: RandomAccessSource, split: str, index: int, fields: Collection[str] | None = None
) -> Mapping[str, Any]:
    """Reads fields of an episode, and nothing of its steps if that is faster.

    Args:
      source: The source.
      split: The split.
      index: The episode.
      fields: The paths of the fields; all if None.

    Raises:
      KeyError: There is no such field.
      SourceError: The episode is damaged.
    """
    wanted = [path for path, _ in leaves_at(source.episode_fields(), fields)]
    return read(source, split, index, wanted).metadata


def outline(source: RandomAccessSource, split: str, index: int) -> Outline:
    """Returns how long an episode is, without reading more than is needed.

    Raises:
      SourceError: It is damaged.
    """
    with errors_of(source, lambda: source.key(split, index)):
        return source.outline(split, index)


def episodes(source: Source, split: str, part: str, after: str | None = None) -> Iterator[Any]:
    """Yields the episodes of a part, see `Source.episodes`.

    What cannot be read is a `DamagedEpisode`. A generator that raised cannot go on: that is the
    last one of its part.

    Raises:
      SourceChangedError: A file is not what it was.
    """
    try:
        for episode in source.episodes(split, part, after):
            check(source, failed=isinstance(episode, DamagedEpisode))
            after = episode.key
            yield episode
            del episode  # Episodes may be large, and the next one is read now.
    except SourceChangedError:
        raise
    except Exception as error:
        check(source, failed=True)
        where = f"after {after!r}" if after is not None else f"first of {part!r}"
        mistakes = mistakes_of(map(type, source.bases()))
        damage = as_source_error(
            error, file=lambda: files_of(source), episode=where, mistakes=mistakes
        )
        if damage is None:
            raise
        if damage is not error:
            damage.__cause__ = error
        yield DamagedEpisode(f"{part}, {where}", damage, ends_part=True)


def cut(episode: SourceEpisode, rows: slice) -> SourceEpisode:
    """Returns an episode with the columns of some of its steps."""
    steps = {path: column[rows] for path, column in leaves_at(episode.steps, None)}
    return dataclasses.replace(episode, steps=nest(steps))
