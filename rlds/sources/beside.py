"""Storage of labels, audits and tables that belong to a dataset: beside it, or in the cache."""

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

__all__ = ["cached", "facts_of", "folder_of", "root_of"]

# Readers of tables take a path with one of these for a pattern, and none that is no text.
_UNREADABLE = re.compile("[*?[\ud800-\udfff]")


def root_of(source: AnySource) -> str:
    """Returns the folder of a dataset, or that which all files of a source are in; or the file."""
    return _root_of(source, source.inputs())


def _root_of(source: AnySource, inputs: Iterable[str | os.PathLike[str]]) -> str:
    match reading.bases(source):  # A folder may have one file beside those that describe it.
        case [base] if base.can.examples is not None:
            inputs = [base.can.examples.directory]
    names = [os.path.abspath(os.fspath(path)) for path in inputs]
    return os.path.commonpath(names) if names else ""


def facts_of(files: Iterable[str | os.PathLike[str]], root: str) -> list[tuple[str, int, int]]:
    """Returns facts that identify versions of files: names below a root, sizes and times."""
    facts = []
    for path in files:
        name = os.fspath(path)
        if stores.is_local(name):
            stat = os.stat(name)
            facts.append((os.path.relpath(name, root), stat.st_size, stat.st_mtime_ns))
        else:
            about = stores.as_path(name).stat()
            facts.append((name, about.length, int(about.mtime * 1e9)))
    return facts


def folder_of(source: AnySource) -> Iterator[Path]:
    """Yields the folder `.rlds` of the data, unless that is one file, or in a store."""
    root = _local_root(source)
    if os.path.isdir(root) and not _UNREADABLE.search(root):
        yield Path(root, FOLDER)


def cached(source: AnySource, kind: str) -> Iterator[Path]:
    """Yields the folder of the cache for a source, if there is a cache."""
    if root := _local_root(source):
        of = os.path.realpath(root)
    else:
        of = json.dumps(sorted(os.fspath(path) for path in source.inputs()))
    folder = cache_folder(kind, of)
    if folder is not None:
        yield folder


def _local_root(source: AnySource) -> str:
    inputs = source.inputs()
    is_local = all(stores.is_local(os.fspath(path)) for path in inputs)
    return _root_of(source, inputs) if is_local else ""
