"""Checks of the boxes of an mp4 file, before a library trusts their sizes.

An mp4 file is a tree of boxes: a length, a type of four letters, content. FFmpeg allocates memory
for all samples that a table declares, and a few bytes can declare billions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from rlds.raw_files.untrusted import SourceError

__all__ = ["PacketTables", "read_tables"]

_HEADER = struct.Struct(">I4s")
_PARENTS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"moof", b"traf", b"mvex")
# Tables, and where each has the number of its entries. Those of two of them take no bytes at all,
# if all samples have the same size; each sample itself has one at least.
_COUNTS = {
    **dict.fromkeys((b"stts", b"ctts", b"stss", b"stsc", b"stco", b"co64", b"elst", b"trun"), 4),
    **dict.fromkeys((b"stsz", b"stz2"), 8),
}
# Boxes of files with reordered frames or fragments.
_OF_OTHERS = (b"ctts", b"trun", b"tfhd", b"trex")
# Run-length tables of times: a number of samples, and their common value.
_RUNS = (b"stts", b"ctts")


class PacketTables(NamedTuple):
    """The facts that the tables of an mp4 file state of its packets.

    Attributes:
      are_in_order: Whether packets are shown as they stand in the tables, and are of one kind:
        there are no times to reorder them by, no fragments, and no several descriptions.
      have_several_descriptions: Whether a track has packets of several kinds, or of none.
    """

    are_in_order: bool
    have_several_descriptions: bool


def read_tables(file: BinaryIO, size: int, name: str) -> PacketTables:
    """Reads the tables of an mp4 file, and checks that none has more samples than there are bytes.

    Args:
      file: The file; its position is changed.
      size: Its size in bytes.
      name: Its name in errors.

    Raises:
      SourceError: One has.
    """
    are_in_order, have_several = True, False
    for kind, begin, end in _boxes(file, size):
        are_in_order &= kind not in _OF_OTHERS
        if kind == b"stsd":
            file.seek(begin + 4)
            have_several |= int.from_bytes(file.read(4), "big") != 1
        if kind not in _COUNTS:
            continue
        file.seek(begin + _COUNTS[kind])
        count = int.from_bytes(file.read(4), "big")
        if kind in _RUNS and count <= size:
            content = file.read(max(min(8 * count, end - file.tell()), 0))
            runs = np.frombuffer(content, ">u4", len(content) // 8 * 2)[::2]
            count = int(runs.sum(dtype=np.int64))
        if count > size:
            text = f"the table {kind.decode()!r} is of {count:,} samples, but the file has {size:,}"
            raise SourceError(f"{text} bytes", file=name)
    return PacketTables(are_in_order and not have_several, have_several)


def _boxes(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields the type of each leaf box, and the begin and end of its content."""
    begin, ends = 0, [size]  # The ends of the enclosing boxes.
    while ends:
        file.seek(begin)
        length, kind = _HEADER.unpack(file.read(_HEADER.size).ljust(_HEADER.size, b"\0"))
        content = begin + _HEADER.size
        if length == 1:  # A longer number follows.
            length = int.from_bytes(file.read(8), "big")
            content += 8
        end = min(begin + length, ends[-1]) if length else ends[-1]
        if end < content:  # The end of the boxes, or of what the library reads as a box.
            begin = ends.pop()
        elif kind in _PARENTS:
            begin = content
            ends.append(end)
        else:
            yield kind, content, end
            begin = end
