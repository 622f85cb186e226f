"""Signs: file names and contents by which formats are detected, without loading readers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import posixpath
import re
import threading
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import SourceError, check_is_file, folders_in
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.nests import root_of

__all__ = ["FileSigns", "Signs"]

# The limit of names to read to exclude formats of a path.
_MOST_NAMES = 2000
# The limit of members of an HDF5 file to open, to tell groups from arrays.
_MOST_OPENED = 64
# Levels of folders to search for a file, and folders of each level.
_LEVELS, _MOST_FOLDERS = 6, 20
# Bytes to read of a file that is no container.
_MOST_BYTES = 1 << 20
_HDF5, _NPZ = (".h5", ".hdf5"), ".npz"
_AT_TOP = re.compile("[^/:]+").fullmatch


@dataclasses.dataclass(frozen=True)
class FileSigns:
    """Files of a format, and the contents of the first one.

    Attributes:
      files: Patterns of their paths, one of which is there: of the file itself, or of files in a
        folder; with a slash, of files in a folder only. `**/` stands for up to 6 folders.
      members: Members of the first file, one of several texts: in HDF5, patterns of paths, where
        `!name` is not there and `name:2` is an array of two axes; in `.npz` files, names of arrays
        and the first parts of these; in all others, words at the beginning. Empty if it is not
        looked at.
      max_files: The limit of such files in a folder that is data of the format.
    """

    files: str
    members: tuple[str, ...] = ()
    max_files: float = math.inf

    @property
    def names(self) -> tuple[str, ...]:
        """Patterns of the names of the files."""
        return tuple(map(posixpath.basename, self.files.split()))


class Signs:
    """The names and contents at a path by which formats are detected; each is read once, on demand.

    Args:
      path: A file or a folder.

    Attributes:
      damage: The error of a damaged HDF5 file.
      hdf5_names: The names at the top level of the HDF5 file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self.damage: SourceError | None = None
        self.hdf5_names: list[str] = []
        self._lock = threading.Lock()
        self._contents: dict[str, set[str] | bytes] = {}
        self._entries_in = functools.cache(stores.list_directory)

    @functools.cached_property
    def names(self) -> set[str] | None:
        """The names of a file, or of all that is in a folder; None if that takes long."""
        if not stores.is_local(self._path):
            return None
        folder = os.fspath(stores.as_path(self._path))
        names = {os.path.basename(os.path.abspath(folder))}
        for _, folders, files in os.walk(folder):
            names.update(folders, files)
            if len(names) > _MOST_NAMES:
                return None
        return names

    def has_name(self, patterns: tuple[str, ...]) -> bool:
        """Whether a file or folder may match one of the name patterns."""
        names = self.names
        return names is None or any(fnmatchcase(n, each) for each in patterns for n in names)

    def has_file(self, signs: FileSigns) -> bool:
        """Whether there is a file of a format, and the content of the first one fits.

        Raises:
          ImportError: A required library is not installed; the message tells how to install it.
          OSError: It cannot be read.
          SourceError: It is damaged.
        """
        files = [file for pattern in signs.files.split() for file in self._matching(pattern)]
        if not files or (self._is_folder and len(files) > signs.max_files):
            return False
        if not signs.members:
            return True
        file = min(files, key=lambda file: natural_order(file.name))
        with self._lock:  # All formats ask, each in a thread of its own.
            if os.fspath(file) not in self._contents:
                self._contents[os.fspath(file)] = self._names_or_head(file)
        contents = self._contents[os.fspath(file)]
        return any(all(_is_in(contents, each) for each in text.split()) for text in signs.members)

    def _matching(self, pattern: str) -> list[Any]:
        """Returns the files that match a pattern; of a recursive pattern (`**/`), the first one."""
        root = stores.as_path(self._path)
        folder, _, name = pattern.rpartition("/")
        if not self._is_folder:
            is_meant = not folder and fnmatchcase(root.name, name)
            return [root] if is_meant and root.exists() else []
        if folder == "**":
            return [*itertools.islice(self._below(root, name, _LEVELS), 1)]
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._files_in(root / folder, name)
        return []

    def _files_in(self, folder: Any, pattern: str) -> list[Any]:
        """Returns files in a folder, without hidden ones unless the pattern begins with a dot."""
        return [
            folder / entry.name
            for entry in self._entries_in(os.fspath(folder))
            if fnmatchcase(entry.name, pattern)
            and not entry.is_dir
            and entry.name.startswith(".") == pattern.startswith(".")
        ]

    def _below(self, folder: Any, pattern: str, levels: int) -> Iterator[Any]:
        """Yields files in a folder, and in the first folders below it."""
        yield from self._files_in(folder, pattern)
        for name in folders_in(folder)[:_MOST_FOLDERS] if levels else ():
            yield from self._below(folder / name, pattern, levels - 1)

    @functools.cached_property
    def _is_folder(self) -> bool:
        return bool(stores.as_path(self._path).is_dir())

    def _names_or_head(self, file: Any) -> set[str] | bytes:
        if file.name.endswith(_HDF5):
            try:
                paths = set(_members_of(file))
            except SourceError as error:
                self.damage, paths = error, set()
            self.hdf5_names = sorted(filter(_AT_TOP, paths))
            return paths
        check_is_file(file)
        with stores.open_binary(file) as stream:
            if not file.name.endswith(_NPZ):
                return bytes(stream.read(_MOST_BYTES))
            with zipfile.ZipFile(stream) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
            return {*names, *map(root_of, names)}


def _members_of(file: Any) -> Iterator[str]:
    """Yields paths in an HDF5 file: at its top, in groups there, and in the first of each group."""
    from rlds.raw_files.hdf5_access import Hdf5File

    hdf5 = Hdf5File(file)

    def below(group: Any, path: str, opened: int) -> Iterator[str]:
        for number, name in enumerate(itertools.islice(group, _MOST_NAMES)):
            yield (member := f"{path}{name}")
            if number >= opened:
                continue
            with contextlib.suppress(SourceError):  # A link or damaged member: it exists at least.
                item = hdf5.member(group, name, member)
                if not hasattr(item, "keys"):
                    yield f"{member}:{len(item.shape or ())}"
                elif path.count("/") < 2:
                    yield from below(item, f"{member}/", not path)

    with hdf5.read() as opened:
        yield from below(opened, "", _MOST_OPENED)


def _is_in(members: set[str] | bytes, pattern: str) -> bool:
    if isinstance(members, bytes):
        return pattern.encode() in members
    if pattern.startswith("!"):
        return not _is_in(members, pattern[1:])
    if pattern in members:
        return True
    compiled = re.compile(pattern.replace("*", "[^/]*").replace("#", r"\d+"))
    return any(map(compiled.fullmatch, members))
