"""Templates of stored steps: the common bytes of steps with equal structure.

A template is learned from the bytes of one step. It separates constants (the tags, lengths,
shapes and keys) from slots, which hold the values. All records of the same size with the same
constants have the same structure, so their values have the same byte offsets: a step is decoded
without parsing, and the columns of many steps by slicing.

The results of a template equal those of `codec`. If a template cannot ensure this, it raises
`NoMatchError`, and `codec` must decode the record.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dm_env
import numpy as np
from google.protobuf.message import DecodeError

from envlogger.converters import codec
from envlogger.converters.stored_types import FIELDS, SCALAR_DIM_SIZE, tag
from envlogger.errors import EnvLoggerError
from envlogger.proto.storage_pb2 import Data, Datum
from envlogger.step_data import StepData
from riegeli.varints import encode_varints, read_varint

__all__ = ["ByteArray", "NoMatchError", "Template"]

# The maximum number of values of a step with a template: compiling takes long.
_MAX_VALUES = 1024

# A main array takes up at least 31/32 of the bytes of a record of this size or more.
_MIN_RECORD_BYTES = 2048
_MAX_MAIN_RATIO = 32

_VALUES_TAG = tag(Datum.VALUES_FIELD_NUMBER)


class ByteArray(NamedTuple):
    """A byte array in a record: offset, dtype and shape."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class NoMatchError(Exception):
    """A record does not match a template, or no template can be learned from it."""


class Template:
    """The byte layout of a stored step.

    Args:
      record: A step of this layout.

    Raises:
      NoMatchError: The layout is unsupported, or `record` is damaged.

    Attributes:
      size: The number of bytes of each record of this layout.
      main: The array that takes up nearly all of these bytes, if any.
    """

    def __init__(self, record: bytes) -> None:
        self.size = len(record)
        parser = _Parser(record)
        try:
            self._root = parser.parse_step()
        except (ValueError, OverflowError, DecodeError, EnvLoggerError) as e:
            raise NoMatchError(str(e)) from e
        self._slots = parser.slots
        self.main = self._find_main()
        self._names = [f"x{i}" for i in range(len(self._slots))]
        try:
            self._slots_dtype = np.dtype(
                {
                    "names": self._names,
                    "formats": [slot.dtype for slot in self._slots],
                    "offsets": [slot.offset for slot in self._slots],
                    "itemsize": self.size,
                }
            )
        except (ValueError, TypeError) as e:
            raise NoMatchError(str(e)) from e
        self._constants_struct, self._constants = self._create_constants(record)
        self._words_dtype, self._words = self._create_words(record)
        self._build = _compile_builder(self._root, self._slots)

    def decode(self, record: bytes) -> StepData:
        """Decodes a record to a step.

        Raises:
          NoMatchError: The record has another layout.
        """
        if len(record) != self.size or self._constants_struct.unpack(record) != self._constants:
            raise NoMatchError
        try:
            return self._build(*np.frombuffer(record, self._slots_dtype).item())
        except (ValueError, LookupError):
            raise NoMatchError from None

    def matches(self, records: bytes | memoryview) -> np.ndarray:
        """Compares records of `size` bytes each with the constant bytes of this template.

        Args:
          records: The concatenated records.

        Returns:
          A bool array [number of records]: true if all constant bytes are equal.
        """
        rows = np.frombuffer(records, self._words_dtype)
        result = np.ones(len(rows), bool)
        for name, word in self._words.items():
            result &= rows[name] == word
        return result

    def columns(self, records: bytes | memoryview) -> StepData:
        """Decodes records to columns; `matches` must be true for all of them.

        Args:
          records: The concatenated records.

        Returns:
          A step whose values are arrays `[number of records, ...]`, as from
          `rlds_ecosystem.model.columns.stack_values`. They may be views.

        Raises:
          NoMatchError: A record has another layout.
        """
        rows = np.frombuffer(records, self._slots_dtype)
        try:
            columns = [slot.column(rows[name]) for name, slot in zip(self._names, self._slots)]
            (step_type, *timestep), action, custom_data = _fill(self._root, columns, len(rows))
        except (ValueError, LookupError):
            raise NoMatchError from None
        return StepData(dm_env.TimeStep(step_type, *timestep), action, custom_data)

    def _find_main(self) -> ByteArray | None:
        for offset, dtype, *_ in self._slots:
            if (
                dtype.base in (np.uint8, np.int8)
                and self.size >= _MIN_RECORD_BYTES
                and dtype.itemsize * _MAX_MAIN_RATIO >= self.size * (_MAX_MAIN_RATIO - 1)
            ):
                return ByteArray(offset, dtype.base, dtype.shape)
        return None

    def _create_constants(self, record: bytes) -> tuple[struct.Struct, tuple[bytes, ...]]:
        layout = struct.Struct(
            "".join(
                f"{end - start}{'s' if is_constant else 'x'}"
                for start, end, is_constant in self._list_spans()
            )
        )
        return layout, layout.unpack(record)

    def _create_words(self, record: bytes) -> tuple[np.dtype[Any], dict[str, int]]:
        """Returns the constants as integers, which NumPy compares faster than bytes."""
        offsets, formats = [], []
        for start, end, is_constant in self._list_spans():
            if is_constant and start < end:
                size = min(8, 1 << (end - start).bit_length() - 1)
                # The last word may overlap the previous word.
                span_offsets = [*range(start, end - size, size), end - size]
                offsets += span_offsets
                formats += [f"<u{size}"] * len(span_offsets)
        names = [f"w{i}" for i in range(len(offsets))]
        dtype = np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": self.size}
        )
        return dtype, dict(zip(names, np.frombuffer(record, dtype).item()))

    def _list_spans(self) -> Iterator[tuple[int, int, bool]]:
        """Yields the start and end of alternating constants and slots, and True for constants."""
        end = 0
        for slot in self._slots:
            yield end, slot.offset, True
            end = slot.offset + slot.dtype.itemsize
            yield slot.offset, end, False
        yield end, self.size, True


