"""Decoders of ROS and Protobuf messages, compiled from their type definitions.

`rosbags` parses the definitions. `rosbags` decoders are not used: they are Python code that is
generated from names in the file, which is unsafe, and they lose the dtypes of numbers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from rlds.formats.bags.messages import Channel
from rlds_ecosystem import import_extra

__all__ = ["Decoder", "DecoderError", "make_decoder", "ros2_type"]

Data: TypeAlias = "bytes | memoryview"
Decoder: TypeAlias = Callable[[Data], Any]
# Reads a value at an offset in a message; returns the value and the next offset.
_Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]

_SECTION_SEPARATOR = "=" * 80 + "\n"
_TIME_TYPES = {
    "builtin_interfaces/msg/Time": ("uint32", "uint32"),
    "builtin_interfaces/msg/Duration": ("int32", "int32"),
}
_FORMAT_CODES = {
    **{"bool": "?", "byte": "B", "char": "B", "octet": "B", "int8": "b", "uint8": "B"},
    **{"int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q"},
    **{"float32": "f", "float64": "d"},
}
# The limit of the values in a message of fixed size.
_MAX_VALUES = 100_000
# The limit of lines or statements in a definition; rosbags parses 10,000 per second.
_MAX_LINES = 20_000


class DecoderError(ValueError):
    """The messages of a channel cannot be decoded."""


def ros2_type(name: str) -> str:
    """Returns the name of a type in ROS 2, for a name of ROS 1 or ROS 2.

    >>> ros2_type("sensor_msgs/JointState"), ros2_type("foxglove.CompressedImage")
    ('sensor_msgs/msg/JointState', 'foxglove.CompressedImage')
    """
    package, slash, kind = name.partition("/")
    return f"{package}/msg/{kind}" if slash and "/" not in kind else name


def make_decoder(channel: Channel, types: Mapping[str, str] | None = None) -> Decoder:
    """Returns the decoder of the messages of a channel to dicts, lists, arrays and numbers.

    Args:
      channel: The channel.
      types: Further definitions (.msg) of types, by name.

    Raises:
      DecoderError: The definition is missing or unsupported.
    """
    if channel.encoding in ("cdr", "ros1"):
        return _ros_decoder(channel, types or {})
    if channel.encoding == "json":
        return lambda data: json.loads(bytes(data))
    if channel.encoding == "protobuf":
        return _protobuf_decoder(channel)
    raise DecoderError(
        f"topic {channel.topic}: cannot decode messages in {channel.encoding!r}; use the path "
        "'bytes' to read their bytes"
    )


def _ros_decoder(channel: Channel, types: Mapping[str, str]) -> Decoder:
    name = ros2_type(channel.type)
    try:
        definitions, is_ros1 = _definitions(channel, types), channel.encoding == "ros1"
        little, big = (_Compiler(definitions, is_ros1, order).message(name)[0] for order in "<>")
    except DecoderError as error:
        raise DecoderError(f"topic {channel.topic}, type {name}: {error}") from error

    def from_ros1(data: Data) -> Any:
        return little(memoryview(data), 0)[0]

    def from_cdr(data: Data) -> Any:
        data = memoryview(data)
        if len(data) < 4 or data[0] != 0 or data[1] > 1:
            raise ValueError(f"topic {channel.topic}: not CDR: it begins with {bytes(data[:4])!r}")
        return (little if data[1] else big)(data[4:], 0)[0]

    return from_ros1 if channel.encoding == "ros1" else from_cdr


def _definitions(channel: Channel, types: Mapping[str, str]) -> Mapping[str, Any]:
    """Returns the fields of types by name, from the file, or from the standard types of ROS."""
    parsers = import_extra("rosbags.typesys")
    text = channel.schema.decode(errors="replace").replace("\r\n", "\n")
    if (lines := max(text.count("\n"), text.count(";"))) > _MAX_LINES:
        raise DecoderError(f"its definition has {lines:,} lines, expected at most {_MAX_LINES:,}")
    name = ros2_type(channel.type)
    definitions: dict[str, Any] = {}
    if not text:
        stores = parsers.Stores
        store = stores.ROS1_NOETIC if channel.encoding == "ros1" else stores.ROS2_HUMBLE
        definitions.update(parsers.get_typestore(store).fielddefs)
        for other, definition in types.items():
            definitions.update(parsers.get_types_from_msg(definition, ros2_type(other)))
        return definitions
    if channel.schema_encoding in ("ros1msg", "ros2msg"):
        return dict(parsers.get_types_from_msg(text, name))
    if channel.schema_encoding in ("ros2idl", "omgidl"):
        for section in text.split(_SECTION_SEPARATOR):
            header, _, body = section.partition("\n")
            idl = body if header[:5] == "IDL: " else section
            definitions.update(parsers.get_types_from_idl(idl))
        return definitions
    raise DecoderError(f"its definition is in the unknown format {channel.schema_encoding!r}")


class _Compiler:
    """A compiler of types to readers.

    Args:
      types: The constants and fields of types, in the form of rosbags.
      is_ros1: True if values are packed; otherwise, they are aligned.
      order: The byte order, "<" or ">".
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
            raise DecoderError(f"{name} contains itself")
        self._open.append(name)
        fields = [(field, *self._field_reader(desc)) for field, desc in self._fields(name)]
        self._open.pop()
        readers = [(field, reader) for field, reader, _ in fields]
        num_values = 1 + sum(num_values for *_, num_values in fields)
        if num_values > _MAX_VALUES:
            raise DecoderError(f"{name} has more than {_MAX_VALUES:,} values")

        def read(data: memoryview, offset: int) -> tuple[Any, int]:
            values = {}
            for field, reader in readers:
                values[field], offset = reader(data, offset)
            return values, offset

        self._readers[name] = read, num_values
        return read, num_values

    def _fields(self, name: str) -> list[tuple[str, Any]]:
        if name in self._types:
            fields = self._types[name][1]
            # rosbags has a placeholder for a type without fields.
            fields = [f for f in fields if f[0] != "structure_needs_at_least_one_member"]
            # In C++, an empty struct has one byte.
            return fields or ([] if self._is_ros1 else [("", (1, ("uint8", 0)))])
        if name in _TIME_TYPES:
            types = zip(("sec", "nanosec"), _TIME_TYPES[name])
            return [(field, (1, (type_name, 0))) for field, type_name in types]
        raise DecoderError(f"the definition of {name} is missing")

    def _field_reader(self, desc: Any) -> tuple[_Reader, int]:
        """Returns the reader of a message field, and its minimum number of values."""
        kind, content = int(desc[0]), desc[1]
        if kind == 1:
            name = content[0]
            return (self._string_reader() if name == "string" else self._number_reader(name)), 1
        if kind == 2:
            return self.message(content)
        item, size = content
        count = size if kind == 3 else None
        if int(item[0]) == 1 and item[1][0] != "string":
            return self._array_reader(item[1][0], count), 1
        reader, num_values = self._field_reader(item)
        return self._list_reader(reader, count), 1 if count is None else num_values * count

    def _number_reader(self, name: str) -> _Reader:
        code = _type_code(name)
        packing = struct.Struct(self._order + code)
        size, unpack, to_scalar = packing.size, packing.unpack_from, np.dtype(code).type
        mask = self._mask(size)

        def read(data: memoryview, offset: int) -> tuple[Any, int]:
            offset = (offset + mask) & ~mask
            return to_scalar(unpack(data, offset)[0]), offset + size

        return read

    def _string_reader(self) -> _Reader:
        length, is_ros1 = self._length_reader(), self._is_ros1

        def read(data: memoryview, offset: int) -> tuple[Any, int]:
            size, offset = length(data, offset)
            end = offset + size
            if end > len(data):
                raise ValueError(f"a string of {size} bytes in a message of {len(data)}")
            # CDR has a zero at the end.
            text = data[offset : end if is_ros1 else max(end - 1, offset)]
            return str(text, "utf-8", "backslashreplace"), end

        return read

    def _array_reader(self, name: str, count: int | None) -> _Reader:
        stored_dtype = np.dtype(self._order + _type_code(name).replace("?", "B"))
        dtype = np.dtype(_type_code(name))
        size, length = dtype.itemsize, self._length_reader()
        mask = self._mask(size)

        def read(data: memoryview, offset: int) -> tuple[Any, int]:
            num_items = count
            if num_items is None:
                num_items, offset = length(data, offset)
            if not num_items:
                return np.zeros(0, dtype), offset
            offset = (offset + mask) & ~mask
            values = np.frombuffer(data, stored_dtype, num_items, offset)
            return values.astype(dtype, copy=False), offset + num_items * size

        return read

    def _length_reader(self) -> _Reader:
        unpack, mask = struct.Struct(self._order + "I").unpack_from, self._mask(4)

        def read(data: memoryview, offset: int) -> tuple[int, int]:
            offset = (offset + mask) & ~mask
            return unpack(data, offset)[0], offset + 4

        return read

    def _list_reader(self, reader: _Reader, count: int | None) -> _Reader:
        length = self._length_reader()

        def read(data: memoryview, offset: int) -> tuple[Any, int]:
            num_items = count
            if num_items is None:
                num_items, offset = length(data, offset)
            items = []
            for _ in range(num_items):
                start = offset
                value, offset = reader(data, offset)
                if offset == start:
                    raise ValueError("a list of messages without any bytes")
                items.append(value)
            return items, offset

        return read

    def _mask(self, size: int) -> int:
        """Returns the alignment mask (alignment - 1) of values of a size."""
        return 0 if self._is_ros1 else size - 1


