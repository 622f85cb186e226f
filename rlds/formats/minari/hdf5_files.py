"""Minari episodes in one HDF5 file: a group for each episode."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.formats.hdf5_export import StagedFiles
from rlds.formats.minari.attributes import ID, OPTIONS
from rlds.formats.minari.spaces import Spaces
from rlds.formats.minari.storage import (
    INFOS,
    SCALARS,
    EpisodeStorage,
    RawEpisode,
    StoredColumn,
    Structure,
    Writer,
)
from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.hdf5_arrays import ArrayReader, StoredArray
from rlds.raw_files.hdf5_values import text_or_bytes
from rlds.raw_files.hdf5_writing import new_file
from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import Location, require_files
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import has, is_below, leaves_at, put

__all__ = ["Hdf5Storage", "hdf5_writer"]

_FILE_NAME = "main_data.hdf5"
_EPISODE_PREFIX = "episode_"
# The number of episodes whose arrays and attributes are cached.
_MAX_CACHED_EPISODES = 20_000


class Hdf5Storage(EpisodeStorage):
    """The HDF5 file of a dataset.

    Listing the contents of an episode is as slow as reading it. Therefore the contents are cached
    in each process; `Hdf5File` detects changes of the file.
    """

    def __init__(self, directory: pathlib.Path, spaces: Spaces, *, follow_links: bool) -> None:
        super().__init__(directory, spaces)
        require_files(directory / _FILE_NAME)
        self._file = Hdf5File(directory / _FILE_NAME, follow_links=follow_links, whole_arrays=True)
        self._reader = ArrayReader(self._file)
        self._cached_scans: dict[int, tuple[Mapping[str, StoredArray], Mapping[str, Any]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached_scans": {}}

    @override
    def hold_open(self) -> Hdf5File:
        return self._file

    @override
    def files(self) -> list[pathlib.Path]:
        return list(self._file.inputs())

    @override
    def path(self, index: int) -> str:
        return f"data/{_FILE_NAME}/{_EPISODE_PREFIX}{index}"

    @override
    def indices(self) -> list[int]:
        with self._file.read() as file:
            names = [name.removeprefix(_EPISODE_PREFIX) for name in file]
        return sorted(int(name) for name in names if name.isdecimal())

    @override
    def structure(self, index: int) -> Structure:
        with self._open_group(index) as group:
            arrays, attributes = self._scan(group, index)
            return {path: self._field(path, array) for path, array in arrays.items()}, attributes

    @override
    def read(self, index: int, paths: Collection[str] | None, rows: slice) -> RawEpisode:
        columns = {}
        location = functools.partial(self._locate, index)
        with self._open_group(index) as group:
            arrays, attributes = self._scan(group, index)
            for path in arrays:
                if paths is not None and path not in paths:
                    continue
                included = slice(None) if path in SCALARS else rows
                with source_errors(location, episode=index, field=path):
                    values = self._reader.read(group, path, arrays[path], included)
                    field = self._field(path, arrays[path])
                    if field.encoding:
                        values = objects([bytes(image) for image in values])
                    columns[path] = StoredColumn(field, values)
        return RawEpisode(columns, attributes)

    @contextlib.contextmanager
    def _open_group(self, index: int) -> Iterator[Any]:
        name = f"{_EPISODE_PREFIX}{index}"
        with (
            self._file.read() as file,
            source_errors(functools.partial(self._locate, index), episode=index),
        ):
            group = self._file.open(file.id, name.encode(), self.path(index))
            if is_array(group):
                raise self.error("an array, expected a group", index)
            yield group

    def _locate(self, index: int) -> str:
        return os.fspath(self._directory.parent / self.path(index))

    def _scan(self, group: Any, index: int) -> tuple[Mapping[str, StoredArray], Mapping[str, Any]]:
        """Returns the arrays, after checks, and the attributes of an episode."""
        if index in self._cached_scans:
            return self._cached_scans[index]
        content = self._arrays(group, index), self._attributes(group, index)
        # The target of a link may change at any time.
        if len(self._cached_scans) < _MAX_CACHED_EPISODES and not self._file.follow_links:
            self._cached_scans[index] = content
        return content

    def _arrays(self, group: Any, index: int) -> dict[str, StoredArray]:
        arrays = {}
        for path, _, array in self._reader.describe(group):
            if array is None:
                continue
            if not array.shape:
                raise self.error("a single value, expected one for each step", index, path)
            if array.kind == "ragged" and not self._is_image(path):
                raise self.error("rows of different lengths, which only images have", index, path)
            arrays[path] = array
        return arrays

    def _attributes(self, group: Any, index: int) -> dict[str, Any]:
        h5py = import_extra("h5py")
        hdf5_attributes = h5py.Group(group).attrs
        attributes = {name: text_or_bytes(value) for name, value in hdf5_attributes.items()}
        for name, value in attributes.items():
            if isinstance(value, h5py.Empty):
                raise self.error("an attribute without a value", index, name)
        return _nested_options(attributes)

    def _is_image(self, path: str) -> bool:
        leaf = self._spaces.leaves.get(path)
        return leaf is not None and leaf.is_image

    def _field(self, path: str, array: StoredArray) -> Field:
        """Returns the type of a row of an array."""
        # Images of equal size in bytes are the rows of a matrix.
        is_matrix = array.dtype == np.uint8 and len(array.shape) == 2
        if self._is_image(path) and (array.kind == "ragged" or is_matrix):
            return self._spaces.leaves[path].jpeg_field
        if array.kind == "numbers":
            return Field(array.dtype, array.shape[1:])
        return Field(str if array.kind == "text" else bytes, array.shape[1:])


@contextlib.contextmanager
def hdf5_writer(directory: pathlib.Path, compression: str | None = None) -> Iterator[Writer]:
    """Creates the file; yields a function that writes an episode to it."""
    with new_file(directory / _FILE_NAME, ordered=True) as (file, check), StagedFiles() as staged:

        def write(index: int, episode: RawEpisode | Location) -> None:
            name = f"{_EPISODE_PREFIX}{index}"
            if isinstance(episode, Location):
                staged.copy(episode.source, {f"{_EPISODE_PREFIX}{episode.index}": name}, file)
                file[name].attrs.modify(ID, index)
            else:
                _write_episode(file.create_group(name), compression, episode)
            check()

        yield write


def _write_episode(group: Any, compression: str | None, episode: RawEpisode) -> None:
    for name, value in leaves_at(episode.attributes, None):  # Options are nested.
        try:
            group.attrs[name] = value
        except (TypeError, OSError) as error:
            raise ValueError(f"HDF5 cannot hold the attribute {name!r}: {error}") from error
    if not has(episode.columns, INFOS):
        group.create_group(INFOS)
    for path, column in episode.columns.items():
        _write_column(group, path, column, compression)


def _write_column(group: Any, path: str, column: StoredColumn, compression: str | None) -> None:
    h5py = import_extra("h5py")
    values, dtype = column.values, column.values.dtype
    maxshape: tuple[int | None, ...] | None = (None, *values.shape[1:])
    if column.field.encoding:
        values = objects([np.frombuffer(image, np.uint8) for image in values])
        dtype, maxshape = h5py.vlen_dtype(np.uint8), None
        if len({len(image) for image in values}) == 1:
            values, dtype = np.stack([*values]), np.dtype(np.uint8)
    elif dtype.kind == "O":
        encoding = "utf-8" if column.field.dtype == str else "ascii"
        dtype = h5py.string_dtype(encoding=encoding)
    group.create_dataset(
        path, data=values, dtype=dtype, chunks=True, maxshape=maxshape, compression=compression
    )


def _nested_options(attributes: Mapping[str, Any]) -> dict[str, Any]:
    nested_attributes: dict[str, Any] = {}
    for name, value in attributes.items():
        put(nested_attributes, name if is_below(name, OPTIONS) else [name], value)
    return nested_attributes
