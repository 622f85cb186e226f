"""The encoding of pictures of environments as image files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["DRAFT", "QUALITIES", "PictureError", "as_rgb", "encode_picture"]

# The quality for which environments render faster, see `Playable.has_draft`.
DRAFT = "draft"

# The quality and the chroma subsampling of JPEG.
_JPEG = {DRAFT: (60, "4:2:0"), "low": (50, "4:2:0"), "medium": (75, "4:2:0"), "high": (92, "4:4:4")}
QUALITIES = tuple(_JPEG)

_MAX_SIDE = 4096

# Up to this side, pictures often have few colors, and lossless files are smaller.
_SMALL_SIDE = 256


class PictureError(ValueError):
    """An environment rendered no valid image."""


def as_rgb(picture: Any) -> np.ndarray:
    """Returns the picture of an environment as uint8 of shape `[height, width, 3]`.

    Args:
      picture: An array of shape `[height, width]`, `[height, width, channels]` or
        `[channels, height, width]`, with 1, 3 or 4 channels: integers or floats from 0 to 255,
        floats from 0 to 1, or booleans.

    Raises:
      PictureError: The array has another shape or type.
    """
    if not isinstance(picture, np.ndarray):
        raise PictureError(f"picture: expected an array, got {type(picture).__name__}")
    shape = picture.shape
    if picture.ndim == 2:
        picture = picture[:, :, np.newaxis]
    elif picture.ndim == 3 and shape[2] not in (1, 3, 4) and shape[0] in (1, 3, 4):
        picture = picture.transpose(1, 2, 0)
    if picture.ndim != 3 or picture.shape[2] not in (1, 3, 4) or not picture.size:
        expected = "height, width and 1, 3 or 4 channels"
        raise PictureError(f"picture: expected {expected}, got shape {shape}")
    if max(picture.shape) > _MAX_SIDE:
        raise PictureError(f"picture: expected up to {_MAX_SIDE} pixels a side, got shape {shape}")
    picture = _as_uint8(picture[:, :, :3])
    if picture.shape[2] == 1:
        picture = np.broadcast_to(picture, (*picture.shape[:2], 3))
    contiguous: np.ndarray = np.ascontiguousarray(picture)
    return contiguous


def _as_uint8(picture: np.ndarray) -> np.ndarray:
    if picture.dtype == np.uint8:
        return picture
    if picture.dtype.kind not in "biuf":
        raise PictureError(f"picture: expected numbers, got {picture.dtype}")
    low, high = picture.min(), picture.max()
    if not (low >= 0 and high <= 255):  # NaN raises, too.
        raise PictureError(f"picture: expected values from 0 to 255, got {low} to {high}")
    if picture.dtype.kind == "b" or (picture.dtype.kind == "f" and high <= 1):
        picture = picture * 255.0
    rounded: np.ndarray = np.rint(picture).astype(np.uint8)
    return rounded


def encode_picture(picture: np.ndarray, quality: str) -> tuple[bytes, str]:
    """Returns the file of a picture and its format, one of `rlds_creator.frames.CODECS`.

    The format is JPEG, or lossless WebP if the picture is small and the file is smaller, as for
    drawings with few colors.

    Args:
      picture: See `as_rgb`.
      quality: One of `QUALITIES`.
    """
    file = _encode_jpeg(picture, quality), "jpeg"
    if max(picture.shape) > _SMALL_SIDE:
        return file
    lossless = _encode_webp(picture), "webp"
    return min(lossless, file, key=lambda picture_file: len(picture_file[0]))


def _encode_jpeg(picture: np.ndarray, quality: str) -> bytes:
    level, subsampling = _JPEG[quality]
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=level, subsampling=subsampling)
    return file.getvalue()


def _encode_webp(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "WEBP", lossless=True, quality=80, method=0)
    return file.getvalue()
