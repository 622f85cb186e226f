"""PNG images: what their header says, and a plain encoder."""

from __future__ import annotations

import struct
import zlib

import numpy as np

__all__ = ["HEADER_SIZE", "encode_png", "is_png", "png_shape"]

# The signature, and the chunk that every file begins with up to the colour type.
HEADER_SIZE = 26
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">8sI4sIIBB")
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
# Deflate makes 1032 bytes of one at most, and a byte may be eight pixels.
_MAX_PIXELS_PER_BYTE = 8 * 1032
_CHANNELS = {0: 1, 2: 3, 3: 3, 6: 4}  # A palette (3) is decoded to RGB.


def is_png(data: bytes) -> bool:
    """Whether bytes begin as a PNG file does."""
    return data.startswith(_SIGNATURE)


def png_shape(data: bytes) -> tuple[tuple[int, int, int], type[np.generic]]:
    """Returns height, width and channels of a PNG file, and the dtype that holds its values.

    Raises:
      ValueError: This is no PNG file, or one with a colour type that `tfds.features.Image` cannot
        hold (grey with alpha).

    >>> png_shape(encode_png(np.zeros((2, 3, 1), np.uint8)))
    ((2, 3, 1), <class 'numpy.uint8'>)
    """
    if not is_png(data) or len(data) < HEADER_SIZE:
        raise ValueError(f"no PNG file: it begins with {data[:8]!r}")
    _, _, _, width, height, depth, colour_type = _HEADER.unpack(data[:HEADER_SIZE])
    if not 0 < width * height <= _MAX_PIXELS_PER_BYTE * len(data):
        raise ValueError(f"a PNG file of {len(data)} bytes with {width} x {height} pixels")
    if colour_type not in _CHANNELS:
        raise ValueError(f"a PNG file of colour type {colour_type}, expected grey, RGB or RGBA")
    return (height, width, _CHANNELS[colour_type]), np.uint16 if depth == 16 else np.uint8


def encode_png(image: np.ndarray) -> bytes:
    """Returns an image as a PNG file.

    No filter is used: on frames of games that makes files as small as, and in less time than,
    trying all of them.

    Args:
      image: uint8, of shape `(height, width, channels)` with 1, 3 or 4 channels.
    """
    height, width, channels = image.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # Each begins with its filter, none.
    lines[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    return (
        _SIGNATURE
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(lines.tobytes()))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
