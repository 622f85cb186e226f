"""Sequential reads of untrusted TFRecord files, with all checks, without TensorFlow.

A TFRecord file is a sequence of records, see `tfds_files.record_files`, either uncompressed or
compressed by gzip. `tfds_files` reads records in any order; this reader reads from front to end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from etils import epath

from rlds.raw_files.byte_streams import GZIP_MAGIC, ByteStream
from rlds.raw_files.untrusted import SourceError, check_is_file, source_errors
from rlds_ecosystem.files import stores
from tfds_files import open_record_file
from tfds_files.record_files import FOOTER, HEADER, masked_checksum

__all__ = ["TFRecordReader", "read_examples"]


class TFRecordReader(contextlib.AbstractContextManager["TFRecordReader"]):
    """Reads the records of a file in order.

    Args:
      file: The file, which may be compressed.
      name: The name of the file in errors.

    Attributes:
      index: The index of the record that `read` returns next.
      ended: True at the end, or after damage that hides the beginning of the next record.
    """

    def __init__(self, file: epath.Path, name: str) -> None:
        self.index = 0
        self.ended = False
        self._name = name
        self._stream = ByteStream(file, name, compressed=_is_compressed(file))

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def fraction(self) -> float:
        """The share of the file that has been read, in stored bytes."""
        return self._stream.fraction

    def read(self, *, check: bool = True) -> bytes | None:
        """Returns the data of the next record, None at the end.

        Args:
          check: True to check the data by its checksum. The length is always checked.

        Raises:
          SourceError: The record is damaged. The next record can be read, unless `ended`.
        """
        if self.ended:
            return None
        self.ended = True  # `ended` stays true if the record is incomplete.
        try:
            header = self._stream.read(HEADER.size)
        except SourceError as error:
            raise self._error(error.problem) from error
        if not header:
            return None
        if len(header) < HEADER.size:
            raise self._error(f"{len(header)} bytes are left, too few for the header of a record")
        length, length_crc = HEADER.unpack(header)
        if masked_checksum(header[:8]) != length_crc:
            raise self._error("the length of the record does not match its checksum")
        try:
            data = self._stream.read(length)
            footer = self._stream.read(FOOTER.size)
        except SourceError as error:
            raise self._error(error.problem) from error
        if len(footer) < FOOTER.size:
            raise self._error(
                f"the file ends within the record: {len(data) + len(footer)} of the "
                f"{length + FOOTER.size} bytes after its length exist"
            )
        self.ended = False
        self.index += 1
        if check and masked_checksum(data) != FOOTER.unpack(footer)[0]:
            raise self._error("the data does not match its checksum", self.index - 1)
        return data

    def _error(self, message: str, index: int | None = None) -> SourceError:
        return SourceError(message, file=self._name, episode=self.index if index is None else index)


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


def _is_compressed(file: epath.Path) -> bool:
    check_is_file(file)
    with file.open("rb") as stream:
        header: bytes = stream.read(HEADER.size)
    if not header.startswith(GZIP_MAGIC) or len(header) < HEADER.size:
        return header.startswith(GZIP_MAGIC)
    # The length of a record may begin like a gzip file; its checksum decides.
    return masked_checksum(header[:8]) != int(HEADER.unpack(header)[1])
