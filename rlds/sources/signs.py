"""Signs: what is at a path, by which formats are told apart without loading them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import threading
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import SourceError
from rlds_ecosystem.files import stores

__all__ = ["Hdf5Signs", "Signs"]

# How many names are looked at to tell which formats a path cannot be of.
_MOST_NAMES = 2000
# How many members of an HDF5 file are opened, to tell groups from arrays.
_MOST_OPENED = 64
_HDF5 = (".h5", ".hdf5")
_AT_TOP = re.compile("[^/:]+").fullmatch


@dataclasses.dataclass(frozen=True)
class Hdf5Signs:
    """What the HDF5 files of a format have.

    Attributes:
      members: What is in them, by patterns of paths: one of several texts. `!name` is not there,
        and `name:2` is an array of two axes.
      files: A pattern of their names.
      most: How many a folder may have to be data of the format; none if only a file is.
    """

    members: tuple[str, ...]
    files: str = "*"
    most: float = 0


class Signs:
    """What is at a path; looked at when it is asked for, and once.

    Args:
      path: A file or a folder.

    Attributes:
      damage: What is wrong with an HDF5 file there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self.damage: SourceError | None = None
        self._lock = threading.Lock()
        self._members: dict[str, set[str]] = {}

    @functools.cached_property
    def names(self) -> set[str] | None:
        """The names of a file, or of all that is in a folder; None if that takes long."""
        if not stores.is_local(self._path):
            return None
        place = os.fspath(stores.as_path(self._path))
        names = {os.path.basename(os.path.abspath(place))}
        for _, folders, files in os.walk(place):
            names.update(folders, files)
            if len(names) > _MOST_NAMES:
                return None
        return names

    def has_name(self, patterns: tuple[str, ...]) -> bool:
        """Whether something may have a name of such a pattern."""
        names = self.names
        return names is None or any(fnmatchcase(n, each) for each in patterns for n in names)

    def has_hdf5(self, wanted: Hdf5Signs) -> bool:
        """Whether the HDF5 file, or the first one of a folder, has what a format has.

        Raises:
          ImportError: What would read it is not installed; says how to install it.
          OSError: It cannot be read.
        """
        with self._lock:  # All formats ask, each in a thread of its own.
            files = [name for name in self._files if fnmatchcase(name, wanted.files)]
            if not files or (self._is_folder and len(files) > wanted.most):
                return False
            place = stores.as_path(self._path)
            if files[0] not in self._members:
                file = place / files[0] if self._is_folder else place
                self._members[files[0]] = self._members_of(file)
        found = self._members[files[0]]
        return any(all(_is_in(found, each) for each in text.split()) for text in wanted.members)

    def _members_of(self, file: Any) -> set[str]:
        try:
            return set(_members_of(file))
        except SourceError as error:
            self.damage = error
            return set()

    @property
    def hdf5_names(self) -> list[str]:
        """The names at the top of the HDF5 file, if formats have asked for it."""
        return sorted(each for found in self._members.values() for each in found if _AT_TOP(each))

    @functools.cached_property
    def _is_folder(self) -> bool:
        return bool(stores.as_path(self._path).is_dir())

    @functools.cached_property
    def _files(self) -> list[str]:
        """The names of HDF5 files: of the one that is there, or of those of a folder."""
        place = stores.as_path(self._path)
        if not self._is_folder:
            return [place.name] if place.name.endswith(_HDF5) and place.exists() else []
        found = [
            entry.name
            for entry in stores.list_directory(place)
            if entry.name.endswith(_HDF5) and not entry.name.startswith(".") and not entry.is_dir
        ]
        return sorted(found, key=natural_order)


def _members_of(file: Any) -> Iterator[str]:
    """Yields paths in an HDF5 file: at its top, in groups there, and in the first of each group."""
    from rlds.raw_files.hdf5_access import Hdf5File

    hdf5 = Hdf5File(file)

    def below(group: Any, path: str, opened: int) -> Iterator[str]:
        for number, name in enumerate(itertools.islice(group, _MOST_NAMES)):
            yield (member := f"{path}{name}")
            if number >= opened:
                continue
            with contextlib.suppress(SourceError):  # A link, or damaged: it is there at least.
                item = hdf5.member(group, name, member)
                if not hasattr(item, "keys"):
                    yield f"{member}:{len(item.shape or ())}"
                elif path.count("/") < 2:
                    yield from below(item, f"{member}/", not path)

    with hdf5.read() as opened:
        yield from below(opened, "", _MOST_OPENED)


def _is_in(members: set[str], wanted: str) -> bool:
    if wanted.startswith("!"):
        return not _is_in(members, wanted[1:])
    if wanted in members:
        return True
    pattern = re.compile(wanted.replace("*", "[^/]*").replace("#", r"\d+"))
    return any(map(pattern.fullmatch, members))
