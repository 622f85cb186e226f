"""Field readers of bag messages: numbers by path or by name, text, images."""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlds.formats.bags.config import FieldOf
from rlds.formats.bags.messages import Channel
from rlds.raw_files.image_files import is_png, jpeg_shape, png_shape
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from tfds_files import Image, decode_image

__all__ = ["FieldReader", "NoValueError", "at_path", "header_stamp", "pick"]

BYTES = "bytes"

_SECONDS = ("sec", "secs", "seconds")
_NANOSECONDS = ("nanosec", "nsec", "nsecs", "nanos", "nanoseconds")
_NAMES = ("name", "joint_names")
_VIDEO = ("h264", "h265", "hevc", "vp9", "av1")
_COMPRESSED, _RAW = {"data", "format"}, {"height", "width", "encoding", "data"}
# dtype, channels, and whether red and blue are exchanged.
_PIXELS: Mapping[str, tuple[str, int, bool]] = {
    **{"rgb8": ("u1", 3, False), "bgr8": ("u1", 3, True), "8uc3": ("u1", 3, False)},
    **{"rgba8": ("u1", 4, False), "bgra8": ("u1", 4, True), "8uc4": ("u1", 4, False)},
    **{"mono8": ("u1", 1, False), "8uc1": ("u1", 1, False), "mono16": ("u2", 1, False)},
    **{"16uc1": ("u2", 1, False), "16sc1": ("i2", 1, False), "32fc1": ("f4", 1, False)},
    **{"rgb16": ("u2", 3, False), "bgr16": ("u2", 3, True), "32fc3": ("f4", 3, False)},
}
# Before the file in an image of compressed depth: its kind, and A and B. Where depths are floats,
# its values are codes, and a depth is A / (code - B).
_DEPTH_HEADER = struct.Struct("<iff")
# The units of depths by encoding: REP 118 of ROS.
_DEPTH_UNITS = {"16uc1": "mm", "32fc1": "m"}


class NoValueError(ValueError):
    """A message does not have the value: the message is passed over."""


@dataclasses.dataclass(frozen=True)
class FieldReader:
    """A step field, and the function that extracts its value from a message.

    Attributes:
      field: The type of the values.
      config: The configuration of the field, with the order of the joints.
      value: Takes the value out of a decoded message.
      kind: "numbers" of a fixed shape, "text", "image" (files or arrays), "video" (packets), or
        "bytes" (of the message, or in it).
    """

    field: Field
    config: FieldOf
    value: Callable[[Any], Any]
    kind: Literal["numbers", "text", "image", "video", "bytes"]


def at_path(message: Any, path: str) -> Any:
    """Returns the value at a path of a decoded message, such as `poses/0/position`.

    Raises:
      ValueError: There is no such path; says what there is.
      NoValueError: A list ends before it, or a part is not set.
    """
    value = message
    for name in path.split("/") if path else ():
        if value is None:
            raise NoValueError(f"{path!r} is not set")
        if isinstance(value, list | np.ndarray) and name.isdecimal():
            if int(name) >= len(value):
                raise NoValueError(f"{path!r}: only {len(value)} values")
            value = value[int(name)]
        elif isinstance(value, Mapping) and name in value:
            value = value[name]
        else:
            names = ", ".join(value) if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(f"the path {path!r} has no {name!r}, only {names}")
    return value


def header_stamp(message: Any) -> int:
    """Returns the stamp in a message, in nanoseconds; zero if it has none."""
    if not isinstance(message, Mapping):
        return 0
    header = message.get("header")
    holders = [header, message] if isinstance(header, Mapping) else [message]
    for holder in holders:
        for name in ("stamp", "timestamp"):
            time = holder.get(name)
            if isinstance(time, Mapping):
                parts = [
                    next((int(time[name]) for name in names if name in time), 0)
                    for names in (_SECONDS, _NANOSECONDS)
                ]
                return parts[0] * 10**9 + parts[1]
    return 0


def pick(config: FieldOf, channel: Channel, message: Any) -> FieldReader:
    """Infers the type of a field from a message.

    Args:
      config: The field.
      channel: The channel of the message.
      message: A decoded message, or its bytes if the path is `bytes`.

    Raises:
      ValueError: There is no such path.
      NoValueError: The message has no value: another one may.
      ValueError: The value is nothing that a field can hold.
    """
    if config.path == BYTES:
        return FieldReader(Field(bytes), config, bytes, "bytes")
    is_json = channel.encoding == "json"
    if isinstance(config.path, tuple):
        paths, dtype = config.path, config.dtype
        return _numbers(config, lambda m: _joined([at_path(m, p) for p in paths], dtype), message)
    path = config.path
    value = at_path(message, path)
    if value is None:
        raise NoValueError(f"{path!r} is not set")
    if isinstance(value, Mapping) and value.keys() >= _COMPRESSED:
        return _compressed(config, path, value, is_json)
    if isinstance(value, Mapping) and value.keys() >= _RAW:
        return _raw(config, path, value, is_json)
    if isinstance(value, str):
        field = Field(str, unit=config.unit or None)
        return FieldReader(field, config, lambda message: str(at_path(message, path)), "text")
    if isinstance(value, bytes):
        return FieldReader(
            Field(bytes), config, lambda message: bytes(at_path(message, path)), "bytes"
        )
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        shape = (len(value),)
        return FieldReader(
            Field(str, shape), config, lambda m: _texts(at_path(m, path), shape), "text"
        )
    return _numbers(config, lambda message: at_path(message, path), message)


