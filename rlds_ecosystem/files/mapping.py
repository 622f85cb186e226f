"""Memory-mapped files, without open descriptors.

Python's `mmap` keeps an open descriptor for each file. A dataset has thousands of files, and the
usual limit of a process is 1024 descriptors.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

__all__ = ["map_file"]


def map_file(
    path: str | os.PathLike[str], *, writable: bool = False
) -> tuple[memoryview, os.stat_result]:
    """Maps a file into memory.

    The content stays available while the memory is referenced, even if the file is deleted. If the
    file is truncated, reading the removed bytes kills the process by a signal.

    Args:
      path: The local file.
      writable: True for writable memory, which changes the file.

    Returns:
      The memory, and the `os.stat_result` of the file.

    Raises:
      OSError: The file cannot be mapped.

    >>> memory, state = map_file(__file__)
    >>> bytes(memory[:3]), len(memory) == state.st_size
    (b'\"\"\"', True)
    """
    with open(path, "r+b" if writable else "rb") as file:
        state = os.fstat(file.fileno())
        if not state.st_size:
            return memoryview(b""), state
        if os.name == "posix":
            memory = _map(file.fileno(), state.st_size, writable)
            return memory if writable else memory.toreadonly(), state
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return memoryview(mmap.mmap(file.fileno(), 0, access=access)), state


def _map(descriptor: int, size: int, writable: bool) -> memoryview:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    trailing_types = (ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *trailing_types)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    address = library.mmap(None, size, access, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    memory = (ctypes.c_ubyte * size).from_address(address)
    # At the end of the process, threads may still read the memory.
    weakref.finalize(memory, library.munmap, address, size).atexit = False
    return memoryview(memory).cast("B")
