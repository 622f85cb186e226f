"""PNG images: what their header says."""

from __future__ import annotations

import numpy as np

from tfds_files.png import read_header

__all__ = ["is_png", "png_shape"]

# Deflate makes 1032 bytes of one at most, and a byte may be eight pixels.
_MAX_PIXELS_PER_BYTE = 8 * 1032
_CHANNELS = {0: 1, 2: 3, 3: 3, 6: 4}  # A palette (3) is decoded to RGB.


def is_png(data: bytes) -> bool:
    """Whether bytes begin as a PNG file does."""
    return data.startswith(b"\x89PNG\r\n\x1a\n")


def png_shape(data: bytes) -> tuple[tuple[int, int, int], type[np.generic]]:
    """Returns height, width and channels of a PNG file, and the dtype that holds its values.

    Raises:
      ValueError: This is no PNG file, or one with a colour type that `tfds.features.Image` cannot
        hold (grey with alpha).

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
    if colour_type not in _CHANNELS:
        raise ValueError(f"a PNG file of colour type {colour_type}, expected grey, RGB or RGBA")
    return (height, width, _CHANNELS[colour_type]), np.uint16 if depth == 16 else np.uint8
