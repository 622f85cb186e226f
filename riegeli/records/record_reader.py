"""Reads Riegeli/records files."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, TypeVar

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from riegeli import _files
from riegeli._format.chunk import Chunk, ChunkType
from riegeli._format.compression import MAX_DECOMPRESSED_SIZE
from riegeli._format.simple_chunk import JoinedRecords, decode_joined, decode_simple_chunk
from riegeli._format.transposed_chunk import decode_transposed_chunk
from riegeli.base.riegeli_error import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    RiegeliError,
    UnimplementedError,
)
from riegeli.records._chunk_reader import ChunkReader, Find
from riegeli.records._field_projection import EXISTENCE_ONLY, FieldProjection, to_scope
from riegeli.records._search import search
from riegeli.records.record_position import RecordPosition
from riegeli.records.records_metadata_pb2 import RecordsMetadata
from riegeli.records.skipped_region import SkippedRegion
from riegeli.records.stored_chunk import StoredChunk

__all__ = ["EXISTENCE_ONLY", "JoinedRecords", "RecordReader", "get_record_type"]

M = TypeVar("M", bound=Message)

_CHUNK_TYPES = frozenset(ChunkType)


def get_record_type(metadata: RecordsMetadata) -> type[Message] | None:
    """Returns the message class that `set_record_type` stored in `metadata`, or None."""
    if not metadata.record_type_name or not metadata.file_descriptor:
        return None
    pool = descriptor_pool.DescriptorPool()
    for file in metadata.file_descriptor:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(metadata.record_type_name))


class RecordReader(_files.ClosedOnExit):
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

    If a file ends in the middle of a chunk, all earlier chunks can be read, and then `close` raises
    an error. After any other error, each call raises the same error until a `seek` or `search`
    method moves the reader.

    With a recovery function, the reader skips damaged regions instead. It calls the function with
    each region and continues after it. If the function raises `StopIteration`, the call ends as at
    the end of the file. Other exceptions are passed to the caller. In both cases the next call
    continues after the region.

    Args:
      src: A path, or a URL (`gs://`, `s3://`); or a readable binary file object.
      owns_src: Whether `close` closes `src`.
      assumed_pos: The assumed current position of `src`; if set, `src` is only read forwards.
      min_buffer_size: Ignored; accepted for compatibility.
      max_buffer_size: Ignored; accepted for compatibility.
      buffer_size: Ignored; accepted for compatibility.
      field_projection: The fields of proto messages to read, as paths of field numbers; None for
        all. Other fields in transposed chunks are skipped; records of simple chunks are complete.
        If a path ends with `EXISTENCE_ONLY`, the field is present, but lacks its value.
      recovery: A function that is called with each skipped region.

    Raises:
      TypeError, OverflowError: `field_projection` is invalid.
      InvalidArgumentError: `field_projection` is invalid, or no chunk can begin at the position of
        the file object.
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
        field_projection: FieldProjection | None = None,
        recovery: Callable[[SkippedRegion], object] | None = None,
    ) -> None:
        _files.check_sizes(assumed_pos, min_buffer_size, max_buffer_size, buffer_size)
        self._scope = to_scope(field_projection)
        self._recovery = recovery
        # The last chunk. Its records are dropped after an error and on `close`, so that
        # `read_record` needs no other check.
        self._records: list[bytes] = []
        self._joined: JoinedRecords | None = None  # The records before the split to `_records`.
        self._joined_end = (0, 0)  # The numbers of records and bytes up to the last read record.
        self._is_in_caller_buffer = False  # Whether the caller may change `_joined`.
        self._num_records = 0
        self._records_begin = 0
        self._transposed: Chunk | None = None  # The source of a later field projection.
        self._index = 0
        self._seek_index = 0  # The index of the first record to read in this chunk.
        self._error: Exception | None = None
        self._closed = False
        self._src, opened = _files.as_file(src, "rb")
        self._owns_src = owns_src or opened
        try:
            self._source, pos = self._create_source(assumed_pos)
            self._chunks = ChunkReader(self._source, pos)
        except BaseException:
            if self._owns_src:
                self._src.close()
            raise

    def _create_source(self, assumed_pos: int | None) -> tuple[_files.ByteSource, int]:
        if assumed_pos is None and _files.is_seekable(self._src):
            return _files.SeekableSource(self._src), self._src.tell()
        pos = assumed_pos or 0
        return _files.SequentialSource(self._src, pos), pos

    def check_file_format(self) -> bool:
        """Checks by the next chunk header that this is a Riegeli/records file.

        The recovery function is not called.

        Returns:
          True; False if the file is too short to decide.

        Raises:
          InvalidArgumentError: this is not a Riegeli/records file.
        """
        self._check_open()
        return self._num_records > 0 or self._chunks.read_header() is not None

    def read_metadata(self) -> RecordsMetadata | None:
        """Reads the metadata of the file; call it before all other read methods.

        Returns:
          The metadata, empty if the file has none; None if the file is too short to decide.

        Raises:
          FailedPreconditionError: another read method was called earlier.
          InvalidArgumentError: the file is damaged.
          google.protobuf.message.DecodeError: the metadata are not `RecordsMetadata`.
        """
        data = self.read_serialized_metadata()
        if data is None:
            return None
        try:
            return RecordsMetadata.FromString(data)
        except DecodeError as e:
            region = SkippedRegion(self._records_begin, self._chunks.pos, str(e))
            return RecordsMetadata() if self._report(region, e) else None

    def read_serialized_metadata(self) -> bytes | None:
        """Reads the metadata like `read_metadata`, without parsing."""
        self._check_open()
        if self._chunks.pos != 0:
            raise FailedPreconditionError(
                f"metadata of {self._source.name} must be read before anything else"
            )
        try:
            return self._read_serialized_metadata()
        except Exception as e:
            return b"" if self._skip(e) else None

    def _read_serialized_metadata(self) -> bytes | None:
        if self._chunks.read_chunk() is None:
            return None
        header = self._chunks.read_header()
        if header is None:
            return None
        if header.chunk_type != ChunkType.METADATA:
            return b""
        begin = self._chunks.pos
        chunk = self._chunks.read_chunk()
        if chunk is None:
            return None
        self._records_begin = begin
        with self._mark_if_damaged():
            _check_chunk(chunk)
            return decode_transposed_chunk(chunk, num_records=1)[0]

    def read_record(self) -> bytes | None:
        """Returns the next record; None at the end of the file.

        Raises:
          InvalidArgumentError: the file is damaged.
          ResourceExhaustedError: the decompressed size of a chunk exceeds the limit.
          UnimplementedError: a chunk is of an unknown type.
        """
        if self._index >= len(self._records) and not self._read_next_chunk():
            return None
        record = self._records[self._index]
        self._index += 1
        return record

    def read_message(self, message_type: type[M]) -> M | None:
        """Returns the next record parsed as a proto message; None at the end of the file.

        With a recovery function, records that cannot be parsed are skipped.

        Raises:
          google.protobuf.message.DecodeError: the record cannot be parsed; reading can go on.
        """
        while (record := self.read_record()) is not None:
            try:
                return message_type.FromString(record)
            except DecodeError as e:
                if not self._report(self._last_record_region(e), e):
                    return None
        return None

    def read_records(self) -> Iterator[bytes]:
        """Yields the remaining records."""
        while True:
            while self._index < len(self._records):
                record = self._records[self._index]
                self._index += 1
                yield record
            if not self._read_next_chunk():
                return

    def read_batch(self, max_records: int = sys.maxsize) -> list[bytes]:
        """Returns the next records of a chunk, up to a limit; an empty list at the end of the file.

        Google's readers lack this method, which is the fastest method to read.

        Args:
          max_records: The maximum number of records to return; positive.

        Raises:
          ValueError: `max_records` is not positive.
          InvalidArgumentError: the file is damaged.
          ResourceExhaustedError: the decompressed size of a chunk exceeds the limit.
          UnimplementedError: a chunk is of an unknown type.
        """
        if max_records < 1:
            raise ValueError(f"max_records must be positive, got {max_records}")
        if self._index >= len(self._records) and not self._read_next_chunk():
            return []
        batch = self._records[self._index : self._index + max_records]
        self._index += len(batch)
        return batch

    def read_joined(
        self,
        max_records: int = sys.maxsize,
        *,
        into: memoryview | None = None,
        record_size: int = 0,
    ) -> JoinedRecords:
        r"""Returns the next records of a chunk in one buffer; no records at the end of the file.

        Google's readers lack this method. It copies no record out of the decompressed chunk, unless
        another method has read records of the same chunk.

        Args:
          max_records: The maximum number of records to return; positive.
          into: A writable buffer for all records of a chunk, used if they fit and all of them have
            `record_size` bytes; then `values` is the beginning of `into`. After an error, its
            content is undefined.
          record_size: The expected size of each record.

        Raises:
          ValueError, InvalidArgumentError, ResourceExhaustedError, UnimplementedError: see
            `read_batch`.

        >>> import io
        >>> from riegeli import RecordWriter
        >>> file = io.BytesIO()
        >>> with RecordWriter(file, owns_dest=False) as writer:
        ...     writer.write_records([b"ant", b"bumblebee"])
        >>> sizes, values = RecordReader(io.BytesIO(file.getvalue())).read_joined()
        >>> sizes, bytes(values)
        ([3, 9], b'antbumblebee')
        """
        if max_records < 1:
            raise ValueError(f"max_records must be positive, got {max_records}")
        if self._index >= self._num_records:
            buffer = None if into is None else into[: max_records * record_size]
            if not self._read_next_chunk(
                partial(decode_joined, into=buffer, record_size=record_size)
            ):
                return JoinedRecords([], b"")
        if self._joined is None:
            batch = self.read_batch(max_records)
            return JoinedRecords(list(map(len, batch)), b"".join(batch))
        sizes, values = self._joined
        begin = self._index
        self._index = min(begin + max_records, len(sizes))
        index, begin_byte = self._joined_end
        if index != begin:
            begin_byte = sum(sizes[:begin])
        sizes = sizes[begin : self._index]
        end_byte = begin_byte + sum(sizes)
        self._joined_end = (self._index, end_byte)
        if into is not None and getattr(values, "obj", None) is into.obj:
            self._joined = None
            self._is_in_caller_buffer = True
        return JoinedRecords(sizes, memoryview(values)[begin_byte:end_byte])

    def read_chunk(self, pos: int) -> StoredChunk | None:
        """Returns the stored chunk of a record.

        Google's readers lack this method. The hash of the data is checked, but the records are not
        decoded. The next record to read is the first record after the chunk.

        Args:
          pos: The numeric position of the record.

        Returns:
          The chunk, or the next chunk with records if there is no such record; None at the end of
          the file.

        Raises:
          InvalidArgumentError: the file is damaged.
        """
        self._check_movable()
        self._clear_records()
        self._chunks.seek_to_chunk(pos, Find.CONTAINING)
        while True:
            begin = self._chunks.pos
            chunk = self._chunks.read_chunk()
            if chunk is None:
                return None
            if chunk.num_records:
                return StoredChunk(begin, chunk.num_records, chunk)

    def read_messages(self, message_type: type[M]) -> Iterator[M]:
        """Yields the remaining records, parsed as proto messages."""
        while (message := self.read_message(message_type)) is not None:
            yield message

    def set_field_projection(self, field_projection: FieldProjection | None) -> None:
        """Changes the fields to read, from the next record on; None for all fields.

        Raises:
          TypeError: a field number is not an integer.
          OverflowError: a field number is out of range.
          InvalidArgumentError: `EXISTENCE_ONLY` is not at the end of a path.
        """
        self._check_open()
        self._scope = to_scope(field_projection)
        if self._transposed is not None:
            try:
                with self._mark_if_damaged():
                    self._records = self._decode(self._transposed)
            except Exception as e:
                self._skip(e)

    def seek(self, pos: RecordPosition) -> None:
        """Moves to the record at `pos`.

        Raises:
          TypeError: `pos` is not a `RecordPosition`.
          InvalidArgumentError: no chunk can begin there, or the file is damaged there.
          UnimplementedError: the file object does not support random access.
        """
        if not isinstance(pos, RecordPosition):
            raise TypeError(f"expected a RecordPosition, got {pos!r}; see also seek_numeric")
        self._check_movable()
        self._seek_or_skip(pos.chunk_begin, pos.record_index)

    def seek_numeric(self, pos: int) -> None:
        """Moves to the record with the numeric position `pos`, or else to the next chunk.

        Raises:
          InvalidArgumentError: `pos` is beyond the end of the file, or the file is damaged there.
          UnimplementedError: the file object does not support random access.
        """
        if pos < 0:
            raise OverflowError(f"positions cannot be negative, got {pos}")
        self._check_movable()
        if self._records_begin <= pos < self._records_begin + self._num_records:
            self._move_to_index(pos - self._records_begin)
            return
        try:
            self._clear_records()
            self._chunks.seek_to_chunk(pos, Find.CONTAINING)
            begin = self._chunks.pos
            if begin < pos:
                self._seek(begin, pos - begin)
        except Exception as e:
            self._skip(e)

    def seek_back(self) -> bool:
        """Moves back by one record.

        Returns:
          False at the beginning of the file.

        Raises:
          InvalidArgumentError: the file is damaged before this position.
          UnimplementedError: the file object does not support random access.
        """
        self._check_movable()
        if self._index > 0:
            self._move_to_index(self._index - 1)
            return True
        begin = self._records_begin if self._num_records else self._chunks.pos
        earlier_begins: list[int] = []  # The begins of earlier chunks that were read.
        while begin > 0:
            try:
                self._clear_records()
                if earlier_begins:
                    self._chunks.seek(earlier_begins.pop())
                else:
                    earlier_begins = self._chunks.seek_to_chunk(begin - 1, Find.BEFORE)
                begin = self._chunks.pos
                self._read_chunk()
            except Exception as e:
                # The records after the damage are where the search began.
                earlier_begins = []
                begin = min(begin, self._chunks.pos)
                if not self._skip(e):
                    return False
                continue
            if self._records:
                self._move_to_index(self._num_records - 1)
                return True
        self._seek(0, 0)
        return False

    def size(self) -> int:
        """Returns the size of the file in bytes.

        Raises:
          UnimplementedError: the file object does not support random access.
        """
        self._check_not_closed()
        return self._source.size()

    def search(self, test: Callable[["RecordReader"], int | None]) -> int | None:
        """Searches sorted records by bisection, and moves to the result.

        >>> import io
        >>> from riegeli import RecordWriter
        >>> file = io.BytesIO()
        >>> with RecordWriter(file, owns_dest=False) as writer:
        ...     writer.write_records([b"ant", b"bee", b"cat"])
        >>> reader = RecordReader(file)
        >>> reader.search_for_record(lambda record: (record > b"bat") - (record < b"bat"))
        1
        >>> reader.read_record()
        b'bee'

        Args:
          test: A function that is called with the reader at a record, and may read this record. It
            returns how the record compares to the target: less than 0 for before, 0 for equal,
            more than 0 for after; None to ignore the record. It raises `StopIteration` to give up.

        Returns:
          0 if the reader is at an equal record; 1 if it is at the first record after the target,
          and no record is equal; -1 if all records are before the target, and the reader is at the
          end; None if all records are ignored, or `test` gave up.

        Raises:
          InvalidArgumentError: the search meets damage.
          UnimplementedError: the file object does not support random access.
        """
        self._check_movable()
        try:
            result = search(_Search(self, test), self._source.size())
        except StopIteration:
            self._seek_index = self._index
            return None
        self._seek_or_skip(result.chunk_begin, result.record_index)
        return result.comparison

    def search_for_record(self, test: Callable[[bytes], int | None]) -> int | None:
        """Searches like `search`, with a `test` of the record."""
        return self.search(lambda reader: test(reader._read_for_test()))

    def search_for_message(
        self, message_type: type[M], test: Callable[[M], int | None]
    ) -> int | None:
        """Searches like `search`, with a `test` of the record parsed as a proto message.

        With a recovery function, records that cannot be parsed are ignored.

        Raises:
          google.protobuf.message.DecodeError: a record cannot be parsed.
        """
        recovery = self._recovery

        def test_record(reader: RecordReader) -> int | None:
            record = reader._read_for_test()
            try:
                message = message_type.FromString(record)
            except DecodeError as e:
                if recovery is None:
                    raise
                recovery(reader._last_record_region(e))
                return None
            return test(message)

        return self.search(test_record)

    def close(self) -> None:
        """Ends reading and, if the reader owns the file, closes it; further calls do nothing.

        The position of a file object that is not owned is the end of the last read chunk.

        Raises:
          InvalidArgumentError: the file ended in the middle of a chunk, and there is no recovery
            function.
          RiegeliError: the error of an earlier call.
        """
        if self._closed:
            return
        self._closed = True
        self._records = []
        self._joined = None
        self._transposed = None
        if self._owns_src:
            self._src.close()
        elif self._error is None and self.supports_random_access:
            self._src.seek(self._chunks.pos)
        if self._error is not None:
            raise self._error
        truncated = self._chunks.truncated
        if truncated is not None:
            self._report(truncated, InvalidArgumentError(truncated.message))

    @property
    def pos(self) -> RecordPosition:
        """The position of the next record, or an earlier position without a record."""
        if self._index < self._num_records:
            return RecordPosition._create(self._records_begin, self._index)
        return RecordPosition._create(self._chunks.pos, 0)

    @property
    def last_pos(self) -> RecordPosition:
        """The position of the last record that was read.

        Raises:
          FailedPreconditionError: no record was read since opening or moving the reader.
        """
        if self._index == self._seek_index or self._closed:
            raise FailedPreconditionError(f"no record of {self._source.name} was just read")
        return RecordPosition._create(self._records_begin, self._index - 1)

    @property
    def supports_random_access(self) -> bool:
        """Whether the `seek` and `search` methods and `size` are supported."""
        return self._source.supports_random_access

    @property
    def src(self) -> BinaryIO:
        """The file object of the reader."""
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
        if not self.supports_random_access:
            raise UnimplementedError(f"{self._source.name} does not support random access")
        self._error = None
        self._seek_index = self._index

    def _clear_records(self) -> None:
        self._records = []
        self._joined = None
        self._transposed = None
        self._is_in_caller_buffer = False
        self._num_records = self._index = self._seek_index = 0

    def _move_to_index(self, index: int) -> None:
        if self._is_in_caller_buffer:
            self._chunks.seek(self._records_begin)
            self._read_chunk(decode_joined)
        self._index = self._seek_index = index

    def _seek(self, chunk_begin: int, record_index: int) -> None:
        if not (self._num_records and chunk_begin == self._records_begin):
            self._clear_records()
            self._chunks.seek(chunk_begin)
            if record_index and not self._read_chunk():
                truncated = self._chunks.truncated
                raise InvalidArgumentError(
                    truncated.message
                    if truncated
                    else f"{self._source.name} ends before {chunk_begin}/{record_index}"
                )
        self._move_to_index(min(record_index, self._num_records))

    def _seek_or_skip(self, chunk_begin: int, record_index: int) -> None:
        try:
            self._seek(chunk_begin, record_index)
        except Exception as e:
            self._skip(e)

    def _read_next_chunk(self, join: Callable[[Chunk], JoinedRecords] | None = None) -> bool:
        """Reads the next chunk that has records; returns False at the end of the file."""
        self._check_open()
        if self._joined is not None and self._index < self._num_records:
            self._records = self._joined.cut()
            self._joined = None
            return True
        self._seek_index = self._index
        while True:
            try:
                if not self._read_chunk(join):
                    return False
            except Exception as e:
                if not self._skip(e):
                    return False
            if self._num_records:
                return True

    def _read_chunk(self, join: Callable[[Chunk], JoinedRecords] | None = None) -> bool:
        """Reads the next chunk with its records, if any; returns False at the end of the file.

        Args:
          join: A function that decodes a simple chunk to joined records; by default, records are
            split.
        """
        begin = self._chunks.pos
        chunk = self._chunks.read_chunk()
        if chunk is None:
            return False
        self._clear_records()
        self._records_begin = begin
        with self._mark_if_damaged():
            if chunk.chunk_type == ChunkType.SIMPLE and join is not None:
                _check_chunk(chunk)
                self._joined = join(chunk)
                self._joined_end = (0, 0)
                self._num_records = len(self._joined.sizes)
                return True
            self._records = self._decode(chunk)
        self._num_records = len(self._records)
        if chunk.chunk_type == ChunkType.TRANSPOSED:
            self._transposed = chunk
        return True

    def _decode(self, chunk: Chunk) -> list[bytes]:
        _check_chunk(chunk)
        if chunk.chunk_type == ChunkType.SIMPLE:
            return decode_simple_chunk(chunk)
        if chunk.chunk_type == ChunkType.TRANSPOSED:
            return decode_transposed_chunk(chunk, chunk.num_records, self._scope)
        return []

    @contextmanager
    def _mark_if_damaged(self) -> Iterator[None]:
        """Marks the remaining records of the chunk as damaged if decoding fails."""
        try:
            with self._chunks.annotate_errors(self._records_begin):
                yield
        except RiegeliError:
            self._chunks.mark_damaged(self._records_begin + self._index)
            raise

    def _skip(self, error: Exception) -> bool:
        """Skips the damaged region, if there is a recovery function.

        Returns:
          True to go on.

        Raises:
          Exception: `error`, if it cannot be skipped; it becomes the error of the reader.
        """
        self._clear_records()
        if self._recovery is not None and isinstance(error, RiegeliError):
            region = self._chunks.skip_damage(str(error))
            if region is not None:
                return self._report(region, error)
        self._error = error
        raise error

    def _report(self, region: SkippedRegion, error: Exception) -> bool:
        """Calls the recovery function, or raises `error` without one; returns True to go on."""
        if self._recovery is None:
            raise error
        try:
            self._recovery(region)
        except StopIteration:
            return False
        return True

    def _last_record_region(self, error: Exception) -> SkippedRegion:
        return SkippedRegion(self.last_pos.numeric, self.pos.numeric, str(error))

    def _read_for_test(self) -> bytes:
        record = self.read_record()
        assert record is not None  # A search tests existing records only.
        return record

    def __repr__(self) -> str:
        return f"<RecordReader src={self._src!r}>"


class _Search:
    """Adapts a `RecordReader` to `Searchable`."""

    def __init__(self, reader: RecordReader, test: Callable[[RecordReader], int | None]) -> None:
        self._reader = reader
        self._test = test

    def chunk_between(self, low: int, high: int) -> int:
        """See `Searchable`."""
        reader = self._reader
        try:
            reader._clear_records()
            reader._chunks.seek_to_chunk((low + high) // 2, Find.BEFORE)
        except Exception as e:
            self._skip(e)
        pos = reader._chunks.pos
        # Damage may extend from the middle to the end.
        return pos if pos < high else low

    def read_chunk(self, begin: int) -> tuple[int, int] | None:
        """See `Searchable`."""
        reader = self._reader
        try:
            reader._clear_records()
            reader._chunks.seek(begin)
            if not reader._read_chunk():
                return None
        except Exception as e:
            self._skip(e)
        return reader._chunks.pos, reader._num_records

    def compare(self, chunk_begin: int, record_index: int) -> int | None:
        """See `Searchable`."""
        reader = self._reader
        reader._seek(chunk_begin, record_index)
        # The test handles damage of its record.
        recovery, reader._recovery = reader._recovery, None
        try:
            comparison = self._test(reader)
        finally:
            reader._recovery = recovery
        if comparison is not None and not isinstance(comparison, int):
            raise TypeError(f"a test must return an int or None, got {comparison!r}")
        return comparison

    def _skip(self, error: Exception) -> None:
        if not self._reader._skip(error):
            raise StopIteration


def _check_chunk(chunk: Chunk) -> None:
    """Raises an error if a chunk is invalid for its type."""
    if chunk.chunk_type == ChunkType.SIGNATURE and not chunk.header().is_signature():
        raise InvalidArgumentError("a file signature must be empty")
    if chunk.chunk_type == ChunkType.PADDING and (chunk.num_records or chunk.decoded_data_size):
        raise InvalidArgumentError("a padding chunk cannot hold records")
    if chunk.chunk_type == ChunkType.METADATA and chunk.num_records:
        raise InvalidArgumentError("a metadata chunk cannot hold records")
    if chunk.chunk_type not in _CHUNK_TYPES and chunk.num_records:
        raise UnimplementedError(
            f"chunks of the unknown type 0x{chunk.chunk_type:02x} hold {chunk.num_records} records"
        )
    if chunk.decoded_data_size > max(MAX_DECOMPRESSED_SIZE, len(chunk.data)):
        raise ResourceExhaustedError(
            f"the records of a chunk take {chunk.decoded_data_size} bytes, more than the limit "
            f"{MAX_DECOMPRESSED_SIZE}"
        )
