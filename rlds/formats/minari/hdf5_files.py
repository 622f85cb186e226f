"""Episodes of Minari in one HDF5 file: a group for each."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlds.formats.minari.spaces import Spaces
from rlds.formats.minari.storage import Column, Kind, RawEpisode, Storage, StorageWriter, objects
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.input_files import changed
from rlds.raw_files.untrusted import Budget, SourceChangedError, SourceError, source_errors
from rlds.sources.source import require_files
from rlds_ecosystem import import_extra

__all__ = ["Hdf5Storage", "Hdf5Writer"]

_FILE = "main_data.hdf5"
_EPISODE = "episode_"
_OPTIONS = "options"
_NUMBERS = "biufc"
# How many bytes of what is known of episodes are kept, about; how many types, and paths of groups.
_MOST_KEPT, _MAX_TYPES = 64 << 20, 1000
# Values that nobody can write to.
_SINGLE = (np.generic, str, bytes, bool, int, float)


class Hdf5Storage(Storage):
    """Reads the file.

    Opening what is in it, asking what it is, and checking that it is in the file at all takes most
    of the time. What `structures` finds out is kept, in bounded memory and for
    this process alone; values until they are read once. It holds as long as the file is the same
    one, which `Hdf5File` sees to.
    """

    _types: dict[bytes, _Type]
    _group_paths: set[str]
    _columns: dict[tuple[_Array, ...], Mapping[str, Column]]
    _known: dict[int, _Known]
    _values: dict[int, dict[str, Column]]
    _room: int

    def __init__(self, directory: pathlib.Path, spaces: Spaces, *, follow_links: bool) -> None:
        super().__init__(directory, spaces)
        require_files(directory / _FILE)
        self._file = Hdf5File(directory / _FILE, follow_links=follow_links, whole_arrays=True)
        self.__dict__.update(_nothing_known())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **_nothing_known()}

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

    def structures(self, indices: Sequence[int]) -> Iterator[RawEpisode | SourceError]:
        """See `Storage`. What is found is kept for those who read it."""
        with self:
            for index in indices:
                try:
                    yield self._structure(index)
                except SourceChangedError:
                    raise
                except SourceError as error:
                    yield error

    def _structure(self, index: int) -> RawEpisode:
        with self._reading(index) as opened:
            group = self._group(opened, index)
            empty: list[str] = []
            found: list[_Array] = []
            values: dict[str, Column] = {}
            room = self._room // 2  # What is kept with the values takes room as well.
            for part, array in self._look(group, index, empty):
                found.append(part)
                room -= part.num_bytes
                if part.type.is_number and room >= 0:  # Others may be of any length.
                    values[part.path] = part.read(array)
            parts = tuple(found)
            raw = RawEpisode(self._without_rows(parts), self._attributes(group, index), empty)
        self._keep(index, parts, raw, values)
        return raw

    def read(
        self,
        index: int,
        wanted: Collection[str] | None = None,
        rows: slice = slice(None),
    ) -> RawEpisode:
        """See `Storage`.

        Args:
          index: Which episode.
          wanted: The paths of the columns that are needed; all by default.
          rows: Which rows of them are needed.
        """
        columns: dict[str, Column] = {}
        found: Iterator[tuple[_Array, Any]]
        empty: list[str]
        kept: dict[str, Column] = {}
        with self._reading(index) as opened:
            known = self._known.get(index)
            if known is None:
                group, empty = self._group(opened, index), []
                attributes = self._attributes(group, index)
                found = self._look(group, index, empty)
            else:  # It was checked when it was found, and the file is still the same.
                empty, attributes = list(known.empty), dict(known.attributes)
                kept = self._values.get(index, kept)
                found = ((part, None) for part in known.parts)
            path = None
            try:
                for part, array in found:
                    path = part.path
                    if wanted is not None and path not in wanted:
                        continue
                    if path in kept and rows == slice(None):
                        columns[path] = kept.pop(path)  # Whoever gets it may write to it.
                        continue
                    array = self._opened_again(opened, index, part) if array is None else array
                    columns[path] = part.read(array, rows)
            except Exception as error:
                with source_errors(self._place(index), episode=index, field=path):
                    raise error
            return RawEpisode(columns, attributes, empty)

    def _opened_again(self, opened: Any, index: int, part: _Array) -> Any:
        array = import_extra("h5py").h5d.open(opened.id, _name(index) + b"/" + part.name)
        if array.shape != part.shape:  # Its values would be written beyond the room for them.
            raise changed(self._file.path)
        return array

    def _place(self, index: int) -> pathlib.Path:
        return self._directory.parent / self.place(index)

    @contextlib.contextmanager
    def _reading(self, index: int) -> Iterator[Any]:
        with self._file.read() as opened:
            try:
                yield opened
            except Exception as error:
                with source_errors(self._place(index), episode=index):
                    raise error

    def _group(self, opened: Any, index: int) -> Any:
        h5py = import_extra("h5py")
        group = self._file.open(opened.id, _name(index), self.place(index))
        if not isinstance(group, h5py.h5g.GroupID):
            raise self.error("an array, expected a group", index)
        return group

    def _look(self, group: Any, index: int, empty: list[str]) -> Iterator[tuple[_Array, Any]]:
        """Yields the arrays of an episode, checked and open. Adds the groups that are empty."""
        h5py = import_extra("h5py")
        budget = self._file.budget()
        path = ""

        def visit(group: Any, prefix: bytes, depth: int) -> Iterator[tuple[_Array, Any]]:
            nonlocal path
            links = self._file.links(group)
            if not links and prefix:
                empty.append(prefix[:-1].decode(errors="surrogateescape"))
            for name, link_type in links:
                full_name = prefix + name
                path = full_name.decode(errors="surrogateescape")
                budget.enter(depth, path)
                is_group = path in self._group_paths
                node = self._file.open(
                    group, name, path, link_type=link_type, maybe_array=not is_group
                )
                if isinstance(node, h5py.h5d.DatasetID):
                    yield self._array(node, full_name, path, index, budget), node
                else:
                    if len(self._group_paths) < _MAX_TYPES:
                        self._group_paths.add(path)
                    yield from visit(node, full_name + b"/", depth + 1)

        try:
            yield from visit(group, b"", 1)
        except Exception as error:
            with source_errors(self._place(index), episode=index, field=path):
                raise error

    def _array(self, array: Any, name: bytes, path: str, index: int, budget: Budget) -> _Array:
        type_, shape = self._type(array.get_type()), array.shape
        leaf = self._spaces.leaves.get(path)
        if not shape:
            raise self.error("a single value, expected one for each step", index, path)
        dtype, string = type_.dtype, type_.string
        is_image = leaf is not None and leaf.is_image
        # Where all images have as many bytes, they are the rows of a matrix.
        is_jpeg = is_image and (type_.is_vlen or (dtype == np.uint8 and len(shape) == 2))
        if not is_jpeg and string is None and not type_.is_number:
            raise self.error(f"values of the HDF5 type {dtype} are not known", index, path)
        chunk = self._file.check_place(array, path)
        # Also where only the structure is asked for: other episodes get rows of this shape.
        budget.take((math.prod(shape) + chunk) * dtype.itemsize, path)
        kind: Kind = "numbers" if string is None else "bytes"
        if is_jpeg:
            kind = "jpeg"
        elif string is not None and string.encoding == "utf-8" and string.length is None:
            kind = "text"
        return _Array(path, name, kind, type_, shape)

    def _attributes(self, group: Any, index: int) -> dict[str, Any]:
        h5py = import_extra("h5py")
        attributes = {name: self._attribute(group, name, index) for name in h5py.Group(group).attrs}
        return _nested_options(attributes)

    def _attribute(self, group: Any, name: str, index: int) -> Any:
        h5py = import_extra("h5py")
        attribute = h5py.h5a.open(group, name.encode())
        type_ = self._type(attribute.get_type())
        if type_.is_number and type_.dtype.kind != "c" and attribute.shape == ():
            value = np.empty((), type_.dtype)
            attribute.read(value, type_.in_memory)
            return value[()]
        found = h5py.Group(group).attrs[name]
        if isinstance(found, h5py.Empty):
            raise self.error("an attribute without a value", index, name)
        return found

    def _type(self, found: Any) -> _Type:
        """Returns what a `TypeID` is; asking for its dtype each time takes longer."""
        encoded = found.encode()
        known = self._types.get(encoded)
        if known is None:
            if len(self._types) >= _MAX_TYPES:
                self._types.clear()
            known = self._types[encoded] = _Type.of(found)
        return known

    # --- What is known of episodes.

    def _without_rows(self, parts: tuple[_Array, ...]) -> Mapping[str, Column]:
        """Returns columns without rows: the same object for the same arrays."""
        columns = self._columns.get(parts)
        if columns is None:
            if len(self._columns) >= _MAX_TYPES:
                self._columns.clear()
            columns = {part.path: part.column(part.no_values()) for part in parts}
            self._columns[parts] = columns
        return columns

    def _keep(
        self,
        index: int,
        parts: tuple[_Array, ...],
        raw: RawEpisode,
        columns: dict[str, Column],
    ) -> None:
        """Keeps what was found of an episode, as long as there is room."""
        # A link may lead to another file at any time. Arrays could be written to.
        values = raw.attributes.values()
        if self._file.follow_links or not all(isinstance(value, _SINGLE) for value in values):
            return
        cost = 1000 + 200 * (len(parts) + len(values)) + sum(map(sys.getsizeof, values))
        cost += sum(part.num_bytes + 200 for part in parts if part.path in columns)
        if cost <= self._room:
            self._room -= cost
            self._known[index] = _Known(parts, raw.empty, raw.attributes)
            self._values[index] = columns


@dataclasses.dataclass(frozen=True, eq=False)
class _Type:
    """A type of HDF5.

    Attributes:
      dtype: What NumPy makes of it.
      in_memory: The type of HDF5 for that; None if h5py has to choose it.
      is_vlen: Whether each value is an array of its own length.
      string: What h5py says of strings; None for other values.
    """

    dtype: np.dtype
    in_memory: Any
    is_vlen: bool
    string: Any

    @classmethod
    def of(cls, found: Any) -> _Type:
        """Returns what a `TypeID` is."""
        h5py = import_extra("h5py")
        dtype = found.dtype
        in_memory = h5py.h5t.py_create(dtype) if dtype.kind in _NUMBERS else None
        is_vlen = h5py.check_vlen_dtype(dtype) is not None
        return cls(dtype, in_memory, is_vlen, h5py.check_string_dtype(dtype))

    @property
    def is_number(self) -> bool:
        """Whether it is a type of numbers."""
        return self.in_memory is not None


class _Array(NamedTuple):
    """An array of an episode: its path, also as HDF5 has it, and what it holds."""

    path: str
    name: bytes
    kind: Kind
    type: _Type
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """How many bytes its values take; without those of varying length."""
        return math.prod(self.shape) * self.type.dtype.itemsize

    def no_values(self) -> np.ndarray:
        """Returns no row."""
        return np.empty((0, *self.shape[1:]), self.type.dtype)

    def read(self, array: Any, rows: slice = slice(None)) -> Column:
        """Returns all values, or those of some rows, of its `DatasetID`."""
        h5py = import_extra("h5py")
        if rows != slice(None):
            return self.column(np.asarray(h5py.Dataset(array, readonly=True)[rows]))
        if not self.type.is_number or 0 in self.shape:
            return self.column(np.asarray(h5py.Dataset(array, readonly=True)[()]))
        values = np.empty(self.shape, self.type.dtype)
        array.read(h5py.h5s.ALL, h5py.h5s.ALL, values, self.type.in_memory)
        return self.column(values)

    def column(self, values: np.ndarray) -> Column:
        """Returns values as they are in a `Column`."""
        if self.kind == "jpeg":
            return Column("jpeg", objects([image.tobytes() for image in values]))
        if self.kind == "text":
            texts = objects([text.decode() for text in values.flat])
            return Column("text", texts.reshape(values.shape))
        return Column(self.kind, values)


class _Known(NamedTuple):
    """What was found of an episode, and checked."""

    parts: tuple[_Array, ...]
    empty: Sequence[str]
    attributes: Mapping[str, Any]


def _nothing_known() -> dict[str, Any]:
    known: dict[str, Any] = {"_types": {}, "_columns": {}, "_known": {}, "_values": {}}
    return {**known, "_group_paths": set(), "_room": _MOST_KEPT}


def _name(index: int) -> bytes:
    return f"{_EPISODE}{index}".encode()


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
