"""HDF5 files that anybody may have made: opened once, and read without being led elsewhere.

What a file of HDF5 shows need not be in it. Links may lead to other files, the values of an array
may be anywhere on the machine, and arrays may be views of others. Here such things are errors,
unless they are asked for.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np
from etils import epath

from rlds.raw_files.input_files import changed
from rlds.raw_files.untrusted import Budget, SourceError, check_is_file, is_damage, source_errors
from rlds_ecosystem import import_extra
from rlds_ecosystem.stores import as_path, is_local, open_binary, version_of

__all__ = ["Hdf5File"]

_ELSEWHERE = "so that it can be any file of this machine; follow_links=True allows it"


class Hdf5File:
    """An HDF5 file to be read.

    It is opened when it is read. As a context manager it stays open: within, no other file can take
    its place. It may be entered several times. A copy for another process, pickled or forked, opens
    the file again. Whenever it is opened or read again it has to be the file that it was at first.

    Args:
      path: The file.
      follow_links: Whether links, arrays that are views of others, and values in other files are
        read too, from wherever they are.
      whole_arrays: Whether each array is read at once, so that its chunks need a small cache only.
        Making one for every array takes time, which counts where arrays are small.

    Attributes:
      path: The file.
      follow_links: See above.
      other_files: The other files that were found to belong to it. Empty without `follow_links`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        follow_links: bool = False,
        whole_arrays: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        self.follow_links = follow_links
        self.other_files: set[str] = set()
        # Without any cache, HDF5 reads each row of a chunk from the file.
        self._cache = {"rdcc_nslots": 7, "rdcc_nbytes": 1 << 20} if whole_arrays else {}
        self._version: list[Any] | None = None
        self._num_users = 0
        self._opened = contextlib.ExitStack()
        self._file: Any = None
        self._has_places = False
        self._process = 0

    def __getstate__(self) -> dict[str, Any]:
        closed = {"_num_users": 0, "_opened": contextlib.ExitStack(), "_file": None}
        return {**self.__dict__, **closed}

    def __enter__(self) -> Hdf5File:
        self._num_users += 1
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._num_users -= 1
        if not self._num_users:
            self._file = None
            self._opened.close()

    @contextlib.contextmanager
    def read(self, episode: int | str | None = None, field: str | None = None) -> Iterator[Any]:
        """Lends the `h5py.File`. Within, errors of the library are `SourceError`s.

        Args:
          episode: What is read of it, for errors.
          field: Likewise.

        Raises:
          SourceChangedError: It is another file than it was.
          SourceError: It is no HDF5 file, or cut short; whatever is read is damaged.
        """
        with self, source_errors(self.path, episode=episode, field=field):
            yield self._current()

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return (
            os.path.getsize(self.path) if is_local(self.path) else as_path(self.path).stat().length
        )

    def inputs(self) -> list[epath.Path]:
        """Returns the file, and those that it leads to."""
        return [as_path(path) for path in (self.path, *sorted(self.other_files))]

    def budget(self, max_bytes: int | None = None) -> Budget:
        """Returns what reading may cost: without end, if the values may be in other files."""
        size = 1 << 62 if self.follow_links else self.size
        return Budget(self.path, size, max_bytes=max_bytes)

    def member(self, group: Any, name: str, path: str) -> Any:
        """Returns a group or an array in a group.

        Args:
          group: The group.
          name: Its name in the group.
          path: What to call it in an error.

        Raises:
          SourceError: There is none, it is a link, or something else.
        """
        h5py = import_extra("h5py")
        found = self.open(group.id, _encoded(name), path)
        is_array = isinstance(found, h5py.h5d.DatasetID)
        return h5py.Dataset(found, readonly=True) if is_array else h5py.Group(found)

    def links(self, group: Any) -> list[tuple[bytes, int]]:
        """Returns the names in an `h5py.h5g.GroupID`, and of which type each link is."""
        found: list[tuple[bytes, int]] = []
        group.links.iterate(lambda name, info: found.append((name, info.type)), info=True)
        return found

    def open(
        self,
        group: Any,
        name: bytes,
        path: str,
        *,
        link_type: int | None = None,
        maybe_array: bool = False,
    ) -> Any:
        """Returns what is in a group, as `member` does, but in the low-level types of h5py.

        These take a fraction of the time, which counts where episodes are small.

        Args:
          group: The `h5py.h5g.GroupID`.
          name: The name in the group.
          path: What to call it in an error.
          link_type: What `links` says of it, if that is known.
          maybe_array: Whether it may well be an array, which takes less time then.

        Returns:
          A `GroupID` or `DatasetID`.

        Raises:
          SourceError: See `member`.
        """
        h5py = import_extra("h5py")
        if link_type is None:
            try:
                link_type = group.links.get_info(name).type
            except (KeyError, RuntimeError) as error:
                raise self.error("missing", path) from error
        if link_type != h5py.h5l.TYPE_HARD and not self.follow_links:
            raise self.error(f"a link to another place, {_ELSEWHERE}", path)
        found = None
        if maybe_array:
            with contextlib.suppress(Exception):  # What it is instead is found below.
                found = h5py.h5d.open(group, name)
        try:
            found = found or h5py.h5o.open(group, name)
        except KeyError as error:
            raise self.error("a link to what is not there", path) from error
        if not isinstance(found, (h5py.h5d.DatasetID, h5py.h5g.GroupID)):
            raise self.error("a type, expected a group or an array", path)
        if self.follow_links:
            self._note_other_files(found)
        return found

    def has(self, group: Any, name: str) -> bool:
        """Whether a group has something of a name. Links are not followed."""
        return bool(group.id.links.exists(_encoded(name)))

    def array(self, file: Any, path: str) -> Any:
        """Returns an array whose values may be read.

        Args:
          file: The `h5py.File`.
          path: The path of the array.

        Raises:
          SourceError: There is none, or a part of it is elsewhere.
        """
        item = file
        for name in path.split("/"):
            item = self.member(item, name, path)
        self.check_values(item, path)
        return item

    def check_values(self, array: Any, path: str) -> None:
        """Checks that the values of an array are in it.

        Raises:
          SourceError: They are in another file, or in other arrays; or it is a group.
        """
        h5py = import_extra("h5py")
        if not isinstance(array, h5py.Dataset):
            raise self.error("a group, expected an array", path)
        self.check_place(array.id, path)

    def check_place(self, array: Any, path: str) -> int:
        """Checks what `check_values` does, of a `DatasetID`.

        Returns:
          How many values a chunk has, all of which are decompressed for any of them. 0 if there are
          no chunks, or links are followed, to wherever.
        """
        h5py = import_extra("h5py")
        if self.follow_links:
            return 0
        plan = array.get_create_plist()
        if plan.get_external_count():
            raise self.error(f"its values are in another file, {_ELSEWHERE}", path)
        layout = plan.get_layout()
        if layout == h5py.h5d.VIRTUAL:
            raise self.error(f"a view of other arrays, {_ELSEWHERE}", path)
        return math.prod(plan.get_chunk()) if layout == h5py.h5d.CHUNKED else 0

    def place(self, array: Any) -> int | None:
        """Returns where in the file the values of a `DatasetID` are, side by side.

        `read_at` takes a fraction of the time that opening an array again takes.

        Returns:
          The place; None if they are in chunks, nowhere yet, or maybe not in this file.
        """
        place: int | None = array.get_offset() if self._has_places else None
        return place

    def read_at(self, place: int, values: np.ndarray, path: str) -> None:
        """Fills an array with the bytes at a place of the open file.

        Args:
          place: The place.
          values: The array.
          path: What to call it in an error.

        Raises:
          SourceError: The file ends before them.
        """
        descriptor = self._file.id.get_vfd_handle()
        rest = values.reshape(-1).view(np.uint8).data
        while rest:
            number = os.preadv(descriptor, [rest], place)
            if not number:
                what = f"cut short: {len(rest)} bytes are missing at byte {place}"
                raise self.error(what, path)
            place, rest = place + number, rest[number:]

    def error(self, what: str, field: str | None = None) -> SourceError:
        """Returns an error of the file."""
        return SourceError(what, file=self.path, field=field)

    def _current(self) -> Any:
        """The open file, after checking that it is what it was."""
        is_open = self._file is not None and self._process == os.getpid()
        if is_open and not is_local(self.path):
            return self._file
        version = version_of(self.path)
        if self._version is None:
            self._version = version
        if version != self._version:
            raise changed(self.path)
        if not is_open:
            self._file, self._process = self._open(), os.getpid()
        return self._file

    def _open(self) -> Any:
        h5py = import_extra("h5py")
        check_is_file(self.path)
        self._opened = contextlib.ExitStack()
        try:
            file: Any = self.path
            if not is_local(self.path):  # HDF5 itself knows nothing of gs:// and the like.
                file = self._opened.enter_context(open_binary(self.path))
            opened = self._opened.enter_context(h5py.File(file, "r", **self._cache))
            # Behind a user block, HDF5 1.14 has places for values that are nowhere, too.
            is_here = is_local(self.path) and not self.follow_links and hasattr(os, "preadv")
            self._has_places = is_here and not opened.userblock_size
            return opened
        except Exception as error:
            self._opened.close()
            if isinstance(error, OSError) and is_damage(error):
                raise self.error(f"not a complete HDF5 file: {error}") from error
            raise

    def _note_other_files(self, found: Any) -> None:
        """Notes where an object, and its values, are."""
        h5py = import_extra("h5py")
        names = [os.fsdecode(h5py.h5f.get_name(found))]
        if isinstance(found, h5py.h5d.DatasetID):
            item = h5py.Dataset(found, readonly=True)
            names += [name for name, *_ in item.external or ()]
            names += (
                [source.file_name for source in item.virtual_sources()] if item.is_virtual else []
            )
        directory = os.path.dirname(self.path)
        for name in names:  # HDF5 looks for them in both places.
            places = (name, os.path.join(directory, name))
            self.other_files.update(place for place in places if os.path.isfile(place))
        self.other_files.discard(self.path)


def _encoded(name: str) -> bytes:
    return name.encode(errors="surrogateescape")
