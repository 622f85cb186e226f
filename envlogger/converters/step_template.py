"""Templates of stored steps: the common bytes of steps with equal structure.

A template is learned from the bytes of one step. It separates constants (the tags, lengths,
shapes and keys) from slots, which hold the values. All records of the same size with the same
constants have the same structure, so what they hold is found at the same places: that gives a step
without parsing, and the columns of many steps by slicing.

A template vouches for what it returns: it is what `codec` makes of the parsed record. Where it
cannot, it raises `NoMatchError`, and the record must take the way through `codec`.
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

# Steps with more values get no template: compiling it would take long.
_MAX_VALUES = 1024

# A main array takes all but 1/32 of the bytes of a record of at least this size.
_MIN_RECORD_BYTES = 2048
_MAX_MAIN_RATIO = 32

_VALUES = tag(Datum.VALUES_FIELD_NUMBER)


class ByteArray(NamedTuple):
    """A byte array in a record: begin, dtype and shape."""

    begin: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class NoMatchError(Exception):
    """A record does not match a template, or supports none."""


class Template:
    """The form of a stored step.

    Args:
      record: A step of this form.

    Raises:
      NoMatchError: The form is not a plain one. `record` may be damaged.

    Attributes:
      size: The number of bytes of each record of this form.
      main: The array that takes nearly all of these bytes, if there is one.
    """

    def __init__(self, record: bytes) -> None:
        self.size = len(record)
        parser = _Parser(record)
        try:
            self._root = parser.step()
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
                    "offsets": [slot.begin for slot in self._slots],
                    "itemsize": self.size,
                }
            )
        except (ValueError, TypeError) as e:
            raise NoMatchError(str(e)) from e
        self._constants_form, self._constants = self._make_constants(record)
        self._words_dtype, self._words = self._make_words(record)
        self._build = _compile_builder(self._root, self._slots)

    def decode(self, record: bytes) -> StepData:
        """Returns the step that is stored as `record`.

        Raises:
          NoMatchError: It is not of this form.
        """
        if len(record) != self.size or self._constants_form.unpack(record) != self._constants:
            raise NoMatchError
        try:
            return self._build(*np.frombuffer(record, self._slots_dtype).item())
        except (ValueError, LookupError):
            raise NoMatchError from None

    def matches(self, records: bytes | memoryview) -> np.ndarray:
        """Compares records of `size` bytes each with the constant bytes of this template.

        Args:
          records: The records, one after the other.

        Returns:
          bool [number of records]: True where all constant bytes are equal.
        """
        rows = np.frombuffer(records, self._words_dtype)
        result = np.ones(len(rows), bool)
        for name, word in self._words.items():
            result &= rows[name] == word
        return result

    def columns(self, records: bytes | memoryview) -> StepData:
        """The values of all records, for which `matches` holds.

        Args:
          records: The records, one after the other.

        Returns:
          The structure of a step, with arrays `[number of records, ...]` in place of its values,
          as `rlds_ecosystem.model.columns.stack_values` returns. They may be views.

        Raises:
          NoMatchError: There is a record that is not of this form.
        """
        rows = np.frombuffer(records, self._slots_dtype)
        try:
            columns = [slot.column(rows[name]) for name, slot in zip(self._names, self._slots)]
            (step_type, *timestep), action, custom_data = _fill(self._root, columns, len(rows))
        except (ValueError, LookupError):
            raise NoMatchError from None
        return StepData(dm_env.TimeStep(step_type, *timestep), action, custom_data)

    def _find_main(self) -> ByteArray | None:
        for begin, dtype, *_ in self._slots:
            if (
                dtype.base in (np.uint8, np.int8)
                and self.size >= _MIN_RECORD_BYTES
                and dtype.itemsize * _MAX_MAIN_RATIO >= self.size * (_MAX_MAIN_RATIO - 1)
            ):
                return ByteArray(begin, dtype.base, dtype.shape)
        return None

    def _make_constants(self, record: bytes) -> tuple[struct.Struct, tuple[bytes, ...]]:
        form = struct.Struct(
            "".join(
                f"{end - begin}{'s' if is_constant else 'x'}"
                for begin, end, is_constant in self._spans()
            )
        )
        return form, form.unpack(record)

    def _make_words(self, record: bytes) -> tuple[np.dtype[Any], dict[str, int]]:
        """Returns the constants as integers, which NumPy compares faster than bytes."""
        offsets, formats = [], []
        for begin, end, is_constant in self._spans():
            if is_constant and begin < end:
                size = min(8, 1 << (end - begin).bit_length() - 1)
                # The last word may overlap the one before.
                of_span = [*range(begin, end - size, size), end - size]
                offsets += of_span
                formats += [f"<u{size}"] * len(of_span)
        names = [f"w{i}" for i in range(len(offsets))]
        dtype = np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": self.size}
        )
        return dtype, dict(zip(names, np.frombuffer(record, dtype).item()))

    def _spans(self) -> Iterator[tuple[int, int, bool]]:
        """Yields begin and end of alternating constants and slots, and whether it is a constant."""
        end = 0
        for slot in self._slots:
            yield end, slot.begin, True
            end = slot.begin + slot.dtype.itemsize
            yield slot.begin, end, False
        yield end, self.size, True


class _Slot(NamedTuple):
    """The byte offset, dtype and decoding of a value in records of the same layout.

    Attributes:
      begin: The offset of its first byte.
      dtype: The dtype of the stored value `x`; dtype `V` is decoded as `bytes`.
      value: An expression of `x` for the value, in the names of `_BUILDER_NAMES`.
      column: Converts an array of many `x` to the column of the values; it may return a view.

    Both raise ValueError or LookupError if `x` is not what is to be expected.
    """

    begin: int
    dtype: np.dtype[Any]
    value: str
    column: Callable[[np.ndarray], np.ndarray]


class _Constant(NamedTuple):
    """A constant value without own bytes, such as an array without elements."""

    value: Any


class _Container(NamedTuple):
    """A list, a tuple, or a dict if it has keys."""

    kind: type
    children: list[_Node]
    keys: list[Any]


# A number is that of a slot.
_Node = int | _Constant | _Container


# --- Values.

_STEP_TYPES = (dm_env.StepType.FIRST, dm_env.StepType.MID, dm_env.StepType.LAST)


def _big(content: bytes) -> int:
    return int.from_bytes(content, "big", signed=True)


def _bools(array: np.ndarray) -> np.ndarray:
    if array.max() > 1:
        raise ValueError("not a bool")
    return array.astype(bool)


def _integers(content: bytes, field: str, shape: tuple[int, ...]) -> np.ndarray:
    """Decodes packed varints."""
    stored = FIELDS[field]
    if content.isascii():  # Each element has one byte then.
        array = np.frombuffer(content, np.uint8).astype(stored.dtype)
    else:  # Protobuf is faster than NumPy, unless there are many records.
        size = encode_varints((len(content),))
        try:
            values = Datum.Values.FromString(stored.tag + size + content)
        except DecodeError as e:
            raise ValueError(str(e)) from e
        array = np.array(getattr(values, field), stored.dtype)
    if array.size != math.prod(shape):
        raise ValueError("another number of varints")
    return array if len(shape) == 1 else array.reshape(shape).copy()


def _integer(content: bytes, low: int, high: int) -> int:
    """Decodes a varint of a type that has the numbers from `low` to `high`."""
    number, end = read_varint(content, 0)
    if low < 0 and number >= 1 << 63:
        number -= 1 << 64
    # Parsers disagree about numbers that do not fit.
    if end != len(content) or not low <= number <= high:
        raise ValueError("another number of varints, or one out of range")
    return number


def _narrowed(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Converts uint64, of which negative numbers are the complement, to `dtype`."""
    if dtype == "uint64":
        return numbers
    signed = numbers.view(np.int64)
    result = signed.astype(dtype)
    # Parsers disagree about numbers that do not fit.
    if dtype != "int64" and np.any(result != signed):
        raise ValueError(f"not an {dtype}")
    return result