class _Slot(NamedTuple):
    """The byte offset, dtype and decoding of a value in records of the same layout.

    Attributes:
      offset: The offset of the first byte.
      dtype: The dtype of the stored value `x`; dtype `V` is decoded as `bytes`.
      value: An expression of `x` for the decoded value, with the names of `_BUILDER_NAMES`.
      column: A function that decodes a column of `x`; it may return a view.

    `value` and `column` raise ValueError or LookupError if `x` is invalid.
    """

    offset: int
    dtype: np.dtype[Any]
    value: str
    column: Callable[[np.ndarray], np.ndarray]


class _Constant(NamedTuple):
    """A constant value without bytes of its own, such as an array without elements."""

    value: Any


class _Container(NamedTuple):
    """A list, a tuple, or a dict; only a dict has keys."""

    kind: type
    children: list[_Node]
    keys: list[Any]


# An int is the index of a slot.
_Node = int | _Constant | _Container


# --- Values.

_STEP_TYPES = (dm_env.StepType.FIRST, dm_env.StepType.MID, dm_env.StepType.LAST)


def _decode_bigint(content: bytes) -> int:
    return int.from_bytes(content, "big", signed=True)


def _decode_bools(array: np.ndarray) -> np.ndarray:
    if array.max() > 1:
        raise ValueError("not a bool")
    return array.astype(bool)


def _decode_integers(content: bytes, field: str, shape: tuple[int, ...]) -> np.ndarray:
    """Decodes packed varints."""
    encoding = FIELDS[field]
    if content.isascii():  # Each element has one byte.
        array = np.frombuffer(content, np.uint8).astype(encoding.dtype)
    else:  # For a single record, protobuf is faster than NumPy.
        size = encode_varints((len(content),))
        try:
            values = Datum.Values.FromString(encoding.tag + size + content)
        except DecodeError as e:
            raise ValueError(str(e)) from e
        array = np.array(getattr(values, field), encoding.dtype)
    if array.size != math.prod(shape):
        raise ValueError("wrong number of varints")
    return array if len(shape) == 1 else array.reshape(shape).copy()


