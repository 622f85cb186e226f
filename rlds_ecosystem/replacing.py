"""A file or a folder takes the place of another at one moment; a kill leaves the old or the new.

Where the system exchanges two names at once (Linux, macOS), that is one call. Elsewhere the old
one is renamed, then the new one; between the two a journal beside them says what is under way, and
whoever opens the path finishes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from rlds_ecosystem.stores import PathLike, is_local
from rlds_ecosystem.whole_files import sync, sync_all, try_to_lock, write_at_once

__all__ = ["finish_replacing", "replaced"]

_AT_CWD, _EXCHANGE, _SWAP = -100, 2, 2


@contextlib.contextmanager
def replaced(path: PathLike, *, keep_old: bool = False) -> Iterator[Path]:
    """Gives a place to write to; what is there takes the place of a path if all went well.

    Until then, and if anything fails, the path stays as it is. What a process left that was killed
    is removed by the next one that replaces the same.

    Args:
      path: A file or a folder.
      keep_old: Whether what was there stays, as `<name>.old`.

    Yields:
      A path with the same name in a hidden folder beside it, at which there is nothing.

    Raises:
      FileExistsError: There is a `<name>.old` already, or another process replaces the same.
      FileNotFoundError: There is nothing at the path.
      ValueError: The path is in a store; or something in it has changed meanwhile.
    """
    if not is_local(path):
        what = f"{os.fspath(path)}: nothing in a store can be replaced at one moment"
        raise ValueError(f"{what}; write to another place")
    path = Path(os.path.realpath(path))
    finish_replacing(path)
    before = _identity(path)
    old = path.with_name(f"{path.name}.old")
    if keep_old and os.path.lexists(old):
        raise FileExistsError(f"{old} exists, from an earlier edit; move or remove it")
    with _workplace(path) as folder:
        draft = folder / path.name
        yield draft
        if _identity(path) != before:
            raise ValueError(f"{path} was changed meanwhile by somebody else; it stays as it is")
        shutil.copymode(path, draft)
        sync_all(draft)
        _take_place(path, draft, folder)
        if keep_old:
            os.rename(draft, old)
            sync(path.parent)


def finish_replacing(path: PathLike) -> None:
    """Finishes what a killed process began; does nothing if there is nothing to finish."""
    if not is_local(path):
        return
    path = Path(os.path.realpath(path))
    journal = _journal(path)
    if not os.path.lexists(journal) or os.path.lexists(path):
        return
    with contextlib.suppress(FileNotFoundError):  # Another process has finished it.
        os.rename(json.loads(journal.read_text())["new"], path)
        sync(path.parent)
        journal.unlink()


@contextlib.contextmanager
def _workplace(path: Path) -> Iterator[Path]:
    """A locked folder beside a path, empty but for what is made in it."""
    folder = path.with_name(f".{path.name}.edit")
    folder.mkdir(exist_ok=True)
    descriptor = try_to_lock(folder)
    if descriptor is None and os.name == "posix":
        raise FileExistsError(f"{path}: another process is editing it")
    try:
        for left in folder.iterdir():  # By a process that was killed.
            _remove(left)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _take_place(path: Path, draft: Path, folder: Path) -> None:
    """Puts a draft to a path, and what was there to where the draft was."""
    sync(folder)
    if not _exchange(path, draft):
        journal, aside = _journal(path), folder / f"{path.name}.before"
        write_at_once(journal, json.dumps({"new": os.fspath(draft)}).encode())
        sync(path.parent)
        os.rename(path, aside)
        os.rename(draft, path)
        sync(path.parent)
        journal.unlink()
        os.rename(aside, draft)
    sync(path.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges what is at two paths, by one call; returns whether the system can."""
    names = os.fsencode(one), os.fsencode(other)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return bool(library.renamex_np(*names, _SWAP) == 0)
        return bool(library.renameat2(_AT_CWD, names[0], _AT_CWD, names[1], _EXCHANGE) == 0)
    except (OSError, AttributeError, TypeError):  # No such function, or no such library.
        return False


def _journal(path: Path) -> Path:
    return path.with_name(f".{path.name}.replacing.json")


def _identity(path: Path) -> object:
    """What changes if a file is written, added or removed; caches in hidden folders aside."""
    if not path.is_dir():
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns, stat.st_ino
    facts = []
    for folder, below, names in os.walk(path):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            stat = os.lstat(os.path.join(folder, name))
            facts.append((folder, name, stat.st_size, stat.st_mtime_ns))
    return facts


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
