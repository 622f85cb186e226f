"""Transposed chunks: the values of each field together, and a machine that restores the records.

    1 byte   compression type
    varint   size of the header, as stored
    buffer   header
    buffers  the buckets, back to back
    buffer   transitions

The header is made of varints, apart from the subtypes, which take a byte each:

    num_buckets, num_buffers
    for each bucket its size, as stored
    for each buffer its size
    num_states
    for each state its tag
    for each state the base of the states that can follow; num_states more if the state is implicit
    for each state of a varint field its subtype
    for each state that has a buffer the index of the buffer
    the first state

A buffer has the values of one field, the last one of the chunk first; a bucket has whole buffers.
The machine puts the records together from their end to their begin. A state stands for an element:
a field, the begin or the end of a submessage, the begin of a record. It writes the element in front
of what is there. The upper six bits of a transition say which state follows, counted from the base;
the lower two how many more times the base of the state reached follows, without a transition.
Behind an implicit state its base always follows, without a transition. The end is where an explicit
state finds no more transitions.
"""

from dataclasses import dataclass

from riegeli._core import read_varint, read_varints, run_machine
from riegeli._format.chunk import Chunk
from riegeli._format.compression import decompress
from riegeli._pure.machine import (
    MAX_INLINE_VARINT,
    Scope,
    has_buffer,
    has_subtype,
    is_tag_of_state,
)
from riegeli.base.riegeli_error import InvalidArgumentError

# More than any chunk needs, in bytes.
MAX_HEADER_SIZE = 1 << 28
MAX_TRANSITIONS_SIZE = 1 << 32

_U32 = (1 << 32) - 1
_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Machine:
    """The states of a chunk: lists with an item for each, and where to begin.

    Attributes:
      tags: What each state stands for.
      bases: Which state follows it, or is the first of those that can follow.
      implicit: Whether the base follows without a transition.
      subtypes: How the value of a varint field is stored; 0 for other states.
      buffers: The index of the buffer with the values; -1 for states without.
      first: The state to begin with.
    """

    tags: list[int]
    bases: list[int]
    implicit: list[bool]
    subtypes: list[int]
    buffers: list[int]
    first: int


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a transposed chunk says."""

    bucket_sizes: list[int]
    buffer_sizes: list[int]
    machine: Machine


def decode_transposed_chunk(chunk: Chunk, num_records: int, scope: Scope = True) -> list[bytes]:
    """The records of a transposed chunk.

    Args:
      chunk: The chunk.
      num_records: How many records it has; a metadata chunk has one, though its header says none.
      scope: Which fields to read, see `riegeli._pure.machine`.

    Raises:
      InvalidArgumentError: the data is damaged.
      UnimplementedError: an unknown algorithm.
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
    header = decode_header(decompress(compression_type, data[begin:buckets_begin], MAX_HEADER_SIZE))
    transitions_begin = buckets_begin + sum(header.bucket_sizes)
    if transitions_begin > len(data):
        raise InvalidArgumentError("the buckets take more bytes than are there")
    buckets = _split(data, buckets_begin, header.bucket_sizes)
    buffers = _buffers(compression_type, buckets, header.buffer_sizes)
    transitions = decompress(compression_type, data[transitions_begin:], MAX_TRANSITIONS_SIZE)
    machine = header.machine
    states = (machine.tags, machine.bases, machine.implicit, machine.subtypes, machine.buffers)
    try:
        return run_machine(
            states, machine.first, buffers, transitions, num_records, chunk.decoded_data_size, scope
        )
    except ValueError as e:
        raise InvalidArgumentError(f"transposed chunk is damaged: {e}") from e


def _split(data: bytes, begin: int, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[begin : begin + size])
        begin += size
    return pieces


