"""Checkpoints of replay buffers as Dopamine writes them: gzipped arrays, read in blocks.

A checkpoint `i` is a set of files, each one `.npy` stream compressed by gzip:

| file | content |
|---|---|
| `$store$_observation_ckpt.<i>.gz` | frames, uint8 of shape (rows, height, width) |
| `$store$_action_ckpt.<i>.gz` | integers of shape (rows,) |
| `$store$_reward_ckpt.<i>.gz` | floats of shape (rows,) |
| `$store$_terminal_ckpt.<i>.gz` | flags, uint8 of shape (rows,) |
| `add_count_ckpt.<i>.gz` | number of rows recorded so far |
| `invalid_range_ckpt.<i>.gz` | rows around the next row to overwrite |

A buffer that is full is overwritten from its beginning, so its oldest row is at `add_count` modulo
the number of rows. `add_count` also shows the overlap with the previous checkpoint, and
rows lost between the two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from rlds.raw_files.byte_streams import ByteStream
from rlds.raw_files.npz_files import NpyArray, read_header
from rlds.raw_files.untrusted import check_declared, folders_in
from rlds.sources.source import SourceError

__all__ = [
    "ARRAYS",
    "Array",
    "Checkpoint",
    "RowBlock",
    "find_directories",
    "read_blocks",
    "read_checkpoints",
]

_FILE_NAME = re.compile(r"\$store\$_(observation|action|reward|terminal)_ckpt\.(\d+)\.gz")
_SEARCH_DEPTH = 3  # Depth of the search for checkpoint folders.

# For each array: its rank, the valid kinds of its dtype, and a description of valid arrays.
ARRAYS = {
    "observation": (3, "u", "uint8 of shape (rows, height, width)"),
    "action": (1, "iu", "integers of shape (rows,)"),
    "reward": (1, "f", "floats of shape (rows,)"),
    "terminal": (1, "ub", "uint8 of shape (rows,)"),
}

# The number of rows in a block. Blocks begin at its multiples, so that damage always loses the
# same rows.
_BLOCK_ROWS = 256
_MAX_ROW_BYTES = 1 << 22  # The limit is larger than a frame of any game.
_MAX_SMALL_ELEMENTS = 1 << 10  # The largest array that is read at once.


@dataclasses.dataclass(frozen=True)
class Array:
    """An array in a file: its offset, and its header."""

    file: epath.Path
    label: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def row_size(self) -> int:
        """The bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: four arrays, and the segments of their rows in reading order.

    Attributes:
      index: The index of the checkpoint in file names.
      arrays: The arrays, by name.
      first: The number of rows that were recorded before its first row.
      segments: Ranges of rows, in the order in which they were recorded.
      is_joined: Whether its rows continue the previous checkpoint, or begin the run.
    """

    index: int
    arrays: Mapping[str, Array]
    first: int
    segments: tuple[tuple[int, int], ...]
    is_joined: bool

    @property
    def end(self) -> int:
        """The number of rows that were recorded up to its last row."""
        return self.first + sum(end - start for start, end in self.segments)


def find_directories(path: epath.Path) -> list[epath.Path]:
    """Returns the folders with checkpoints: this folder, or folders below it, in order.

    Raises:
      FileNotFoundError: No checkpoint folder exists.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)!r} is not a directory.")
    directories = _directories(path, _SEARCH_DEPTH)
    if not directories:
        raise FileNotFoundError(
            f"{os.fspath(path)!r} has no files such as $store$_observation_ckpt.0.gz, nor has a "
            f"folder up to {_SEARCH_DEPTH} levels below it."
        )
    return directories


def _directories(path: epath.Path, depth: int) -> list[epath.Path]:
    entries = sorted(path.iterdir())
    if any(_FILE_NAME.fullmatch(entry.name) for entry in entries):
        return [path]
    below = folders_in(path) if depth else []
    return [directory for name in below for directory in _directories(path / name, depth - 1)]


