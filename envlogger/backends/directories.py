"""Checks of the directories of recordings, before reading or writing."""

from __future__ import annotations

import os

from etils import epath

from envlogger.errors import StorageError
from rlds_ecosystem.files import stores

__all__ = ["directory_to_read", "directory_to_write"]


def directory_to_read(data_directory: str | os.PathLike[str]) -> epath.Path:
    """Returns the directory as a path; in an object store, only the bucket must exist.

    Raises:
      StorageError: The directory is missing or not a directory, or its store cannot be used.
    """
    return _check_directory(data_directory, may_create=False)


def directory_to_write(data_directory: str | os.PathLike[str]) -> epath.Path:
    """Returns the directory as a path; creates it, and its parents, if missing.

    Raises:
      StorageError: The directory cannot be created or is not a directory, or its store cannot be
        used.
    """
    return _check_directory(data_directory, may_create=True)


def _check_directory(data_directory: str | os.PathLike[str], *, may_create: bool) -> epath.Path:
    if not os.fspath(data_directory):
        raise StorageError("data_directory is empty; pass the path of a directory")
    try:
        path = stores.as_path(data_directory)
        if not stores.is_local(path):
            stores.require_bucket(path)
            return path
    except (OSError, ValueError) as e:
        raise StorageError(f"data_directory cannot be used: {e}") from e
    if not path.exists() and not may_create:
        raise StorageError(f"data_directory {path} does not exist; check the path")
    if not path.exists():
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StorageError(f"data_directory {path} cannot be created: {e}") from e
    if not path.is_dir():
        raise StorageError(f"data_directory {path} is not a directory")
    return path
