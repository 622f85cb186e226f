"""Writes Riegeli/records files."""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Any, BinaryIO

from google.protobuf.message import Message

from riegeli import _files
from riegeli._format import blocks
from riegeli._format.chunk import SIGNATURE, Chunk, ChunkType, padding_chunk
from riegeli._format.compression import Compressor
from riegeli._format.options import parse_options
from riegeli._format.simple_chunk import encode_simple_chunk
from riegeli._format.transposed_encoder import encode_transposed_chunk
from riegeli.base.riegeli_error import FailedPreconditionError
from riegeli.records._chunk_writer import ChunkWriter, PendingBegin
from riegeli.records.record_position import RecordPosition
from riegeli.records.records_metadata_pb2 import RecordsMetadata
from riegeli.records.stored_chunk import StoredChunk

__all__ = ["FlushType", "RecordWriter", "set_record_type"]

# The number of bytes that each record adds to the size of a chunk.
_RECORD_OVERHEAD = 8


class FlushType(enum.Enum):
    """The durability of `RecordWriter.flush`: file object, process or storage medium.

    Attributes:
      FROM_OBJECT: To the file object, which is flushed only if the writer owns it.
      FROM_PROCESS: To the operating system: flushed records survive a crash of the process.
      FROM_MACHINE: To the storage medium (`fsync`): flushed records survive a power failure.
    """

    FROM_OBJECT = 0
    FROM_PROCESS = 1
    FROM_MACHINE = 2


def set_record_type(metadata: RecordsMetadata, message_type: type[Message]) -> None:
    """Stores the message type of the records, with its file descriptors, in `metadata`.

    Args:
      metadata: The metadata, whose fields `record_type_name` and `file_descriptor` are replaced.
      message_type: The message class.
    """
    metadata.record_type_name = message_type.DESCRIPTOR.full_name
    del metadata.file_descriptor[:]
    names: set[str] = set()

    def add_with_dependencies(file: Any) -> None:  # A `FileDescriptor` of any runtime.
        if file.name in names:
            return
        names.add(file.name)
        for dependency in file.dependencies:
            add_with_dependencies(dependency)
        file.CopyToProto(metadata.file_descriptor.add())

    add_with_dependencies(message_type.DESCRIPTOR.file)


