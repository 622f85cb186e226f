"""The files of TFDS datasets, as the bytes of their examples."""

from __future__ import annotations

import os
from collections.abc import Iterator

import tensorflow_datasets as tfds
from etils import epath

from rlds_ecosystem import import_extra
from tfds_builders.source import SourceError
from tfds_builders.tfrecord_files import TFRecordReader

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
    try:
        yield from _READERS[file_format](os.fspath(path))
    except Exception as error:  # Whatever the library raises for a file that is damaged.
        raise SourceError(f"cannot be read as {file_format.value}: {error}", file=path) from error


def _array_records(path: str) -> Iterator[bytes]:
    reader = import_extra("array_record.python.array_record_module").ArrayRecordReader(path)
    try:
        for index in range(reader.num_records()):
            yield from reader.read([index])
    finally:
        reader.close()


def _parquet_rows(path: str) -> Iterator[bytes]:
    with import_extra("pyarrow.parquet").ParquetFile(path) as file:
        for batch in file.iter_batches(1, columns=["data"]):
            yield from batch.column(0).to_pylist()


_READERS = {
    tfds.core.FileFormat.ARRAY_RECORD: _array_records,
    tfds.core.FileFormat.PARQUET: _parquet_rows,
}
