"""Access to arrays in files of several kinds (HDF5, NPZ, CSV, Parquet, images) by name."""

from __future__ import annotations

import contextlib
import csv
import fnmatch
import functools
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

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
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field

__all__ = ["KINDS", "Arrays", "FileArray", "is_image", "list_files", "list_groups", "open_arrays"]

_NUMBER_TYPES = (
    (re.compile(r"[+-]?[0-9]+\Z"), np.int64),
    (re.compile(r"[+-]?([0-9.]+([eE][+-]?[0-9]+)?|nan|inf|NaN|Inf)\Z"), np.float64),
)
_BOOLS = {"true": True, "false": False, "True": True, "False": False}


class FileArray(NamedTuple):
    """An array of a file.

    Attributes:
      length: The number of rows; None for a single value, which is read as a row.
      field: A function that returns the field of a row.
      rows: A function that reads the rows from a first row to an end.
      is_column: True for a column of a table, which has a row for each step.
    """

    length: int | None
    field: Callable[[], Field]
    rows: Callable[[int, int], np.ndarray]
    is_column: bool = False


class Arrays(dict[str, FileArray]):
    """The arrays of a file, of a group of a file, or of a folder, by name.

    Args:
      path: The file or the folder.
      arrays: The arrays.
    """

    def __init__(self, path: str, arrays: Mapping[str, FileArray]) -> None:
        super().__init__(arrays)
        self.path = path

    def value(self, name: str) -> Any:
        """Reads a complete array."""
        length = self[name].length
        return self[name].rows(0, 1)[0] if length is None else self[name].rows(0, length)

    def error(self, problem: str, name: str | None = None, row: int | None = None) -> SourceError:
        """Returns an error about an array."""
        return SourceError(problem, file=self.path, field=name, row=row)


def open_arrays(path: str, group: str = "", patterns: Iterable[str] = ()) -> Arrays:
    """Opens the arrays of a file or of a folder.

    The arrays of a folder are `FILE/ARRAY`, and patterns of images, such as `rgb/*.png`.

    Args:
      path: The file or the folder.
      group: A group of an HDF5 file.
      patterns: Further patterns of images in a folder.

    Raises:
      SourceError: The file is damaged, or of an unsupported kind.
    """
    kind = os.path.splitext(path)[1]
    if group:
        return Arrays(path, _hdf5(path, group))
    if kind in KINDS:
        return Arrays(path, KINDS[kind](path))
    if stores.as_path(path).is_dir():
        return Arrays(path, _folder(path, patterns))
    raise SourceError(f"a file of another kind than {', '.join(KINDS)}", file=path)


def list_groups(path: str, pattern: str) -> list[str]:
    """Returns the groups of an HDF5 file whose paths match a pattern, in natural order."""
    file = Hdf5File(path)
    with file.read() as root:
        paths = [name for name, item in file.items(root) if hasattr(item, "keys")]
    depth = pattern.count("/")
    groups = (name for name in paths if name.count("/") == depth)
    return sorted(fnmatch.filter([*groups], pattern), key=natural_order)


def list_files(folder: str) -> list[str]:
    """Returns the files with arrays in a folder, and the images in it and one level below."""
    names = []
    for entry in stores.list_directory(folder):
        check_link(path := os.path.join(folder, entry.name))
        if entry.name.startswith("."):
            continue
        if os.path.splitext(entry.name)[1] in KINDS or is_image(entry.name):
            names.append(entry.name)
        elif entry.is_dir:
            images = [item.name for item in stores.list_directory(path) if is_image(item.name)]
            names += [f"{entry.name}/{name}" for name in images]
    return sorted(names, key=natural_order)


def is_image(name: str) -> bool:
    """Returns True if a file is an image, by its name."""
    return name.lower().endswith((".png", ".jpg", ".jpeg"))


# --- Kinds of files.


def _npz(path: str) -> dict[str, FileArray]:
    file = NpzRows(path)
    arrays = {}
    for name, array in file.arrays.items():
        kind = {"U": str, "S": bytes}.get(array.dtype.kind, array.dtype)
        rows = functools.partial(file.rows, name)
        field = functools.partial(_detect_image, Field(kind, array.shape[1:]), rows)
        arrays[name] = FileArray(None if name in file.scalars else array.shape[0], field, rows)
    return arrays


def _hdf5(path: str, group: str = "") -> dict[str, FileArray]:
    file = Hdf5File(path)

    @contextlib.contextmanager
    def open_group() -> Iterator[EpisodeGroup]:
        with file.read() as item:
            for name in filter(None, group.split("/")):
                item = file.member(item, name, group)
            yield EpisodeGroup(file, item)

    @functools.cache
    def field(name: str) -> Field:
        with open_group() as episode:
            return episode.value_field(name) if lengths[name] is None else episode.field(name)

    def rows(name: str, start: int, end: int) -> np.ndarray:
        expected = field(name)
        with open_group() as episode:
            if lengths[name] is not None:
                return episode.rows(name, expected, slice(start, end))
            value = episode.value(name)
            return np.array([value], object if isinstance(value, str | bytes) else None)

    with open_group() as episode:
        lengths = {name: episode.num_rows(name) for name in episode.arrays}
    partial = functools.partial
    return {
        name: FileArray(length, partial(field, name), partial(rows, name))
        for name, length in lengths.items()
    }


