"""Safe reads of untrusted raw data.

Whatever a library raises for bytes that are not what it expects becomes a `SourceError`, which says
where: `source_errors`.

A file can declare more than it holds. Compressed bytes stand for more, and two different questions
are asked about them:

* *Can deflate have made so few bytes of what is declared?* `check_declared`: where a format names
  the size of what it holds, and compresses it by deflate or not at all.
* *Does recorded data ever shrink so much?* `trusted_bytes`: where any compression may have been
  used.

A file that is made to exhaust memory may still do so, with a `MemoryError`.
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


# Of what an error says, as it may repeat what is in the file.
_MAX_TEXT, _MAX_NAME = 2000, 300


class SourceError(ValueError):
    """Raw data is not as its format demands.

    Args:
      what: The content, and what was expected.
      file: The file it is in; empty if the text says that. PyTorch makes the errors of its workers
        again from their text, which has a traceback then.
      episode: The number of the episode in the file, or its key.
      row: The row (step, record) of the file, from 0 on.
      field: The path of the field.
    """

    def __init__(
        self,
        what: str,
        *,
        file: str | os.PathLike[str] = "",
        episode: int | str | None = None,
        row: int | None = None,
        field: str | None = None,
    ) -> None:
        self.what, self.file = shorten(what, _MAX_TEXT) if file else what, os.fspath(file)
        self.episode, self.row, self.field = episode, row, field
        where = [self.file] if file else []
        where += [f"episode {episode}"] if episode is not None else []
        where += [f"row {row}"] if row is not None else []
        where += [f"field {shorten(field, _MAX_NAME)!r}"] if field is not None else []
        super().__init__(": ".join(filter(None, (", ".join(where), self.what))))

    def locate(
        self, *, episode: int | str | None, row: int | None = None, field: str | None = None
    ) -> None:
        """Adds missing parts of the location."""
        location: dict[str, Any] = {"episode": episode, "row": row, "field": field}
        arguments = {name: value for name, value in self._arguments().items() if value is not None}
        SourceError.__init__(self, **{**location, **arguments})

    def _arguments(self) -> dict[str, Any]:
        names = ("what", "file", "episode", "row", "field")
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> Any:  # Errors of worker processes are pickled.
        return functools.partial(type(self), **self._arguments()), ()


class SourceChangedError(SourceError):
    """A file is not the one that it was before: nothing that was read of it is of use."""

    def locate(self, **where: Any) -> None:
        """It is about the file as a whole."""


# Errors of the operating system that mean that a file, or a name in it, is wrong. With all
# else (no permission, a failing disk, too many open files) nothing is wrong with the data: were it
# damage, `skip_damaged` would leave out sound episodes. A file that is not there is damage of the
# episode that needs it only; if it was there before, a conversion finds that at its end.
_DAMAGE = (
    *(None, errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EOVERFLOW, errno.EFBIG, errno.ENXIO, errno.ENODEV, errno.ESPIPE),
)
# Of what a library says, as it may repeat what is in the file.
_MAX_WORDS = 500
# A call in the code of a source without an argument that it needs. (Not of a class: those are made
# of what a file names.)
_WRONG_CALL = re.compile(r"(?!.*__\(\))[\w.<>]+\(\) missing \d+ required ")


def is_damage(error: Exception) -> bool:
    """Whether an error that was raised while data was read is about the data."""
    if isinstance(error, StorageError):  # Of a log that is read.
        cause = error.__cause__
        return isinstance(cause, OSError) and cause.errno in (*_DAMAGE, errno.ENOENT)
    if isinstance(error, OSError):
        return error.errno in _DAMAGE
    if isinstance(error, TypeError) and _WRONG_CALL.match(str(error)):
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
    """Converts an error to one of the data that was being read.

    Args:
      error: The raised exception.
      file: See `SourceError`; or what finds it out, which is called only if it is needed.
      episode: Likewise.
      row: See `SourceError`.
      field: See `SourceError`.
      mistakes: Errors that are a mistake in the code that reads, see `rlds.sources.source`.

    Returns:
      A `SourceError`: the error itself if it is one. None if the error is not about the data: what
      the operating system refuses, a file that is not there (unless an episode needs it), a library
      that is not installed, memory that is exhausted, staged data, a mistake in the source itself.
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
    words, kind = " ".join(str(error).split())[:_MAX_WORDS], type(error).__name__
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
    """Makes a `SourceError` of any error that untrusted data causes in the library that reads it.

    What is not about the data stays what it is, see `as_source_error`, which has the same
    arguments. So does a `SourceError`; what it does not say of where it is, is added.

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
    """Returns how many bytes deflate can have made a file of: of more, they are not there.

    Args:
      size: The size of the file, in bytes.
    """
    # Deflate makes at most 1032 bytes of one. Headers and the like cost more than they are long.
    return (1 << 20) + 1100 * size


def trusted_bytes(size: int) -> int:
    """Returns how many bytes that come out of compressed ones may be kept.

    Recorded data hardly shrinks to less than a hundredth of its size; that of small files may.

    Args:
      size: The compressed size, in bytes.
    """
    return (1 << 28) + 100 * size


def check_declared(
    declared: int, size: int, *, file: str | os.PathLike[str], field: str | None = None
) -> None:
    """Checks that a file can hold what it declares.

    Args:
      declared: The declared size of the values, uncompressed, in bytes.
      size: The size of the file, in bytes.
      file: The file, for the error.
      field: The name of the values, for the error.

    Raises:
      SourceError: It cannot.
    """
    if declared > (possible := possible_bytes(size)):
        raise SourceError(
            f"{declared:,} bytes are declared, but the {size:,} bytes of the file can hold at most "
            f"{possible:,}",
            file=file,
            field=field,
        )


def check_is_file(path: str | os.PathLike[str]) -> None:
    """Checks that a path of this machine leads to a regular file, as others may never end.

    Raises:
      FileNotFoundError: There is nothing.
      SourceError: There is a directory, a pipe, a device; or nothing can have such a path.
    """
    if not is_local(os.fspath(path)):
        return
    with source_errors(path):  # Other files may say what its name is.
        mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise SourceError("not a regular file", file=path)


def check_link(path: str | os.PathLike[str]) -> None:
    """Checks that a path is no dangling link, whose target would be left out silently.

    Raises:
      SourceError: It is one.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise SourceError(f"a link to {os.readlink(path)!r}, which does not exist", file=path)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file or a folder at a path that others may have, too.

    Raises:
      SourceError: There is a link to nothing.
    """
    check_link(path)
    return bool(as_path(path).exists())


def folders_in(path: str | os.PathLike[str]) -> list[str]:
    """Returns the names of the folders in a folder, in order, without hidden ones.

    Raises:
      SourceError: There is a link to nothing.
    """
    entries = [entry for entry in list_directory(path) if not entry.name.startswith(".")]
    for entry in entries:
        if not entry.is_dir:
            check_link(os.path.join(path, entry.name))
    return [entry.name for entry in entries if entry.is_dir]
