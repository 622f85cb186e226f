"""Files of this machine that become those of a dataset in a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rlds_ecosystem.files.stores import _clients as clients
from rlds_ecosystem.files.stores import _paths as paths
from rlds_ecosystem.files.stores._clients import COPY_BUFFER_SIZE, PathLike

__all__ = ["UNFINISHED", "publish"]

# A marker file, which exists until all files of the folder are uploaded.
UNFINISHED = ".uploading"
# A folder of files that are of use on this machine only.
_CACHE = ".feeds"


def publish(
    folder: PathLike, target: PathLike, last: Sequence[str] = (), *, is_new: bool = False
) -> None:
    """Copies all files of a local folder to a store, and reads them back.

    After a kill, the same call resumes: a file that is there and the same is not copied again. On
    the Hub, all files are one commit.

    Args:
      folder: The folder.
      target: The folder of the store, which gets the files.
      last: Patterns of the names of files that readers open first. Those are copied last, in the
        order of the patterns, when all other files were read back.
      is_new: Whether the target has nothing else. It has `UNFINISHED` until it is complete, and
        loses what an earlier call left there.

    Raises:
      OSError: They cannot be written, or the store returns something else.
    """
    here, there = Path(folder), paths.as_path(target)
    files_here = (path.relative_to(here) for path in here.rglob("*") if path.is_file())
    names = sorted(path.as_posix() for path in files_here if _CACHE not in path.parts)
    client = clients.client_of(os.fspath(there))
    if isinstance(client, clients.HubStore):
        client.commit({name: here / name for name in names}, os.fspath(there))
        return
    if is_new:
        (there / UNFINISHED).write_bytes(b"\n")  # Some stores have no empty objects.
        for directory, _, files in there.walk():
            for file in files:
                object_path = directory / file
                if file != UNFINISHED and os.fspath(object_path.relative_to(there)) not in names:
                    object_path.unlink()
    waves: dict[int, list[str]] = {}
    for name in names:
        matched = [n for n, each in enumerate(last, 1) if fnmatchcase(os.path.basename(name), each)]
        waves.setdefault(max(matched, default=0), []).append(name)
    for _, wave in sorted(waves.items()):
        paths.in_parallel(lambda name: _bring(here / name, there / name), wave, there)
    if is_new:
        (there / UNFINISHED).unlink()


def _bring(here: PathLike, there: PathLike) -> None:
    if not _is_same(here, there):
        paths.copy_file(here, there)
        if not _is_same(here, there):
            raise OSError(
                f"{os.fspath(there)}: the data read back differs from the data written; repeat "
                "the call, while nobody else writes there"
            )


def _is_same(here: PathLike, there: PathLike) -> bool:
    try:
        if paths.as_path(there).stat().length != os.path.getsize(here):
            return False
        with open(here, "rb") as local, paths.open_binary(there) as remote:
            while piece := local.read(COPY_BUFFER_SIZE):
                if piece != remote.read(len(piece)):
                    return False
    except FileNotFoundError:
        return False
    return True
