"""Decoders of ROS and Protobuf messages, compiled from their type definitions.

Definitions are parsed by `rosbags`. The decoders of ROS are our own: those of `rosbags` are Python
code that it makes of the names in a file and runs, and they lose which dtype a number has.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from rlds.formats.bags.messages import Channel
from rlds_ecosystem import import_extra

__all__ = ["Decoder", "UnknownTypeError", "decoder", "plain_type"]

Data: TypeAlias = "bytes | memoryview"
Decoder: TypeAlias = Callable[[Data], Any]
# Reads a value at an offset in a message; returns the value and the next offset.
_Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]

_SEPARATOR = "=" * 80 + "\n"
_TIME_TYPES = {
    "builtin_interfaces/msg/Time": ("uint32", "uint32"),
    "builtin_interfaces/msg/Duration": ("int32", "int32"),
}
_FORMAT_CODES = {
    **{"bool": "?", "byte": "B", "char": "B", "octet": "B", "int8": "b", "uint8": "B"},
    **{"int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q"},
    **{"float32": "f", "float64": "d"},
}
# The limit of the values that every message of a type has, without any bytes that count them.
_MAX_VALUES = 100_000
# The limit of lines or statements in a definition; rosbags parses 10,000 in a second.
_MAX_LINES = 20_000


class UnknownTypeError(ValueError):
    """Messages cannot be decoded."""


def plain_type(name: str) -> str:
    """Returns the name of a type of ROS 2, also for one of ROS 1.

    >>> plain_type("sensor_msgs/JointState"), plain_type("foxglove.CompressedImage")
    ('sensor_msgs/msg/JointState', 'foxglove.CompressedImage')
    """
    package, slash, kind = name.partition("/")
    return f"{package}/msg/{kind}" if slash and "/" not in kind else name


def decoder(channel: Channel, types: Mapping[str, str] | None = None) -> Decoder:
    """Returns the decoder of the messages of a channel: to dicts, lists, arrays and numbers.

    Args:
      channel: The channel.
      types: Definitions (.msg) of types that the file does not define, by name.

    Raises:
      UnknownTypeError: There is no definition, or it is of no known kind.
    """
    if channel.encoding in ("cdr", "ros1"):
        return _ros_decoder(channel, types or {})
    if channel.encoding == "json":
        return lambda data: json.loads(bytes(data))
    if channel.encoding == "protobuf":
        return _protobuf_decoder(channel)
    raise UnknownTypeError(
        f"topic {channel.topic}: cannot decode messages in {channel.encoding!r}; use the path "
        "'bytes' to read their bytes"
    )


def _ros_decoder(channel: Channel, types: Mapping[str, str]) -> Decoder:
    name = plain_type(channel.type)
    try:
        definitions, is_ros1 = _definitions(channel, types), channel.encoding == "ros1"
        little, big = (_Compiler(definitions, is_ros1, order).message(name)[0] for order in "<>")
    except UnknownTypeError as error:
        raise UnknownTypeError(f"topic {channel.topic}, type {name}: {error}") from error

    def from_ros1(data: Data) -> Any:
        return little(memoryview(data), 0)[0]

    def from_cdr(data: Data) -> Any:
        data = memoryview(data)
        if len(data) < 4 or data[0] != 0 or data[1] > 1:
            raise ValueError(f"topic {channel.topic}: not CDR: it begins with {bytes(data[:4])!r}")
        return (little if data[1] else big)(data[4:], 0)[0]

    return from_ros1 if channel.encoding == "ros1" else from_cdr


def _definitions(channel: Channel, types: Mapping[str, str]) -> Mapping[str, Any]:
    """Returns the fields of types by their names: those in the file, or well-known ones."""
    parsers = import_extra("rosbags.typesys")
    text = channel.schema.decode(errors="replace").replace("\r\n", "\n")
    if (lines := max(text.count("\n"), text.count(";"))) > _MAX_LINES:
        raise UnknownTypeError(
            f"its definition has {lines:,} lines, expected at most {_MAX_LINES:,}"
        )
    name = plain_type(channel.type)
    definitions: dict[str, Any] = {}
    if not text:
        stores = parsers.Stores
        store = stores.ROS1_NOETIC if channel.encoding == "ros1" else stores.ROS2_HUMBLE
        definitions.update(parsers.get_typestore(store).fielddefs)
        for other, definition in types.items():
            definitions.update(parsers.get_types_from_msg(definition, plain_type(other)))
        return definitions
    if channel.schema_encoding in ("ros1msg", "ros2msg"):
        return dict(parsers.get_types_from_msg(text, name))
    if channel.schema_encoding in ("ros2idl", "omgidl"):
        for part in text.split(_SEPARATOR):
            header, _, body = part.partition("\n")
            definitions.update(parsers.get_types_from_idl(body if header[:5] == "IDL: " else part))
        return definitions
    raise UnknownTypeError(f"its definition is in the unknown format {channel.schema_encoding!r}")


class _Compiler:
    """Makes readers of types.

    Args:
      types: The types: constants, and fields with names and types, as rosbags has them.
      is_ros1: Whether values are packed; they are aligned otherwise.
      order: The order of bytes.
    """

    def __init__(self, types: Mapping[str, Any], is_ros1: bool, order: str) -> None:
        self._types, self._is_ros1, self._order = types, is_ros1, order
        self._readers: dict[str, tuple[_Reader, int]] = {}
        self._open: list[str] = []

    def message(self, name: str) -> tuple[_Reader, int]:
        """Returns the reader of a message type, and the minimum number of values in a message."""
        if name in self._readers:
            return self._readers[name]
        if name in self._open:
            raise UnknownTypeError(f"{name} contains itself")
        self._open.append(name)
        fields = [(field, *self._any(desc)) for field, desc in self._fields(name)]
        self._open.pop()
        readers = [(field, reader) for field, reader, _ in fields]
        weight = 1 + sum(weight for *_, weight in fields)
        if weight > _MAX_VALUES:
            raise UnknownTypeError(f"{name} has more than {_MAX_VALUES:,} values")

        def read(data: memoryview, at: int) -> tuple[Any, int]:
            values = {}
            for field, reader in readers:
                values[field], at = reader(data, at)
            return values, at

        self._readers[name] = read, weight
        return read, weight

    def _fields(self, name: str) -> list[tuple[str, Any]]:
        if name in self._types:
            fields = self._types[name][1]
            # The placeholder of rosbags for no fields.
            fields = [it for it in fields if it[0] != "structure_needs_at_least_one_member"]
            # C++ knows no empty struct.
            return fields or ([] if self._is_ros1 else [("", (1, ("uint8", 0)))])
        if name in _TIME_TYPES:
            return [
                (part, (1, (kind, 0))) for part, kind in zip(("sec", "nanosec"), _TIME_TYPES[name])
            ]
        raise UnknownTypeError(f"the definition of {name} is missing")

    def _any(self, desc: Any) -> tuple[_Reader, int]:
        """Returns the reader of a message field, and its minimum number of values."""
        kind, inner = int(desc[0]), desc[1]
        if kind == 1:
            return (self._string() if inner[0] == "string" else self._number(inner[0])), 1
        if kind == 2:
            return self.message(inner)
        item, size = inner
        count = size if kind == 3 else None
        if int(item[0]) == 1 and item[1][0] != "string":
            return self._numbers(item[1][0], count), 1
        reader, weight = self._any(item)
        return self._list(reader, count), 1 if count is None else weight * count

    def _number(self, name: str) -> _Reader:
        code = _code(name)
        number = struct.Struct(self._order + code)
        size, unpack, make = number.size, number.unpack_from, np.dtype(code).type
        mask = self._mask(size)

        def read(data: memoryview, at: int) -> tuple[Any, int]:
            at = (at + mask) & ~mask
            return make(unpack(data, at)[0]), at + size

        return read

    def _string(self) -> _Reader:
        length, is_ros1 = self._length(), self._is_ros1

        def read(data: memoryview, at: int) -> tuple[Any, int]:
            size, at = length(data, at)
            end = at + size
            if end > len(data):
                raise ValueError(f"a string of {size} bytes in a message of {len(data)}")
            text = data[at : end if is_ros1 else max(end - 1, at)]  # CDR has a zero at the end.
            return str(text, "utf-8", "backslashreplace"), end

        return read

    def _numbers(self, name: str, count: int | None) -> _Reader:
        stored = np.dtype(self._order + _code(name).replace("?", "B"))
        dtype = np.dtype(_code(name))
        size, length = dtype.itemsize, self._length()
        mask = self._mask(size)

        def read(data: memoryview, at: int) -> tuple[Any, int]:
            num_items = count
            if num_items is None:
                num_items, at = length(data, at)
            if not num_items:
                return np.zeros(0, dtype), at
            at = (at + mask) & ~mask
            numbers = np.frombuffer(data, stored, num_items, at)
            return numbers.astype(dtype, copy=False), at + num_items * size

        return read

    def _length(self) -> _Reader:
        unpack, mask = struct.Struct(self._order + "I").unpack_from, self._mask(4)

        def read(data: memoryview, at: int) -> tuple[int, int]:
            at = (at + mask) & ~mask
            return unpack(data, at)[0], at + 4

        return read

    def _list(self, reader: _Reader, count: int | None) -> _Reader:
        length = self._length()

        def read(data: memoryview, at: int) -> tuple[Any, int]:
            num_items = count
            if num_items is None:
                num_items, at = length(data, at)
            items = []
            for _ in range(num_items):
                begin = at
                value, at = reader(data, at)
                if at == begin:
                    raise ValueError("a list of messages that take no bytes")
                items.append(value)
            return items, at

        return read

    def _mask(self, size: int) -> int:
        """Returns the alignment mask (alignment - 1) of values of a size."""
        return 0 if self._is_ros1 else size - 1


def _code(name: str) -> str:
    """Returns the code of a type of numbers, in the module struct and in NumPy."""
    if name not in _FORMAT_CODES:
        raise UnknownTypeError(f"values of type {name} are not decoded")
    return _FORMAT_CODES[name]


def _protobuf_decoder(channel: Channel) -> Decoder:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    if channel.schema_encoding != "protobuf":
        raise UnknownTypeError(f"topic {channel.topic}: its protobuf definition is missing")
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in _in_order(descriptor_pb2.FileDescriptorSet.FromString(channel.schema).file):
            pool.Add(file)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(channel.type))
    except (KeyError, TypeError, DecodeError) as error:
        raise UnknownTypeError(f"topic {channel.topic}, type {channel.type}: {error}") from error

    def from_protobuf(data: Data) -> Any:
        return _of_protobuf(kind.FromString(bytes(data)))

    return from_protobuf


def _in_order(files: Any) -> Iterator[Any]:
    """Yields message definitions in dependency order."""
    definitions, visited = {file.name: file for file in files}, set()

    def visit(name: str) -> Iterator[Any]:
        if name in definitions and name not in visited:
            visited.add(name)
            for needed in definitions[name].dependency:
                yield from visit(needed)
            yield definitions[name]

    for name in definitions:
        yield from visit(name)


def _of_protobuf(message: Any) -> dict[str, Any]:
    values = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        is_absent = hasattr(value, "DESCRIPTOR") and not message.HasField(field.name)
        values[field.name] = None if is_absent else _value(value, field)
    return values


# By `FieldDescriptor.cpp_type`.
_PROTOBUF_DTYPES = {
    **{1: np.int32, 2: np.int64, 3: np.uint32, 4: np.uint64},
    **{5: np.float64, 6: np.float32, 7: np.bool_, 8: np.int32},
}


def _value(value: Any, field: Any) -> Any:
    """Converts a value of a protobuf message to the form of ROS messages."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(name): _one(item, inner) for name, item in value.items()}
    if isinstance(value, str | bytes | int | float | bool) or hasattr(value, "DESCRIPTOR"):
        return _one(value, field)
    if field.cpp_type in _PROTOBUF_DTYPES:
        return np.array(value, _PROTOBUF_DTYPES[field.cpp_type])
    return [_one(item, field) for item in value]


def _one(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _of_protobuf(value)
    return _PROTOBUF_DTYPES.get(field.cpp_type, lambda same: same)(value)
