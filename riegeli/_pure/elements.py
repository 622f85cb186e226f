"""Splits records into elements and the buffers of fields, for a transposed Riegeli chunk."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from riegeli._pure.machine import (
    FIXED32,
    FIXED64,
    GROUP_BEGIN,
    GROUP_END,
    INLINE_VARINT,
    LENGTH,
    RECORD_BEGIN,
    SUBMESSAGE_BEGIN,
    SUBMESSAGE_END,
    VARINT,
    WHOLE_RECORD,
)

MAX_DEPTH = 100
_MAX_INLINED_VALUE = 3

# IDs of messages. Records are fields of ROOT; messages in fields have IDs from FIRST_MESSAGE on.
_WHOLE_RECORDS = 1
_RECORDS = 3
_ROOT = 4
_FIRST_MESSAGE = 5


@dataclass(slots=True)
class Node:
    """A field of a message, or the root node of records.

    Attributes:
      parent: The ID of the message that has the field.
      tag: The tag of the field; 0 for records.
      message_id: The ID of the messages in the field, if any.
      buffer: The values of the field, in reverse order.
    """

    parent: int
    tag: int
    message_id: int
    buffer: bytes


@dataclass(slots=True)
class Elements:
    """The records of a chunk, split into elements.

    Attributes:
      nodes: The fields.
      kinds: The kinds of elements in the order of their first occurrence: the index of the node,
        the tag of the state, and its subtype.
      sequence: The index of the kind of each element, as an array of unsigned integers.
      record_sizes: The sizes of the records that are stored whole.
    """

    nodes: list[Node]
    kinds: list[tuple[int, int, int]]
    sequence: "array[int]"
    record_sizes: list[int]


def split_fields(records: Sequence[bytes]) -> Elements:
    """Splits records that are proto messages into fields; stores other records whole."""
    elements = _ElementList()
    for record in records:
        elements.add_record(record)
    nodes = [
        Node(parent, tag, _FIRST_MESSAGE + index, b"".join(reversed(values)))
        for index, ((parent, tag), values) in enumerate(
            zip(elements.nodes, elements.values, strict=True)
        )
    ]
    return Elements(nodes, list(elements.kinds), elements.sequence, elements.record_sizes)


# A field of a message: its tag, the begin of its value, the begin of its content (after the length
# in a LENGTH field), and its end.
_Field = tuple[int, int, int, int]


def parse_message(data: bytes, begin: int, end: int) -> list[_Field] | None:
    """Parses the fields of a minimally encoded proto message; returns None for other bytes."""
    fields = []
    groups = []
    offset = begin
    while offset < end:
        tag, value_begin = _read_minimal_varint(data, offset, end)
        if value_begin < 0 or tag >> 32 or tag < 8:
            return None
        wire_type = tag & 7
        content_begin = value_begin
        if wire_type == VARINT:
            _, offset = _read_minimal_varint(data, value_begin, end)
        elif wire_type == LENGTH:
            length, content_begin = _read_minimal_varint(data, value_begin, end)
            offset = content_begin + length if content_begin >= 0 and not length >> 32 else -1
        elif wire_type == FIXED32:
            offset = value_begin + 4
        elif wire_type == FIXED64:
            offset = value_begin + 8
        elif wire_type == GROUP_BEGIN:
            groups.append(tag >> 3)
            offset = value_begin
        elif wire_type == GROUP_END:
            if not groups or groups.pop() != tag >> 3:
                return None
            offset = value_begin
        else:
            return None
        if offset < 0 or offset > end:
            return None
        fields.append((tag, value_begin, content_begin, offset))
    return None if groups else fields


def _read_minimal_varint(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """Returns a value and the offset after it; -1 if it is cut off, too long, or not minimal."""
    value = 0
    for count, byte in enumerate(data[begin : min(end, begin + 10)]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if (count > 0 and byte == 0) or value >> 64:
                break
            return value, begin + count + 1
    return 0, -1


class _ElementList:
    """Collects the elements of records.

    Attributes:
      nodes: The parent and the tag of each field, with its index.
      values: The values of each field, in order.
      kinds: The kinds of elements, with their indices.
      sequence: The index of the kind of each element.
      record_sizes: The sizes of the records that are stored whole.
    """

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int], int] = {}
        self.values: list[list[bytes]] = []
        self.kinds: dict[tuple[int, int, int], int] = {}
        self.sequence = array("I")
        self.record_sizes: list[int] = []

    def add_record(self, record: bytes) -> None:
        fields = parse_message(record, 0, len(record))
        if fields is None:
            node = self._get_node(_WHOLE_RECORDS, 0)
            self._add(node, WHOLE_RECORD)
            self.values[node].append(record)
            self.record_sizes.append(len(record))
        else:
            self._add(self._get_node(_RECORDS, 0), RECORD_BEGIN)
            self._add_fields(record, fields, _ROOT, 0)

    def _add_fields(self, data: bytes, fields: list[_Field], parent: int, depth: int) -> None:
        groups: list[int] = []
        for tag, begin, content_begin, end in fields:
            wire_type = tag & 7
            if wire_type == GROUP_END:
                self._add(self._get_node(parent, tag), tag)
                parent = groups.pop()
                continue
            node = self._get_node(parent, tag)
            if wire_type == VARINT:
                self._add_varint(node, tag, data[begin:end])
            elif wire_type == GROUP_BEGIN:
                self._add(node, tag)
                groups.append(parent)
                parent = _FIRST_MESSAGE + node
            elif wire_type == LENGTH:
                self._add_with_length(
                    node, tag, data, begin, content_begin, end, depth + len(groups)
                )
            else:
                self._add(node, tag)
                self.values[node].append(data[begin:end])

    def _add_varint(self, node: int, tag: int, value: bytes) -> None:
        if len(value) == 1 and value[0] <= _MAX_INLINED_VALUE:
            self._add(node, tag, INLINE_VARINT + value[0])
        else:
            self._add(node, tag, len(value) - 1)
            self.values[node].append(bytes(byte & 0x7F for byte in value))

    def _add_with_length(
        self, node: int, tag: int, data: bytes, begin: int, content_begin: int, end: int, depth: int
    ) -> None:
        fields = None
        if content_begin < end and depth < MAX_DEPTH:
            fields = parse_message(data, content_begin, end)
        if fields is None:
            self._add(node, tag)
            self.values[node].append(data[begin:end])
            return
        # The kind of the end comes right after the kind of the begin, although it occurs later.
        self._add(node, SUBMESSAGE_BEGIN)
        end_tag = tag - LENGTH + SUBMESSAGE_END
        self._get_kind(node, end_tag, 0)
        self._add_fields(data, fields, _FIRST_MESSAGE + node, depth + 1)
        self._add(node, end_tag)

    def _get_node(self, parent: int, tag: int) -> int:
        index = self.nodes.setdefault((parent, tag), len(self.nodes))
        if index == len(self.values):
            self.values.append([])
        return index

    def _get_kind(self, node: int, tag: int, subtype: int) -> int:
        return self.kinds.setdefault((node, tag, subtype), len(self.kinds))

    def _add(self, node: int, tag: int, subtype: int = 0) -> None:
        self.sequence.append(self._get_kind(node, tag, subtype))
