"""Arrays in files of several kinds, read in the same way: rows of a name."""

from __future__ import annotations

import abc
import contextlib
import csv
import fnmatch
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.raw_files.arrow_columns import as_rows
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_episodes import EpisodeGroup
from rlds.raw_files.image_files import image_field, is_image_file
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.npz_files import NpzRows
from rlds.raw_files.untrusted import (
    SourceError,
    check_is_file,
    check_link,
    source_errors,
    trusted_bytes,
)
from rlds_ecosystem import import_extra, stores
from rlds_ecosystem.model.fields import Field

__all__ = ["IMAGES", "KINDS", "Arrays", "FolderArrays", "groups_in", "open_arrays"]

IMAGES = (".png", ".jpg", ".jpeg")
"""The ends of the names of images."""

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_NUMBER = re.compile(r"[+-]?([0-9.]+([eE][+-]?[0-9]+)?|nan|inf|NaN|Inf)\Z")
_BOOLS = {"true": True, "false": False, "True": True, "False": False}


class Arrays(abc.ABC):
    """Arrays of a file, of a group in it, or of a folder.

    Attributes:
      path: The file or the folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @abc.abstractmethod
    def lengths(self) -> Mapping[str, int | None]:
        """Returns the number of rows of each array; None for a single value."""

    @abc.abstractmethod
    def field(self, name: str) -> Field:
        """Returns what a row of an array holds."""

    @abc.abstractmethod
    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Reads rows of an array."""

    def value(self, name: str) -> Any:
        """Reads an array as a whole."""
        length = self.lengths()[name]
        found = self.rows(name, 0, 1 if length is None else length)
        return found[0] if length is None else found

    def is_column(self, name: str) -> bool:
        """Whether an array is a column of a table, which has a row for each step."""
        return isinstance(self, _Csv | _Parquet) and name in self.lengths()

    def files(self) -> list[str]:
        """Returns the files that are read."""
        return [self.path]

    def error(self, what: str, name: str | None = None, row: int | None = None) -> SourceError:
        """Returns an error about an array."""
        return SourceError(what, file=self.path, field=name, row=row)


class _Npz(Arrays):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._rows = NpzRows(path)

    @override
    def lengths(self) -> Mapping[str, int | None]:
        scalars, arrays = self._rows.scalars, self._rows.arrays.items()
        return {name: None if name in scalars else array.shape[0] for name, array in arrays}

    @override
    def field(self, name: str) -> Field:
        array = self._rows.arrays[name]
        return _image_or(
            Field({"U": str, "S": bytes}.get(array.dtype.kind, array.dtype), array.shape[1:]),
            lambda: self.rows(name, 0, 1)[0],
        )

    @override
    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        return self._rows.rows(name, begin, end)


class _Hdf5(Arrays):
    def __init__(self, path: str, group: str = "") -> None:
        super().__init__(path)
        self._file, self._group = Hdf5File(path), group
        with self._opened() as found:
            self._lengths = {name: found.num_rows(name) for name in found.arrays}

    def _opened(self) -> Any:
        return _group(self._file, self._group)

    @override
    def lengths(self) -> Mapping[str, int | None]:
        return self._lengths

    @override
    def field(self, name: str) -> Field:
        with self._opened() as found:
            return found.field(name) if self._lengths[name] is not None else found.value_field(name)

    @override
    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        with self._opened() as found:
            if self._lengths[name] is None:
                value = np.empty(1, object)
                value[0] = found.value(name)
                return value if isinstance(value[0], str | bytes) else np.asarray([value[0]])
            return found.rows(name, found.field(name), slice(begin, end))


