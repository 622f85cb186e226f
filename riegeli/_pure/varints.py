"""Varints: unsigned integers as bytes of seven bits, low bits first; the last is below 0x80."""

from collections.abc import Iterable

MAX_VARINT_BYTES = 10

_U64 = (1 << 64) - 1


def read_varint(data: bytes | bytearray | memoryview, begin: int) -> tuple[int, int]:
    """Reads one unsigned base-128 varint of at most 64 bits.

    Returns:
      The value and the offset after it. The encoding need not be minimal.

    Raises:
      ValueError: the varint is cut off, or does not fit 64 bits.
    """
    value = 0
    for count, byte in enumerate(data[begin : begin + MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value > _U64:
                break
            return value, begin + count + 1
    else:
        if len(data) - begin < MAX_VARINT_BYTES:
            raise ValueError(f"varint at byte {begin} is cut off")
    raise ValueError(f"varint at byte {begin} does not fit 64 bits")


def read_varints(data: bytes | memoryview, begin: int, count: int) -> tuple[list[int], int]:
    """Reads `count` successive varints.

    Returns:
      The values and the offset after them.

    Raises:
      ValueError: a varint is cut off, or does not fit 64 bits.
    """
    values = []
    for _ in range(count):
        value, begin = read_varint(data, begin)
        values.append(value)
    return values, begin


def encode_varints(values: Iterable[int]) -> bytes:
    """Encodes `values` (0 <= value < 2**64) as minimal base-128 varints."""
    out = bytearray()
    for value in values:
        while value > 0x7F:
            out.append((value & 0x7F) | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)
