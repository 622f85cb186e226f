"""Headers of JPEG and PNG files."""

from __future__ import annotations

import io

import numpy as np

from rlds_ecosystem.model.fields import Field
from tfds_files.png import read_header

__all__ = ["black_jpeg", "image_field", "is_image_file", "is_png", "jpeg_shape", "png_shape"]

_JPEG_BEGIN, _JPEG_END = b"\xff\xd8", b"\xff\xd9"
# JPEG markers without a length: restarts, the beginning and the end of the image, padding.
_MARKERS_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xDA)}
# JPEG markers of frame headers, for all kinds of compression.
_FRAME_MARKERS = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SCAN_START = 0xDA
# Deflate expands a byte to at most 1032 bytes, and a byte may hold eight pixels.
_MAX_PIXELS_PER_BYTE = 8 * 1032
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 6: 4}  # A palette (3) is decoded to RGB.


def is_image_file(data: bytes) -> bool:
    """Whether bytes begin like a JPEG or PNG file."""
    return data.startswith(b"\xff\xd8\xff") or is_png(data)


def image_field(data: bytes) -> Field:
    """Returns the field of an encoded image.

    Raises:
      ValueError: The bytes are not a complete JPEG or PNG file.
    """
    if is_png(data):
        shape, dtype = png_shape(data)
        if not data.endswith(b"IEND\xaeB`\x82"):
            raise ValueError(f"a PNG image that is cut off: it ends with {data[-8:].hex(' ')!r}")
        return Field(dtype, shape, encoding="png")
    height, width, *channels = jpeg_shape(data)
    return Field(np.uint8, (height, width, *(channels or [1])), encoding="jpeg")


def jpeg_shape(data: bytes) -> tuple[int, ...]:
    """Returns the shape of an image: height, width and, unless it is grey, channels.

    Raises:
      ValueError: The bytes are not a complete JPEG file.

    >>> jpeg_shape(black_jpeg((2, 3, 3)))
    (2, 3, 3)
    """
    if not data.startswith(_JPEG_BEGIN):
        raise ValueError(f"not a JPEG image: it begins with {data[:8].hex(' ')!r}, not 'ff d8'")
    if not data.endswith(_JPEG_END):
        raise ValueError(f"a JPEG image that is cut off: it ends with {data[-8:].hex(' ')!r}")
    position = len(_JPEG_BEGIN)
    while position + 9 < len(data) and data[position] == 0xFF and data[position + 1] != _SCAN_START:
        marker = data[position + 1]
        if marker in _FRAME_MARKERS:
            height, width, channels = (
                int.from_bytes(data[position + 5 : position + 7]),
                int.from_bytes(data[position + 7 : position + 9]),
                data[position + 9],
            )
            return (height, width) if channels == 1 else (height, width, channels)
        if marker == 0xFF:  # Padding before a marker.
            position += 1
        elif marker in _MARKERS_WITHOUT_LENGTH:
            position += 2
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4])
    raise ValueError("a damaged JPEG image: the header of its frame is missing")


def black_jpeg(shape: tuple[int, ...]) -> bytes:
    """Returns a black image of a shape, see `jpeg_shape`."""
    from PIL import Image  # Reading headers needs no Pillow.

    height, width, *channels = shape
    file = io.BytesIO()
    Image.new("RGB" if channels == [3] else "L", (width, height)).save(file, "JPEG")
    return file.getvalue()


def is_png(data: bytes) -> bool:
    """Whether bytes begin like a PNG file."""
    return data.startswith(b"\x89PNG\r\n\x1a\n")


def png_shape(data: bytes) -> tuple[tuple[int, int, int], type[np.generic]]:
    """Returns height, width and channels of a PNG file, and the dtype of the values.

    Raises:
      ValueError: The bytes are not a PNG file, or have a colour type that `tfds.features.Image`
        does not support (grey with alpha).

    >>> from tfds_files.png import encode_png
    >>> png_shape(encode_png(np.zeros((2, 3, 1), np.uint8)))
    ((2, 3, 1), <class 'numpy.uint8'>)
    """
    header = read_header(data)
    if header is None:
        raise ValueError(f"not a PNG file: it begins with {data[:8]!r}")
    width, height, depth, colour_type, _ = header
    if not 0 < width * height <= _MAX_PIXELS_PER_BYTE * len(data):
        raise ValueError(f"a PNG file of {len(data)} bytes with {width} x {height} pixels")
    if colour_type not in _PNG_CHANNELS:
        raise ValueError(f"a PNG file of colour type {colour_type}, expected grey, RGB or RGBA")
    return (height, width, _PNG_CHANNELS[colour_type]), np.uint16 if depth == 16 else np.uint8