_BUILDER_NAMES: dict[str, Any] = {
    "BOOLS": (False, True),
    "STEP_TYPES": _STEP_TYPES,
    "SMALL": range(128),
    "StepData": StepData,
    "TimeStep": dm_env.TimeStep,
    "big": _big,
    "bools": _bools,
    "integer": _integer,
    "integers": _integers,
    **{stored.dtype.name: stored.dtype.type for stored in FIELDS.values()},
}


def _compile_builder(root: _Node, slots: list[_Slot]) -> Callable[..., StepData]:
    """Compiles a function that builds a step from the values of the slots.

    Its source holds nothing of the record but numbers; what is constant is passed under a name.
    """
    names = dict(_BUILDER_NAMES)

    def constant(value: Any) -> str:
        name = f"k{len(names)}"
        names[name] = value
        return name

    def expression(node: _Node) -> str:
        if isinstance(node, int):
            return slots[node].value.format(x=f"x{node}")
        if isinstance(node, _Constant):
            if isinstance(node.value, np.ndarray):
                return f"{constant(node.value)}.copy()"
            return constant(node.value)
        items = [expression(child) for child in node.children]
        if node.kind is dict:
            pairs = [f"{constant(key)}: {item}" for key, item in zip(node.keys, items)]
            return f"{{{', '.join(pairs)}}}"
        if node.kind is list:
            return f"[{', '.join(items)}]"
        return f"({''.join(f'{item}, ' for item in items)})"

    assert isinstance(root, _Container)
    timestep, action, custom_data = root.children
    assert isinstance(timestep, _Container)
    values = ", ".join(map(expression, timestep.children))
    step = f"StepData(TimeStep({values}), {expression(action)}, {expression(custom_data)})"
    arguments = ", ".join(f"x{i}" for i in range(len(slots)))
    build: Callable[..., StepData] = eval(f"lambda {arguments}: {step}", names)
    return build