def _csv(path: str) -> dict[str, FileArray]:
    check_is_file(path)
    with source_errors(path):
        text = io.StringIO(stores.as_path(path).read_bytes().decode("utf-8-sig"), newline="")
        names, *lines = [*csv.reader(text, skipinitialspace=True)] or [[]]
    names = [name.strip() for name in names]
    if not names or len({*names}) < len(names) or not all(names):
        problem = f"the names of columns are {names}, expected different ones"
        raise SourceError(problem, file=path, row=0)
    for row, line in enumerate(lines):
        if line and len(line) != len(names):
            problem = f"{len(line)} values, but the first line has {len(names)} names"
            raise SourceError(problem, file=path, row=row)
    lines = [*filter(None, lines)]
    return {
        name: _column(functools.partial(_parse, path, name, [*texts]), len(lines))
        for name, texts in zip(names, zip(*lines) if lines else [()] * len(names))
    }


def _parse(path: str, name: str, texts: list[str]) -> np.ndarray:
    """Converts a text column of a CSV file to numbers or bools, if all values can be converted."""
    values = [text.strip() for text in texts]
    unique_values = {*values}
    is_number = _NUMBER_TYPES[1][0].match
    if "" in unique_values and len(unique_values) > 1 and all(map(is_number, unique_values - {""})):
        row = values.index("")
        raise SourceError("no value, expected a number", file=path, field=name, row=row)
    for pattern, dtype in _NUMBER_TYPES:
        if unique_values and all(map(pattern.match, unique_values)):
            with source_errors(path, field=name):
                return np.array([dtype(text) for text in values], dtype)
    if unique_values and unique_values <= _BOOLS.keys():
        return np.array([_BOOLS[text] for text in values])
    return objects(texts)


def _parquet(path: str) -> dict[str, FileArray]:
    check_is_file(path)
    size = int(stores.as_path(path).stat().length)
    with _parquet_file(path) as file:
        metadata = file.metadata
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        declared_size = sum(group.total_byte_size for group in groups)
        if declared_size > trusted_bytes(size):
            problem = f"{declared_size:,} bytes are declared in a file of {size:,} bytes"
            raise SourceError(problem, file=path)
        names, length = file.schema_arrow.names, metadata.num_rows
    return {name: _column(functools.partial(_read_parquet, path, name), length) for name in names}


def _read_parquet(path: str, name: str) -> np.ndarray:
    types = import_extra("pyarrow").types
    with _parquet_file(path) as file, source_errors(path, field=name):
        column = file.read([name])[name].combine_chunks()
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
            column = column.field("bytes")  # An image in the form of the library datasets.
        return as_rows(column)


@contextlib.contextmanager
def _parquet_file(path: str) -> Iterator[Any]:
    parquet = import_extra("pyarrow.parquet")
    with source_errors(path), stores.open_binary(path) as stream:
        yield parquet.ParquetFile(stream)


def _folder(path: str, patterns: Iterable[str]) -> dict[str, FileArray]:
    arrays: dict[str, FileArray] = {}
    images: dict[str, list[str]] = {}
    for name in list_files(path):
        if is_image(name):
            folder, kind = name.rpartition("/")[0], os.path.splitext(name)[1]
            images.setdefault(f"{folder}/*{kind}" if folder else f"*{kind}", []).append(name)
        else:
            columns = open_arrays(os.path.join(path, name)).items()
            arrays |= {f"{name}/{column}": array for column, array in columns}
    image_names = sorted((name for names in images.values() for name in names), key=natural_order)
    for pattern in {*patterns} - images.keys():
        if "*" in pattern and (matches := fnmatch.filter(image_names, pattern)):
            images[pattern] = matches
    for pattern, names in images.items():
        arrays[pattern] = _images([os.path.join(path, name) for name in names])
    return arrays


def _images(paths: list[str]) -> FileArray:
    def rows(start: int, end: int) -> np.ndarray:
        for path in paths[start:end]:
            check_is_file(path)
        return objects([stores.as_path(path).read_bytes() for path in paths[start:end]])

    def field() -> Field:
        with source_errors(paths[0]):
            return image_field(rows(0, 1)[0])

    return FileArray(len(paths), field, rows)


KINDS: Mapping[str, Callable[[str], dict[str, FileArray]]] = {
    ".npz": _npz,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""Readers of files, by suffix."""


def _column(read: Callable[[], np.ndarray], length: int) -> FileArray:
    """Returns a column of a table, which is read completely and cached."""
    column = functools.cache(read)

    def rows(start: int, end: int) -> np.ndarray:
        return column()[start:end]

    def field() -> Field:
        values = column()
        is_bytes = values.dtype == object and values.size and isinstance(values.flat[0], bytes)
        kind = (bytes if is_bytes else str) if values.dtype == object else values.dtype
        return _detect_image(Field(kind, values.shape[1:]), rows)

    return FileArray(length, field, rows, is_column=True)


def _detect_image(field: Field, rows: Callable[[int, int], np.ndarray]) -> Field:
    """Returns the field of images, if the values of a bytes field are image files."""
    if np.dtype(field.dtype) != np.dtype(bytes) or field.shape or not len(first := rows(0, 1)):
        return field
    return image_field(first[0]) if is_image_file(first[0]) else field