def _buffers(compression_type: int, buckets: list[bytes], sizes: list[int]) -> list[memoryview]:
    """The buffers, cut from the buckets: none lies in two of them."""
    remaining = list(reversed(buckets))
    bucket, used = memoryview(b""), 0
    is_open = False
    buffers = []
    for index, size in enumerate(sizes):
        if not is_open:
            if not remaining:
                raise InvalidArgumentError(f"the buckets end before buffer {index}")
            bucket, used = memoryview(decompress(compression_type, remaining.pop(), _U64)), 0
        if size > len(bucket) - used:
            raise InvalidArgumentError(
                f"buffer {index} has {size} bytes, but its bucket {len(bucket) - used} more"
            )
        buffers.append(bucket[used : used + size])
        used += size
        is_open = used < len(bucket)
    if is_open or any(decompress(compression_type, bucket, _U64) for bucket in remaining):
        raise InvalidArgumentError("the buckets have more bytes than the buffers")
    return buffers


class _Numbers:
    """Reads numbers one after the other; no more than the bytes that are there can hold."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def remaining(self) -> int:
        return len(self._data) - self._at

    def one(self, maximum: int, what: str) -> int:
        value, self._at = read_varint(self._data, self._at)
        if value > maximum:
            raise InvalidArgumentError(f"{what} is {value}, which is too large")
        return value

    def many(self, count: int, maximum: int, what: str) -> list[int]:
        self._check_room(count, what)
        values, self._at = read_varints(self._data, self._at, count)
        if values and max(values) > maximum:
            raise InvalidArgumentError(f"{what} is {max(values)}, which is too large")
        return values

    def bytes(self, count: int, what: str) -> bytes:
        self._check_room(count, what)
        self._at += count
        return self._data[self._at - count : self._at]

    def _check_room(self, count: int, what: str) -> None:
        if count > self.remaining():
            raise InvalidArgumentError(f"{count} times {what}, in {self.remaining()} bytes")


def decode_header(data: bytes) -> Header:
    """Reads the decompressed header of a transposed chunk.

    Raises:
      InvalidArgumentError: it is damaged.
    """
    numbers = _Numbers(data)
    try:
        num_buckets = numbers.one(_U32, "the number of buckets")
        num_buffers = numbers.one(_U32, "the number of buffers")
        bucket_sizes = numbers.many(num_buckets, _U64, "the size of a bucket")
        buffer_sizes = numbers.many(num_buffers, _U64, "the size of a buffer")
        machine = _decode_machine(numbers, num_buffers)
    except ValueError as e:
        raise InvalidArgumentError(f"header of a transposed chunk is damaged: {e}") from e
    if numbers.remaining():
        raise InvalidArgumentError(f"{numbers.remaining()} bytes follow the header")
    return Header(bucket_sizes, buffer_sizes, machine)


def _decode_machine(numbers: _Numbers, num_buffers: int) -> Machine:
    num_states = numbers.one(_U32, "the number of states")
    if num_states == 0:
        raise InvalidArgumentError("the machine has no states")
    tags = numbers.many(num_states, _U32, "the tag of a state")
    for tag in tags:
        if not is_tag_of_state(tag):
            raise InvalidArgumentError(f"tag {tag} of a state means nothing")
    bases = numbers.many(num_states, 2 * num_states - 1, "the base of a state")
    given = iter(numbers.bytes(sum(map(has_subtype, tags)), "the subtype of a state"))
    subtypes = [next(given) if has_subtype(tag) else 0 for tag in tags]
    if max(subtypes) > MAX_INLINE_VARINT:
        raise InvalidArgumentError(f"subtype {max(subtypes)} of a state means nothing")
    return Machine(
        tags=tags,
        bases=[base % num_states for base in bases],
        implicit=[base >= num_states for base in bases],
        subtypes=subtypes,
        buffers=[
            numbers.one(num_buffers - 1, "the buffer of a state")
            if has_buffer(tag, subtype)
            else -1
            for tag, subtype in zip(tags, subtypes, strict=True)
        ],
        first=numbers.one(num_states - 1, "the first state"),
    )
