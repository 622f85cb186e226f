"""Converts Python and NumPy values to the stored form, the proto `Data`, and back.

    Python value                               decoded value
    -----------------------------------------  -------------------------------------------
    None                                       None
    bool, numpy.bool_                          bool
    int of any size                            int
    float, numpy.float64                       numpy.float64
    numpy.float32, .int8 ... .uint64           the same
    str, bytes and their NumPy forms           str, bytes
    numpy.ndarray of the dtypes above          the same, C-contiguous and in native byte order
    numpy.ndarray of str or bytes              numpy.ndarray of dtype object
    list                                       list
    tuple, NamedTuple                          tuple
    dict                                       dict, string keys first and sorted

Instances of subclasses are stored as their base class in the table: an `IntEnum` is decoded as an
`int`, an `OrderedDict` as a `dict`. The items of a list must be instances of the type of its first
item. Arrays take much less space than lists.

>>> decode(encode({"position": np.array([1.5, 2.5]), "tags": ["a", "b"]}))["tags"]
['a', 'b']
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.message import EncodeError

from envlogger.converters.stored_types import ARRAYS, FIELDS, SCALAR_DIM_SIZE, ArrayEncoding
from envlogger.errors import DamagedDataError, UnsupportedTypeError, UnsupportedValueError
from envlogger.proto.storage_pb2 import Data, Datum
from riegeli.varints import encode_varints

__all__ = ["MAX_SIZE", "decode", "decode_datum", "encode", "encode_to_bytes"]

# Protobuf parsers reject larger messages.
MAX_SIZE = (1 << 31) - 1

_SUPPORTED_TYPES = (
    "None, bool, int, float, str, bytes, NumPy scalars and arrays of bool, (u)int8 to (u)int64, "
    "float32, float64, str or bytes, and lists, tuples and dicts of these"
)

# Protobuf parsers reject messages nested deeper than 100 levels; a leaf takes three levels (Datum,
# Shape, Dim).
_MAX_DEPTH = 100 - 3

_Encoder: TypeAlias = Callable[[Data, Any, int], None]
_Setter: TypeAlias = Callable[[Datum.Values, Any], object]


class _PathError(Exception):
    """The error of an unsupported value; containers prepend their keys to its path."""

    def __init__(
        self, error: type[UnsupportedTypeError | UnsupportedValueError], text: str
    ) -> None:
        super().__init__(text)
        self.error = error
        self.path = ""


def encode(user_data: Any, *, name: str = "value") -> Data:
    """Converts a value to a proto.

    Args:
      user_data: Any value of the table in the docstring of this module.
      name: The name of `user_data` in error messages.

    Returns:
      A new proto, which `decode` converts back.

    Raises:
      UnsupportedTypeError: A value in `user_data` has an unsupported type, or a list has items of
        several types.
      UnsupportedValueError: `user_data` is nested too deeply for decoding, or a string is not valid
        Unicode.
    """
    data = Data()
    try:
        _encode_into(data, user_data, 0)
    except _PathError as error:
        raise error.error(f"cannot store {name}{error.path}: {error}") from None
    return data


def encode_to_bytes(user_data: Any, *, name: str = "value") -> bytes:
    """Converts a value to a serialized proto.

    Args:
      user_data: See `encode`.
      name: See `encode`.

    Returns:
      The serialized result of `encode`: equal bytes in every process.

    Raises:
      UnsupportedTypeError: See `encode`.
      UnsupportedValueError: See `encode`; or the value takes more than 2 GiB.
    """
    data = encode(user_data, name=name)
    with contextlib.suppress(EncodeError):
        serialized: bytes = data.SerializeToString(deterministic=True)
        if len(serialized) <= MAX_SIZE:
            return serialized
    size, path = max(_sizes(user_data))
    raise UnsupportedValueError(
        f"cannot store {name}: it takes more than {MAX_SIZE:,} bytes, the limit of a protobuf "
        f"message; the largest value in it is {name}{path}, {size:,} bytes"
    )


def _sizes(value: Any, path: str = "") -> Iterator[tuple[int, str]]:
    """Yields the sizes and the paths of arrays and strings."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _sizes(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", None)
        for index, item in enumerate(value):
            yield from _sizes(
                item, f"{path}[{index}]" if names is None else f"{path}.{names[index]}"
            )
    elif isinstance(value, np.ndarray):
        yield value.nbytes, path
    else:
        yield len(value) if isinstance(value, str | bytes) else 0, path