def _decode_integer(content: bytes, low: int, high: int) -> int:
    """Decodes a varint of an integer type with the range `low` to `high`."""
    value, end = read_varint(content, 0)
    if low < 0 and value >= 1 << 63:
        value -= 1 << 64
    # Parsers disagree about values out of range.
    if end != len(content) or not low <= value <= high:
        raise ValueError("wrong number of varints, or a varint out of range")
    return value


def _narrow(values: np.ndarray, dtype: str) -> np.ndarray:
    """Converts uint64, with negative values as their complement, to `dtype`."""
    if dtype == "uint64":
        return values
    signed = values.view(np.int64)
    result = signed.astype(dtype)
    # Parsers disagree about values out of range.
    if dtype != "int64" and np.any(result != signed):
        raise ValueError(f"not an {dtype}")
    return result


_BUILDER_NAMES: dict[str, Any] = {
    "BOOLS": (False, True),
    "STEP_TYPES": _STEP_TYPES,
    "SMALL": range(128),
    "StepData": StepData,
    "TimeStep": dm_env.TimeStep,
    "big": _decode_bigint,
    "bools": _decode_bools,
    "integer": _decode_integer,
    "integers": _decode_integers,
    **{encoding.dtype.name: encoding.dtype.type for encoding in FIELDS.values()},
}


def _compile_builder(root: _Node, slots: list[_Slot]) -> Callable[..., StepData]:
    """Compiles a function that builds a step from the values of the slots.

    The source contains only slot indices and integers; constants are passed by name.
    """
    names = dict(_BUILDER_NAMES)

    def add_constant(value: Any) -> str:
        name = f"k{len(names)}"
        names[name] = value
        return name

    def compile_node(node: _Node) -> str:
        if isinstance(node, int):
            return slots[node].value.format(x=f"x{node}")
        if isinstance(node, _Constant):
            if isinstance(node.value, np.ndarray):
                return f"{add_constant(node.value)}.copy()"
            return add_constant(node.value)
        items = [compile_node(child) for child in node.children]
        if node.kind is dict:
            pairs = [f"{add_constant(key)}: {item}" for key, item in zip(node.keys, items)]
            return f"{{{', '.join(pairs)}}}"
        if node.kind is list:
            return f"[{', '.join(items)}]"
        return f"({''.join(f'{item}, ' for item in items)})"

    assert isinstance(root, _Container)
    timestep, action, custom_data = root.children
    assert isinstance(timestep, _Container)
    values = ", ".join(map(compile_node, timestep.children))
    step = f"StepData(TimeStep({values}), {compile_node(action)}, {compile_node(custom_data)})"
    arguments = ", ".join(f"x{i}" for i in range(len(slots)))
    build: Callable[..., StepData] = eval(f"lambda {arguments}: {step}", names)
    return build


# --- Columns.


def _fill(node: _Node, columns: list[np.ndarray], num_rows: int) -> Any:
    if isinstance(node, int):
        return columns[node]
    if isinstance(node, _Constant):
        return _repeat(node.value, num_rows)
    children = [_fill(child, columns, num_rows) for child in node.children]
    return dict(zip(node.keys, children)) if node.kind is dict else node.kind(children)


def _repeat(value: Any, num_rows: int) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return np.empty((num_rows, *value.shape), value.dtype)
    if isinstance(value, int):
        return np.full(num_rows, value, np.int64)
    return np.full(num_rows, value, object)


def _get_unchanged(column: np.ndarray) -> np.ndarray:
    return column


def _get_first_items(column: np.ndarray) -> np.ndarray:
    return column[:, 0]


