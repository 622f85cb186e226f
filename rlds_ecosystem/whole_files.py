"""Atomic, durable, locked writes.

What is in an object store is written at once and is there to stay anyway, but cannot be locked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from rlds_ecosystem.stores import PathLike, as_path, copy_file, is_local

try:
    import fcntl
except ImportError:  # On Windows.
    fcntl = None  # type: ignore[assignment]

__all__ = ["can_lock", "lock", "locked", "made_at_once", "sync", "try_to_lock", "write_at_once"]


def write_at_once(path: PathLike, content: bytes, *, durable: bool = True) -> None:
    """Makes or replaces a file; others see either the old one or the new one, complete.

    Args:
      path: The file.
      content: All that is in it.
      durable: Whether to wait until it is on the disk. What can be made again need not be.

    Raises:
      OSError: It cannot be written; what was there is still there.
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


@contextlib.contextmanager
def made_at_once(target: PathLike) -> Iterator[Path]:
    """Gives a place to write to, which becomes a file or a folder if all went well.

    What a process left that was killed is removed by the next one that makes the same. The files
    of a folder in a store appear there one after the other.

    Args:
      target: The file or the folder; it must not exist, or be an empty folder.

    Yields:
      A path at which there is nothing, to make the file or the folder.

    Raises:
      FileExistsError: There is something at the target, or another process is making it.
    """
    if not is_local(target):
        with _uploaded(target) as made:
            yield made
        return
    target = Path(os.path.abspath(target))
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not overwritten; name another, or remove it")
    place = target.with_name(f".{target.name}.draft")
    new_parents = [parent for parent in target.parents if not parent.exists()]
    place.mkdir(parents=True, exist_ok=True)
    descriptor = try_to_lock(place)
    if descriptor is None and can_lock(place):
        raise FileExistsError(f"{target}: another process is making it")
    try:
        made = place / target.name  # Some libraries look at the end of a name.
        if made.is_dir():  # By a process that was killed.
            shutil.rmtree(made)
        made.unlink(missing_ok=True)
        yield made
        if target.exists():
            target.rmdir()
        sync_all(made)
        os.rename(made, target)
        sync(target.parent)
        new_parents = []
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # Somebody else writes there by now.
            for parent in new_parents:
                parent.rmdir()
        if descriptor is not None:
            os.close(descriptor)


@contextlib.contextmanager
def _uploaded(target: PathLike) -> Iterator[Path]:
    there = as_path(target)
    if there.exists():
        raise FileExistsError(f"{there} exists and is not overwritten; name another")
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory, there.name)
        yield made
        files = [made] if made.is_file() else [path for path in made.rglob("*") if path.is_file()]
        for file in sorted(files):
            copy_file(file, there / file.relative_to(made).as_posix() if made.is_dir() else there)


def sync_all(path: PathLike) -> None:
    """Brings a file, or a folder with all that is in it, to the disk."""
    for directory, _, names in os.walk(path):
        for name in names:
            sync(os.path.join(directory, name))
        sync(directory)
    if os.path.isfile(path):
        sync(path)


def sync(path: PathLike) -> None:
    """Brings a file, or the names in a directory, to the disk."""
    if not is_local(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def can_lock(path: PathLike) -> bool:
    """Whether files and directories can be locked there: not in a store, and not on Windows."""
    return fcntl is not None and is_local(path)


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Locks an open file or directory until it is closed; the end of the process closes it too.

    Args:
      descriptor: What is open.
      wait: Whether to wait while another process, or another descriptor, has the lock.

    Returns:
      Whether no other has it: always true with `wait`, and where nothing can be locked.
    """
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def try_to_lock(path: PathLike) -> int | None:
    """Locks a file that is there, without waiting.

    Returns:
      The descriptor to close; None if another has the lock, or if nothing can be locked there.
    """
    if not can_lock(path):
        return None
    descriptor = os.open(path, os.O_RDONLY)
    if not lock(descriptor, wait=False):
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def locked(directory: PathLike) -> Iterator[None]:
    """Holds the lock of a directory, after waiting for it; does nothing where there is none."""
    if not can_lock(directory):
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)
