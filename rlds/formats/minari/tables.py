"""Minari episodes in directories of Arrow or Parquet files: a table for each episode."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import override

from rlds.formats.minari.attributes import ID
from rlds.formats.minari.spaces import LeafSpace, Spaces, tuple_name
from rlds.formats.minari.storage import (
    ACTIONS,
    REWARDS,
    SCALARS,
    TERMINATIONS,
    TRUNCATIONS,
    EpisodeStorage,
    RawEpisode,
    StoredColumn,
    Structure,
)
from rlds.raw_files.untrusted import check_is_file
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.whole_files import link
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import nest, root_of

__all__ = ["TableStorage", "copy_table", "write_table"]

_METADATA = "metadata.json"
# Columns whose last row is padding: all columns of a table have the same length.
_PADDED_COLUMNS = (ACTIONS, REWARDS, TERMINATIONS, TRUNCATIONS)


class TableStorage(EpisodeStorage):
    """The directories of tables of a dataset."""

    def __init__(self, directory: pathlib.Path, spaces: Spaces, data_format: str) -> None:
        super().__init__(directory, spaces)
        self._format = data_format

    @override
    def files(self) -> list[pathlib.Path]:
        directories = [self._directory / str(index) for index in self.indices()]
        tables = [file for path in directories for file in sorted(path.glob(f"*.{self._format}"))]
        return [*tables, *(path / _METADATA for path in directories)]

    @override
    def path(self, index: int) -> str:
        return f"data/{index}/part-0.{self._format}"

    @override
    def indices(self) -> list[int]:
        directories = [path for path in self._directory.iterdir() if path.is_dir()]
        return sorted(int(path.name) for path in directories if path.name.isdecimal())

    @override
    def structure(self, index: int) -> Structure:
        columns, attributes = self.read(index, None, slice(0))
        return {path: column.field for path, column in columns.items()}, attributes

    @override
    def read(self, index: int, paths: Collection[str] | None, rows: slice) -> RawEpisode:
        arrow = import_extra("pyarrow")
        file = self._directory.parent / self.path(index)
        for path in (file, file.parent / _METADATA):
            if path.exists():  # Opening a missing file raises the error.
                check_is_file(path)
        try:
            with file.open("rb") as stream:
                table = self._table(stream, paths, is_empty=rows == slice(0))
            attributes = json.loads((file.parent / _METADATA).read_text())
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise self.error(f"cannot be read: {error}", index) from error
        if not isinstance(attributes, dict):
            raise self.error(f"{_METADATA} is not a JSON object", index)
        columns: dict[str, StoredColumn] = {}
        for field in table.schema:
            array = table[field.name].combine_chunks()
            if field.name in _PADDED_COLUMNS:
                array = array.slice(0, max(len(array) - 1, 0))
            if field.name not in SCALARS:
                array = array[rows]
            for name, child_field, child in self._flatten(array, field, field.name):
                if paths is None or name in paths:
                    columns[name] = self._column(child, child_field, name, index)
        return RawEpisode(columns, attributes)

    def _table(self, file: Any, paths: Collection[str] | None, *, is_empty: bool) -> Any:
        """Reads a table with all columns that contain requested paths."""
        roots = None if paths is None else {root_of(path) for path in paths}
        if self._format == "parquet":
            parquet = import_extra("pyarrow.parquet").ParquetFile(file)
            names = [n for n in parquet.schema_arrow.names if roots is None or n in roots]
            if is_empty:
                return parquet.schema_arrow.empty_table().select(names)
            return parquet.read(names)
        ipc = import_extra("pyarrow.ipc")
        schema = ipc.open_file(file).schema
        included = [i for i, n in enumerate(schema.names) if roots is None or n in roots]
        if is_empty:
            return schema.empty_table().select(included)
        return ipc.open_file(file, options=ipc.IpcReadOptions(included_fields=included)).read_all()

    def _flatten(self, array: Any, field: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
        """Yields the nested fields of an Arrow field: paths, fields and arrays."""
        if not import_extra("pyarrow").types.is_struct(array.type):
            yield path, field, array
            return
        is_tuple = path in self._spaces.tuples
        for child, child_field in zip(array.flatten(), array.type):
            name = tuple_name(child_field.name) if is_tuple else child_field.name
            yield from self._flatten(child, child_field, f"{path}/{name}")

    def _column(self, array: Any, arrow_field: Any, path: str, index: int) -> StoredColumn:
        types = import_extra("pyarrow").types
        self._check_no_null(array, 1, index, path)
        leaf = self._spaces.leaves.get(path)
        if types.is_string(array.type) or types.is_large_string(array.type):
            return StoredColumn(Field(str), objects(array.to_pylist()))
        if types.is_binary(array.type) or types.is_large_binary(array.type):
            field = leaf.jpeg_field if leaf is not None and leaf.is_image else Field(bytes)
            return StoredColumn(field, objects(array.to_pylist()))
        if types.is_fixed_size_list(array.type) and _is_number(array.type.value_type):
            size, num_rows = array.type.list_size, len(array)
            shape = _row_shape(size, leaf, arrow_field)
            array = array.flatten()
            self._check_no_null(array, size, index, path)
            if math.prod(shape) != size:
                raise self.error(f"{size} values in a row, expected shape {shape}", index, path)
            values = array.to_numpy(zero_copy_only=False).reshape(num_rows, *shape)
        elif _is_number(array.type):
            values = array.to_numpy(zero_copy_only=False)
        else:
            raise self.error(f"cannot read values of the Arrow type {array.type}", index, path)
        return StoredColumn(Field(values.dtype, values.shape[1:]), values)

    def _check_no_null(self, array: Any, width: int, index: int, path: str) -> None:
        if array.null_count:
            row = array.is_null().to_pylist().index(True) // width
            raise self.error("no value", index, path, row)


def _is_number(arrow_type: Any) -> bool:
    types = import_extra("pyarrow").types
    return bool(types.is_primitive(arrow_type) and not types.is_temporal(arrow_type))


def _row_shape(size: int, leaf: LeafSpace | None, field: Any) -> tuple[int, ...]:
    if leaf is not None:
        return leaf.shape
    shape = (field.metadata or {}).get(b"shape")
    if shape is None:
        return (size,)
    return tuple(int(length) for length in shape.split(b",") if length)


# Minari reads at most this number of rows of an episode from Parquet files.
_MAX_PARQUET_ROWS = 131_072


def write_table(
    directory: pathlib.Path, spaces: Spaces, data_format: str, index: int, episode: RawEpisode
) -> None:
    """Writes an episode; see `Writer`."""
    arrow = import_extra("pyarrow")
    columns = nest(episode.columns)
    fields = [_field(name, child, name, spaces) for name, child in columns.items()]
    table = arrow.Table.from_arrays(
        [array for array, _ in fields], schema=arrow.schema([field for _, field in fields])
    )
    folder = directory / str(index)
    folder.mkdir()
    file = folder / f"part-0.{data_format}"
    if data_format == "parquet":
        if len(table) > _MAX_PARQUET_ROWS:
            raise ValueError(
                f"{len(table)} rows, but Minari reads at most {_MAX_PARQUET_ROWS} rows of an "
                "episode from Parquet files; use another data_format"
            )
        import_extra("pyarrow.parquet").write_table(table, file)
    else:
        with import_extra("pyarrow.ipc").new_file(file, table.schema) as writer:
            writer.write_table(table)
    (folder / _METADATA).write_text(json.dumps(episode.attributes, default=_to_json))


def copy_table(folder: epath.Path, directory: pathlib.Path, index: int) -> None:
    """Copies a stored episode under a new index."""
    target = directory / str(index)
    target.mkdir()
    for file in folder.iterdir():
        if file.name == _METADATA:
            (target / _METADATA).write_text(json.dumps({**json.loads(file.read_text()), ID: index}))
        else:
            link(file, target / file.name)


def _field(name: str, node: Any, path: str, spaces: Spaces) -> tuple[Any, Any]:
    """Converts a column, or a dict of columns, to an Arrow array and its field."""
    arrow = import_extra("pyarrow")
    if path.rpartition("/")[0] in spaces.tuples:
        name = name.removeprefix(tuple_name(""))
    if isinstance(node, Mapping):
        children = [_field(key, child, f"{path}/{key}", spaces) for key, child in node.items()]
        fields = [field for _, field in children]
        array = arrow.StructArray.from_arrays([array for array, _ in children], fields=fields)
        return array, arrow.field(name, array.type)
    pad = root_of(path) in _PADDED_COLUMNS
    values = node.values
    if node.field.is_text or node.field.encoding:
        array = arrow.array(
            [*values.tolist(), *([None] * pad)],
            type=arrow.string() if node.field.dtype == str else arrow.binary(),
        )
        return array, arrow.field(name, array.type)
    try:
        element = arrow.from_numpy_dtype(values.dtype)
    except arrow.ArrowNotImplementedError as error:
        raise ValueError(f"{path}: Arrow cannot hold {values.dtype}") from error
    values = np.pad(values, [(0, pad), *([(0, 0)] * (values.ndim - 1))])
    leaf = spaces.leaves.get(path)
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