def _check_size(size: int) -> None:
    """Rejects values too large for a message, before copying."""
    if size > MAX_SIZE:
        raise _PathError(
            UnsupportedValueError,
            f"it takes {size:,} bytes, but a protobuf message holds at most {MAX_SIZE:,}; split it",
        )


def _encode_into(data: Data, value: Any, depth: int) -> None:
    """Encodes `value` into `data`, an empty message nested `depth` levels deep."""
    encoder = _ENCODERS.get(type(value)) or _find_base_encoder(value)
    encoder(data, value, depth)


def _find_base_encoder(value: Any) -> _Encoder:
    for base in type(value).__mro__:
        if base in _ENCODERS:
            return _ENCODERS[base]
    kind = type(value)
    raise _PathError(
        UnsupportedTypeError,
        f"{kind.__module__}.{kind.__qualname__} is not supported; supported are {_SUPPORTED_TYPES}",
    )


def _increase_depth(depth: int, levels: int) -> int:
    if depth + levels > _MAX_DEPTH:
        raise _PathError(
            UnsupportedValueError,
            "nested too deeply for decoding; make it flatter, about 45 levels are possible",
        )
    return depth + levels


def _encode_items(
    values: Any, items: Sequence[Any], depth: int, names: Sequence[str] | None = None
) -> None:
    """Adds items to a repeated field; `names` are the names of the items in error messages."""
    for index, item in enumerate(items):
        try:
            _encode_into(values.add(), item, depth)
        except _PathError as error:
            path = f"[{index}]" if names is None else f".{names[index]}"
            error.path = path + error.path
            raise


def _encode_none(data: Data, value: None, depth: int) -> None:
    """Encodes None, which is a message without content."""


def _encode_list(data: Data, value: list[Any], depth: int) -> None:
    array = data.array
    array.SetInParent()  # Marks an empty list: a message without fields is None.
    if not value:
        return
    expected = type(value[0])
    for index, item in enumerate(value):
        if not isinstance(item, expected):
            raise _PathError(
                UnsupportedTypeError,
                f"the items of a list must have the type of the first one, {expected.__name__}, "
                f"but item {index} is {type(item).__name__}; a tuple takes items of several types",
            )
    _encode_items(array.values, value, _increase_depth(depth, 2))


def _encode_tuple(data: Data, value: tuple[Any, ...], depth: int) -> None:
    items = data.tuple
    items.SetInParent()  # Marks an empty tuple: a message without fields is None.
    if value:
        names = getattr(value, "_fields", None)  # Only a NamedTuple has `_fields`.
        _encode_items(items.values, value, _increase_depth(depth, 2), names)


def _encode_dict(data: Data, value: dict[Any, Any], depth: int) -> None:
    entries = data.dict
    entries.SetInParent()  # Marks an empty dict: a message without fields is None.
    for key, item in value.items():
        try:
            if isinstance(key, str):
                _encode_into(_add_string_entry(entries, key), item, _increase_depth(depth, 3))
            else:
                key_and_value = entries.kvs.values.add().tuple.values
                child_depth = _increase_depth(depth, 5)
                _encode_into(key_and_value.add(), key, child_depth)
                _encode_into(key_and_value.add(), item, child_depth)
        except _PathError as error:
            error.path = f"[{key!r}]{error.path}"
            raise


def _add_string_entry(entries: Data.Dict, key: str) -> Data:
    try:
        return entries.values[str.__str__(key)]  # String enums override `str`.
    except UnicodeEncodeError:
        raise _create_unicode_error(key) from None


def _create_unicode_error(text: str) -> _PathError:
    return _PathError(UnsupportedValueError, f"{text!r} is not valid Unicode; store it as bytes")


