"""The files of TFDS datasets, as the bytes of their examples."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from etils import epath

from rlds.raw_files.tfrecord_files import TFRecordReader
from rlds.raw_files.untrusted import source_errors
from rlds_ecosystem.files import stores
from tfds_files import open_record_file

__all__ = ["read_examples"]


def read_examples(path: epath.Path, file_format: str) -> Iterator[bytes]:
    """Yields the examples of a file of a dataset, as bytes.

    Args:
      path: The file.
      file_format: One of `tfds_files.FILE_FORMATS`.

    Raises:
      SourceError: The file is damaged.
    """
    if file_format == "tfrecord":
        with TFRecordReader(path, path.name) as reader:
            while (example := reader.read()) is not None:
                yield example
        return
    with source_errors(path), stores.on_disk(path) as copy:
        with contextlib.closing(open_record_file(copy, file_format)) as file:
            yield from (bytes(file.read(index)) for index in range(len(file)))
