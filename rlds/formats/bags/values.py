"""Field readers of bag messages: numbers by path or by name, text, images."""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlds.formats.bags.config import FieldConfig
from rlds.formats.bags.messages import Channel
from rlds.raw_files.image_files import is_png, jpeg_shape, png_shape
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from tfds_files import Image, decode_image

__all__ = ["FieldReader", "NoValueError", "header_stamp", "make_reader", "value_at"]

BYTES = "bytes"

_SECONDS_FIELDS = ("sec", "secs", "seconds")
_NANOSECONDS_FIELDS = ("nanosec", "nsec", "nsecs", "nanos", "nanoseconds")
_NAME_FIELDS = ("name", "joint_names")
_VIDEO_FORMATS = ("h264", "h265", "hevc", "vp9", "av1")
_COMPRESSED_FIELDS, _RAW_FIELDS = {"data", "format"}, {"height", "width", "encoding", "data"}
# The dtype, the channels, and True if red and blue are swapped.
_PIXEL_FORMATS: Mapping[str, tuple[str, int, bool]] = {
    **{"rgb8": ("u1", 3, False), "bgr8": ("u1", 3, True), "8uc3": ("u1", 3, False)},
    **{"rgba8": ("u1", 4, False), "bgra8": ("u1", 4, True), "8uc4": ("u1", 4, False)},
    **{"mono8": ("u1", 1, False), "8uc1": ("u1", 1, False), "mono16": ("u2", 1, False)},
    **{"16uc1": ("u2", 1, False), "16sc1": ("i2", 1, False), "32fc1": ("f4", 1, False)},
    **{"rgb16": ("u2", 3, False), "bgr16": ("u2", 3, True), "32fc3": ("f4", 3, False)},
}
# The header of a compressed depth image: its kind, and the numbers A and B. If depths are floats,
# the pixels are codes, and a depth is A / (code - B).
_DEPTH_HEADER = struct.Struct("<iff")
# The units of depths by encoding: REP 118 of ROS.
_DEPTH_UNITS = {"16uc1": "mm", "32fc1": "m"}


class NoValueError(ValueError):
    """The message has no value, and is skipped."""


@dataclasses.dataclass(frozen=True)
class FieldReader:
    """A step field, and the function that extracts its value from a message.

    Attributes:
      field: The type of the values.
      config: The configuration of the field, with the order of the joints.
      value: Extracts the value from a decoded message.
      kind: "numbers" of a fixed shape, "text", "image" (files or arrays), "video" (packets), or
        "bytes" (a value, or the encoded message).
    """

    field: Field
    config: FieldConfig
    value: Callable[[Any], Any]
    kind: Literal["numbers", "text", "image", "video", "bytes"]