def _reject_masked_array(data: Data, value: np.ma.MaskedArray, depth: int) -> None:
    raise _PathError(
        UnsupportedTypeError,
        "a masked array would lose its mask; store value.filled(...) and the mask as arrays",
    )


def _encode_array(data: Data, value: np.ndarray, depth: int) -> None:
    _check_size(value.nbytes)
    datum = data.datum
    datum.SetInParent()  # Marks a 0-dimensional array: a message without fields is None.
    dims = datum.shape.dim
    for size in value.shape:
        dims.add().size = size
    dtype = value.dtype
    array_encoder = _ARRAY_ENCODERS.get(
        dtype.kind if dtype.kind in "OUS" else f"{dtype.kind}{dtype.itemsize}"
    )
    if array_encoder is None:
        raise _PathError(
            UnsupportedTypeError,
            f"an array of dtype {dtype} is not supported; supported are {_SUPPORTED_TYPES}",
        )
    if value.size:
        array_encoder(datum.values, np.asarray(value))
    else:
        datum.empty_dtype = _get_empty_dtype(dtype)


def _get_empty_dtype(dtype: np.dtype[Any]) -> str:
    # Arrays of strings are decoded with dtype object, with and without elements.
    return "object" if dtype.kind in "OUS" else dtype.newbyteorder("=").name


def _create_array_encoder(encoding: ArrayEncoding) -> Callable[[Datum.Values, np.ndarray], None]:
    field, tag, _, stored_dtype, is_blob = encoding

    def encode_numbers(values: Datum.Values, array: np.ndarray) -> None:
        getattr(values, field).extend(array.ravel().tolist())

    def encode_blob(values: Datum.Values, array: np.ndarray) -> None:
        setattr(values, field, array.astype(stored_dtype, copy=False).tobytes())

    def encode_memory(values: Datum.Values, array: np.ndarray) -> None:
        # Packed values have the same bytes in memory: all are merged at once.
        raw = array.astype(stored_dtype, copy=False).tobytes()
        values.MergeFromString(tag + encode_varints((len(raw),)) + raw)

    if stored_dtype is None:
        return encode_numbers
    return encode_blob if is_blob else encode_memory


def _encode_texts(values: Datum.Values, array: np.ndarray) -> None:
    items = array.ravel().tolist()
    try:
        if all(isinstance(item, str) for item in items):
            values.string_values.extend(items)
            return
    except UnicodeEncodeError as e:
        raise _create_unicode_error(e.object) from None
    if not all(isinstance(item, bytes) for item in items):
        type_names = sorted({type(item).__name__ for item in items})
        raise _PathError(
            UnsupportedTypeError,
            "an array of dtype object must have elements that are all str or all bytes, but they "
            f"are {', '.join(type_names)}; use a tuple for values of other types",
        )
    values.bytes_values.extend(items)


_ARRAY_ENCODERS = {
    **{key: _create_array_encoder(encoding) for key, encoding in ARRAYS.items()},
    **dict.fromkeys("USO", _encode_texts),
}


def _create_scalar_encoder(set_value: _Setter) -> _Encoder:
    def encode_scalar(data: Data, value: Any, depth: int) -> None:
        datum = data.datum
        datum.shape.dim.add().size = SCALAR_DIM_SIZE
        set_value(datum.values, value)

    return encode_scalar


def _set_bytes(values: Datum.Values, value: bytes) -> None:
    _check_size(len(value))
    values.bytes_values.append(bytes(value))


def _set_text(values: Datum.Values, value: str) -> None:
    _check_size(len(value))
    try:
        values.string_values.append(str.__str__(value))
    except UnicodeEncodeError:
        raise _create_unicode_error(value) from None


def _create_small_setter(field: str, size: int, signed: bool) -> _Setter:
    def set_value(values: Datum.Values, value: Any) -> None:
        setattr(values, field, int(value).to_bytes(size, "big", signed=signed))

    return set_value


def _set_float32(values: Datum.Values, value: np.float32) -> None:
    # Python floats would turn a signalling NaN into a quiet NaN.
    _ARRAY_ENCODERS["f4"](values, np.asarray(value))


