"""Converts Python and NumPy values to the stored form, the proto `Data`, and back.

    Python value                               comes back as
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
    dict                                       dict, string keys first and in no certain order

Instances of subclasses are stored as the class above them that is in the table: an `IntEnum` comes
back as an `int`, an `OrderedDict` as a `dict`. The items of a list must be instances of the type of
its first item. Arrays are stored much more compactly than lists.

>>> decode(encode({"position": np.array([1.5, 2.5]), "tags": ["a", "b"]}))["tags"]
['a', 'b']
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError

from envlogger.converters.stored_types import ARRAYS, FIELDS, SCALAR_DIM_SIZE, ArrayEncoding
from envlogger.errors import DamagedDataError, UnsupportedTypeError, UnsupportedValueError
from envlogger.proto.storage_pb2 import Data, Datum
from riegeli.varints import encode_varints

__all__ = ["MAX_SIZE", "decode", "decode_datum", "encode", "encode_to_bytes"]

# Protobuf parsers refuse larger messages.
MAX_SIZE = (1 << 31) - 1

_SUPPORTED = (
    "None, bool, int, float, str, bytes, NumPy scalars and arrays of bool, (u)int8 to (u)int64, "
    "float32, float64, str or bytes, and lists, tuples and dicts of these"
)

# Protobuf parsers refuse messages nested deeper than 100, and a leaf takes three (Datum, Shape,
# Dim).
_MAX_DEPTH = 100 - 3


class _Refusal(Exception):
    """An unsupported value; collects its path on the way up through the containers."""

    def __init__(self, error: type[UnsupportedTypeError | UnsupportedValueError], why: str) -> None:
        super().__init__(why)
        self.error = error
        self.path = ""


def encode(user_data: Any, *, name: str = "value") -> Data:
    """Converts a value to the proto that is stored.

    Args:
      user_data: Any value of the table at the head of this module. It is not changed.
      name: The name of `user_data` in error messages.

    Returns:
      A new proto, which `decode` converts back.

    Raises:
      UnsupportedTypeError: A `TypeError` that names the path to the value inside `user_data`, its
        type, and what is supported. Lists with items of several types are not.
      UnsupportedValueError: A `ValueError`: nested too deeply to be read back, or a string that is
        not valid Unicode.
    """
    data = Data()
    try:
        _encode_into(data, user_data, 0)
    except _Refusal as refusal:
        raise refusal.error(f"cannot store {name}{refusal.path}: {refusal}") from None
    return data


def encode_to_bytes(user_data: Any, *, name: str = "value") -> bytes:
    """Converts a value to the bytes that are stored.

    Args:
      user_data: See `encode`.
      name: See `encode`.

    Returns:
      What `encode` returns, serialized: the same bytes in every process.

    Raises:
      UnsupportedTypeError: See `encode`.
      UnsupportedValueError: See `encode`; or it takes more than 2 GiB. Names the largest value.
    """
    data = encode(user_data, name=name)
    with contextlib.suppress(EncodeError):
        serialized: bytes = data.SerializeToString(deterministic=True)
        if len(serialized) <= MAX_SIZE:
            return serialized
    size, path = max(_sizes(user_data))
    raise UnsupportedValueError(
        f"cannot store {name}: it takes more than {MAX_SIZE:,} bytes, which is all that a message "
        f"of protobuf can hold; the largest value in it is {name}{path}, {size:,} bytes"
    )


def _sizes(value: Any, path: str = "") -> Iterator[tuple[int, str]]:
    """Yields the sizes of arrays and strings, and their paths."""
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
    """Refuses values too large for a message, before copying."""
    if size > MAX_SIZE:
        raise _Refusal(
            UnsupportedValueError,
            f"it takes {size:,} bytes, but a message of protobuf holds {MAX_SIZE:,} at most; store "
            "it in several parts",
        )


def _encode_into(data: Data, value: Any, depth: int) -> None:
    """Fills the empty `data`, a message nested `depth` levels deep, with `value`."""
    encoder = _ENCODERS.get(type(value)) or _inherited_encoder(value)
    encoder(data, value, depth)


def _inherited_encoder(value: Any) -> Callable[[Data, Any, int], None]:
    for base in type(value).__mro__:
        if base in _ENCODERS:
            return _ENCODERS[base]
    kind = type(value)
    raise _Refusal(
        UnsupportedTypeError,
        f"{kind.__module__}.{kind.__qualname__} is not supported; supported are {_SUPPORTED}",
    )


def _child_depth(depth: int, levels: int) -> int:
    if depth + levels > _MAX_DEPTH:
        raise _Refusal(
            UnsupportedValueError,
            "nested too deeply to be read back; make it flatter, about 45 levels are possible",
        )
    return depth + levels


def _encode_items(
    values: Any, items: Sequence[Any], depth: int, names: Sequence[str] | None = None
) -> None:
    """Adds items to a repeated field; names of items are used in error messages only."""
    for index, item in enumerate(items):
        try:
            _encode_into(values.add(), item, depth)
        except _Refusal as refusal:
            path = f"[{index}]" if names is None else f".{names[index]}"
            refusal.path = path + refusal.path
            raise


def _encode_none(data: Data, value: None, depth: int) -> None:
    """None is a message without content."""


def _encode_list(data: Data, value: list[Any], depth: int) -> None:
    array = data.array
    array.SetInParent()  # Tells an empty list from None.
    if not value:
        return
    expected = type(value[0])
    for index, item in enumerate(value):
        if not isinstance(item, expected):
            raise _Refusal(
                UnsupportedTypeError,
                f"the items of a list must have the type of the first one, {expected.__name__}, "
                f"but item {index} is {type(item).__name__}; a tuple takes items of several types",
            )
    _encode_items(array.values, value, _child_depth(depth, 2))


def _encode_tuple(data: Data, value: tuple[Any, ...], depth: int) -> None:
    items = data.tuple
    items.SetInParent()  # Tells an empty tuple from None.
    if value:
        names = getattr(value, "_fields", None)  # Of a NamedTuple.
        _encode_items(items.values, value, _child_depth(depth, 2), names)


def _encode_dict(data: Data, value: dict[Any, Any], depth: int) -> None:
    entries = data.dict
    entries.SetInParent()  # Tells an empty dict from None.
    for key, item in value.items():
        try:
            if isinstance(key, str):
                _encode_into(_string_entry(entries, key), item, _child_depth(depth, 3))
            else:
                pair = entries.kvs.values.add().tuple.values
                child_depth = _child_depth(depth, 5)
                _encode_into(pair.add(), key, child_depth)
                _encode_into(pair.add(), item, child_depth)
        except _Refusal as refusal:
            refusal.path = f"[{key!r}]{refusal.path}"
            raise


def _string_entry(entries: Data.Dict, key: str) -> Data:
    try:
        return entries.values[str.__str__(key)]  # A member of a string enum has another `str`.
    except UnicodeEncodeError:
        raise _invalid_unicode(key) from None


def _invalid_unicode(text: str) -> _Refusal:
    return _Refusal(UnsupportedValueError, f"{text!r} is not valid Unicode; store it as bytes")


def _refuse_masked_array(data: Data, value: np.ma.MaskedArray, depth: int) -> None:
    raise _Refusal(
        UnsupportedTypeError,
        "a masked array would lose its mask; store value.filled(...) and the mask as arrays",
    )


def _encode_array(data: Data, value: np.ndarray, depth: int) -> None:
    _check_size(value.nbytes)
    datum = data.datum
    datum.SetInParent()  # Tells a 0-dimensional array from None.
    dims = datum.shape.dim
    for size in value.shape:
        dims.add().size = size
    dtype = value.dtype
    array_encoder = _ARRAY_ENCODERS.get(
        dtype.kind if dtype.kind in "OUS" else f"{dtype.kind}{dtype.itemsize}"
    )
    if array_encoder is None:
        raise _Refusal(
            UnsupportedTypeError,
            f"an array of dtype {dtype} is not supported; supported are {_SUPPORTED}",
        )
    if value.size:
        array_encoder(datum.values, np.asarray(value))
    else:
        datum.empty_dtype = _name_of_empty(dtype)


def _name_of_empty(dtype: np.dtype[Any]) -> str:
    # Arrays of strings come back with dtype object, with and without elements.
    return "object" if dtype.kind in "OUS" else dtype.newbyteorder("=").name


def _array_encoder(stored: ArrayEncoding) -> Callable[[Datum.Values, np.ndarray], None]:
    field, tag, _, stored_dtype, is_blob = stored

    def encode_numbers(values: Datum.Values, array: np.ndarray) -> None:
        getattr(values, field).extend(array.ravel().tolist())

    def encode_blob(values: Datum.Values, array: np.ndarray) -> None:
        setattr(values, field, array.astype(stored_dtype, copy=False).tobytes())

    def encode_memory(values: Datum.Values, array: np.ndarray) -> None:
        # Packed numbers have the same bytes in memory: all are merged at once.
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
        raise _invalid_unicode(e.object) from None
    if not all(isinstance(item, bytes) for item in items):
        type_names = sorted({type(item).__name__ for item in items})
        raise _Refusal(
            UnsupportedTypeError,
            "an array of dtype object must have elements that are all str or all bytes, but they "
            f"are {', '.join(type_names)}; use a tuple for other things",
        )
    values.bytes_values.extend(items)


_ARRAY_ENCODERS = {
    **{key: _array_encoder(stored) for key, stored in ARRAYS.items()},
    **dict.fromkeys("USO", _encode_texts),
}


def _scalar(set_value: Callable[[Datum.Values, Any], object]) -> Callable[[Data, Any, int], None]:
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
        raise _invalid_unicode(value) from None


def _set_small(field: str, size: int, signed: bool) -> Callable[[Datum.Values, Any], None]:
    def set_value(values: Datum.Values, value: Any) -> None:
        setattr(values, field, int(value).to_bytes(size, "big", signed=signed))

    return set_value


def _set_float32(values: Datum.Values, value: np.float32) -> None:
    # Python floats would turn a signalling NaN into a quiet one.
    _ARRAY_ENCODERS["f4"](values, np.asarray(value))


def _int_to_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


_encode_bool = _scalar(lambda values, x: values.bool_values.append(bool(x)))
_encode_float64 = _scalar(lambda values, x: values.double_values.append(float(x)))
_encode_int64 = _scalar(lambda values, x: values.int64_values.append(int(x)))
_encode_uint64 = _scalar(lambda values, x: values.uint64_values.append(int(x)))

_ENCODERS: dict[type, Callable[[Data, Any, int], None]] = {
    type(None): _encode_none,
    list: _encode_list,
    tuple: _encode_tuple,
    dict: _encode_dict,
    np.ndarray: _encode_array,
    np.ma.MaskedArray: _refuse_masked_array,
    str: _scalar(_set_text),
    bytes: _scalar(_set_bytes),
    bool: _encode_bool,
    np.bool_: _encode_bool,
    int: _scalar(lambda values, x: values.bigint_values.append(_int_to_bytes(int(x)))),
    float: _encode_float64,
    np.float64: _encode_float64,
    np.float32: _scalar(_set_float32),
    np.int8: _scalar(_set_small("int8_values", 1, signed=True)),
    np.int16: _scalar(_set_small("int16_values", 2, signed=True)),
    np.int32: _scalar(lambda values, x: values.int32_values.append(int(x))),
    np.longlong: _encode_int64,
    np.int64: _encode_int64,
    np.uint8: _scalar(_set_small("uint8_values", 1, signed=False)),
    np.uint16: _scalar(_set_small("uint16_values", 2, signed=False)),
    np.uint32: _scalar(lambda values, x: values.uint32_values.append(int(x))),
    np.ulonglong: _encode_uint64,
    np.uint64: _encode_uint64,
}


def decode(user_data: Data | None) -> Any:
    """Decodes a stored proto to its value.

    Args:
      user_data: The result of `encode`, or None.

    Returns:
      A new value; its arrays are writable and share no memory with the proto.

    Raises:
      DamagedDataError: `user_data` is not something that `encode` returns.
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
        # A map has another order in each process.
        values = sorted(user_data.dict.values.items())
        entries: dict[Any, Any] = {key: decode(value) for key, value in values}
        entries.update(_decode_entry(entry) for entry in user_data.dict.kvs.values)
        return entries
    return None


