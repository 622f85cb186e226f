"""Random access to the records of TFRecord, ArrayRecord and Parquet files of TFDS datasets.

A TFRecord file is a sequence of records; reading all headers gives their offsets:

| bytes | content |
|---|---|
| 8 | length of the data, little-endian |
| 4 | masked CRC-32C of the length |
| length | data |
| 4 | masked CRC-32C of the data |

An ArrayRecord file is a Riegeli file that ends with the positions of its chunks. A Parquet file has
the records in the column `data`.
"""

from __future__ import annotations

import abc
import bisect
import collections
import contextlib
import io
import itertools
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
from typing_extensions import override

import riegeli
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.forking import reset_in_forks
from tfds_files import wire
from tfds_files.errors import DamagedFileError, UnsupportedFileError

__all__ = [
    "FILE_FORMATS",
    "FOOTER",
    "HEADER",
    "RecordFile",
    "TFRecordWriter",
    "masked_checksum",
    "open_record_file",
    "record_length",
    "valid_records",
    "write_records",
]

# The maximum number of open files. A dataset may have thousands, and systems allow 1024.
_MAX_OPEN_FILES = 256
# Files of at most this many records keep their record offsets after closing.
_MAX_KEPT_OFFSETS = 4096
_recently_opened: collections.OrderedDict[int, weakref.ref[RecordFile]] = collections.OrderedDict()

# The structs before and after the data of a record in a TFRecord file.
HEADER, FOOTER = struct.Struct("<QI"), struct.Struct("<I")
_CRC_BLOCK_BYTES = 1 << 20
_RECORDS_PER_ROW_GROUP = 100
_GZIP_MAGIC = b"\x1f\x8b"


