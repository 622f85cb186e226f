"""Fast encoder of EnvLogger steps, with plans compiled from earlier steps.

The steps of a recording share their structure, so their bytes differ in the payloads only: the
elements of arrays, and the values of numbers and strings. A plan has the constant bytes, and a
compiled function that checks the structure of a step and joins its payloads with them. Other steps
go through `codec`; the bytes always parse to the proto that `codec.encode` returns.
"""

from __future__ import annotations

import collections
import contextlib
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np

from envlogger.converters import codec
from envlogger.converters.stored_types import ARRAYS, SCALAR_DIM_SIZE, field_tag, tag
from envlogger.proto.storage_pb2 import Data, Datum
from envlogger.step_data import StepData
from riegeli.varints import encode_varints

__all__ = ["StepEncoder"]

# The limit of plans of an encoder. Steps of other structures use the codec.
_MAX_PLANS = 8

# The most layouts that a plan keeps, if the sizes of its payloads vary.
_MAX_LAYOUTS = 256

# Steps with more values get no plan: compiling it would take long.
_MAX_VALUES = 1024

# Arrays of at least this size are joined as buffers; `tobytes` is faster for smaller ones.
_LARGE_ARRAY_BYTES = 4096


class StepEncoder:
    """Encodes steps to bytes.

    Threads may share an encoder.

    >>> timestep = dm_env.transition(reward=1.0, observation=np.zeros(3, np.float32))
    >>> step = StepData(timestep, action=2)
    >>> StepEncoder().encode(step) == codec.encode(step).SerializeToString()
    True
    """

    def __init__(self) -> None:
        # Most recently used first. The tuple is replaced, as threads may iterate.
        self._plans: tuple[Callable[[Any], bytes | None], ...] = ()

    def encode(self, step: StepData) -> bytes:
        """Encodes a step.

        Args:
          step: The step. The result does not alias its arrays.

        Returns:
          A serialized form of `codec.encode(step)`; the entries of dicts are in their order.

        Raises:
          UnsupportedTypeError: As `codec.encode` does, for a value called "step".
          UnsupportedValueError: Likewise.
        """
        plans = self._plans
        for plan in plans:
            try:
                record = plan(step)
            except (TypeError, ValueError):  # Such as another number of items, or keys of no text.
                continue
            if record is not None and len(record) <= codec.MAX_SIZE:
                if plan is not plans[0]:
                    self._plans = (plan, *(other for other in plans if other is not plan))
                return record
        serialized = codec.encode_to_bytes(step, name="step")
        if len(plans) < _MAX_PLANS:
            # Only values that the codec accepts get a plan, so plans need not check for others.
            with contextlib.suppress(_NotPlannedError):
                self._plans = (_Compiler().compile(step), *plans)
        return serialized


class _Message(NamedTuple):
    """A tag, and the contents that its length counts: bytes, slots by their number, messages."""

    tag: bytes
    parts: Sequence[bytes | int | _Message]


class _NotPlannedError(Exception):
    """A value that is left to the codec."""


_DATUM = tag(Data.DATUM_FIELD_NUMBER)
_ARRAY = tag(Data.ARRAY_FIELD_NUMBER)
_TUPLE = tag(Data.TUPLE_FIELD_NUMBER)
_DICT = tag(Data.DICT_FIELD_NUMBER)
_ITEM = tag(Data.Tuple.VALUES_FIELD_NUMBER)  # Of arrays and entries of dicts as well.
_VALUES = tag(Datum.VALUES_FIELD_NUMBER)
_KVS = tag(Data.Dict.KVS_FIELD_NUMBER)
_STRINGS, _BLOBS = field_tag("string_values"), field_tag("bytes_values")
_KEY, _VALUE = tag(1), tag(2)  # Of a map in the language of protobuf.

_SCALAR_SHAPE = Datum(shape={"dim": [{"size": SCALAR_DIM_SIZE}]}).SerializeToString()


class _ScalarKind(NamedTuple):
    """The encoding of one type of scalars: the proto field, and the expression of its payload.

    Attributes:
      field: The name of their field of `Datum.Values`.
      size: Of the payload in bytes; None if it varies.
      payload: An expression of the value `v`; of type `exact` if it is one of these.
      plain: A function that makes others, of subclasses, plain.
    """

    field: str
    size: int | None
    payload: str
    exact: tuple[type, ...]
    plain: str


