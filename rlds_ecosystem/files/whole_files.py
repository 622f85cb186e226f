"""Atomic, durable and locked writes of files and folders.

Object stores make each write atomic and durable themselves, but have no locks.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from etils import epath

from rlds_ecosystem.files.caches import cache_folder
from rlds_ecosystem.files.stores import UPLOAD_MARK, PathLike, as_path, is_local, publish

try:
    import fcntl
except ImportError:  # Windows lacks the module.
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "FOLDER",
    "SharedLock",
    "atomic_target",
    "can_lock",
    "check_is_free",
    "clear_folder",
    "draft_folder",
    "exchange",
    "finish_replacement",
    "holder_of",
    "is_open",
    "journal_of",
    "kept_name",
    "link",
    "local_target",
    "lock",
    "lock_directory",
    "replace_by_draft",
    "sync",
    "sync_all",
    "try_to_lock",
    "write_atomically",
]

FOLDER = ".rlds"
"""The folder of tables and labels of episodes, in the folder of a dataset or next to a file."""

# The name of the replaced target in the hidden folder, if it was renamed.
_OLD_NAME = ".old"
# The files of an empty repository of the Hub.
_FILES_OF_NEW_REPOSITORIES = {".gitattributes", "README.md"}


def write_atomically(path: PathLike, content: bytes, *, durable: bool = True) -> None:
    """Writes a file atomically: readers see the complete old or new content.

    Args:
      path: The file.
      content: The new content.
      durable: True to wait until the content is on the disk; False for caches.

    Raises:
      OSError: The file cannot be written; the old file is unchanged.
    """
    if not is_local(path):
        as_path(path).write_bytes(content)
        return
    directory, name = os.path.split(os.fspath(path))
    draft = os.path.join(directory, f".{name}.{uuid.uuid4().hex}")
    try:
        with open(draft, "xb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise


def link(file: PathLike, name: PathLike) -> None:
    """Creates a hard link to a local file, or a copy if links are impossible."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)


@contextlib.contextmanager
def atomic_target(
    target: PathLike, *, last_patterns: Sequence[str] = (), drafts: PathLike | None = None
) -> Iterator[Path]:
    """Yields a draft path, which becomes the target file or folder on success.

    The next writer of the same target removes the draft of a killed process. The files of a folder
    in a store appear one after the other, and stay if the process is killed: the next writer
    resumes the upload. The folder `.rlds` next to a draft file moves next to the target.

    Args:
      target: The file or the folder; it must not exist, or be an empty folder.
      last_patterns: See `stores.publish`.
      drafts: The folder for drafts of targets in a store; see `local_target`.

    Yields:
      A free path for the file or the folder.

    Raises:
      FileExistsError: The target exists, or another process is writing it.
    """
    final_path = as_path(target)
    target = local_target(target, None if is_local(final_path) else drafts)
    if not _draft_folder_of(
        target
    ).exists():  # A draft folder means that a killed process may have completed the target.
        check_is_free(final_path)
    new_parents = [parent for parent in target.parents if not parent.exists()]
    try:
        with draft_folder(target) as hidden_folder:
            clear_folder(hidden_folder)
            check_is_free(final_path)  # Another process may have finished the target.
            draft = hidden_folder / target.name  # Some libraries need the suffix.
            try:
                yield draft
                if not is_local(final_path):
                    _upload(draft, final_path, last_patterns)
                    return
                if target.exists():
                    target.rmdir()
                sync_all(hidden_folder)
                _move_sidecars(hidden_folder, target)
                os.rename(draft, target)
                sync(target.parent)
                new_parents = []
            finally:
                clear_folder(hidden_folder, ignore_errors=True)
    finally:
        with contextlib.suppress(OSError):  # Another process may use the folder.
            for parent in new_parents:
                parent.rmdir()


def _upload(draft: Path, final_path: epath.Path, last_patterns: Sequence[str]) -> None:
    """Uploads a draft file or folder to a store, with the `.rlds` folder next to it."""
    if draft.is_file():
        publish(draft.parent, final_path.parent, [draft.name])
        return
    for sidecar in draft.parent.iterdir():
        if sidecar != draft:
            publish(sidecar, final_path.parent / sidecar.name)
    publish(draft, final_path, last_patterns, is_new=True)