class RecordWriter(_files.ClosedOnExit):
    r"""Writes records, which are byte strings, to a Riegeli/records file.

    >>> import io
    >>> file = io.BytesIO()
    >>> with RecordWriter(file, owns_dest=False, options="zstd:3") as writer:
    ...     writer.write_record(b"first")
    ...     writer.write_record(b"second")
    ...     print(writer.last_pos)
    64/1

    Records are collected in memory until they fill a chunk; then the chunk is compressed and
    written. After an error, earlier chunks stay readable, and each later call, including `close`,
    raises the same error.

    With the option `parallelism:n`, background threads compress chunks; the bytes of the file are
    the same. Only the calling thread writes to the file. Use a writer in one thread at a time, and
    only in the process that created it: threads do not survive a fork.

    Args:
      dest: A path, or a URL (`gs://`, `s3://`), whose file is created or replaced; or a writable
        binary file object. If its position is not 0, records are appended.
      owns_dest: Whether `close` closes `dest`.
      assumed_pos: The assumed current position of `dest`; None to call its `tell`.
      min_buffer_size: Ignored; accepted for compatibility.
      max_buffer_size: Ignored; accepted for compatibility.
      buffer_size: Ignored; accepted for compatibility.
      options: Comma-separated items such as `"brotli:6,chunk_size:1M"`, see `docs/riegeli.md`.
      metadata: The metadata of the file, which follow the file signature.
      serialized_metadata: The metadata as bytes.

    Raises:
      InvalidArgumentError: `options` are invalid.
      UnimplementedError: `options` contain a compression that can be read only.
      TypeError: Both `metadata` and `serialized_metadata` are given.
      OSError: the file cannot be opened or written.
    """

    def __init__(
        self,
        dest: _files.PathType | BinaryIO,
        *,
        owns_dest: bool = True,
        assumed_pos: int | None = None,
        min_buffer_size: int = 4096,
        max_buffer_size: int = 65536,
        buffer_size: int | None = None,
        options: str | bytes = "",
        metadata: RecordsMetadata | None = None,
        serialized_metadata: bytes = b"",
    ) -> None:
        _files.check_sizes(assumed_pos, min_buffer_size, max_buffer_size, buffer_size)
        if metadata is not None and serialized_metadata:
            raise TypeError("pass either metadata or serialized_metadata, not both")
        self._options = parse_options(_as_text(options))
        self._choose_compression: Callable[[Sequence[bytes]], str] | None = None
        if metadata is not None:
            serialized_metadata = metadata.SerializeToString()

        self._records: list[bytes] = []
        self._open_size = 0
        self._last_chunk: tuple[int | PendingBegin, int] | None = None  # Begin, num_records.
        self._error: BaseException | None = None
        self._closed = False
        self._dest, opened = _files.as_file(dest, "wb")
        self._owns_dest = owns_dest or opened
        self._name = _files.name_of(self._dest)
        try:
            self._chunks = ChunkWriter(
                self._dest,
                self._get_initial_pos(assumed_pos),
                self._encode,
                self._options.parallelism,
            )
            self._begin_file(serialized_metadata, metadata is not None)
        except BaseException:
            if self._owns_dest:
                self._dest.close()
            raise
        # The maximum size of an open chunk before the next record.
        self._max_open_size = self._options.chunk_size - _RECORD_OVERHEAD

    def _get_initial_pos(self, assumed_pos: int | None) -> int:
        if assumed_pos is not None:
            return assumed_pos
        return self._dest.tell() if _files.is_seekable(self._dest) else 0

    def _begin_file(self, serialized_metadata: bytes, has_metadata: bool) -> None:
        pos = self._chunks.pos
        if pos == 0:
            self._chunks.write(SIGNATURE)
            if has_metadata or serialized_metadata:
                self._chunks.write(
                    encode_transposed_chunk(
                        [serialized_metadata],
                        self._options.compressor,
                        chunk_type=ChunkType.METADATA,
                    )
                )
            return
        if not blocks.is_possible_chunk_boundary(pos):
            self._chunks.write_bytes(bytes(blocks.remaining_in_block(pos)))
        self._pad(self._options.initial_padding)

    def write_record(self, record: bytes | bytearray | memoryview) -> None:
        """Writes one record: any C-contiguous bytes-like object.

        With the option `parallelism:n`, this waits only if `n` chunks are pending; a later call
        raises the errors of encoding and writing them.

        Raises:
          TypeError: `record` is not bytes-like.
          OSError: the file cannot be written.
        """
        data = record if type(record) is bytes else _as_bytes(record)
        size = self._open_size + len(data) + _RECORD_OVERHEAD
        if size > self._max_open_size:
            self._write_to_full_chunk(data)
        else:
            self._records.append(data)
            self._open_size = size

    def _write_to_full_chunk(self, data: bytes) -> None:
        self._check_writable()
        size = len(data) + _RECORD_OVERHEAD
        if self._records and self._open_size + size > self._options.chunk_size:
            self._close_chunk()
        self._records.append(data)
        self._open_size += size
        if self._open_size > self._max_open_size:
            self._close_chunk()

    def write_message(self, record: Message) -> None:
        """Serializes and writes a proto message."""
        self.write_record(record.SerializeToString())

    def write_records(self, records: Iterable[bytes | bytearray | memoryview]) -> None:
        """Writes several records."""
        for record in records:
            self.write_record(record)

    def write_chunk(self, chunk: StoredChunk) -> None:
        """Writes a stored chunk of another file, after all pending records.

        Google's writers lack this method. Afterwards, `last_pos` is the position of the last record
        of the chunk.
        """
        self._check_writable()
        self._close_chunk()
        begin = self._chunks.next_begin
        with self._keep_error():
            self._chunks.write(chunk.content)
        self._last_chunk = begin, chunk.num_records

    def write_messages(self, records: Iterable[Message]) -> None:
        """Serializes and writes several proto messages."""
        for record in records:
            self.write_message(record)

    def set_compression(self, choose: Callable[[Sequence[bytes]], str]) -> None:
        """Sets a function that chooses the compression of each chunk, from the open chunk on.

        Every chunk declares its compression, so all readers support such a file. Google's writers
        lack this method.

        Args:
          choose: A function that is called with the records of a chunk, in the thread that encodes
            it; returns an option such as `"brotli:6"`, which replaces the option of the writer.
        """
        self._choose_compression = choose

    def flush(self, flush_type: FlushType = FlushType.FROM_PROCESS) -> None:
        """Ends the open chunk, and flushes all records to the level of `flush_type`."""
        if not isinstance(flush_type, FlushType):
            raise TypeError(f"expected a FlushType, got {flush_type!r}")
        self._check_writable()
        self._finish_chunks()
        with self._keep_error():
            if flush_type != FlushType.FROM_OBJECT or self._owns_dest:
                self._dest.flush()
            if flush_type == FlushType.FROM_MACHINE:
                _files.sync(self._dest)

    def close(self) -> None:
        """Writes pending records and closes the file if the writer owns it; then does nothing.

        Raises:
          BaseException: the error of an earlier call.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._error is None:
                self._finish_chunks()
        finally:
            self._max_open_size = 0
            self._chunks.stop(wait=True)
            if self._owns_dest:
                # A broken file often raises again on closing; the first error is more informative.
                with suppress(OSError) if self._error else nullcontext():
                    self._dest.close()
        if self._error is not None:
            raise self._error

    def estimated_size(self) -> int:
        """Returns the size of the file in bytes, without open and pending chunks."""
        return self._chunks.pos

    @property
    def pos(self) -> RecordPosition:
        """The position of the next record, or an earlier position without a record."""
        return RecordPosition._create(self._chunks.next_begin, len(self._records))

    @property
    def last_pos(self) -> RecordPosition:
        """The position of the last written record; stays valid after `flush` and `close`.

        Raises:
          FailedPreconditionError: no record was written.
        """
        if self._records:
            return RecordPosition._create(self._chunks.next_begin, len(self._records) - 1)
        if self._last_chunk is None:
            raise FailedPreconditionError(f"no record was written to {self._name}")
        begin, num_records = self._last_chunk
        return RecordPosition._create(begin, num_records - 1)

    @property
    def dest(self) -> BinaryIO:
        """The file object of the writer."""
        return self._dest

    def _check_writable(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise FailedPreconditionError(f"the writer of {self._name} is closed")

    @contextmanager
    def _keep_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as e:
            self._error = e
            self._last_chunk = None
            self._records = []
            self._max_open_size = 0
            self._chunks.stop(wait=False)
            raise

    def _close_chunk(self) -> None:
        self._end_chunk(self._chunks.add)

    def _finish_chunks(self) -> None:
        self._end_chunk(self._chunks.finish)
        with self._keep_error():
            self._pad(self._options.final_padding)

    def _end_chunk(self, add: Callable[[list[bytes]], None]) -> None:
        """Ends the open chunk."""
        records, self._records = self._records, []
        self._open_size = 0
        begin = self._chunks.next_begin
        with self._keep_error():
            add(records)
        if records:
            self._last_chunk = begin, len(records)

    def _encode(self, records: list[bytes]) -> Chunk:
        options = self._options
        compressor = options.compressor
        if self._choose_compression is not None:
            compressor = _create_compressor(self._choose_compression(records))
        if options.transpose:
            return encode_transposed_chunk(records, compressor, options.bucket_size)
        return encode_simple_chunk(records, compressor)

    def _pad(self, alignment: int) -> None:
        chunk = padding_chunk(self._chunks.pos, alignment)
        if chunk is not None:
            self._chunks.write(chunk)

    def __repr__(self) -> str:
        return f"<RecordWriter dest={self._dest!r}>"


@lru_cache
def _create_compressor(options: str) -> Compressor:
    return parse_options(options).compressor


def _as_text(options: Any) -> str:
    if isinstance(options, bytes):
        return options.decode()
    if isinstance(options, str):
        return options
    raise TypeError(f"options must be str or bytes, got {type(options).__name__}")


def _as_bytes(record: Any) -> bytes:
    view = memoryview(record)
    if not view.c_contiguous:
        raise BufferError("a record must be a C-contiguous buffer")
    return view.tobytes()
