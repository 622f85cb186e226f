"""TIFF files of depth images: 16-bit integers or 32-bit floats, one channel."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from rlds_ecosystem import import_extra
from tfds_files.images import is_plausible

__all__ = ["encode_tiff", "is_depth_tiff", "tiff_pixels"]

# The modes of Pillow, by their first letters.
_MODE_DTYPES = {"I;16": np.uint16, "F": np.float32}


def is_depth_tiff(data: bytes) -> bool:
    """Whether data is a TIFF file of depths, not of colours.

    Raises:
      ValueError: The data begins like a TIFF file, but is damaged.
    """
    is_tiff = data.startswith((b"II*\0", b"MM\0*"))
    return is_tiff and _open(data).mode[:4] in _MODE_DTYPES


def tiff_pixels(data: bytes) -> np.ndarray:
    """Returns the pixels of a depth image, of shape (height, width, 1).

    Raises:
      ValueError: The file is damaged, or has other pixels.
    """
    image = _open(data)
    dtype = _MODE_DTYPES.get(image.mode[:4])
    if dtype is None or not is_plausible(data, image.height, image.width):
        content = f"{image.width} x {image.height} pixels of mode {image.mode} in {len(data)} bytes"
        raise ValueError(f"a TIFF file of {content}, expected 16-bit integers or 32-bit floats")
    return np.asarray(image).astype(dtype, copy=False)[..., None]


def encode_tiff(pixels: np.ndarray) -> bytes:
    """Returns the TIFF file of a depth image; the inverse of `tiff_pixels`."""
    file = io.BytesIO()
    import_extra("PIL.Image").fromarray(pixels[..., 0]).save(file, "TIFF")
    return file.getvalue()


def _open(data: bytes) -> Any:
    """Opens a TIFF file with Pillow, which reads the header only.

    Raises:
      ValueError: The file is damaged.
    """
    pillow = import_extra("PIL.Image")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about large images.
        try:
            return pillow.open(io.BytesIO(data), formats=("TIFF",))
        except (OSError, pillow.DecompressionBombError) as error:
            raise ValueError(f"not a readable TIFF file:  {error}") from error