def _decode_entry(entry: Data) -> tuple[Any, Any]:
    pair = entry.tuple.values
    if len(pair) != 2:
        raise DamagedDataError(
            f"an entry of a dict must be a key and a value, got {len(pair)} items"
        )
    key = decode(pair[0])
    try:
        hash(key)
    except TypeError:
        raise DamagedDataError(f"the key of an entry of a dict is a {type(key).__name__}") from None
    return key, decode(pair[1])


def decode_datum(datum: Datum) -> Any:
    """Converts a stored scalar or array back; see `decode`."""
    fields = {descriptor.name: content for descriptor, content in datum.values.ListFields()}
    shape = [dim.size for dim in datum.shape.dim]
    is_scalar = shape == [SCALAR_DIM_SIZE]
    if not fields:
        return _decode_empty(datum, shape)
    try:
        if is_scalar:
            name = _first_of(fields, _SCALAR_PRECEDENCE)
            scalar = _SCALAR_DECODERS[name](fields[name])
            is_nan = name == "float_values" and scalar != scalar
            return _float32_bits(datum)[0] if is_nan else scalar
        name = _first_of(fields, _ARRAY_PRECEDENCE)
        array = _ARRAY_DECODERS[name](fields[name])
        if name == "float_values" and np.isnan(array).any():
            array = _float32_bits(datum)
    except ValueError as e:
        raise DamagedDataError(f"stored values cannot be decoded: {e}") from e
    if any(size < 0 for size in shape) or math.prod(shape) != array.size:
        raise DamagedDataError(f"{array.size} stored values do not make an array of shape {shape}")
    return array.reshape(shape)


