"""The position of a record in a file: the begin of its chunk, and its index in the chunk."""

from collections.abc import Callable
from functools import total_ordering
from operator import index
from typing import Self

__all__ = ["RecordPosition"]

_MAX_POSITION = (1 << 64) - 1
_OLD_BINARY_SIZE = 16


@total_ordering
class RecordPosition:
    """The position of a record: the begin of its chunk, and its index in the chunk.

    Positions are immutable, ordered like the records in the file, hashable, and can be stored as
    text or bytes.

    >>> position = RecordPosition(64, 5)
    >>> str(position), position.to_bytes().hex(), position.numeric
    ('64/5', '4005', 69)
    >>> RecordPosition.from_str("64/5") == position
    True

    The position from a writer with `parallelism` may be pending: then access to the begin of the
    chunk waits until all earlier chunks are encoded.

    Attributes:
      chunk_begin: Byte offset of the chunk.
      record_index: Index of the record in the chunk.

    Raises:
      TypeError: an argument is not an integer.
      OverflowError: an argument or their sum is negative or does not fit 64 bits.
    """

    __slots__ = ("_chunk_begin", "_record_index")

    def __init__(self, chunk_begin: int, record_index: int) -> None:
        begin, record = index(chunk_begin), index(record_index)
        if begin < 0 or record < 0 or begin + record > _MAX_POSITION:
            raise OverflowError(f"record position {begin}/{record} is not within 64 unsigned bits")
        self._chunk_begin: int | Callable[[], int] = begin
        self._record_index = record

    @classmethod
    def _create(cls, chunk_begin: int | Callable[[], int], record_index: int) -> Self:
        """Creates a valid position; a function as `chunk_begin` is called on access."""
        position = cls.__new__(cls)
        position._chunk_begin = chunk_begin
        position._record_index = record_index
        return position

    @property
    def chunk_begin(self) -> int:
        """Byte offset of the chunk."""
        begin = self._chunk_begin
        if not isinstance(begin, int):
            begin = self._chunk_begin = begin()
        return begin

    @property
    def record_index(self) -> int:
        """Index of the record in the chunk."""
        return self._record_index

    @property
    def numeric(self) -> int:
        """`chunk_begin + record_index`: a different integer for each record of a file."""
        return self.chunk_begin + self._record_index

    def _key(self) -> tuple[int, int]:
        return self.chunk_begin, self._record_index

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, RecordPosition) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._key() < other._key() if isinstance(other, RecordPosition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[type[Self], tuple[int, int]]:
        return type(self), self._key()

    def __str__(self) -> str:
        return f"{self.chunk_begin}/{self.record_index}"

    def __repr__(self) -> str:
        return f"RecordPosition({self.chunk_begin}, {self.record_index})"

    @classmethod
    def from_str(cls, serialized: str | bytes) -> Self:
        """Parses the result of `str`.

        Raises:
          TypeError: `serialized` is neither text nor bytes.
          ValueError: `serialized` is not a record position.
        """
        if not isinstance(serialized, str | bytes):
            raise TypeError(f"expected str or bytes, got {serialized!r}")
        try:
            text = serialized.decode("ascii") if isinstance(serialized, bytes) else serialized
            begin, slash, record = text.partition("/")
            if not slash:
                raise ValueError("no slash")
            return cls(int(begin), int(record))
        except (ValueError, OverflowError) as e:
            raise ValueError(f"{serialized!r} is no record position like '64/5': {e}") from e

    def to_bytes(self) -> bytes:
        """Serializes the position; bytes have the same order as positions."""
        return _encode_ordered_varint(self.chunk_begin) + _encode_ordered_varint(self.record_index)

    @classmethod
    def from_bytes(cls, serialized: bytes) -> Self:
        """Parses the result of `to_bytes`, or the older form of two big-endian 64-bit integers.

        Raises:
          ValueError: `serialized` is not a record position.
        """
        try:
            if len(serialized) == _OLD_BINARY_SIZE:
                return cls(
                    int.from_bytes(serialized[:8], "big"), int.from_bytes(serialized[8:], "big")
                )
            begin, offset = _decode_ordered_varint(serialized, 0)
            record, offset = _decode_ordered_varint(serialized, offset)
            if offset != len(serialized):
                raise ValueError(f"{len(serialized) - offset} bytes too many")
            return cls(begin, record)
        except (ValueError, OverflowError) as e:
            raise ValueError(f"{serialized!r} is no record position: {e}") from e


def _encode_ordered_varint(value: int) -> bytes:
    """Encodes the length in unary, as leading one bits, and then the value, big-endian."""
    size = max(1, -(-value.bit_length() // 7))
    if size > 8:
        return b"\xff" + value.to_bytes(8, "big")
    length_bits = (0xFF << (9 - size)) & 0xFF
    return (value | length_bits << (8 * (size - 1))).to_bytes(size, "big")


def _decode_ordered_varint(data: bytes, offset: int) -> tuple[int, int]:
    if offset >= len(data):
        raise ValueError("cut off")
    first_byte = data[offset]
    if first_byte == 0xFF:
        size, value = 9, int.from_bytes(data[offset + 1 : offset + 9], "big")
    else:
        size = 9 - (first_byte ^ 0xFF).bit_length()
        value = int.from_bytes(data[offset : offset + size], "big") & ((1 << (7 * size)) - 1)
    if len(data) < offset + size:
        raise ValueError("cut off")
    if _encode_ordered_varint(value) != data[offset : offset + size]:
        raise ValueError("not the shortest form")
    return value, offset + size
