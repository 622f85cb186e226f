"""Writes a Zarr v2 hierarchy to a folder or to a zip archive, row by row."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rlds.formats.zarr_buffers.arrays import ZarrSpec
from rlds.formats.zarr_buffers.files import ARRAY, ATTRIBUTES, CONSOLIDATED, GROUP

__all__ = ["ArrayWriter", "ZarrWriter", "array_json"]


class ZarrWriter:
    """A hierarchy that is being written.

    Args:
      path: The folder to make; an archive if its name ends in `.zip`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._archive: zipfile.ZipFile | None = None
        self._described: dict[str, Any] = {}
        self._arrays: list[ArrayWriter] = []
        if path.suffix == ".zip":
            self._archive = zipfile.ZipFile(path, "x", zipfile.ZIP_STORED)
        else:
            path.mkdir()

    def __enter__(self) -> ZarrWriter:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

    def put_json(self, name: str, content: Any) -> None:
        """Writes a file that says something of a group or an array."""
        self._described[name] = content
        self.put(name, json.dumps(content, indent=4).encode())

    def group(self, name: str, attributes: Any = None) -> None:
        """Makes a group; None stands for no file with attributes."""
        prefix = f"{name}/" if name else ""
        self.put_json(f"{prefix}{GROUP}", {"zarr_format": 2})
        if attributes is not None:
            self.put_json(f"{prefix}{ATTRIBUTES}", attributes)

    def array(self, name: str, described: Mapping[str, Any], attributes: Any = None) -> ArrayWriter:
        """Makes an array, whose rows are to come."""
        made = ArrayWriter(self, name, described, attributes)
        self._arrays.append(made)
        return made

    def finish(self, *, consolidated: bool = False) -> None:
        """Writes what is left of all arrays, and what is said of them."""
        for array in self._arrays:
            array.finish()
        if consolidated:
            content = {"zarr_consolidated_format": 1, "metadata": self._described}
            self.put_json(CONSOLIDATED, content)


class ArrayWriter:
    """An array that is being written.

    Args:
      writer: The hierarchy.
      name: The path of the array.
      described: The content of `.zarray`; the number of rows is counted.
      attributes: The content of `.zattrs`; None if there is no such file.

    Attributes:
      spec: What the array is.
      num_rows: How many rows it has.
    """

    def __init__(
        self, writer: ZarrWriter, name: str, described: Mapping[str, Any], attributes: Any
    ) -> None:
        self._writer, self._name, self._attributes = writer, name, attributes
        self.spec = ZarrSpec(described)
        self.num_rows = 0
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0

    def append(self, rows: np.ndarray) -> None:
        """Adds rows."""
        self.num_rows += len(rows)
        self._num_waiting += len(rows)
        self._waiting.append(rows)
        size = self.spec.chunks[0]
        if self._num_waiting < size:
            return
        waiting = np.concatenate(self._waiting)
        whole = len(waiting) // size * size
        first = (self.num_rows - len(waiting)) // size
        for begin in range(0, whole, size):
            self._put_block(first + begin // size, waiting[begin : begin + size])
        self._waiting, self._num_waiting = [waiting[whole:].copy()], len(waiting) - whole

    def append_files(self, files: np.ndarray) -> None:
        """Adds rows that are chunks already; none is written for empty bytes."""
        for file in files:
            if file:
                place = (self.num_rows, *[0] * len(self.spec.row_shape))
                self._writer.put(f"{self._name}/{self.spec.chunk_name(place)}", bytes(file))
            self.num_rows += 1

    def put_scalar(self, value: np.ndarray) -> None:
        """Writes the value of an array of no dimensions."""
        self._writer.put(f"{self._name}/{self.spec.chunk_name(())}", self.spec.encode(value))

    def finish(self) -> None:
        """Writes the rest."""
        if self._num_waiting:
            block = self.num_rows // self.spec.chunks[0]
            self._put_block(block, np.concatenate(self._waiting))
        shape = [self.num_rows, *self.spec.row_shape] if self.spec.shape else []
        self._writer.put_json(f"{self._name}/{ARRAY}", {**self.spec.described, "shape": shape})
        if self._attributes is not None:
            self._writer.put_json(f"{self._name}/{ATTRIBUTES}", self._attributes)

    def _put_block(self, block: int, rows: np.ndarray) -> None:
        """Writes all chunks that begin in a row; those at an end are filled up."""
        spec = self.spec
        for place in spec.places():
            corner = [number * size for number, size in zip(place, spec.chunks[1:])]
            piece = rows[(slice(None), *(slice(c, c + s) for c, s in zip(corner, spec.chunks[1:])))]
            chunk = piece
            if piece.shape != spec.chunks:
                chunk = np.full(spec.chunks, spec.fill_value, rows.dtype)
                chunk[tuple(map(slice, piece.shape))] = piece
            name = spec.chunk_name((block, *place))
            self._writer.put(f"{self._name}/{name}", spec.encode(chunk))


def array_json(
    dtype: np.dtype, row_shape: tuple[int, ...], chunk_rows: int, compressor: Any
) -> dict[str, Any]:
    """Returns the content of `.zarray` of an array without rows."""
    return {
        "zarr_format": 2,
        "shape": [0, *row_shape],
        "chunks": [chunk_rows, *row_shape],
        "dtype": np.dtype(dtype).newbyteorder("<").str,
        "compressor": compressor,
        "fill_value": False if dtype.kind == "b" else 0.0 if dtype.kind == "f" else 0,
        "order": "C",
        "filters": None,
    }
