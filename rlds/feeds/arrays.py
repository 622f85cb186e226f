"""The arrays that batches are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["ALIGNMENT", "as_bytes", "empty"]

ALIGNMENT = 64
"""Where the memory of a new array begins: JAX takes such arrays over without copying them."""


def empty(shape: Sequence[int], dtype: npt.DTypeLike) -> np.ndarray:
    """Returns a new array that is C-contiguous and aligned; what is in it is left open.

    >>> empty((3, 2), np.float32).ctypes.data % ALIGNMENT
    0
    """
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        return np.empty(shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    array: np.ndarray = memory[begin : begin + size].view(dtype).reshape(shape)
    return array


def as_bytes(array: np.ndarray) -> np.ndarray:
    """Returns the memory of a C-contiguous array, uint8 of shape `[n]`.

    >>> as_bytes(np.array([1, 256], "<u2"))
    array([1, 0, 0, 1], dtype=uint8)
    """
    memory: np.ndarray = array.reshape(-1).view(np.uint8)
    return memory