def _float32_bits(datum: Datum) -> np.ndarray:
    """Returns the raw bits of float values: Python floats have no signalling NaN."""
    size = np.float32().itemsize * len(datum.values.float_values)
    values = Datum.Values()
    values.CopyFrom(datum.values)
    for descriptor, _ in datum.values.ListFields():
        if descriptor.name != "float_values":
            values.ClearField(descriptor.name)
    return np.frombuffer(values.SerializeToString()[-size:], "<f4").astype(np.float32)


def _first_of(fields: dict[str, Any], precedence: Iterable[str]) -> str:
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


def _array_decoder(stored: ArrayEncoding) -> Callable[[Any], np.ndarray]:
    if stored.is_blob:
        return lambda blob: np.frombuffer(blob, stored.stored_dtype).astype(stored.dtype)
    return lambda numbers: np.array(numbers, stored.dtype)


def _objects(content: Iterable[str] | Iterable[bytes]) -> np.ndarray:
    return np.array(list(content), dtype=object)


def _refuse_bigints(content: Any) -> np.ndarray:
    raise UnsupportedTypeError(
        f"an array of {len(content)} integers of any size is not supported, only single ones are"
    )


_ARRAY_DECODERS: dict[str, Callable[[Any], np.ndarray]] = {
    **{field: _array_decoder(stored) for field, stored in FIELDS.items()},
    "string_values": _objects,
    "bytes_values": _objects,
    "bigint_values": _refuse_bigints,
}


