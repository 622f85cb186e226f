"""HDF5 files with concatenated episodes: each episode is a range of rows of all arrays."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.hdf5_sidecar import SIDECAR_GROUP, read_array, read_hdf5_sidecar
from rlds.formats.rows_source import EpisodeRows, RowsSource
from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.hdf5_values import read_attributes, read_constant
from rlds.raw_files.untrusted import SourceChangedError, SourceError
from rlds.sources.source import Capabilities, require_files
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below

__all__ = [
    "ACTIONS",
    "EPISODE_ENDS",
    "FIELDS",
    "INFOS",
    "METADATA",
    "METADATA_KEY",
    "NEXT_OBSERVATION",
    "NEXT_OBSERVATIONS",
    "OBSERVATIONS",
    "REWARDS",
    "SCALARS",
    "TERMINALS",
    "TIMEOUTS",
    "VECTORS",
    "FileContents",
    "Hdf5RowsSource",
    "RowReader",
    "read_contents",
]

OBSERVATIONS, ACTIONS, REWARDS = "observations", "actions", "rewards"
TERMINALS, TIMEOUTS = "terminals", "timeouts"
NEXT_OBSERVATIONS, NEXT_OBSERVATION = "next_observations", "next_observation"
INFOS, METADATA = "infos", "metadata"
# The fields of a step that the arrays become. Other arrays keep their names.
FIELDS = {
    OBSERVATIONS: rlds.OBSERVATION,
    ACTIONS: rlds.ACTION,
    REWARDS: rlds.REWARD,
    NEXT_OBSERVATIONS: NEXT_OBSERVATION,
}
# Arrays with a number per row, of shape (N,) or (N, 1).
SCALARS = (REWARDS, TERMINALS, TIMEOUTS)
# Arrays in each file of D4RL and of d4rl-pybullet.
_REQUIRED = (OBSERVATIONS, ACTIONS, REWARDS, TERMINALS)
# The group of virtual datasets of D4RL, for files that are too large to load.
_VIRTUAL_GROUP = "virtual"
# The metadata key for the arrays and attributes of a file outside its rows.
METADATA_KEY, VECTORS = "hdf5", "vectors"
# The end row of each episode (exclusive), in a file that an export wrote.
EPISODE_ENDS = f"{SIDECAR_GROUP}/rows"

# The approximate size of the blocks of rows that are read, at least a chunk of the file.
_BLOCK_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True)
class FileContents:
    """The contents of a D4RL file.

    Attributes:
      num_rows: The number of rows of its arrays.
      arrays: The types of rows, by the paths of arrays. A vector of one number is a scalar.
      constants: The other arrays, with their values in the types of JSON.
      attributes: The attributes of arrays and groups, in the types of JSON.
      vectors: The arrays with one number per row of shape (N, 1).
    """

    num_rows: int
    arrays: Mapping[str, Field]
    constants: Mapping[str, Any]
    attributes: Mapping[str, Any]
    vectors: Sequence[str]

    def metadata(self) -> dict[str, Any]:
        """Returns constants and attributes for the metadata of a dataset."""
        content = {"constants": self.constants, "attributes": self.attributes}
        return {METADATA_KEY: content | ({VECTORS: self.vectors} if self.vectors else {})}


def read_contents(hdf5: Hdf5File, file: Any) -> FileContents:
    """Reads the contents of a file, except for its rows.

    Args:
      hdf5: The file.
      file: The opened file.

    Raises:
      SourceError: A required array is missing, or arrays differ in length; an array holds neither
        numbers nor text, or is too large; data of the file is in another file.
    """
    for name in _REQUIRED:
        if not hdf5.has(file, name):
            raise hdf5.error(f"missing; the file has {sorted(file)}", name)
        hdf5.array(file, name)
    num_rows = (hdf5.array(file, OBSERVATIONS).shape or (0,))[0]
    if not num_rows:
        raise hdf5.error("there are no rows", OBSERVATIONS)
    arrays: dict[str, Field] = {}
    constants: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    vectors = []
    for path, item in _items(hdf5, file):
        if array_attributes := read_attributes(hdf5, item, path):
            attributes[path] = array_attributes
        if not is_array(item):
            continue
        if item.shape and item.shape[0] == num_rows and not is_below(path, METADATA):
            arrays[path] = _field_of(hdf5, path, item)
            vectors += [path] if path in SCALARS and item.ndim == 2 else []
        elif path in FIELDS or path in SCALARS or is_below(path, INFOS):
            raise hdf5.error(f"shape {item.shape}, but there are {num_rows} observations", path)
        else:
            constants[path] = read_constant(hdf5, item, path)
    return FileContents(num_rows, arrays, constants, attributes, vectors)


def _items(hdf5: Hdf5File, file: Any) -> Iterator[tuple[str, Any]]:
    """Yields the members of a file, without array windows and additions of an export."""
    yield "/", file
    for name in file:
        if name not in (_VIRTUAL_GROUP, SIDECAR_GROUP):
            item = hdf5.member(file, name, str(name))
            yield name, item
            if not is_array(item):
                yield from hdf5.items(item, name)


def _field_of(hdf5: Hdf5File, path: str, array: Any) -> Field:
    """Returns the type of a row of an array."""
    if array.dtype.kind not in "biufc":
        raise hdf5.error(f"{array.dtype}, expected numbers", path)
    shape = array.shape[1:]
    if path in SCALARS:
        is_valid, expected, shape = shape in ((), (1,)), "(N,) or (N, 1)", ()
    else:
        is_valid = bool(shape) or path not in (OBSERVATIONS, NEXT_OBSERVATIONS)
        expected = "(N, ...) with at least two axes"
    if not is_valid:
        raise hdf5.error(f"shape {array.shape}, expected {expected}", path)
    return Field(array.dtype.newbyteorder("="), shape)


class RowReader:
    """Reads rows of the arrays of a file.

    The last block of each array is kept, so that consecutive reads do not decompress a block twice.
    A pickled reader has no blocks.

    Args:
      file: The file.
    """

    def __init__(self, file: Hdf5File) -> None:
        self._file = file
        self._blocks: dict[
            str, tuple[int, np.ndarray]
        ] = {}  # Each block with the index of its first row.
        self._sizes: dict[str, tuple[int, int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_blocks": {}}

    def sizes(self, name: str) -> tuple[int, int]:
        """Returns the number of rows of an array, and of rows in a block."""
        if name not in self._sizes:
            with self._file.read(field=name) as file:
                array = self._file.array(file, name)
                row_bytes = max(1, array.dtype.itemsize * math.prod(array.shape[1:]))
                chunk = array.chunks[0] if array.chunks else 1
                block = chunk * max(1, _BLOCK_BYTES // (chunk * row_bytes))
                self._sizes[name] = len(array), block
        return self._sizes[name]

    def rows(self, name: str, start: int, end: int, episode: str | None = None) -> np.ndarray:
        """Returns rows of an array, in the byte order of this machine.

        Args:
          name: The path of the array.
          start: The first row.
          end: The end of the rows (exclusive).
          episode: The name of the episode in errors.

        Raises:
          SourceError: The rows cannot be decompressed.
        """
        size = self.sizes(name)[1]
        pieces = []
        try:
            for block in range(start - start % size, end, size):
                if self._blocks.get(name, (None,))[0] != block:
                    self._blocks[name] = block, self._read(name, block, block + size)
                pieces.append(self._blocks[name][1][max(start - block, 0) : end - block])
        except SourceError:  # The damage may be elsewhere in the block.
            pieces = list(self._chunks(name, start, end, episode))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _chunks(self, name: str, start: int, end: int, episode: str | None) -> Iterator[np.ndarray]:
        """Reads rows chunk by chunk, to locate a damaged chunk."""
        with self._file.read(episode, name) as file:
            chunks = self._file.array(file, name).chunks
        size = chunks[0] if chunks else end - start
        while start < end:
            stop = min(start - start % size + size, end)
            try:
                yield self._read(name, start, stop)
            except SourceChangedError:
                raise
            except SourceError as error:
                fault = f"the rows {start} to {stop} {error.problem}"
                file, row = self._file.path, start
                raise SourceError(fault, file=file, episode=episode, row=row, field=name) from error
            start = stop

    def _read(self, name: str, start: int, end: int) -> np.ndarray:
        rows = self._file.rows(name, start, end)
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)

    def blocks(self, name: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the blocks of rows of an array, each with the index of its first row."""
        length, size = self.sizes(name)
        for start in range(0, length, size):
            yield start, self.rows(name, start, min(start + size, length))

    def pairs(self, name: str, next_name: str) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yields blocks of rows of an array, with the next rows of another array.

        Args:
          name: The path of the array.
          next_name: The path of the other array, or of the same array.
        """
        length, size = self.sizes(name)
        for start in range(0, length - 1, size):
            end = min(start + size, length - 1)
            yield start, self.rows(name, start, end), self.rows(next_name, start + 1, end + 1)

    def flags(self, name: str) -> np.ndarray:
        """Returns an array of shape (N,) or (N, 1), of any dtype, as booleans.

        Raises:
          SourceError: A value is neither 0 nor 1.
        """
        flags = []
        for start, rows in self.blocks(name):
            column = rows.reshape(len(rows))
            invalid = np.flatnonzero((column != 0) & (column != 1))
            if len(invalid):
                problem, row = f"{column[invalid[0]]}, expected 0 or 1", start + int(invalid[0])
                raise SourceError(problem, file=self._file.path, row=row, field=name)
            flags.append(column != 0)
        return np.concatenate(flags)


class Hdf5RowsSource(RowsSource):
    """An HDF5 file with an array per field; an episode is a range of rows.

    Derived classes set `_contents`, the flags `_terminals`, and `_end_rows`, the exclusive ends of
    the episodes. `_stem` is the prefix of the keys of the episodes.
    """

    _contents: FileContents
    _terminals: np.ndarray
    _end_rows: np.ndarray
    _is_exported = False

    def __init__(self, path: str | os.PathLike[str], *, follow_links: bool) -> None:
        self._path = require_files(path)[0]
        self._stem = self._path.stem
        self._follow_links = follow_links
        self._file = Hdf5File(self._path, follow_links=follow_links)
        self._reader = RowReader(self._file)

    def _take_exported_ends(self) -> bool:
        """Reads the ends of episodes in a file of an export; returns False for other files."""
        with self._file.read(field=EPISODE_ENDS) as file:
            if not self._file.has(file, SIDECAR_GROUP):
                return False
            end_rows = np.asarray(read_array(self._file, file, EPISODE_ENDS), np.int64)
            is_increasing = end_rows.ndim == 1 and bool(np.all(np.diff(end_rows, prepend=0) > 0))
            if not is_increasing or [*end_rows[-1:]] != [self._contents.num_rows]:
                problem = f"expected increasing rows that end with {self._contents.num_rows}"
                raise self._file.error(problem, EPISODE_ENDS)
        self._end_rows = end_rows
        self._is_exported = True
        return True

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(
            lengths=self._lengths,
            totals=self._totals,
            hold_open=lambda: self._file,  # The file stays open.
            sidecar=lambda: read_hdf5_sidecar(self._file) if self._is_exported else None,
        )

    def _totals(self, split: str) -> dict[str, int]:
        terminals = int(np.count_nonzero(self._terminals))
        return {"rows": self._contents.num_rows, "terminals": terminals}

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return self._file.inputs()

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._end_rows)

    @override
    def key(self, split: str, index: int) -> str:
        return f"{self._stem}-{index:07d}"

    @override
    def _read_rows(self, episode: EpisodeRows, paths: Collection[str]) -> dict[str, np.ndarray]:
        columns, key = {}, self.key("", episode.handle)
        for name in self._contents.arrays:
            path = self.table.field_path(name)
            if path in paths:
                rows = self._reader.rows(name, episode.origin.begin, episode.origin.end, key)
                columns[path] = rows.reshape(len(rows)) if name in SCALARS else rows
        return columns