class _Csv(Arrays):
    """A table in text, with a line of names."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._parsed: dict[str, np.ndarray] = {}
        check_is_file(path)
        with source_errors(path):
            text = stores.as_path(path).read_bytes().decode("utf-8-sig")
            lines = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
            self._columns = dict(self._read_lines(lines))

    def _read_lines(self, lines: Iterator[list[str]]) -> Iterator[tuple[str, list[str]]]:
        names = [name.strip() for name in next(lines, [])]
        if not names or len({*names}) < len(names) or not all(names):
            raise self.error(f"the names of columns are {names}, expected different ones", row=0)
        table = []
        for number, line in enumerate(lines):
            if line and len(line) != len(names):
                what = f"{len(line)} values, but the first line has {len(names)} names"
                raise self.error(what, row=number)
            table += [line] if line else []
        for number, name in enumerate(names):
            yield name, [line[number] for line in table]

    @override
    def lengths(self) -> Mapping[str, int | None]:
        return {name: len(values) for name, values in self._columns.items()}

    def _column(self, name: str) -> np.ndarray:
        if name not in self._parsed:
            self._parsed[name] = self._parse(name)
        return self._parsed[name]

    def _parse(self, name: str) -> np.ndarray:
        texts = [text.strip() for text in self._columns[name]]
        if "" in texts and any(texts) and all(not text or _NUMBER.match(text) for text in texts):
            raise self.error("no value, expected a number", name, texts.index(""))
        for is_kind, dtype in ((_INTEGER.match, np.int64), (_NUMBER.match, np.float64)):
            if texts and all(map(is_kind, texts)):
                with source_errors(self.path, field=name):
                    return np.array([dtype(text) for text in texts], dtype)
        if texts and all(text in _BOOLS for text in texts):
            return np.array([_BOOLS[text] for text in texts])
        return np.array([*self._columns[name], None], object)[:-1]

    @override
    def field(self, name: str) -> Field:
        column = self._column(name)
        return Field(str if column.dtype == object else column.dtype)

    @override
    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        return self._column(name)[begin:end]


class _Parquet(Arrays):
    """A Parquet file. Columns are read as a whole, and kept."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._read: dict[str, np.ndarray] = {}
        check_is_file(path)
        size = int(stores.as_path(path).stat().length)
        with self._opened() as file:
            metadata = file.metadata
            groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
            declared = sum(group.total_byte_size for group in groups)
            if declared > trusted_bytes(size):
                raise self.error(f"{declared:,} bytes are declared in a file of {size:,} bytes")
            self._lengths = dict.fromkeys(file.schema_arrow.names, metadata.num_rows)

    def _opened(self) -> Any:
        return _parquet(self.path)

    @override
    def lengths(self) -> Mapping[str, int | None]:
        return self._lengths

    def _column(self, name: str) -> np.ndarray:
        if name not in self._read:
            self._read[name] = self._read_column(name)
        return self._read[name]

    def _read_column(self, name: str) -> np.ndarray:
        types = import_extra("pyarrow").types
        with self._opened() as file, source_errors(self.path, field=name):
            column = file.read([name])[name].combine_chunks()
            if types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
                column = column.field("bytes")  # An image of the library datasets.
            return as_rows(column)

    @override
    def field(self, name: str) -> Field:
        column = self._column(name)
        is_bytes = column.dtype == object and column.size and isinstance(column.flat[0], bytes)
        kind = (bytes if is_bytes else str) if column.dtype == object else column.dtype
        return _image_or(Field(kind, column.shape[1:]), lambda: column.flat[0])

    @override
    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        return self._column(name)[begin:end]


