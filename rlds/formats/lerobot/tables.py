"""The Parquet tables of LeRobot datasets, for versions 2.1 and 3.0.

The metadata `huggingface` in the schema of a data file describes its columns. The metadata calls
lists of fixed length `Sequence`, a name that both versions support.
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
    "data_schema",
    "flatten_column",
    "image_array",
    "is_numeric",
    "list_type",
    "name_items",
    "table_bytes",
    "tasks_table",
    "to_arrow",
]

_MEGABYTE = 1 << 20
# The minimum rows of a row group, as each group costs time on writing and on reading.
_MIN_GROUP_ROWS = 500
_TASK = "task"
# The size of the offset of a value of variable length, in bytes.
_OFFSET_BYTES = 4


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
            if feature["dtype"] != "language":  # LeRobot recognizes the Arrow type.
                entries[name] = _feature_of_datasets(feature)
    return arrow.schema(fields, {"huggingface": json.dumps({"info": {"features": entries}})})


def to_arrow(column: np.ndarray, arrow_type: Any) -> Any:
    """Converts a column of numbers or texts to an Arrow array."""
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
            offsets = np.arange(0, len(array) + 1, column.shape[axis], dtype=np.int32)
            array = arrow.ListArray.from_arrays(offsets, array, type=kind)
    return array


def flatten_column(column: Any) -> np.ndarray:
    """Flattens the numbers of a column of a table."""
    arrow = import_extra("pyarrow")
    array = column.combine_chunks() if isinstance(column, arrow.ChunkedArray) else column
    while arrow.types.is_nested(array.type):
        array = array.flatten()
    return as_numpy(array)


def list_type(dtype: np.dtype) -> Any:
    """Returns the type of a column of lists of numbers."""
    arrow = import_extra("pyarrow")
    return arrow.list_(arrow.from_numpy_dtype(dtype))


def name_items(arrow_type: Any) -> Any:
    """Renames the elements of list types to `item`, the default of pyarrow."""
    arrow = import_extra("pyarrow")
    if not arrow.types.is_list(arrow_type):
        return arrow_type
    return arrow.list_(name_items(arrow_type.value_type))


def is_numeric(arrow_type: Any) -> bool:
    """Returns True if the values of a column are numbers, or nested lists of numbers."""
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
    tasks: Sequence[str], indices: Sequence[int] | None = None, name: str = _TASK
) -> Any:
    """Returns the table of tasks, in the form of pandas with the texts as index.

    Args:
      tasks: The texts.
      indices: The indices of the tasks; by default, 0, 1, ....
      name: The name of the column of texts.
    """
    arrow = import_extra("pyarrow")
    index, indices = f"{name}_index", range(len(tasks)) if indices is None else indices
    table = arrow.table({index: arrow.array(indices, arrow.int64()), name: list(tasks)})
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


def table_bytes(table: Any) -> int:
    """Returns the size of the values of a table in bytes, independent of the memory layout."""
    return sum(_array_bytes(array) for column in table.columns for array in column.chunks)


def _array_bytes(array: Any) -> int:
    arrow, compute = import_extra("pyarrow"), import_extra("pyarrow.compute")
    types, kind = arrow.types, array.type
    if (width := _width(kind)) is not None:
        return len(array) * width
    if types.is_struct(kind):
        return sum(map(_array_bytes, array.flatten()))
    if types.is_nested(kind):
        return _OFFSET_BYTES * len(array) + _array_bytes(array.flatten())
    return _OFFSET_BYTES * len(array) + (compute.sum(compute.binary_length(array)).as_py() or 0)


@functools.lru_cache
def _width(kind: Any) -> int | None:
    """Returns the size of a value of an Arrow type in bytes; None for a variable size."""
    types = import_extra("pyarrow").types
    if types.is_boolean(kind) or types.is_null(kind):
        return 1
    if types.is_primitive(kind):
        return int(kind.byte_width)
    if not types.is_fixed_size_list(kind):
        return None
    width = _width(kind.value_type)
    return None if width is None else _OFFSET_BYTES + int(kind.list_size) * width


class TableFiles:
    """The writer of tables to the numbered Parquet files of a LeRobot dataset.

    Args:
      directory: The folder of the dataset.
      first: The index of the first file.
      template: The template of file names, with `chunk_index` and `file_index`.
      max_megabytes_per_file: The size limit of a file; a single table may be larger.
      files_per_chunk: The number of files in a chunk.
    """

    def __init__(
        self,
        directory: Path,
        first: int,
        template: str,
        *,
        max_megabytes_per_file: float,
        files_per_chunk: int,
    ) -> None:
        self._directory, self._template = directory, template
        self._max_bytes, self._per_chunk = max_megabytes_per_file * _MEGABYTE, files_per_chunk
        self._file, self._size = first - 1, 0
        self._writer: Any = None
        self._sink: Any = None
        self._pending: list[Any] = []  # Tables of the next row group.
        self._pending_rows = self._pending_bytes = 0

    @property
    def num_files(self) -> int:
        """The number of files, including existing files before the first one."""
        return self._file + 1

    def file_for(self, size: int) -> tuple[int, int]:
        """Returns the chunk and the file for a table of a size in bytes, see `table_bytes`."""
        if self._size + size >= self._max_bytes:
            self.close()
        return divmod(self._file + (self._writer is None), self._per_chunk)

    def plan(self, size: int, *_: Any) -> bool:
        """Plans the file of the next table; returns True if the table begins a file."""
        is_new_file = not self._size or self._size + size >= self._max_bytes
        self._size = size + (0 if is_new_file else self._size)
        return is_new_file

    def add(self, table: Any, size: int) -> tuple[int, int]:
        """Writes a table of a size in bytes, see `table_bytes`; returns its chunk and its file."""
        return self.add_several(table, [table.num_rows], [size])

    def add_several(
        self, table: Any, lengths: Iterable[int], sizes: Iterable[int]
    ) -> tuple[int, int]:
        """Writes concatenated tables to one file, equivalent to a call of `add` for each table.

        Args:
          table: The concatenated tables.
          lengths: The number of rows of each table.
          sizes: The size of each table in bytes, see `table_bytes`.
        """
        start = end = size = 0
        for length, num_bytes in zip(lengths, sizes):
            end, size = end + length, size + num_bytes
            if self._is_full_group(end - start, size):
                location = self._add(table.slice(start, end - start), size)
                start, size = end, 0
        return self._add(table.slice(start), size) if start < end else location

    def _is_full_group(self, num_rows: int, num_bytes: int) -> bool:
        """Returns True if further rows and bytes complete a row group."""
        has_many = self._pending_rows + num_rows >= _MIN_GROUP_ROWS
        return has_many or self._pending_bytes + num_bytes >= _MEGABYTE

    def _add(self, table: Any, size: int) -> tuple[int, int]:
        arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
        chunk, file = self.file_for(size)
        if self._writer is None:
            path = self._directory / self._template.format(chunk_index=chunk, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = arrow.OSFile(str(path), "wb")
            self._writer = parquet.ParquetWriter(self._sink, table.schema, compression="snappy")
            self._file += 1
        self._pending.append(table)
        self._size += size
        self._pending_rows += table.num_rows
        self._pending_bytes += size
        if self._is_full_group(0, 0):
            self._write_group()
        return chunk, file

    def _write_group(self) -> None:
        if self._pending:
            # Chunks would change the bytes of the file.
            table = import_extra("pyarrow").concat_tables(self._pending).combine_chunks()
            self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
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
