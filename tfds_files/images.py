"""Decoding of stored images, PNG and JPEG files, to arrays."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from rlds_ecosystem.model.columns import fits
from tfds_files import png
from tfds_files.errors import DamagedFileError, UnsupportedFileError
from tfds_files.features import Image

__all__ = ["decode_image", "is_plausible"]

_MODES = {None: "RGB", 1: "L", 3: "RGB", 4: "RGBA"}  # The modes by the number of channels.
# Mode conversions in which Pillow equals TensorFlow: values are copied, added or dropped.
_EXACT_CONVERSIONS = {
    "1": ("L", "RGB", "RGBA"),
    "L": ("RGB", "RGBA"),
    "LA": ("L", "RGB", "RGBA"),
    "P": ("RGB", "RGBA"),
    "RGB": ("RGBA",),
    "RGBA": ("RGB",),
}
# The maximum number of pixels per byte of a file: Deflate expands a byte to 1032 bytes, with up to
# eight pixels each; JPEG has at most 64 pixels in a few bits.
_MAX_PIXELS_PER_BYTE = 1 << 14


def is_plausible(data: bytes | memoryview, height: int, width: int) -> bool:
    """Whether a file is large enough for an image of a size; checked before memory is allocated."""
    return height * width <= _MAX_PIXELS_PER_BYTE * len(data)


def decode_image(data: bytes, feature: Image) -> np.ndarray:
    """Returns an image.

    PNG files give the same pixels as in TFDS. For JPEG files, TensorFlow takes a shortcut by
    default, and is off by up to 15 of 255. This function returns exact pixels, like other
    libraries, and like TensorFlow with `dct_method="INTEGER_ACCURATE"`.

    Args:
      data: The file.
      feature: The feature of the image.

    Raises:
      DamagedFileError: The file is not an image, or has another size.
      UnsupportedFileError: The channels or the kind of the image differ from the feature.
    """
    channels = 4 if feature.dtype == np.float32 else feature.shape[-1]
    if feature.dtype == np.uint16 and channels != 1:
        image = png.decode_png(data)
    else:
        image = _decode_by_pillow(data, "I;16" if feature.dtype == np.uint16 else _MODES[channels])
    if feature.dtype == np.float32:
        image = image.view(np.float32)
    elif image.dtype != feature.dtype:
        raise UnsupportedFileError(f"an image of {image.dtype}, expected {feature.dtype}")
    if not fits(image.shape, feature.shape):
        raise DamagedFileError(f"got an image of {image.shape}, expected {feature.shape}")
    return image


def _decode_by_pillow(data: bytes, mode: str) -> np.ndarray:
    import PIL.Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large images.
            image: Any = PIL.Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "BMP"))
        if not is_plausible(data, image.height, image.width):
            raise DamagedFileError(f"{image.width} x {image.height} pixels in {len(data)} bytes")
        if image.mode != mode:
            if image.mode not in _EXACT_CONVERSIONS or mode not in _EXACT_CONVERSIONS[image.mode]:
                raise UnsupportedFileError(
                    f"an image with the channels {image.mode}, expected {mode}; "
                    "tensorflow_datasets may read it"
                )
            image = image.convert(mode)
        array = np.array(image)
    except (DamagedFileError, UnsupportedFileError):
        raise
    except Exception as e:  # Pillow raises many classes of errors for damaged files.
        raise DamagedFileError(f"not a readable image: {e}") from e
    return array if array.ndim == 3 else array[..., np.newaxis]
