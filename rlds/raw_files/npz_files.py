"""Safe reads of NumPy files: `.npz` by arrays or rows, and `.npy`."""

from __future__ import annotations

import contextlib
import io
import math
import os
import threading
import weakref
import zipfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np
from etils import epath

from rlds.raw_files.archives import check_method
from rlds.raw_files.byte_streams import ByteStream
from rlds.raw_files.input_files import changed
from rlds.raw_files.restricted_pickle import loads
from rlds.raw_files.untrusted import SourceError, check_declared, check_is_file, source_errors
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.forking import reset_in_forks

__all__ = ["NpyArray", "NpzFile", "NpzRows", "open_npz", "parse_npy", "read_header", "read_npy"]

# Readers of the headers of arrays, by the version of the format.
_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class NpyArray(NamedTuple):
    """The header of an array in a NumPy file.

    Attributes:
      shape: The shape of the array.
      dtype: The dtype of the values.
      by_columns: True for Fortran order, column by column.
      values_offset: The offset of the values.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    by_columns: bool
    values_offset: int

    @property
    def num_bytes(self) -> int:
        """The size of the values, in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """The size of a row, in bytes."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    def values(self, content: np.ndarray) -> np.ndarray:
        """Returns bytes as an array in the byte order of this machine; text as objects."""
        order: Any = "F" if self.by_columns else "C"
        array = content.view(self.dtype).reshape(self.shape, order=order)
        kind = object if self.dtype.kind in "US" else self.dtype.newbyteorder("=")
        return array.astype(kind, copy=False)


class NpzFile:
    """An open `.npz` file; arrays are read when they are requested.

    Args:
      file: The file, or the archive that contains it, for errors.
      stream: The open file.

    Attributes:
      file: The argument.
      arrays: The headers of the arrays, by name.

    Raises:
      SourceError: The file has members other than arrays of numbers and text.
    """

    def __init__(self, file: epath.Path, stream: IO[bytes]) -> None:
        self.file, self._archive = file, zipfile.ZipFile(stream)
        self._streams: dict[str, IO[bytes]] = {}
        self.arrays: dict[str, NpyArray] = {}
        size = stream.seek(0, os.SEEK_END)
        for member in self._archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in self.arrays:
                raise self.error("two arrays have this name", name)
            if not member.filename.endswith(".npy"):
                raise self.error("not an array, but another file in the zip file", name)
            check_method(member, file)
            check_declared(member.file_size, min(member.compress_size, size), file=file, field=name)
            with source_errors(file, field=name), self._archive.open(member) as member_stream:
                array = read_header(member_stream, file, name)
            if array.dtype.hasobject:
                message = "pickled objects, which can run any code, are not read; save numbers"
                raise self.error(f"{message}, or text as np.array(..., dtype=str)", name)
            if array.values_offset + array.num_bytes != member.file_size:
                raise self.error(f"the number of bytes does not fit shape {array.shape}", name)
            self.arrays[name] = array

    def error(self, message: str, name: str) -> SourceError:
        """Returns an error about an array."""
        return SourceError(message, file=self.file, field=name)

    def read(self, name: str) -> np.ndarray:
        """Reads an array; text as objects.

        Raises:
          SourceError: The array is damaged.
        """
        array = self.arrays[name]
        with source_errors(self.file, field=name), self._archive.open(f"{name}.npy") as stream:
            stream.read(array.values_offset)  # After a seek, Python 3.12 compares no checksum.
            content = self._read_content(stream, array.num_bytes, name)
            stream.read(1)  # At the end, the checksum is compared.
        return array.values(content)

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Reads rows of an array; text as objects.

        Sequential reads are fast. Other reads are fast in files of `numpy.savez`; files of
        `numpy.savez_compressed` are decompressed from the beginning.

        Raises:
          SourceError: The rows are damaged, or the array is in Fortran order.
        """
        array = self.arrays[name]
        if array.by_columns:
            message = "the array is in Fortran order; save it with np.ascontiguousarray"
            raise self.error(message, name)
        with source_errors(self.file, field=name):
            if name not in self._streams:
                self._streams[name] = self._archive.open(f"{name}.npy")
                self._streams[name].read(array.values_offset)
            stream = self._streams[name]
            offset = array.values_offset + array.row_bytes * begin
            if stream.tell() != offset:  # After a seek, Python 3.12 compares no checksum.
                stream.seek(offset)
            content = self._read_content(stream, array.row_bytes * (end - begin), name)
        return array._replace(shape=(end - begin, *array.shape[1:])).values(content)

    def _read_content(self, stream: Any, num_bytes: int, name: str) -> np.ndarray:
        content = np.empty(num_bytes, np.uint8)
        if stream.readinto(content.data) != num_bytes:
            raise self.error("cut short", name)
        return content


