"""The state machine that restores the records of a transposed Riegeli chunk."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from riegeli._pure.varints import encode_varints, read_varint

# Tags of states other than fields.
NO_OP = 0
WHOLE_RECORD = 1
SUBMESSAGE_BEGIN = 2
RECORD_BEGIN = 3

# Wire types: the lower three bits of the tag of a field.
VARINT = 0
FIXED64 = 1
LENGTH = 2
GROUP_BEGIN = 3
GROUP_END = 4
FIXED32 = 5
# This wire type of Riegeli marks the end of the submessage of a LENGTH field.
SUBMESSAGE_END = 6

# Subtypes of varint fields: a lower subtype is the size in bytes minus 1; from here on the subtype
# is the value, from 0 to 127.
INLINE_VARINT = 10

MAX_INLINE_VARINT = INLINE_VARINT + 127

_MAX_TAG = (1 << 32) - 1
_MAX_LENGTH = (1 << 32) - 1

# The limit of steps of the machine: a constant, and more for each state, and for each byte or
# record of output. In intact chunks, few successive states write nothing.
_MIN_STEP_LIMIT = 1 << 20
_STEPS_PER_OUTPUT = 16

MAX_NESTING = 1 << 16
"""The maximum nesting of submessages, and of groups within a field projection."""

# The fields of a message to read: True for all, or a dict with the scope of the message in each
# field, by field number; None for a field that is read without its value.
Scope = bool | dict[int, "Scope | None"]


def is_tag_of_state(tag: int) -> bool:
    """Returns whether a tag is valid in a state."""
    is_field = 8 <= tag <= _MAX_TAG and tag & 7 <= SUBMESSAGE_END
    return NO_OP <= tag <= RECORD_BEGIN or is_field


def has_subtype(tag: int) -> bool:
    """Returns whether a state with this tag has a subtype."""
    return tag > RECORD_BEGIN and tag & 7 == VARINT


def has_buffer(tag: int, subtype: int) -> bool:
    """Returns whether a state with this tag and subtype has a buffer."""
    if tag <= RECORD_BEGIN:
        return tag == WHOLE_RECORD
    if tag & 7 == VARINT:
        return subtype < INLINE_VARINT
    return tag & 7 in (FIXED64, LENGTH, FIXED32)


def run_machine(
    states: Sequence[Sequence[int]],
    first: int,
    buffers: Sequence[bytes | memoryview],
    transitions: bytes | memoryview,
    num_records: int,
    size: int,
    scope: Scope = True,
) -> list[bytes]:
    """Restores the records of a transposed chunk backwards, from the end of the last record.

    Args:
      states: Five sequences with an item for each state: the tags; the bases; whether the state is
        implicit; the subtypes; the indices of the buffers, ignored for states without a buffer.
      first: The initial state.
      buffers: The values. The last buffer has the sizes of the records that are stored whole.
      transitions: The encoded transitions between states.
      num_records: The number of records.
      size: The size of all records in bytes; an upper bound if `scope` skips fields.
      scope: The fields of the records to read.

    Returns:
      The records.

    Raises:
      ValueError: a state is invalid; a buffer is too short; or the number or the size of the
        records differs from the declared value.
    """
    if num_records < 0 or size < 0:
        raise ValueError(f"there cannot be {num_records} records of {size} bytes")
    check_states(states, first, len(buffers))
    run = _MachineRun(buffers, num_records, size, scope)
    tags, bases, implicit, subtypes, buffer_of = states
    actions = [
        run.create_action(tag, subtype, buffer)
        for tag, subtype, buffer in zip(tags, subtypes, buffer_of, strict=True)
    ]
    state, repeats, index, steps = first, 0, 0, 0
    while steps <= _MIN_STEP_LIMIT + _STEPS_PER_OUTPUT * (len(actions) + run.count_output()):
        actions[state]()
        steps += 1
        if implicit[state]:
            state = bases[state]
        elif repeats:
            repeats -= 1
            state = bases[state]
        elif index == len(transitions):
            return run.records()
        else:
            state = bases[state] + (transitions[index] >> 2)
            repeats = transitions[index] & 3
            index += 1
            if state >= len(actions):
                raise ValueError(f"transition {index - 1} leads to state {state} of {len(actions)}")
    raise ValueError("the machine runs on without writing anything")


def check_states(states: Sequence[Sequence[int]], first: int, num_buffers: int) -> None:
    """Checks that states are valid, including their references to states and buffers.

    Raises:
      ValueError: a state is invalid.
    """
    tags, bases, implicit, subtypes, buffer_of = states
    num_states = len(tags)
    if not len(bases) == len(implicit) == len(subtypes) == len(buffer_of) == num_states:
        raise ValueError("some states are not complete")
    if not 0 <= first < num_states:
        raise ValueError(f"the first state is {first} of {num_states}")
    for index, (tag, base, subtype, buffer) in enumerate(
        zip(tags, bases, subtypes, buffer_of, strict=True)
    ):
        if not (
            is_tag_of_state(tag)
            and (not has_subtype(tag) or 0 <= subtype <= MAX_INLINE_VARINT)
            and (not has_buffer(tag, subtype) or 0 <= buffer < num_buffers)
            and 0 <= base < num_states
        ):
            raise ValueError(
                f"state {index} cannot be: tag {tag}, subtype {subtype}, buffer {buffer} of "
                f"{num_buffers}, base {base} of {num_states}"
            )
    _check_no_implicit_cycle(bases, implicit)


def _check_no_implicit_cycle(bases: Sequence[int], implicit: Sequence[int]) -> None:
    """Checks that implicit states form no cycle."""
    first_starts = [-1] * len(bases)
    for start in range(len(bases)):
        state = start
        while implicit[state] and first_starts[state] < 0:
            first_starts[state] = start
            state = bases[state]
        if implicit[state] and first_starts[state] == start:
            raise ValueError(f"state {state} leads back to itself for ever")


def _check_nesting(opened: Sequence[object]) -> None:
    if len(opened) == MAX_NESTING:
        raise ValueError(f"there are more than {MAX_NESTING} messages inside each other")


class _MachineRun:
    """A run of the state machine: its output so far, and the actions of its states."""

    def __init__(
        self, buffers: Sequence[bytes | memoryview], num_records: int, size: int, scope: Scope
    ) -> None:
        self._buffers = [bytes(buffer) for buffer in buffers]
        self._offsets = [0] * len(buffers)
        self._num_records = num_records
        self._size = size
        self._pieces: list[bytes] = []  # The pieces are in reverse order.
        self._num_written = 0
        self._num_skipped = 0  # A lower bound of the number of skipped bytes.
        self._record_begins: list[int] = []  # Byte offsets from the end of the chunk.
        # The open messages, outermost first: their scope, and for submessages their end.
        self._record_scope = self._scope = scope
        self._submessages: list[tuple[Scope, int, bytes | None]] = []
        self._groups: list[tuple[Scope, bool]] = []

    def create_action(self, tag: int, subtype: int, buffer: int) -> Callable[[], None]:
        """Creates the function that a state executes, by its tag."""
        if tag == NO_OP:
            return lambda: None
        if tag == WHOLE_RECORD:
            return lambda: self._write_whole_record(buffer)
        if tag == SUBMESSAGE_BEGIN:
            return self._begin_submessage
        if tag == RECORD_BEGIN:
            return self._begin_record
        wire_type, field_number = tag & 7, tag >> 3
        if wire_type == SUBMESSAGE_END:
            field = encode_varints((field_number << 3 | LENGTH,))
            return lambda: self._end_submessage(field_number, field)
        field = encode_varints((tag,))
        if wire_type == GROUP_END:
            return lambda: self._end_group(field_number, field)
        if wire_type == GROUP_BEGIN:
            return lambda: self._begin_group(field_number, field)
        if wire_type == VARINT and subtype >= INLINE_VARINT:
            value = bytes((subtype - INLINE_VARINT,))
            return lambda: self._write_field(field_number, field, lambda: value, b"\0")
        if wire_type == VARINT:
            take = lambda: self._take_varint(buffer, subtype + 1)  # noqa: E731
            return lambda: self._write_field(field_number, field, take, b"\0")
        if wire_type == LENGTH:
            take = lambda: self._take_with_length(buffer)  # noqa: E731
            return lambda: self._write_field(field_number, field, take, b"\0")
        width = 8 if wire_type == FIXED64 else 4
        return lambda: self._write_field(
            field_number, field, lambda: self._take(buffer, width), bytes(width)
        )

    def count_output(self) -> int:
        """Returns the number of written and skipped bytes plus the number of records."""
        return self._num_written + self._num_skipped + len(self._record_begins)

    def records(self) -> list[bytes]:
        """Returns all records, after the end of the machine."""
        if self._submessages:
            raise ValueError("a submessage has an end, but no begin")
        if len(self._record_begins) != self._num_records:
            raise ValueError(
                f"the machine ends after {len(self._record_begins)} of {self._num_records} records"
            )
        if self._num_written != (self._record_begins[-1] if self._record_begins else 0):
            raise ValueError("something is written before the first record")
        if self._num_written != self._size and self._record_scope is True:
            raise ValueError(f"the records have {self._num_written} bytes, not {self._size}")
        content = b"".join(reversed(self._pieces))
        begins = [self._num_written - begin for begin in reversed(self._record_begins)]
        return [content[begin:end] for begin, end in pairwise([*begins, self._num_written])]

    def _write(self, piece: bytes) -> None:
        self._num_written += len(piece)
        self._check_size()
        self._pieces.append(piece)

    def _skip(self, piece: bytes) -> None:
        self._num_skipped += len(piece)
        self._check_size()

    def _check_size(self) -> None:
        if self._num_written + self._num_skipped > self._size:
            raise ValueError(f"the records have more than {self._size} bytes")

    def _take(self, buffer: int, count: int) -> bytes:
        begin = self._offsets[buffer]
        end = begin + count
        if end > len(self._buffers[buffer]):
            raise ValueError(f"buffer {buffer} ends before its last value")
        self._offsets[buffer] = end
        return self._buffers[buffer][begin:end]

    def _take_varint(self, buffer: int, count: int) -> bytes:
        *high, last = self._take(buffer, count)
        return bytes([*(byte | 0x80 for byte in high), last])

    def _take_length(self, buffer: int) -> tuple[int, bytes]:
        begin = self._offsets[buffer]
        length, end = read_varint(self._buffers[buffer], begin)
        if length > _MAX_LENGTH:
            raise ValueError(f"buffer {buffer} has a value of {length} bytes")
        return length, self._take(buffer, end - begin)

    def _take_with_length(self, buffer: int) -> bytes:
        length, stored_length = self._take_length(buffer)
        return stored_length + self._take(buffer, length)

    def _find_scope(self, field_number: int) -> tuple[bool, Scope | None]:
        """Returns whether a field is read, and its scope; None if only its existence is needed."""
        if isinstance(self._scope, dict):
            return field_number in self._scope, self._scope.get(field_number, {})
        return True, True

    def _write_field(
        self, field_number: int, field: bytes, take: Callable[[], bytes], default: bytes
    ) -> None:
        is_included, scope = self._find_scope(field_number)
        if is_included:
            self._write(default if scope is None else take())
            self._write(field)
        else:
            self._skip(field)

    def _end_submessage(self, field_number: int, field: bytes) -> None:
        is_included, scope = self._find_scope(field_number)
        _check_nesting(self._submessages)
        if not is_included:
            self._skip(field)
        self._submessages.append((self._scope, self._num_written, field if is_included else None))
        self._scope = {} if scope is None else scope

    def _begin_submessage(self) -> None:
        if not self._submessages:
            raise ValueError("a submessage has a begin, but no end")
        self._scope, end, field = self._submessages.pop()
        length = self._num_written - end
        if length > _MAX_LENGTH:
            raise ValueError(f"a submessage has {length} bytes")
        if field is not None:
            self._write(encode_varints((length,)))
            self._write(field)

    def _end_group(self, field_number: int, field: bytes) -> None:
        is_included, scope = self._find_scope(field_number)
        if self._record_scope is not True:
            _check_nesting(self._groups)
            self._groups.append((self._scope, is_included))
        self._scope = {} if scope is None else scope
        if is_included:
            self._write(field)
        else:
            self._skip(field)

    def _begin_group(self, field_number: int, field: bytes) -> None:
        is_included = self._find_scope(field_number)[0]
        if self._groups:
            self._scope, is_included = self._groups.pop()
        if is_included:
            self._write(field)
        else:
            self._skip(field)

    def _begin_record(self) -> None:
        if self._submessages:
            raise ValueError("a record begins inside a submessage")
        if len(self._record_begins) == self._num_records:
            raise ValueError(f"there are more than {self._num_records} records")
        self._record_begins.append(self._num_written)
        self._scope = self._record_scope
        self._groups.clear()

    def _write_whole_record(self, buffer: int) -> None:
        length, _ = self._take_length(len(self._buffers) - 1)
        self._write(self._take(buffer, length))
        self._begin_record()
