"""Allocation and reuse of the arrays of batches."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

import tfds_files
from rlds_ecosystem.files.forking import reset_in_forks
from rlds_ecosystem.model.columns import objects

__all__ = [
    "ALIGNMENT",
    "aligned_size",
    "allocate_in",
    "as_bytes",
    "as_indices",
    "as_objects",
    "empty",
    "paths_of",
    "stack_rows",
    "zero_out",
]

ALIGNMENT = 64
"""The alignment of new arrays, in bytes: JAX takes over aligned arrays without a copy."""


def empty(shape: Sequence[int], dtype: npt.DTypeLike) -> np.ndarray:
    """Returns an uninitialized array that is C-contiguous and aligned.

    A large array may reuse the memory of an array without references.

    >>> empty((3, 2), np.float32).ctypes.data % ALIGNMENT
    0
    """
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        return np.empty(shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    arena = _arena.get()
    memory = arena.take(size) if arena is not None else None
    memory = _pool.take(size) if memory is None else memory
    return memory.view(dtype).reshape(shape)


def aligned_size(size: int) -> int:
    """Returns the size with the padding before the next array.

    >>> aligned_size(1), aligned_size(64)
    (64, 64)
    """
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Arena:
    """A block of memory from which arrays are allocated, one after the other."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory, self.size = memory, 0

    def take(self, size: int) -> np.ndarray | None:
        start, self.size = self.size, self.size + aligned_size(size)
        return self.memory[start : start + size] if self.size <= len(self.memory) else None


_arena: contextvars.ContextVar[_Arena | None] = contextvars.ContextVar("arena", default=None)


@contextlib.contextmanager
def allocate_in(memory: np.ndarray) -> Iterator[Callable[[], int]]:
    """Allocates new arrays of this thread in a block of memory while it has space.

    Args:
      memory: The memory, uint8 of shape `[n]`, aligned.

    Yields:
      A function that returns the total size of the new arrays in bytes, even beyond the memory.

    >>> with allocate_in(memory := np.zeros(128, np.uint8)) as size:
    ...     empty([2], np.uint8)[:] = 7
    >>> size(), int(memory.sum())
    (64, 14)
    """
    token = _arena.set(arena := _Arena(memory))
    try:
        yield lambda: arena.size
    finally:
        _arena.reset(token)


class _BufferPool:
    """Buffers of large arrays, which are reused once no array refers to them.

    Requesting pages of memory from the system takes longer than filling them.

    Every array, tensor or buffer that shares memory references the array that owns it. If only this
    pool references the owner, the memory is therefore free.
    """

    _MIN_BYTES, _MAX_BYTES, _MAX_BUFFERS = 1 << 15, 48 << 20, 16

    def __init__(self) -> None:
        self._reset()
        reset_in_forks(self)  # Another thread may have the lock.

    def _reset(self) -> None:
        self._lock, self._bytes = threading.Lock(), 0
        # Buffers by size; the least recently requested size comes first.
        self._buffers_by_size: collections.OrderedDict[int, collections.deque[np.ndarray]]
        self._buffers_by_size = collections.OrderedDict()

    def take(self, size: int) -> np.ndarray:
        """Returns aligned memory that is not in use: uint8 of shape `[size]`."""
        if size < self._MIN_BYTES:
            return _allocate_aligned(size)
        with self._lock:
            buffers = self._buffers_by_size.setdefault(size, collections.deque())
            self._buffers_by_size.move_to_end(size)
            for _ in range(len(buffers)):
                buffers.rotate(-1)  # The least recently used buffer comes first.
                if sys.getrefcount(buffers[-1].base) == _NUM_FREE_REFERENCES:
                    return buffers[-1][:]
            memory = _allocate_aligned(size)
            if len(buffers) < self._MAX_BUFFERS:
                buffers.append(memory)
                self._bytes += size
            while self._bytes > self._MAX_BYTES:
                self._bytes -= self._drop_oldest()
            return memory[:]

    def _drop_oldest(self) -> int:
        """Drops a buffer of the least recently requested size; returns that size."""
        size, buffers = next(iter(self._buffers_by_size.items()))
        buffers.popleft()
        if not buffers:
            del self._buffers_by_size[size]
        return size


def _allocate_aligned(size: int) -> np.ndarray:
    owner = np.empty(size + ALIGNMENT, np.uint8)
    start = -owner.ctypes.data % ALIGNMENT
    return owner[start : start + size]


_sample_pool = collections.deque([_allocate_aligned(1)])
_NUM_FREE_REFERENCES = sys.getrefcount(_sample_pool[-1].base)
_pool = _BufferPool()


def as_bytes(array: np.ndarray) -> np.ndarray:
    """Returns the memory of a C-contiguous array, uint8 of shape `[n]`.

    >>> as_bytes(np.array([1, 256], "<u2"))
    array([1, 0, 0, 1], dtype=uint8)
    """
    return array.reshape(-1).view(np.uint8)


def as_objects(rows: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
    """Returns rows as an array of arrays.

    >>> as_objects(np.zeros((2, 4))).shape
    (2,)
    """
    if isinstance(rows, np.ndarray) and rows.dtype == object:
        return rows
    return objects(rows)


def stack_rows(column: np.ndarray) -> np.ndarray:
    """Returns an object column of equally shaped arrays as one array; any other column unchanged.

    >>> stack_rows(as_objects(np.zeros((2, 4)))).shape
    (2, 4)
    """
    if column.dtype != object or not column.size or not isinstance(column.flat[0], np.ndarray):
        return column
    stacked = tfds_files.stack(list(column.flat))
    return stacked.reshape(*column.shape, *stacked.shape[1:])


def zero_out(column: np.ndarray, rows: np.ndarray) -> None:
    """Sets masked values to zero, or to empty text, in place.

    >>> column = np.array([b"a", b"b"], object)
    >>> zero_out(column, np.array([True, False]))
    >>> column
    array([b'', b'b'], dtype=object)
    """
    if column.dtype != object:
        column[rows] = 0
        return
    for index in zip(*np.nonzero(rows)):
        value = column[index]
        column[index] = np.zeros_like(value) if isinstance(value, np.ndarray) else b""


def as_indices(values: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns indices of samples or episodes, int64 of shape `[n]`.

    Raises:
      TypeError: The values are not integers; for example, a mask.
    """
    indices = np.asarray(values).reshape(-1)
    if indices.size and indices.dtype.kind not in "iu":
        raise TypeError(f"expected integers, got an array of {indices.dtype}")
    return indices.astype(np.int64)


def paths_of(fields: str | Iterable[str]) -> tuple[str, ...]:
    """Returns the paths of fields as a list; a single path may be passed as a string."""
    return (fields,) if isinstance(fields, str) else tuple(fields)