def _view_bytes(column: np.ndarray) -> np.ndarray:
    """Returns the bytes of a column of dtype `V`, as uint8 `[number of rows, number of bytes]`."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), -1)


def _decode_bigint_column(column: np.ndarray) -> np.ndarray:
    content = _view_bytes(column)
    num_rows, size = content.shape
    if size > 8:
        raise ValueError("too large for int64")
    padded = np.empty((num_rows, 8), np.uint8)
    padded[:, : 8 - size] = np.where(content[:, :1] >= 0x80, 0xFF, 0)
    padded[:, 8 - size :] = content
    return padded.view(">i8")[:, 0]


def _decode_text_column(column: np.ndarray) -> np.ndarray:
    return np.fromiter((content.decode() for content in column.tolist()), object, len(column))


def _decode_blob_column(column: np.ndarray) -> np.ndarray:
    return np.fromiter(column.tolist(), object, len(column))


def _create_int_decoder(dtype: str, shape: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    count = math.prod(shape)

    def convert(column: np.ndarray) -> np.ndarray:
        content = _view_bytes(column)
        is_end = content < 0x80
        if not is_end[:, -1].all() or np.any(is_end.sum(axis=1) != count):
            raise ValueError("wrong number of varints")
        all_bytes = content.ravel()
        last_bytes = np.flatnonzero(is_end)
        first_bytes = np.concatenate([[0], last_bytes[:-1] + 1])
        sizes = last_bytes - first_bytes + 1
        if sizes.max() > 10 or np.any(all_bytes[last_bytes[sizes == 10]] > 1):
            raise ValueError("a varint that does not fit 64 bits")
        positions = np.arange(len(all_bytes)) - np.repeat(first_bytes, sizes)
        seven_bits = (all_bytes & 0x7F).astype(np.uint64) << (7 * positions).astype(np.uint64)
        values = np.bitwise_or.reduceat(seven_bits, first_bytes)
        return _narrow(values, dtype).reshape(len(column), *shape)

    return convert


# --- Learning.


def _create_scalar_slot(field: str, offset: int, size: int) -> _Slot | _Constant:
    bytes_dtype = np.dtype(f"V{size}") if size else None
    if field == "bool_values":
        if size != 1:
            raise ValueError("wrong number of values")
        return _Slot(offset, np.dtype(np.uint8), "BOOLS[{x}]", _decode_bools)
    encoding = FIELDS.get(field)
    if encoding is not None and encoding.stored_dtype is not None:
        dtype = encoding.stored_dtype
        if size != dtype.itemsize:
            raise ValueError("wrong number of values")
        if dtype.kind == "f" and size == 4:  # Python floats have no signalling NaN.
            return _Slot(offset, np.dtype((dtype, (1,))), "{x}[0]", _get_first_items)
        return _Slot(offset, dtype, f"{encoding.dtype.name}({{x}})", _get_unchanged)
    if encoding is not None and bytes_dtype is not None:
        name = encoding.dtype.name
        column = _create_int_decoder(name, ())
        if size == 1:
            byte_dtype = np.dtype(np.uint8)
            return _Slot(offset, byte_dtype, f"{name}(SMALL[{{x}}])", column)
        limits = np.iinfo(name)
        value = f"{name}(integer({{x}}, {limits.min}, {limits.max}))"
        return _Slot(offset, bytes_dtype, value, column)
    if field == "string_values":
        if bytes_dtype is None:
            return _Constant("")
        return _Slot(offset, bytes_dtype, "{x}.decode()", _decode_text_column)
    if field == "bytes_values":
        if bytes_dtype is None:
            return _Constant(b"")
        return _Slot(offset, bytes_dtype, "{x}", _decode_blob_column)
    if field == "bigint_values":
        if bytes_dtype is None:
            return _Constant(0)
        if size == 1:
            return _Slot(offset, np.dtype(np.int8), "{x}", lambda x: x.astype(np.int64))
        return _Slot(offset, bytes_dtype, "big({x})", _decode_bigint_column)
    raise ValueError(f"scalars in {field}")


def _create_array_slot(field: str, offset: int, size: int, shape: tuple[int, ...]) -> _Slot:
    count = math.prod(shape)
    encoding = FIELDS.get(field)
    if encoding is not None and encoding.stored_dtype is None and size:
        name = encoding.dtype.name
        expression = f"integers({{x}}, {field!r}, {shape!r})"
        return _Slot(offset, np.dtype(f"V{size}"), expression, _create_int_decoder(name, shape))
    element = encoding.stored_dtype if encoding is not None else None
    if field == "bool_values":
        element = np.dtype(np.uint8)
    if element is None or count < 1 or size != count * element.itemsize:
        raise ValueError("wrong number of values, or no fixed size")
    # NumPy cannot read 0-dimensional arrays from a buffer of records.
    dtype = np.dtype((element, shape or (1,)))
    x = "{x}" if shape else "{x}.reshape(())"
    column = _get_unchanged if shape else _get_first_items
    if field == "bool_values":
        return _Slot(offset, dtype, f"bools({x})", lambda x: column(_decode_bools(x)))
    native = element.newbyteorder("=")
    value = f"{x}.copy()" if element == native else f"{x}.astype({native.name})"
    return _Slot(offset, dtype, value, column)


class _Parser:
    """Parses a step in canonical form: only declared fields, at most once, in order."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._num_values = 0
        self.slots: list[_Slot] = []

    def parse_step(self) -> _Container:
        record = self._record
        # Parsing checks texts and the depth of nesting, because later records are not parsed.
        Data.FromString(record)
        end = self._find_field(0, len(record), Data.TUPLE_FIELD_NUMBER)[1]
        if Data.FromString(record[end:]).WhichOneof("value") is not None:
            raise ValueError("more than an episode mark")
        root = self._parse_data(0, end)
        match root:
            case _Container(kind=_, children=[_Container() as timestep, _, _]):
                if timestep.kind is tuple and len(timestep.children) == 4:
                    self._use_as_step_type(timestep.children[0])
                    return root
        raise ValueError("not a step")

    def _use_as_step_type(self, node: _Node) -> None:
        if node != 0 or self.slots[0].dtype != np.int8 or self.slots[0].value != "{x}":
            raise ValueError("not a usual step type")

        def decode_types(types: np.ndarray) -> np.ndarray:
            if types.min() < 0 or types.max() >= len(_STEP_TYPES):
                raise ValueError("not a step type")
            return types.astype(np.int64)

        self.slots[0] = _Slot(
            self.slots[0].offset, np.dtype(np.uint8), "STEP_TYPES[{x}]", decode_types
        )

    def _find_field(self, start: int, end: int, field_number: int) -> tuple[int, int]:
        """Returns the byte range of the content of the field at `start`; checks the tag."""
        if start >= end or self._record[start : start + 1] != tag(field_number):
            raise ValueError(f"no field {field_number} at byte {start}")
        size, content_start = read_varint(self._record, start + 1)
        if size > end - content_start:
            raise ValueError(f"field {field_number} at byte {start} is cut off")
        return content_start, content_start + size

    def _find_repeated(self, start: int, end: int, field_number: int) -> Iterator[tuple[int, int]]:
        """Yields the contents of a repeated field that ends at `end`."""
        while start < end:
            content_start, start = self._find_field(start, end, field_number)
            yield content_start, start

    def _find_single(self, start: int, end: int, field_number: int) -> tuple[int, int]:
        """Returns the content of a field that ends at `end`."""
        content_start, content_end = self._find_field(start, end, field_number)
        if content_end != end:
            raise ValueError(f"more than field {field_number} at byte {start}")
        return content_start, end

    def _parse_data(self, start: int, end: int) -> _Node:
        self._num_values += 1
        if self._num_values > _MAX_VALUES:
            raise ValueError("too many values")
        if start == end:
            return _Constant(None)
        field_number = self._record[start] >> 3
        start, end = self._find_single(start, end, field_number)
        if field_number == Data.DATUM_FIELD_NUMBER:
            return self._parse_datum(start, end)
        if field_number == Data.DICT_FIELD_NUMBER:
            return self._parse_dict(start, end)
        kinds = {Data.ARRAY_FIELD_NUMBER: list, Data.TUPLE_FIELD_NUMBER: tuple}
        if field_number not in kinds:
            raise ValueError(f"field {field_number} at byte {start}")
        items = self._find_repeated(start, end, Data.Tuple.VALUES_FIELD_NUMBER)
        return _Container(kinds[field_number], [self._parse_data(*item) for item in items], [])

    def _parse_dict(self, start: int, end: int) -> _Container:
        keys: list[Any] = []
        children = []
        while start < end and self._record[start] >> 3 == Data.Dict.VALUES_FIELD_NUMBER:
            entry_start, start = self._find_field(start, end, Data.Dict.VALUES_FIELD_NUMBER)
            key_start, key_end = self._find_field(entry_start, start, 1)
            keys.append(self._record[key_start:key_end].decode())
            children.append(self._parse_data(*self._find_single(key_end, start, 2)))
        if start < end:
            items_range = self._find_single(start, end, Data.Dict.KVS_FIELD_NUMBER)
            for item_range in self._find_repeated(*items_range, Data.Array.VALUES_FIELD_NUMBER):
                pair_range = self._find_single(*item_range, Data.TUPLE_FIELD_NUMBER)
                key_start, key_end = self._find_field(*pair_range, Data.Tuple.VALUES_FIELD_NUMBER)
                keys.append(codec.decode(Data.FromString(self._record[key_start:key_end])))
                value = self._find_single(key_end, pair_range[1], Data.Tuple.VALUES_FIELD_NUMBER)
                children.append(self._parse_data(*value))
        try:
            is_unique = len(set(keys)) == len(keys)
        except TypeError:
            is_unique = False
        if not is_unique:
            raise ValueError("a key that is repeated or unhashable")
        return _Container(dict, children, keys)

    def _parse_datum(self, start: int, end: int) -> _Node:
        shape: tuple[int, ...] = ()
        values_start = start
        if start < end and self._record[start] >> 3 == Datum.SHAPE_FIELD_NUMBER:
            content_start, values_start = self._find_field(start, end, Datum.SHAPE_FIELD_NUMBER)
            dims = Datum.Shape.FromString(self._record[content_start:values_start]).dim
            shape = tuple(dim.size for dim in dims)
        if values_start == end or self._record[values_start : values_start + 1] != _VALUES_TAG:
            datum = Datum.FromString(self._record[start:end])
            if datum.values.ListFields():
                raise ValueError("values after other fields")
            return _Constant(codec.decode_datum(datum))
        content_start, end = self._find_single(values_start, end, Datum.VALUES_FIELD_NUMBER)
        if content_start == end:
            return _Constant(None)
        return self._parse_values(content_start, end, shape)

    def _parse_values(self, start: int, end: int, shape: tuple[int, ...]) -> _Node:
        field_number = self._record[start] >> 3
        start, end = self._find_single(start, end, field_number)
        descriptor = Datum.Values.DESCRIPTOR.fields_by_number.get(field_number)
        if descriptor is None or (min(shape, default=0) < 0 and shape != (SCALAR_DIM_SIZE,)):
            raise ValueError(f"values in field {field_number}, shape {shape}")
        if shape == (SCALAR_DIM_SIZE,):
            slot = _create_scalar_slot(descriptor.name, start, end - start)
        else:
            slot = _create_array_slot(descriptor.name, start, end - start, shape)
        if isinstance(slot, _Constant):
            return slot
        self.slots.append(slot)
        return len(self.slots) - 1
