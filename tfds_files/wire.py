"""The subset of the protocol buffer wire format that `tf.train.Example` uses.

A message is a sequence of fields: a tag (number and wire type) and a value. Values are varints
(wire type 0), 8 bytes (1), bytes after their length (2), or 4 bytes (5). See "Encoding" in the
documentation of protocol buffers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from riegeli import varints

Buffer = bytes | bytearray | memoryview

__all__ = [
    "LENGTH",
    "VARINT",
    "Buffer",
    "WireError",
    "decode_varints",
    "delimited",
    "encode_varint",
    "encode_varints",
    "fields_of",
    "read_varint",
]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_BYTES = 10


class WireError(ValueError):
    """The bytes are not a message."""


def read_varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    r"""Returns a varint and the position after it.

    Raises:
      WireError: The varint does not end before `end`, or is longer than 64 bits.

    >>> read_varint(b"\xac\x02", 0, 2)
    (300, 2)
    """
    try:
        value, position = varints.read_varint(data, position)
    except ValueError as e:
        raise WireError("a number does not end") from e
    if position > end:
        raise WireError("a number does not end")
    return value, position


def fields_of(data: Buffer, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields the fields of a message: number, wire type, start and end of the value.

    Raises:
      WireError: The bytes are not a message.
    """
    while position < end:
        tag, position = read_varint(data, position, end)
        wire_type, start = tag & 7, position
        if wire_type == LENGTH:
            length, start = read_varint(data, position, end)
            position = start + length
        elif wire_type == VARINT:
            _, position = read_varint(data, position, end)
        elif wire_type in _FIXED_SIZES:
            position += _FIXED_SIZES[wire_type]
        else:
            raise WireError(f"a field of wire type {wire_type}")
        if position > end:
            raise WireError("a field is longer than its message")
        yield tag >> 3, wire_type, start, position


def decode_varints(data: Buffer) -> np.ndarray:
    r"""Returns all varints of a packed list, as int64.

    Raises:
      WireError: The last varint does not end, or a varint is longer than 64 bits.

    >>> decode_varints(b"\x01\xac\x02" + b"\xff" * 9 + b"\x01")
    array([  1, 300,  -1])
    """
    groups = np.frombuffer(data, np.uint8)
    is_last = groups < 128
    if is_last.all():
        return groups.astype(np.int64)
    ends = np.flatnonzero(is_last) + 1
    if not len(ends) or ends[-1] != len(groups):
        raise WireError("a number does not end")
    starts = np.concatenate([[0], ends[:-1]])
    sizes = ends - starts
    if sizes.max() > _MAX_VARINT_BYTES:
        raise WireError("a number is longer than 64 bits")
    values = np.zeros(len(ends), np.uint64)
    for index in range(int(sizes.max())):
        is_present = sizes > index
        group = groups[starts[is_present] + index].astype(np.uint64) & np.uint64(127)
        values[is_present] |= group << np.uint64(7 * index)
    return values.view(np.int64)


def encode_varint(value: int) -> bytes:
    r"""Returns the bytes of a non-negative integer.

    >>> encode_varint(300)
    b'\xac\x02'
    """
    return varints.encode_varints((value,))


def encode_varints(values: np.ndarray) -> tuple[bytes, np.ndarray | None]:
    r"""Encodes integers to a packed list; also returns their byte offsets.

    Args:
      values: Integers of up to 64 bits, of shape `[n]`; negative ones take ten bytes.

    Returns:
      The bytes; and the byte offset of each value and of the end, of shape `[n + 1]`, or None if
      every value is one byte.

    >>> encode_varints(np.array([1, 300]))
    (b'\x01\xac\x02', array([0, 1, 3]))
    """
    values = values.astype(np.int64).view(np.uint64)
    largest = int(values.max(initial=0))
    if largest < 128:
        return values.astype(np.uint8).tobytes(), None
    num_groups = -(-largest.bit_length() // 7)
    shifted_values = values[:, np.newaxis] >> np.arange(0, 7 * num_groups, 7, dtype=np.uint64)
    is_present = shifted_values != 0
    is_present[:, 0] = True
    groups = (shifted_values & np.uint64(127)).astype(np.uint8)
    groups[:, :-1] |= is_present[:, 1:].astype(np.uint8) << 7
    ends = np.concatenate([[0], np.cumsum(is_present.sum(axis=1))])
    return groups[is_present].tobytes(), ends


def delimited(tag: bytes, content: bytes) -> bytes:
    """Returns a length-delimited field of a message."""
    return b"".join((tag, encode_varint(len(content)), content))
