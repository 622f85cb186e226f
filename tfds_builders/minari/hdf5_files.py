"""Episodes of Minari in one HDF5 file: a group for each."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlds_ecosystem import import_extra
from tfds_builders.hdf5_access import Hdf5File
from tfds_builders.minari.spaces import Spaces
from tfds_builders.minari.storage import Column, RawEpisode, Storage, StorageWriter, objects
from tfds_builders.source import require_files
from tfds_builders.untrusted import Budget, SourceChangedError, SourceError, source_errors

__all__ = ["Hdf5Storage", "Hdf5Writer"]

_FILE = "main_data.hdf5"
_EPISODE = "episode_"
_OPTIONS = "options"


class Hdf5Storage(Storage):
    """Reads the file."""

    def __init__(self, directory: pathlib.Path, spaces: Spaces, *, follow_links: bool) -> None:
        super().__init__(directory, spaces)
        require_files(directory / _FILE)
        self._file = Hdf5File(directory / _FILE, follow_links=follow_links)

    def __enter__(self) -> Hdf5Storage:
        self._file.__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        self._file.__exit__(None, None, None)

    def files(self) -> list[pathlib.Path]:
        """See `Storage`."""
        return list(self._file.inputs())

    def place(self, index: int) -> str:
        """See `Storage`."""
        return f"data/{_FILE}/{_EPISODE}{index}"

    def indices(self) -> list[int]:
        """See `Storage`."""
        with self._file.read() as file:
            names = [name.removeprefix(_EPISODE) for name in file]
        return sorted(int(name) for name in names if name.isdecimal())

    def layouts(self, indices: Sequence[int]) -> Iterator[RawEpisode | SourceError]:
        """See `Storage`."""
        with self:
            for index in indices:
                try:
                    yield self._episode(index, layout_only=True)
                except SourceChangedError:
                    raise
                except SourceError as error:
                    yield error

    def read(self, index: int) -> RawEpisode:
        """See `Storage`."""
        return self._episode(index, layout_only=False)

    def _episode(self, index: int, *, layout_only: bool) -> RawEpisode:
        h5py = import_extra("h5py")
        columns: dict[str, Column] = {}
        empty: list[str] = []
        file = self._directory.parent / self.place(index)
        budget = self._file.budget()
        path = ""

        def visit(group: Any, prefix: str, depth: int) -> None:
            nonlocal path
            for name in group:
                path = prefix + name.decode(errors="surrogateescape")
                budget.enter(depth, path)
                node = self._file.open(group, name, path)
                if isinstance(node, h5py.h5d.DatasetID):
                    columns[path] = self._column(node, path, index, budget, layout_only)
                    continue
                if not len(node):
                    empty.append(path)
                visit(node, f"{path}/", depth + 1)

        with self._file.read() as opened, source_errors(file, episode=index):
            name = f"{_EPISODE}{index}"
            group = self._file.open(opened.id, name.encode(), self.place(index))
            if not isinstance(group, h5py.h5g.GroupID):
                raise self.error("an array, expected a group", index)
            try:
                visit(group, "", 1)
            except Exception as error:
                with source_errors(file, episode=index, field=path):
                    raise error
            names = list(h5py.Group(group).attrs)
            attributes = {name: self._attribute(group, name, index) for name in names}
            return RawEpisode(columns, _nested_options(attributes), empty)

    def _attribute(self, group: Any, name: str, index: int) -> Any:
        h5py = import_extra("h5py")
        attribute = h5py.h5a.open(group, name.encode())
        dtype = attribute.dtype
        if dtype.kind in "biuf" and attribute.shape == ():
            value = np.empty((), dtype)
            attribute.read(value)
            return value[()]
        found = self._file.attribute(h5py.Group(group), name)
        if isinstance(found, h5py.Empty):
            raise self.error("an attribute without a value", index, name)
        return found

    def _column(
        self, array: Any, path: str, index: int, budget: Budget, layout_only: bool
    ) -> Column:
        h5py = import_extra("h5py")
        dtype, shape, leaf = array.dtype, array.shape, self._spaces.leaves.get(path)
        if not shape:
            raise self.error("a single value, expected one for each step", index, path)
        is_image = leaf is not None and leaf.is_image
        is_vlen = h5py.check_vlen_dtype(dtype) is not None
        string = h5py.check_string_dtype(dtype)
        # Where all images have as many bytes, they are the rows of a matrix.
        is_jpeg = is_image and (is_vlen or (dtype == np.uint8 and len(shape) == 2))
        if not is_jpeg and string is None and dtype.kind not in "biufc":
            raise self.error(f"values of the HDF5 type {dtype} are not known", index, path)
        self._file.check_place(array, path)
        # Also where only the layout is asked for: other episodes get rows of this shape.
        budget.take(math.prod(shape) * dtype.itemsize, path)
        values = np.empty((0, *shape[1:]), dtype) if layout_only else _values(array, shape, dtype)
        if is_jpeg:
            return Column("jpeg", objects([image.tobytes() for image in values]))
        if string is not None and string.encoding == "utf-8" and string.length is None:
            texts = objects([text.decode() for text in values.flat])
            return Column("text", texts.reshape(values.shape))
        return Column("numbers" if string is None else "bytes", values)


def _values(array: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    h5py = import_extra("h5py")
    if dtype.kind not in "biufc" or 0 in shape:
        return np.asarray(h5py.Dataset(array, readonly=True)[()])
    values = np.empty(shape, dtype)
    array.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return values


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
