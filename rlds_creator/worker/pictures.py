"""Pictures of environments as image files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["DRAFT", "QUALITIES", "PictureError", "as_rgb", "encode_picture"]

# The quality in which the environment itself draws faster, where it can.
DRAFT = "draft"

# Quality and chroma subsampling of JPEG.
_JPEG = {
    DRAFT: (60, "4:2:0"),
    "low": (50, "4:2:0"),
    "medium": (75, "4:2:0"),
    "high": (92, "4:4:4"),
}
QUALITIES = tuple(_JPEG)

_MAX_SIDE = 4096

# Up to this side, pictures are often drawn of few colours, and smaller without loss.
_SMALL_SIDE = 256


class PictureError(ValueError):
    """An environment rendered no valid image."""


def as_rgb(drawn: Any) -> np.ndarray:
    """Returns the picture of an environment as uint8 of shape `[height, width, 3]`.

    Args:
      drawn: An array of shape `[height, width]`, `[height, width, channels]` or
        `[channels, height, width]`, with 1, 3 or 4 channels: integers or floats from 0 to 255,
        floats from 0 to 1, or booleans.

    Raises:
      PictureError: It is something else.
    """
    if not isinstance(drawn, np.ndarray):
        raise PictureError(f"picture: expected an array, got {type(drawn).__name__}")
    shape = drawn.shape
    if drawn.ndim == 2:
        drawn = drawn[:, :, np.newaxis]
    elif drawn.ndim == 3 and shape[2] not in (1, 3, 4) and shape[0] in (1, 3, 4):
        drawn = drawn.transpose(1, 2, 0)
    if drawn.ndim != 3 or drawn.shape[2] not in (1, 3, 4) or not drawn.size:
        raise PictureError(
            f"picture: expected height, width and 1, 3 or 4 channels, got shape {shape}"
        )
    if max(drawn.shape) > _MAX_SIDE:
        raise PictureError(
            f"picture: expected at most {_MAX_SIDE} pixels a side, got shape {shape}"
        )
    drawn = _as_uint8(drawn[:, :, :3])
    if drawn.shape[2] == 1:
        drawn = np.broadcast_to(drawn, (*drawn.shape[:2], 3))
    contiguous: np.ndarray = np.ascontiguousarray(drawn)
    return contiguous


def _as_uint8(drawn: np.ndarray) -> np.ndarray:
    if drawn.dtype == np.uint8:
        return drawn
    if drawn.dtype.kind not in "biuf":
        raise PictureError(f"picture: expected numbers, got {drawn.dtype}")
    low, high = drawn.min(), drawn.max()
    if not (low >= 0 and high <= 255):  # Also where one of them is NaN.
        raise PictureError(f"picture: expected values from 0 to 255, got {low} to {high}")
    if drawn.dtype.kind == "b" or (drawn.dtype.kind == "f" and high <= 1):
        drawn = drawn * 255.0
    rounded: np.ndarray = np.rint(drawn).astype(np.uint8)
    return rounded


def encode_picture(picture: np.ndarray, quality: str) -> tuple[bytes, str]:
    """Returns the file of a picture and its format, one of `rlds_creator.frames.CODECS`.

    It is JPEG. A small picture is WebP without loss if that makes the file smaller, as it does for
    the drawings of few colours that many environments make.

    Args:
      picture: See `as_rgb`.
      quality: One of `QUALITIES`.
    """
    file = _jpeg(picture, quality), "jpeg"
    if max(picture.shape) > _SMALL_SIDE:
        return file
    lossless = _webp(picture), "webp"
    return min(lossless, file, key=lambda each: len(each[0]))


def _jpeg(picture: np.ndarray, quality: str) -> bytes:
    level, subsampling = _JPEG[quality]
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=level, subsampling=subsampling)
    return file.getvalue()


def _webp(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "WEBP", lossless=True, quality=80, method=0)
    return file.getvalue()
