"""Rows of the arrays in a `.npz` file, without reading the arrays as a whole."""

from __future__ import annotations

import math
import os
import threading
import weakref
import zipfile
from typing import IO, Any, NamedTuple

import numpy as np

from rlds.raw_files.input_files import changed
from rlds.raw_files.npz_arrays import array_header
from rlds.raw_files.untrusted import Budget, SourceError, check_is_file, source_errors
from rlds_ecosystem import stores
from rlds_ecosystem.forking import begin_anew_in_forks

__all__ = ["NpyArray", "NpzRows", "read_header"]

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class NpyArray(NamedTuple):
    """An array of a file.

    Attributes:
      shape: Its shape.
      dtype: The dtype of its values.
      begin: Where they begin in the member of the zip file.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    begin: int

    @property
    def num_bytes(self) -> int:
        """How many bytes the values take."""
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """How many of them a row takes."""
        return self.num_bytes // self.shape[0] if self.shape and self.shape[0] else 0


def read_header(stream: IO[bytes]) -> NpyArray:
    """Reads what is before the values.

    Raises:
      ValueError: It is damaged, or there are pickled objects, or values of another kind than
        numbers, bools and text, or columns are stored one after the other (Fortran).
    """
    shape, fortran, dtype = array_header(stream)
    if dtype.hasobject:
        raise ValueError("pickled objects, which are not read, as they can run any code")
    if fortran and len(shape) > 1:
        raise ValueError("its columns are stored one after the other; save it in the order of C")
    return NpyArray(shape, dtype, stream.tell())


class NpzRows:
    """The arrays of a file, by name; can be pickled.

    Rows that come after those that were read last are read on from there. Others are quick in files
    of `numpy.savez`; those of `numpy.savez_compressed` are decompressed from the beginning.

    Args:
      path: The file.

    Attributes:
      path: The file.
      arrays: What there is.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: It is damaged, or holds something else than arrays of numbers and text.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = stores.as_path(path)
        self._version = stores.version_of(self.path)
        self._begin_anew()
        begin_anew_in_forks(self)
        with source_errors(self.path):
            self.arrays = self._look()

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._archive: zipfile.ZipFile | None = None
        self._streams: dict[str, IO[bytes]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "arrays": self.arrays, "_version": self._version}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_anew()
        begin_anew_in_forks(self)

    def __repr__(self) -> str:
        return f"NpzRows({os.fspath(self.path)!r})"

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Returns rows of an array, in the byte order of this machine.

        Raises:
          SourceChangedError: It is another file than it was.
          SourceError: They are damaged.
        """
        array = self.arrays[name]
        num_bytes = array.row_bytes * (end - begin)
        with self._lock, source_errors(self.path, field=name):
            stream = self._stream(name)
            stream.seek(array.begin + array.row_bytes * begin)
            content = stream.read(num_bytes)
        if len(content) != num_bytes:
            raise SourceError("cut short", file=self.path, row=begin, field=name)
        values = np.frombuffer(content, array.dtype).reshape(end - begin, *array.shape[1:])
        return values.astype(array.dtype.newbyteorder("="), copy=False)

    def read(self, name: str) -> np.ndarray:
        """Returns an array as a whole; see `rows`."""
        return self.rows(name, 0, self.arrays[name].shape[0])

    def _look(self) -> dict[str, NpyArray]:
        arrays: dict[str, NpyArray] = {}
        archive = self._opened()
        budget = Budget(self.path, self.path.stat().length)
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            budget.enter(name.count("/"), name)
            if not member.filename.endswith(".npy"):
                raise SourceError("no array", file=self.path, field=name)
            if member.compress_type not in _METHODS:
                what = f"compressed by method {member.compress_type} of zip, not none or deflate"
                raise SourceError(what, file=self.path, field=name)
            with source_errors(self.path, field=name), archive.open(member) as stream:
                arrays[name] = read_header(stream)
            if not arrays[name].shape:  # A scalar is a row.
                arrays[name] = arrays[name]._replace(shape=(1,))
            budget.take(arrays[name].num_bytes, name)
            if arrays[name].begin + arrays[name].num_bytes != member.file_size:
                raise SourceError("not as many bytes as its shape says", file=self.path, field=name)
        return arrays

    def _stream(self, name: str) -> IO[bytes]:
        archive = self._opened()
        if name not in self._streams:
            self._streams[name] = archive.open(f"{name}.npy")
        return self._streams[name]

    def _opened(self) -> zipfile.ZipFile:
        if self._archive is None:
            check_is_file(self.path)
            if stores.version_of(self.path) != self._version:
                raise changed(os.fspath(self.path))
            file = stores.open_binary(self.path)
            weakref.finalize(self, file.close)
            self._archive = zipfile.ZipFile(file)
        return self._archive
