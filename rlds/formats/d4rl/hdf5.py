"""HDF5 files whose arrays share the axis of rows: read in blocks, described, and made again.

The description of a file has everything but the rows themselves, in the types of JSON:

    rows        how many there are
    arrays      the arrays with an axis of rows: dtype, shape, chunks, compression
    constants   the other arrays, with their values
    attributes  of the arrays and groups, with their values
    groups      the groups
    virtual     arrays that are windows into other arrays: which rows of which array
    left_out    arrays below `virtual` that are copies, of which nothing is kept

Values are kept as bytes (in base64) with dtype and shape, so that not a bit is lost.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_layout import (
    array_layout,
    attributes_layout,
    constant_layout,
    create_array,
    create_attributes,
    create_constant,
    decode_value,
    items_of,
)
from rlds.raw_files.untrusted import SourceChangedError, SourceError
from rlds.sources.source import require_files
from rlds_ecosystem import import_extra

__all__ = [
    "RowReader",
    "decode_value",
    "describe_file",
    "make_file",
    "ranks_of",
]

Description: TypeAlias = Mapping[str, Any]

# Arrays are read in blocks of about this size. They are as long as a chunk of the file at least.
_BLOCK_BYTES = 4 << 20
# All constants and attributes together: policy weights and the like. More would not do as JSON.
_MAX_CONSTANT_BYTES = 64 << 20
# What each file has, of D4RL and of d4rl-pybullet.
_ARRAYS = ("observations", "actions", "rewards", "terminals")
# Windows into the arrays, which D4RL has for files that are too large to load.
_VIRTUAL = "virtual/"


def ranks_of(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Returns how many axes rewards and terminals have in a file with the arrays of D4RL.

    They have none for another file.

    Raises:
      OSError: There is no such file.
      SourceError: It is no HDF5 file.
    """
    (found,) = require_files(path)
    hdf5 = Hdf5File(found)
    with hdf5.read() as file:
        if not all(hdf5.has(file, name) for name in _ARRAYS):
            return 0, 0
        rewards, terminals = (
            len(hdf5.array(file, name).shape or ()) for name in ("rewards", "terminals")
        )
        return rewards, terminals


@dataclasses.dataclass(frozen=True)
class _Block:
    begin: int
    rows: np.ndarray


