"""Brings a dataset to an object store, so that it is either readable there or not there at all."""

from __future__ import annotations

import os

from etils import epath

from rlds_ecosystem.files import stores
from rlds_ecosystem.model.errors import StorageError, storage_errors
from tfds_files import index_files

__all__ = ["missing_files", "publish"]

# Who reads a dataset asks for this file first. It is written last, and removed first.
_DATASET_INFO = "dataset_info.json"

_STEP = 1 << 23


def publish(here: epath.Path, there: epath.Path) -> None:
    """Copies the files below a directory, of which one describes a dataset that the others hold.

    That file comes last, when all others were read back and are what they should be. If the process
    is killed before, there is no dataset; the same call then copies what is missing.

    Args:
      here: The directory, on this machine.
      there: The directory in a store that is to have the same files.

    Raises:
      StorageError: They cannot be written, or what is read back is something else.
    """
    paths = [
        os.path.relpath(os.path.join(directory, name), here)
        for directory, _, names in os.walk(here)
        if os.path.basename(directory) != index_files.FOLDER  # Of files on this machine only.
        for name in names
    ]
    [info] = (path for path in paths if os.path.basename(path) == _DATASET_INFO)
    others = sorted(path for path in paths if path != info)
    with storage_errors(there):
        (there / info).unlink(missing_ok=True)
        for path in (there / info).parent.glob("*-of-*"):
            # A conversion that was killed may have cut the dataset in another way.
            if os.fspath(path.relative_to(there)) not in {*others, info}:
                path.unlink()
        stores.in_parallel(lambda path: _bring(here / path, there / path), others, there)
        _bring(here / info, there / info)


def missing_files(directory: epath.Path, names: list[str]) -> list[str]:
    """Returns those of the names that are not in a directory.

    Raises:
      StorageError: It cannot be read.
    """
    with storage_errors(directory):
        found = {entry.name for entry in stores.list_directory(directory)}
    return [name for name in names if name not in found]


def _bring(here: epath.Path, there: epath.Path) -> None:
    if _is_same(here, there):  # A process that was killed has brought it.
        return
    stores.copy_file(here, there)
    if not _is_same(here, there):
        raise StorageError(
            f"{there}: the data read back differs from the data written; convert again, while "
            "nobody else writes there"
        )


def _is_same(here: epath.Path, there: epath.Path) -> bool:
    try:
        if there.stat().length != here.stat().length:
            return False
        with here.open("rb") as local, stores.open_binary(there) as remote:
            while piece := local.read(_STEP):
                if piece != remote.read(len(piece)):
                    return False
    except FileNotFoundError:
        return False
    return True
