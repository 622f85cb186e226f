"""An array of Zarr v2: what `.zarray` says of it, and its chunks.

Format 2 is a folder of files: `.zarray` is JSON, and each other file is a chunk. Codecs are those
of numcodecs and imagecodecs. No codec that could run code (`pickle`) is used.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlds.formats.zarr_buffers.files import ARRAY, ATTRIBUTES, ZarrFiles
from rlds.raw_files.untrusted import source_errors, trusted_bytes
from rlds.sources.source import SourceError
from rlds_ecosystem import import_extra

__all__ = ["IMAGE_CODECS", "ZarrArray", "ZarrSpec"]

# A chunk in one of these is the file of an image.
IMAGE_CODECS: Mapping[str, str] = {
    "imagecodecs_jpegxl": "jpegxl_decode",
    "imagecodecs_jpeg2k": "jpeg2k_decode",
}
_CODECS = ("blosc", "zstd", "lz4", "zlib", "gzip")
# Their decoders in numcodecs make as many bytes as there are, whatever the size of a chunk.
_DEFLATE = ("zlib", "gzip")
_TEXT_FILTER = "vlen-utf8"
_CACHED_BYTES = 1 << 26
# How many chunks a row may have.
_MAX_CHUNKS = 1 << 20


class ZarrSpec:
    """What `.zarray` says.

    Args:
      described: The content of the file.

    Attributes:
      described: The argument.
      shape: The shape.
      chunks: The shape of chunks.
      dtype: The dtype of the values in the files; that of objects for text of any length.
      codec: The name of the compressor; empty if there is none.

    Raises:
      ValueError: It is damaged, or asks for what is not read.
    """

    def __init__(self, described: Mapping[str, Any]) -> None:
        self.described = described
        if described.get("zarr_format") != 2:
            raise ValueError(f"zarr_format {described.get('zarr_format')!r}, expected 2")
        self.shape, self.chunks = (_sizes(described, name) for name in ("shape", "chunks"))
        if len(self.shape) != len(self.chunks) or 0 in self.chunks:
            raise ValueError(f"chunks {self.chunks} of an array of shape {self.shape}")
        sizes = zip(self.shape[1:], self.chunks[1:])
        if math.prod(max(1, length // size) for length, size in sizes) > _MAX_CHUNKS:
            raise ValueError(f"more than {_MAX_CHUNKS:,} chunks of shape {self.chunks} in a row")
        name = described["dtype"]
        self.dtype: np.dtype = np.dtype(name if isinstance(name, str) else "V8")
        filters = [found["id"] for found in described.get("filters") or []]
        if filters != ([_TEXT_FILTER] if self.dtype == object else []):
            raise ValueError(f"the filters {filters} on {name!r} are not read")
        if self.dtype.kind not in "biufUSO":
            raise ValueError(f"dtype {name!r}, expected numbers, bools or text")
        compressor = described.get("compressor")
        self.codec = "" if compressor is None else str(compressor["id"])
        if self.codec and self.codec not in (*_CODECS, *IMAGE_CODECS):
            known = ", ".join((*_CODECS, *IMAGE_CODECS))
            raise ValueError(f"the compressor {self.codec!r} is not read, only {known}")
        self.order = "F" if described.get("order") == "F" else "C"
        self.separator = "/" if described.get("dimension_separator") == "/" else "."

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.shape[1:]

    @property
    def is_image_file(self) -> bool:
        """Whether each chunk is one row, and the file of an image."""
        return self.codec in IMAGE_CODECS and self.chunks == (1, *self.row_shape)

    @property
    def fill_value(self) -> Any:
        """What stands for all values of a chunk that is not there."""
        value = self.described.get("fill_value")
        if self.dtype.kind in "UO":
            return value if isinstance(value, str) else ""
        if self.dtype.kind == "S":
            return base64.b64decode(value) if isinstance(value, str) else b""
        if self.dtype.kind == "f" and isinstance(value, str):
            return self.dtype.type(value)
        return self.dtype.type(value or 0)

    def grid(self, begin: int, end: int) -> Iterator[tuple[int, ...]]:
        """Yields the places of the chunks that have some rows."""
        size = self.chunks[0]
        for block in range(begin // size, -(-end // size) if end > begin else 0):
            for place in self.places():
                yield (block, *place)

    def places(self) -> Iterator[tuple[int, ...]]:
        """Yields the places of the chunks that have the first row, without their first number."""
        sizes = zip(self.row_shape, self.chunks[1:])
        return np.ndindex(*(-(-length // size) for length, size in sizes))

    def chunk_name(self, place: tuple[int, ...]) -> str:
        """Returns the name of the file of a chunk."""
        return self.separator.join(map(str, place)) or "0"

    def decode(self, data: bytes) -> np.ndarray:
        """Returns a chunk.

        Raises:
          Exception: It is damaged; any error of a codec.
        """
        count = math.prod(self.chunks)
        if self.codec in IMAGE_CODECS:
            out = np.empty([length for length in self.chunks if length > 1], self.dtype)
            self._check_size(out.nbytes, len(data))
            decode = getattr(import_extra("imagecodecs"), IMAGE_CODECS[self.codec])
            return np.asarray(decode(data, out=out)).reshape(self.chunks)
        if self.dtype == object:
            raw = bytes(self._decompressed(data, None))
            if len(raw) < 4 + 4 * count or int.from_bytes(raw[:4], "little") != count:
                raise ValueError(f"not {count} texts")
            text = import_extra("numcodecs").VLenUTF8().decode(raw)
            return np.asarray(text, object).reshape(self.chunks, order=self.order)  # type: ignore[call-overload,no-any-return]
        size = count * self.dtype.itemsize
        self._check_size(size, len(data))
        values = np.frombuffer(self._decompressed(data, size), self.dtype)
        return values.reshape(self.chunks, order=self.order)  # type: ignore[call-overload,no-any-return]

    def encode(self, values: np.ndarray) -> bytes:
        """Returns the bytes of a chunk."""
        if self.dtype == object:
            data = import_extra("numcodecs").VLenUTF8().encode(values.reshape(-1, order=self.order))  # type: ignore[call-overload]
        else:
            data = values.astype(self.dtype, copy=False).tobytes(self.order)  # type: ignore[arg-type]
        if not self.codec:
            return bytes(data)
        # Blosc shuffles by the size of the values.
        typed = data if self.dtype == object else np.frombuffer(data, self._plain)
        return bytes(self._numcodec().encode(typed))

    @property
    def _plain(self) -> np.dtype:
        return np.dtype("u1") if self.dtype.kind in "US" else self.dtype

    def _numcodec(self) -> Any:
        return import_extra("numcodecs").get_codec(dict(self.described["compressor"]))

    def _decompressed(self, data: bytes, size: int | None) -> Any:
        """The bytes of a chunk. A codec gets the room for them, and so makes no more."""
        if not self.codec:
            return data
        size = trusted_bytes(len(data)) if size is None else size
        if self.codec in _DEFLATE:
            stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # The headers of either.
            values = stream.decompress(data, size + 1)
            if not stream.eof:
                raise ValueError(f"cut short, or more than {size:,} bytes")
            return values
        out = np.empty(size, np.uint8)
        return self._numcodec().decode(data, out=out)

    def _check_size(self, size: int, stored: int) -> None:
        if size > trusted_bytes(stored):
            raise ValueError(f"{stored:,} bytes stand for {size:,}")


class ZarrArray:
    """An array in the files of a hierarchy; can be pickled.

    Args:
      files: The files.
      name: The path of the array in the hierarchy.
      fills: Whether a chunk that is not there is one of `fill_value`s. If not, it is damage.

    Attributes:
      name: The path.
      spec: What is said of it.
      attributes: The content of `.zattrs`; None if there is no such file.

    Raises:
      SourceError: It is damaged.
    """

    def __init__(self, files: ZarrFiles, name: str, *, fills: bool = False) -> None:
        self._files, self.name, self._fills = files, name, fills
        self._cached: tuple[tuple[int, ...], np.ndarray] | None = None
        with source_errors(files.path, field=name):
            described = files.read(f"{name}/{ARRAY}")
            if described is None:
                raise self.error(f"{ARRAY} is missing")
            self.spec = ZarrSpec(json.loads(described))
            attributes = files.read(f"{name}/{ATTRIBUTES}")
            self.attributes = None if attributes is None else json.loads(attributes)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cached": None}

    def __len__(self) -> int:
        return self.spec.shape[0]

    def error(self, what: str, row: int | None = None) -> SourceError:
        """Returns an error about the array."""
        return SourceError(what, file=self._files.path, field=self.name, row=row)

    def all(self) -> np.ndarray:
        """Returns all values."""
        if self.spec.shape:
            return self.read(0, len(self))
        return np.array(self._chunk(()), self._native)

    def read(self, begin: int, end: int) -> np.ndarray:
        """Returns some rows; text as objects.

        Raises:
          SourceError: A chunk is damaged; says which row.
        """
        spec = self.spec
        self._check_size(begin, end)
        rows = np.empty((end - begin, *spec.row_shape), self._native)
        for place in spec.grid(begin, end):
            chunk = self._chunk(place)
            corner = [number * size for number, size in zip(place, spec.chunks)]
            first, last = max(begin, corner[0]), min(end, corner[0] + spec.chunks[0])
            others = [
                slice(start, min(start + size, length))
                for start, size, length in zip(corner[1:], spec.chunks[1:], spec.row_shape)
            ]
            inner = tuple(slice(0, found.stop - found.start) for found in others)
            rows[(slice(first - begin, last - begin), *others)] = chunk[
                (slice(first - corner[0], last - corner[0]), *inner)
            ]
        return rows

    def files_of_rows(self, begin: int, end: int) -> np.ndarray:
        """Returns the files of rows that are images; empty bytes where there is none."""
        spec = self.spec
        found = np.empty(end - begin, object)
        for row in range(begin, end):
            place = (row, *[0] * len(spec.row_shape))
            found[row - begin] = self._read(place) or b""
        return found

    @property
    def _native(self) -> np.dtype:
        dtype = self.spec.dtype
        return np.dtype(object) if dtype.kind in "USO" else dtype.newbyteorder("=")

    def _read(self, place: tuple[int, ...]) -> bytes | None:
        name = self.spec.chunk_name(place)
        data = self._files.read(f"{self.name}/{name}")
        if data is None and not self._fills:
            what = (
                f"its chunk {name} is missing; if chunks of nothing but the fill_value "
                f"({self.spec.described.get('fill_value')!r}) were left out, "
                'missing_chunks="fill" reads them'
            )
            raise self.error(what, place[0] * self.spec.chunks[0] if place else None)
        return data

    def _chunk(self, place: tuple[int, ...]) -> np.ndarray:
        cached = self._cached
        if cached is not None and cached[0] == place:
            return cached[1]
        data = self._read(place)
        if data is None:
            # Of one value, which takes no memory.
            return np.broadcast_to(np.array(self.spec.fill_value, self._native), self.spec.chunks)
        row = place[0] * self.spec.chunks[0] if place else None
        with source_errors(self._files.path, field=self.name, row=row):
            chunk = self.spec.decode(data)
        if chunk.nbytes <= _CACHED_BYTES and self.spec.chunks[:1] != (1,):
            self._cached = place, chunk
        return chunk

    def _check_size(self, begin: int, end: int) -> None:
        """Chunks that are not there stand for any number of bytes."""
        size = (end - begin) * math.prod(self.spec.row_shape) * max(self._native.itemsize, 1)
        if size <= trusted_bytes(0):
            return
        files = (f"{self.name}/{self.spec.chunk_name(p)}" for p in self.spec.grid(begin, end))
        stored = missing = 0
        for file in files:
            found = self._files.size(file)
            stored, missing = stored + (found or 0), missing + (found is None)
            if missing > 1 << 12:
                break
        if size > trusted_bytes(stored):
            raise self.error(f"{stored:,} bytes stand for {size:,}", begin)


def _sizes(described: Mapping[str, Any], name: str) -> tuple[int, ...]:
    sizes = described[name]
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"{name}: {sizes!r}")
    return tuple(sizes)
