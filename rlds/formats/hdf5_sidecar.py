"""The sidecar of files of HDF5, in the group `rlds`: as arrays, or as attributes.

Readers of some formats take every array of a file for rows of data. There, the bytes are in
attributes of groups, which a walk over the arrays does not meet.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.sources.sidecar import SIDECAR_BYTES, SIDECAR_ENDS, SIDECAR_TEXT, Sidecar, StoredSidecar
from rlds.sources.source import SourceEpisode

__all__ = [
    "SIDECAR_GROUP",
    "Hdf5SidecarWriter",
    "HiddenSidecarWriter",
    "append_rows",
    "read_hdf5_sidecar",
    "read_numbers",
]

SIDECAR_GROUP = "rlds"
# The attribute with a block of bytes. HDF5 has place for 64 KiB, as every version reads it.
_BLOCK, _BLOCK_BYTES = "block", 60_000


class Hdf5SidecarWriter:
    """Adds a sidecar to a file.

    Args:
      file: The `h5py.File`.
      sidecar: What it holds.
    """

    def __init__(self, file: Any, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        file[SIDECAR_TEXT] = np.frombuffer(sidecar.to_json().encode(), np.uint8)
        self._bytes = file.create_dataset(
            SIDECAR_BYTES, (0,), np.uint8, maxshape=(None,), chunks=(1 << 16,)
        )
        self._ends = file.create_dataset(
            SIDECAR_ENDS, (0,), np.int64, maxshape=(None,), chunks=(1 << 10,)
        )

    def add(self, episode: SourceEpisode) -> None:
        """Keeps what belongs to the next episode.

        Raises:
          ValueError: The episode has not the fields that were declared.
        """
        append_rows(self._bytes, np.frombuffer(self._sidecar.pack(episode), np.uint8))
        append_rows(self._ends, [len(self._bytes)])


class HiddenSidecarWriter:
    """Adds a sidecar to a file of which others read all arrays.

    Args:
      file: The `h5py.File`.
      sidecar: What it holds.
    """

    def __init__(self, file: Any, sidecar: Sidecar) -> None:
        self._sidecar, self._file = sidecar, file
        self._bytes, self._num_blocks, self._ends = bytearray(), 0, [0]
        self.write(SIDECAR_TEXT, np.frombuffer(sidecar.to_json().encode(), np.uint8))

    def add(self, episode: SourceEpisode) -> None:
        """Keeps what belongs to the next episode.

        Raises:
          ValueError: The episode has not the fields that were declared.
        """
        packed = self._sidecar.pack(episode)
        self._ends.append(self._ends[-1] + len(packed))
        self._bytes += packed
        while len(self._bytes) >= _BLOCK_BYTES:
            self._write_block()

    def finish(self) -> None:
        """Writes what is left, after the last episode."""
        if self._bytes:
            self._write_block()
        self.write(SIDECAR_ENDS, np.array(self._ends[1:], np.int64))

    def write(self, name: str, numbers: np.ndarray) -> None:
        """Writes numbers, for `read_numbers`."""
        size = _BLOCK_BYTES // numbers.itemsize
        for block, begin in enumerate(range(0, len(numbers), size)):
            group = self._file.create_group(f"{name}/{block}")
            group.attrs[_BLOCK] = numbers[begin : begin + size]

    def _write_block(self) -> None:
        group = self._file.create_group(f"{SIDECAR_BYTES}/{self._num_blocks}")
        group.attrs[_BLOCK] = np.frombuffer(self._bytes[:_BLOCK_BYTES], np.uint8)
        del self._bytes[:_BLOCK_BYTES]
        self._num_blocks += 1


def append_rows(array: Any, rows: Any) -> None:
    """Adds rows to an array that can grow."""
    if len(rows):
        array.resize(len(array) + len(rows), axis=0)
        array[len(array) - len(rows) :] = rows


def read_hdf5_sidecar(hdf5: Hdf5File) -> StoredSidecar | None:
    """Returns the sidecar of a file, if it has one.

    Raises:
      SourceError: It is damaged.
    """
    with hdf5.read() as file:
        if not hdf5.has(file, SIDECAR_GROUP) or not hdf5.has(file, SIDECAR_TEXT):
            return None
        text, ends = (read_numbers(hdf5, file, name) for name in (SIDECAR_TEXT, SIDECAR_ENDS))
        is_hidden = not is_array(_member(hdf5, file, SIDECAR_BYTES))
    rows = functools.partial(_hidden_bytes, hdf5) if is_hidden else hdf5.rows
    return StoredSidecar.in_arrays(hdf5.path, text, ends, functools.partial(rows, SIDECAR_BYTES))


def read_numbers(hdf5: Hdf5File, file: Any, name: str) -> np.ndarray:
    """Returns all numbers of an array of the group `rlds`, or of the attributes in its place.

    Raises:
      SourceError: There are none, or they are damaged.
    """
    item = _member(hdf5, file, name)
    if is_array(item):
        return np.asarray(item[()])
    blocks = [_block(hdf5, item, name, number) for number in range(len(item))]
    return np.concatenate(blocks or [np.zeros(0, np.int64)])


def _hidden_bytes(hdf5: Hdf5File, name: str, begin: int, end: int) -> np.ndarray:
    """Reads bytes from one to another."""
    first = begin // _BLOCK_BYTES
    with hdf5.read(field=name) as file:
        item = _member(hdf5, file, name)
        numbers = range(first, -(-end // _BLOCK_BYTES))
        blocks = [_block(hdf5, item, name, number) for number in numbers]
    first *= _BLOCK_BYTES
    return np.concatenate(blocks or [np.zeros(0, np.uint8)])[begin - first : end - first]


def _block(hdf5: Hdf5File, group: Any, name: str, number: int) -> np.ndarray:
    block = hdf5.member(group, str(number), f"{name}/{number}").attrs[_BLOCK]
    if not isinstance(block, np.ndarray) or block.dtype.kind not in "iu":
        raise hdf5.error("expected a block of integers", f"{name}/{number}")
    return block


def _member(hdf5: Hdf5File, file: Any, name: str) -> Any:
    group = hdf5.member(file, SIDECAR_GROUP, SIDECAR_GROUP)
    return hdf5.member(group, name.removeprefix(f"{SIDECAR_GROUP}/"), name)