_INT64 = _ScalarKind("int64_values", None, "varint({v})", (), "int")
_UINT64 = _ScalarKind("uint64_values", None, "varint({v})", (), "int")
_FLOAT64 = _ScalarKind("double_values", 8, "pack_f8({v})", (float, np.float64), "float")
_BOOL = _ScalarKind("bool_values", 1, "BOOLS[{v}]", (bool,), "bool")

# Python's floats have no signalling NaN, but a scalar is a buffer of its bytes.
_FLOAT32 = "{v}" if sys.byteorder == "little" else "{v}.byteswap().tobytes()"

_SCALAR_KINDS: dict[type, _ScalarKind] = {
    bool: _BOOL,
    np.bool_: _BOOL,
    int: _ScalarKind("bigint_values", None, "bigint({v})", (int,), "int"),
    dm_env.StepType: _ScalarKind("bigint_values", 1, "SMALL[{v}]", (dm_env.StepType,), "int"),
    float: _FLOAT64,
    np.float64: _FLOAT64,
    np.float32: _ScalarKind("float_values", 4, _FLOAT32, (np.float32,), "float32"),
    np.int8: _ScalarKind("int8_values", 1, "{v}.tobytes()", (np.int8,), "int8"),
    np.uint8: _ScalarKind("uint8_values", 1, "{v}.tobytes()", (np.uint8,), "uint8"),
    np.int16: _ScalarKind("int16_values", 2, "pack_i2({v})", (), "int"),
    np.uint16: _ScalarKind("uint16_values", 2, "pack_u2({v})", (), "int"),
    np.int32: _ScalarKind("int32_values", None, "varint({v})", (), "int"),
    np.uint32: _ScalarKind("uint32_values", None, "varint({v})", (), "int"),
    np.int64: _INT64,
    np.longlong: _INT64,
    np.uint64: _UINT64,
    np.ulonglong: _UINT64,
    str: _ScalarKind("string_values", None, "{v}.encode()", (str,), "str.__str__"),
    bytes: _ScalarKind("bytes_values", None, "{v}", (bytes,), "bytes"),
}

_ONE_BYTE_VARINTS = tuple(bytes([number]) for number in range(128))


def _varint(number: int) -> bytes:
    if 0 <= number < 128:
        return _ONE_BYTE_VARINTS[number]
    return encode_varints((number & 0xFFFF_FFFF_FFFF_FFFF,))


def _bigint(number: int) -> bytes:
    if 0 <= number < 128:
        return _ONE_BYTE_VARINTS[number]
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _packed(numbers: list[int], array: np.ndarray) -> bytes:
    try:
        return encode_varints(numbers)
    except (OverflowError, ValueError):  # Negative numbers are stored as their complement.
        return encode_varints(array.astype(np.uint64).ravel().tolist())


def _checked_bools(array: np.ndarray) -> bytes:
    payload = array.tobytes()
    if payload.strip(b"\0\1"):
        raise ValueError("a bool in memory that is neither true nor false")
    return payload


def _texts(array: np.ndarray) -> bytes:
    items = array.ravel().tolist()
    if all(isinstance(item, str) for item in items):
        head, payloads = _STRINGS, map(str.encode, items)
    elif all(isinstance(item, bytes) for item in items):
        head, payloads = _BLOBS, map(bytes, items)
    else:
        raise ValueError("neither all str nor all bytes")
    return b"".join([head + _varint(len(payload)) + payload for payload in payloads])


def _shape_field(shape: Iterable[int]) -> bytes:
    dims = [{"size": size} for size in shape]
    field: bytes = Datum(shape={"dim": dims}).SerializeToString() if dims else b""
    return field