def _set_bigint(values: Datum.Values, value: int) -> None:
    size = value.bit_length() // 8 + 1
    values.bigint_values.append(int(value).to_bytes(size, "big", signed=True))


_encode_bool = _create_scalar_encoder(lambda values, x: values.bool_values.append(bool(x)))
_encode_float64 = _create_scalar_encoder(lambda values, x: values.double_values.append(float(x)))
_encode_int64 = _create_scalar_encoder(lambda values, x: values.int64_values.append(int(x)))
_encode_uint64 = _create_scalar_encoder(lambda values, x: values.uint64_values.append(int(x)))

_ENCODERS: dict[type, _Encoder] = {
    type(None): _encode_none,
    list: _encode_list,
    tuple: _encode_tuple,
    dict: _encode_dict,
    np.ndarray: _encode_array,
    np.ma.MaskedArray: _reject_masked_array,
    str: _create_scalar_encoder(_set_text),
    bytes: _create_scalar_encoder(_set_bytes),
    bool: _encode_bool,
    np.bool_: _encode_bool,
    int: _create_scalar_encoder(_set_bigint),
    float: _encode_float64,
    np.float64: _encode_float64,
    np.float32: _create_scalar_encoder(_set_float32),
    np.int8: _create_scalar_encoder(_create_small_setter("int8_values", 1, signed=True)),
    np.int16: _create_scalar_encoder(_create_small_setter("int16_values", 2, signed=True)),
    np.int32: _create_scalar_encoder(lambda values, x: values.int32_values.append(int(x))),
    np.longlong: _encode_int64,
    np.int64: _encode_int64,
    np.uint8: _create_scalar_encoder(_create_small_setter("uint8_values", 1, signed=False)),
    np.uint16: _create_scalar_encoder(_create_small_setter("uint16_values", 2, signed=False)),
    np.uint32: _create_scalar_encoder(lambda values, x: values.uint32_values.append(int(x))),
    np.ulonglong: _encode_uint64,
    np.uint64: _encode_uint64,
}


def decode(user_data: Data | None) -> Any:
    """Converts a proto to its value.

    Args:
      user_data: The result of `encode`, or None.

    Returns:
      A new value; its arrays are writable and share no memory with the proto.

    Raises:
      DamagedDataError: `user_data` is not a result of `encode`.
    """
    if user_data is None:
        return None
    kind = user_data.WhichOneof("value")
    if kind == "datum":
        return decode_datum(user_data.datum)
    if kind == "array":
        return [decode(item) for item in user_data.array.values]
    if kind == "tuple":
        return tuple([decode(item) for item in user_data.tuple.values])
    if kind == "dict":
        # The order of a protobuf map differs between processes.
        values = sorted(user_data.dict.values.items())
        entries: dict[Any, Any] = {key: decode(value) for key, value in values}
        entries.update(_decode_entry(entry) for entry in user_data.dict.kvs.values)
        return entries
    return None


def _decode_entry(entry: Data) -> tuple[Any, Any]:
    key_and_value = entry.tuple.values
    if len(key_and_value) != 2:
        raise DamagedDataError(
            f"an entry of a dict must be a key and a value, got {len(key_and_value)} items"
        )
    key = decode(key_and_value[0])
    try:
        hash(key)
    except TypeError:
        raise DamagedDataError(f"the key of an entry of a dict is a {type(key).__name__}") from None
    return key, decode(key_and_value[1])


