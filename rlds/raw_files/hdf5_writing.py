"""Writing of HDF5 files that survives a full disk.

If a write fails, the HDF5 library keeps objects that it cannot close, and the process crashes at
its exit. Therefore the library writes through a Python file that stores the first error and accepts
all further bytes; after the library has closed the file, the error is raised.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

from typing_extensions import override

from rlds_ecosystem import import_extra

__all__ = ["Check", "new_file", "ordered_group"]

Check = Callable[[], None]
"""Raises the first OSError of the writes so far; called after each episode, it ends an export."""


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], *, ordered: bool = False) -> Iterator[tuple[Any, Check]]:
    """Creates a file.

    Args:
      path: The file, which must not exist.
      ordered: True to keep the order of groups, and store no times, so that equal content has equal
        bytes.

    Yields:
      The `h5py.File`, and a function that raises the first error of the writes so far.

    Raises:
      OSError: The file could not be written, for example because the disk is full.
    """
    h5py = import_extra("h5py")
    with _ForgivingFile(path) as file:
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
        access.set_libver_bounds(h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_LATEST)
        access.set_fileobj_driver(h5py.h5fd.fileobj_driver, file)
        order = _order(h5py.h5p.FILE_CREATE) if ordered else None
        created = h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_TRUNC, fapl=access, fcpl=order)
        access.close()  # If Python freed it at exit, deleted functions would be called.
        try:
            with h5py.File(created) as hdf5_file:
                yield hdf5_file, file.check
        finally:
            file.check()


def ordered_group(parent: Any, name: str) -> Any:
    """Creates a group that keeps the order of its members, without times; see `new_file`."""
    h5py = import_extra("h5py")
    order = _order(h5py.h5p.GROUP_CREATE)
    return h5py.Group(h5py.h5g.create(parent.id, name.encode(), gcpl=order))


def _order(kind: Any) -> Any:
    h5p = import_extra("h5py").h5p
    settings, order = h5p.create(kind), h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED
    settings.set_link_creation_order(order)
    settings.set_attr_creation_order(order)
    settings.set_obj_track_times(False)
    return settings


class _ForgivingFile(io.FileIO):
    """A file that stores its first error, and holds unwritten bytes in memory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, "x+")
        self._path = os.fspath(path)
        self._error: OSError | None = None
        self._unwritten: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Raises the first error."""
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror, self._path)

    @override
    def write(self, data: Any) -> int:
        begin, unwritten = self.tell(), memoryview(data)
        try:
            while self._error is None and len(unwritten):
                unwritten = unwritten[super().write(unwritten) :]
        except OSError as error:
            self._error = error
        if len(unwritten):
            self._unwritten.append((begin + len(data) - len(unwritten), bytes(unwritten)))
        return len(data)

    @override
    def readinto(self, buffer: Any) -> int:
        begin, view = self.tell(), memoryview(buffer)
        size = super().readinto(view)
        for offset, data in self._unwritten:
            first, end = max(offset, begin), min(offset + len(data), begin + len(view))
            if first < end:
                view[first - begin : end - begin] = data[first - offset : end - offset]
                size = max(size, end - begin)
        return size

    @override
    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0
