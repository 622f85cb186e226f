"""Decoder of transposed Riegeli chunks: a buffer for each field, and a state machine.

    1 byte   compression type
    varint   size of the stored header
    buffer   header
    buffers  the buckets, back to back
    buffer   transitions

The header consists of varints, except for the subtypes, which are bytes:

    num_buckets, num_buffers
    the stored size of each bucket
    the size of each buffer
    num_states
    the tag of each state
    the base of each state: its first possible next state; plus num_states if the state is implicit
    the subtype of each state of a varint field
    the index of the buffer of each state with a buffer
    the first state

A buffer holds the values of one field in reverse order; a bucket holds complete buffers. The
machine writes the records backwards. A state represents an element: a field, the begin or the end
of a submessage, or the begin of a record. A state writes its element in front of the earlier
elements. The upper six bits of a transition are the offset of the next state from the base; the
lower two bits are a count: the machine moves to the base of its state that many times without a
transition. After an implicit state, the machine always moves to the base without a transition. The
machine ends when an explicit state needs a transition and all transitions are used.
"""

from typing import NamedTuple

from riegeli._core import read_varint, read_varints, run_machine
from riegeli._format.chunk import Chunk
from riegeli._format.compression import MAX_DECOMPRESSED_SIZE, Buffer, CompressionType, decompress
from riegeli._pure.machine import MAX_INLINE_VARINT, Scope, has_buffer, has_subtype, is_tag_of_state
from riegeli.base.riegeli_error import InvalidArgumentError, ResourceExhaustedError

MAX_HEADER_SIZE = 1 << 27
"""The maximum decompressed size of the header of a transposed chunk."""

MAX_STATES = 1 << 22
"""The maximum number of states of a transposed chunk."""

MAX_BUFFERS = 1 << 20
"""The maximum number of buffers, and of buckets, of a transposed chunk."""

MAX_TRANSITIONS = 1 << 29
"""The maximum number of transitions of a transposed chunk; each is a byte."""

# The maximum number of transitions between elements (a transition can reach 64 states). An element
# is at least a byte, or the begin of a record.
_MAX_TRANSITIONS_PER_ELEMENT = 8
_MIN_TRANSITION_LIMIT = 1 << 12

_U32 = (1 << 32) - 1
_U64 = (1 << 64) - 1

_EMPTY_BUFFER = memoryview(b"")


class TransposedHeader(NamedTuple):
    """The fields of the header of a transposed chunk.

    Attributes:
      bucket_sizes: The stored size of each bucket.
      buffer_sizes: The size of each buffer.
      states: The states of the machine, for `run_machine`.
      first: The initial state.
    """

    bucket_sizes: list[int]
    buffer_sizes: list[int]
    states: tuple[list[int], ...]
    first: int


def decode_transposed_chunk(chunk: Chunk, num_records: int, scope: Scope = True) -> list[bytes]:
    """Decodes the records of a transposed chunk.

    Args:
      chunk: The chunk.
      num_records: The number of records; 1 for a metadata chunk, whose header declares 0.
      scope: The fields to read, see `riegeli._pure.machine`.

    Raises:
      InvalidArgumentError: the data is damaged.
      ResourceExhaustedError: the chunk exceeds `MAX_HEADER_SIZE`, `MAX_STATES`, `MAX_BUFFERS` or
        `MAX_TRANSITIONS`; or its decompressed buffers exceed `MAX_DECOMPRESSED_SIZE`.
      UnimplementedError: the compression algorithm is unknown.
    """
    data = chunk.data
    if not data:
        raise InvalidArgumentError("transposed chunk without data")
    compression_type = data[0]
    try:
        header_size, begin = read_varint(data, 1)
    except ValueError as e:
        raise InvalidArgumentError(f"size of the header is damaged: {e}") from e
    buckets_begin = begin + header_size
    if buckets_begin > len(data):
        raise InvalidArgumentError(
            f"the header takes {header_size} bytes, but {len(data) - begin} are there"
        )
    stored_header = data[begin:buckets_begin]
    _check_limit(_read_size(compression_type, stored_header), MAX_HEADER_SIZE, "bytes of header")
    header = decode_header(decompress(compression_type, stored_header, MAX_HEADER_SIZE))
    transitions_begin = buckets_begin + sum(header.bucket_sizes)
    if transitions_begin > len(data):
        raise InvalidArgumentError("the buckets take more bytes than are there")
    buckets = _split(data, buckets_begin, header.bucket_sizes)
    buffers = _split_buckets(compression_type, buckets, header.buffer_sizes)
    stored_transitions = data[transitions_begin:]
    num_transitions = _read_size(compression_type, stored_transitions)
    if num_transitions > _MIN_TRANSITION_LIMIT + _MAX_TRANSITIONS_PER_ELEMENT * (
        chunk.decoded_data_size + num_records
    ):
        raise InvalidArgumentError(
            f"{num_transitions} transitions are too many for {num_records} records of "
            f"{chunk.decoded_data_size} bytes"
        )
    _check_limit(num_transitions, MAX_TRANSITIONS, "transitions")
    transitions = decompress(compression_type, stored_transitions, num_transitions)
    states, first, size = header.states, header.first, chunk.decoded_data_size
    try:
        return run_machine(states, first, buffers, transitions, num_records, size, scope)
    except ValueError as e:
        raise InvalidArgumentError(f"transposed chunk is damaged: {e}") from e


def _check_limit(count: int, limit: int, unit: str) -> None:
    if count > limit:
        raise ResourceExhaustedError(
            f"a transposed chunk has {count} {unit}, more than the limit {limit}"
        )


