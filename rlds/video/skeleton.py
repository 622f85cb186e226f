"""The bytes of a file that are not packets of its clips, to make the same file of them again.

Packets may be anywhere in the file: between the sound, before or after the tables that say where
they are, in fragments. So a skeleton is a list of packets, with the place of each, and all bytes
between them in one piece, compressed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np

from rlds.raw_files.untrusted import SourceError, trusted_bytes

__all__ = ["NotOfSkeletonError", "Skeleton"]

_MAGIC = b"rldsvid1"
_HEADER = struct.Struct("<8sQ32sQ")
_PIECE = 1 << 20
_NAME = "skeleton of a video file"


class NotOfSkeletonError(SourceError):
    """Packets are not those that a skeleton was made without."""


@dataclasses.dataclass(frozen=True)
class Skeleton:
    """A file without some of its packets.

    Attributes:
      size: How many bytes the file has.
      digest: The SHA-256 of the file.
      numbers: The numbers of the packets, ascending.
      pos: Where each is.
      sizes: How many bytes each has.
      rest: All other bytes, in order.
    """

    size: int
    digest: bytes
    numbers: np.ndarray
    pos: np.ndarray
    sizes: np.ndarray
    rest: bytes

    @classmethod
    def of(
        cls, file: BinaryIO, size: int, numbers: np.ndarray, pos: np.ndarray, sizes: np.ndarray
    ) -> Skeleton:
        """Returns the skeleton of a file.

        Args:
          file: The file.
          size: How many bytes it has.
          numbers: See the attributes; as all others.
          pos: Likewise.
          sizes: Likewise.

        Raises:
          ValueError: The packets are not at places of their own in the file.
        """
        file.seek(0)
        return cls(
            size,
            _digest(file),
            numbers,
            pos,
            sizes,
            b"".join(_read(file, begin, end) for begin, end in _gaps(pos, sizes, size)),
        )

    def pack(self) -> bytes:
        """Returns its bytes, compressed."""
        tables = (
            np.diff(self.numbers, prepend=0).astype("<i8"),
            np.diff(self.pos, prepend=0).astype("<i8"),
            self.sizes.astype(">u4"),  # As in the file, whose table need not be stored again.
        )
        header = _HEADER.pack(_MAGIC, self.size, self.digest, len(self.numbers))
        content = b"".join(table.tobytes() for table in tables)
        return zlib.compress(header + content + self.rest, 9)

    @classmethod
    def unpack(cls, data: bytes) -> Skeleton:
        """Returns the skeleton that `pack` made bytes of.

        Raises:
          NotOfSkeletonError: It made them of none.
        """
        try:
            decompressor = zlib.decompressobj()
            content = decompressor.decompress(data, trusted_bytes(len(data)))
            magic, size, digest, number = _HEADER.unpack_from(content)
            at, tables = _HEADER.size, []
            for dtype in ("<i8", "<i8", ">u4"):
                table = np.frombuffer(content, dtype, number, at)
                tables.append(table.astype(np.int64))
                at += table.nbytes
        except (ValueError, zlib.error, struct.error) as error:
            raise NotOfSkeletonError(f"not what was written: {error}", file=_NAME) from error
        numbers, pos, sizes = np.cumsum(tables[0]), np.cumsum(tables[1]), tables[2]
        if magic != _MAGIC or not decompressor.eof or size != len(content) - at + sizes.sum():
            raise NotOfSkeletonError("not what was written, or cut", file=_NAME)
        return cls(size, digest, numbers, pos, sizes, content[at:])

    @contextlib.contextmanager
    def filling(self, file: BinaryIO) -> Iterator[Callable[[int, bytes], None]]:
        """Writes the file, and yields what puts a packet in its place, by its number.

        A packet may come twice, or be one that the skeleton has itself.

        Raises:
          NotOfSkeletonError: What comes is not what was there, or does not come.
        """
        try:
            gaps = _gaps(self.pos, self.sizes, self.size)
        except ValueError as error:
            raise NotOfSkeletonError(str(error), file=_NAME) from error
        at = 0
        for begin, end in gaps:
            file.seek(begin)
            file.write(self.rest[at : (at := at + end - begin)])
        missing = dict(zip(self.numbers.tolist(), range(len(self.numbers)), strict=True))

        def put(number: int, data: bytes) -> None:
            row = missing.pop(number, None)
            if row is None:
                return
            if len(data) != self.sizes[row]:
                raise NotOfSkeletonError(f"packet {number} is another one", file=_NAME)
            file.seek(int(self.pos[row]))
            file.write(data)

        yield put
        if missing:
            raise NotOfSkeletonError(f"{len(missing)} packets are missing", file=_NAME)
        file.seek(0)
        if _digest(file) != self.digest:
            raise NotOfSkeletonError("the packets are others", file=_NAME)


def _gaps(pos: np.ndarray, sizes: np.ndarray, size: int) -> list[tuple[int, int]]:
    """Returns where the bytes between packets are, in a file of a size.

    Raises:
      ValueError: Packets overlap, or are not in the file.
    """
    order = np.argsort(pos, kind="stable")
    begins = np.concatenate([[0], (pos + sizes)[order]])
    ends = np.concatenate([pos[order], [size]])
    if (begins > ends).any():
        raise ValueError("packets are not at places of their own in the file")
    gaps = np.flatnonzero(begins < ends)
    return list(zip(begins[gaps].tolist(), ends[gaps].tolist(), strict=True))


def _read(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    data = file.read(end - begin)
    if len(data) < end - begin:
        raise ValueError(f"{len(data)} bytes at {begin}, expected {end - begin}")
    return data


def _digest(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.digest()