# --- Columns.


def _fill(node: _Node, columns: list[np.ndarray], num_rows: int) -> Any:
    if isinstance(node, int):
        return columns[node]
    if isinstance(node, _Constant):
        return _repeated(node.value, num_rows)
    children = [_fill(child, columns, num_rows) for child in node.children]
    return dict(zip(node.keys, children)) if node.kind is dict else node.kind(children)


def _repeated(value: Any, num_rows: int) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return np.empty((num_rows, *value.shape), value.dtype)
    if isinstance(value, int):
        return np.full(num_rows, value, np.int64)
    return np.full(num_rows, value, object)


def _same(column: np.ndarray) -> np.ndarray:
    return column


def _first_items(column: np.ndarray) -> np.ndarray:
    return column[:, 0]


def _bytes_of(column: np.ndarray) -> np.ndarray:
    """The bytes of a column of dtype `V`, uint8 `[number of rows, number of bytes]`."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), -1)


def _bigint_column(column: np.ndarray) -> np.ndarray:
    content = _bytes_of(column)
    num_rows, size = content.shape
    if size > 8:
        raise ValueError("too large for int64")
    extended = np.empty((num_rows, 8), np.uint8)
    extended[:, : 8 - size] = np.where(content[:, :1] >= 0x80, 0xFF, 0)
    extended[:, 8 - size :] = content
    return extended.view(">i8")[:, 0]


def _text_column(column: np.ndarray) -> np.ndarray:
    return np.fromiter((content.decode() for content in column.tolist()), object, len(column))


def _blob_column(column: np.ndarray) -> np.ndarray:
    return np.fromiter(column.tolist(), object, len(column))


def _integer_columns(dtype: str, shape: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    count = math.prod(shape)

    def convert(column: np.ndarray) -> np.ndarray:
        content = _bytes_of(column)
        is_end = content < 0x80
        if not is_end[:, -1].all() or np.any(is_end.sum(axis=1) != count):
            raise ValueError("another number of varints")
        flat = content.ravel()
        ends = np.flatnonzero(is_end)
        begins = np.concatenate([[0], ends[:-1] + 1])
        sizes = ends - begins + 1
        if sizes.max() > 10 or np.any(flat[ends[sizes == 10]] > 1):
            raise ValueError("a varint that does not fit 64 bits")
        positions = np.arange(len(flat)) - np.repeat(begins, sizes)
        groups = (flat & 0x7F).astype(np.uint64) << (7 * positions).astype(np.uint64)
        numbers = np.bitwise_or.reduceat(groups, begins)
        return _narrowed(numbers, dtype).reshape(len(column), *shape)

    return convert


# --- Learning.


def _slot_of_scalar(field: str, begin: int, size: int) -> _Slot | _Constant:
    void = np.dtype(f"V{size}") if size else None
    if field == "bool_values":
        if size != 1:
            raise ValueError("another number of values")
        return _Slot(begin, np.dtype(np.uint8), "BOOLS[{x}]", _bools)
    stored = FIELDS.get(field)
    if stored is not None and stored.stored_dtype is not None:
        dtype = stored.stored_dtype
        if size != dtype.itemsize:
            raise ValueError("another number of values")
        if dtype.kind == "f" and size == 4:  # Python's floats have no signalling NaN.
            return _Slot(begin, np.dtype((dtype, (1,))), "{x}[0]", _first_items)
        return _Slot(begin, dtype, f"{stored.dtype.name}({{x}})", _same)
    if stored is not None and void is not None:
        name = stored.dtype.name
        column = _integer_columns(name, ())
        if size == 1:
            as_bytes = np.dtype(np.uint8)
            return _Slot(begin, as_bytes, f"{name}(SMALL[{{x}}])", column)
        limits = np.iinfo(name)
        value = f"{name}(integer({{x}}, {limits.min}, {limits.max}))"
        return _Slot(begin, void, value, column)
    if field == "string_values":
        if void is None:
            return _Constant("")
        return _Slot(begin, void, "{x}.decode()", _text_column)
    if field == "bytes_values":
        return _Constant(b"") if void is None else _Slot(begin, void, "{x}", _blob_column)
    if field == "bigint_values":
        if void is None:
            return _Constant(0)
        if size == 1:
            return _Slot(begin, np.dtype(np.int8), "{x}", lambda x: x.astype(np.int64))
        return _Slot(begin, void, "big({x})", _bigint_column)
    raise ValueError(f"scalars in {field}")


def _slot_of_array(field: str, begin: int, size: int, shape: tuple[int, ...]) -> _Slot:
    count = math.prod(shape)
    stored = FIELDS.get(field)
    if stored is not None and stored.stored_dtype is None and size:
        name = stored.dtype.name
        form = f"integers({{x}}, {field!r}, {shape!r})"
        return _Slot(begin, np.dtype(f"V{size}"), form, _integer_columns(name, shape))
    element = stored.stored_dtype if stored is not None else None
    if field == "bool_values":
        element = np.dtype(np.uint8)
    if element is None or count < 1 or size != count * element.itemsize:
        raise ValueError("another number of values, or not of a fixed size")
    # NumPy makes no array of a single element without dimensions.
    dtype = np.dtype((element, shape or (1,)))
    x = "{x}" if shape else "{x}.reshape(())"
    column = _same if shape else _first_items
    if field == "bool_values":
        return _Slot(begin, dtype, f"bools({x})", lambda x: column(_bools(x)))
    native = element.newbyteorder("=")
    value = f"{x}.copy()" if element == native else f"{x}.astype({native.name})"
    return _Slot(begin, dtype, value, column)


class _Parser:
    """Parses a step in canonical form: known fields, at most once, in order."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._num_values = 0
        self.slots: list[_Slot] = []

    def step(self) -> _Container:
        record = self._record
        # Later records are not parsed: this checks that text is valid, and nesting not too deep.
        Data.FromString(record)
        end = self._length_delimited(0, len(record), Data.TUPLE_FIELD_NUMBER)[1]
        if Data.FromString(record[end:]).WhichOneof("value") is not None:
            raise ValueError("more than an episode mark")
        root = self._data(0, end)
        match root:
            case _Container(kind=_, children=[_Container() as timestep, _, _]):
                if timestep.kind is tuple and len(timestep.children) == 4:
                    self._use_as_step_type(timestep.children[0])
                    return root
        raise ValueError("not a step")

    def _use_as_step_type(self, node: _Node) -> None:
        if node != 0 or self.slots[0].dtype != np.int8 or self.slots[0].value != "{x}":
            raise ValueError("not a usual step type")

        def column(types: np.ndarray) -> np.ndarray:
            if types.min() < 0 or types.max() >= len(_STEP_TYPES):
                raise ValueError("not a step type")
            return types.astype(np.int64)

        self.slots[0] = _Slot(self.slots[0].begin, np.dtype(np.uint8), "STEP_TYPES[{x}]", column)

    def _length_delimited(self, begin: int, end: int, number: int) -> tuple[int, int]:
        """Returns the byte range of the content of field `number`, whose tag is at `begin`."""
        if begin >= end or self._record[begin : begin + 1] != tag(number):
            raise ValueError(f"no field {number} at byte {begin}")
        size, content = read_varint(self._record, begin + 1)
        if size > end - content:
            raise ValueError(f"field {number} at byte {begin} is cut off")
        return content, content + size

    def _repeated_fields(self, begin: int, end: int, number: int) -> Iterator[tuple[int, int]]:
        """Yields the contents of a repeated field that takes all bytes up to `end`."""
        while begin < end:
            content, begin = self._length_delimited(begin, end, number)
            yield content, begin

    def _single_field(self, begin: int, end: int, number: int) -> tuple[int, int]:
        """Returns the content of a field that takes all bytes."""
        content, content_end = self._length_delimited(begin, end, number)
        if content_end != end:
            raise ValueError(f"more than field {number} at byte {begin}")
        return content, end

    def _data(self, begin: int, end: int) -> _Node:
        self._num_values += 1
        if self._num_values > _MAX_VALUES:
            raise ValueError("too many values")
        if begin == end:
            return _Constant(None)
        number = self._record[begin] >> 3
        begin, end = self._single_field(begin, end, number)
        if number == Data.DATUM_FIELD_NUMBER:
            return self._datum(begin, end)
        if number == Data.DICT_FIELD_NUMBER:
            return self._dict(begin, end)
        kinds = {Data.ARRAY_FIELD_NUMBER: list, Data.TUPLE_FIELD_NUMBER: tuple}
        if number not in kinds:
            raise ValueError(f"field {number} at byte {begin}")
        items = self._repeated_fields(begin, end, Data.Tuple.VALUES_FIELD_NUMBER)
        return _Container(kinds[number], [self._data(*item) for item in items], [])

    def _dict(self, begin: int, end: int) -> _Container:
        keys: list[Any] = []
        children = []
        while begin < end and self._record[begin] >> 3 == Data.Dict.VALUES_FIELD_NUMBER:
            entry, begin = self._length_delimited(begin, end, Data.Dict.VALUES_FIELD_NUMBER)
            key, key_end = self._length_delimited(entry, begin, 1)
            keys.append(self._record[key:key_end].decode())
            children.append(self._data(*self._single_field(key_end, begin, 2)))
        if begin < end:
            items = self._single_field(begin, end, Data.Dict.KVS_FIELD_NUMBER)
            for item in self._repeated_fields(*items, Data.Array.VALUES_FIELD_NUMBER):
                pair = self._single_field(*item, Data.TUPLE_FIELD_NUMBER)
                key, key_end = self._length_delimited(*pair, Data.Tuple.VALUES_FIELD_NUMBER)
                keys.append(codec.decode(Data.FromString(self._record[key:key_end])))
                value = self._single_field(key_end, pair[1], Data.Tuple.VALUES_FIELD_NUMBER)
                children.append(self._data(*value))
        try:
            is_unique = len(set(keys)) == len(keys)
        except TypeError:
            is_unique = False
        if not is_unique:
            raise ValueError("a key that comes twice, or that cannot be one")
        return _Container(dict, children, keys)

    def _datum(self, begin: int, end: int) -> _Node:
        shape: tuple[int, ...] = ()
        values = begin
        if begin < end and self._record[begin] >> 3 == Datum.SHAPE_FIELD_NUMBER:
            content, values = self._length_delimited(begin, end, Datum.SHAPE_FIELD_NUMBER)
            dims = Datum.Shape.FromString(self._record[content:values]).dim
            shape = tuple(dim.size for dim in dims)
        if values == end or self._record[values : values + 1] != _VALUES:
            datum = Datum.FromString(self._record[begin:end])
            if datum.values.ListFields():
                raise ValueError("values in an unusual place")
            return _Constant(codec.decode_datum(datum))
        content, end = self._single_field(values, end, Datum.VALUES_FIELD_NUMBER)
        if content == end:
            return _Constant(None)
        return self._values(content, end, shape)

    def _values(self, begin: int, end: int, shape: tuple[int, ...]) -> _Node:
        number = self._record[begin] >> 3
        begin, end = self._single_field(begin, end, number)
        descriptor = Datum.Values.DESCRIPTOR.fields_by_number.get(number)
        if descriptor is None or (min(shape, default=0) < 0 and shape != (SCALAR_DIM_SIZE,)):
            raise ValueError(f"values in field {number}, shape {shape}")
        if shape == (SCALAR_DIM_SIZE,):
            slot = _slot_of_scalar(descriptor.name, begin, end - begin)
        else:
            slot = _slot_of_array(descriptor.name, begin, end - begin, shape)
        if isinstance(slot, _Constant):
            return slot
        self.slots.append(slot)
        return len(self.slots) - 1