@contextlib.contextmanager
def open_npz(path: str | os.PathLike[str]) -> Iterator[NpzFile]:
    """Opens an `.npz` file.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is damaged.
    """
    file = stores.as_path(path)
    check_is_file(file)
    with source_errors(file), file.open("rb") as stream:
        yield NpzFile(file, stream)


class NpzRows:
    """Rows of the arrays of a `.npz` file, which stays open; can be pickled.

    Args:
      path: The file.

    Attributes:
      path: The file.
      arrays: The headers of the arrays, by name. A scalar is an array of one row.
      scalars: The names of the scalars.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is damaged, or has members other than arrays of numbers and text.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = stores.as_path(path)
        self._version = stores.version_of(self.path)
        self._reset()
        reset_in_forks(self)
        with source_errors(self.path):
            arrays = self._get_open_file().arrays
        self.scalars = {name for name, array in arrays.items() if not array.shape}
        self.arrays = {name: a._replace(shape=a.shape or (1,)) for name, a in arrays.items()}

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._opened: NpzFile | None = None

    def __getstate__(self) -> dict[str, Any]:
        names = ("path", "arrays", "scalars", "_version")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()
        reset_in_forks(self)

    def __repr__(self) -> str:
        return f"NpzRows({os.fspath(self.path)!r})"

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Reads rows of an array; see `NpzFile.rows`.

        Raises:
          SourceChangedError: The file has changed since it was opened.
          SourceError: The rows are damaged.
        """
        with self._lock, source_errors(self.path, field=name):
            return self._get_open_file().rows(name, begin, end)

    def read(self, name: str) -> np.ndarray:
        """Reads a full array; see `rows`."""
        return self.rows(name, 0, self.arrays[name].shape[0])

    def _get_open_file(self) -> NpzFile:
        if self._opened is None:
            check_is_file(self.path)
            if stores.version_of(self.path) != self._version:
                raise changed(os.fspath(self.path))
            stream = stores.open_binary(self.path)
            weakref.finalize(self, stream.close)
            self._opened = NpzFile(self.path, stream)
        return self._opened


def read_npy(path: str | os.PathLike[str]) -> Any:
    """Reads a `.npy` file: an array, or its objects if they are plain data.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is damaged, or has other objects.
    """
    file = stores.as_path(path)
    check_is_file(file)
    with source_errors(file):
        data = file.read_bytes()
        array = read_header(io.BytesIO(data), file)
        if not array.dtype.hasobject:
            return parse_npy(data, file)
        content = loads(data[array.values_offset :])
        return content.item() if isinstance(content, np.ndarray) and not content.shape else content


def parse_npy(data: bytes, file: epath.Path) -> np.ndarray:
    """Returns the array of a `.npy` file; text as objects.

    Args:
      data: The bytes of the file.
      file: The name of the file for errors.

    Raises:
      SourceError: The file is damaged, or has pickled objects, which are not read.
    """
    array = read_header(io.BytesIO(data), file)
    size = len(data) - array.values_offset
    if array.dtype.hasobject or array.num_bytes != size:
        message = f"{size} bytes do not fit {array.dtype} of shape {array.shape}, or hold objects"
        raise SourceError(message, file=file)
    return array.values(np.frombuffer(bytearray(data), np.uint8, offset=array.values_offset))


def read_header(
    stream: IO[bytes] | ByteStream, file: str | os.PathLike[str], name: str | None = None
) -> NpyArray:
    """Reads the header of an array.

    Args:
      stream: The `.npy` file, at its beginning.
      file: The file, or the archive that contains it, for errors.
      name: The name of the array in the archive.

    Raises:
      SourceError: The header is damaged, or declares values other than numbers, bools, text and
        objects.
    """
    with source_errors(file, field=name):
        version = np.lib.format.read_magic(stream)  # type: ignore[arg-type]
        if version not in _HEADER_READERS:
            raise ValueError(f".npy version {version}, expected 1.0 or 2.0")
        try:
            shape, fortran, dtype = _HEADER_READERS[version](stream)  # type: ignore[arg-type]
        except MemoryError as error:  # Raised by Python's parser for deep nesting.
            raise ValueError("the header is damaged") from error
    problem = ""
    if not dtype.hasobject and (dtype.kind not in "biufcUS" or dtype.char in "gG"):
        problem = f"{dtype}, expected numbers, bools or text"
    elif any(type(length) is not int or length < 0 for length in shape):
        problem = f"shape {shape}, expected sizes of 0 or more"
    elif not dtype.itemsize and 0 not in shape:  # The size of the file does not limit empty values.
        problem = f"{dtype}, expected values that take bytes"
    if problem:
        raise SourceError(problem, file=file, field=name)
    return NpyArray(tuple(shape), dtype, fortran and len(shape) > 1, stream.tell())
