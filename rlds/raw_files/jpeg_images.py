"""JPEG images: what their header says, and a plain image."""

from __future__ import annotations

import math
import struct

__all__ = ["black_jpeg", "jpeg_shape"]

_BEGIN, _END = b"\xff\xd8", b"\xff\xd9"
# Markers of what has no length: restarts, the beginning and the end of the image, padding.
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xDA)}
# The headers of frames: all kinds of compression.
_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SCAN = 0xDA


def jpeg_shape(data: bytes) -> tuple[int, ...]:
    """Returns the shape of an image: height, width and, unless it is grey, channels.

    Raises:
      ValueError: This is no JPEG file, or not all of one.

    >>> jpeg_shape(black_jpeg((2, 3, 3)))
    (2, 3, 3)
    """
    if not data.startswith(_BEGIN):
        raise ValueError(f"no JPEG image: it begins with {data[:8].hex(' ')!r}, not with 'ff d8'")
    if not data.endswith(_END):
        raise ValueError(f"a JPEG image that is cut off: it ends with {data[-8:].hex(' ')!r}")
    position = len(_BEGIN)
    while position + 9 < len(data) and data[position] == 0xFF and data[position + 1] != _SCAN:
        marker = data[position + 1]
        if marker in _FRAMES:
            height, width, channels = (
                int.from_bytes(data[position + 5 : position + 7]),
                int.from_bytes(data[position + 7 : position + 9]),
                data[position + 9],
            )
            return (height, width) if channels == 1 else (height, width, channels)
        if marker == 0xFF:  # Padding before a marker.
            position += 1
        elif marker in _WITHOUT_LENGTH:
            position += 2
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4])
    raise ValueError("a damaged JPEG image: there is no header of a frame")


def black_jpeg(shape: tuple[int, ...]) -> bytes:
    """Returns a black image of a shape, see `jpeg_shape`."""
    height, width = shape[:2]
    components = range(1, 1 + (shape[2:] or (1,))[0])
    blocks = math.ceil(height / 8) * math.ceil(width / 8)
    # A block is the difference of its mean to the one before, and that there is nothing else. The
    # first is -16 (of 64), after the code of numbers of five bits; all others are no difference.
    bits = "10" + "01111" + "0" + "00" * (len(components) * blocks - 1)
    bits += "1" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8)
    frame = struct.pack(">BHHB", 8, height, width, len(components))
    frame += b"".join(bytes([number, 0x11, 0]) for number in components)
    scan = bytes([len(components)]) + b"".join(bytes([number, 0]) for number in components)
    return b"".join(
        [
            b"\xff\xd8",
            _segment(0xDB, b"\x00" + b"\x40" * 64),
            _segment(0xC0, frame),
            _segment(0xC4, b"\x00\x01\x01" + bytes(14) + b"\x00\x05"),
            _segment(0xC4, b"\x10\x01" + bytes(15) + b"\x00"),
            _segment(0xDA, scan + b"\x00\x3f\x00"),
            data.replace(b"\xff", b"\xff\x00"),
            b"\xff\xd9",
        ]
    )


def _segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(content)) + content