def decode_datum(datum: Datum) -> Any:
    """Converts a scalar or array proto to its value; see `decode`."""
    fields = {descriptor.name: content for descriptor, content in datum.values.ListFields()}
    shape = [dim.size for dim in datum.shape.dim]
    is_scalar = shape == [SCALAR_DIM_SIZE]
    if not fields:
        return _decode_empty(datum, shape)
    try:
        if is_scalar:
            name = _choose_field(fields, _SCALAR_PRECEDENCE)
            scalar = _SCALAR_DECODERS[name](fields[name])
            is_nan = name == "float_values" and scalar != scalar
            return _decode_float32_bits(datum)[0] if is_nan else scalar
        name = _choose_field(fields, _ARRAY_PRECEDENCE)
        array = _ARRAY_DECODERS[name](fields[name])
        if name == "float_values" and np.isnan(array).any():
            array = _decode_float32_bits(datum)
    except ValueError as e:
        raise DamagedDataError(f"stored values cannot be decoded: {e}") from e
    if any(size < 0 for size in shape) or math.prod(shape) != array.size:
        raise DamagedDataError(f"{array.size} stored values do not make an array of shape {shape}")
    return array.reshape(shape)


def _decode_float32_bits(datum: Datum) -> np.ndarray:
    """Decodes the raw bits of float values, because Python floats have no signalling NaN."""
    size = np.float32().itemsize * len(datum.values.float_values)
    values = Datum.Values()
    values.CopyFrom(datum.values)
    for descriptor, _ in datum.values.ListFields():
        if descriptor.name != "float_values":
            values.ClearField(descriptor.name)
    return np.frombuffer(values.SerializeToString()[-size:], "<f4").astype(np.float32)


def _choose_field(fields: dict[str, Any], precedence: Iterable[str]) -> str:
    if len(fields) == 1:
        return next(iter(fields))
    return next(name for name in precedence if name in fields)


def _decode_empty(datum: Datum, shape: list[int]) -> np.ndarray | None:
    if not datum.empty_dtype:
        return None  # EnvLogger up to 1.3 stored no dtype for empty arrays.
    if 0 not in shape or datum.empty_dtype not in _EMPTY_DTYPES:
        raise DamagedDataError(
            f"no values for an array of shape {shape}, dtype {datum.empty_dtype!r}"
        )
    return np.empty(shape, datum.empty_dtype)


def _create_array_decoder(encoding: ArrayEncoding) -> Callable[[Any], np.ndarray]:
    if encoding.is_blob:
        return lambda blob: np.frombuffer(blob, encoding.stored_dtype).astype(encoding.dtype)
    return lambda values: np.array(values, encoding.dtype)


def _decode_objects(content: Iterable[str] | Iterable[bytes]) -> np.ndarray:
    return np.array(list(content), dtype=object)


def _reject_bigints(content: Any) -> np.ndarray:
    raise UnsupportedTypeError(
        f"an array of {len(content)} integers of any size is not supported, only scalars are"
    )


_ARRAY_DECODERS: dict[str, Callable[[Any], np.ndarray]] = {
    **{field: _create_array_decoder(encoding) for field, encoding in FIELDS.items()},
    "string_values": _decode_objects,
    "bytes_values": _decode_objects,
    "bigint_values": _reject_bigints,
}


def _create_scalar_decoder(encoding: ArrayEncoding) -> Callable[[Any], Any]:
    scalar_type = bool if encoding.dtype.kind == "b" else encoding.dtype.type
    if encoding.is_blob:
        return lambda blob: scalar_type(np.frombuffer(blob, encoding.stored_dtype)[0])
    return lambda values: scalar_type(values[0])


_SCALAR_DECODERS: dict[str, Callable[[Any], Any]] = {
    **{field: _create_scalar_decoder(encoding) for field, encoding in FIELDS.items()},
    "string_values": lambda texts: texts[0],
    "bytes_values": lambda blobs: blobs[0],
    "bigint_values": lambda blobs: int.from_bytes(blobs[0], "big", signed=True),
}

# The precedence of fields, as in all versions of EnvLogger. Another writer may fill several fields,
# for instance for old readers.
_SCALAR_PRECEDENCE = tuple(_SCALAR_DECODERS)
_ARRAY_PRECEDENCE = (
    *("string_values", "bytes_values", "bigint_values"),
    *("uint16_values", "uint8_values", "int16_values", "int8_values", "float_values_buffer"),
    *tuple(field for field, encoding in FIELDS.items() if not encoding.is_blob),
)

_EMPTY_DTYPES = {encoding.dtype.name for encoding in ARRAYS.values()} | {"object"}
