"""The errors of this package.

    EnvLoggerError (RuntimeError)
    |-- UsageError                             an invalid call, such as after close
    |-- StorageError                           a directory or file cannot be opened, written or read
    |-- DamagedDataError                       stored bytes that a recorder did not write
    |-- UnsupportedTypeError  (TypeError)      a value of a type that cannot be stored
    |-- UnsupportedValueError (ValueError)     a value of a supported type that cannot be stored
    `-- InvalidStepError      (ValueError)     a step that does not match the specs

Wrong arguments raise Python's own `TypeError` and `ValueError`. Files in a valid form that the
`riegeli` package cannot read raise its `UnimplementedError`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from rlds_ecosystem.files.stores import is_local

__all__ = [
    "DamagedDataError",
    "EnvLoggerError",
    "InvalidStepError",
    "StorageError",
    "UnsupportedTypeError",
    "UnsupportedValueError",
    "UsageError",
    "storage_errors",
]


class EnvLoggerError(RuntimeError):
    """The base of all errors of this package; a `RuntimeError`, as callers of EnvLogger expect."""


class UsageError(EnvLoggerError):
    """A call is invalid, for example after close."""


class StorageError(EnvLoggerError):
    """A directory or file cannot be opened, written or read."""


class DamagedDataError(EnvLoggerError):
    """Stored data is damaged, cut short, or not something that a recorder wrote."""


class UnsupportedTypeError(EnvLoggerError, TypeError):
    """A value has a type that cannot be stored."""


class UnsupportedValueError(EnvLoggerError, ValueError):
    """A value has a supported type, but cannot be stored."""


class InvalidStepError(EnvLoggerError, ValueError):
    """A step does not match the specs of its environment."""


@contextlib.contextmanager
def storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds the name of the file to errors of the operating system."""
    try:
        yield
    except OSError as error:
        advice = "free disk space or grant permission there, or choose another path"
        if not is_local(path):  # Errors of stores have a remedy.
            advice = "or choose another path"
        raise StorageError(f"{os.fspath(path)!r} cannot be written ({error}); {advice}") from error