def _scalar_decoder(stored: ArrayEncoding) -> Callable[[Any], Any]:
    scalar_type = bool if stored.dtype.kind == "b" else stored.dtype.type
    if stored.is_blob:
        return lambda blob: scalar_type(np.frombuffer(blob, stored.stored_dtype)[0])
    return lambda numbers: scalar_type(numbers[0])


_SCALAR_DECODERS: dict[str, Callable[[Any], Any]] = {
    **{field: _scalar_decoder(stored) for field, stored in FIELDS.items()},
    "string_values": lambda texts: texts[0],
    "bytes_values": lambda blobs: blobs[0],
    "bigint_values": lambda blobs: int.from_bytes(blobs[0], "big", signed=True),
}

# The precedence of fields, if a foreign writer filled several, for instance to serve old readers
# too: those that EnvLogger has always taken.
_SCALAR_PRECEDENCE = tuple(_SCALAR_DECODERS)
_ARRAY_PRECEDENCE = (
    *("string_values", "bytes_values", "bigint_values"),
    *("uint16_values", "uint8_values", "int16_values", "int8_values", "float_values_buffer"),
    *tuple(field for field, stored in FIELDS.items() if not stored.is_blob),
)

_EMPTY_DTYPES = {stored.dtype.name for stored in ARRAYS.values()} | {"object"}
