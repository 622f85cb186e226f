"""What environments draw, as the pictures that are shown."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["is_blank", "picture_of", "with_caption"]

_LONGEST = 4096
_MARGIN = 6


def picture_of(frame: Any) -> np.ndarray:
    """Returns a frame as a picture, uint8 of shape `[height, width, 3]`.

    Args:
      frame: The frame: uint8 with 3 channels, or with 4, of which the last is left out, or grey.

    Raises:
      ValueError: It is none; says what it is.
    """
    frame = np.asarray(() if frame is None else frame)
    picture: np.ndarray = frame[..., np.newaxis] if frame.ndim == 2 else frame
    channels = picture.shape[2] if picture.ndim == 3 else 0
    if (
        picture.dtype != np.uint8
        or channels not in (1, 3, 4)
        or not 0 < min(picture.shape[:2]) <= max(picture.shape[:2]) <= _LONGEST
    ):
        raise ValueError(
            f"the environment draws {frame.dtype} of shape {frame.shape}, expected uint8 of shape "
            f"(height, width, 3), with sides of up to {_LONGEST}"
        )
    return np.repeat(picture, 3, 2) if channels == 1 else picture[..., :3]


def is_blank(picture: np.ndarray) -> bool:
    """Whether a picture has one color only, as one of a drawing context that is broken."""
    return bool((picture == picture[:1, :1]).all())


def with_caption(picture: np.ndarray, text: str) -> np.ndarray:
    """Returns a picture with lines of text below it."""
    from PIL import Image, ImageDraw, ImageFont

    width = picture.shape[1]
    font = ImageFont.load_default(size=max(12, width // 24))
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width - 2 * _MARGIN:
            longer = word
            lines.append("")
        lines[-1] = longer
    text = "\n".join(lines)
    height = ImageDraw.Draw(Image.new("L", (1, 1))).textbbox((0, 0), text, font)[3] + 2 * _MARGIN
    strip = Image.new("RGB", (width, int(height)))
    ImageDraw.Draw(strip).text((_MARGIN, _MARGIN), text, "white", font)
    return np.concatenate([picture, np.asarray(strip)])
