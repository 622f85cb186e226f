"""Episodes of Minari in one HDF5 file: a group for each."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlds_ecosystem import import_extra
from tfds_builders.minari.storage import Column, RawEpisode, Storage, StorageWriter, objects
from tfds_builders.source import SourceError

__all__ = ["Hdf5Storage", "Hdf5Writer"]

_FILE = "main_data.hdf5"
_EPISODE = "episode_"
_OPTIONS = "options"


class Hdf5Storage(Storage):
    """Reads the file."""

    @property
    def _file(self) -> pathlib.Path:
        return self._directory / _FILE

    def files(self) -> list[pathlib.Path]:
        """See `Storage`."""
        return [self._file]

    def place(self, index: int) -> str:
        """See `Storage`."""
        return f"data/{_FILE}/{_EPISODE}{index}"

    def indices(self) -> list[int]:
        """See `Storage`."""
        with self._open() as file:
            names = [name.removeprefix(_EPISODE) for name in file]
        return sorted(int(name) for name in names if name.isdecimal())

    def layouts(self, indices: Sequence[int]) -> Iterator[RawEpisode | SourceError]:
        """See `Storage`."""
        with self._open() as file:
            for index in indices:
                try:
                    yield self._episode(file, index, layout_only=True)
                except SourceError as error:
                    yield error

    def read(self, index: int) -> RawEpisode:
        """See `Storage`."""
        with self._open() as file:
            return self._episode(file, index, layout_only=False)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        h5py = import_extra("h5py")
        if not self._file.is_file():
            raise FileNotFoundError(f"{os.fspath(self._file)!r} does not exist.")
        try:
            file = h5py.File(self._file, "r")
        except OSError as error:
            raise SourceError(f"no whole HDF5 file: {error}", file=self._file) from error
        with file:
            yield file

    def _episode(self, file: Any, index: int, *, layout_only: bool) -> RawEpisode:
        h5py = import_extra("h5py")
        columns: dict[str, Column] = {}
        empty: list[str] = []

        def visit(node: Any, path: str) -> None:
            if isinstance(node, h5py.Group):
                if not len(node):
                    empty.append(path)
                for name in node:
                    visit(node[name], f"{path}/{name}")
            else:
                columns[path] = self._column(node, path, index, layout_only=layout_only)

        path = None
        try:
            group = file[f"{_EPISODE}{index}"]
            if not isinstance(group, h5py.Group):
                raise self.error("an array, expected a group", index)
            for path in group:
                visit(group[path], path)
            path = None
            attributes = dict(group.attrs)
            for name, value in attributes.items():
                if isinstance(value, h5py.Empty):
                    raise self.error("an attribute without a value", index, name)
        except (OSError, KeyError, RuntimeError, UnicodeDecodeError) as error:
            raise self.error(f"cannot be read: {error}", index, path) from error
        return RawEpisode(columns, _nested_options(attributes), empty)

    def _column(self, dataset: Any, path: str, index: int, *, layout_only: bool) -> Column:
        h5py = import_extra("h5py")
        dtype, shape, leaf = dataset.dtype, dataset.shape, self._spaces.leaves.get(path)
        if not shape:
            raise self.error("a single value, expected one for each step", index, path)
        is_image = leaf is not None and leaf.is_image
        values = np.empty((0, *shape[1:]), dtype) if layout_only else dataset[()]
        is_vlen = h5py.check_vlen_dtype(dtype) is not None
        # Where all images have as many bytes, they are the rows of a matrix.
        if is_image and (is_vlen or (dtype == np.uint8 and len(shape) == 2)):
            return Column("jpeg", objects([image.tobytes() for image in values]))
        string = h5py.check_string_dtype(dtype)
        if string is not None and string.encoding == "utf-8" and string.length is None:
            texts = objects([text.decode() for text in values.flat])
            return Column("text", texts.reshape(values.shape))
        if string is not None:
            return Column("bytes", values)
        if dtype.kind in "biufc":
            return Column("numbers", values)
        raise self.error(f"values of the HDF5 type {dtype} are not known", index, path)


class Hdf5Writer(StorageWriter):
    """Writes the file."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._file = import_extra("h5py").File(directory / _FILE, "w", track_order=True)

    def __exit__(self, *args: object) -> None:
        self._file.close()

    def add(self, index: int, episode: RawEpisode) -> None:
        """See `StorageWriter`."""
        group = self._file.create_group(f"{_EPISODE}{index}")
        for name, value in _flat_options(episode.attributes).items():
            try:
                group.attrs[name] = value
            except (TypeError, OSError) as error:
                raise ValueError(f"HDF5 cannot hold the attribute {name!r}: {error}") from error
        for path in episode.empty:
            group.create_group(path)
        for path, column in episode.columns.items():
            self._add_column(group, path, column)

    def _add_column(self, group: Any, path: str, column: Column) -> None:
        h5py = import_extra("h5py")
        values = column.values
        if column.kind == "jpeg":
            images = [np.frombuffer(image, np.uint8) for image in values]
            if len({len(image) for image in images}) == 1:
                group.create_dataset(path, data=np.stack(images), chunks=True)
            else:
                dtype = h5py.vlen_dtype(np.uint8)
                group.create_dataset(path, data=objects(images), dtype=dtype, chunks=True)
            return
        dtype = values.dtype
        if column.kind == "text":
            dtype = h5py.string_dtype(encoding="utf-8")
        elif dtype.kind == "O":
            dtype = h5py.string_dtype(encoding="ascii")
        group.create_dataset(
            path, data=values, dtype=dtype, chunks=True, maxshape=(None, *values.shape[1:])
        )


def _nested_options(attributes: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in attributes.items():
        *parents, last = name.split("/") if name.startswith(f"{_OPTIONS}/") else [name]
        target = nested
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return nested


def _flat_options(attributes: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}

    def add(name: str, value: Any) -> None:
        """See `StorageWriter`."""
        if isinstance(value, Mapping):
            for key, child in value.items():
                add(f"{name}/{key}", child)
        else:
            flat[name] = value

    for name, value in attributes.items():
        add(name, value)
    return flat