def local_target(target: PathLike, drafts: PathLike | None = None) -> Path:
    """Returns the local path next to which the draft of a file or a folder is written.

    Args:
      target: The file or the folder.
      drafts: The folder for drafts. If None, the parent of a local target, or a folder in the cache
        for a target in a store.

    Raises:
      ValueError: The folder for drafts is in a store.
    """
    if drafts is not None and not is_local(drafts):
        raise ValueError(
            f"{os.fspath(drafts)} is in an object store; drafts need a folder that all machines "
            "see, such as a folder on NFS"
        )
    name = as_path(target).name
    if drafts is None and is_local(target):
        return Path(os.path.abspath(target))
    folder = drafts or cache_folder("drafts", os.fspath(target)) or tempfile.gettempdir()
    return Path(os.path.abspath(folder), name)


def check_is_free(path: PathLike) -> None:
    """Checks that a new file or folder can be created.

    Raises:
      FileExistsError: The path exists, and is not an empty folder, a new repository of the Hub, or
        an interrupted upload.
    """
    target = as_path(path)
    if is_local(target):
        is_free = not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir()))
    else:
        names = {path.name for path in target.iterdir()}
        is_free = UPLOAD_MARK in names or (
            names <= _FILES_OF_NEW_REPOSITORIES if names else not target.exists()
        )
    if not is_free:
        raise FileExistsError(
            f"{target} exists and is not overwritten; choose another name, or remove it"
        )


@contextlib.contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """Locks the hidden folder next to a target, in which one process writes its draft.

    Finishes the `replace_by_draft` of a killed process. Further files of that process stay in the
    folder; the caller removes them with `clear_folder`.

    Args:
      target: The target file or folder.

    Yields:
      The folder.

    Raises:
      FileExistsError: Another process has locked the folder.
    """
    folder = _draft_folder_of(target)
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = try_to_lock(folder)
    try:
        if can_lock(folder) and (descriptor is None or not is_open(folder, descriptor)):
            raise FileExistsError(f"{target}: {holder_of(folder)} is writing it")
        finish_replacement(target, folder)
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):  # The folder may have other files.
                folder.rmdir()
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _draft_folder_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.draft")


def _move_sidecars(hidden_folder: Path, target: Path) -> None:
    """Moves the files of the folder `.rlds` of a draft to the folder `.rlds` of the target."""
    if (hidden_folder / FOLDER).exists():
        (target.parent / FOLDER).mkdir(exist_ok=True)
        for file in (hidden_folder / FOLDER).iterdir():
            os.replace(file, target.parent / FOLDER / file.name)


def is_open(path: PathLike, descriptor: int) -> bool:
    """True if a path is still the opened folder, which another process may have removed."""
    return os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path))


