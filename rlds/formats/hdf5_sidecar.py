"""The sidecar of files of HDF5: three arrays of bytes in the group `rlds`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlds.raw_files.hdf5_access import Hdf5File
from rlds.sources.sidecar import SIDECAR_BYTES, SIDECAR_ENDS, SIDECAR_TEXT, Sidecar, StoredSidecar
from rlds.sources.source import SourceEpisode

__all__ = ["SIDECAR_GROUP", "Hdf5SidecarWriter", "append_rows", "read_hdf5_sidecar"]

SIDECAR_GROUP = "rlds"


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
        text, ends = (hdf5.array(file, name)[()] for name in (SIDECAR_TEXT, SIDECAR_ENDS))
    return StoredSidecar.in_arrays(
        hdf5.path, text, ends, functools.partial(hdf5.rows, SIDECAR_BYTES)
    )
