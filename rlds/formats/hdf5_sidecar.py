"""The sidecar of HDF5 files: attributes of groups in the group `rlds`.

The sidecar is inside the file because files are often copied without their folder. Attributes hold
the sidecar because readers of some formats treat every array of a file as data.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np

from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.hdf5_values import SIDECAR_GROUP
from rlds.sources.sidecar import (
    SIDECAR_BYTES,
    SIDECAR_ENDS,
    SIDECAR_TEXT,
    PackedSidecar,
    Sidecar,
    SidecarWriter,
    StoredSidecar,
)

__all__ = [
    "SIDECAR_GROUP",
    "hdf5_sidecar_writer",
    "read_array",
    "read_hdf5_sidecar",
    "sidecar_digest",
    "write_array",
    "write_digest",
]

# The groups of the streams of columns.
_COLUMNS = f"{SIDECAR_GROUP}/columns"
# The attributes with the digest of a sidecar, and with a block of bytes. All versions of HDF5 read
# attributes of up to 64 KiB.
_DIGEST_NAME, _BLOCK_ATTRIBUTE, _BLOCK_BYTES = "digest", "block", 60_000
# The number of cached blocks of a file.
_NUM_CACHED_BLOCKS = 64


def hdf5_sidecar_writer(file: Any, sidecar: Sidecar) -> SidecarWriter:
    """Returns the writer of a sidecar in an `h5py.File`; close it before the file."""
    values: Counter[str] = Counter()

    def append(stream: str, data: bytes) -> None:
        _write_block(file, f"{_COLUMNS}/{stream}", values[stream], np.frombuffer(data, np.uint8))
        values[stream] += 1

    def finish(text: str) -> None:
        write_array(file, SIDECAR_TEXT, np.frombuffer(text.encode(), np.uint8))

    return SidecarWriter(sidecar, append, finish, block=_BLOCK_BYTES)


def write_array(file: Any, name: str, values: np.ndarray) -> None:
    """Writes an array to attributes, for `read_array`."""
    size = _BLOCK_BYTES // values.itemsize
    for block, start in enumerate(range(0, len(values), size)):
        _write_block(file, name, block, values[start : start + size])


def write_digest(file: Any, sidecar: Sidecar) -> None:
    """Writes the digest of a sidecar in another file to an `h5py.File`."""
    file.create_group(SIDECAR_GROUP).attrs[_DIGEST_NAME] = sidecar.digest


def sidecar_digest(hdf5: Hdf5File) -> Any:
    """Returns the digest of the sidecar of a file; None without a sidecar."""
    with hdf5.read(field=SIDECAR_GROUP) as file:
        has_sidecar = hdf5.has(file, SIDECAR_GROUP)
        return _member(hdf5, file, SIDECAR_GROUP).attrs.get(_DIGEST_NAME) if has_sidecar else None


def _write_block(file: Any, name: str, index: int, values: np.ndarray) -> None:
    file.create_group(f"{name}/{index}").attrs[_BLOCK_ATTRIBUTE] = values


def read_hdf5_sidecar(hdf5: Hdf5File) -> StoredSidecar | None:
    """Returns the sidecar of a file; None without a sidecar.

    Raises:
      SourceError: The sidecar is damaged.
    """
    with hdf5.read() as file:
        if not hdf5.has(file, SIDECAR_GROUP) or not hdf5.has(file, SIDECAR_TEXT):
            return None
        text = read_array(hdf5, file, SIDECAR_TEXT)
        if not hdf5.has(file, SIDECAR_ENDS):
            return StoredSidecar.from_text(text.tobytes(), hdf5.path, _Blocks(hdf5).stream)
        offsets = read_array(hdf5, file, SIDECAR_ENDS)
        is_array_of_bytes = is_array(_member(hdf5, file, SIDECAR_BYTES))
    read = hdf5.rows if is_array_of_bytes else _Blocks(hdf5).read
    return PackedSidecar.in_arrays(hdf5.path, text, offsets, functools.partial(read, SIDECAR_BYTES))


def read_array(hdf5: Hdf5File, file: Any, name: str) -> np.ndarray:
    """Reads an array of the group `rlds`, from a dataset or from the attributes of a group.

    Raises:
      SourceError: The array is missing or damaged.
    """
    item = _member(hdf5, file, name)
    if is_array(item):
        return np.asarray(item[()])
    blocks = [_block(hdf5, item, name, index) for index in range(len(item))]
    return np.concatenate(blocks or [np.zeros(0, np.int64)])


class _Blocks:
    """A reader of blocks of bytes in attributes, with a cache; can be pickled."""

    def __init__(self, hdf5: Hdf5File) -> None:
        self._hdf5 = hdf5
        self._block = functools.lru_cache(_NUM_CACHED_BLOCKS)(self._read_block)

    def stream(self, name: str, start: int, end: int) -> Any:
        """Reads bytes of a stream of columns."""
        return self.read(f"{_COLUMNS}/{name}", start, end).data

    def read(self, path: str, start: int, end: int) -> np.ndarray:
        """Returns the bytes from `start` to `end`."""
        first = start // _BLOCK_BYTES
        blocks = [self._block(path, index) for index in range(first, -(-end // _BLOCK_BYTES))]
        first *= _BLOCK_BYTES
        return np.concatenate(blocks or [np.zeros(0, np.uint8)])[start - first : end - first]

    def _read_block(self, path: str, index: int) -> np.ndarray:
        with self._hdf5.read(field=path) as file:
            return _block(self._hdf5, _member(self._hdf5, file, path), path, index)

    def __reduce__(self) -> Any:
        return type(self), (self._hdf5,)


def _block(hdf5: Hdf5File, group: Any, name: str, index: int) -> np.ndarray:
    block = hdf5.member(group, str(index), f"{name}/{index}").attrs[_BLOCK_ATTRIBUTE]
    if not isinstance(block, np.ndarray) or block.dtype.kind not in "iu":
        raise hdf5.error("expected a block of integers", f"{name}/{index}")
    return block


def _member(hdf5: Hdf5File, file: Any, path: str) -> Any:
    """Returns the group or dataset at a path; follows no links."""
    item = file
    for name in path.split("/"):
        item = hdf5.member(item, name, path)
    return item
