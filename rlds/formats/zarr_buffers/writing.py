"""Writes a Zarr v2 hierarchy to a folder or to a zip archive, row by row."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlds.formats.zarr_buffers.arrays import ZarrArray
from rlds.formats.zarr_buffers.files import ARRAY, ATTRIBUTES, GROUP, ZarrFiles
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.whole_files import link

__all__ = ["COMPRESSORS", "ArrayWriter", "ZarrWriter", "rows_json"]

COMPRESSORS: Mapping[str, Any] = {
    "default": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 0, "blocksize": 0},
    "disk": {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 2, "blocksize": 0},
}
"""The compressors "default" and "disk" of Diffusion Policy."""
_CHUNK_BYTES = 2_000_000
# The minimum size of an image that is stored as a separate chunk.
_MIN_IMAGE_BYTES = 10_000


class ZarrWriter:
    """Writes a hierarchy; a context manager.

    Args:
      path: The new folder; an archive if its name ends in `.zip`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._archive: zipfile.ZipFile | None = None
        if path.suffix == ".zip":
            self._archive = zipfile.ZipFile(path, "x", zipfile.ZIP_STORED)
        else:
            path.mkdir()

    def __enter__(self) -> ZarrWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._archive is not None:
            self._archive.close()

    def put(self, name: str, data: bytes) -> None:
        """Writes a file."""
        if self._archive is not None:
            self._archive.writestr(zipfile.ZipInfo(name), data)
            return
        file = self._path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def copy(self, name: str, files: ZarrFiles, source: str) -> None:
        """Copies a file of another hierarchy under a new name, if it exists."""
        if not files.has(source):
            return
        if self._archive is not None:
            self.put(name, files.read(source, math.inf) or b"")
            return
        target = self._path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        link(files.path / source, target)

    def describe(self, name: str, content: Mapping[str, Any], attributes: Any = None) -> None:
        """Writes the JSON file of a group or an array, and its attributes."""
        self.put(name, json.dumps(content, indent=4).encode())
        if attributes:
            folder = name.removesuffix(ARRAY).removesuffix(GROUP)
            self.put(folder + ATTRIBUTES, json.dumps(attributes).encode())

    def group(self, name: str, attributes: Any = None) -> None:
        """Creates a group."""
        self.describe(f"{name}/{GROUP}" if name else GROUP, {"zarr_format": 2}, attributes)

    def array(self, name: str, values: np.ndarray, attributes: Any = None) -> None:
        """Writes an array as one uncompressed chunk."""
        header = _array_json(values.dtype, [max(size, 1) for size in values.shape], None)
        header["shape"] = list(values.shape)
        self.describe(f"{name}/{ARRAY}", header, attributes)
        if values.size:
            data = values.astype(header["dtype"], copy=False).tobytes()
            self.put(f"{name}/{'.'.join('0' * values.ndim) or '0'}", data)


class ArrayWriter:
    """Writes an array row by row.

    Args:
      writer: The hierarchy.
      name: The path of the array.
      header: The content of `.zarray`, whose number of rows is replaced. Chunks hold whole rows.
      attributes: The content of `.zattrs`.

    Attributes:
      name: The path of the array.
      num_rows: The number of rows.
    """

    def __init__(
        self, writer: ZarrWriter, name: str, header: Mapping[str, Any], attributes: Any = None
    ) -> None:
        self._writer, self.name, self._attributes = writer, name, attributes
        self._header = dict(header)
        self._chunk_rows, *self._row_shape = header["chunks"]
        self._separator = header.get("dimension_separator") or "."
        self.num_rows = 0
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0

    def append(self, rows: np.ndarray) -> None:
        """Appends rows."""
        self.num_rows += len(rows)
        self._num_waiting += len(rows)
        self._waiting.append(rows)
        if self._num_waiting < self._chunk_rows:
            return
        waiting_rows = np.concatenate(self._waiting)
        end = len(waiting_rows) // self._chunk_rows * self._chunk_rows
        first_row = self.num_rows - len(waiting_rows)
        for start in range(0, end, self._chunk_rows):
            self._put_rows(first_row + start, waiting_rows[start : start + self._chunk_rows])
        self._waiting, self._num_waiting = [waiting_rows[end:].copy()], len(waiting_rows) - end

    def append_chunks(self, chunks: np.ndarray) -> None:
        """Appends rows as encoded chunks; empty bytes write no chunk."""
        for chunk in chunks:
            if chunk:
                self._writer.put(self._file(self.num_rows), bytes(chunk))
            self.num_rows += 1

    def copy(self, array: ZarrArray, rows: range) -> None:
        """Appends rows of an array with the same layout; rows that are chunks are not decoded."""
        if self._chunk_rows > 1:
            self.append(array.read(rows.start, rows.stop))
            return
        zeros = [0] * len(self._row_shape)
        for row in rows:
            name = self._file(self.num_rows)
            self._writer.copy(name, array.files, array.chunk_file((row, *zeros)))
            self.num_rows += 1

    def finish(self) -> None:
        """Writes the remaining rows and the metadata."""
        if self._num_waiting:
            self._put_rows(self.num_rows - self._num_waiting, np.concatenate(self._waiting))
        self._header["shape"] = [self.num_rows, *self._row_shape]
        self._writer.describe(f"{self.name}/{ARRAY}", self._header, self._attributes)

    def _put_rows(self, first_row: int, rows: np.ndarray) -> None:
        """Writes a chunk; pads the last one."""
        chunk = np.zeros((self._chunk_rows, *self._row_shape), self._header["dtype"])
        chunk[: len(rows)] = rows
        name = self._file(first_row // self._chunk_rows)
        self._writer.put(name, _compress(chunk, self._header["compressor"]))

    def _file(self, index: int) -> str:
        """Returns the path of a chunk."""
        name = self._separator.join(map(str, (index, *[0] * len(self._row_shape))))
        return f"{self.name}/{name}"


def _compress(chunk: np.ndarray, compressor: Mapping[str, Any]) -> bytes:
    """Compresses in one thread, because several threads of Blosc store blocks in random order."""
    codec, blosc = import_extra("numcodecs").get_codec(compressor), import_extra("numcodecs.blosc")
    uses_threads, blosc.use_threads = blosc.use_threads, False
    try:
        return bytes(codec.encode(chunk))
    finally:
        blosc.use_threads = uses_threads


def _array_json(dtype: np.dtype, chunks: list[int], compressor: Any) -> dict[str, Any]:
    """Returns the content of `.zarray`, without the shape."""
    return {
        "zarr_format": 2,
        "chunks": chunks,
        "dtype": dtype.newbyteorder("<").str,
        "compressor": compressor,
        "fill_value": dtype.type(0).item(),
        "order": "C",
        "filters": None,
    }


def rows_json(dtype: np.dtype, row_shape: Sequence[Any], compressor: Any) -> dict[str, Any]:
    """Returns the `.zarray` of an array of rows: chunks of some megabytes, or one image."""
    row = max(math.prod(row_shape) * dtype.itemsize, 1)
    is_image = len(row_shape) >= 2 and row >= _MIN_IMAGE_BYTES
    num_rows = 1 if is_image else max(1, _CHUNK_BYTES // row)
    return _array_json(dtype, [num_rows, *row_shape], compressor)