class FolderArrays(Arrays):
    """The arrays of the files in a folder: `FILE/ARRAY`; a pattern such as `rgb/*.png` is one, too.

    Args:
      path: The folder.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        names = [entry.name for entry in stores.list_directory(stores.as_path(path))]
        self._tables: dict[str, Arrays | None] = {}
        self._images: dict[str, list[str]] = {}
        for name in sorted(names, key=natural_order):
            if name.startswith("."):
                continue
            place = os.path.join(path, name)
            check_link(place)
            if os.path.splitext(name)[1] in KINDS:
                self._tables[name] = None
            elif name.lower().endswith(IMAGES):
                self._images.setdefault(f"*{os.path.splitext(name)[1]}", []).append(name)
            elif stores.as_path(place).is_dir():
                below = stores.list_directory(stores.as_path(place))
                for file in sorted([str(entry.name) for entry in below], key=natural_order):
                    check_link(os.path.join(place, file))
                    if file.lower().endswith(IMAGES):
                        pattern = f"{name}/*{os.path.splitext(file)[1]}"
                        self._images.setdefault(pattern, []).append(f"{name}/{file}")

    def match(self, pattern: str) -> None:
        """Adds the images whose names match a pattern."""
        if pattern not in self.lengths() and "*" in pattern:
            every = [name for names in self._images.values() for name in names]
            ordered = sorted(every, key=natural_order)
            if found := fnmatch.filter(ordered, pattern):
                self._images[pattern] = found

    @override
    def lengths(self) -> Mapping[str, int | None]:
        tables = {
            f"{file}/{name}": length
            for file in self._tables
            for name, length in self._table(file).lengths().items()
        }
        return {**tables, **{name: len(files) for name, files in self._images.items()}}

    def _table(self, file: str) -> Arrays:
        """Returns a table, which stays open."""
        table = self._tables[file]
        if table is None:
            table = self._tables[file] = open_arrays(os.path.join(self.path, file))
        return table

    def _in_table(self, name: str) -> tuple[Arrays, str]:
        file, _, column = name.partition("/")
        return self._table(file), column

    @override
    def field(self, name: str) -> Field:
        if name not in self._images:
            table, column = self._in_table(name)
            return table.field(column)
        with source_errors(os.path.join(self.path, self._images[name][0])):
            return image_field(self.rows(name, 0, 1)[0])

    @override
    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        if name not in self._images:
            table, column = self._in_table(name)
            return table.rows(column, begin, end)
        places = [os.path.join(self.path, file) for file in self._images[name][begin:end]]
        for place in places:
            check_is_file(place)
        files = [stores.as_path(place).read_bytes() for place in places]
        return np.array([*files, None], object)[:-1]

    @override
    def is_column(self, name: str) -> bool:
        return name not in self._images and self._in_table(name)[0].is_column(
            name.partition("/")[2]
        )

    @override
    def files(self) -> list[str]:
        images = {name for names in self._images.values() for name in names}
        paths = [os.path.join(self.path, name) for name in sorted(images, key=natural_order)]
        return [*(os.path.join(self.path, name) for name in self._tables), *paths]


KINDS: Mapping[str, Callable[[str], Arrays]] = {
    ".npz": _Npz,
    ".h5": _Hdf5,
    ".hdf5": _Hdf5,
    ".csv": _Csv,
    ".parquet": _Parquet,
}
"""Readers of files, by the ends of their names."""


def open_arrays(path: str, group: str = "") -> Arrays:
    """Opens the arrays of a file or of a folder.

    Args:
      path: The file or the folder.
      group: A group of an HDF5 file.

    Raises:
      SourceError: It is damaged, or of no kind that a layout can describe.
    """
    if group:
        return _Hdf5(path, group)
    kind = os.path.splitext(path)[1]
    if kind in KINDS:
        return KINDS[kind](path)
    if stores.as_path(path).is_dir():
        return FolderArrays(path)
    raise SourceError(f"a file of another kind than {', '.join(KINDS)}", file=path)


def groups_in(path: str, pattern: str) -> list[str]:
    """Returns the groups of an HDF5 file whose paths match a pattern, in natural order."""
    file = Hdf5File(path)
    with file.read() as opened:
        paths = [name for name, item in file.items(opened) if hasattr(item, "keys")]
    depth = pattern.count("/")
    found = (name for name in paths if name.count("/") == depth)
    return sorted(fnmatch.filter([*found], pattern), key=natural_order)


def _image_or(field: Field, first: Callable[[], Any]) -> Field:
    """Returns the field of images, if strings of bytes are files of images."""
    if np.dtype(field.dtype) != np.dtype(bytes) or field.shape:
        return field
    value = first()
    return image_field(value) if is_image_file(value) else field


@contextlib.contextmanager
def _group(file: Hdf5File, group: str) -> Iterator[EpisodeGroup]:
    with file.read() as opened:
        item = opened
        for name in filter(None, group.split("/")):
            item = file.member(item, name, group)
        yield EpisodeGroup(file, item)


@contextlib.contextmanager
def _parquet(path: str) -> Iterator[Any]:
    parquet = import_extra("pyarrow.parquet")
    with source_errors(path), stores.open_binary(path) as stream:
        yield parquet.ParquetFile(stream)
