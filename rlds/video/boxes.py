"""What the boxes of an mp4 file declare, before a library believes it.

An mp4 file is a tree of boxes: a length, a type of four letters, content. FFmpeg makes room for as
many samples as a table says there are, which a few bytes can say of billions.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

from rlds.raw_files.untrusted import Budget, SourceError

__all__ = ["check_boxes"]

_HEADER, _LONG = struct.Struct(">I4s"), struct.Struct(">Q")
_PARENTS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"moof", b"traf", b"mvex")
# Tables, and where each has the number of its entries. Those of two of them take no bytes at all,
# if all samples have the same size; each sample itself has one at least.
_COUNTS = {
    **dict.fromkeys((b"stts", b"ctts", b"stss", b"stsc", b"stco", b"co64", b"elst", b"trun"), 4),
    **dict.fromkeys((b"stsz", b"stz2"), 8),
}
# A run of samples with one duration, in a table of times.
_RUNS = (b"stts", b"ctts")
_RUN = struct.Struct(">II")


def check_boxes(file: BinaryIO, size: int, name: str) -> None:
    """Checks that no table of an mp4 file has more samples than the file has bytes.

    Args:
      file: The file; its position is changed.
      size: How many bytes it has.
      name: What to call it in an error.

    Raises:
      SourceError: One has.
    """
    budget = Budget(name, size)
    for kind, begin, end in _boxes(file, 0, size, budget, 0):
        at = _COUNTS.get(kind)
        if at is None or begin + at + 4 > end:
            continue
        file.seek(begin + at)
        (count,) = struct.unpack(">I", file.read(4).ljust(4, b"\0"))
        if count > size:
            raise SourceError(
                f"the table {kind.decode()!r} has {count:,} entries, but the file {size:,} bytes",
                file=name,
            )
        if kind in _RUNS:
            content = file.read(min(count * _RUN.size, end - begin - 8))
            runs = len(content) // _RUN.size * _RUN.size
            samples = sum(run for run, _ in _RUN.iter_unpack(content[:runs]))
            if samples > size:
                raise SourceError(
                    f"the table {kind.decode()!r} is of {samples:,} samples, but the file has "
                    f"{size:,} bytes",
                    file=name,
                )


def _boxes(
    file: BinaryIO, begin: int, end: int, budget: Budget, depth: int
) -> Iterator[tuple[bytes, int, int]]:
    """Yields the type of each box, and where its content begins and ends."""
    while begin + _HEADER.size <= end:
        budget.enter(depth)
        file.seek(begin, os.SEEK_SET)
        length, kind = _HEADER.unpack(file.read(_HEADER.size).ljust(_HEADER.size, b"\0"))
        content = begin + _HEADER.size
        if length == 1:
            (length,) = _LONG.unpack(file.read(_LONG.size).ljust(_LONG.size, b"\0"))
            content += _LONG.size
        elif length == 0:  # To the end.
            length = end - begin
        if begin + length < content:
            return  # The library says what is wrong with it.
        last = min(begin + length, end)
        if kind in _PARENTS:
            yield from _boxes(file, content, last, budget, depth + 1)
        else:
            yield kind, content, last
        begin += length
