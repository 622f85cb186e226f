"""Fast encoder of EnvLogger steps, with plans compiled from earlier steps.

The steps of a recording share their structure, so their bytes differ only in the payloads: the
elements of arrays, and the values of numbers and strings. A plan consists of the constant bytes and
a compiled function, which checks the structure of a step and inserts its payloads between the
constants. `codec` encodes all other steps; both encodings parse to the same proto.
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

# The maximum number of plans of an encoder. The codec encodes steps without a plan.
_MAX_PLANS = 8

# The maximum number of layouts of a plan whose payloads vary in size.
_MAX_LAYOUTS = 256

# The maximum number of values of a step with a plan: compiling takes long.
_MAX_VALUES = 1024

# The minimum size of arrays that are joined as buffers; `tobytes` is faster for smaller arrays.
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
        # The most recently used plan is first. The tuple is replaced, because threads may iterate.
        self._plans: tuple[Callable[[Any], bytes | None], ...] = ()

    def encode(self, step: StepData) -> bytes:
        """Encodes a step.

        Args:
          step: The step. The result does not alias its arrays.

        Returns:
          A serialized form of `codec.encode(step)`; the entries of dicts keep their order.

        Raises:
          UnsupportedTypeError: See `codec.encode`.
          UnsupportedValueError: See `codec.encode`.
        """
        plans = self._plans
        for plan in plans:
            try:
                record = plan(step)
            except (TypeError, ValueError):  # The structure of the step differs.
                continue
            if record is not None and len(record) <= codec.MAX_SIZE:
                if plan is not plans[0]:
                    self._plans = (plan, *(other for other in plans if other is not plan))
                return record
        serialized = codec.encode_to_bytes(step, name="step")
        if len(plans) < _MAX_PLANS:
            # The codec has accepted all values, so plans need no check for unsupported values.
            with contextlib.suppress(_NotPlannedError):
                self._plans = (_Compiler().compile(step), *plans)
        return serialized


class _Message(NamedTuple):
    """A protobuf message: its tag, and its fields as bytes, payload indices or messages."""

    tag: bytes
    fields: Sequence[bytes | int | _Message]


class _NotPlannedError(Exception):
    """A value that only the codec can encode."""


_DATUM_TAG = tag(Data.DATUM_FIELD_NUMBER)
_ARRAY_TAG = tag(Data.ARRAY_FIELD_NUMBER)
_TUPLE_TAG = tag(Data.TUPLE_FIELD_NUMBER)
_DICT_TAG = tag(Data.DICT_FIELD_NUMBER)
_ITEM = tag(Data.Tuple.VALUES_FIELD_NUMBER)  # Arrays and dict entries have the same tag.
_VALUES_TAG = tag(Datum.VALUES_FIELD_NUMBER)
_KVS_TAG = tag(Data.Dict.KVS_FIELD_NUMBER)
_STRINGS_TAG, _BLOBS_TAG = field_tag("string_values"), field_tag("bytes_values")
_KEY_TAG, _VALUE_TAG = tag(1), tag(2)  # The fields of an entry of a protobuf map.

_SCALAR_SHAPE = Datum(shape={"dim": [{"size": SCALAR_DIM_SIZE}]}).SerializeToString()


class _ScalarKind(NamedTuple):
    """The encoding of a scalar type: the proto field, and the expression of its payload.

    Attributes:
      field: The name of the field of `Datum.Values`.
      size: The number of bytes of the payload; None if it varies.
      payload: The expression of the payload, for a value `v`.
      exact: The types that the expression supports directly.
      plain: The function that converts other types, such as subclasses.
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

# NumPy scalars are copied as bytes, because Python floats would lose signalling NaNs.
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

_ONE_BYTE_VARINTS = tuple(bytes([value]) for value in range(128))


def _encode_varint(value: int) -> bytes:
    if 0 <= value < 128:
        return _ONE_BYTE_VARINTS[value]
    return encode_varints((value & 0xFFFF_FFFF_FFFF_FFFF,))


def _encode_bigint(value: int) -> bytes:
    if 0 <= value < 128:
        return _ONE_BYTE_VARINTS[value]
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _encode_integers(values: list[int], array: np.ndarray) -> bytes:
    try:
        return encode_varints(values)
    except (OverflowError, ValueError):  # Negative integers are stored as their complement.
        return encode_varints(array.astype(np.uint64).ravel().tolist())


def _check_bools(array: np.ndarray) -> bytes:
    payload = array.tobytes()
    if payload.strip(b"\0\1"):
        raise ValueError("a bool in memory that is neither true nor false")
    return payload


def _encode_texts(array: np.ndarray) -> bytes:
    items = array.ravel().tolist()
    if all(isinstance(item, str) for item in items):
        prefix, payloads = _STRINGS_TAG, map(str.encode, items)
    elif all(isinstance(item, bytes) for item in items):
        prefix, payloads = _BLOBS_TAG, map(bytes, items)
    else:
        raise ValueError("neither all str nor all bytes")
    return b"".join([prefix + _encode_varint(len(payload)) + payload for payload in payloads])


