"""JPEG images: what their header says, and a plain image."""

from __future__ import annotations

import io

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
        raise ValueError(f"not a JPEG image: it begins with {data[:8].hex(' ')!r}, not 'ff d8'")
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
    raise ValueError("a damaged JPEG image: the header of its frame is missing")


def black_jpeg(shape: tuple[int, ...]) -> bytes:
    """Returns a black image of a shape, see `jpeg_shape`."""
    from PIL import Image  # Not needed for headers alone.

    height, width, *channels = shape
    file = io.BytesIO()
    Image.new("RGB" if channels == [3] else "L", (width, height)).save(file, "JPEG")
    return file.getvalue()
