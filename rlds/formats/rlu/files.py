"""The files of RL Unplugged datasets, by names that are the same on every machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from etils import epath

from rlds.sources.source import require_files
from rlds_ecosystem.files import stores

__all__ = ["PathOrPaths", "count_sets", "find_files"]

# A directory, a file, or several files.
PathOrPaths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_FILE_NAME = re.compile(r"(?P<prefix>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})")


def find_files(path: PathOrPaths, prefix: str | None) -> dict[str, epath.Path]:
    """Returns files by machine-independent names.

    Args:
      path: A directory with files, or a file, or a list of files. In a directory the files are
        those with names such as `train-00000-of-00100`.
      prefix: The prefix of the names of the files, up to the first number; None for all files.

    Raises:
      FileNotFoundError: There is no such file, or none in the directory.
      ValueError: A file is listed twice.
    """
    if not isinstance(path, (str, os.PathLike)):
        return _name_files(require_files(*path))
    directory = stores.as_path(path)
    if not directory.is_dir():
        return _name_files(require_files(directory))
    names = sorted(file.name for file in directory.iterdir())
    matches = [match for match in map(_FILE_NAME.fullmatch, names) if match]
    file_names = [match[0] for match in matches if prefix in (None, match["prefix"])]
    if not file_names:
        raise FileNotFoundError(
            f"{os.fspath(directory)!r} has no file with a name such as "
            f"{prefix or 'train'}-00000-of-00100; it has {names[:5]}."
        )
    return {name: directory / name for name in file_names}


def count_sets(files: Iterable[epath.Path]) -> dict[str, dict[str, int]]:
    """Counts the files of each published set, and the files that the set should have."""
    sets: dict[str, dict[str, int]] = {}
    for file in files:
        match = _FILE_NAME.fullmatch(file.name)
        if match is not None:
            counts = sets.setdefault(match["prefix"], {"of": int(match["count"]), "found": 0})
            counts["found"] += 1
    return sets


def _name_files(files: Sequence[epath.Path]) -> dict[str, epath.Path]:
    """Names files by the shortest unique ends of their paths."""
    if not files:
        raise FileNotFoundError("files: expected at least one file.")
    for depth in range(1, 1 + max(len(file.parts) for file in files)):
        names = {"/".join(file.parts[-depth:]): file for file in files}
        if len(names) == len(files):
            return names
    raise ValueError(f"files: a file is listed twice:  {[os.fspath(file) for file in files]}")
