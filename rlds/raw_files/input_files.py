"""The files that a source reads, and checks for changes of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import stat
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from etils import epath

from rlds.raw_files.untrusted import SourceChangedError, check_is_file
from rlds_ecosystem.files import stores

__all__ = [
    "FileState",
    "Files",
    "changed",
    "check_unchanged",
    "files_at",
    "natural_order",
    "present",
    "state_of",
]

# The number and size of the sampled pieces of a file; a smaller file is read completely.
_NUM_SAMPLES, _SAMPLE_BYTES = 16, 1 << 14
# If a change is more recent than this, in nanoseconds, the next change may have the same time.
_CLOCK_TICK_NS = 50_000_000

_Inputs = Callable[[], Iterable[str | os.PathLike[str]]]


class Files:
    """The state of the local files of a source at the time of its opening.

    Edits replace folders and files, as most safe writers do; one system call for each path detects
    this. If the entries of a folder have changed, the entries that the source reads are compared.

    Args:
      *paths: The folder or the file of the dataset, and other paths that may be replaced alone.
      may_grow: True if files may become longer, be added, and be renamed.

    Copies in other processes of this machine compare with the same files; a copy on another machine
    compares with the files of that machine.
    """

    def __init__(self, *paths: str | os.PathLike[str], may_grow: bool = False) -> None:
        self.may_grow, self._machine = may_grow, platform.node()
        self._states: dict[str, tuple[int, ...]] = {}
        # The time of the last change of each folder, and its entries.
        self._times: dict[str, int] = {}
        self._entries: dict[str, dict[str, tuple[int, ...]]] = {}
        for path in paths:
            if stores.is_local(os.fspath(path)):
                with contextlib.suppress(OSError, ValueError):
                    self._record(os.path.abspath(path))

    def _record(self, path: str) -> None:
        status = os.stat(path)
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder or (self.may_grow and stat.S_ISREG(status.st_mode)):
            with contextlib.suppress(OSError):  # Windows cannot open a folder.
                self._keep_open(path)
        self._states[path] = self._identify(os.stat(path))
        if is_folder:
            self._times[path] = _get_change_time(status)
            self._entries[path] = self._list_entries(path)

    def _keep_open(self, path: str) -> None:
        """Keeps a file open, so that no other file gets its inode number."""
        weakref.finalize(self, os.close, os.open(path, os.O_RDONLY))

    def _identify(self, status: os.stat_result) -> tuple[int, ...]:
        """Returns the identity of a folder or file, with size and time if it may not grow."""
        if stat.S_ISDIR(status.st_mode) or self.may_grow:
            return status.st_dev, status.st_ino
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _list_entries(self, folder: str) -> dict[str, tuple[int, ...]]:
        identities = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                with contextlib.suppress(OSError):  # A link may be dangling.
                    is_identified = not entry.is_symlink() and (self.may_grow or entry.is_dir())
                    identities[entry.name] = (
                        (entry.inode(),) if is_identified else self._identify(entry.stat())
                    )
        return identities

    def check(self, inputs: _Inputs, *, failed: bool) -> None:
        """Checks that the files have not changed since they were opened.

        Args:
          inputs: Returns the files that the source reads.
          failed: True after a failed read. After a successful read, a removed file is not an error.

        Raises:
          SourceChangedError: A file has changed; the message names it.
        """
        for path, old_state in self._states.items():
            try:
                status = os.stat(path)
                if self._identify(status) != old_state:
                    raise changed(path)
                if path in self._times and status.st_mtime_ns != self._times[path]:
                    self._compare_entries(path, inputs)
                    self._times[path] = _get_change_time(status)
            except (FileNotFoundError, NotADirectoryError) as error:
                if failed:
                    raise _create_removed_error(path) from error

    def _compare_entries(self, folder: str, inputs: _Inputs) -> None:
        old, new = self._entries[folder], self._list_entries(folder)
        changed_names = {name for name, state in old.items() if new.get(name) != state}
        if self.may_grow:
            changed_names &= new.keys()
        if changed_names:
            read_paths = (os.path.relpath(os.path.abspath(file), folder) for file in inputs())
            for name in changed_names.intersection(file.split(os.sep, 1)[0] for file in read_paths):
                raise changed(os.path.join(folder, name))
        self._entries[folder] = {**new, **old}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._machine != platform.node():
            self.__init__(*self._states, may_grow=self.may_grow)  # type: ignore[misc]
        else:
            for path in self._entries:
                with contextlib.suppress(OSError):
                    self._keep_open(path)


def _get_change_time(folder: os.stat_result) -> int:
    """Returns the time of the last change of a folder; -1 if the next may have the same."""
    is_old = abs(time.time_ns() - folder.st_mtime_ns) > _CLOCK_TICK_NS
    return folder.st_mtime_ns if is_old else -1


class FileState(NamedTuple):
    """The state of a file, which changes when the file is replaced, in the types of JSON.

    Attributes:
      path: The file.
      size: The size in bytes.
      version: A version that changes when the file is written, see `version_of` of the stores.
      samples: A digest of 16 evenly spaced pieces of 16 KiB of a local file. The digest detects
        changes that keep size and time. For files in stores, the version is enough.
    """

    path: str
    size: int
    version: list[Any]
    samples: str


def state_of(path: str | os.PathLike[str]) -> FileState:
    """Returns the current state of a file."""
    name = os.fspath(path)
    version = stores.version_of(name)
    if not stores.is_local(name):
        return FileState(name, int(stores.as_path(name).stat().length), version, "")
    size = os.path.getsize(name)
    return FileState(name, size, version, _hash_samples(name, size))


def check_unchanged(states: Sequence[FileState], *, may_grow: bool = False) -> None:
    """Checks that files have not changed.

    Args:
      states: The earlier states of the files.
      may_grow: True if files may have become longer.

    Raises:
      SourceChangedError: A file has changed; the message names it.
    """
    for state in states:
        try:
            new_state = state_of(state.path)
            if new_state == state:
                continue
            has_grown = may_grow and new_state.size >= state.size and stores.is_local(state.path)
            if not has_grown or _hash_samples(state.path, state.size) != state.samples:
                raise changed(state.path)
        except FileNotFoundError as error:
            raise _create_removed_error(state.path) from error


def changed(path: str | os.PathLike[str]) -> SourceChangedError:
    """Returns the error for a changed file."""
    return SourceChangedError(
        "the file was changed or replaced while it was read, so the data read does not belong "
        "together; open it again after all writes",
        file=path,
    )


def _create_removed_error(path: str | os.PathLike[str]) -> SourceChangedError:
    return SourceChangedError("the file was removed while it was read", file=path)


def present(files: Iterable[epath.Path]) -> list[epath.Path]:
    """Returns the existing files; reading an episode reports a missing one."""
    return [file for file in files if file.exists()]


def files_at(path: str | os.PathLike[str], matches: Callable[[str], object]) -> list[epath.Path]:
    """Returns a file, or the files in a folder, in the natural order of their names.

    Hidden files, and files of other names, are excluded.

    Args:
      path: The file or the folder.
      matches: Returns True for the names of the requested files.

    Raises:
      FileNotFoundError: The path does not exist.
    """
    root = stores.as_path(path)
    if root.is_dir():
        files = [entry.name for entry in stores.list_directory(root) if not entry.is_dir]
        names = [name for name in files if matches(name) and not name.startswith(".")]
        return [root / name for name in sorted(names, key=natural_order)]
    if not root.exists():
        raise FileNotFoundError(f"{os.fspath(path)!r} does not exist.")
    check_is_file(root)
    return [root] if matches(str(root.name)) else []


def natural_order(name: str) -> tuple[list[int | str], str]:
    """Returns a sort key that compares digits in names as numbers.

    >>> sorted(["ep10.npz", "ep2.npz"], key=natural_order)
    ['ep2.npz', 'ep10.npz']
    """
    pieces = re.split("([0-9]+)", name)  # Text and digits alternate.
    return [int(piece) if index % 2 else piece for index, piece in enumerate(pieces)], name


def _hash_samples(path: str | os.PathLike[str], size: int) -> str:
    """Returns a digest of pieces of the first bytes of a file."""
    digest = hashlib.blake2b(digest_size=8)
    with open(path, "rb") as file:
        if size <= _NUM_SAMPLES * _SAMPLE_BYTES:
            digest.update(file.read(size))
        else:
            for index in range(_NUM_SAMPLES):
                file.seek((size - _SAMPLE_BYTES) * index // (_NUM_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
