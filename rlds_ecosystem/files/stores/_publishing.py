"""Uploads of local folders to a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rlds_ecosystem.files.stores import _clients as clients
from rlds_ecosystem.files.stores import _paths as paths
from rlds_ecosystem.files.stores._clients import COPY_BUFFER_SIZE, PathLike

__all__ = ["UPLOAD_MARK", "publish"]

# A marker file, which exists until all files of the folder are uploaded.
UPLOAD_MARK = ".uploading"
# A folder of files that are useful on this machine only.
_CACHE_FOLDER = ".feeds"


def publish(
    folder: PathLike, target: PathLike, last_patterns: Sequence[str] = (), *, is_new: bool = False
) -> None:
    """Copies all files of a local folder to a store, and reads them back.

    After a kill, the same call resumes, and does not copy equal files again. On the Hub, all files
    are one commit.

    Args:
      folder: The folder.
      target: The target folder in the store.
      last_patterns: Patterns of the names of files that readers open first. These are copied last,
        in the order of the patterns, after all other files were read back.
      is_new: True if the target is a new folder. It holds `UPLOAD_MARK` until it is complete;
        files of an earlier call are removed.

    Raises:
      OSError: A file cannot be written, or the store returns other data.
    """
    local, remote = Path(folder), paths.as_path(target)
    local_files = (path.relative_to(local) for path in local.rglob("*") if path.is_file())
    names = sorted(path.as_posix() for path in local_files if _CACHE_FOLDER not in path.parts)
    client = clients.client_of(os.fspath(remote))
    if isinstance(client, clients.HubStore):
        client.commit({name: local / name for name in names}, os.fspath(remote))
        return
    if is_new:
        (remote / UPLOAD_MARK).write_bytes(b"\n")  # Some stores have no empty objects.
        for directory, _, files in remote.walk():
            for file in files:
                object_path = directory / file
                if file != UPLOAD_MARK and os.fspath(object_path.relative_to(remote)) not in names:
                    object_path.unlink()
    waves: dict[int, list[str]] = {}
    for name in names:
        matches = [fnmatchcase(os.path.basename(name), pattern) for pattern in last_patterns]
        wave = max((index for index, is_match in enumerate(matches, 1) if is_match), default=0)
        waves.setdefault(wave, []).append(name)
    for _, wave_names in sorted(waves.items()):
        paths.in_parallel(lambda name: _upload(local / name, remote / name), wave_names, remote)
    if is_new:
        (remote / UPLOAD_MARK).unlink()


def _upload(local: PathLike, remote: PathLike) -> None:
    if not _is_same(local, remote):
        paths.copy_file(local, remote)
        if not _is_same(local, remote):
            raise OSError(
                f"{os.fspath(remote)}: the data read back differs from the data written; repeat "
                "the call, while no other process writes there"
            )


def _is_same(local: PathLike, remote: PathLike) -> bool:
    try:
        if paths.as_path(remote).stat().length != os.path.getsize(local):
            return False
        with open(local, "rb") as local_file, paths.open_binary(remote) as remote_file:
            while piece := local_file.read(COPY_BUFFER_SIZE):
                if piece != remote_file.read(len(piece)):
                    return False
    except FileNotFoundError:
        return False
    return True