def _texts(values: Any, shape: tuple[int]) -> np.ndarray:
    if len(values) != shape[0]:
        raise ValueError(f"{len(values)} texts, expected {shape[0]} as in the first message")
    return objects(map(str, values))


# --- Numbers


def _numbers(config: FieldOf, get: Callable[[Any], Any], message: Any) -> FieldReader:
    array = _array(get(message), config.dtype)
    if not array.size:
        raise NoValueError("it is empty")
    names_path, names = _names_of(config, message, array)
    order = config.order or names
    if order and not (names_path and array.ndim):
        raise ValueError("order needs names, but the message has none; set names to their path")
    shape = (len(order), *array.shape[1:]) if order else array.shape
    names = order if len(shape) == 1 and order else _keys(get(message), shape, config)
    field = Field(array.dtype, shape, names=names or None, unit=config.unit or None)
    config = dataclasses.replace(config, order=tuple(order))
    orders: dict[tuple[str, ...], list[int] | None] = {}

    def value(message: Any) -> np.ndarray:
        array = _array(get(message), config.dtype)
        if array.dtype != field.dtype:
            array = _as_dtype(array, field.dtype)
        if order:
            names = tuple(map(str, at_path(message, names_path)))
            if names not in orders:
                has_all = set(order) <= set(names)
                orders[names] = [names.index(name) for name in order] if has_all else None
            rows = orders[names]
            if rows is None or len(array) != len(names):
                raise NoValueError(f"it lacks some of the values {order}")
            return array[rows]
        if array.shape != shape:
            if not array.size:
                raise NoValueError("it is empty")
            raise ValueError(f"values of shape {array.shape}, expected {shape} as in the first")
        return array

    value(message)
    return FieldReader(field, config, value, "numbers")


def _names_of(config: FieldOf, message: Any, values: np.ndarray) -> tuple[str, tuple[str, ...]]:
    """Returns the path of the names of values, such as joints, and the names; or empty."""
    if config.names == "none" or not isinstance(message, Mapping):
        return "", ()
    path = config.names or next((name for name in _NAMES if name in message), "")
    texts = at_path(message, path) if path else None
    names = tuple(map(str, texts)) if isinstance(texts, list) else ()
    is_of_values = values.ndim and len(names) == len(values) == len(set(names))
    return path, names if is_of_values else ()


def _array(numbers: Any, dtype: str) -> np.ndarray:
    """Returns numbers as an array."""
    if isinstance(numbers, np.ndarray | np.generic | bool):
        array = np.asarray(numbers)
    elif isinstance(numbers, int | float):  # JSON numbers: 1 may be followed by 1.5.
        array = np.asarray(numbers, dtype or np.float64)
    elif isinstance(numbers, Mapping):
        array = _joined(list(numbers.values()), dtype)
    elif isinstance(numbers, list) and any(isinstance(item, Mapping) for item in numbers):
        array = np.stack([_array(item, dtype) for item in numbers])
    elif isinstance(numbers, list):
        array = _joined(numbers, dtype) if numbers else np.zeros(0)
    else:
        raise ValueError(f"got {type(numbers).__name__}, expected numbers; extend the path")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"got {array.dtype}, expected numbers")
    return _as_dtype(array, np.dtype(dtype)) if dtype else array


def _joined(values: Sequence[Any], dtype: str) -> np.ndarray:
    arrays = [np.atleast_1d(_array(value, dtype)) for value in values]
    return np.concatenate(arrays) if arrays else np.zeros(0)