class _Compiler:
    """Writes the function of a plan.

    The source has only names; the values are in its namespace.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, Any] = {
            "BOOLS": _ONE_BYTE_VARINTS[:2],
            "SMALL": _ONE_BYTE_VARINTS,
            "ascontiguousarray": np.ascontiguousarray,
            "bigint": _bigint,
            "checked_bools": _checked_bools,
            "float32": np.float32,
            "int8": np.int8,
            "uint8": np.uint8,
            "join": b"".join,
            "ndarray": np.ndarray,
            "pack_f8": struct.Struct("<d").pack,
            "pack_i2": struct.Struct(">h").pack,
            "pack_u2": struct.Struct(">H").pack,
            "packed": _packed,
            "texts": _texts,
            "varint": _varint,
        }
        self._num_values = 0
        self._sizes: list[int | None] = []  # Of the payloads.

    def compile(self, step: Any) -> Callable[[Any], bytes | None]:
        """Returns a function that encodes a step; for others it returns None or raises.

        Raises:
          _NotPlannedError: `step` has parts that are left to the codec.
        """
        root = _Message(b"", self._value(step, self._new_value()))
        varying = [i for i, size in enumerate(self._sizes) if size is None]
        layouts = _Layouts(root, self._sizes, varying)
        layout = layouts.of([0] * len(varying))
        # The first constant has the length of all.
        constants = [f"c{i}" for i, part in enumerate(layout) if isinstance(part, bytes)]
        parts = [
            f"c{i}" if isinstance(part, bytes) else f"p{part}" for i, part in enumerate(layout)
        ]
        if varying:
            self._names["layouts"] = layouts
            key = "".join(f"len(p{i})," for i in varying)
            self._emit(f"{', '.join(constants)}, = layouts[{key}]")
        else:
            self._names.update((c, layout[int(c[1:])]) for c in constants)
        self._emit(f"return join(({', '.join(parts)},))")
        source = "def plan(v0):\n " + "\n ".join(self._lines)
        exec(source, self._names)
        plan: Callable[[Any], bytes | None] = self._names["plan"]
        return plan

    def _emit(self, line: str) -> None:
        self._lines.append(line)

    def _reject_if(self, condition: str) -> None:
        self._emit(f"if {condition}: return None")

    def _new_value(self) -> str:
        if self._num_values == _MAX_VALUES:
            raise _NotPlannedError
        self._num_values += 1
        return f"v{self._num_values - 1}"

    def _constant(self, value: Any) -> str:
        name = f"k{len(self._names)}"
        self._names[name] = value
        return name

    def _payload(self, size: int | None, expression: str) -> int:
        payload_index = len(self._sizes)
        self._sizes.append(size)
        self._emit(f"p{payload_index} = {expression}")
        return payload_index

    def _value(self, value: Any, v: str) -> list[bytes | int | _Message]:
        """Emits the checks and payloads of `value`; returns the contents of its `Data`."""
        kind = type(value)
        if value is None:
            self._reject_if(f"{v} is not None")
            return []
        self._reject_if(f"type({v}) is not {self._constant(kind)}")
        if kind is np.ndarray:
            return [_Message(_DATUM, self._array(value, v))]
        if isinstance(value, tuple):
            return [_Message(_TUPLE, self._items(value, v))]
        if kind is list:
            return [_Message(_ARRAY, self._items(value, v))]
        if kind in (dict, collections.OrderedDict, collections.defaultdict):
            return [_Message(_DICT, self._entries(value, v))]
        return [_Message(_DATUM, self._scalar(value, v))]

    def _items(self, items: Sequence[Any], v: str) -> list[bytes | int | _Message]:
        if not items:
            self._reject_if(v)
            return []
        names = [self._new_value() for _ in items]
        self._emit(f"{', '.join(names)}, = {v}")
        return [_Message(_ITEM, self._value(item, name)) for item, name in zip(items, names)]

    def _entries(self, entries: dict[Any, Any], v: str) -> list[bytes | int | _Message]:
        if not entries:
            self._reject_if(v)
            return []
        keys = tuple(entries)
        types = set(map(type, keys))
        if types == {str} and not any("\0" in key for key in keys):
            # The same number of keys without NUL gives the same text only if all are equal.
            joined = self._constant("\0".join(keys))
            self._reject_if(f"'\\0'.join({v}) != {joined}")
        elif types <= {str, int, bytes}:
            self._reject_if(f"tuple({v}) != {self._constant(keys)}")
            self._reject_if(f"list(map(type, {v})) != {self._constant(list(map(type, keys)))}")
        else:
            raise _NotPlannedError
        names = [self._new_value() for _ in keys]
        self._emit(f"{', '.join(names)}, = {v}.values()")
        text_entries: list[bytes | int | _Message] = []
        pairs = []
        for key, name in zip(keys, names):
            content = self._value(entries[key], name)
            if isinstance(key, str):
                text = _Message(_KEY, [key.encode()])
                text_entries.append(_Message(_ITEM, [text, _Message(_VALUE, content)]))
            else:
                stored_key = _Message(_ITEM, [codec.encode(key).SerializeToString()])
                pair = _Message(_TUPLE, [stored_key, _Message(_ITEM, content)])
                pairs.append(_Message(_ITEM, [pair]))
        return [*text_entries, _Message(_KVS, pairs)] if pairs else text_entries

    def _scalar(self, value: Any, v: str) -> list[bytes | int | _Message]:
        base = next((base for base in type(value).__mro__ if base in _SCALAR_KINDS), None)
        if base is None:
            raise _NotPlannedError
        kind = _SCALAR_KINDS[base]
        plain = v if type(value) in kind.exact else f"{kind.plain}({v})"
        payload = self._payload(kind.size, kind.payload.format(v=plain))
        values = _Message(_VALUES, [_Message(field_tag(kind.field), [payload])])
        return [_SCALAR_SHAPE, values]

    def _array(self, array: np.ndarray, v: str) -> list[bytes | int | _Message]:
        dtype = array.dtype
        expected = self._constant(dtype)
        self._reject_if(f"{v}.dtype is not {expected} and {v}.dtype != {expected}")
        self._reject_if(f"{v}.shape != {self._constant(array.shape)}")
        shape = _shape_field(array.shape)
        if array.size == 0:
            return [codec.encode(array).datum.SerializeToString()]
        if dtype.kind in "OUS":
            return [shape, _Message(_VALUES, [self._payload(None, f"texts({v})")])]
        _, array_tag, _, stored, _ = ARRAYS[f"{dtype.kind}{dtype.itemsize}"]
        if stored is None:
            flat = v if array.ndim == 1 else f"{v}.ravel()"
            payload = self._payload(None, f"packed({flat}.tolist(), {v})")
        elif dtype.kind == "b":
            payload = self._payload(array.nbytes, f"checked_bools({v})")
        elif dtype != stored:
            wire_dtype = self._constant(stored)
            payload = self._payload(array.nbytes, f"{v}.astype({wire_dtype}).tobytes()")
        elif array.nbytes < _LARGE_ARRAY_BYTES:
            payload = self._payload(array.nbytes, f"{v}.tobytes()")
        else:
            payload = self._payload(array.nbytes, f"ascontiguousarray({v})")
        return [shape, _Message(_VALUES, [_Message(array_tag, [payload])])]


class _Layouts(dict[tuple[int, ...], list[bytes]]):
    """A cache of the constant bytes between the payloads, by the sizes of varying payloads."""

    def __init__(self, root: _Message, sizes: Sequence[int | None], varying: Sequence[int]) -> None:
        super().__init__()
        self._root = root
        self._sizes = sizes
        self._varying = varying

    def __missing__(self, key: tuple[int, ...]) -> list[bytes]:
        if len(self) >= _MAX_LAYOUTS:
            self.clear()
        constants = [part for part in self.of(key) if isinstance(part, bytes)]
        self[key] = constants
        return constants

    def of(self, varying_sizes: Sequence[int]) -> list[bytes | int]:
        """Constants, with the numbers of the payloads between them."""
        sizes = dict(enumerate(self._sizes))
        sizes.update(zip(self._varying, varying_sizes))
        layout: list[bytes | int] = [b""]
        for part in _flat(self._root.parts, sizes)[0]:
            if isinstance(part, bytes) and isinstance(layout[-1], bytes):
                layout[-1] += part
            else:
                layout.append(part)
        return layout


def _flat(
    parts: Iterable[bytes | int | _Message], sizes: dict[int, int | None]
) -> tuple[list[bytes | int], int]:
    """Returns the parts without enclosing messages, and their size in bytes."""
    flat: list[bytes | int] = []
    num_bytes = 0
    for part in parts:
        if isinstance(part, bytes):
            flat.append(part)
            num_bytes += len(part)
        elif isinstance(part, int):
            flat.append(part)
            num_bytes += sizes[part] or 0
        else:
            content, size = _flat(part.parts, sizes)
            head = part.tag + _varint(size)
            flat += [head, *content]
            num_bytes += len(head) + size
    return flat, num_bytes
