"""Safe reads of untrusted raw data.

`source_errors` converts any exception of a library about damaged data to a `SourceError`, which
states the location.

A file can declare more data than it holds. Two limits apply to compressed data:

* *The largest size that deflate can expand to*: `check_declared`, for formats that declare the size
  of their content, and compress it by deflate or not at all.
* *The largest plausible size of recorded data*: `trusted_bytes`, for any compression.

A malicious file may still exhaust memory, with a `MemoryError`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any

from rlds_ecosystem.files.stores import as_path, is_local, list_directory
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.texts import shorten

__all__ = [
    "SourceChangedError",
    "SourceError",
    "as_source_error",
    "check_declared",
    "check_is_file",
    "check_link",
    "folders_in",
    "is_damage",
    "is_there",
    "possible_bytes",
    "source_errors",
    "trusted_bytes",
    "words_of",
]


# The largest length of an error message, which may quote the file.
_MAX_PROBLEM_CHARS, _MAX_FIELD_CHARS = 2000, 300


class SourceError(ValueError):
    """Raw data violates its format.

    Args:
      problem: The fault: the content, and the expected content.
      file: The damaged file; empty if the text names it. PyTorch recreates errors of its workers
        from their text, with a traceback.
      episode: The number of the episode in the file, or its key.
      row: The row (step, record) of the file, from 0 on.
      field: The path of the field.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | os.PathLike[str] = "",
        episode: int | str | None = None,
        row: int | None = None,
        field: str | None = None,
    ) -> None:
        self.problem = shorten(problem, _MAX_PROBLEM_CHARS) if file else problem
        self.file = os.fspath(file)
        self.episode, self.row, self.field = episode, row, field
        location = [self.file] if file else []
        location += [f"episode {episode}"] if episode is not None else []
        location += [f"row {row}"] if row is not None else []
        location += [f"field {shorten(field, _MAX_FIELD_CHARS)!r}"] if field is not None else []
        super().__init__(": ".join(filter(None, (", ".join(location), self.problem))))

    def locate(
        self, *, episode: int | str | None, row: int | None = None, field: str | None = None
    ) -> None:
        """Adds missing components of the location."""
        location: dict[str, Any] = {"episode": episode, "row": row, "field": field}
        arguments = {name: value for name, value in self._arguments().items() if value is not None}
        SourceError.__init__(self, **{**location, **arguments})

    def _arguments(self) -> dict[str, Any]:
        names = ("problem", "file", "episode", "row", "field")
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> Any:  # Errors of worker processes are pickled.
        return functools.partial(type(self), **self._arguments()), ()


class SourceChangedError(SourceError):
    """A file has changed since it was opened: data read from it is inconsistent."""

    def locate(self, **location: Any) -> None:
        """Ignores the location: the error is about the whole file."""


# Errors of the operating system that mean that a file, or a name in it, is damaged. All other
# errors (no permission, a failing disk, too many open files) are no damage: otherwise
# `skip_damaged` would skip undamaged episodes. A missing file is damage only of the episode that
# needs it; if it existed before, a conversion detects the change at its end.
_DAMAGE_ERRNOS = (
    *(None, errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EOVERFLOW, errno.EFBIG, errno.ENXIO, errno.ENODEV, errno.ESPIPE),
)
# The largest length of the message of a library, which may quote the file.
_MAX_MESSAGE_CHARS = 500
# A call in the code of a source with a missing argument. Class names are excluded, because files
# determine the arguments of classes.
_WRONG_CALL_MESSAGE = re.compile(r"(?!.*__\(\))[\w.<>]+\(\) missing \d+ required ")


def is_damage(error: Exception) -> bool:
    """Whether an error during a read is about the data."""
    if isinstance(error, StorageError):  # Log readers raise this error.
        cause = error.__cause__
        return isinstance(cause, OSError) and cause.errno in (*_DAMAGE_ERRNOS, errno.ENOENT)
    if isinstance(error, OSError):
        return error.errno in _DAMAGE_ERRNOS
    if isinstance(error, TypeError) and _WRONG_CALL_MESSAGE.match(str(error)):
        return False
    return not isinstance(error, MemoryError | ImportError | Warning | NameError)


