"""Recovery of rows from a Parquet file without a footer, whose writer was killed.

A file has row groups with the pages of one column after the other. A page has a header in Thrift's
compact protocol, with its size and its number of values. Only the footer has the types and offsets
of columns. Therefore, pages are counted until each column has the same number of rows.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rlds.formats.lerobot.layout import LeRobotFeature
from rlds.raw_files.untrusted import SourceError
from rlds_ecosystem import import_extra
from tfds_files.wire import encode_varint

__all__ = ["finish_parquet"]

_MAGIC = b"PAR1"
# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 3, 4, 5, 6, 8, 9, 12

# A struct of Thrift: types and values, by field id. A list is a type and values.
_Struct = dict[int, tuple[int, Any]]

# The field ids of page headers, by type of page.
_TYPE, _SIZE, _DATA, _DICTIONARY, _DATA_2 = 1, 3, 5, 7, 8
_PAGE_HEADER_FIELDS = {0: _DATA, 2: _DICTIONARY, 3: _DATA_2}
# The encodings of writers: plain, run lengths, dictionary indices.
_ENCODINGS_LIST = (_I32, [0, 3, 8])
_SNAPPY = 1


class _Page(NamedTuple):
    start: int
    end: int
    is_dictionary: bool
    num_values: int


class _Column(NamedTuple):
    """A column of the file; each member of a struct is a column.

    Attributes:
      width: The number of values of a row; None if it varies.
      is_boolean: True for booleans, which have no dictionary.
    """

    width: int | None
    is_boolean: bool


class _Group(NamedTuple):
    num_rows: int
    columns: Sequence[range]  # The pages of each column.


def _leaves(kind: Any, width: int | None, shape: list[int]) -> list[_Column]:
    types = import_extra("pyarrow").types
    kind = getattr(kind, "storage_type", kind)
    if types.is_struct(kind):
        members = [kind.field(i).type for i in range(kind.num_fields)]
        return [leaf for member in members for leaf in _leaves(member, width, shape)]
    if types.is_fixed_size_list(kind):
        shape = [kind.list_size]
    elif not types.is_list(kind):
        return [_Column(width, types.is_boolean(kind))]
    size = shape[0] if shape else None
    return _leaves(kind.value_type, width and size and width * size, shape[1:])


def finish_parquet(
    data: bytes, path: Path, schema: Any, features: Mapping[str, LeRobotFeature]
) -> tuple[int, int]:
    """Writes a copy of a file, with a footer.

    Args:
      data: The bytes of the incomplete file.
      path: The file to write.
      schema: The Arrow schema of the columns.
      features: The features of `info.json`, with the lengths of lists.

    Returns:
      The number of rows, and the number of bytes after the last complete row group.

    Raises:
      SourceError: The file is not a Parquet file.
    """
    if not data.startswith(_MAGIC):
        raise SourceError("not a Parquet file", file=path)
    shapes = {name: list(feature.shape) for name, feature in features.items()}
    leaves = [leaf for f in schema for leaf in _leaves(f.type, 1, shapes.get(f.name, []))]
    pages = list(_pages(data))
    groups = list(_groups(pages, leaves))
    end = pages[groups[-1].columns[-1].stop - 1].end if groups else len(_MAGIC)
    footer, num_rows = _template(schema), sum(group.num_rows for group in groups)
    _, [group_template] = footer[4][1]
    _, chunks = group_template[1][1]
    entries = [_footer_entry(group, pages, chunks) for group in groups]
    footer[3], footer[4] = (_I64, num_rows), (_LIST, (_STRUCT, entries))
    packed_footer = _pack_struct(footer)
    path.write_bytes(data[:end] + packed_footer + struct.pack("<I", len(packed_footer)) + _MAGIC)
    return num_rows, len(data) - end


def _pages(data: bytes) -> Iterator[_Page]:
    """Yields the complete pages."""
    position, file = len(_MAGIC), io.BytesIO(data)
    while position < len(data):
        file.seek(position)
        try:
            header, start = _read_struct(file), file.tell()
            kinds = {name: header[name][0] for name in (_TYPE, _SIZE)}
            kind = header[_TYPE][1]
            num_values, end = header[_PAGE_HEADER_FIELDS[kind]][1][1][1], start + header[_SIZE][1]
        except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
            return
        if {*kinds.values()} != {_I32} or not start <= end <= len(data) or num_values < 0:
            return
        yield _Page(position, end, kind == 2, num_values)
        position = end


def _groups(pages: Sequence[_Page], leaves: Sequence[_Column]) -> Iterator[_Group]:
    """Yields the complete row groups."""
    start = 0
    while start < len(pages):
        total, group = 0, None
        for index in range(start + pages[start].is_dictionary, len(pages)):
            if pages[index].is_dictionary:
                break
            total += pages[index].num_values
            num_rows, remainder = divmod(total, leaves[0].width or 1)
            if not remainder:  # The next page continues a partial row.
                group = _group(pages, start, leaves, num_rows) or group
        if group is None:
            return
        yield group
        start = group.columns[-1].stop


def _group(
    pages: Sequence[_Page], start: int, leaves: Sequence[_Column], num_rows: int
) -> _Group | None:
    """Returns a row group of `num_rows` rows; None if the pages do not form it."""
    columns = []
    has_dictionaries = pages[start].is_dictionary or leaves[0].is_boolean
    for width, is_boolean in leaves:
        end, total = start, 0
        while end < len(pages) and (end == start or not pages[end].is_dictionary):
            if width is not None and total == num_rows * width and total:
                break
            total += 0 if pages[end].is_dictionary else pages[end].num_values
            end += 1
        expected = max(total, num_rows) if width is None else num_rows * width
        if total != expected or end == start:
            return None
        if has_dictionaries and pages[start].is_dictionary == is_boolean:
            return None
        columns.append(range(start, end))
        start = end
    return _Group(num_rows, columns)


def _template(schema: Any) -> _Struct:
    """Returns the footer of a file with the same columns and one row group."""
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    output = io.BytesIO()
    with parquet.ParquetWriter(output, schema, write_page_index=False) as writer:
        writer.write_batch(
            arrow.RecordBatch.from_arrays(
                [arrow.nulls(0, field.type) for field in schema], schema=schema
            )
        )
    size = int.from_bytes(output.getvalue()[-8:-4], "little")
    output.seek(-8 - size, io.SEEK_END)
    return _read_struct(output)


def _footer_entry(group: _Group, pages: Sequence[_Page], chunks: Sequence[_Struct]) -> _Struct:
    """Returns the footer entry of a row group."""
    columns, total = [], 0
    for span, chunk in zip(group.columns, chunks):
        first_page, size = pages[span.start], pages[span.stop - 1].end - pages[span.start].start
        data = [pages[n] for n in span if not pages[n].is_dictionary]
        metadata = {
            1: chunk[3][1][1],
            2: (_LIST, _ENCODINGS_LIST),
            3: chunk[3][1][3],
            4: (_I32, _SNAPPY),
            5: (_I64, sum(page.num_values for page in data)),
            6: (_I64, size),
            7: (_I64, size),
            9: (_I64, data[0].start),
        }
        if first_page.is_dictionary:
            metadata[11] = (_I64, first_page.start)
        columns.append({2: (_I64, 0), 3: (_STRUCT, metadata)})
        total += size
    return {1: (_LIST, (_STRUCT, columns)), 2: (_I64, total), 3: (_I64, group.num_rows)}


# --- Thrift


def _read_struct(file: BinaryIO) -> _Struct:
    """Reads a struct.

    Raises:
      IndexError: The struct is truncated.
      ValueError: The struct is invalid.
    """
    fields: _Struct = {}
    field_id = 0
    while kind := file.read(1)[0]:
        step, kind = divmod(kind, 16)
        field_id = field_id + step if step else _read_integer(file)
        is_flag = kind in (_TRUE, _FALSE)
        fields[field_id] = (kind, kind == _TRUE if is_flag else _read_value(file, kind))
    return fields


def _read_value(file: BinaryIO, kind: int) -> Any:
    if kind in (_TRUE, _FALSE, _BYTE):
        return file.read(1)[0]
    if kind in (_I16, _I32, _I64):
        return _read_integer(file)
    if kind == _BINARY:
        size = _read_varint(file)
        value = file.read(size)
        if len(value) < size:
            raise IndexError
        return value
    if kind == _LIST:
        size, item_type = divmod(file.read(1)[0], 16)
        size = _read_varint(file) if size == 15 else size
        return item_type, [_read_value(file, item_type) for _ in range(size)]
    if kind == _STRUCT:
        return _read_struct(file)
    raise ValueError(f"type {kind}")


def _read_varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)[0]
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise ValueError("a number without an end")


def _read_integer(file: BinaryIO) -> int:
    value = _read_varint(file)
    return value >> 1 ^ -(value & 1)


def _pack_struct(fields: _Struct) -> bytes:
    """Encodes a struct."""
    chunks, last_id = [], 0
    for field_id, (kind, value) in sorted(fields.items()):
        if kind in (_TRUE, _FALSE):
            kind = _TRUE if value else _FALSE
        is_short = 0 < field_id - last_id < 16
        chunks.append(bytes([(field_id - last_id) << 4 | kind if is_short else kind]))
        chunks += [] if is_short else [encode_varint(field_id << 1)]
        chunks += [] if kind in (_TRUE, _FALSE) else [_pack_value(kind, value)]
        last_id = field_id
    return b"".join([*chunks, b"\0"])


def _pack_value(kind: int, value: Any) -> bytes:
    if kind in (_TRUE, _FALSE, _BYTE):
        return bytes([value])
    if kind in (_I16, _I32, _I64):
        return encode_varint(value << 1 ^ value >> 63)
    if kind == _BINARY:
        return encode_varint(len(value)) + bytes(value)
    if kind == _STRUCT:
        return _pack_struct(value)
    item_type, values = value
    size = len(values)
    start = (
        bytes([size << 4 | item_type])
        if size < 15
        else bytes([15 << 4 | item_type]) + encode_varint(size)
    )
    return start + b"".join(_pack_value(item_type, item) for item in values)
