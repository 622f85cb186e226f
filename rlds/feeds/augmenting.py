"""Random image augmentation, as in dlimp for Octo and OpenVLA."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlds.feeds.permutation import RowRandom
from rlds.feeds.samples import Batch
from rlds_ecosystem.model.names import suggest_names

__all__ = ["CHANGES", "augment", "augment_batch"]

_RANDOMS_PER_CHANGE = 4
_ORDER = "augment_order"


def augment(image: np.ndarray, options: Mapping[str, Any], randoms: np.ndarray) -> np.ndarray:
    """Augments an image at random.

    Args:
      image: uint8 of shape `[..., height, width, 3]`; all images get the same augmentation.
      options: "augment_order" has the names of the augmentations; the key of each name has its
        parameters, by name or in order. See `CHANGES`.
      randoms: Random numbers in [0, 1), of shape `[augmentations, 4]`.

    Raises:
      ValueError: There is no such augmentation, or its parameters are missing.

    >>> grey = np.full((2, 2, 3), 100, np.uint8)
    >>> brighter = {"augment_order": ["random_brightness"], "random_brightness": [0.2]}
    >>> augment(grey, brighter, np.ones((1, 4)))[0, 0].tolist()
    [151, 151, 151]
    """
    if _ORDER not in options:
        raise ValueError(f"augmentation: expected the option {_ORDER!r}, got {list(options)}")
    # Channels first, for sequential memory access.
    values = np.moveaxis(image, -1, -3).astype(np.float32, order="C")
    values *= np.float32(1 / 255)
    for name, draws in zip(options[_ORDER], randoms, strict=True):
        change = CHANGES.get(name)
        if change is None:
            raise ValueError(f"no augmentation {name!r}; {suggest_names(name, CHANGES)}")
        parameters = options.get(name, ())
        try:
            if isinstance(parameters, Mapping):
                values = change(values, draws, **parameters)
            else:
                values = change(values, draws, *parameters)
        except TypeError as error:
            raise ValueError(f"{name}: {error}") from error
        np.clip(values, 0, 1, out=values)
    values *= np.float32(255.5)
    np.minimum(values, 255, out=values)
    return np.ascontiguousarray(np.moveaxis(values.astype(np.uint8), -3, -1))


def augment_batch(options: Mapping[str, Any], batch: Batch, rng: RowRandom) -> Batch:
    """Augments the images of "observation" and "task" at random, except for padding.

    All images of a camera in a row get the same augmentation.

    Args:
      options: Options for all cameras, or by the names of the cameras; see `augment`.
      batch: A batch of samples of Octo or OpenVLA, changed in place and returned.
      rng: The random generator of the rows.
    """
    names = sorted({*batch["observation"], *batch["task"]})
    for name in (name for name in names if name.startswith("image_")):
        camera_options = options if _ORDER in options else options.get(name.removeprefix("image_"))
        if not camera_options:
            continue
        size = len(batch["action"])
        randoms = rng.random((size, len(camera_options[_ORDER]), _RANDOMS_PER_CHANGE))
        for inputs in (batch["observation"], batch["task"]):
            images, mask = inputs.get(name), inputs["pad_mask_dict"].get(name)
            for row in np.flatnonzero(mask.reshape(size, -1).any(1)) if images is not None else ():
                images[row] = augment(images[row], camera_options, randoms[row])
    return batch


def _lerp(bounds: Sequence[float], fraction: float) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * fraction


def _crop(
    values: np.ndarray, randoms: np.ndarray, scale: Sequence[float], ratio: Sequence[float]
) -> np.ndarray:
    """Crops images to a random area and aspect ratio, and resizes them back."""
    logs = [math.log(bound) for bound in ratio]
    area, shape = _lerp(scale, randoms[0]), math.exp(_lerp(logs, randoms[1]))
    sizes = math.sqrt(area / shape), math.sqrt(area * shape)
    for axis, size, random in zip((-2, -1), sizes, randoms[2:]):
        share = min(size, 1.0)
        length = values.shape[axis]
        begin = random * (1 - share)
        coordinates = (begin + share * np.linspace(0, 1, length)) * (length - 1)
        lower_pixels = np.minimum(coordinates.astype(np.int64), max(length - 2, 0))
        weights = (coordinates - lower_pixels).astype(np.float32).reshape(-1, *(1,) * (-axis - 1))
        first = values.take(lower_pixels, axis)
        second = values.take(np.minimum(lower_pixels + 1, length - 1), axis)
        second -= first
        second *= weights
        values = np.add(first, second, out=first)
    return values


def _brightness(values: np.ndarray, randoms: np.ndarray, max_delta: float) -> np.ndarray:
    values += np.float32(_lerp((-max_delta, max_delta), randoms[0]))
    return values


def _contrast(values: np.ndarray, randoms: np.ndarray, lower: float, upper: float) -> np.ndarray:
    mean = values.mean(axis=(-2, -1), keepdims=True)
    values -= mean
    values *= np.float32(_lerp((lower, upper), randoms[0]))
    values += mean
    return values


def _find_range(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest channel value of each pixel, and its distance to the smallest one."""
    red, green, blue = np.moveaxis(values, -3, 0)
    largest = np.maximum(np.maximum(red, green), blue)
    return largest, largest - np.minimum(np.minimum(red, green), blue)


def _saturation(values: np.ndarray, randoms: np.ndarray, lower: float, upper: float) -> np.ndarray:
    largest, spread = _find_range(values)
    # A colour with a channel of 0 is fully saturated.
    factor = largest / np.maximum(spread, np.float32(1e-12), out=spread)
    np.minimum(factor, np.float32(_lerp((lower, upper), randoms[0])), out=factor)
    largest = np.expand_dims(largest, -3)
    values -= largest
    values *= np.expand_dims(factor, -3)
    values += largest
    return values


def _hue(values: np.ndarray, randoms: np.ndarray, max_delta: float) -> np.ndarray:
    largest, spread = _find_range(values)
    red, green, blue = np.moveaxis(values, -3, 0)
    scale = 1 / np.where(spread > 0, spread, np.float32(1))
    hue = np.where(largest == green, 2 + (blue - red) * scale, 4 + (red - green) * scale)
    hue = np.where(largest == red, (green - blue) * scale, hue)
    hue += np.float32(6 * _lerp((-max_delta, max_delta), randoms[0]))
    for channel, offset in enumerate((5, 3, 1)):
        shifted = hue + np.float32(offset)
        shifted -= 6 * np.floor(shifted * np.float32(1 / 6))
        share = np.minimum(shifted, 4 - shifted, out=shifted)
        np.clip(share, 0, 1, out=share)
        share *= spread
        np.subtract(largest, share, out=values[..., channel, :, :])
    return values


def _flip(axis: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda values, randoms: np.flip(values, axis).copy() if randoms[0] < 0.5 else values


def _rotate_90(values: np.ndarray, randoms: np.ndarray) -> np.ndarray:
    return np.rot90(values, int(randoms[0] * 4), (-2, -1)).copy()


CHANGES: Mapping[str, Callable[..., np.ndarray]] = {
    "random_resized_crop": _crop,
    "random_brightness": _brightness,
    "random_contrast": _contrast,
    "random_saturation": _saturation,
    "random_hue": _hue,
    "random_flip_left_right": _flip(-1),
    "random_flip_up_down": _flip(-2),
    "random_rot90": _rotate_90,
}
"""The augmentations. Parameters: `scale` and `ratio` of a crop, `max_delta` of brightness and hue,
`lower` and `upper` of the factors of contrast and saturation."""
