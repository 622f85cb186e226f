"""Safe reads of untrusted HDF5.

An HDF5 file can refer to external data: by links to other files, arrays with values in any file of
the machine, or views of other arrays. Such references are errors, unless they are allowed.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from etils import epath

from rlds.raw_files.input_files import changed
from rlds.raw_files.untrusted import (
    SourceError,
    check_declared,
    check_is_file,
    is_damage,
    possible_bytes,
    source_errors,
)
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.stores import as_path, is_local, open_binary, version_of

__all__ = ["Hdf5File", "is_array"]

_OTHER_FILE_HINT = "which may be any file; pass follow_links=True, if the format has this option"
# The largest depth of groups, as links may be cyclic.
_MAX_DEPTH = 32
# The least size of an object and its link in a file.
_MIN_OBJECT_BYTES = 16


class Hdf5File:
    """An HDF5 file to read.

    Each read opens the file, unless it is inside of this (reentrant) context manager. A pickled or
    forked copy opens the file again. A change since the first opening is an error.

    Args:
      path: The file.
      follow_links: True to read links, arrays that are views of other arrays, and values in any
        other files.
      whole_arrays: True if arrays are read completely, so that a small cache of chunks suffices.
        Creating a large cache takes long compared with reading a small array.

    Attributes:
      path: The file.
      follow_links: See above.
      other_files: Other files with data of this file. Empty without `follow_links`.
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
        self._size = 0
        self._has_offsets = False
        self._num_users = 0
        self._opened = contextlib.ExitStack()
        self._file: Any = None
        self._process = 0

    def __getstate__(self) -> dict[str, Any]:
        closed = {"_num_users": 0, "_opened": contextlib.ExitStack(), "_file": None}
        return {**self.__dict__, **closed}

    def __enter__(self) -> Hdf5File:
        self._num_users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._num_users -= 1
        if not self._num_users:
            self._file = None
            self._opened.close()

    @contextlib.contextmanager
    def read(self, episode: int | str | None = None, field: str | None = None) -> Iterator[Any]:
        """Yields the `h5py.File`, and converts errors of the library to `SourceError`.

        Args:
          episode: The episode, for errors.
          field: The field, for errors.

        Raises:
          SourceChangedError: The file has changed since it was opened.
          SourceError: The file is truncated or no HDF5 file, or the data is damaged.
        """
        with self, source_errors(self.path, episode=episode, field=field):
            yield self._get_open_file()

    def inputs(self) -> list[epath.Path]:
        """Returns the file, and the other files with its data."""
        return [as_path(path) for path in (self.path, *sorted(self.other_files))]

    # --- Content.

    def has(self, group: Any, name: str) -> bool:
        """Whether a group has a member with a name. Links are not followed."""
        return bool(group.id.links.exists(_encode_path(name)))

    def member(self, group: Any, name: str, path: str) -> Any:
        """Returns a group or an array in a group.

        Args:
          group: The group.
          name: The name of the member in the group.
          path: The name of the member in errors.

        Raises:
          SourceError: The member is missing, a link, or of another kind; or its values are in
            another file.
        """
        return self._check(self.open(group.id, _encode_path(name), path), path)

    def _check(self, item: Any, path: str) -> Any:
        h5py = import_extra("h5py")
        if not is_array(item):
            return h5py.Group(item)
        self.check_values(item, path)
        return h5py.Dataset(item, readonly=True)

    def array(self, file: Any, path: str) -> Any:
        """Returns an array whose values may be read.

        Args:
          file: The `h5py.File`.
          path: The path of the array.

        Raises:
          SourceError: The array is missing, partly in another file, or declares more values than
            the file can hold.
        """
        item = file
        for name in path.split("/"):
            if is_array(item):
                raise self.error("missing", path)
            item = self.member(item, name, path)
        if not is_array(item):
            raise self.error("a group, expected an array", path)
        return item

    def rows(self, path: str, begin: int, end: int) -> np.ndarray:
        """Reads rows of an array; see `array`."""
        with self.read(field=path) as file:
            rows: np.ndarray = self.array(file, path)[begin:end]
        return rows

    def items(self, group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """Yields all arrays and groups in a group with their paths; an array with two names twice.

        Args:
          group: The group.
          path: The path of the group, which is the prefix of the yielded paths.

        Raises:
          SourceError: See `array`; or groups contain each other.
        """
        for name, item in self.open_items(group.id, path):
            yield name, self._check(item, name)

    def open_items(self, group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """Yields the arrays and groups of `items` in the low-level types of h5py; see `open`."""
        max_paths = math.inf if self.follow_links else self._size // _MIN_OBJECT_BYTES + 1
        num_paths = 0

        def visit(group: Any, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
            nonlocal num_paths
            names: list[tuple[bytes, int]] = []
            group.links.iterate(lambda name, info: names.append((name, info.type)), info=True)
            for name, link_type in names:
                path = prefix + self._decode_text(name)
                num_paths += 1
                if depth > _MAX_DEPTH:
                    raise self.error(f"in more than {_MAX_DEPTH} groups", path)
                if num_paths > max_paths:
                    message = "more paths than the file can hold: objects have many names"
                    raise self.error(message, path)
                item = self.open(group, name, path, link_type=link_type)
                yield path, item
                if not is_array(item):
                    yield from visit(item, f"{path}/", depth + 1)

        yield from visit(group, f"{path}/" if path else "", 1)

    def open(self, group: Any, name: bytes, path: str, *, link_type: int | None = None) -> Any:
        """Returns the member of a group, as `member` does, but in the low-level types of h5py.

        Low-level types take a fraction of the time, which matters for small episodes. Call
        `check_values` before you read an array.

        Args:
          group: The `h5py.h5g.GroupID`.
          name: The name of the member in the group.
          path: The name of the member in errors.
          link_type: The type of the link, if available.

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
        if link_type == h5py.h5l.TYPE_SOFT and not self.follow_links:
            return self._follow_links(group, name, path)
        if link_type != h5py.h5l.TYPE_HARD and not self.follow_links:
            raise self.error(f"a link to another file, {_OTHER_FILE_HINT}", path)
        try:
            member = h5py.h5o.open(group, name)
        except KeyError as error:
            raise self.error("a link without a target", path) from error
        if not isinstance(member, (h5py.h5d.DatasetID, h5py.h5g.GroupID)):
            raise self.error("a named type, expected a group or an array", path)
        if self.follow_links:
            self._note_other_files(member)
        return member

    def _follow_links(self, group: Any, name: bytes, path: str) -> Any:
        """Returns the array of this file that a soft link leads to, without further links."""
        h5py = import_extra("h5py")
        target = group.links.get_val(name)
        member = h5py.h5i.get_file_id(group) if target.startswith(b"/") else group
        member = h5py.h5g.open(member, b"/" if target.startswith(b"/") else b".")
        for key in filter(None, target.split(b"/")):
            if not isinstance(member, h5py.h5g.GroupID) or not member.links.exists(key):
                raise self.error("a link without a target", path)
            if member.links.get_info(key).type != h5py.h5l.TYPE_HARD:
                raise self.error(f"a link to a link, {_OTHER_FILE_HINT}", path)
            member = self.open(member, key, path, link_type=h5py.h5l.TYPE_HARD)
        if not is_array(member):
            raise self.error("a link to a group, which may lead back to itself", path)
        return member

    def check_values(self, array: Any, path: str) -> tuple[tuple[int, ...] | None, int | None]:
        """Checks that the values of a `DatasetID` are in this file, and do not exceed its size.

        Returns:
          The shape, None without values; and the offset of contiguous values in the file, for
          `read_at`: None if the values are in chunks, not written yet, or maybe in another file.

        Raises:
          SourceError: The values are in another file, or more than the file can hold.
        """
        shape = array.shape
        if self.follow_links:
            return shape, None
        h5py = import_extra("h5py")
        value_bytes = array.get_type().get_size()
        num_bytes, chunk_bytes = math.prod(shape or ()) * value_bytes, 0
        offset = array.get_offset() if self._has_offsets else None
        if offset is None:
            plan = array.get_create_plist()
            if plan.get_external_count():
                raise self.error(f"its values are in another file, {_OTHER_FILE_HINT}", path)
            layout = plan.get_layout()
            if layout == h5py.h5d.VIRTUAL:
                raise self.error(f"a view of other arrays, {_OTHER_FILE_HINT}", path)
            if layout == h5py.h5d.CHUNKED:  # Reading a value decompresses its whole chunk.
                chunk_bytes = math.prod(plan.get_chunk()) * value_bytes
        declared_size = num_bytes + chunk_bytes
        # Other filters may compress better than deflate; then each chunk must exist.
        if declared_size > possible_bytes(self._size) and not (
            chunk_bytes and array.get_num_chunks() * chunk_bytes >= num_bytes
        ):
            check_declared(declared_size, self._size, file=self.path, field=path)
        return shape, offset

    def read_at(self, offset: int, values: np.ndarray, path: str) -> None:
        """Fills an array with the bytes at an offset, much faster than HDF5.

        Args:
          offset: The offset in the open file.
          values: The array to fill.
          path: The name of the array in errors.

        Raises:
          SourceError: The file ends before the last of these bytes.
        """
        descriptor = self._file.id.get_vfd_handle()
        unread = values.reshape(-1).view(np.uint8).data
        while unread:
            num_read = os.preadv(descriptor, [unread], offset)
            if not num_read:
                message = f"cut short: {len(unread)} bytes are missing at byte {offset}"
                raise self.error(message, path)
            offset, unread = offset + num_read, unread[num_read:]

    def _decode_text(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"the name {name!r} is not valid UTF-8") from error

    def error(self, message: str, field: str | None = None) -> SourceError:
        """Returns an error of the file."""
        return SourceError(message, file=self.path, field=field)

    # --- The file.

    def _get_open_file(self) -> Any:
        """Returns the open file, after a check that it has not changed."""
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
            if not is_local(self.path):  # HDF5 does not open URLs.
                file = self._opened.enter_context(open_binary(self.path))
            hdf5_file = self._opened.enter_context(h5py.File(file, "r", **self._cache))
            self._size = int(as_path(self.path).stat().length)
            # Behind a user block, HDF5 1.14 has offsets even for unwritten values.
            self._has_offsets = (
                is_local(self.path) and hasattr(os, "preadv") and not hdf5_file.userblock_size
            )
            return hdf5_file
        except Exception as error:
            self._opened.close()
            if isinstance(error, OSError) and is_damage(error):
                raise self.error(f"not a complete HDF5 file: {error}") from error
            raise

    def _note_other_files(self, member: Any) -> None:
        """Adds the files of an object and of its values to `other_files`."""
        h5py = import_extra("h5py")
        names = [os.fsdecode(h5py.h5f.get_name(member))]
        if is_array(member):
            item = h5py.Dataset(member, readonly=True)
            names += [name for name, *_ in item.external or ()]
            names += (
                [source.file_name for source in item.virtual_sources()] if item.is_virtual else []
            )
        directory = os.path.dirname(self.path)
        for name in names:  # HDF5 searches the working directory and the folder of the file.
            candidates = (name, os.path.join(directory, name))
            self.other_files.update(file for file in candidates if os.path.isfile(file))
        self.other_files.discard(self.path)


def is_array(item: Any) -> bool:
    """Whether an object in a file is an array, not a group."""
    h5py = import_extra("h5py")
    return isinstance(item, (h5py.Dataset, h5py.h5d.DatasetID))


def _encode_path(name: str) -> bytes:
    return name.encode(errors="surrogateescape")