def clear_folder(folder: Path, *, ignore_errors: bool = False) -> None:
    """Removes the content of a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=ignore_errors)
        else:
            path.unlink(missing_ok=True)


def replace_by_draft(target: Path, hidden_folder: Path, *, keep_old: bool) -> None:
    """Replaces a target by its draft; the caller runs `finish_replacement`, even after an error.

    Args:
      target: The file or the folder to replace.
      hidden_folder: The result of `draft_folder`. The draft in it has the name of the target; files
        of the folder `.rlds` next to the draft move next to the target.
      keep_old: True to keep the old target as `kept_name`, instead of in `hidden_folder`.
    """
    draft = hidden_folder / target.name
    if not (keep_old or (hidden_folder / FOLDER).exists()) and draft.is_file() and target.is_file():
        os.replace(draft, target)
        sync(target.parent)
        return
    journal = journal_of(target)
    content = {"new": os.stat(draft).st_ino, "keep_old": keep_old}
    try:
        (hidden_folder / journal.name).write_text(json.dumps(content))
    except OSError as error:  # The error of a full disk has no file name.
        raise OSError(error.errno, error.strerror, os.fspath(target)) from error
    sync(hidden_folder / journal.name)
    os.replace(hidden_folder / journal.name, journal)
    sync(target.parent)
    if not exchange(draft, target):
        os.rename(target, hidden_folder / _OLD_NAME)
        os.rename(draft, target)


def finish_replacement(target: Path, hidden_folder: Path) -> None:
    """Finishes a `replace_by_draft` that may have been killed at any point."""
    journal, draft, old = journal_of(target), hidden_folder / target.name, hidden_folder / _OLD_NAME
    if not os.path.lexists(journal):
        return
    content = json.loads(journal.read_bytes())
    for leftover_path in (draft, old):
        if os.path.lexists(leftover_path) and not os.path.lexists(target):
            os.rename(leftover_path, target)
    if not os.path.lexists(old):
        old = draft
    is_new = os.path.lexists(target) and os.stat(target).st_ino == content["new"]
    if is_new and content["keep_old"] and os.path.lexists(old):
        if os.path.lexists(old_name := kept_name(target)):
            raise FileExistsError(
                f"{old_name} exists: rename it, so that the last replaced data can be kept"
            )
        os.rename(old, old_name)
    if is_new:
        _move_sidecars(hidden_folder, target)
    sync(target.parent)
    os.unlink(journal)


def exchange(path: Path, other: Path) -> bool:
    """Swaps two files or folders atomically.

    Returns:
      True on success; False if the file system or the platform has no such operation.
    """
    names = os.fsencode(path), os.fsencode(other)
    try:
        if sys.platform == "linux":
            at_cwd, exchange = -100, 2  # The values of AT_FDCWD and RENAME_EXCHANGE.
            renameat2 = ctypes.CDLL(None).renameat2
            return bool(renameat2(at_cwd, names[0], at_cwd, names[1], exchange) == 0)
        if sys.platform == "darwin":
            swap = 2  # The value of RENAME_SWAP.
            return bool(ctypes.CDLL(None).renamex_np(*names, swap) == 0)
    except AttributeError:  # An old C library lacks the function.
        pass
    return False


def journal_of(target: Path) -> Path:
    """Returns the path of the journal, which exists during a replacement of a target."""
    return target.with_name(f".{target.name}.replacing.json")


def kept_name(target: Path) -> Path:
    """Returns the path of a kept old dataset: `<name>.old`.

    Readers of folders ignore the path, because no format has the suffix.
    """
    return target.with_name(f"{target.name}.old")


def sync_all(path: PathLike) -> None:
    """Flushes a file, or a folder with all its files, to the disk (`fsync`)."""
    for directory, _, names in os.walk(path):
        for name in names:
            file = os.path.join(directory, name)
            if not os.path.islink(file):  # The link may be broken.
                sync(file)
        sync(directory)
    if os.path.isfile(path):
        sync(path)


def sync(path: PathLike) -> None:
    """Flushes a file, or the entries of a directory, to the disk (`fsync`)."""
    if not is_local(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def can_lock(path: PathLike) -> bool:
    """True if files and directories can be locked: not in a store, and not on Windows."""
    return fcntl is not None and is_local(path)


def lock(descriptor: int, *, wait: bool = True, shared: bool = False) -> bool:
    """Locks an open file or directory until the descriptor is closed or the process ends.

    Args:
      descriptor: The open file.
      wait: True to wait while another process, or another descriptor, has the lock.
      shared: True for a shared lock, which several processes may hold.

    Returns:
      True if locked, or if the platform has no locks; False if the lock is taken.
    """
    if fcntl is not None:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def holder_of(path: PathLike) -> str:
    """Describes the process that holds the lock of a file, for errors."""
    with contextlib.suppress(OSError):  # Only Linux has it, for local processes.
        inode = str(os.stat(path).st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            # "1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF"
            kind, *_, process, file, _, _ = line.split()[1:]
            if kind == "FLOCK" and file.split(":")[-1] == inode:
                return f"another process ({process})"
    return "another process"


def try_to_lock(path: PathLike) -> int | None:
    """Locks an existing file, without waiting.

    Returns:
      The descriptor to close; None if the lock is taken, or locks are impossible.
    """
    if not can_lock(path):
        return None
    descriptor = os.open(path, os.O_RDONLY)
    if not lock(descriptor, wait=False):
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def lock_directory(directory: PathLike) -> Iterator[None]:
    """Holds the lock of a directory; does nothing if locks are impossible.

    Raises:
      FileNotFoundError: The directory does not exist; it may have been replaced during the wait.
    """
    if not can_lock(directory):
        yield
        return
    descriptor = _wait_for_lock(directory, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


class SharedLock:
    """A shared lock of a directory, held by each process that writes there.

    `replace_dataset` needs the exclusive lock.

    Args:
      directory: The directory; not locked if locks are impossible.
    """

    def __init__(self, directory: PathLike) -> None:
        is_locked = can_lock(directory)
        self._descriptor = _wait_for_lock(directory, fcntl.LOCK_SH) if is_locked else None

    def close(self) -> None:
        """Releases the lock, including that of forked processes."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.disown()

    def disown(self) -> None:
        """Leaves the lock to the parent, in a forked process."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _wait_for_lock(directory: PathLike, kind: int) -> int:
    """Waits for the lock of a directory, which may be replaced; returns its descriptor."""
    while True:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, kind)
            if is_open(directory, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # The directory was replaced meanwhile.
