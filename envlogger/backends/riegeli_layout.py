"""The files of a dataset in Riegeli format.

    data_directory/
      metadata.riegeli             one record, `Data`: a dict about the whole dataset
      20260131T235959123456/       a shard, named after the UTC time at which it was begun
        steps.riegeli              `Data` for each step
        step_offsets.riegeli       `Datum`s, int64 arrays [n]: where in steps.riegeli the steps are
        episode_metadata.riegeli   `Data` for each episode that has metadata
        episode_index.riegeli      `Datum`s, int64 arrays [n, 2]: for each episode the number of its
                                   first step in this shard, and where in episode_metadata.riegeli
                                   its metadata is, or -1

Shards are read in the order of their names, and the arrays of a file one after the other. An
episode ends where the next one of its shard begins; the last one has all steps that remain in
`step_offsets.riegeli`. Positions are numeric record positions: the beginning of the chunk plus the
index in it.
"""

from __future__ import annotations

import os

from etils import epath

from envlogger.errors import StorageError
from rlds_ecosystem import stores

METADATA_FILE = "metadata.riegeli"
STEPS_FILE = "steps.riegeli"
STEP_OFFSETS_FILE = "step_offsets.riegeli"
EPISODE_METADATA_FILE = "episode_metadata.riegeli"
EPISODE_INDEX_FILE = "episode_index.riegeli"

SHARD_NAME_FORMAT = "%Y%m%dT%H%M%S%f"

NO_METADATA = -1


def directory_to_read(data_directory: str | os.PathLike[str]) -> epath.Path:
    """The directory as a path; one of a store, which has no directories, needs its bucket only.

    Raises:
      StorageError: It is not there, or it is not a directory; its store cannot be used.
    """
    path = _usable(data_directory)
    if stores.is_local(path) and not path.exists():
        raise StorageError(f"data_directory {path} does not exist; check the path")
    return _not_a_file(path)


def directory_to_write(data_directory: str | os.PathLike[str]) -> epath.Path:
    """The directory as a path, after making it, and those above it, where they are missing.

    Raises:
      StorageError: It cannot be made, or it is not a directory; its store cannot be used.
    """
    path = _usable(data_directory)
    if stores.is_local(path) and not path.exists():
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StorageError(f"data_directory {path} cannot be made: {e}") from e
    return _not_a_file(path)


def _usable(data_directory: str | os.PathLike[str]) -> epath.Path:
    if not os.fspath(data_directory):
        raise StorageError("data_directory is empty; give the path of a directory")
    try:
        path = stores.as_path(data_directory)
        if not stores.is_local(path):
            stores.require_bucket(path)
    except (OSError, ValueError) as e:
        raise StorageError(f"data_directory cannot be used: {e}") from e
    return path


def _not_a_file(path: epath.Path) -> epath.Path:
    if stores.is_local(path) and not path.is_dir():
        raise StorageError(f"data_directory {path} is not a directory")
    return path
