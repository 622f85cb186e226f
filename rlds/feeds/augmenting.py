"""Random changes of images, as dlimp makes them for Octo and OpenVLA."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlds.feeds.permutation import RowRandom
from rlds.feeds.samples import Batch
from rlds_ecosystem.model.names import what_there_is

__all__ = ["CHANGES", "augment", "augment_batch"]

_DRAWS = 4
_ORDER = "augment_order"
_IMAGE = "image_"


def augment(image: np.ndarray, options: Mapping[str, Any], draws: np.ndarray) -> np.ndarray:
    """Changes an image at random.

    Args:
      image: uint8 of shape `[..., height, width, 3]`: all are changed in the same way.
      options: "augment_order" names the changes; under its name, each has its numbers, by their
        names or in their order. See `CHANGES`.
      draws: Random numbers from 0 on, below 1, of shape `[changes, 4]`.

    Raises:
      ValueError: There is no such change, or its numbers are missing.

    >>> grey = np.full((2, 2, 3), 100, np.uint8)
    >>> brighter = {"augment_order": ["random_brightness"], "random_brightness": [0.2]}
    >>> augment(grey, brighter, np.ones((1, 4)))[0, 0].tolist()
    [151, 151, 151]
    """
    if _ORDER not in options:
        raise ValueError(f"augmentation: expected the option {_ORDER!r}, got {list(options)}")
    # Channels first, so that computations go through memory in order.
    values = np.moveaxis(image, -1, -3).astype(np.float32, order="C")
    values *= np.float32(1 / 255)
    for name, drawn in zip(options[_ORDER], draws, strict=True):
        change = CHANGES.get(name)
        if change is None:
            raise ValueError(f"no augmentation {name!r}; {what_there_is(name, CHANGES)}")
        given = options.get(name, ())
        try:
            if isinstance(given, Mapping):
                values = change(values, drawn, **given)
            else:
                values = change(values, drawn, *given)
        except TypeError as error:
            raise ValueError(f"{name}: {error}") from error
        np.clip(values, 0, 1, out=values)
    values *= np.float32(255.5)
    np.minimum(values, 255, out=values)
    return np.ascontiguousarray(np.moveaxis(values.astype(np.uint8), -3, -1))


def augment_batch(options: Mapping[str, Any], batch: Batch, rng: RowRandom) -> Batch:
    """Changes the images of "observation" and "task" at random, but for those that are padding.

    All images of a camera in a row are changed in the same way.

    Args:
      options: Options of all cameras, or by the names of the cameras; see `augment`.
      batch: A batch of samples of Octo or OpenVLA, which is changed, and returned.
      rng: The random numbers of the rows.
    """
    names = sorted({key for part in ("observation", "task") for key in batch[part]})
    for name in (name for name in names if name.startswith(_IMAGE)):
        given = options if _ORDER in options else options.get(name.removeprefix(_IMAGE))
        if not given:
            continue
        size = len(batch["action"])
        draws = rng.random((size, len(given[_ORDER]), _DRAWS))
        for part in (batch["observation"], batch["task"]):
            images, mask = part.get(name), part["pad_mask_dict"].get(name)
            for row in np.flatnonzero(mask.reshape(size, -1).any(1)) if images is not None else ():
                images[row] = augment(images[row], given, draws[row])
    return batch


def _between(bounds: Sequence[float], draw: float) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * draw


def _crop(
    values: np.ndarray, draws: np.ndarray, scale: Sequence[float], ratio: Sequence[float]
) -> np.ndarray:
    """Crops images to a random share of the area and aspect ratio, and resizes them back."""
    logs = [math.log(bound) for bound in ratio]
    area, shape = _between(scale, draws[0]), math.exp(_between(logs, draws[1]))
    for axis, size, draw in ((-2, math.sqrt(area / shape), 2), (-1, math.sqrt(area * shape), 3)):
        share = min(size, 1.0)
        length = values.shape[axis]
        begin = draws[draw] * (1 - share)
        coordinates = (begin + share * np.linspace(0, 1, length)) * (length - 1)
        below = np.minimum(coordinates.astype(np.int64), max(length - 2, 0))
        weights = (coordinates - below).astype(np.float32).reshape(-1, *(1,) * (-axis - 1))
        first = values.take(below, axis)
        second = values.take(np.minimum(below + 1, length - 1), axis)
        second -= first
        second *= weights
        values = np.add(first, second, out=first)
    return values


def _brightness(values: np.ndarray, draws: np.ndarray, max_delta: float) -> np.ndarray:
    values += np.float32(_between((-max_delta, max_delta), draws[0]))
    return values


def _contrast(values: np.ndarray, draws: np.ndarray, lower: float, upper: float) -> np.ndarray:
    mean = values.mean(axis=(-2, -1), keepdims=True)
    values -= mean
    values *= np.float32(_between((lower, upper), draws[0]))
    values += mean
    return values


def _range(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest channel value of each pixel, and its distance to the smallest one."""
    red, green, blue = np.moveaxis(values, -3, 0)
    largest = np.maximum(np.maximum(red, green), blue)
    return largest, largest - np.minimum(np.minimum(red, green), blue)


def _saturation(values: np.ndarray, draws: np.ndarray, lower: float, upper: float) -> np.ndarray:
    largest, spread = _range(values)
    # A colour with a channel of 0 is fully saturated.
    factor = largest / np.maximum(spread, np.float32(1e-12), out=spread)
    np.minimum(factor, np.float32(_between((lower, upper), draws[0])), out=factor)
    largest = np.expand_dims(largest, -3)
    values -= largest
    values *= np.expand_dims(factor, -3)
    values += largest
    return values


def _hue(values: np.ndarray, draws: np.ndarray, max_delta: float) -> np.ndarray:
    largest, spread = _range(values)
    red, green, blue = np.moveaxis(values, -3, 0)
    per = 1 / np.where(spread > 0, spread, np.float32(1))
    hue = np.where(largest == green, 2 + (blue - red) * per, 4 + (red - green) * per)
    hue = np.where(largest == red, (green - blue) * per, hue)
    hue += np.float32(6 * _between((-max_delta, max_delta), draws[0]))
    for channel, offset in enumerate((5, 3, 1)):
        turned = hue + np.float32(offset)
        turned -= 6 * np.floor(turned * np.float32(1 / 6))
        share = np.minimum(turned, 4 - turned, out=turned)
        np.clip(share, 0, 1, out=share)
        share *= spread
        np.subtract(largest, share, out=values[..., channel, :, :])
    return values


def _flipped(axis: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda values, draws: np.flip(values, axis).copy() if draws[0] < 0.5 else values


def _turned(values: np.ndarray, draws: np.ndarray) -> np.ndarray:
    return np.rot90(values, int(draws[0] * 4), (-2, -1)).copy()


CHANGES: Mapping[str, Callable[..., np.ndarray]] = {
    "random_resized_crop": _crop,
    "random_brightness": _brightness,
    "random_contrast": _contrast,
    "random_saturation": _saturation,
    "random_hue": _hue,
    "random_flip_left_right": _flipped(-1),
    "random_flip_up_down": _flipped(-2),
    "random_rot90": _turned,
}
"""The changes, with what they take: `scale` and `ratio` of a crop, `max_delta` of the brightness
and of the hue, `lower` and `upper` of the factor of the contrast and of the saturation."""
