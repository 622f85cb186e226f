"""Resizing of images with a Lanczos filter, as in Octo and OpenVLA."""

from __future__ import annotations

import functools

import numpy as np

__all__ = ["resize"]

_LANCZOS_RADIUS = 3
# The number of output pixels in a block: small blocks need more matrix products, and large blocks
# have more zero weights.
_BLOCK_PIXELS = 12


def resize(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes images with an antialiasing Lanczos filter of radius 3.

    The result equals `tf.image.resize(..., "lanczos3", antialias=True)`, rounded and clipped.
    Values may differ by one, as the order of summation differs.

    Args:
      images: uint8 of shape `[..., height, width, channels]`.
      size: The new height and width.

    >>> resize(np.full((1, 4, 6, 3), 7, np.uint8), (2, 5)).shape
    (1, 2, 5, 3)
    """
    *leading, height, width, channels = images.shape
    if (height, width) == tuple(size):
        return images
    if not images.size:  # An empty batch may have no image size.
        return np.zeros((*leading, *size, channels), np.uint8)
    vertical, horizontal = _cut(height, size[0], 1), _cut(width, size[1], channels)
    pixels = images.reshape(-1, height, width * channels)
    resized = np.empty((len(pixels), size[0], size[1] * channels), np.uint8)
    values = np.empty(pixels.shape[1:], np.float32)
    rows = np.empty((size[0], width * channels), np.float32)
    exact = np.empty(resized.shape[1:], np.float32)
    for image, result in zip(pixels, resized):  # One image at a time fits in the CPU cache.
        values[...] = image
        for output_range, input_range, weights in vertical:
            np.matmul(weights, values[input_range], out=rows[output_range])
        for output_range, input_range, weights in horizontal:
            exact[:, output_range] = rows[:, input_range] @ weights.T
        np.rint(exact, out=exact)
        result[...] = np.clip(exact, 0, 255, out=exact)
    return resized.reshape(*leading, *size, channels)


@functools.lru_cache(maxsize=64)
def _cut(input_size: int, size: int, channels: int) -> list[tuple[slice, slice, np.ndarray]]:
    """Returns blocks of output pixels: their range, the range of input pixels, and weights."""
    scale = np.float32(input_size) / np.float32(size)
    support = max(scale, np.float32(1.0))
    centers = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * scale
    pixels = np.arange(input_size, dtype=np.float32) + np.float32(0.5)
    distances = pixels - centers[:, np.newaxis]
    weights = _compute_lanczos(distances / support)
    weights /= weights.sum(axis=1, keepdims=True)
    blocks = []
    for begin in range(0, size, _BLOCK_PIXELS):
        block_weights = weights[begin : begin + _BLOCK_PIXELS]
        used = np.flatnonzero(block_weights.any(axis=0))
        low, high = int(used[0]), int(used[-1]) + 1
        channel_weights = np.kron(block_weights[:, low:high], np.eye(channels, dtype=np.float32))
        output_range = slice(begin * channels, (begin + len(block_weights)) * channels)
        input_range = slice(low * channels, high * channels)
        blocks.append((output_range, input_range, channel_weights))
    return blocks


def _compute_lanczos(x: np.ndarray) -> np.ndarray:
    is_inside = np.abs(x) < _LANCZOS_RADIUS
    return np.where(is_inside, np.sinc(x) * np.sinc(x / _LANCZOS_RADIUS), 0.0).astype(np.float32)
