"""Arrays of NumPy's own files: `.npz`, and `.npy`. Pickled objects in them are never unpickled."""

from __future__ import annotations

import contextlib
import io
import math
import os
import zipfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np
from etils import epath

from rlds.raw_files.archives import check_method
from rlds.raw_files.restricted_pickle import loads
from rlds.raw_files.untrusted import (
    Budget,
    SourceError,
    check_is_file,
    source_errors,
    trusted_bytes,
)
from rlds_ecosystem import stores

__all__ = ["NpzFile", "array_header", "open_npz", "parse_npy", "read_npy"]

# What reads the headers of arrays of numbers and of text, by the version of the format.
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class _Array(NamedTuple):
    """An array of a file, of which the header has been read."""

    member: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype


class NpzFile:
    """An open `.npz` file; arrays are read when they are asked for.

    Args:
      file: The file, or the archive that it is in, for errors.
      archive: The open file.
      size: How many bytes it has.

    Attributes:
      file: The argument.
      names: The names of its arrays.
    """

    def __init__(self, file: epath.Path, archive: zipfile.ZipFile, size: int) -> None:
        self.file, self._archive = file, archive
        self._arrays: dict[str, _Array] = {}
        budget = Budget(file, size, max_bytes=trusted_bytes(size))
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            budget.enter(name.count("/"), name)
            array = self._described(member, name)
            budget.take(_num_bytes(array.shape, array.dtype), name)
            if name in self._arrays:
                raise self.error("two arrays of this name", name)
            self._arrays[name] = array
        self.names = list(self._arrays)

    def error(self, what: str, name: str) -> SourceError:
        """Returns an error about an array."""
        return SourceError(what, file=self.file, field=name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of an array."""
        return self._arrays[name].shape

    def dtype(self, name: str) -> np.dtype:
        """Returns the dtype of an array."""
        return self._arrays[name].dtype

    def read(self, name: str) -> np.ndarray:
        """Reads an array; text as objects."""
        member, shape, _ = self._arrays[name]
        with self._opened(member, name) as stream:
            values = np.lib.format.read_array(stream, allow_pickle=False)
            if stream.read(1):  # Looking for the end also compares the checksum.
                raise self.error(f"more bytes than those of shape {shape}", name)
        return _plain(values)

    def _described(self, member: zipfile.ZipInfo, name: str) -> _Array:
        if not member.filename.endswith(".npy"):
            raise self.error("no array, but something else in the zip file", name)
        with self._opened(member, name) as stream:
            shape, dtype = _read_header(stream, self.file, name)
        if dtype.hasobject:
            what = "pickled objects, which are not read, as they can run any code; save numbers, or"
            raise self.error(f"{what} text as np.array(..., dtype=str)", name)
        return _Array(member, shape, dtype)

    @contextlib.contextmanager
    def _opened(self, member: zipfile.ZipInfo, name: str) -> Iterator[IO[bytes]]:
        check_method(member, self.file)
        with source_errors(self.file, field=name), self._archive.open(member) as stream:
            yield stream


@contextlib.contextmanager
def open_npz(path: str | os.PathLike[str]) -> Iterator[NpzFile]:
    """Opens a file.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: It is damaged.
    """
    file = stores.as_path(path)
    check_is_file(file)
    with source_errors(file), file.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        yield NpzFile(file, archive, int(file.stat().length))


def read_npy(path: str | os.PathLike[str]) -> Any:
    """Reads a `.npy` file: an array, or what its objects are if they are plain data.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: It is damaged, or has other objects.
    """
    file = stores.as_path(path)
    check_is_file(file)
    with source_errors(file):
        with file.open("rb") as stream:
            shape, dtype = _read_header(stream, file, None)
            left = int(file.stat().length) - stream.tell()
            if not dtype.hasobject and _num_bytes(shape, dtype) != left:
                raise SourceError(f"{left} bytes, not those of {dtype} {shape}", file=file)
            stored = stream.read()
        if dtype.hasobject:
            found = loads(stored)
            is_scalar = isinstance(found, np.ndarray) and not found.shape
            return found.item() if is_scalar else found
        with file.open("rb") as stream:
            return _plain(np.lib.format.read_array(stream, allow_pickle=False))


def parse_npy(data: bytes, file: epath.Path) -> np.ndarray:
    """Returns the array of a `.npy` file; text as objects.

    Args:
      data: The bytes of the file.
      file: What it is in, for errors.

    Raises:
      SourceError: It is damaged, or has pickled objects, which are not read.
    """
    stream = io.BytesIO(data)
    with source_errors(file):
        shape, dtype = _read_header(stream, file, None)
        if dtype.hasobject or _num_bytes(shape, dtype) != len(data) - stream.tell():
            raise SourceError(f"not the bytes of {dtype} {shape}, or objects", file=file)
        stream.seek(0)
        return _plain(np.lib.format.read_array(stream, allow_pickle=False))


def array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Reads what is before the values of an array.

    Returns:
      The shape, whether columns are stored one after the other (Fortran), and the dtype.

    Raises:
      ValueError: It is damaged, or there are values of another kind than numbers, bools, text and
        objects.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"in version {version} of .npy, expected 1.0 or 2.0")
    try:
        shape, fortran, dtype = _HEADERS[version](stream)
    except (MemoryError, RecursionError) as error:  # Python's parser has no room for it.
        raise ValueError("the header is damaged") from error
    if not dtype.hasobject and (dtype.kind not in "biufcUS" or dtype.char in "gG"):
        raise ValueError(f"{dtype}, expected numbers, bools or text")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"of shape {shape}")
    if not dtype.itemsize and 0 not in shape:  # There may be any number of them in no bytes.
        raise ValueError(f"{dtype}, expected values that take bytes")
    return tuple(shape), fortran, dtype


def _read_header(
    stream: IO[bytes], file: epath.Path, name: str | None
) -> tuple[tuple[int, ...], np.dtype]:
    try:
        shape, _, dtype = array_header(stream)
    except ValueError as error:
        raise SourceError(str(error), file=file, field=name) from error
    return shape, dtype


def _num_bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return dtype.itemsize * math.prod(shape)


def _plain(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "US":
        return values.astype(object)
    return values.astype(values.dtype.newbyteorder("="), copy=False)
