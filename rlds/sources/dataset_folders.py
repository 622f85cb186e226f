"""Folders for labels, audits and tables of a dataset: next to the data, or in the cache."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rlds.sources import reading
from rlds.sources.source import AnySource
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.caches import cache_folder
from rlds_ecosystem.files.replacing import FOLDER

__all__ = ["cache_folder_of", "file_versions", "folder_of", "root_of"]

# Characters that table readers treat as patterns, or cannot encode.
_PATTERN_CHARACTERS = re.compile("[*?[\ud800-\udfff]")


def root_of(source: AnySource) -> str:
    """Returns the folder of a dataset: the common parent of its files, or its single file."""
    return _root_of(source, source.inputs())


def _root_of(source: AnySource, inputs: Iterable[str | os.PathLike[str]]) -> str:
    match reading.roots(source):  # A dataset folder may have only one data file.
        case [base] if base.capabilities.examples is not None:
            inputs = [base.capabilities.examples.directory]
    names = [os.path.abspath(os.fspath(path)) for path in inputs]
    return os.path.commonpath(names) if names else ""


def file_versions(files: Iterable[str | os.PathLike[str]], root: str) -> list[tuple[str, int, int]]:
    """Returns the versions of files: relative names, sizes, modification times."""
    versions = []
    for path in files:
        name = os.fspath(path)
        if stores.is_local(name):
            state = os.stat(name)
            versions.append((os.path.relpath(name, root), state.st_size, state.st_mtime_ns))
        else:
            status = stores.as_path(name).stat()
            versions.append((name, status.length, int(status.mtime * 1e9)))
    return versions


def folder_of(source: AnySource) -> Iterator[Path]:
    """Yields the folder `.rlds` of the data; nothing for one file, or in an object store."""
    root = _local_root(source)
    if os.path.isdir(root) and not _PATTERN_CHARACTERS.search(root):
        yield Path(root, FOLDER)


def cache_folder_of(source: AnySource, kind: str) -> Iterator[Path]:
    """Yields the cache folder for a source; nothing without a cache."""
    if root := _local_root(source):
        identity = os.path.realpath(root)
    else:
        identity = json.dumps(sorted(os.fspath(path) for path in source.inputs()))
    folder = cache_folder(kind, identity)
    if folder is not None:
        yield folder


def _local_root(source: AnySource) -> str:
    inputs = source.inputs()
    is_local = all(stores.is_local(os.fspath(path)) for path in inputs)
    return _root_of(source, inputs) if is_local else ""
