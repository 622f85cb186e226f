"""The formats that Minari has for episodes, by their names."""

from __future__ import annotations

import pathlib

from rlds.formats.minari.hdf5_files import Hdf5Storage, Hdf5Writer
from rlds.formats.minari.spaces import Spaces
from rlds.formats.minari.storage import Storage, StorageWriter
from rlds.formats.minari.tables import TABLES, TableStorage, TableWriter

__all__ = ["FORMATS", "open_storage", "open_writer"]

FORMATS = ("hdf5", *TABLES)


def open_storage(
    data_format: str, directory: pathlib.Path, spaces: Spaces, *, follow_links: bool
) -> Storage:
    """Returns what reads a format."""
    if data_format == "hdf5":
        return Hdf5Storage(directory, spaces, follow_links=follow_links)
    return TableStorage(directory, spaces, data_format)


def open_writer(data_format: str, directory: pathlib.Path, spaces: Spaces) -> StorageWriter:
    """Returns what writes a format to a directory that exists."""
    if data_format == "hdf5":
        return Hdf5Writer(directory)
    return TableWriter(directory, spaces, data_format)
