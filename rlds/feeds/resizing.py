"""Images in other sizes, as Octo and OpenVLA resize them."""

from __future__ import annotations

import functools

import numpy as np

__all__ = ["resize"]

_RADIUS = 3
# How many new pixels are computed together.
_BLOCK = 32


def resize(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes images with a Lanczos filter of radius 3, and without aliases.

    The result is that of `tf.image.resize(..., "lanczos3", antialias=True)`, rounded and clipped.
    In another order of sums a value may be rounded to its neighbour.

    Args:
      images: uint8 of shape `[..., height, width, channels]`.
      size: The new height and width.

    >>> resize(np.full((1, 4, 6, 3), 7, np.uint8), (2, 5)).shape
    (1, 2, 5, 3)
    """
    *leading, height, width, channels = images.shape
    if (height, width) == tuple(size):
        return images
    pixels = images.reshape(-1, height, width * channels).astype(np.float32)
    rows = np.empty((len(pixels), size[0], width * channels), np.float32)
    for new, old, weights in _blocks(height, size[0], 1):
        np.matmul(weights, pixels[:, old], out=rows[:, new])
    rows = rows.reshape(-1, width * channels)
    resized = np.empty((len(rows), size[1] * channels), np.float32)
    for new, old, weights in _blocks(width, size[1], channels):
        resized[:, new] = rows[:, old] @ weights.T
    rounded = np.clip(np.rint(resized), 0, 255).astype(np.uint8)
    return rounded.reshape(*leading, *size, channels)


@functools.lru_cache(maxsize=64)
def _blocks(old: int, new: int, channels: int) -> list[tuple[slice, slice, np.ndarray]]:
    """How much old pixels of a line add to new ones: for a few of these, the only ones that do."""
    scale = np.float32(old) / np.float32(new)
    reach = max(scale, np.float32(1.0))
    centers = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * scale
    distances = np.arange(old, dtype=np.float32) + np.float32(0.5) - centers[:, np.newaxis]
    weights = _lanczos(distances / reach)
    weights /= weights.sum(axis=1, keepdims=True)
    blocks = []
    for begin in range(0, new, _BLOCK):
        some = weights[begin : begin + _BLOCK]
        used = np.flatnonzero(some.any(axis=0))
        first, last = int(used[0]), int(used[-1]) + 1
        of_channels = np.kron(some[:, first:last], np.eye(channels, dtype=np.float32))
        end = begin + len(some)
        blocks.append(
            (
                slice(begin * channels, end * channels),
                slice(first * channels, last * channels),
                of_channels,
            )
        )
    return blocks


def _lanczos(x: np.ndarray) -> np.ndarray:
    inside = np.abs(x) < _RADIUS
    return np.where(inside, np.sinc(x) * np.sinc(x / _RADIUS), 0.0).astype(np.float32)
