"""An array of Zarr v2: its metadata in `.zarray`, and its chunks.

Format 2 is a folder of files: `.zarray` is JSON, and each other file is a chunk. All codecs of
numcodecs and imagecodecs are supported, except codecs that could run code (`pickle`).

The library zarr is not used: it silently fills missing chunks, takes more than twice the time for
arrays of images, and has a thread that does not survive a fork.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlds.formats.zarr_buffers.files import ARRAY, ATTRIBUTES, ZarrFiles
from rlds.raw_files.untrusted import source_errors, trusted_bytes
from rlds.sources.source import SourceError
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import objects

__all__ = ["IMAGE_CODECS", "ZarrArray"]

# Codecs whose chunks are image files.
IMAGE_CODECS: Mapping[str, str] = {
    "imagecodecs_jpegxl": "jpegxl_decode",
    "imagecodecs_jpeg2k": "jpeg2k_decode",
}
# Codecs whose numcodecs decoder ignores the declared chunk size.
_DEFLATE_CODECS = ("zlib", "gzip")
_CODECS = ("", "blosc", "zstd", "lz4", *_DEFLATE_CODECS, *IMAGE_CODECS)
# Overhead of a compressed chunk, such as the colour profile of an image.
_CHUNK_OVERHEAD_BYTES = 1 << 16
# Filters by kind of dtype, for texts with lengths. zarr 3.0 also uses them for fixed lengths.
_TEXT_FILTERS = {"O": ("vlen-utf8",), "U": ("", "vlen-utf8"), "S": ("", "vlen-bytes")}
_MAX_CACHED_BYTES = 1 << 26
# The largest number of chunks in a row.
_MAX_CHUNKS = 1 << 20


class ZarrArray:
    """An array in the files of a hierarchy; can be pickled.

    Args:
      files: The files.
      name: The path of the array in the hierarchy.
      fills: Whether a missing chunk holds the `fill_value`; otherwise it is an error.

    Attributes:
      files: The files of the hierarchy.
      name: The path of the array.
      header: The content of `.zarray`.
      attributes: The content of `.zattrs`; empty if there is no such file.
      shape: The shape.
      dtype: The dtype of the values in the files; `object` for text of any length.
      codec: The name of the compressor; empty if there is none.

    Raises:
      SourceError: The array is damaged, or not supported.
    """

    def __init__(self, files: ZarrFiles, name: str, *, fills: bool = False) -> None:
        self.files, self.name, self._fills = files, name, fills
        self._cached_chunk: tuple[tuple[int, ...], np.ndarray] | None = None
        header = files.read(f"{name}/{ARRAY}")
        if header is None:
            raise self.error(f"{ARRAY} is missing")
        with source_errors(files.path, field=name):
            self.header: dict[str, Any] = json.loads(header)
            self.attributes = json.loads(files.read(f"{name}/{ATTRIBUTES}") or b"{}")
            self._parse()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cached_chunk": None}

    def _parse(self) -> None:
        content = self.header
        if content.get("zarr_format") != 2:
            raise ValueError(f"zarr_format {content.get('zarr_format')!r}, expected 2")
        self.shape, self._chunks = (_sizes(content, name) for name in ("shape", "chunks"))
        if len(self.shape) != len(self._chunks) or 0 in self._chunks:
            raise ValueError(f"chunks {self._chunks} of an array of shape {self.shape}")
        sizes = zip(self.shape[1:], self._chunks[1:])
        if math.prod(max(1, length // size) for length, size in sizes) > _MAX_CHUNKS:
            raise ValueError(f"more than {_MAX_CHUNKS:,} chunks of shape {self._chunks} in a row")
        name = content["dtype"]
        self.dtype: np.dtype = np.dtype(name if isinstance(name, str) else "V8")
        filters = [entry["id"] for entry in content.get("filters") or []]
        self._filter: str = "".join(filters[:1])
        if filters[1:] or self._filter not in _TEXT_FILTERS.get(self.dtype.kind, ("",)):
            raise ValueError(f"unsupported filters {filters} on {name!r}")
        if self.dtype.kind not in "biufUSO":
            raise ValueError(f"dtype {name!r}, expected numbers, bools or text")
        self.codec = str((content.get("compressor") or {"id": ""})["id"])
        if self.codec not in _CODECS:
            names = ", ".join(_CODECS[1:])
            raise ValueError(f"unsupported compressor {self.codec!r}, expected one of {names}")
        self._order = "F" if content.get("order") == "F" else "C"
        self._separator = "/" if content.get("dimension_separator") == "/" else "."

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.shape[1:]

    @property
    def is_image_file(self) -> bool:
        """Whether each chunk is one row, stored as an image file."""
        return self.codec in IMAGE_CODECS and self._chunks == (1, *self.row_shape)

    def error(self, problem: str, row: int | None = None) -> SourceError:
        """Returns an error about the array."""
        return SourceError(problem, file=self.files.path, field=self.name, row=row)

    def all(self) -> np.ndarray:
        """Returns all values."""
        if self.shape:
            return self.read(0, len(self))
        return np.array(self._chunk(()), self._native)

    def read(self, start: int, end: int) -> np.ndarray:
        """Returns some rows; text as objects.

        Raises:
          SourceError: A chunk is damaged, or missing; names the row.
        """
        if end > start:
            self.check_row(end - 1)
        rows = np.empty((end - start, *self.row_shape), self._native)
        area = [(start, end), *((0, length) for length in self.row_shape)]
        blocks = [
            range(begin // size, -(-stop // size)) if stop > begin else range(0)
            for (begin, stop), size in zip(area, self._chunks)
        ]
        for position in itertools.product(*blocks):
            result_slices, chunk_slices = [], []
            for (begin, stop), block, size in zip(area, position, self._chunks):
                corner = block * size
                low, high = max(begin, corner), min(stop, corner + size)
                result_slices.append(slice(low - begin, high - begin))
                chunk_slices.append(slice(low - corner, high - corner))
            rows[tuple(result_slices)] = self._chunk(position)[tuple(chunk_slices)]
        return rows

    def files_of_rows(self, start: int, end: int) -> np.ndarray:
        """Returns the image files of rows; empty bytes for a missing file."""
        zeros = [0] * len(self.row_shape)
        return objects([self._read((row, *zeros)) or b"" for row in range(start, end)])

    @property
    def _native(self) -> np.dtype:
        is_text = self.dtype.kind in "USO"
        return np.dtype(object) if is_text else self.dtype.newbyteorder("=")

    def chunk_file(self, position: tuple[int, ...]) -> str:
        """Returns the name of the file of a chunk."""
        return f"{self.name}/{self._separator.join(map(str, position)) or '0'}"

    def check_row(self, row: int) -> None:
        """Checks that the chunk of a row exists, before memory is allocated up to it.

        Raises:
          SourceError: The chunk is missing.
        """
        position = (row // self._chunks[0], *[0] * len(self.row_shape))
        if not self._fills and not self.files.has(self.chunk_file(position)):
            raise self._missing_chunk_error(position)

    def _missing_chunk_error(self, position: tuple[int, ...]) -> SourceError:
        problem = (
            f"its chunk {self.chunk_file(position)} is missing. If the writer left out chunks "
            f"that hold only the fill_value ({self.header.get('fill_value')!r}), pass "
            'missing_chunks="fill"'
        )
        return self.error(problem, position[0] * self._chunks[0] if position else None)

    def _read(self, position: tuple[int, ...]) -> bytes | None:
        data = self.files.read(self.chunk_file(position), self._max_bytes())
        if data is None and not self._fills:
            raise self._missing_chunk_error(position)
        return data

    def _max_bytes(self) -> float:
        """Returns the maximum size of the file of a chunk: no codec doubles its input."""
        if self._filter:
            return math.inf
        size = math.prod(self._chunks) * self.dtype.itemsize
        return 2 * size + _CHUNK_OVERHEAD_BYTES if self.codec else size

    def _chunk(self, position: tuple[int, ...]) -> np.ndarray:
        cached = self._cached_chunk
        if cached is not None and cached[0] == position:
            return cached[1]
        data = self._read(position)
        if data is None:
            # A broadcast of one value, which takes no memory.
            return np.broadcast_to(np.array(self._fill_value(), self._native), self._chunks)
        row = position[0] * self._chunks[0] if position else None
        with source_errors(self.files.path, field=self.name, row=row):
            try:
                chunk = self._decode(data)
            except MemoryError as error:  # Codecs allocate the size that a chunk declares.
                raise ValueError(
                    f"the {len(data):,} bytes declare more than memory holds"
                ) from error
        if chunk.nbytes <= _MAX_CACHED_BYTES and self._chunks[:1] != (1,):
            self._cached_chunk = position, chunk
        return chunk

    def _fill_value(self) -> Any:
        value = self.header.get("fill_value")
        if self.dtype.kind in "UO":
            return value if isinstance(value, str) else ""
        if self.dtype.kind == "S":
            return base64.b64decode(value) if isinstance(value, str) else b""
        is_text = self.dtype.kind == "f" and isinstance(value, str)
        return self.dtype.type(value if is_text else value or 0)

    def _decode(self, data: bytes) -> np.ndarray:
        """Decodes a chunk; raises any error of the codec if it is damaged."""
        count, order = math.prod(self._chunks), self._order
        if self._filter:
            texts = memoryview(self._decompress(data, None)).cast("B")
            num_texts = int.from_bytes(texts[:4], "little")
            if num_texts != count or len(texts) < 4 + 4 * count:  # Texts begin with their length.
                raise ValueError(f"{num_texts} texts in {len(texts)} bytes, expected {count}")
            values = import_extra("numcodecs").get_codec({"id": self._filter}).decode(texts)
            return np.asarray(values, object).reshape(self._chunks, order=order)  # type: ignore[call-overload]
        size = count * self.dtype.itemsize
        if size > trusted_bytes(len(data)):
            raise ValueError(f"{size:,} bytes are declared, but only {len(data):,} are stored")
        if self.codec in IMAGE_CODECS:
            out = np.empty([length for length in self._chunks if length > 1], self.dtype)
            decode = getattr(import_extra("imagecodecs"), IMAGE_CODECS[self.codec])
            return np.asarray(decode(data, out=out)).reshape(self._chunks)
        values = np.frombuffer(self._decompress(data, size), self.dtype)
        return values.reshape(self._chunks, order=order)  # type: ignore[call-overload]

    def _decompress(self, data: bytes, size: int | None) -> Any:
        """Decompresses a chunk, up to the expected size."""
        if not self.codec:
            return data
        if self.codec in _DEFLATE_CODECS and size is not None:
            stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32 accepts zlib and gzip headers.
            values = stream.decompress(data, size + 1)
            if not stream.eof:
                raise ValueError(f"cut short, or more than {size:,} bytes")
            return values
        codec = import_extra("numcodecs").get_codec(dict(self.header["compressor"]))
        return codec.decode(data, out=None if size is None else np.empty(size, np.uint8))


def _sizes(header: Mapping[str, Any], name: str) -> tuple[int, ...]:
    sizes = header[name]
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"{name}: {sizes!r}, expected a list of sizes")
    return tuple(sizes)
