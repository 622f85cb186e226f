"""Reads Riegeli/records files."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from riegeli import _files
from riegeli._format.chunk import Chunk, ChunkType
from riegeli._format.simple_chunk import decode_simple_chunk
from riegeli._format.transposed_chunk import decode_transposed_chunk
from riegeli.base.riegeli_error import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from riegeli.records._chunk_reader import ChunkReader, Find
from riegeli.records.record_position import RecordPosition
from riegeli.records.records_metadata_pb2 import RecordsMetadata

__all__ = ["RecordReader", "get_record_type"]

M = TypeVar("M", bound=Message)


def get_record_type(metadata: RecordsMetadata) -> type[Message] | None:
    """The message class that `set_record_type` stored in `metadata`; None if there is none."""
    if not metadata.record_type_name or not metadata.file_descriptor:
        return None
    pool = descriptor_pool.DescriptorPool()
    for file in metadata.file_descriptor:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(metadata.record_type_name))


class RecordReader:
    r"""Reads the records of a Riegeli/records file, in order or by position.

    >>> import io
    >>> from riegeli import RecordWriter
    >>> file = io.BytesIO()
    >>> with RecordWriter(file, owns_dest=False) as writer:
    ...     writer.write_records([b"first", b"second"])
    >>> with RecordReader(io.BytesIO(file.getvalue())) as reader:
    ...     reader.check_file_format()
    ...     list(reader.read_records())
    True
    [b'first', b'second']

    A file that ends in the middle of a chunk reads like one that ends before it; `close` then
    raises, so that a cut-off file is told from a whole one. After another error the reader stays
    failed until it is moved by one of the `seek` methods; until then each call raises the same
    error.

    Args:
      src: A path, or a URL that `etils.epath` opens; or a readable binary file object.
      owns_src: Whether `close` closes `src`.
      assumed_pos: Takes this for the current position of `src`, which is then only read forwards.
      min_buffer_size: Accepted for compatibility; each chunk is read at once.
      max_buffer_size: Likewise.
      buffer_size: Likewise.

    Raises:
      InvalidArgumentError: the file object stands where no chunk can begin.
      OSError: the file cannot be opened or read.
    """

    def __init__(
        self,
        src: _files.PathType | BinaryIO,
        *,
        owns_src: bool = True,
        assumed_pos: int | None = None,
        min_buffer_size: int = 4096,
        max_buffer_size: int = 65536,
        buffer_size: int | None = None,
    ) -> None:
        for size in (assumed_pos, min_buffer_size, max_buffer_size, buffer_size):
            if size is not None and size < 0:
                raise OverflowError(f"sizes and positions cannot be negative, got {size}")
        self._records: list[bytes] = []
        self._index = 0
        self._records_begin = 0  # Where the chunk of `_records` begins.
        self._has_last = False
        self._error: Exception | None = None
        self._closed = False
        self._src, opened = _files.as_file(src, "rb")
        self._owns_src = owns_src or opened
        try:
            self._source, pos = self._make_source(assumed_pos)
            self._chunks = ChunkReader(self._source, pos)
        except BaseException:
            if self._owns_src:
                self._src.close()
            raise

    def _make_source(self, assumed_pos: int | None) -> tuple[_files.Source, int]:
        if assumed_pos is None and _files.is_seekable(self._src):
            return _files.RandomAccessSource(self._src), self._src.tell()
        pos = assumed_pos or 0
        return _files.SequentialSource(self._src, pos), pos

    def check_file_format(self) -> bool:
        """Whether this is a Riegeli/records file, as far as the next chunk header tells.

        Returns:
          True, or False if the file ends before it can be told.

        Raises:
          InvalidArgumentError: it is none.
        """
        self._check_open()
        return self._chunks.read_header() is not None

    def read_metadata(self) -> RecordsMetadata | None:
        """Reads what describes the file; to be called before any record is read.

        Returns:
          The metadata, empty if the file has none; None if the file ends before it.

        Raises:
          FailedPreconditionError: it is too late. UnimplementedError: the metadata is stored as a
          transposed chunk, which is not supported yet.
        """
        data = self.read_serialized_metadata()
        return None if data is None else RecordsMetadata.FromString(data)

    def read_serialized_metadata(self) -> bytes | None:
        """Like `read_metadata`, without parsing."""
        self._check_open()
        if self._chunks.pos != 0:
            raise FailedPreconditionError(
                f"metadata of {self._source.name} must be read before anything else"
            )
        with self._failing_for_good():
            signature = self._chunks.read_chunk()
            if signature is None:
                return None
            header = self._chunks.read_header()
            if header is None or header.chunk_type != ChunkType.METADATA:
                return None if self._chunks.truncated else b""
            begin = self._chunks.pos
            chunk = self._chunks.read_chunk()
            if chunk is None:
                return None
            with self._chunks.annotated(begin):
                return decode_transposed_chunk(chunk, num_records=1)[0]

    def read_record(self) -> bytes | None:
        """The next record; None at the end of the file.

        Raises:
          InvalidArgumentError: the file is damaged.
          UnimplementedError: the record is stored in a way that is not supported yet.
        """
        self._check_open()
        while self._index == len(self._records):
            if not self._read_chunk():
                return None
        record = self._records[self._index]
        self._index += 1
        self._has_last = True
        return record

    def read_message(self, message_type: type[M]) -> M | None:
        """The next record parsed as a proto message; None at the end of the file.

        Raises:
          google.protobuf.message.DecodeError: it is none; reading can go on behind it.
        """
        record = self.read_record()
        return None if record is None else message_type.FromString(record)

    def read_records(self) -> Iterator[bytes]:
        """The remaining records."""
        while (record := self.read_record()) is not None:
            yield record

    def read_messages(self, message_type: type[M]) -> Iterator[M]:
        """The remaining records, parsed as proto messages."""
        while (record := self.read_message(message_type)) is not None:
            yield record

    def seek(self, pos: RecordPosition) -> None:
        """Makes the record at `pos` the next one.

        Raises:
          TypeError: `pos` is not a `RecordPosition`.
          InvalidArgumentError: no chunk can begin there, or the file is damaged there.
          UnimplementedError: the file object does not support random access.
        """
        if not isinstance(pos, RecordPosition):
            raise TypeError(f"expected a RecordPosition, got {pos!r}; see also seek_numeric")
        self._check_movable()
        if not (self._records and pos.chunk_begin == self._records_begin):
            self._move_to_chunk(pos.chunk_begin)
            if pos.record_index:
                self._read_chunk_sought(pos)
        self._index = min(pos.record_index, len(self._records))

    def seek_numeric(self, pos: int) -> None:
        """Makes the record with the numeric position `pos` the next one, or else the next chunk.

        Raises:
          InvalidArgumentError: `pos` is behind the end of the file, or the file is damaged there.
          UnimplementedError: the file object does not support random access.
        """
        self._check_movable()
        if not self._records_begin <= pos < self._records_begin + len(self._records):
            self._forget_records()
            with self._failing_for_good():
                self._chunks.seek_to_chunk(pos, Find.CONTAINING)
            begin = self._chunks.pos
            if pos <= begin:
                return
            self._read_chunk_sought(RecordPosition(begin, pos - begin))
        self._index = pos - self._records_begin

    def seek_back(self) -> bool:
        """Makes the record before the next one the next one.

        Returns:
          False at the begin of the file.

        Raises:
          InvalidArgumentError: the file is damaged before this place.
          UnimplementedError: the file object does not support random access.
        """
        self._check_movable()
        if self._index > 0:
            self._index -= 1
            return True
        begin = self._records_begin if self._records else self._chunks.pos
        while begin > 0:
            self._forget_records()
            with self._failing_for_good():
                self._chunks.seek_to_chunk(begin - 1, Find.BEFORE)
            begin = self._chunks.pos
            self._read_chunk()
            if self._records:
                self._index = len(self._records) - 1
                return True
        self._move_to_chunk(0)
        return False

    def size(self) -> int:
        """The size of the file in bytes.

        Raises:
          UnimplementedError: the file object does not support random access.
        """
        self._check_not_closed()
        return self._source.size()

    def close(self) -> None:
        """Ends reading and, if the reader owns the file, closes it; further calls do nothing.

        Raises:
          InvalidArgumentError: the file ended in the middle of a chunk.
          RiegeliError: the error that made the reader fail, if there was one.
        """
        if self._closed:
            return
        self._closed = True
        if self._owns_src:
            self._src.close()
        if self._error is not None:
            raise self._error
        if self._chunks.truncated:
            raise InvalidArgumentError(self._chunks.truncated)

    @property
    def pos(self) -> RecordPosition:
        """The position of the next record, or a smaller one that leads to it."""
        if self._index < len(self._records):
            return RecordPosition(self._records_begin, self._index)
        return RecordPosition(self._chunks.pos, 0)

    @property
    def last_pos(self) -> RecordPosition:
        """The position of the record that was read last.

        Raises:
          FailedPreconditionError: none was read since the file was opened or another place sought.
        """
        if not self._has_last or self._closed:
            raise FailedPreconditionError(f"no record of {self._source.name} was just read")
        return RecordPosition(self._records_begin, self._index - 1)

    @property
    def supports_random_access(self) -> bool:
        """Whether the `seek` methods and `size` work."""
        return self._source.supports_random_access

    @property
    def src(self) -> BinaryIO:
        """The file object that is read from."""
        return self._src

    def _check_not_closed(self) -> None:
        if self._closed:
            raise FailedPreconditionError(f"the reader of {self._source.name} is closed")

    def _check_open(self) -> None:
        self._check_not_closed()
        if self._error is not None:
            raise self._error

    def _check_movable(self) -> None:
        self._check_not_closed()
        if not self._source.supports_random_access:
            raise UnimplementedError(f"{self._source.name} does not support random access")
        self._error = None
        self._has_last = False

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        self._check_open()
        try:
            yield
        except Exception as e:
            self._error = e
            raise

    def _forget_records(self) -> None:
        self._records = []
        self._index = 0

    def _move_to_chunk(self, begin: int) -> None:
        self._forget_records()
        with self._failing_for_good():
            self._chunks.seek(begin)

    def _read_chunk(self) -> bool:
        """Reads the records of the next chunk, if it has any; False at the end of the file."""
        with self._failing_for_good():
            begin = self._chunks.pos
            chunk = self._chunks.read_chunk()
            if chunk is None:
                return False
            self._forget_records()
            with self._chunks.annotated(begin):
                self._records = _decode_records(chunk)
            self._records_begin = begin
            self._has_last = False
        return True

    def _read_chunk_sought(self, pos: RecordPosition) -> None:
        if not self._read_chunk():
            with self._failing_for_good():
                raise InvalidArgumentError(
                    self._chunks.truncated
                    or f"{self._source.name} ends before the record position {pos}"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception:
            if exc_value is None:
                raise

    def __repr__(self) -> str:
        return f"<RecordReader src={self._src!r}>"


def _decode_records(chunk: Chunk) -> list[bytes]:
    if chunk.chunk_type == ChunkType.SIMPLE:
        return decode_simple_chunk(chunk)
    if chunk.chunk_type == ChunkType.TRANSPOSED:
        return decode_transposed_chunk(chunk, chunk.num_records)
    if chunk.num_records:
        raise UnimplementedError(
            f"chunks of the unknown type 0x{chunk.chunk_type:02x} hold {chunk.num_records} records"
        )
    return []
