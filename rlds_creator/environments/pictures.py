"""What is done with pictures of environments."""

from __future__ import annotations

import functools

import numpy as np

__all__ = ["is_blank", "with_caption"]

_MARGIN = 6


def is_blank(picture: np.ndarray) -> bool:
    """Whether a picture has one color only, as one of a drawing context that is broken."""
    return bool((picture == picture[:1, :1]).all())


def with_caption(picture: np.ndarray, text: str) -> np.ndarray:
    """Returns a picture with lines of text below it."""
    return np.concatenate([picture, _caption(text, picture.shape[1])])


@functools.lru_cache(maxsize=16)
def _caption(text: str, width: int) -> np.ndarray:
    from PIL import Image, ImageDraw, ImageFont

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
    return np.asarray(strip)