def _as_dtype(numbers: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return numbers.astype(dtype)


def _keys(value: Any, shape: tuple[int, ...], config: FieldOf) -> tuple[str, ...]:
    """The names of the parts of a vector that a message, or several paths, consist of."""
    if isinstance(config.path, tuple):
        return config.path if shape == (len(config.path),) else ()
    if isinstance(value, Mapping) and shape == (len(value),):
        return tuple(map(str, value))
    return ()


# --- Images


def _content(image: Any, is_json: bool) -> bytes:
    data = image["data"]
    return base64.b64decode(data, validate=True) if is_json else bytes(data)


def _compressed(config: FieldOf, path: str, image: Any, is_json: bool) -> FieldReader:
    data = _content(image, is_json)
    if not data:
        raise NoValueError("it is empty")
    if str(image["format"]).lower() in _VIDEO:
        name = str(image["format"]).lower()
        field = Field(bytes, doc="hevc" if name in ("h265", "hevc") else name)
        return FieldReader(field, config, lambda m: _content(at_path(m, path), is_json), "video")
    skipped, unit = 0, None
    if is_png(data[_DEPTH_HEADER.size :]) and not is_png(data):
        skipped, encoding = _DEPTH_HEADER.size, _depth_encoding(image)
        if encoding == "32fc1":
            return _depths(config, path, image, is_json)
        unit = config.unit or _DEPTH_UNITS.get(encoding)

    def value(message: Any) -> bytes:
        content = _content(at_path(message, path), is_json)[skipped:]
        if not content:
            raise NoValueError("it is empty")
        return content

    data = data[skipped:]
    if is_png(data):
        shape, dtype = png_shape(data)
        return FieldReader(Field(dtype, shape, encoding="png", unit=unit), config, value, "image")
    if data[:2] == b"\xff\xd8":
        # Some recorders leave bytes after the end of the image; its header is all that is needed.
        size = jpeg_shape(data if data.endswith(b"\xff\xd9") else data + b"\xff\xd9")
        shape = (size[0], size[1], size[2] if len(size) > 2 else 1)
        return FieldReader(Field(np.uint8, shape, encoding="jpeg"), config, value, "image")
    return FieldReader(Field(bytes, doc=str(image["format"])), config, value, "bytes")


def _depth_encoding(image: Any) -> str:
    """Returns the encoding of depths before compression: the first word of `format`."""
    name = str(image["format"]).partition(";")[0].strip().lower()
    if _PIXELS.get(name, ("", 0, False))[:2] not in (("u2", 1), ("f4", 1)):
        raise ValueError(
            f"compressed depth of the format {image['format']!r}, expected one that begins with "
            "16UC1 or 32FC1; use the path 'data' for the bytes"
        )
    return name


def _depths(config: FieldOf, path: str, image: Any, is_json: bool) -> FieldReader:
    """Returns the reader of depths stored as codes of inverse depth; 0 is no depth."""

    def depths(image: Any) -> np.ndarray:
        data = _content(image, is_json)
        if not data:
            raise NoValueError("it is empty")
        if (encoding := _depth_encoding(image)) != "32fc1":
            raise ValueError(f"compressed depth of {encoding}, expected 32fc1 as in the first")
        _, one, zero = np.array(_DEPTH_HEADER.unpack_from(data), np.float32)
        file = data[_DEPTH_HEADER.size :]
        shape, _ = png_shape(file)
        codes = decode_image(file, Image(shape=shape, dtype=np.dtype(np.uint16)))
        metres = np.full(shape, np.nan, np.float32)
        return np.divide(one, codes.astype(np.float32) - zero, out=metres, where=codes > 0)

    field = Field(np.float32, depths(image).shape, unit=config.unit or "m")
    return FieldReader(field, config, lambda message: depths(at_path(message, path)), "image")


def _raw(config: FieldOf, path: str, image: Any, is_json: bool) -> FieldReader:
    def value(message: Any) -> np.ndarray:
        return _pixels(at_path(message, path), is_json)

    pixels, encoding = _pixels(image, is_json), str(image["encoding"]).lower()
    is_depth = "depth" in config.topic.lower()
    unit = config.unit or (_DEPTH_UNITS.get(encoding) if is_depth else None)
    return FieldReader(Field(pixels.dtype, pixels.shape, unit=unit), config, value, "image")


def _pixels(image: Any, is_json: bool) -> np.ndarray:
    name = str(image["encoding"]).lower()
    if name not in _PIXELS:
        raise ValueError(
            f"cannot decode pixels in {image['encoding']!r}; use the path 'data' for their bytes"
        )
    kind, channels, is_swapped = _PIXELS[name]
    dtype = np.dtype(kind).newbyteorder(">" if image.get("is_bigendian") else "<")
    height, width = int(image["height"]), int(image["width"])
    row = width * channels * dtype.itemsize
    step = int(image.get("step") or row)
    data = _content(image, is_json)
    if not height or not width:
        raise NoValueError("it is empty")
    if min(height, width) < 0 or step < row or len(data) < step * (height - 1) + row:
        raise ValueError(f"{len(data)} bytes, expected {height} rows of {step}")
    rows = np.frombuffer(data.ljust(height * step, b"\0"), np.uint8).reshape(height, step)
    pixels = np.ascontiguousarray(rows[:, :row]).view(dtype).reshape(height, width, channels)
    pixels = pixels.astype(dtype.newbyteorder("="), copy=False)
    if is_swapped:
        pixels = pixels[..., [2, 1, 0, *range(3, channels)]]
    return pixels