def as_source_error(
    error: Exception,
    *,
    file: str | os.PathLike[str] | Callable[[], str],
    episode: int | str | Callable[[], str] | None = None,
    row: int | None = None,
    field: str | None = None,
    mistakes: tuple[type[Exception], ...] = (),
) -> SourceError | None:
    """Converts an exception during a read to an error of the data.

    Args:
      error: The raised exception.
      file: See `SourceError`; or a function that returns it, called only if needed.
      episode: See `SourceError`; or a function that returns it, called only if needed.
      row: See `SourceError`.
      field: See `SourceError`.
      mistakes: Types of errors that are mistakes of the reading code, see `rlds.sources.source`.

    Returns:
      A `SourceError`: the error itself if it is one. None if the error is not about the data: an
      error of the operating system, a missing file (unless an episode needs it), a missing library,
      exhausted memory, a failure of storage, or a mistake in the source itself.
    """
    episode = episode() if callable(episode) else episode
    if isinstance(error, SourceError):
        error.locate(episode=episode, row=row, field=field)
        return error
    if isinstance(error, FileNotFoundError) and episode is not None:
        return SourceError(
            "the file does not exist, but the episode needs it",
            file=error.filename or (file() if callable(file) else file),
            episode=episode,
            row=row,
            field=field,
        )
    if isinstance(error, mistakes) or not is_damage(error):
        return None
    file = file() if callable(file) else file
    message = f"cannot be read: {words_of(error)}"
    return SourceError(message, file=file, episode=episode, row=row, field=field)


def words_of(error: Exception) -> str:
    """Returns the message of an error of a library."""
    words, kind = " ".join(str(error).split())[:_MAX_MESSAGE_CHARS], type(error).__name__
    if isinstance(error, json.JSONDecodeError):
        kind = "not valid JSON"
    elif isinstance(error, UnicodeDecodeError):
        kind = "not valid UTF-8"
    elif type(error) is ValueError and words:
        return words
    return f"{kind}: {words}" if words else kind


@contextlib.contextmanager
def source_errors(
    file: str | os.PathLike[str] | Callable[[], str],
    *,
    episode: int | str | Callable[[], str] | None = None,
    row: int | None = None,
    field: str | None = None,
    mistakes: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Converts any error that untrusted data causes in the library that reads it.

    Errors that are not about the data stay as they are, see `as_source_error`, which has the same
    arguments. A `SourceError` stays, too, and gets a complete location.

    >>> with source_errors("log.json", episode=3, field="length"):
    ...     {}["length"]
    Traceback (most recent call last):
      ...
    rlds.raw_files.untrusted.SourceError: log.json, episode 3, field 'length': cannot be read: \
KeyError: 'length'
    """
    try:
        yield
    except Exception as error:
        damage = as_source_error(
            error, file=file, episode=episode, row=row, field=field, mistakes=mistakes
        )
        if damage is None or damage is error:
            raise
        raise damage from error


def possible_bytes(size: int) -> int:
    """Returns the largest number of bytes that deflate can have compressed to a file.

    Args:
      size: The size of the file, in bytes.
    """
    # Deflate expands a byte to at most 1032 bytes; headers only reduce this.
    return (1 << 20) + 1100 * size


def trusted_bytes(size: int) -> int:
    """Returns the largest plausible number of bytes of decompressed data.

    Recorded data hardly compresses to less than a hundredth of its size, except in small files.

    Args:
      size: The compressed size, in bytes.
    """
    return (1 << 28) + 100 * size


def check_declared(
    declared_size: int, size: int, *, file: str | os.PathLike[str], field: str | None = None
) -> None:
    """Checks that a file can hold the declared bytes.

    Args:
      declared_size: The declared size of the values, uncompressed, in bytes.
      size: The size of the file, in bytes.
      file: The file, for the error.
      field: The name of the values, for the error.

    Raises:
      SourceError: The declared size is impossible.
    """
    if declared_size > (possible := possible_bytes(size)):
        raise SourceError(
            f"{declared_size:,} bytes are declared, but the {size:,} bytes of the file can hold "
            f"at most {possible:,}",
            file=file,
            field=field,
        )


def check_is_file(path: str | os.PathLike[str]) -> None:
    """Checks that a local path leads to a regular file, as reads of other files may never end.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The path is invalid, or leads to a directory, a pipe or a device.
    """
    if not is_local(os.fspath(path)):
        return
    with source_errors(path):  # The path may come from an untrusted file.
        mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise SourceError("not a regular file", file=path)


def check_link(path: str | os.PathLike[str]) -> None:
    """Checks that a path is not a dangling link, whose target would be skipped silently.

    Raises:
      SourceError: The path is a dangling link.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise SourceError(f"a link to {os.readlink(path)!r}, which does not exist", file=path)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether an optional file or folder exists.

    Raises:
      SourceError: The path is a dangling link.
    """
    check_link(path)
    return bool(as_path(path).exists())


def folders_in(path: str | os.PathLike[str]) -> list[str]:
    """Returns the names of the folders in a folder, in order, without hidden ones.

    Raises:
      SourceError: The folder has a dangling link.
    """
    entries = [entry for entry in list_directory(path) if not entry.name.startswith(".")]
    for entry in entries:
        if not entry.is_dir:
            check_link(os.path.join(path, entry.name))
    return [entry.name for entry in entries if entry.is_dir]