class RowReader:
    """Reads rows of the arrays of a file.

    The last block of each array is kept, so that reading on from where the last rows ended does not
    decompress anything twice. A pickled reader leaves its blocks behind.

    Args:
      file: The file.
    """

    def __init__(self, file: Hdf5File) -> None:
        self._file = file
        self._blocks: dict[str, _Block] = {}
        self._layouts: dict[str, tuple[int, int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_blocks": {}}

    def num_rows(self, name: str) -> int:
        """Returns how many rows an array has."""
        return self._layout(name)[0]

    def block_size(self, name: str) -> int:
        """Returns how many rows of an array make a block."""
        return self._layout(name)[1]

    def rows(self, name: str, begin: int, end: int, episode: str | None = None) -> np.ndarray:
        """Returns rows of an array, in the byte order of this machine.

        Args:
          name: The path of the array.
          begin: The first row.
          end: The row after the last one.
          episode: What to call them in an error.

        Raises:
          SourceError: They cannot be decompressed.
        """
        block = self._blocks.get(name)
        if block is not None and block.begin <= begin < end <= block.begin + len(block.rows):
            return block.rows[begin - block.begin : end - block.begin]
        try:
            return self._rows_of_blocks(name, begin, end)
        except SourceChangedError:
            raise
        except SourceError:  # The damage may be elsewhere in the block.
            return self._rows_of_chunks(name, begin, end, episode)

    def blocks(self, name: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yields all rows of an array in blocks, each with its first row."""
        length, size = self._layout(name)
        for begin in range(0, length, size):
            yield begin, self.rows(name, begin, min(begin + size, length))

    def pairs(self, name: str, following: str) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yields rows of an array with those of another that are one later, in blocks.

        Args:
          name: The path of the array.
          following: The path of the other one, or of the same.
        """
        size, last = self.block_size(name), self.num_rows(name) - 1
        for begin in range(0, last, size):
            end = min(begin + size, last)
            yield begin, self.rows(name, begin, end), self.rows(following, begin + 1, end + 1)

    def flags(self, name: str) -> np.ndarray:
        """Returns all of an array of shape (N,) or (N, 1), of whatever dtype, as booleans.

        Raises:
          SourceError: One is neither 0 nor 1.
        """
        flags = []
        for begin, rows in self.blocks(name):
            column = rows.reshape(len(rows))
            wrong = np.flatnonzero((column != 0) & (column != 1))
            if len(wrong):
                raise SourceError(
                    f"{column[wrong[0]]}, expected 0 or 1",
                    file=self._file.path,
                    row=begin + int(wrong[0]),
                    field=name,
                )
            flags.append(column != 0)
        return np.concatenate(flags)

    def _layout(self, name: str) -> tuple[int, int]:
        """The number of rows of an array, and how many of them make a block."""
        if name not in self._layouts:
            with self._file.read(field=name) as file:
                array = self._file.array(file, name)
                self._layouts[name] = len(array), _block_size(array)
        return self._layouts[name]

    def _rows_of_blocks(self, name: str, begin: int, end: int) -> np.ndarray:
        size = self.block_size(name)
        pieces = []
        for start in range(begin - begin % size, end, size):
            block = self._blocks.get(name)
            if block is None or block.begin != start:
                block = _Block(start, self._read(name, start, start + size))
                self._blocks[name] = block
            pieces.append(block.rows[max(begin - start, 0) : end - start])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _rows_of_chunks(self, name: str, begin: int, end: int, episode: str | None) -> np.ndarray:
        """Reads rows chunk by chunk, to tell which one is damaged."""
        with self._file.read(episode, name) as file:
            chunks = self._file.array(file, name).chunks
        size = chunks[0] if chunks else end - begin
        pieces = []
        while begin < end:
            stop = min(begin - begin % size + size, end)
            try:
                pieces.append(self._read(name, begin, stop))
            except SourceChangedError:
                raise
            except SourceError as error:
                raise SourceError(
                    f"the rows {begin} to {stop} {error.what}",
                    file=self._file.path,
                    episode=episode,
                    row=begin,
                    field=name,
                ) from error
            begin = stop
        return np.concatenate(pieces)

    def _read(self, name: str, begin: int, end: int) -> np.ndarray:
        with self._file.read(field=name) as file:
            rows: np.ndarray = self._file.array(file, name)[begin:end]
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)


def describe_file(
    hdf5: Hdf5File, file: Any, num_rows: int, constants: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Returns the description of an open file.

    Args:
      hdf5: The file.
      file: What it lends.
      num_rows: The length of the axis of rows.
      constants: The groups in which no array has that axis, whatever its length is.

    Raises:
      SourceError: An array has a dtype that cannot be kept, or is too large; a part of the file is
        elsewhere.
    """
    description: dict[str, Any] = {
        "rows": num_rows,
        "arrays": {},
        "constants": {},
        "attributes": {},
        "groups": [],
        "virtual": {},
        "left_out": [],
    }
    rows, kept = hdf5.budget(), hdf5.budget(_MAX_CONSTANT_BYTES)
    for path, item in [("/", file), *items_of(hdf5, file, rows)]:
        attributes = attributes_layout(hdf5, item, path, kept)
        if attributes:
            description["attributes"][path] = attributes
        if path == "/":
            continue
        if not hasattr(item, "dtype"):
            description["groups"].append(path)
        elif path.startswith(_VIRTUAL):
            window = _window(hdf5, file, item)
            if window is None:
                description["left_out"].append(path)
            else:
                description["virtual"][path] = window
        elif (
            item.shape
            and item.shape[0] == num_rows
            and not path.startswith(tuple(f"{group}/" for group in constants))
        ):
            hdf5.check_values(item, path)
            rows.take(item.nbytes + _chunk_bytes(item), path)
            description["arrays"][path] = array_layout(file, path, item)
        else:
            hdf5.check_values(item, path)
            description["constants"][path] = constant_layout(file, path, item, kept)
    return description


def make_file(
    path: str | os.PathLike[str],
    description: Description,
    read_rows: Callable[[str, int, int], np.ndarray],
) -> None:
    """Makes the file that a description describes.

    Args:
      path: The file, which must not exist.
      description: What `describe_file` returned.
      read_rows: Returns the rows of an array from one row to another.
    """
    h5py = import_extra("h5py")
    with h5py.File(os.fspath(path), "x") as file:
        for name in description["groups"]:
            file.require_group(name)
        for name, facts in description["arrays"].items():
            array = create_array(file, name, facts)
            size = _block_size(array)
            for begin in range(0, len(array), size):
                end = min(begin + size, len(array))
                array[begin:end] = read_rows(name, begin, end).reshape(
                    end - begin, *array.shape[1:]
                )
        for name, facts in description["constants"].items():
            create_constant(file, name, facts)
        for name, window in description["virtual"].items():
            _create_window(file, name, window)
        for name, attributes in description["attributes"].items():
            create_attributes(file[name], attributes)


def _window(hdf5: Hdf5File, file: Any, array: Any) -> dict[str, Any] | None:
    """Which rows of which array a virtual array shows; None if it is something else."""
    sources = array.virtual_sources() if array.is_virtual else []
    if len(sources) != 1 or sources[0].file_name not in (".", os.path.basename(hdf5.path)):
        return None
    name = sources[0].dset_name.strip("/")
    try:
        of = hdf5.array(file, name)
    except SourceError:
        return None
    first, last = sources[0].src_space.get_select_bounds()
    begin, end = int(first[0]), int(last[0]) + 1
    if of.dtype != array.dtype or array.shape != (end - begin, *of.shape[1:]):
        return None
    return {"of": name, "begin": begin, "end": end}


def _create_window(file: Any, name: str, window: Mapping[str, Any]) -> None:
    h5py = import_extra("h5py")
    source = h5py.VirtualSource(file[window["of"]])[window["begin"] : window["end"]]
    layout = h5py.VirtualLayout(source.shape, file[window["of"]].dtype)
    layout[...] = source
    file.create_virtual_dataset(name, layout)


def _block_size(array: Any) -> int:
    row_bytes = max(1, array.dtype.itemsize * math.prod(array.shape[1:]))
    chunk = array.chunks[0] if array.chunks else 1
    return int(chunk * max(1, _BLOCK_BYTES // (chunk * row_bytes)))


def _chunk_bytes(array: Any) -> int:
    return int(array.dtype.itemsize * math.prod(array.chunks)) if array.chunks else 0
