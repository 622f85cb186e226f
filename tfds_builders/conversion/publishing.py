"""Brings a dataset to an object store, so that it is either readable there or not there at all."""

from __future__ import annotations

from etils import epath

from rlds_ecosystem.files import stores
from rlds_ecosystem.model.errors import storage_errors

__all__ = ["missing_files", "publish"]

# Who reads a dataset asks for this file first. It is written last, and removed first.
_DATASET_INFO = "dataset_info.json"


def publish(here: epath.Path, there: epath.Path) -> None:
    """Copies the folder of a dataset to a store; `dataset_info.json` comes last.

    If the process is killed before, there is no dataset; the same call then copies what is missing.

    Args:
      here: The folder, on this machine.
      there: The folder in a store that is to have the same files.

    Raises:
      StorageError: They cannot be written, or what is read back is something else.
    """
    with storage_errors(there):
        (there / _DATASET_INFO).unlink(missing_ok=True)
        for path in there.glob("*-of-*"):
            # A conversion that was killed may have cut the dataset in another way.
            if not (here / path.name).exists():
                path.unlink()
        stores.publish(here, there, last=[_DATASET_INFO])


def missing_files(directory: epath.Path, names: list[str]) -> list[str]:
    """Returns those of the names that are not in a directory.

    Raises:
      StorageError: It cannot be read.
    """
    with storage_errors(directory):
        found = {entry.name for entry in stores.list_directory(directory)}
    return [name for name in names if name not in found]
