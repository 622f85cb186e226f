"""The files of a Zarr hierarchy by name, in a folder or in a zip archive."""

from __future__ import annotations

import json
import os
import threading
import weakref
import zipfile
from collections.abc import Iterator
from typing import Any

from rlds.raw_files.archives import check_method
from rlds.raw_files.untrusted import (
    SourceError,
    check_declared,
    check_is_file,
    check_link,
    folders_in,
    source_errors,
)
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.forking import reset_in_forks

__all__ = ["ARRAY", "ATTRIBUTES", "GROUP", "ZarrFiles"]

ARRAY, GROUP, ATTRIBUTES = ".zarray", ".zgroup", ".zattrs"
_CONSOLIDATED_FILE = ".zmetadata"
# The groups of buffers and exports.
_GROUP_NAMES = ("data", "meta", "rlds")
_EPISODE_ENDS_FILE = f"meta/episode_ends/{ARRAY}"
# The size limit of the JSON files that describe arrays.
_MAX_JSON_BYTES = 1 << 26
_MAX_DEPTH = 32


class ZarrFiles:
    """The files below the root of a hierarchy; can be pickled.

    Links are followed, also out of the folder, because caches of hubs consist of links.

    Args:
      path: A folder or a zip archive with the groups `data` and `meta`, or a parent of one: an
        archive with a single such folder, or a folder with `replay_buffer.zarr`.

    Attributes:
      path: The folder or the archive with the groups.

    Raises:
      FileNotFoundError: There is no replay buffer.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = stores.as_path(path)
        self._is_folder, self._prefix = self.path.is_dir(), ""
        self._reset()
        reset_in_forks(self)
        if not self._is_folder:
            check_is_file(self.path)
            with source_errors(self.path):
                names = self._open_archive().namelist()
                paths = [name for name in names if f"/{name}".endswith(f"/{_EPISODE_ENDS_FILE}")]
                self._prefix = paths[0].removesuffix(_EPISODE_ENDS_FILE) if len(paths) == 1 else ""
        elif not self.has(_EPISODE_ENDS_FILE):
            self.path /= "replay_buffer.zarr"
        if not self.has(_EPISODE_ENDS_FILE):
            raise FileNotFoundError(f"{os.fspath(path)!r} has no meta/episode_ends in Zarr v2.")

    def _reset(self) -> None:
        self._archive: zipfile.ZipFile | None = None
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        unpicklable = ("_archive", "_lock")
        return {name: value for name, value in vars(self).items() if name not in unpicklable}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()
        reset_in_forks(self)

    def _open_archive(self) -> zipfile.ZipFile:
        with self._lock:
            if self._archive is None:
                stream = self.path.open("rb")
                weakref.finalize(self, stream.close)
                self._archive = zipfile.ZipFile(stream)
            return self._archive

    def has(self, name: str) -> bool:
        """Whether a file exists in the hierarchy.

        Raises:
          SourceError: The file is a broken link.
        """
        if not self._is_folder:
            return self._prefix + name in self._open_archive().NameToInfo
        if (self.path / name).exists():
            return True
        check_link(self.path / name)
        return False

    def read(self, name: str, max_bytes: float = _MAX_JSON_BYTES) -> bytes | None:
        """Returns the bytes of a file; None if there is none.

        Args:
          name: The path in the folder or the archive.
          max_bytes: The size limit in bytes.

        Raises:
          SourceError: The file is damaged, larger than `max_bytes`, or a broken link.
        """
        if self._is_folder:
            try:
                check_is_file(self.path / name)
                if (size := int((self.path / name).stat().length)) > max_bytes:
                    problem = f"the file has {size:,} bytes, expected at most {max_bytes:,.0f}"
                    raise SourceError(problem, file=self.path, field=name)
                return bytes((self.path / name).read_bytes())
            except (FileNotFoundError, NotADirectoryError):
                check_link(self.path / name)
                return None
        if not self.has(name):
            return None
        with self._lock, source_errors(self.path, field=name):
            info = self._open_archive().getinfo(self._prefix + name)
            check_method(info, self.path)
            check_declared(info.file_size, info.compress_size, file=self.path, field=name)
            return self._open_archive().read(info)

    def arrays(self) -> list[str]:
        """Returns the paths of all arrays, in order, including arrays without `.zarray`."""
        entries = json.loads(self.read(_CONSOLIDATED_FILE) or b"{}").get("metadata", {})
        names = {name.removesuffix(f"/{ARRAY}") for name in entries if name.endswith(f"/{ARRAY}")}
        return sorted({*names, *self._arrays_below("")})

    def _arrays_below(self, group: str) -> Iterator[str]:
        for folder in self._folders_in(group):
            name = f"{group}/{folder}" if group else folder
            if name in _GROUP_NAMES or self.has(f"{name}/{GROUP}"):
                yield from self._arrays_below(name) if name.count("/") < _MAX_DEPTH else ()
            elif group or self.has(f"{name}/{ARRAY}"):
                yield name

    def _folders_in(self, group: str) -> list[str]:
        if self._is_folder:
            return folders_in(self.path / group if group else self.path)
        prefix = f"{self._prefix}{group}/" if group else self._prefix
        names = self._open_archive().namelist()
        inside = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        return sorted({n.partition("/")[0] for n in inside if "/" in n and not n.startswith(".")})

    def inputs(self) -> list[str | os.PathLike[str]]:
        """Returns all files of the hierarchy, without hidden folders (labels of episodes)."""
        return list(self._files_below("")) if self._is_folder else [self.path]

    def _files_below(self, group: str) -> Iterator[str]:
        for entry in stores.list_directory(self.path / group):
            if not entry.is_dir and (group or entry.name.startswith(".z")):
                yield os.path.join(self.path, group, entry.name)
        for folder in self._folders_in(group):
            yield from self._files_below(os.path.join(group, folder))
