"""The files of TFDS datasets, as the bytes of their examples."""

from __future__ import annotations

import re
from collections.abc import Iterator

import tensorflow_datasets as tfds
from etils import epath

import riegeli
from rlds_ecosystem import import_extra, stores
from tfds_builders.tfrecord_files import TFRecordReader
from tfds_builders.untrusted import SourceError, source_errors

__all__ = ["read_examples"]


def read_examples(path: epath.Path, file_format: tfds.core.FileFormat) -> Iterator[bytes]:
    """Yields the examples of a file of a dataset, as bytes.

    Raises:
      SourceError: The file is damaged.
    """
    if file_format == tfds.core.FileFormat.TFRECORD:
        with TFRecordReader(path, path.name) as reader:
            while (example := reader.read()) is not None:
                yield example
        return
    # The libraries know other stores, or none.
    with source_errors(path), stores.on_disk(path) as copy:
        yield from _READERS[file_format](copy)


# The last record of a file of ArrayRecord, in a block of its own: where its footer begins, and a
# number that says what it is. They are the fields 1 and 2 of a proto.
_ARRAY_RECORD_END = re.compile(
    rb"\x08([\x80-\xff]{0,8}[\0-\x7f])\x10\xde\xc0\xeb\xfe\x84\xce\xc3\xc9q.*", re.S
)
_BLOCK = 1 << 16


def _array_records(path: str) -> Iterator[bytes]:
    """Reads a file of ArrayRecord for what it is, a file of Riegeli.

    Its own library believes all that the file says, and dies of a damaged one.
    """
    with riegeli.RecordReader(path) as reader:
        size = reader.size()
        reader.seek_numeric(max(size - _BLOCK, 0))
        end = _ARRAY_RECORD_END.fullmatch(reader.read_record() or b"")
        if end is None or size % _BLOCK:
            raise SourceError("the end of the file is missing: it was cut", file=path)
        footer = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(end[1]))
        reader.seek_numeric(0)
        for record in reader.read_records():
            if reader.last_pos.chunk_begin >= footer:
                return
            yield record


def _parquet_rows(path: str) -> Iterator[bytes]:
    with import_extra("pyarrow.parquet").ParquetFile(path) as file:
        for batch in file.iter_batches(1, columns=["data"]):
            yield from batch.column(0).to_pylist()


_READERS = {
    tfds.core.FileFormat.ARRAY_RECORD: _array_records,
    tfds.core.FileFormat.PARQUET: _parquet_rows,
}
