"""Picture fields: their detection, and the encoding of values as files for browsers."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlds.sources.cameras import cameras_of
from rlds_ecosystem.model.fields import Field
from tfds_files.images import is_plausible

__all__ = ["Scale", "layout_of", "media_type_of", "picture_file", "picture_image", "scale_of"]

# The minimum side of pictures, with channels and without: a small array without channels may be a
# matrix.
_MIN_SIDE, _MIN_GREY_SIDE = 8, 24
_CHANNEL_COUNTS = (1, 3, 4)
_MAX_FRAMES_PER_STEP = 32
# The maximum number of pixels of a losslessly encoded picture.
_MAX_LOSSLESS_PIXELS = 256 * 256
_JPEG_QUALITY = 88
_MAX_PIXELS = 1 << 26


def layout_of(field: Any) -> str | None:
    """Returns the axis layout of a picture field; None if a field has no pictures.

    The axes are "y", "x", "c" for channels, and "n" for frames.

    >>> layout_of(Field(np.uint8, (84, 84, 3))), layout_of(Field(np.float32, (3, 64, 96)))
    ('yxc', 'cyx')
    >>> layout_of(Field(np.uint8, (84, 84, 8))), layout_of(Field(np.float64, (6, 6)))
    ('yxn', None)
    """
    if not isinstance(field, Field) or field.is_text:
        return None
    if field.encoding:
        return "yxc"
    dtype, shape = field.column_dtype, field.shape
    if dtype.kind not in "buif" or not 2 <= len(shape) <= 4:
        return None
    if None in shape and len(shape) == 2:  # A list of lists is no picture.
        return None
    if cameras_of({"": field}):
        return "yxc"[: len(shape)]
    layouts = _LAYOUTS[len(shape)]
    return next((axes for axes in layouts if _fits(shape, axes, dtype)), None)


# Layouts by the number of axes, in the order of preference.
_LAYOUTS = {2: ["yx"], 3: ["yxc", "cyx", "nyx", "yxn"], 4: ["nyxc", "ncyx"]}


def _fits(shape: Sequence[int | None], axes: str, dtype: np.dtype) -> bool:
    sizes = dict(zip(axes, shape))
    min_side = _MIN_SIDE if "c" in axes and dtype.kind in "buf" else _MIN_GREY_SIDE
    if dtype.kind == "b":
        min_side = _MIN_SIDE
    if "c" in axes and sizes["c"] not in _CHANNEL_COUNTS:
        return False
    if "n" in axes and not 1 < (sizes["n"] or 0) <= _MAX_FRAMES_PER_STEP:
        return False
    return all(side is None or side >= min_side for side in (sizes["y"], sizes["x"]))


class Scale(NamedTuple):
    """The brightness scale of an image.

    Attributes:
      low: The value shown as black.
      high: The value shown as white.
    """

    low: float
    high: float


def scale_of(samples: Sequence[np.ndarray]) -> Scale | None:
    """Returns the brightness scale of pictures; None if no scaling is needed.

    Black and white are 0 and 1 for floats from 0 to 1, and 0 and 255 for floats from 0 to 255. For
    other values, such as depths, they are the minimum and the maximum.

    Args:
      samples: A sample of the pictures.

    >>> scale_of([np.array([0.25, 0.5])]), scale_of([np.array([300, 900], np.uint16)])
    (Scale(low=0.0, high=1.0), Scale(low=300.0, high=900.0))
    """
    samples = [sample for sample in samples if sample.size]
    if not samples or samples[0].dtype in (np.uint8, np.bool_):
        return None
    finite_samples = [sample[np.isfinite(sample)] for sample in samples]
    finite_samples = [sample for sample in finite_samples if sample.size]
    if not finite_samples:
        return Scale(0.0, 1.0)
    low = float(min(sample.min() for sample in finite_samples))
    high = float(max(sample.max() for sample in finite_samples))
    if samples[0].dtype.kind == "f" and low >= 0 and high <= 1:
        return Scale(0.0, 1.0)
    if samples[0].dtype.kind == "f" and low >= 0 and 128 <= high <= 255:
        return Scale(0.0, 255.0)
    return Scale(low, high if high > low else low + 1)


def _split_frames(array: np.ndarray, layout: str) -> list[np.ndarray]:
    """Returns the frames of a value, of shape `[height, width, channels]`."""
    axes = layout[: array.ndim]
    if "c" not in axes:
        array, axes = array[..., np.newaxis], f"{axes}c"
    if "n" not in axes:
        array, axes = array[np.newaxis], f"n{axes}"
    array = array.transpose([axes.index(axis) for axis in "nyxc"])
    if array.shape[-1] == 4 and len(array) == 1 and not _is_opacity(array[0, ..., 3]):
        array = array.transpose(3, 1, 2, 0)
    return list(array)


def _is_opacity(channel: np.ndarray) -> bool:
    """True if the fourth channel is opacity, not another frame."""
    return bool(channel.size) and bool((channel == channel.flat[0]).all())


def _to_brightness(array: np.ndarray, scale: Scale | None) -> np.ndarray:
    """Scales values to brightness from 0 to 255."""
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    scale = scale or scale_of([array]) or Scale(0.0, 255.0)
    # float32 is enough for 256 output values, and faster than float64; depths may be larger.
    values: Any = array.astype(np.float32 if array.dtype.itemsize <= 4 else np.float64)
    values -= scale.low
    values *= 255.0 / (scale.high - scale.low)
    np.nan_to_num(values, copy=False, nan=0.0, posinf=255.0, neginf=0.0)
    bytes_: np.ndarray = np.clip(np.rint(values, out=values), 0, 255).astype(np.uint8)
    return bytes_


_MAGIC = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def media_type_of(data: Any) -> str | None:
    r"""Returns the media type of an image file; None for other values.

    >>> media_type_of(b"\xff\xd8\xff\xe0"), media_type_of(b"left")
    ('image/jpeg', None)
    """
    if not isinstance(data, bytes):
        return None
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((_MAGIC[magic] for magic in _MAGIC if data.startswith(magic)), None)


def picture_file(
    value: Any, layout: str, scale: Scale | None = None, side: int | None = None
) -> tuple[bytes, str]:
    """Returns a picture as a file, and its media type.

    A file is returned unchanged, unless its size is limited. Small pictures are lossless. The
    arguments and errors are those of `picture_image`.
    """
    media_type = media_type_of(value)
    if media_type is not None and side is None:
        return value, media_type
    picture, file = picture_image(value, layout, scale, side), io.BytesIO()
    if picture.width * picture.height <= _MAX_LOSSLESS_PIXELS or picture.mode == "RGBA":
        picture.save(file, "PNG", compress_level=1)
        return file.getvalue(), "image/png"
    picture.save(file, "JPEG", quality=_JPEG_QUALITY)
    return file.getvalue(), "image/jpeg"


def picture_image(
    value: Any, layout: str, scale: Scale | None = None, side: int | None = None
) -> Any:
    """Returns a picture as a Pillow image.

    Args:
      value: An array, or the bytes of a file.
      layout: The axes of an array, see `layout_of`.
      scale: The values shown as black and white; None for the scale of the picture itself.
      side: The maximum number of pixels of the longer side; pictures are never enlarged.

    Raises:
      ValueError: The value is not a picture, or is damaged.
    """
    if isinstance(value, bytes):
        return _shrink(_open_image(value, side), side)
    array = np.asarray(value)
    if array.size == 0:
        raise ValueError(f"a picture without pixels, of shape {array.shape}")
    if array.size > _MAX_PIXELS * 4:
        raise ValueError(f"a picture of shape {array.shape} is too large to be shown")
    from PIL import Image

    frames = [_to_brightness(frame, scale) for frame in _split_frames(array, layout)]
    strip = frames[0] if len(frames) == 1 else np.concatenate(frames, axis=1)
    strip = np.ascontiguousarray(strip[..., 0] if strip.shape[-1] == 1 else strip)
    return _shrink(Image.fromarray(strip), side)


def _open_image(data: bytes, side: int | None) -> Any:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Large pictures are allowed.
            formats = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
            image: Any = Image.open(io.BytesIO(data), formats=formats)
        if not is_plausible(data, image.height, image.width):
            raise ValueError(f"{image.width} x {image.height} pixels in {len(data)} bytes")
        if side is not None:
            image.draft(None, (side, side))  # Decodes JPEG at a reduced size.
        image.load()
    except ValueError:
        raise
    except Exception as error:  # Pillow raises many types for damaged files.
        raise ValueError(f"the picture cannot be decoded: {error}") from error
    if image.mode in ("I;16", "I", "F"):
        pixels = np.asarray(image)
        return Image.fromarray(_to_brightness(pixels, scale_of([pixels])))
    if image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image


def _shrink(picture: Any, side: int | None) -> Any:
    from PIL import Image

    if side is not None and max(picture.size) > side:
        picture.thumbnail((side, side), Image.Resampling.BOX, reducing_gap=2.0)
    return picture