def read_checkpoints(
    directory: epath.Path, label: str, *, use_add_count: bool
) -> tuple[list[Checkpoint], list[epath.Path]]:
    """Returns the checkpoints of a folder, in order, and their files.

    Args:
      directory: The folder.
      label: The name of the run in errors.
      use_add_count: Whether to trust `add_count`.

    Raises:
      SourceError: A file is missing, damaged, or invalid; checkpoints contradict each other.
    """
    names = {entry.name for entry in directory.iterdir()}
    indices = sorted({int(match[2]) for match in map(_FILE_NAME.fullmatch, names) if match})
    with_count = [index for index in indices if f"add_count_ckpt.{index}.gz" in names]
    if not use_add_count:
        with_count = []
    checkpoints: list[Checkpoint] = []
    used_files: list[str] = []
    for index in indices:
        files = {name: f"$store$_{name}_ckpt.{index}.gz" for name in ARRAYS}
        needed_files = [*files.values(), *([f"add_count_ckpt.{index}.gz"] if with_count else [])]
        for name in needed_files:
            if name not in names:
                problem = f"the file is missing, but checkpoint {index} has other files"
                if name.startswith("add_count"):
                    problem = f"the file is missing, but checkpoint {with_count[0]} has one"
                raise SourceError(problem, file=f"{label}/{name}")
        used_files += needed_files
        arrays = {
            name: _read_description(directory / file, f"{label}/{file}", name)
            for name, file in files.items()
        }
        rows = _check_lengths(arrays)
        previous = checkpoints[-1] if checkpoints else None
        count = _read_add_count(directory, label, index) if with_count else None
        checkpoints.append(_make_checkpoint(index, arrays, rows, count, previous))
        invalid_range = f"invalid_range_ckpt.{index}.gz"
        if invalid_range in names and count is not None and count > rows:
            used_files.append(invalid_range)
            _check_invalid_range(directory / invalid_range, f"{label}/{invalid_range}", count, rows)
    return checkpoints, [directory / name for name in used_files]


def _make_checkpoint(
    index: int, arrays: Mapping[str, Array], rows: int, count: int | None, prior: Checkpoint | None
) -> Checkpoint:
    """Returns a checkpoint.

    Args:
      index: The index of the checkpoint.
      arrays: The arrays by name.
      rows: The number of their rows.
      count: The number of rows recorded so far; None if unknown.
      prior: The last checkpoint.
    """
    end = 0 if prior is None else prior.end
    if count is None:
        is_next = index == (0 if prior is None else prior.index + 1)
        return Checkpoint(index, arrays, end, ((0, rows),), is_joined=is_next)
    if prior is not None and count <= end:
        raise SourceError(
            f"{count} rows up to this checkpoint, but {end} up to checkpoint {prior.index} "
            "before it. If the add_count files are wrong, pass use_add_count=False",
            file=arrays["observation"].label.replace("$store$_observation", "add_count"),
        )
    cursor, first = count % rows, max(count - rows, 0)
    segments = [(0, count)] if count < rows else [(cursor, rows), (0, cursor)]
    left_out = max(end - first, 0)
    remaining_segments = tuple(_without_first(segments, left_out))
    return Checkpoint(index, arrays, first + left_out, remaining_segments, is_joined=first <= end)