class RecordFile(abc.ABC):
    """The records of a file. Several threads may read at a time.

    Each process opens the file at its first read. Opening many other files closes it until
    the next read.

    Args:
      path: The file: a path or a URL.
    """

    def __init__(self, path: os.PathLike[str] | str) -> None:
        self.path = os.fspath(path)
        self._lock = threading.Lock()
        self._handle: Any = None
        self._finalizer: Callable[[], Any] = lambda: None
        reset_in_forks(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def __len__(self) -> int:
        with self._lock:
            return self._count_records(self._open())

    def read(self, index: int) -> bytes | bytearray:
        """Returns a record.

        Raises:
          IndexError: There is no such record.
          DamagedFileError: The record is damaged; the error says where.
          OSError: The file cannot be read.
        """
        with self._lock:
            handle = self._open()
            if not 0 <= index < self._count_records(handle):
                raise IndexError(f"{self.path}: record {index} of {self._count_records(handle)}")
            return self._read(handle, index)

    def size(self, index: int) -> int:
        """Returns the size of a record in bytes; raises the errors of `read`."""
        return len(self.read(index))

    def close(self) -> None:
        """Closes the file; reading opens it again."""
        with self._lock:
            self._finalizer()
            self._handle = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        RecordFile.__init__(self, state["path"])

    def _open(self) -> Any:
        if self._handle is None:
            self._handle = self._open_handle()
            # A finalizer: in a cycle of objects, the file may be deleted before this object, with a
            # warning.
            self._finalizer = weakref.finalize(self, type(self)._close, self._handle)
            _recently_opened[id(self)] = weakref.ref(self)
            while len(_recently_opened) > _MAX_OPEN_FILES:
                other = _recently_opened.popitem(last=False)[1]()
                if other is not None and other is not self:
                    other._close_if_idle()
        return self._handle

    def _close_if_idle(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._finalizer()
                self._handle = None
            finally:
                self._lock.release()

    def _reset(self) -> None:
        # The file itself is left open: a thread of the parent may have been reading it.
        if isinstance(self._finalizer, weakref.finalize) and self._finalizer.alive:
            _parent_files.append(self._finalizer.detach())
        self._lock, self._handle, self._finalizer = threading.Lock(), None, lambda: None

    def _damage_error(self, problem: str) -> DamagedFileError:
        return DamagedFileError(f"{self.path}: {problem}")

    @abc.abstractmethod
    def _open_handle(self) -> Any:
        """Opens the file, and determines the offsets of its records."""

    @abc.abstractmethod
    def _count_records(self, handle: Any) -> int: ...

    @abc.abstractmethod
    def _read(self, handle: Any, index: int) -> bytes | bytearray: ...

    @staticmethod
    @abc.abstractmethod
    def _close(handle: Any) -> None: ...


# Files that were open when this process was forked.
_parent_files: list[Any] = []


class _TFRecordFile(RecordFile):
    # The identity of a closed file, and its offsets: random reads of many files open each file
    # many times.
    _cache: tuple[object, np.ndarray] | None = None

    def _open_handle(self) -> tuple[BinaryIO, np.ndarray]:
        file = stores.open_binary(self.path)
        try:
            identity = _identity(file)
            if identity is not None and self._cache is not None and self._cache[0] == identity:
                return file, self._cache[1]
            offsets = np.array(list(self._find_offsets(file)), np.int64)
        except BaseException:
            file.close()
            raise
        self._cache = (identity, offsets) if len(offsets) <= _MAX_KEPT_OFFSETS else None
        return file, offsets

    def _find_offsets(self, file: BinaryIO) -> Any:
        """Yields the offsets of records, and finally the end of the file."""
        size, position = file.seek(0, os.SEEK_END), 0
        while position < size:
            file.seek(position)
            header = file.read(HEADER.size)
            length = record_length(self.path, header, position)
            yield position
            position += HEADER.size + length + FOOTER.size
            if position > size:
                raise self._damage_error(
                    f"the file ends within the record at byte {position - length - 16}"
                )
        yield position

    @override
    def size(self, index: int) -> int:
        with self._lock:
            begin, end = self._open()[1][index : index + 2]
        return int(end - begin) - HEADER.size - FOOTER.size

    def _count_records(self, handle: tuple[BinaryIO, np.ndarray]) -> int:
        return max(len(handle[1]) - 1, 0)

    def _read(self, handle: tuple[BinaryIO, np.ndarray], index: int) -> bytearray:
        file, offsets = handle
        begin = int(offsets[index]) + HEADER.size
        data = bytearray(int(offsets[index + 1]) - FOOTER.size - begin)
        file.seek(begin)
        view = memoryview(data)
        while view and (count := file.readinto(view)):  # type: ignore[attr-defined]
            view = view[count:]
        footer = file.read(FOOTER.size)
        if view or len(footer) < FOOTER.size:
            raise self._damage_error(f"record {index} was cut off while the file was open")
        if masked_checksum(data) != FOOTER.unpack(footer)[0]:
            raise self._damage_error(f"record {index} does not match its checksum")
        return data

    @staticmethod
    def _close(handle: tuple[BinaryIO, np.ndarray]) -> None:
        handle[0].close()


def _identity(file: BinaryIO) -> object:
    """Returns the identity of an open file: device, inode, size and time. None in a store."""
    try:
        stat = os.fstat(file.fileno())
    except (AttributeError, OSError):  # The file is in a store.
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


class TFRecordWriter:
    """Writes a TFRecord file, unbuffered: written records survive a killed process.

    Args:
      path: The file, on this machine; replaced if it exists.

    Raises:
      OSError: The file cannot be created.
    """

    def __init__(self, path: os.PathLike[str] | str) -> None:
        self._file = io.FileIO(path, "w")

    def write(self, record: bytes) -> None:
        """Appends a record.

        Raises:
          OSError: The record cannot be written completely.
        """
        size = len(record).to_bytes(8, "little")
        header = size + masked_checksum(size).to_bytes(4, "little")
        remaining = memoryview(header + record + FOOTER.pack(masked_checksum(record)))
        while remaining:
            remaining = remaining[self._file.write(remaining) :]

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def valid_records(path: os.PathLike[str] | str) -> Iterator[bytes]:
    """Yields the records of a TFRecord file up to the first damaged or incomplete one.

    Raises:
      OSError: The file cannot be read.
    """
    with contextlib.closing(stores.open_binary(path)) as file:
        remaining = file.seek(0, os.SEEK_END)
        file.seek(0)
        while remaining >= HEADER.size + FOOTER.size:
            length, crc = HEADER.unpack(head := file.read(HEADER.size))
            remaining -= HEADER.size + FOOTER.size + length
            if remaining < 0 or masked_checksum(head[:8]) != crc:
                return
            record = file.read(length)
            if FOOTER.unpack(file.read(FOOTER.size))[0] != masked_checksum(record):
                return
            yield record


def write_records(path: os.PathLike[str] | str, file_format: str, records: Iterable[bytes]) -> None:
    """Writes a file of records, on this machine.

    Args:
      path: The file; replaced if it exists.
      file_format: "tfrecord", "parquet", or "array_record", with one record in a chunk, as TFDS
        writes them.
      records: The records.

    Raises:
      UnsupportedFileError: There is no such format, or writing it is not supported.
      OSError: The file cannot be written.
    """
    writer: Any
    if file_format == "tfrecord":
        writer = TFRecordWriter(path)
    elif file_format == "parquet":
        writer = _ParquetWriter(path)
    elif file_format == "array_record":
        library = import_extra("array_record.python.array_record_module")
        writer = library.ArrayRecordWriter(os.fspath(path), "group_size:1")
    else:
        raise UnsupportedFileError(f"cannot write files in the format {file_format!r}")
    with contextlib.closing(writer):
        for record in records:
            writer.write(record)


class _ParquetWriter:
    """Writes a Parquet file with the column `data`, in row groups of 100 records."""

    def __init__(self, path: os.PathLike[str] | str) -> None:
        self._arrow = import_extra("pyarrow")
        self._schema = self._arrow.schema([self._arrow.field("data", self._arrow.binary())])
        parquet = import_extra("pyarrow.parquet")
        self._writer = parquet.ParquetWriter(os.fspath(path), self._schema)
        self._records: list[bytes] = []

    def write(self, record: bytes) -> None:
        self._records.append(record)
        if len(self._records) == _RECORDS_PER_ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        table = self._arrow.table({"data": self._records}, schema=self._schema)
        self._writer.write_table(table)
        self._records = []

    def close(self) -> None:
        self._flush()
        self._writer.close()


def record_length(path: str, header: bytes, position: int) -> int:
    """Returns the length of the data of a record of a TFRecord file, from its header.

    Args:
      path: The file.
      header: The bytes at the position.
      position: The byte offset of the record.

    Raises:
      DamagedFileError: The bytes are not a header.
      UnsupportedFileError: The file is compressed.
    """
    if len(header) == HEADER.size:
        length, crc = HEADER.unpack(header)
        if masked_checksum(header[:8]) == crc:
            return int(length)
    if position == 0 and header.startswith(_GZIP_MAGIC):
        raise UnsupportedFileError(
            f"{path}: the whole file is compressed, so records cannot be read in any order; "
            "decompress it with gunzip"
        )
    raise DamagedFileError(f"{path}: no record begins at byte {position}")


def masked_checksum(data: bytes | bytearray | memoryview) -> int:
    """Returns the masked CRC-32C of bytes, as in TFRecord files."""
    if isinstance(data, bytes):
        crc = int(google_crc32c.value(data))
    else:  # The library needs `bytes`: other buffers are copied in blocks.
        crc, view = 0, memoryview(data)
        for begin in range(0, len(view), _CRC_BLOCK_BYTES):
            crc = int(google_crc32c.extend(crc, bytes(view[begin : begin + _CRC_BLOCK_BYTES])))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# The last block holds a proto with the position of the footer and a magic number; the footer holds
# a proto for each chunk. These are field numbers of the protos.
_BLOCK_SIZE = 1 << 16
_ARRAY_RECORD_MAGIC = 0x71930E704FDAE05E
_FOOTER_POSITION, _MAGIC = 1, 2
_CHUNK_POSITION, _CHUNK_COUNT = 1, 3


class _ArrayRecordFile(RecordFile):
    """An ArrayRecord file, with checks: its library trusts the file, and crashes on damage."""

    def _open_handle(self) -> tuple[riegeli.RecordReader, list[int], list[int]]:
        reader = riegeli.RecordReader(self.path)
        try:
            return reader, *self._read_chunks(reader)
        except BaseException as e:
            _close_reader(reader)
            if isinstance(e, riegeli.RiegeliError | wire.WireError):
                raise self._damage_error(f"not an ArrayRecord file, or a damaged one: {e}") from e
            raise

    def _read_chunks(self, reader: riegeli.RecordReader) -> tuple[list[int], list[int]]:
        """Returns the starts of the chunks of records, and the cumulative numbers of records."""
        size = reader.size()
        reader.seek_numeric(max(size - _BLOCK_SIZE, 0))
        end = _read_varints(reader.read_record() or b"")
        if size % _BLOCK_SIZE or end.get(_MAGIC) != _ARRAY_RECORD_MAGIC:
            raise self._damage_error("the end of the file is missing: it was cut off")
        reader.seek_numeric(end.get(_FOOTER_POSITION, 0))
        reader.read_record()  # The metadata of the file.
        chunk_starts, counts = [], []
        while (record := reader.read_record()) is not None and reader.last_pos.chunk_begin < (
            size - _BLOCK_SIZE
        ):
            chunk = _read_varints(record)
            chunk_starts.append(chunk.get(_CHUNK_POSITION, 0))
            counts.append(chunk.get(_CHUNK_COUNT, 0))
        return chunk_starts, list(itertools.accumulate(counts))

    def _count_records(self, handle: tuple[riegeli.RecordReader, list[int], list[int]]) -> int:
        return handle[2][-1] if handle[2] else 0

    def _read(self, handle: tuple[riegeli.RecordReader, list[int], list[int]], index: int) -> bytes:
        reader, chunk_starts, end_indices = handle
        chunk = bisect.bisect_right(end_indices, index)
        first_index = end_indices[chunk - 1] if chunk else 0
        try:
            reader.seek_numeric(chunk_starts[chunk] + index - first_index)
            record = reader.read_record()
        except riegeli.RiegeliError as e:
            self._handle = None  # A failed reader reads no other records.
            self._finalizer()
            raise self._damage_error(f"record {index} is damaged: {e}") from e
        if record is None or reader.last_pos.chunk_begin != chunk_starts[chunk]:
            raise self._damage_error(f"record {index} is not at the offset in the footer")
        return record

    @staticmethod
    def _close(handle: tuple[riegeli.RecordReader, list[int], list[int]]) -> None:
        _close_reader(handle[0])


def _close_reader(reader: riegeli.RecordReader) -> None:
    with contextlib.suppress(riegeli.RiegeliError):  # The error was raised before.
        reader.close()


def _read_varints(message: bytes) -> dict[int, int]:
    """Returns the varints of a message, by field number."""
    return {
        field: wire.read_varint(message, begin, end)[0]
        for field, wire_type, begin, end in wire.fields_of(message, 0, len(message))
        if wire_type == wire.VARINT
    }


class _ParquetFile(RecordFile):
    def _open_handle(self) -> list[Any]:
        parquet = import_extra("pyarrow.parquet")
        with stores.on_disk(self.path) as copy:
            try:
                file = parquet.ParquetFile(copy)
                counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            except (FileNotFoundError, PermissionError):
                raise
            except Exception as e:  # Arrow raises any error for a damaged file.
                raise self._damage_error(f"not a readable Parquet file: {e}") from e
        return [file, list(itertools.accumulate(counts)), None, None]

    def _count_records(self, handle: list[Any]) -> int:
        return int(handle[1][-1]) if handle[1] else 0

    def _read(self, handle: list[Any], index: int) -> bytes:
        file, end_indices, last_group, rows = handle
        group = bisect.bisect_right(end_indices, index)
        if group != last_group:
            try:
                rows = file.read_row_group(group, columns=["data"]).column(0)
            except Exception as e:  # Arrow raises any error for a damaged file.
                raise self._damage_error(f"the rows of group {group} cannot be read: {e}") from e
            handle[2:] = group, rows
        record = rows[index - (end_indices[group - 1] if group else 0)].as_py()
        if not isinstance(record, bytes):
            raise self._damage_error(f"record {index} is {type(record).__name__}, expected bytes")
        return record

    @staticmethod
    def _close(handle: list[Any]) -> None:
        handle[0].close()


_CLASS_OF_FORMAT: dict[str, type[RecordFile]] = {
    "tfrecord": _TFRecordFile,
    "array_record": _ArrayRecordFile,
    "parquet": _ParquetFile,
}

FILE_FORMATS = tuple(_CLASS_OF_FORMAT)
"""The supported formats of shards, as in `dataset_info.json`."""


def open_record_file(path: os.PathLike[str] | str, file_format: str) -> RecordFile:
    """Returns the records of a file.

    Args:
      path: The file: a path or a URL.
      file_format: One of `FILE_FORMATS`.

    Raises:
      UnsupportedFileError: There is no such format.
    """
    if file_format not in _CLASS_OF_FORMAT:
        raise UnsupportedFileError(
            f"{os.fspath(path)}: unsupported file format {file_format!r}, expected one of "
            f"{', '.join(FILE_FORMATS)}; tensorflow_datasets may read it"
        )
    return _CLASS_OF_FORMAT[file_format](path)
