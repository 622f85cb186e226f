"""The tables of LeRobot datasets: Parquet files that both of its generations read.

The schema of a data file says in the metadata `huggingface` what its columns hold. Lists of fixed
length are called `Sequence` there: readers of version 2.1 know no other name for them, and those of
version 3.0 know this one, too.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlds.formats.lerobot import language
from rlds.formats.lerobot.parquet_rows import as_numpy
from rlds_ecosystem import import_extra

__all__ = [
    "TableFiles",
    "column_array",
    "data_schema",
    "image_array",
    "is_of_numbers",
    "list_of",
    "numbers_in",
    "size_of",
    "tasks_table",
    "with_items",
]

_MEGABYTE = 1 << 20
# Groups of rows are of several episodes: each takes time to write, and to begin to read.
_ROWS_OF_GROUP = 500
_TASK = "task"
# Additional bytes of an entry of variable length.
_OFFSET = 4


def data_schema(features: Mapping[str, Mapping[str, Any]]) -> Any:
    """Returns the schema of data files.

    Args:
      features: The features of `info.json`.
    """
    arrow = import_extra("pyarrow")
    fields, entries = [], {}
    for name, feature in features.items():
        if feature["dtype"] != "video":
            fields.append(arrow.field(name, _arrow_type(feature)))
            if feature["dtype"] != "language":  # LeRobot itself recognizes the type.
                entries[name] = _feature_of_datasets(feature)
    metadata = {"huggingface": json.dumps({"info": {"features": entries}})}
    return arrow.schema(fields, metadata)


def column_array(column: np.ndarray, arrow_type: Any) -> Any:
    """Returns a column of numbers or texts as an Arrow array."""
    arrow = import_extra("pyarrow")
    if column.dtype == object:
        return arrow.array(column.tolist(), arrow_type)
    array = arrow.array(np.ascontiguousarray(column).reshape(-1))
    types = [arrow_type]
    while arrow.types.is_nested(types[-1]):
        types.append(types[-1].value_type)
    for axis, kind in reversed([*enumerate(types[:-1], 1)]):
        if arrow.types.is_fixed_size_list(kind):
            array = arrow.FixedSizeListArray.from_arrays(array, type=kind)
        else:
            starts = np.arange(0, len(array) + 1, column.shape[axis], dtype=np.int32)
            array = arrow.ListArray.from_arrays(starts, array, type=kind)
    return array


def numbers_in(column: Any) -> np.ndarray:
    """Returns all numbers of a column of a table, flattened."""
    arrow = import_extra("pyarrow")
    array = column.combine_chunks() if isinstance(column, arrow.ChunkedArray) else column
    while arrow.types.is_nested(array.type):
        array = array.flatten()
    return as_numpy(array)


def list_of(dtype: np.dtype) -> Any:
    """Returns the type of a column of lists of numbers."""
    arrow = import_extra("pyarrow")
    return arrow.list_(arrow.from_numpy_dtype(dtype))


def with_items(arrow_type: Any) -> Any:
    """Returns a type whose lists name their elements `item`, as in Python; files do not."""
    arrow = import_extra("pyarrow")
    if not arrow.types.is_list(arrow_type):
        return arrow_type
    return arrow.list_(with_items(arrow_type.value_type))


def is_of_numbers(arrow_type: Any) -> bool:
    """Whether the values of a column are numbers, or lists of them."""
    types = import_extra("pyarrow").types
    while types.is_list(arrow_type) or types.is_fixed_size_list(arrow_type):
        arrow_type = arrow_type.value_type
    return bool(types.is_primitive(arrow_type))


def image_array(files: Sequence[bytes], paths: Sequence[str | None]) -> Any:
    """Returns a column of images as an Arrow array."""
    arrow = import_extra("pyarrow")
    columns = [arrow.array(files, arrow.binary()), arrow.array(paths, arrow.string())]
    return arrow.StructArray.from_arrays(columns, ["bytes", "path"])


def tasks_table(
    tasks: Sequence[str], numbers: Sequence[int] | None = None, name: str = _TASK
) -> Any:
    """Returns the table of tasks, as pandas would write it with their texts as the index.

    Args:
      tasks: The texts.
      numbers: Their numbers; from 0 on if None.
      name: The name of what they are.
    """
    arrow = import_extra("pyarrow")
    index, numbers = f"{name}_index", range(len(tasks)) if numbers is None else numbers
    table = arrow.table({index: arrow.array(numbers, arrow.int64()), name: list(tasks)})
    column = {"metadata": None, "numpy_type": "int64", "pandas_type": "int64"}
    text = {"metadata": None, "numpy_type": "object", "pandas_type": "unicode"}
    pandas = {
        "index_columns": [name],
        "column_indexes": [],
        "columns": [
            {"name": index, "field_name": index, **column},
            {"name": name, "field_name": name, **text},
        ],
        "creator": {"library": "pyarrow", "version": arrow.__version__},
        "pandas_version": "2.0.0",
    }
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})


def size_of(table: Any) -> int:
    """Returns the size of the values of a table in bytes, independent of the memory layout."""
    return sum(_size_of(array) for column in table.columns for array in column.chunks)


def _size_of(array: Any) -> int:
    arrow, compute = import_extra("pyarrow"), import_extra("pyarrow.compute")
    types, kind = arrow.types, array.type
    if (width := _width(kind)) is not None:
        return len(array) * width
    if types.is_struct(kind):
        return sum(map(_size_of, array.flatten()))
    if types.is_nested(kind):
        return _OFFSET * len(array) + _size_of(array.flatten())
    return _OFFSET * len(array) + (compute.sum(compute.binary_length(array)).as_py() or 0)


@functools.lru_cache
def _width(kind: Any) -> int | None:
    """Returns the bytes that each value of a type takes; None if values differ in size."""
    types = import_extra("pyarrow").types
    if types.is_boolean(kind) or types.is_null(kind):
        return 1
    if types.is_primitive(kind):
        return int(kind.byte_width)
    if not types.is_fixed_size_list(kind):
        return None
    width = _width(kind.value_type)
    return None if width is None else _OFFSET + int(kind.list_size) * width


class TableFiles:
    """Appends tables to Parquet files.

    Args:
      directory: The folder that `template` begins in.
      first: The number of the first file.
      template: Their names, by `chunk_index` and `file_index`.
      most_megabytes: The size limit of a file; a single table may be larger.
      files_per_chunk: The number of files in a chunk.
    """

    def __init__(
        self,
        directory: Path,
        first: int,
        template: str,
        *,
        most_megabytes: float,
        files_per_chunk: int,
    ) -> None:
        self._directory, self._template = directory, template
        self._max_bytes, self._per_chunk = most_megabytes * _MEGABYTE, files_per_chunk
        self._file, self._size = first - 1, 0
        self._writer: Any = None
        self._sink: Any = None
        self._waiting: list[Any] = []  # Tables that become the next group of rows.
        self._waiting_rows = self._waiting_bytes = 0

    @property
    def num_files(self) -> int:
        """The number of files, including those before the first one."""
        return self._file + 1

    def file_for(self, size: int) -> tuple[int, int]:
        """Returns the chunk and the file for a table of a size in bytes, see `size_of`."""
        if self._size + size >= self._max_bytes:
            self.close()
        return divmod(self._file + (self._writer is None), self._per_chunk)

    def plan(self, size: int, *_: Any) -> bool:
        """Places a table that is to be added later; returns whether it begins a file."""
        starts = not self._size or self._size + size >= self._max_bytes
        self._size = size + (0 if starts else self._size)
        return starts

    def add(self, table: Any, size: int) -> tuple[int, int]:
        """Writes a table of a size in bytes, see `size_of`; returns its chunk and its file."""
        return self.add_several(table, [table.num_rows], [size])

    def add_several(
        self, table: Any, lengths: Iterable[int], sizes: Iterable[int]
    ) -> tuple[int, int]:
        """Writes concatenated tables to one file, as if they were added one by one.

        Args:
          table: All of them.
          lengths: The number of rows of each.
          sizes: The size of each in bytes, see `size_of`.
        """
        begin = end = size = 0
        for length, num_bytes in zip(lengths, sizes):
            end, size = end + length, size + num_bytes
            if self._is_group(end - begin, size):
                location = self._add(table.slice(begin, end - begin), size)
                begin, size = end, 0
        return self._add(table.slice(begin), size) if begin < end else location

    def _is_group(self, num_rows: int, num_bytes: int) -> bool:
        """Whether so much more completes a group of rows."""
        has_many = self._waiting_rows + num_rows >= _ROWS_OF_GROUP
        return has_many or self._waiting_bytes + num_bytes >= _MEGABYTE

    def _add(self, table: Any, size: int) -> tuple[int, int]:
        arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
        chunk, file = self.file_for(size)
        if self._writer is None:
            name = self._template.format(chunk_index=chunk, file_index=file)
            path = self._directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = arrow.OSFile(str(path), "wb")
            self._writer = parquet.ParquetWriter(self._sink, table.schema, compression="snappy")
            self._file += 1
        self._waiting.append(table)
        self._size += size
        self._waiting_rows += table.num_rows
        self._waiting_bytes += size
        if self._is_group(0, 0):
            self._write_group()
        return chunk, file

    def _write_group(self) -> None:
        if self._waiting:
            # Combined, as chunks would change the file.
            table = import_extra("pyarrow").concat_tables(self._waiting).combine_chunks()
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        """Completes the file."""
        if self._writer is not None:
            try:
                self._write_group()
            finally:
                self._writer.close()
                self._sink.close()
        self._writer, self._size = None, 0


def _arrow_type(feature: Mapping[str, Any]) -> Any:
    arrow = import_extra("pyarrow")
    if feature["dtype"] == "image":
        return arrow.struct({"bytes": arrow.binary(), "path": arrow.string()})
    if feature["dtype"] == "language":
        return language.arrow_type()
    *outer, size = feature["shape"]
    is_text = feature["dtype"] == "string"
    kind = arrow.string() if is_text else arrow.from_numpy_dtype(feature["dtype"])
    if not outer:
        return kind if size == 1 else arrow.list_(kind, size)
    for _ in feature["shape"]:
        kind = arrow.list_(kind)
    return kind


def _feature_of_datasets(feature: Mapping[str, Any]) -> dict[str, Any]:
    dtype, shape = feature["dtype"], list(feature["shape"])
    if dtype == "image":
        return {"_type": "Image"}
    if len(shape) > 1:
        return {"shape": shape, "dtype": dtype, "_type": f"Array{len(shape)}D"}
    value = {"dtype": dtype, "_type": "Value"}
    return value if shape == [1] else {"feature": value, "length": shape[0], "_type": "Sequence"}
