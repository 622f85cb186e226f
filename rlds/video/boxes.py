"""Checks of the boxes of an mp4 file against forged sizes, before FFmpeg reads them.

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
_PARENT_BOXES = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"moof", b"traf", b"mvex")
# The offset of the number of entries in each table. This number is at most the size of the file:
# each entry, or else each sample, takes at least one byte.
_COUNT_OFFSETS = {
    **dict.fromkeys((b"stts", b"ctts", b"stss", b"stsc", b"stco", b"co64", b"elst", b"trun"), 4),
    **dict.fromkeys((b"stsz", b"stz2"), 8),
}
# Boxes that occur only in files with reordered frames or fragments.
_REORDERING_BOXES = (b"ctts", b"trun", b"tfhd", b"trex")
# Run-length encoded tables of times: pairs of a number of samples and their value.
_RUN_LENGTH_TABLES = (b"stts", b"ctts")


class PacketTables(NamedTuple):
    """Properties of the packets of an mp4 file, from its tables.

    Attributes:
      are_in_order: True if packets are displayed in file order, without fragments, and have one
        sample description.
      have_several_descriptions: True if a track does not have exactly one sample description.
    """

    are_in_order: bool
    have_several_descriptions: bool


def read_tables(file: BinaryIO, size: int, name: str) -> PacketTables:
    """Reads the tables of an mp4 file; checks that no table has more samples than the file bytes.

    Args:
      file: The file; its position is changed.
      size: The size of the file in bytes.
      name: The name of the file in errors.

    Raises:
      SourceError: A table has too many samples.
    """
    are_in_order, have_several = True, False
    for kind, begin, end in _iterate_boxes(file, size):
        are_in_order &= kind not in _REORDERING_BOXES
        if kind == b"stsd":
            file.seek(begin + 4)
            have_several |= int.from_bytes(file.read(4), "big") != 1
        if kind not in _COUNT_OFFSETS:
            continue
        file.seek(begin + _COUNT_OFFSETS[kind])
        count = int.from_bytes(file.read(4), "big")
        if kind in _RUN_LENGTH_TABLES and count <= size:
            content = file.read(max(min(8 * count, end - file.tell()), 0))
            runs = np.frombuffer(content, ">u4", len(content) // 8 * 2)[::2]
            count = int(runs.sum(dtype=np.int64))
        if count > size:
            text = f"the table {kind.decode()!r} is of {count:,} samples, but the file has {size:,}"
            raise SourceError(f"{text} bytes", file=name)
    return PacketTables(are_in_order and not have_several, have_several)


def _iterate_boxes(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields the type of each leaf box, and the begin and end of its content."""
    begin, box_ends = 0, [size]  # The end offsets of the enclosing boxes.
    while box_ends:
        file.seek(begin)
        length, kind = _HEADER.unpack(file.read(_HEADER.size).ljust(_HEADER.size, b"\0"))
        content = begin + _HEADER.size
        if length == 1:  # A 64-bit length follows.
            length = int.from_bytes(file.read(8), "big")
            content += 8
        end = min(begin + length, box_ends[-1]) if length else box_ends[-1]
        if end < content:  # The end of the valid boxes.
            begin = box_ends.pop()
        elif kind in _PARENT_BOXES:
            begin = content
            box_ends.append(end)
        else:
            yield kind, content, end
            begin = end