def _encode_shape(shape: Iterable[int]) -> bytes:
    dims = [{"size": size} for size in shape]
    field: bytes = Datum(shape={"dim": dims}).SerializeToString() if dims else b""
    return field


class _Compiler:
    """Compiles the function of a plan; constants are passed in its namespace."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, Any] = {
            "BOOLS": _ONE_BYTE_VARINTS[:2],
            "SMALL": _ONE_BYTE_VARINTS,
            "ascontiguousarray": np.ascontiguousarray,
            "bigint": _encode_bigint,
            "checked_bools": _check_bools,
            "float32": np.float32,
            "int8": np.int8,
            "uint8": np.uint8,
            "join": b"".join,
            "ndarray": np.ndarray,
            "pack_f8": struct.Struct("<d").pack,
            "pack_i2": struct.Struct(">h").pack,
            "pack_u2": struct.Struct(">H").pack,
            "packed": _encode_integers,
            "texts": _encode_texts,
            "varint": _encode_varint,
        }
        self._num_values = 0
        self._sizes: list[int | None] = []  # Payload sizes.

    def compile(self, step: Any) -> Callable[[Any], bytes | None]:
        """Compiles a function that encodes steps of this structure; else it returns None or raises.

        Raises:
          _NotPlannedError: A value of `step` needs the codec.
        """
        root = _Message(b"", self._add_value(step, self._create_value()))
        varying = [i for i, size in enumerate(self._sizes) if size is None]
        layouts = _Layouts(root, self._sizes, varying)
        layout = layouts.build([0] * len(varying))
        # The first constant has the length of the record.
        constants = [f"c{i}" for i, field in enumerate(layout) if isinstance(field, bytes)]
        fields = [f"c{i}" if isinstance(f, bytes) else f"p{f}" for i, f in enumerate(layout)]
        if varying:
            self._names["layouts"] = layouts
            key = "".join(f"len(p{i})," for i in varying)
            self._emit(f"{', '.join(constants)}, = layouts[{key}]")
        else:
            self._names.update((c, layout[int(c[1:])]) for c in constants)
        self._emit(f"return join(({', '.join(fields)},))")
        source = "def plan(v0):\n " + "\n ".join(self._lines)
        exec(source, self._names)
        plan: Callable[[Any], bytes | None] = self._names["plan"]
        return plan

    def _emit(self, line: str) -> None:
        self._lines.append(line)

    def _reject_if(self, condition: str) -> None:
        self._emit(f"if {condition}: return None")

    def _create_value(self) -> str:
        if self._num_values == _MAX_VALUES:
            raise _NotPlannedError
        self._num_values += 1
        return f"v{self._num_values - 1}"

    def _add_constant(self, value: Any) -> str:
        name = f"k{len(self._names)}"
        self._names[name] = value
        return name

    def _add_payload(self, size: int | None, expression: str) -> int:
        payload_index = len(self._sizes)
        self._sizes.append(size)
        self._emit(f"p{payload_index} = {expression}")
        return payload_index

    def _add_value(self, value: Any, expr: str) -> list[bytes | int | _Message]:
        """Emits the checks and payloads of `value`; returns the fields of its `Data`."""
        kind = type(value)
        if value is None:
            self._reject_if(f"{expr} is not None")
            return []
        self._reject_if(f"type({expr}) is not {self._add_constant(kind)}")
        if kind is np.ndarray:
            return [_Message(_DATUM_TAG, self._add_array(value, expr))]
        if isinstance(value, tuple):
            return [_Message(_TUPLE_TAG, self._add_items(value, expr))]
        if kind is list:
            return [_Message(_ARRAY_TAG, self._add_items(value, expr))]
        if kind in (dict, collections.OrderedDict, collections.defaultdict):
            return [_Message(_DICT_TAG, self._add_entries(value, expr))]
        return [_Message(_DATUM_TAG, self._add_scalar(value, expr))]

    def _add_items(self, items: Sequence[Any], expr: str) -> list[bytes | int | _Message]:
        if not items:
            self._reject_if(expr)
            return []
        names = [self._create_value() for _ in items]
        self._emit(f"{', '.join(names)}, = {expr}")
        return [_Message(_ITEM, self._add_value(item, name)) for item, name in zip(items, names)]

    def _add_entries(self, entries: dict[Any, Any], expr: str) -> list[bytes | int | _Message]:
        if not entries:
            self._reject_if(expr)
            return []
        keys = tuple(entries)
        types = set(map(type, keys))
        if types == {str} and not any("\0" in key for key in keys):
            # For equal numbers of keys without NUL, the text is equal only if all keys are equal.
            joined_keys = self._add_constant("\0".join(keys))
            self._reject_if(f"'\\0'.join({expr}) != {joined_keys}")
        elif types <= {str, int, bytes}:
            self._reject_if(f"tuple({expr}) != {self._add_constant(keys)}")
            self._reject_if(
                f"list(map(type, {expr})) != {self._add_constant(list(map(type, keys)))}"
            )
        else:
            raise _NotPlannedError
        names = [self._create_value() for _ in keys]
        self._emit(f"{', '.join(names)}, = {expr}.values()")
        text_entries: list[bytes | int | _Message] = []
        pairs = []
        for key, name in zip(keys, names):
            content = self._add_value(entries[key], name)
            if isinstance(key, str):
                text = _Message(_KEY_TAG, [key.encode()])
                text_entries.append(_Message(_ITEM, [text, _Message(_VALUE_TAG, content)]))
            else:
                stored_key = _Message(_ITEM, [codec.encode(key).SerializeToString()])
                pair = _Message(_TUPLE_TAG, [stored_key, _Message(_ITEM, content)])
                pairs.append(_Message(_ITEM, [pair]))
        return [*text_entries, _Message(_KVS_TAG, pairs)] if pairs else text_entries

    def _add_scalar(self, value: Any, expr: str) -> list[bytes | int | _Message]:
        base = next((base for base in type(value).__mro__ if base in _SCALAR_KINDS), None)
        if base is None:
            raise _NotPlannedError
        kind = _SCALAR_KINDS[base]
        plain = expr if type(value) in kind.exact else f"{kind.plain}({expr})"
        payload = self._add_payload(kind.size, kind.payload.format(v=plain))
        values = _Message(_VALUES_TAG, [_Message(field_tag(kind.field), [payload])])
        return [_SCALAR_SHAPE, values]

    def _add_array(self, array: np.ndarray, expr: str) -> list[bytes | int | _Message]:
        dtype = array.dtype
        expected = self._add_constant(dtype)
        self._reject_if(f"{expr}.dtype is not {expected} and {expr}.dtype != {expected}")
        self._reject_if(f"{expr}.shape != {self._add_constant(array.shape)}")
        shape = _encode_shape(array.shape)
        if array.size == 0:
            return [codec.encode(array).datum.SerializeToString()]
        if dtype.kind in "OUS":
            return [shape, _Message(_VALUES_TAG, [self._add_payload(None, f"texts({expr})")])]
        _, array_tag, _, stored, _ = ARRAYS[f"{dtype.kind}{dtype.itemsize}"]
        if stored is None:
            layout = expr if array.ndim == 1 else f"{expr}.ravel()"
            payload = self._add_payload(None, f"packed({layout}.tolist(), {expr})")
        elif dtype.kind == "b":
            payload = self._add_payload(array.nbytes, f"checked_bools({expr})")
        elif dtype != stored:
            wire_dtype = self._add_constant(stored)
            payload = self._add_payload(array.nbytes, f"{expr}.astype({wire_dtype}).tobytes()")
        elif array.nbytes < _LARGE_ARRAY_BYTES:
            payload = self._add_payload(array.nbytes, f"{expr}.tobytes()")
        else:
            payload = self._add_payload(array.nbytes, f"ascontiguousarray({expr})")
        return [shape, _Message(_VALUES_TAG, [_Message(array_tag, [payload])])]


class _Layouts(dict[tuple[int, ...], list[bytes]]):
    """A cache of the constant bytes between the payloads, by the sizes of variable payloads."""

    def __init__(self, root: _Message, sizes: Sequence[int | None], varying: Sequence[int]) -> None:
        super().__init__()
        self._root = root
        self._sizes = sizes
        self._varying = varying

    def __missing__(self, key: tuple[int, ...]) -> list[bytes]:
        if len(self) >= _MAX_LAYOUTS:
            self.clear()
        constants = [field for field in self.build(key) if isinstance(field, bytes)]
        self[key] = constants
        return constants

    def build(self, varying_sizes: Sequence[int]) -> list[bytes | int]:
        """Returns the constants, with the indices of the payloads between them."""
        sizes = dict(enumerate(self._sizes))
        sizes.update(zip(self._varying, varying_sizes))
        layout: list[bytes | int] = [b""]
        for field in _flatten(self._root.fields, sizes)[0]:
            if isinstance(field, bytes) and isinstance(layout[-1], bytes):
                layout[-1] += field
            else:
                layout.append(field)
        return layout


def _flatten(
    fields: Iterable[bytes | int | _Message], sizes: dict[int, int | None]
) -> tuple[list[bytes | int], int]:
    """Flattens messages to constants and payload indices; returns also the size in bytes."""
    layout: list[bytes | int] = []
    num_bytes = 0
    for field in fields:
        if isinstance(field, bytes):
            layout.append(field)
            num_bytes += len(field)
        elif isinstance(field, int):
            layout.append(field)
            num_bytes += sizes[field] or 0
        else:
            content, size = _flatten(field.fields, sizes)
            prefix = field.tag + _encode_varint(size)
            layout += [prefix, *content]
            num_bytes += len(prefix) + size
    return layout, num_bytes