def _read_size(compression_type: int, buffer: Buffer) -> int:
    """Returns the decompressed size that the prefix of a buffer declares."""
    if compression_type == CompressionType.NONE:
        return len(buffer)
    try:
        return read_varint(buffer, 0)[0]
    except ValueError as e:
        raise InvalidArgumentError(f"size of a compressed buffer is damaged: {e}") from e


def _split(data: Buffer, begin: int, sizes: list[int]) -> list[Buffer]:
    pieces = []
    for size in sizes:
        pieces.append(data[begin : begin + size])
        begin += size
    return pieces


def _split_buckets(
    compression_type: int, buckets: list[Buffer], sizes: list[int]
) -> list[memoryview]:
    """Splits the buckets into buffers; no buffer spans two buckets."""
    if sizes and not buckets:
        raise InvalidArgumentError(f"there are {len(sizes)} buffers, but no buckets")
    total = sum(sizes)
    bucket_total = sum(_read_size(compression_type, bucket) for bucket in buckets)
    if bucket_total != total:
        raise InvalidArgumentError(f"the buckets have {bucket_total} bytes, the buffers {total}")
    _check_limit(total, max(MAX_DECOMPRESSED_SIZE, sum(map(len, buckets))), "bytes of buffers")
    decompressed = (memoryview(decompress(compression_type, bucket, total)) for bucket in buckets)
    bucket, offset = next(decompressed, _EMPTY_BUFFER), 0
    buffers = []
    for index, size in enumerate(sizes):
        if size > len(bucket) - offset:
            raise InvalidArgumentError(
                f"buffer {index} has {size} bytes, but its bucket {len(bucket) - offset} more"
            )
        buffers.append(bucket[offset : offset + size] if size else _EMPTY_BUFFER)
        offset += size
        while offset == len(bucket) and (next_bucket := next(decompressed, None)) is not None:
            bucket, offset = next_bucket, 0
    if next(decompressed, None) is not None:
        raise InvalidArgumentError(f"there are {len(buckets)} buckets, but no buffers")
    return buffers


class _HeaderReader:
    """Reads the varints of a header; checks counts against the remaining bytes."""

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._offset = 0

    def remaining(self) -> int:
        return len(self._data) - self._offset

    def read_integer(self, maximum: int, unit: str) -> int:
        value, self._offset = read_varint(self._data, self._offset)
        if value > maximum:
            raise InvalidArgumentError(f"{unit} is {value}, which is too large")
        return value

    def read_integers(self, count: int, maximum: int, unit: str) -> list[int]:
        self.check_remaining(count, unit)
        values, self._offset = read_varints(self._data, self._offset, count)
        if values and max(values) > maximum:
            raise InvalidArgumentError(f"{unit} is {max(values)}, which is too large")
        return values

    def read_bytes(self, count: int, unit: str) -> Buffer:
        self.check_remaining(count, unit)
        self._offset += count
        return self._data[self._offset - count : self._offset]

    def check_remaining(self, count: int, unit: str) -> None:
        if count > self.remaining():
            raise InvalidArgumentError(f"{count} times {unit}, in {self.remaining()} bytes")


def decode_header(data: Buffer) -> TransposedHeader:
    """Decodes the decompressed header of a transposed chunk.

    Raises:
      InvalidArgumentError: the header is damaged.
      ResourceExhaustedError: the header exceeds `MAX_STATES` or `MAX_BUFFERS`.
    """
    reader = _HeaderReader(data)
    try:
        num_buckets = reader.read_integer(_U32, "the number of buckets")
        num_buffers = reader.read_integer(_U32, "the number of buffers")
        reader.check_remaining(max(num_buckets, num_buffers), "the size of a buffer or bucket")
        _check_limit(max(num_buckets, num_buffers), MAX_BUFFERS, "buffers or buckets")
        bucket_sizes = reader.read_integers(num_buckets, _U64, "the size of a bucket")
        buffer_sizes = reader.read_integers(num_buffers, _U64, "the size of a buffer")
        states, first = _decode_machine(reader, num_buffers)
    except ValueError as e:
        raise InvalidArgumentError(f"header of a transposed chunk is damaged: {e}") from e
    if reader.remaining():
        raise InvalidArgumentError(f"{reader.remaining()} bytes follow the header")
    return TransposedHeader(bucket_sizes, buffer_sizes, states, first)


def _decode_machine(reader: _HeaderReader, num_buffers: int) -> tuple[tuple[list[int], ...], int]:
    num_states = reader.read_integer(_U32, "the number of states")
    if num_states == 0:
        raise InvalidArgumentError("the machine has no states")
    reader.check_remaining(num_states, "the tag of a state")
    _check_limit(num_states, MAX_STATES, "states")
    tags = reader.read_integers(num_states, _U32, "the tag of a state")
    for tag in tags:
        if not is_tag_of_state(tag):
            raise InvalidArgumentError(f"tag {tag} of a state means nothing")
    bases = reader.read_integers(num_states, 2 * num_states - 1, "the base of a state")
    stored_subtypes = iter(reader.read_bytes(sum(map(has_subtype, tags)), "the subtype of a state"))
    subtypes = [next(stored_subtypes) if has_subtype(tag) else 0 for tag in tags]
    if max(subtypes) > MAX_INLINE_VARINT:
        raise InvalidArgumentError(f"subtype {max(subtypes)} of a state means nothing")
    buffers = [
        reader.read_integer(num_buffers - 1, "the buffer of a state")
        if has_buffer(tag, subtype)
        else -1
        for tag, subtype in zip(tags, subtypes, strict=True)
    ]
    implicit: list[int] = [base >= num_states for base in bases]
    states = tags, [base % num_states for base in bases], implicit, subtypes, buffers
    return states, reader.read_integer(num_states - 1, "the first state")