def _type_code(name: str) -> str:
    """Returns the code of a number type, in the module struct and in NumPy."""
    if name not in _FORMAT_CODES:
        raise DecoderError(f"values of type {name} are not decoded")
    return _FORMAT_CODES[name]


def _protobuf_decoder(channel: Channel) -> Decoder:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    if channel.schema_encoding != "protobuf":
        raise DecoderError(f"topic {channel.topic}: its protobuf definition is missing")
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in _in_order(descriptor_pb2.FileDescriptorSet.FromString(channel.schema).file):
            pool.Add(file)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(channel.type))
    except (KeyError, TypeError, DecodeError) as error:
        raise DecoderError(f"topic {channel.topic}, type {channel.type}: {error}") from error

    def from_protobuf(data: Data) -> Any:
        return _decode_protobuf(kind.FromString(bytes(data)))

    return from_protobuf


def _in_order(files: Any) -> Iterator[Any]:
    """Yields message definitions in dependency order."""
    definitions, visited = {file.name: file for file in files}, set()

    def visit(name: str) -> Iterator[Any]:
        if name in definitions and name not in visited:
            visited.add(name)
            for dependency in definitions[name].dependency:
                yield from visit(dependency)
            yield definitions[name]

    for name in definitions:
        yield from visit(name)


def _decode_protobuf(message: Any) -> dict[str, Any]:
    values = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        is_absent = hasattr(value, "DESCRIPTOR") and not message.HasField(field.name)
        values[field.name] = None if is_absent else _decode_field(value, field)
    return values


# The dtypes of fields, by `FieldDescriptor.cpp_type`.
_PROTOBUF_DTYPES = {
    **{1: np.int32, 2: np.int64, 3: np.uint32, 4: np.uint64},
    **{5: np.float64, 6: np.float32, 7: np.bool_, 8: np.int32},
}


def _decode_field(value: Any, field: Any) -> Any:
    """Converts a field of a protobuf message to the form of ROS messages."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        content = field.message_type.fields_by_name["value"]
        return {str(name): _decode_item(item, content) for name, item in value.items()}
    if isinstance(value, str | bytes | int | float | bool) or hasattr(value, "DESCRIPTOR"):
        return _decode_item(value, field)
    if field.cpp_type in _PROTOBUF_DTYPES:
        return np.array(value, _PROTOBUF_DTYPES[field.cpp_type])
    return [_decode_item(item, field) for item in value]


def _decode_item(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _decode_protobuf(value)
    return _PROTOBUF_DTYPES.get(field.cpp_type, lambda same: same)(value)
