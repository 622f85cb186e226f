"""The files that Minari keeps episodes in: one HDF5 file, or a directory of Arrow or Parquet files.

All three are read into, and written from, the same: the columns of an episode by their paths (such
as `observations/camera`, `rewards`, `infos/state/qpos`), and its attributes. Nothing is said here
of what columns there have to be.

Minari itself is not used for that. Its reader decodes JPEG images and its writer encodes them, with
loss; its attributes go through a conversion each; and both need all of Gymnasium.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from tfds_builders.extras import import_extra
from tfds_builders.minari.spaces import Leaf, Spaces, tuple_name
from tfds_builders.source import SourceError

__all__ = [
    "FORMATS",
    "TABLES",
    "Column",
    "RawEpisode",
    "Storage",
    "StorageWriter",
    "open_storage",
    "open_writer",
]

TABLES = ("arrow", "parquet")
FORMATS = ("hdf5", *TABLES)

Kind: TypeAlias = Literal["numbers", "text", "bytes", "jpeg"]

_HDF5_FILE = "main_data.hdf5"
_EPISODE = "episode_"
_OPTIONS = "options"
_METADATA = "metadata.json"
_INFOS = "infos"
# Columns of which the last row is only there because all have the same length in a table.
_PADDED = ("actions", "rewards", "terminations", "truncations")


@dataclasses.dataclass(frozen=True)
class Column:
    """The values of a field, one for each row.

    Attributes:
      kind: What they are. JPEG images and bytes are `bytes` in an array of objects, text is `str`.
      values: The values.
    """

    kind: Kind
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class RawEpisode:
    """An episode as it is stored.

    Attributes:
      columns: The columns by their paths.
      attributes: What is said of the episode as a whole. Options are nested, as they were given.
      empty: The paths of groups with nothing in them.
    """

    columns: Mapping[str, Column]
    attributes: Mapping[str, Any]
    empty: Sequence[str] = ()


class Storage(abc.ABC):
    """Reads the episodes of a directory. Can be pickled.

    Args:
      directory: The directory `data` of a dataset.
      spaces: The spaces below "observations" and "actions".
    """

    def __init__(self, directory: pathlib.Path, spaces: Spaces) -> None:
        self._directory = directory
        self._spaces = spaces

    @abc.abstractmethod
    def files(self) -> list[pathlib.Path]:
        """Returns all files with episodes."""

    @abc.abstractmethod
    def indices(self) -> list[int]:
        """Returns which episodes there are, in order.

        Raises:
          SourceError: The files are damaged as a whole.
        """

    @abc.abstractmethod
    def place(self, index: int) -> str:
        """Returns where an episode is, as a path below the dataset."""

    @abc.abstractmethod
    def layouts(self, indices: Sequence[int]) -> Iterator[RawEpisode | SourceError]:
        """Yields episodes, their columns without rows, or what is wrong with one."""

    @abc.abstractmethod
    def read(self, index: int) -> RawEpisode:
        """Reads an episode.

        Raises:
          SourceError: It cannot be read.
        """

    def error(self, what: str, index: int, field: str | None = None) -> SourceError:
        """Returns the error of an episode."""
        file = self._directory.parent / self.place(index)
        return SourceError(what, file=file, episode=index, field=field)


class StorageWriter(abc.ABC):
    """Writes episodes to a directory; a context manager."""

    @abc.abstractmethod
    def add(self, index: int, episode: RawEpisode) -> None:
        """Writes an episode.

        Raises:
          ValueError: The format cannot hold it.
        """

    def __enter__(self) -> StorageWriter:
        return self

    def __exit__(self, *args: object) -> None:
        return None


def open_storage(data_format: str, directory: pathlib.Path, spaces: Spaces) -> Storage:
    """Returns what reads a format."""
    if data_format == "hdf5":
        return _Hdf5Storage(directory, spaces)
    return _TableStorage(directory, spaces, data_format)


def open_writer(data_format: str, directory: pathlib.Path, spaces: Spaces) -> StorageWriter:
    """Returns what writes a format to a directory that exists."""
    if data_format == "hdf5":
        return _Hdf5Writer(directory)
    return _TableWriter(directory, spaces, data_format)


# --- HDF5 ----------------------------------------------------------------------------------------


class _Hdf5Storage(Storage):
    @property
    def _file(self) -> pathlib.Path:
        return self._directory / _HDF5_FILE

    def files(self) -> list[pathlib.Path]:
        return [self._file]

    def place(self, index: int) -> str:
        return f"data/{_HDF5_FILE}/{_EPISODE}{index}"

    def indices(self) -> list[int]:
        with self._open() as file:
            names = [name.removeprefix(_EPISODE) for name in file]
        return sorted(int(name) for name in names if name.isdecimal())

    def layouts(self, indices: Sequence[int]) -> Iterator[RawEpisode | SourceError]:
        with self._open() as file:
            for index in indices:
                try:
                    yield self._episode(file, index, layout_only=True)
                except SourceError as error:
                    yield error

    def read(self, index: int) -> RawEpisode:
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
        group_type = import_extra("h5py").Group
        columns: dict[str, Column] = {}
        empty: list[str] = []

        def visit(node: Any, path: str) -> None:
            if isinstance(node, group_type):
                if not len(node):
                    empty.append(path)
                for name in node:
                    visit(node[name], f"{path}/{name}")
            else:
                columns[path] = self._column(node, path, index, layout_only=layout_only)

        path = None
        try:
            group = file[f"{_EPISODE}{index}"]
            for path in group:
                visit(group[path], path)
            path = None
            attributes = _nested_options(dict(group.attrs))
        except (OSError, KeyError, RuntimeError, UnicodeDecodeError) as error:
            raise self.error(f"cannot be read: {error}", index, path) from error
        return RawEpisode(columns, attributes, empty)

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
            return Column("jpeg", _objects([image.tobytes() for image in values]))
        string = h5py.check_string_dtype(dtype)
        if string is not None and string.encoding == "utf-8" and string.length is None:
            texts = _objects([text.decode() for text in values.flat])
            return Column("text", texts.reshape(values.shape))
        if string is not None:
            return Column("bytes", values)
        if dtype.kind in "biufc":
            return Column("numbers", values)
        raise self.error(f"values of the HDF5 type {dtype} are not known", index, path)


class _Hdf5Writer(StorageWriter):
    def __init__(self, directory: pathlib.Path) -> None:
        self._file = import_extra("h5py").File(directory / _HDF5_FILE, "w", track_order=True)

    def __exit__(self, *args: object) -> None:
        self._file.close()

    def add(self, index: int, episode: RawEpisode) -> None:
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
                group.create_dataset(path, data=_objects(images), dtype=dtype, chunks=True)
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
        if isinstance(value, Mapping):
            for key, child in value.items():
                add(f"{name}/{key}", child)
        else:
            flat[name] = value

    for name, value in attributes.items():
        add(name, value)
    return flat


# --- Arrow and Parquet ---------------------------------------------------------------------------


class _TableStorage(Storage):
    def __init__(self, directory: pathlib.Path, spaces: Spaces, data_format: str) -> None:
        super().__init__(directory, spaces)
        self._format = data_format

    def files(self) -> list[pathlib.Path]:
        directories = [self._directory / str(index) for index in self.indices()]
        tables = [file for path in directories for file in sorted(path.glob(f"*.{self._format}"))]
        return [*tables, *(path / _METADATA for path in directories)]

    def place(self, index: int) -> str:
        return f"data/{index}/part-0.{self._format}"

    def indices(self) -> list[int]:
        directories = [path for path in self._directory.iterdir() if path.is_dir()]
        return sorted(int(path.name) for path in directories if path.name.isdecimal())

    def layouts(self, indices: Sequence[int]) -> Iterator[RawEpisode | SourceError]:
        for index in indices:
            try:
                yield self._episode(index, layout_only=True)
            except SourceError as error:
                yield error

    def read(self, index: int) -> RawEpisode:
        return self._episode(index, layout_only=False)

    def _episode(self, index: int, *, layout_only: bool) -> RawEpisode:
        arrow = import_extra("pyarrow")
        file = self._directory.parent / self.place(index)
        try:
            with file.open("rb") as opened:
                table = self._table(opened, layout_only)
            attributes = json.loads((file.parent / _METADATA).read_text())
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise self.error(f"cannot be read: {error}", index) from error
        if not isinstance(attributes, dict):
            raise self.error(f"{_METADATA} holds no object of JSON", index)
        columns: dict[str, Column] = {}
        for field in table.schema:
            array = table[field.name].combine_chunks()
            if field.name in _PADDED:
                array = array.slice(0, max(len(array) - 1, 0))
            self._flatten(array, field, field.name, index, columns)
        return RawEpisode(columns, attributes)

    def _table(self, file: Any, layout_only: bool) -> Any:
        if self._format == "parquet":
            parquet = import_extra("pyarrow.parquet").ParquetFile(file)
            return parquet.schema_arrow.empty_table() if layout_only else parquet.read()
        reader = import_extra("pyarrow.ipc").open_file(file)
        return reader.schema.empty_table() if layout_only else reader.read_all()

    def _flatten(
        self, array: Any, field: Any, path: str, index: int, columns: dict[str, Column]
    ) -> None:
        types = import_extra("pyarrow").types
        if types.is_struct(array.type):
            is_tuple = path in self._spaces.tuples
            for child, child_field in zip(array.flatten(), array.type):
                name = tuple_name(child_field.name) if is_tuple else child_field.name
                self._flatten(child, child_field, f"{path}/{name}", index, columns)
            return
        if array.null_count:
            row = array.is_null().to_pylist().index(True)
            raise SourceError(
                "no value",
                file=self._directory.parent / self.place(index),
                episode=index,
                row=row,
                field=path,
            )
        leaf = self._spaces.leaves.get(path)
        if types.is_string(array.type) or types.is_large_string(array.type):
            columns[path] = Column("text", _objects(array.to_pylist()))
        elif types.is_binary(array.type) or types.is_large_binary(array.type):
            is_image = leaf is not None and leaf.is_image
            columns[path] = Column("jpeg" if is_image else "bytes", _objects(array.to_pylist()))
        elif types.is_fixed_size_list(array.type):
            values = array.flatten().to_numpy(zero_copy_only=False)
            shape = _row_shape(array.type.list_size, leaf, field)
            if np.prod(shape, dtype=int) != array.type.list_size:
                what = f"{array.type.list_size} values in a row, expected the shape {shape}"
                raise self.error(what, index, path)
            columns[path] = Column("numbers", values.reshape(len(array), *shape))
        elif types.is_primitive(array.type) and not types.is_temporal(array.type):
            columns[path] = Column("numbers", array.to_numpy(zero_copy_only=False))
        else:
            raise self.error(f"values of the Arrow type {array.type} are not known", index, path)


def _row_shape(size: int, leaf: Leaf | None, field: Any) -> tuple[int, ...]:
    if leaf is not None:
        return leaf.shape
    shape = (field.metadata or {}).get(b"shape")
    if shape is None:
        return (size,)
    return tuple(int(length) for length in shape.split(b",") if length)


class _TableWriter(StorageWriter):
    # In Parquet files, Minari reads no more rows of an episode than these.
    _MAX_PARQUET_ROWS = 131_072

    def __init__(self, directory: pathlib.Path, spaces: Spaces, data_format: str) -> None:
        self._directory = directory
        self._spaces = spaces
        self._format = data_format

    def add(self, index: int, episode: RawEpisode) -> None:
        arrow = import_extra("pyarrow")
        nest: dict[str, Any] = {}
        for path, column in episode.columns.items():
            *parents, name = path.split("/")
            target = nest
            for parent in parents:
                target = target.setdefault(parent, {})
            target[name] = column
        fields = [self._field(name, child, name) for name, child in nest.items()]
        table = arrow.Table.from_arrays(
            [array for array, _ in fields], schema=arrow.schema([field for _, field in fields])
        )
        directory = self._directory / str(index)
        directory.mkdir()
        file = directory / f"part-0.{self._format}"
        if self._format == "parquet":
            if len(table) > self._MAX_PARQUET_ROWS:
                raise ValueError(
                    f"Minari reads no episodes of more than {self._MAX_PARQUET_ROWS} rows from "
                    f"Parquet files, this one has {len(table)}; use another data_format"
                )
            import_extra("pyarrow.parquet").write_table(table, file)
        else:
            with import_extra("pyarrow.ipc").new_file(file, table.schema) as writer:
                writer.write_table(table)
        (directory / _METADATA).write_text(json.dumps(episode.attributes, default=_to_json))

    def _field(self, name: str, node: Any, path: str) -> tuple[Any, Any]:
        """Returns a column, or a dict of columns, as an Arrow array with its field."""
        arrow = import_extra("pyarrow")
        if path.rpartition("/")[0] in self._spaces.tuples:
            name = name.removeprefix(tuple_name(""))
        if isinstance(node, Mapping):
            children = [self._field(key, child, f"{path}/{key}") for key, child in node.items()]
            fields = [field for _, field in children]
            array = arrow.StructArray.from_arrays([array for array, _ in children], fields=fields)
            return array, arrow.field(name, array.type)
        pad = path.split("/")[0] in _PADDED
        values = node.values
        if node.kind != "numbers":
            array = arrow.array(
                [*values.tolist(), *([None] * pad)],
                type=arrow.string() if node.kind == "text" else arrow.binary(),
            )
            return array, arrow.field(name, array.type)
        try:
            element = arrow.from_numpy_dtype(values.dtype)
        except arrow.ArrowNotImplementedError as error:
            raise ValueError(f"{path}: Arrow cannot hold {values.dtype}") from error
        values = np.pad(values, [(0, pad), *([(0, 0)] * (values.ndim - 1))])
        leaf = self._spaces.leaves.get(path)
        if values.ndim == 1 and (leaf is None or leaf.kind == "Discrete"):
            array = arrow.array(values, type=element)
            return array, arrow.field(name, array.type)
        size = int(np.prod(values.shape[1:], dtype=int))
        array = arrow.FixedSizeListArray.from_arrays(
            arrow.array(values.reshape(-1)), type=arrow.list_(element, size)
        )
        metadata = {"shape": ",".join(map(str, values.shape[1:]))} if leaf is None else None
        return array, arrow.field(name, array.type, metadata=metadata)


def _to_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise ValueError(f"JSON cannot hold a {type(value).__name__}: {value!r:.100}")


def _objects(items: Sequence[Any]) -> np.ndarray:
    """An array of objects, also of those that NumPy would make a matrix of."""
    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = item
    return array
