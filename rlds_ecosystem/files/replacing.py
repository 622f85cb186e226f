"""Atomic replacement of an existing dataset by a new one.

The new dataset is written into a hidden folder next to the old one, `.<name>.draft`, by one process
at a time. Then one call of the operating system exchanges the two. On systems without such a call,
two renames do; between the renames, a journal, `.<name>.replacing.json`, marks the dataset, and the
next reader finishes the replacement: see `finish_replacing`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from rlds_ecosystem.files.stores import PathLike, is_local
from rlds_ecosystem.files.whole_files import (
    FOLDER,
    can_lock,
    clear_folder,
    draft_folder,
    finish_replacement,
    journal_of,
    kept_name,
    lock_directory,
    replace_by_draft,
    sync,
    sync_all,
    try_to_lock,
)
from rlds_ecosystem.model.errors import StorageError

__all__ = ["FOLDER", "RUNNING_PREFIX", "files_in", "finish_replacing", "replace_dataset"]

RUNNING_PREFIX = "recording-"
"""The prefix of folders of unfinished recordings, also after a crash."""

# The number of attempts to take a lock that is held only briefly.
_MAX_LOCK_TRIES = 100

# The folder of labels, which people write.
_LABELS_FOLDER = Path(FOLDER, "labels")


@contextlib.contextmanager
def replace_dataset(
    path: PathLike,
    *,
    keep_old: bool = False,
    identity: Callable[[], object] | None = None,
    label_folders: Sequence[Path] = (),
) -> Iterator[Path]:
    """Yields a draft path for a new dataset, which then replaces the dataset at a path.

    Readers see the complete old or new dataset, even after an error, Ctrl-C or `kill -9`. The
    next replacement of the same dataset removes the files of a killed process. Labels are copied to
    the new dataset, unless it has labels.

    Args:
      path: The file or the folder of the dataset. The target of a link is replaced.
      keep_old: True to keep the old dataset, under the name of `kept_name`.
      identity: Returns a value that is equal until the dataset changes; by default the names,
        sizes and times of all files.
      label_folders: Further folders of labels, which are locked during the replacement.

    Yields:
      A free path for the new file or folder.

    Raises:
      FileExistsError: Another process is replacing the dataset; or an old dataset is already kept.
      FileNotFoundError: The dataset does not exist; or no draft was written.
      StorageError: The dataset has changed meanwhile, or is being written; it stays unchanged.
      ValueError: The dataset is in an object store, which has no atomic replacement.
    """
    if not is_local(path):
        raise ValueError(
            f"{os.fspath(path)} is in an object store, which cannot replace a dataset "
            "atomically: write to another path (--to on the command line)"
        )
    finish_replacing(path)
    path = Path(os.path.realpath(path))
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist, so it cannot be replaced")
    identity = identity or (lambda: files_in(path))
    with draft_folder(path) as hidden_folder:
        clear_folder(hidden_folder)
        if keep_old and os.path.lexists(name := kept_name(path)):
            raise FileExistsError(f"{name} exists from an earlier replacement: rename or remove it")
        with _exclusive_access(path):
            draft, old_identity = hidden_folder / path.name, identity()
            labels = _file_stats(path / _LABELS_FOLDER)
        try:
            yield draft
            has_labels = (draft / _LABELS_FOLDER).exists()
            shutil.copymode(path, draft)
            sync_all(draft)
            sync(hidden_folder)
            folders = {*map(Path, map(os.path.realpath, (path / _LABELS_FOLDER, *label_folders)))}
            with _exclusive_access(path), _lock_labels(folders):
                if identity() != old_identity or (
                    has_labels and _file_stats(path / _LABELS_FOLDER) != labels
                ):
                    raise StorageError(
                        f"{path} changed while its replacement was written, and stays unchanged; "
                        "repeat this when nobody adds data or labels"
                    )
                if not has_labels:
                    _copy_labels(path, draft)
                replace_by_draft(path, hidden_folder, keep_old=keep_old)
        finally:
            finish_replacement(path, hidden_folder)
            clear_folder(hidden_folder, ignore_errors=True)


def finish_replacing(path: PathLike) -> None:
    """Finishes the replacement of a dataset by a killed process.

    Call this before you search a dataset at a path; the call is cheap if nothing is to finish.

    Args:
      path: The file or the folder of the dataset.

    Raises:
      OSError: The new dataset cannot be renamed.
    """
    if not is_local(path):
        return
    path = Path(os.path.realpath(path))
    while os.path.lexists(journal_of(path)):
        try:
            with draft_folder(path):
                pass
        except OSError as error:
            if os.path.lexists(path):  # Nothing is missing.
                return
            if not isinstance(error, FileExistsError):
                raise
            time.sleep(0.001)  # Another process is between two renames.


@contextlib.contextmanager
def _exclusive_access(path: Path) -> Iterator[None]:
    """Locks a dataset against other writers; see `rlds_ecosystem.files.whole_files.Share`.

    Raises:
      StorageError: Another process writes to the dataset.
    """
    with contextlib.ExitStack() as closing:
        if path.is_dir() and can_lock(path):
            drafts = (file for file in path.iterdir() if file.name.startswith("."))
            for file in (path, path / FOLDER, *filter(Path.is_file, drafts)):
                if not file.exists():
                    continue
                if (descriptor := _lock_with_retries(file)) is None:
                    raise StorageError(
                        f"{path} is being written: a recorder or writer has {file} open. Close it "
                        "first, or its unwritten data would be lost"
                    )
                closing.callback(os.close, descriptor)
        yield


def _lock_with_retries(path: Path) -> int | None:
    """Locks a file; a process that adds data holds its lock for a moment only."""
    for _ in range(_MAX_LOCK_TRIES):
        if (descriptor := try_to_lock(path)) is not None:
            return descriptor
        time.sleep(0.01)
    return None


@contextlib.contextmanager
def _lock_labels(folders: Collection[Path]) -> Iterator[None]:
    """Locks folders of labels: labels added now would be lost with the old dataset."""
    with contextlib.ExitStack() as closing:
        paths = (path for folder in folders for path in (folder, folder.parent))
        closing.callback(_remove_empty, [path for path in paths if not path.exists()])
        for folder in folders:
            with contextlib.suppress(OSError):  # A read-only folder needs no lock.
                folder.mkdir(parents=True, exist_ok=True)
                closing.enter_context(lock_directory(folder))
        yield


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # Another process may have added files.
            folder.rmdir()


def _copy_labels(path: Path, draft: Path) -> None:
    labels = path / _LABELS_FOLDER
    if _file_stats(labels):
        shutil.copytree(labels, draft / _LABELS_FOLDER)
        sync_all(draft / FOLDER)


def files_in(path: PathLike) -> object:
    """Returns the names, sizes and times of the files of a dataset."""
    return _file_stats(Path(path), excluded_folder=FOLDER)


def _file_stats(path: Path, excluded_folder: str = "") -> object:
    """Returns the names, sizes and times of all files at a path or below it."""
    files = [path] if path.is_file() else []
    for folder, subfolders, names in os.walk(path):
        if excluded_folder in subfolders:
            subfolders.remove(excluded_folder)
        files += [Path(folder, name) for name in names]
    stats = [(os.fspath(file), file.lstat()) for file in files]
    return sorted((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)
