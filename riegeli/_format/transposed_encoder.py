"""Encoder of transposed Riegeli chunks: states, transitions and buckets.

The state machine has the layout of Google's encoder, so that the bytes of a file are the same.

Elements of the same kind share a state. A kind that often, or only, follows another kind has a
state in the private list of that kind; all other states are in the public list. A transition can
reach 64 states from its base: longer lists are split into blocks, which no-op states lead to.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from riegeli._core import (
    count_followers,
    encode_transitions,
    encode_varints,
    join,
    read_varint,
    split_fields,
)
from riegeli._format.chunk import Chunk, ChunkType
from riegeli._format.compression import Compressor
from riegeli._format.transposed_chunk import MAX_BUFFERS, MAX_STATES, MAX_TRANSITIONS
from riegeli._pure.elements import Elements
from riegeli._pure.machine import FIXED32, FIXED64, LENGTH, NO_OP, VARINT, has_buffer, has_subtype
from riegeli.base.riegeli_error import ResourceExhaustedError

MAX_WHOLE_RECORD_SIZE = (1 << 32) - 1
"""The maximum size of a record that is stored whole, which is the limit of readers."""

_MIN_COUNT_FOR_PRIVATE_STATE = 10
_STATES_PER_BLOCK = 64


@dataclass(slots=True)
class _StateList:
    """A list of consecutive states.

    Attributes:
      begin: The first state.
      positions: The states by kind.
    """

    begin: int
    positions: dict[int, int] = field(default_factory=dict)


_TO_PUBLIC = 1 << 32  # The pseudo-kind of the no-op state from a private list to the public list.


class _Layout:
    """The layout of the states for a sequence of element kinds.

    Attributes:
      states: The kind of each state; None for no-op states.
      base_of_state: The bases of the no-op states.
      base_of_kind: The bases of the states of kinds; None for kinds without a follower.
      entry_state: The no-op states that lead to the blocks of states, by state.
    """

    def __init__(self, followers: Sequence[dict[int, int]], last_kind: int) -> None:
        self.states: list[int | None] = []
        self.base_of_state: dict[int, int] = {}
        self.base_of_kind: list[int | None] = [None] * len(followers)
        self.entry_state: dict[int, int] = {}
        self._block_ends: dict[int, int] = {}
        self._followers = followers
        self._num_kinds = len(followers)
        num_incoming: Counter[int] = Counter()
        for counts in followers:
            num_incoming.update(counts)
        if not num_incoming[last_kind]:
            num_incoming[last_kind] = 1  # The machine begins with this kind, so it needs a state.
        private_weights = self._choose_private_followers(num_incoming)
        self.private_lists = [
            self._append_states(weights) if weights else None for weights in private_weights
        ]
        public_weights = {kind: count for kind, count in num_incoming.items() if count > 0}
        self.public = (
            self._append_states(public_weights) if public_weights else _StateList(len(self.states))
        )
        for kind, private_list in enumerate(self.private_lists):
            positions = private_list.positions if private_list else {}
            public_followers = [f for f in followers[kind] if f not in positions]
            base = self._find_public_base(public_followers) if public_followers else None
            self.base_of_kind[kind] = private_list.begin if private_list else base
            if private_list and base is not None:
                self.base_of_state[positions[_TO_PUBLIC]] = base

    def find_path(self, kind: int, follower: int) -> bytes:
        """Returns the path from a kind to a follower, for `encode_transitions`."""
        base, private_list = self.base_of_kind[kind], self.private_lists[kind]
        assert base is not None  # The kind has followers.
        if private_list is not None and follower in private_list.positions:
            return self._find_path(base, private_list.positions[follower])
        if private_list is None:
            return self._find_path(base, self.public.positions[follower])
        no_op_state = private_list.positions[_TO_PUBLIC]
        return self._find_path(base, no_op_state) + self._find_path(
            self.base_of_state[no_op_state], self.public.positions[follower]
        )

    def _find_path(self, base: int, position: int) -> bytes:
        """Returns the path from a base to a state, through no-op states."""
        states = [position]
        while not base <= states[-1] < base + _STATES_PER_BLOCK:
            states.append(self.entry_state[states[-1]])
        offsets = bytearray()
        for state in reversed(states):
            offsets.append(state - base)
            base = self.base_of_state.get(state, -1)
        return bytes(offsets)

    def _choose_private_followers(self, num_incoming: Counter[int]) -> list[dict[int, int]]:
        """Returns the followers that get private states, with their counts, for each kind."""
        private_followers: list[dict[int, int]] = []
        for followers in self._followers:
            frequent = {f: n for f, n in followers.items() if n >= _MIN_COUNT_FOR_PRIVATE_STATE}
            for follower, count in frequent.items():
                num_incoming[follower] -= count
            private_followers.append(frequent)
        for followers, weights in zip(self._followers, private_followers, strict=True):
            for follower, count in followers.items():
                if follower not in weights and num_incoming[follower] == count:
                    weights[follower] = count
                    num_incoming[follower] = 0
            public = {f: n for f, n in followers.items() if f not in weights}
            if weights and len(public) == 1:
                weights.update(public)
                num_incoming.subtract(public)
            elif weights and public:
                weights[_TO_PUBLIC] = sum(public.values())
        return private_followers

    def _append_states(self, weights: dict[int, int]) -> _StateList:
        """Appends a list of states by decreasing weight; splits long lists into blocks."""
        begin = len(self.states)
        num_states = len(weights)
        if num_states > _STATES_PER_BLOCK:
            num_states += (num_states - 2) // (_STATES_PER_BLOCK - 1)
        self.states.extend([None] * num_states)
        state_list = _StateList(begin)
        # Sorted by weight, and for equal weights by decreasing kind.
        heap = [(weight, -kind) for kind, weight in weights.items()]
        heapq.heapify(heap)
        block_size = (num_states - 1) % _STATES_PER_BLOCK + 1
        next_pseudo_kind = self._num_kinds
        block_of_pseudo_kind: dict[int, int] = {}
        position = begin + num_states
        while heap:
            block_end, block_weight = position, 0
            while position > block_end - block_size:
                weight, negated_kind = heapq.heappop(heap)
                position -= 1
                block_weight += weight
                kind = -negated_kind
                if kind in block_of_pseudo_kind:
                    self._add_no_op_state(position, block_of_pseudo_kind[kind])
                else:
                    state_list.positions[kind] = position
                    self.states[position] = None if kind == _TO_PUBLIC else kind
            if heap:
                heapq.heappush(heap, (block_weight, -next_pseudo_kind))
                block_of_pseudo_kind[next_pseudo_kind] = position
                self._block_ends[position] = block_end
                next_pseudo_kind += 1
            block_size = _STATES_PER_BLOCK
        return state_list

    def _add_no_op_state(self, state: int, block_begin: int) -> None:
        self.base_of_state[state] = block_begin
        for inside in range(block_begin, self._block_ends[block_begin]):
            self.entry_state[inside] = state

    def _find_public_base(self, followers: Sequence[int]) -> int:
        """Returns the smallest used state of the innermost block that leads to all followers."""
        low = len(self.states)
        block = None
        for follower in followers:
            position = self.public.positions[follower]
            while block is None or not block <= position < block + _STATES_PER_BLOCK:
                if block is None:
                    block = self._find_block(position)
                elif position < block:
                    entry_state = self.entry_state[block]
                    low = min(low, entry_state)
                    block = self._find_block(entry_state)
                else:
                    position = self.entry_state[position]
            low = min(low, position)
        return low

    def _find_block(self, position: int) -> int:
        if position in self.entry_state:
            return self.base_of_state[self.entry_state[position]]
        return self.public.begin


def encode_transposed_chunk(
    records: Sequence[bytes],
    compressor: Compressor,
    bucket_size: int | None = None,
    chunk_type: int = ChunkType.TRANSPOSED,
) -> Chunk:
    """Encodes records as a transposed chunk.

    Args:
      records: The records.
      compressor: The compression.
      bucket_size: The approximate size of buffers compressed together; None for no limit.
      chunk_type: The type of the chunk; a metadata chunk declares 0 records.

    Raises:
      ResourceExhaustedError: the chunk exceeds the limits of readers: a record that is stored whole
        is longer than `MAX_WHOLE_RECORD_SIZE`, or there are too many kinds of elements.
    """
    elements = split_fields(records)
    largest = max(elements.record_sizes, default=0)
    if largest > MAX_WHOLE_RECORD_SIZE:
        raise ResourceExhaustedError(
            f"a record of {largest} bytes that is no proto message cannot be written with the "
            f"option transpose, only up to {MAX_WHOLE_RECORD_SIZE}; leave out that option"
        )
    groups, buffer_index = _group_buffers(elements)
    buffers = [buffer for group in groups for buffer in group]
    buckets = [bucket for group in groups for bucket in _split_buckets(group, bucket_size)]
    stored_buckets = [compressor.compress(bucket) for bucket in buckets]
    bucket_sizes = [sum(map(len, bucket)) for bucket in stored_buckets]
    states, transitions = _encode_machine(elements, buffer_index)
    num_states, _ = read_varint(states, 0)
    if num_states > MAX_STATES or len(buffers) > MAX_BUFFERS or len(transitions) > MAX_TRANSITIONS:
        raise ResourceExhaustedError(
            f"a transposed chunk of {len(buffers)} fields, {num_states} states and "
            f"{len(transitions)} transitions could not be read; make chunk_size smaller"
        )
    header = compressor.compress(
        [encode_varints([len(buckets), len(buffers), *bucket_sizes, *map(len, buffers)]), states]
    )
    data = join(
        [
            bytes((compressor.compression_type,)),
            encode_varints((sum(map(len, header)),)),
            *header,
            *chain.from_iterable(stored_buckets),
            *compressor.compress([transitions]),
        ]
    )
    num_records = len(records) if chunk_type == ChunkType.TRANSPOSED else 0
    return Chunk(chunk_type, data, num_records, sum(map(len, records)))


def _group_buffers(elements: Elements) -> tuple[list[list[bytes]], dict[int, int]]:
    """Returns the buffers in groups, which share no bucket, and the buffer indices by node."""
    groups: dict[int, list[tuple[int, int, int, int, bytes]]] = {
        wire_type: [] for wire_type in (VARINT, FIXED32, FIXED64, LENGTH, _WHOLE_RECORD_GROUP)
    }
    for index, node in enumerate(elements.nodes):
        if node.buffer:
            wire_type = node.tag & 7 if node.tag else _WHOLE_RECORD_GROUP
            groups[wire_type].append((len(node.buffer), node.parent, node.tag, index, node.buffer))
    sorted_groups = [sorted(group) for group in groups.values() if group]
    entries = chain.from_iterable(sorted_groups)
    buffer_index = {entry[3]: index for index, entry in enumerate(entries)}
    buffers = [[entry[4] for entry in group] for group in sorted_groups]
    if elements.record_sizes:
        buffers.append([encode_varints(reversed(elements.record_sizes))])
    return buffers, buffer_index


_WHOLE_RECORD_GROUP = -1


def _split_buckets(buffers: list[bytes], size: int | None) -> list[list[bytes]]:
    """Splits buffers, which are sorted by size, into buckets of about the same size."""
    if size is None:
        return [buffers]
    buckets: list[list[bytes]] = [[]]
    bucket_size = 0
    remaining = sum(map(len, buffers))
    for count in range(len(buffers), 0, -1):
        buffer = buffers[count - 1]
        if buckets[-1] and bucket_size + len(buffer) / 2 >= size:
            buckets.append([])
            bucket_size = 0
        buckets[-1].insert(0, buffer)
        bucket_size += len(buffer)
        remaining -= len(buffer)
        if remaining <= size / 2:
            buckets[-1][:0] = buffers[: count - 1]
            break
    return buckets[::-1]


def _encode_machine(elements: Elements, buffer_index: dict[int, int]) -> tuple[bytes, bytes]:
    """Returns the encoded states of the header, and the encoded transitions."""
    if not elements.sequence:
        return encode_varints((1, NO_OP, 0, 0)), b""
    followers = count_followers(elements.sequence, len(elements.kinds))
    encoded_states, paths = _encode_states(
        tuple((tag, subtype, buffer_index.get(node, -1)) for node, tag, subtype in elements.kinds),
        tuple(tuple(counts.items()) for counts in followers),
        elements.sequence[0],
        elements.sequence[-1],
    )
    return encoded_states, encode_transitions(elements.sequence, paths)


@lru_cache(maxsize=16)
def _encode_states(
    kinds: tuple[tuple[int, int, int], ...],
    counted_followers: tuple[tuple[tuple[int, int], ...], ...],
    first_kind: int,
    last_kind: int,
) -> tuple[bytes, list[dict[int, bytes]]]:
    """Encodes the states of the header; returns also the paths between elements.

    The cache saves most of the time for which this function holds the GIL, because chunks with few
    records often have equal arguments.

    Args:
      kinds: For each kind of elements, its tag, its subtype, and the index of its buffer.
      counted_followers: For each kind, the kinds that follow it, and their counts.
      first_kind: The kind of the first element.
      last_kind: The kind of the last element.
    """
    followers = [dict(counts) for counts in counted_followers]
    layout = _Layout(followers, last_kind)
    implicit = [len(counts) == 1 and kind != first_kind for kind, counts in enumerate(followers)]
    num_states = len(layout.states)
    tags, bases, buffers = [], [], []
    subtypes = bytearray()
    for state, kind in enumerate(layout.states):
        if kind is None:
            tags.append(NO_OP)
            bases.append(layout.base_of_state[state])
            continue
        tag, subtype, buffer = kinds[kind]
        base = layout.base_of_kind[kind]
        tags.append(tag)
        bases.append((base or 0) + (num_states if implicit[kind] else 0))
        if has_subtype(tag):
            subtypes.append(subtype)
        if has_buffer(tag, subtype):
            buffers.append(buffer)
    first_state = layout.states.index(last_kind)
    encoded_states = b"".join(
        (
            encode_varints([num_states, *tags, *bases]),
            bytes(subtypes),
            encode_varints([*buffers, first_state]),
        )
    )
    paths = [
        {
            follower: b"" if implicit[kind] else layout.find_path(kind, follower)
            for follower in counts
        }
        for kind, counts in enumerate(followers)
    ]
    return encoded_states, paths
