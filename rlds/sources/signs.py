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

# Limit of the names in a folder that are read to rule out formats.
_MAX_READ_NAMES = 2000
# Limit of the members of an HDF5 file that are opened to distinguish groups from arrays.
_MAX_OPENED_GROUPS = 64
# Limits of the search for a file: levels of folders, and folders of each level.
_MAX_LEVELS, _MAX_FOLDERS = 6, 20
# Bytes that are read of the beginning of a file.
_MAX_HEAD_BYTES = 1 << 20
_HDF5_SUFFIXES, _NPZ_SUFFIX = (".h5", ".hdf5"), ".npz"
_is_top_level = re.compile("[^/:]+").fullmatch


@dataclasses.dataclass(frozen=True)
class FileSigns:
    """The signature of a format: patterns of its files, and the contents of the first file.

    Attributes:
      files: Alternative patterns of paths: of the file itself, or of files in a folder; with a
        slash, only of files in a folder. `**/` stands for up to 6 folders.
      members: Alternative lists of members of the first file. In HDF5, patterns of paths, where
        `!name` must be missing and `name:2` is an array of two axes; in `.npz` files, names of
        arrays, or the names before their first slash; otherwise words at the beginning. Empty for
        no check.
      max_files: The largest number of matching files in a folder of the format.
    """

    files: str
    members: tuple[str, ...] = ()
    max_files: float = math.inf

    @property
    def names(self) -> tuple[str, ...]:
        """Patterns of the names of the files."""
        return tuple(map(posixpath.basename, self.files.split()))


class Signs:
    """The names and contents of a path by which formats are detected, read once on demand.

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
        """The name of a file, or all names in a folder; None if there are too many."""
        if not stores.is_local(self._path):
            return None
        folder = os.fspath(stores.as_path(self._path))
        names = {os.path.basename(os.path.abspath(folder))}
        for _, folders, files in os.walk(folder):
            names.update(folders, files)
            if len(names) > _MAX_READ_NAMES:
                return None
        return names

    def has_name(self, patterns: tuple[str, ...]) -> bool:
        """Returns True if a file or folder may match one of the name patterns."""
        names = self.names
        return names is None or any(fnmatchcase(n, pattern) for pattern in patterns for n in names)

    def has_file(self, signs: FileSigns) -> bool:
        """Returns True if files of a format exist, and the first one has its contents.

        Raises:
          ImportError: A required library is not installed; the message tells how to install it.
          OSError: The file cannot be read.
          SourceError: The file is damaged.
        """
        files = [file for pattern in signs.files.split() for file in self._find_files(pattern)]
        if not files or (self._is_folder and len(files) > signs.max_files):
            return False
        if not signs.members:
            return True
        file = min(files, key=lambda file: natural_order(file.name))
        with self._lock:  # Formats are tested in parallel threads.
            if os.fspath(file) not in self._contents:
                self._contents[os.fspath(file)] = self._read_names_or_head(file)
        contents = self._contents[os.fspath(file)]
        return any(all(_is_in(contents, sign) for sign in text.split()) for text in signs.members)

    def _find_files(self, pattern: str) -> list[Any]:
        """Returns the files that match a pattern; for a recursive one (`**/`), the first file."""
        root = stores.as_path(self._path)
        folder, _, name = pattern.rpartition("/")
        if not self._is_folder:
            is_match = not folder and fnmatchcase(root.name, name)
            return [root] if is_match and root.exists() else []
        if folder == "**":
            return [*itertools.islice(self._find_below(root, name, _MAX_LEVELS), 1)]
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

    def _find_below(self, folder: Any, pattern: str, levels: int) -> Iterator[Any]:
        """Yields files in a folder, and in the first folders below it."""
        yield from self._files_in(folder, pattern)
        for name in folders_in(folder)[:_MAX_FOLDERS] if levels else ():
            yield from self._find_below(folder / name, pattern, levels - 1)

    @functools.cached_property
    def _is_folder(self) -> bool:
        return bool(stores.as_path(self._path).is_dir())

    def _read_names_or_head(self, file: Any) -> set[str] | bytes:
        if file.name.endswith(_HDF5_SUFFIXES):
            try:
                paths = set(_members_of(file))
            except SourceError as error:
                self.damage, paths = error, set()
            self.hdf5_names = sorted(filter(_is_top_level, paths))
            return paths
        check_is_file(file)
        with stores.open_binary(file) as stream:
            if not file.name.endswith(_NPZ_SUFFIX):
                return bytes(stream.read(_MAX_HEAD_BYTES))
            with zipfile.ZipFile(stream) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
            return {*names, *map(root_of, names)}


def _members_of(file: Any) -> Iterator[str]:
    """Yields paths in an HDF5 file: of the root, its groups, and the first of their groups."""
    from rlds.raw_files.hdf5_access import Hdf5File

    hdf5 = Hdf5File(file)

    def members_below(group: Any, path: str, max_opened: int) -> Iterator[str]:
        for position, name in enumerate(itertools.islice(group, _MAX_READ_NAMES)):
            yield (member := f"{path}{name}")
            if position >= max_opened:
                continue
            with contextlib.suppress(SourceError):  # Links and damaged members have only names.
                item = hdf5.member(group, name, member)
                if not hasattr(item, "keys"):
                    yield f"{member}:{len(item.shape or ())}"
                elif path.count("/") < 2:
                    yield from members_below(item, f"{member}/", not path)

    with hdf5.read() as h5_file:
        yield from members_below(h5_file, "", _MAX_OPENED_GROUPS)


def _is_in(members: set[str] | bytes, pattern: str) -> bool:
    if isinstance(members, bytes):
        return pattern.encode() in members
    if pattern.startswith("!"):
        return not _is_in(members, pattern[1:])
    if pattern in members:
        return True
    compiled = re.compile(pattern.replace("*", "[^/]*").replace("#", r"\d+"))
    return any(map(compiled.fullmatch, members))