def _without_first(segments: Iterable[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    for start, end in segments:
        num_skipped = min(count, end - start)
        count -= num_skipped
        if start + num_skipped < end:
            yield start + num_skipped, end


class RowBlock(NamedTuple):
    """A block of rows of a checkpoint.

    Attributes:
      row: The index of the first row.
      num_recorded: The number of rows that were recorded before the block.
      columns: The rows of each array.
      fraction: The fraction of the first file that has been read.
    """

    row: int
    num_recorded: int
    columns: list[np.ndarray]
    fraction: float


def read_blocks(
    checkpoint: Checkpoint, names: Sequence[str], first: int | None = None
) -> Iterator[RowBlock]:
    """Yields the rows of arrays of a checkpoint side by side, in the order of their recording.

    Args:
      checkpoint: The checkpoint.
      names: The arrays.
      first: The first row; None for the oldest row.

    Raises:
      SourceError: A file is damaged or too short. `SourceError.row` is the first unreadable row.
    """
    num_recorded = checkpoint.first
    for start, end in checkpoint.segments:
        first_row = start if first is None else first
        if start <= first_row < end:
            first = None
            arrays = [checkpoint.arrays[name] for name in names]
            yield from _read_segment(arrays, start, end, first_row, num_recorded)
        num_recorded += end - start


def _read_segment(
    arrays: Sequence[Array], start: int, end: int, first: int, num_recorded: int
) -> Iterator[RowBlock]:
    row = max(first // _BLOCK_ROWS * _BLOCK_ROWS, start)
    with contextlib.ExitStack() as stack:
        streams = []
        for array in arrays:
            with _errors_at(row):
                stream = ByteStream(array.file, array.label, compressed=True)
                stack.callback(stream.close)
                _read_header(stream)
                stream.skip(row * array.row_size)
            streams.append(stream)
        while row < end:
            stop = min(row // _BLOCK_ROWS * _BLOCK_ROWS + _BLOCK_ROWS, end)
            with _errors_at(row):
                rows = [_read_rows(s, array, row, stop) for s, array in zip(streams, arrays)]
            num_skipped = max(first - row, 0)
            yield RowBlock(
                row=row + num_skipped,
                num_recorded=num_recorded + row + num_skipped - start,
                columns=[column[num_skipped:] for column in rows],
                fraction=streams[0].fraction,
            )
            row = stop


def _read_rows(stream: ByteStream, array: Array, row: int, stop: int) -> np.ndarray:
    size = (stop - row) * array.row_size
    data = stream.read(size)
    if len(data) < size:
        raise SourceError(
            f"the data ends in row {row + len(data) // array.row_size}, but the header declares "
            f"{array.shape[0]} rows",
            file=array.label,
        )
    # Reading to the end also checks the checksum of the file.
    if stop == array.shape[0] and stream.read(1):
        raise SourceError(
            f"more data follows the {array.shape[0]} rows of the header", file=array.label
        )
    return np.frombuffer(data, array.dtype).reshape(stop - row, *array.shape[1:])


@contextlib.contextmanager
def _errors_at(row: int) -> Iterator[None]:
    """Adds the first unreadable row to errors."""
    try:
        yield
    except SourceError as error:
        raise SourceError(error.problem, file=error.file, row=row) from error


# --- Headers -------------------------------------------------------------------------------------


def _read_header(stream: ByteStream) -> NpyArray:
    """Reads the header of the numeric array in a stream."""
    array = read_header(stream, stream.name)
    if array.dtype.hasobject or array.by_columns:
        kind = "pickled objects" if array.dtype.hasobject else "columns (Fortran order)"
        raise SourceError(f"an array of {kind}, expected rows of numbers", file=stream.name)
    return array


def _read_description(file: epath.Path, label: str, name: str) -> Array:
    with ByteStream(file, label, compressed=True) as stream:
        shape, dtype, *_ = _read_header(stream)
    rank, kinds, description = ARRAYS[name]
    fits = dtype.kind in kinds and (dtype.itemsize == 1 or not description.startswith("uint8"))
    if len(shape) != rank or not fits or 0 in shape[1:]:
        raise SourceError(f"{dtype} of shape {shape}, expected {description}", file=label)
    array = Array(file, label, shape, dtype)
    if array.row_size > _MAX_ROW_BYTES:
        raise SourceError(
            f"{dtype} of shape {shape}: rows of {array.row_size:,} bytes, expected "
            f"{_MAX_ROW_BYTES:,} at most",
            file=label,
        )
    check_declared(shape[0] * array.row_size, file.stat().length, file=label)
    return array


def _check_lengths(arrays: Mapping[str, Array]) -> int:
    expected = arrays["observation"]
    for array in arrays.values():
        if array.shape[0] != expected.shape[0]:
            raise SourceError(
                f"{array.shape[0]} rows, but {expected.shape[0]} in {expected.label}",
                file=array.label,
            )
    if not expected.shape[0]:
        raise SourceError("there are no rows", file=expected.label)
    return expected.shape[0]


def _read_small(file: epath.Path, label: str) -> np.ndarray:
    """Returns an array of a few integers."""
    with ByteStream(file, label, compressed=True) as stream:
        shape, dtype, *_ = _read_header(stream)
        size = math.prod(shape)
        if dtype.kind not in "iu" or size > _MAX_SMALL_ELEMENTS:
            raise SourceError(f"{dtype} of shape {shape}, expected a few integers", file=label)
        data = stream.read(size * dtype.itemsize)
        if len(data) < size * dtype.itemsize or stream.read(1):
            raise SourceError(
                f"the array does not have the shape {shape} of its header", file=label
            )
    return np.frombuffer(data, dtype).reshape(shape)


def _read_add_count(directory: epath.Path, label: str, index: int) -> int:
    name = f"add_count_ckpt.{index}.gz"
    count = _read_small(directory / name, f"{label}/{name}")
    if count.size != 1 or count.item() < 1:
        raise SourceError(f"{count.tolist()}, expected one number", file=f"{label}/{name}")
    return int(count.item())


def _check_invalid_range(file: epath.Path, label: str, count: int, rows: int) -> None:
    cursor, invalid = count % rows, _read_small(file, label)
    # Unused rows of a replay buffer are zeros.
    if invalid.any() and cursor not in invalid:
        raise SourceError(
            f"the row to overwrite next is one of {invalid.tolist()}, but add_count says {cursor} "
            f"({count} modulo {rows})",
            file=label,
        )
