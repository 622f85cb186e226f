"""Images that are files, in the rows of an array: what they are by their headers."""

from __future__ import annotations

import numpy as np

from rlds.raw_files.jpeg_images import jpeg_shape
from rlds.raw_files.png_images import is_png, png_shape
from rlds_ecosystem.model.fields import Field

__all__ = ["image_field", "is_image_file"]


def is_image_file(data: bytes) -> bool:
    """Whether bytes begin as a file of JPEG or PNG does."""
    return data.startswith(b"\xff\xd8\xff") or is_png(data)


def image_field(data: bytes) -> Field:
    """Returns the field for images such as that of a file.

    Raises:
      ValueError: This is no JPEG or PNG file, or it is cut short.
    """
    if is_png(data):
        shape, dtype = png_shape(data)
        if not data.endswith(b"IEND\xaeB`\x82"):
            raise ValueError(f"a PNG image that is cut off: it ends with {data[-8:].hex(' ')!r}")
        return Field(dtype, shape, encoding="png")
    height, width, *channels = jpeg_shape(data)
    return Field(np.uint8, (height, width, *(channels or [1])), encoding="jpeg")
