"""Paths and names of Minari datasets in its local storage."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

from rlds_ecosystem.files import stores

__all__ = [
    "LEGACY_SIDECAR",
    "dataset_directory",
    "datasets_root",
    "find_identifier",
    "is_versioned",
    "make_namespaces",
]

# The path of the sidecar in datasets of earlier releases, below the dataset.
LEGACY_SIDECAR = "data/rlds"

_DATASET_ID = re.compile(r"(?:[-_\w][-_\w/]*[-_\w]+/)?[-_\w]+-v\d+")
_NAMESPACE_FILE = "namespace_metadata.json"


def datasets_root() -> pathlib.Path:
    """Returns the root folder of Minari datasets."""
    root = os.environ.get("MINARI_DATASETS_PATH")
    return pathlib.Path(root) if root else pathlib.Path.home() / ".minari" / "datasets"


def dataset_directory(path_or_id: str | os.PathLike[str]) -> Any:
    """Returns the directory of an existing dataset, as a path of `pathlib` or of a store.

    Args:
      path_or_id: The directory `<name>-v<number>` or its URL, the directory `data` in it, or the
        identifier of a dataset in Minari's local storage, such as "mujoco/hopper/medium-v0".

    Raises:
      FileNotFoundError: There is no such dataset.
    """
    name = os.fspath(path_or_id)
    path: Any = pathlib.Path(name) if stores.is_local(name) else stores.as_path(name)
    directory: Any
    for directory in (path, datasets_root() / name):
        if (directory / "data" / "metadata.json").is_file():
            return directory
        if directory.name == "data" and (directory / "metadata.json").is_file():
            return directory.parent
    raise FileNotFoundError(
        f"{name!r} is not a Minari dataset: there is no data/metadata.json in this directory, nor "
        f"in {os.fspath(datasets_root() / name)!r}, where Minari would look for it."
    )


def find_identifier(path: str | os.PathLike[str], recorded_id: str) -> str:
    """Returns the identifier of a new dataset.

    Args:
      path: The directory of the dataset. Below Minari's root, the identifier is the relative path,
        such as "mujoco/hopper/medium-v0".
      recorded_id: The identifier of the source dataset; empty if there is none.

    Raises:
      ValueError: The name of the directory is no identifier of Minari.
    """
    root = datasets_root().absolute()
    directory: Any = stores.as_path(os.path.abspath(path) if stores.is_local(path) else path)
    if not is_versioned(directory.name):
        raise ValueError(f"{os.fspath(path)!r} does not end with <name>-v<number>; Minari needs it")
    if directory.is_relative_to(root):
        return directory.relative_to(root).as_posix()
    is_recorded = os.fspath(directory).endswith(f"/{recorded_id}") and recorded_id
    return recorded_id if is_recorded else directory.name


def is_versioned(name: str) -> bool:
    """Returns True if a name of a directory is an identifier of Minari."""
    return _DATASET_ID.fullmatch(name) is not None


def make_namespaces(path: str | os.PathLike[str]) -> None:
    """Declares the directories between Minari's root and a dataset as namespaces of Minari."""
    root, directory = datasets_root().absolute(), pathlib.Path(os.path.abspath(path))
    if not stores.is_local(path) or not directory.is_relative_to(root):
        return
    for parent in directory.parents:
        if parent == root:
            return
        file = parent / _NAMESPACE_FILE
        if not file.exists():
            file.write_text("{}")