def value_at(message: Any, path: str) -> Any:
    """Returns the value at a path of a decoded message, such as `poses/0/position`.

    Raises:
      ValueError: There is no such path; the error lists the names.
      NoValueError: A list is too short, or a value is not set.
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
    """Returns the stamp in a message, in nanoseconds; zero without a stamp."""
    if not isinstance(message, Mapping):
        return 0
    header = message.get("header")
    holders = [header, message] if isinstance(header, Mapping) else [message]
    for holder in holders:
        for name in ("stamp", "timestamp"):
            time = holder.get(name)
            if isinstance(time, Mapping):
                components = [
                    next((int(time[name]) for name in names if name in time), 0)
                    for names in (_SECONDS_FIELDS, _NANOSECONDS_FIELDS)
                ]
                return components[0] * 10**9 + components[1]
    return 0


def make_reader(config: FieldConfig, channel: Channel, message: Any) -> FieldReader:
    """Infers the type of a field from a message.

    Args:
      config: The field.
      channel: The channel of the message.
      message: A decoded message, or its bytes if the path is `bytes`.

    Raises:
      ValueError: There is no such path.
      NoValueError: The message has no value; other messages may have one.
      ValueError: A field cannot hold the value.
    """
    if config.path == BYTES:
        return FieldReader(Field(bytes), config, bytes, "bytes")
    is_json = channel.encoding == "json"
    if isinstance(config.path, tuple):
        paths, dtype = config.path, config.dtype
        return _number_reader(
            config, lambda message: _join([value_at(message, p) for p in paths], dtype), message
        )
    path = config.path
    value = value_at(message, path)
    if value is None:
        raise NoValueError(f"{path!r} is not set")
    if isinstance(value, Mapping) and value.keys() >= _COMPRESSED_FIELDS:
        return _compressed_reader(config, path, value, is_json)
    if isinstance(value, Mapping) and value.keys() >= _RAW_FIELDS:
        return _pixel_reader(config, path, value, is_json)
    if isinstance(value, str):
        field = Field(str, unit=config.unit or None)
        return FieldReader(field, config, lambda message: str(value_at(message, path)), "text")
    if isinstance(value, bytes):
        return FieldReader(Field(bytes), config, lambda m: bytes(value_at(m, path)), "bytes")
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        shape = (len(value),)
        return FieldReader(
            Field(str, shape),
            config,
            lambda message: _read_texts(value_at(message, path), shape),
            "text",
        )
    return _number_reader(config, lambda message: value_at(message, path), message)


def _read_texts(values: Any, shape: tuple[int]) -> np.ndarray:
    if len(values) != shape[0]:
        raise ValueError(f"{len(values)} texts, expected {shape[0]} as in the first message")
    return objects(map(str, values))


# --- Numbers


def _number_reader(config: FieldConfig, get: Callable[[Any], Any], message: Any) -> FieldReader:
    array = _to_array(get(message), config.dtype)
    if not array.size:
        raise NoValueError("it is empty")
    names_path, names = _names(config, message, array)
    order = config.order or names
    if order and not (names_path and array.ndim):
        raise ValueError("order needs names, but the message has none; set names to their path")
    shape = (len(order), *array.shape[1:]) if order else array.shape
    names = order if len(shape) == 1 and order else _component_names(get(message), shape, config)
    field = Field(array.dtype, shape, names=names or None, unit=config.unit or None)
    config = dataclasses.replace(config, order=tuple(order))
    orders: dict[tuple[str, ...], list[int] | None] = {}

    def value(message: Any) -> np.ndarray:
        array = _to_array(get(message), config.dtype)
        if array.dtype != field.dtype:
            array = _as_dtype(array, field.dtype)
        if order:
            names = tuple(map(str, value_at(message, names_path)))
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


def _names(config: FieldConfig, message: Any, values: np.ndarray) -> tuple[str, tuple[str, ...]]:
    """Returns the path of the names of values, such as joints, and the names; empty if missing."""
    if config.names == "none" or not isinstance(message, Mapping):
        return "", ()
    path = config.names or next((name for name in _NAME_FIELDS if name in message), "")
    texts = value_at(message, path) if path else None
    names = tuple(map(str, texts)) if isinstance(texts, list) else ()
    is_of_values = values.ndim and len(names) == len(values) == len(set(names))
    return path, names if is_of_values else ()


def _to_array(values: Any, dtype: str) -> np.ndarray:
    """Returns numbers as an array."""
    if isinstance(values, np.ndarray | np.generic | bool):
        array = np.asarray(values)
    elif isinstance(values, int | float):  # Numbers from JSON may mix 1 and 1.5.
        array = np.asarray(values, dtype or np.float64)
    elif isinstance(values, Mapping):
        array = _join(list(values.values()), dtype)
    elif isinstance(values, list) and any(isinstance(item, Mapping) for item in values):
        array = np.stack([_to_array(item, dtype) for item in values])
    elif isinstance(values, list):
        array = _join(values, dtype) if values else np.zeros(0)
    else:
        raise ValueError(f"got {type(values).__name__}, expected numbers; extend the path")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"got {array.dtype}, expected numbers")
    return _as_dtype(array, np.dtype(dtype)) if dtype else array


def _join(values: Sequence[Any], dtype: str) -> np.ndarray:
    arrays = [np.atleast_1d(_to_array(value, dtype)) for value in values]
    return np.concatenate(arrays) if arrays else np.zeros(0)


def _as_dtype(values: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def _component_names(value: Any, shape: tuple[int, ...], config: FieldConfig) -> tuple[str, ...]:
    """Returns the names of the elements of a vector, from several paths or a nested message."""
    if isinstance(config.path, tuple):
        return config.path if shape == (len(config.path),) else ()
    if isinstance(value, Mapping) and shape == (len(value),):
        return tuple(map(str, value))
    return ()


# --- Images


def _content(image: Any, is_json: bool) -> bytes:
    data = image["data"]
    return base64.b64decode(data, validate=True) if is_json else bytes(data)


def _compressed_reader(config: FieldConfig, path: str, image: Any, is_json: bool) -> FieldReader:
    data = _content(image, is_json)
    if not data:
        raise NoValueError("it is empty")
    if str(image["format"]).lower() in _VIDEO_FORMATS:
        name = str(image["format"]).lower()
        field = Field(bytes, doc="hevc" if name in ("h265", "hevc") else name)
        return FieldReader(
            field, config, lambda message: _content(value_at(message, path), is_json), "video"
        )
    offset, unit = 0, None
    if is_png(data[_DEPTH_HEADER.size :]) and not is_png(data):
        offset, encoding = _DEPTH_HEADER.size, _depth_encoding(image)
        if encoding == "32fc1":
            return _depth_reader(config, path, image, is_json)
        unit = config.unit or _DEPTH_UNITS.get(encoding)

    def value(message: Any) -> bytes:
        content = _content(value_at(message, path), is_json)[offset:]
        if not content:
            raise NoValueError("it is empty")
        return content

    data = data[offset:]
    if is_png(data):
        shape, dtype = png_shape(data)
        return FieldReader(Field(dtype, shape, encoding="png", unit=unit), config, value, "image")
    if data[:2] == b"\xff\xd8":
        # Some recorders write bytes after the image; only its header is needed.
        size = jpeg_shape(data if data.endswith(b"\xff\xd9") else data + b"\xff\xd9")
        shape = (size[0], size[1], size[2] if len(size) > 2 else 1)
        return FieldReader(Field(np.uint8, shape, encoding="jpeg"), config, value, "image")
    return FieldReader(Field(bytes, doc=str(image["format"])), config, value, "bytes")


def _depth_encoding(image: Any) -> str:
    """Returns the encoding of depths before compression: the first word of `format`."""
    name = str(image["format"]).partition(";")[0].strip().lower()
    if _PIXEL_FORMATS.get(name, ("", 0, False))[:2] not in (("u2", 1), ("f4", 1)):
        raise ValueError(
            f"compressed depth of the format {image['format']!r}, expected one that begins with "
            "16UC1 or 32FC1; use the path 'data' for the bytes"
        )
    return name


def _depth_reader(config: FieldConfig, path: str, image: Any, is_json: bool) -> FieldReader:
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
    return FieldReader(field, config, lambda message: depths(value_at(message, path)), "image")


def _pixel_reader(config: FieldConfig, path: str, image: Any, is_json: bool) -> FieldReader:
    def value(message: Any) -> np.ndarray:
        return _pixels(value_at(message, path), is_json)

    pixels, encoding = _pixels(image, is_json), str(image["encoding"]).lower()
    is_depth = "depth" in config.topic.lower()
    unit = config.unit or (_DEPTH_UNITS.get(encoding) if is_depth else None)
    return FieldReader(Field(pixels.dtype, pixels.shape, unit=unit), config, value, "image")


def _pixels(image: Any, is_json: bool) -> np.ndarray:
    name = str(image["encoding"]).lower()
    if name not in _PIXEL_FORMATS:
        raise ValueError(
            f"cannot decode pixels in {image['encoding']!r}; use the path 'data' for their bytes"
        )
    kind, channels, is_swapped = _PIXEL_FORMATS[name]
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
