"""Transposed chunks, writing: which states, which transitions, which buckets.

Any machine that gives the records back would do. This one is laid out like that of Google's
encoder, move by move, so that the bytes of a file are the same.

Elements of the same kind share a state. A kind that another kind follows often, or that only
follows that one, has a state in the private list of that one; all others are in the public list. A
transition reaches 64 states from its base: longer lists are cut into blocks, with states between
that only lead on.
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
    take_apart,
)
from riegeli._format.chunk import Chunk, ChunkType
from riegeli._format.compression import Compressor
from riegeli._format.transposed_chunk import MAX_BUFFERS, MAX_STATES, MAX_TRANSITIONS
from riegeli._pure.elements import Elements
from riegeli._pure.machine import (
    FIXED32,
    FIXED64,
    LENGTH,
    NO_OP,
    VARINT,
    has_buffer,
    has_subtype,
)
from riegeli.base.riegeli_error import ResourceExhaustedError

MAX_WHOLE_RECORD_SIZE = (1 << 32) - 1
"""The maximum size of a record that is not taken apart: readers support no longer ones."""

_MIN_COUNT_FOR_PRIVATE_STATE = 10
_BLOCK = 64


@dataclass(slots=True)
class _List:
    """A list of states, laid out from `begin` on.

    Attributes:
      begin: The first state.
      position: The position of the state of each kind.
    """

    begin: int
    position: dict[int, int] = field(default_factory=dict)


_PUBLIC = 1 << 32  # The pseudo-kind of the state that leads from a private list to the public list.


class _Layout:
    """Finds the states for a sequence of kinds.

    Attributes:
      states: For each state its kind; None for those that only lead on.
      base_of_state: The bases of the states that only lead on.
      base_of_kind: The bases of the others; None for kinds that nothing follows.
      way_in: For states in a block of their own, the state that leads to the block.
    """

    def __init__(self, followers: Sequence[dict[int, int]], last_kind: int) -> None:
        self.states: list[int | None] = []
        self.base_of_state: dict[int, int] = {}
        self.base_of_kind: list[int | None] = [None] * len(followers)
        self.way_in: dict[int, int] = {}
        self._block_ends: dict[int, int] = {}
        self._followers = followers
        self._num_kinds = len(followers)
        incoming: Counter[int] = Counter()
        for counts in followers:
            incoming.update(counts)
        if not incoming[last_kind]:
            incoming[last_kind] = 1  # The machine begins with this kind, so it needs a state.
        private = self._choose_private(incoming)
        self.private = [self._lay_out(weights) if weights else None for weights in private]
        left = {kind: count for kind, count in incoming.items() if count > 0}
        self.public = self._lay_out(left) if left else _List(len(self.states))
        for kind, own in enumerate(self.private):
            unlisted = [f for f in followers[kind] if own is None or f not in own.position]
            if own is not None:
                self.base_of_kind[kind] = own.begin
                if unlisted:
                    self.base_of_state[own.position[_PUBLIC]] = self._public_base(unlisted)
            elif unlisted:
                self.base_of_kind[kind] = self._public_base(unlisted)

    def way(self, kind: int, follower: int) -> bytes:
        """Returns the transition from a kind to a follower, for `encode_transitions`."""
        base, own = self.base_of_kind[kind], self.private[kind]
        assert base is not None  # Something follows.
        if own is not None and follower in own.position:
            return self._way(base, own.position[follower])
        if own is None:
            return self._way(base, self.public.position[follower])
        hop = own.position[_PUBLIC]
        return self._way(base, hop) + self._way(
            self.base_of_state[hop], self.public.position[follower]
        )

    def _way(self, base: int, position: int) -> bytes:
        """From a base to a state, by way of the states that lead to its block."""
        states = [position]
        while not base <= states[-1] < base + _BLOCK:
            states.append(self.way_in[states[-1]])
        offsets = bytearray()
        for state in reversed(states):
            offsets.append(state - base)
            base = self.base_of_state.get(state, -1)
        return bytes(offsets)

    def _choose_private(self, incoming: Counter[int]) -> list[dict[int, int]]:
        """Returns the followers that get private states, with their weights, for each kind."""
        private: list[dict[int, int]] = []
        for followers in self._followers:
            often = {f: n for f, n in followers.items() if n >= _MIN_COUNT_FOR_PRIVATE_STATE}
            for follower, count in often.items():
                incoming[follower] -= count
            private.append(often)
        for followers, own in zip(self._followers, private, strict=True):
            for follower, count in followers.items():
                if follower not in own and incoming[follower] == count:
                    own[follower] = count
                    incoming[follower] = 0
            left = {f: n for f, n in followers.items() if f not in own}
            if own and len(left) == 1:
                own.update(left)
                incoming.subtract(left)
            elif own and left:
                own[_PUBLIC] = sum(left.values())
        return private

    def _lay_out(self, weights: dict[int, int]) -> _List:
        """Appends a list of states, the heaviest first; lists over 64 states in blocks."""
        begin = len(self.states)
        num_states = len(weights)
        if num_states > _BLOCK:
            num_states += (num_states - 2) // (_BLOCK - 1)
        self.states.extend([None] * num_states)
        result = _List(begin)
        # The lightest first, and of equally heavy ones the last.
        heap = [(weight, -kind) for kind, weight in weights.items()]
        heapq.heapify(heap)
        block_size = (num_states - 1) % _BLOCK + 1
        next_way_in = self._num_kinds
        block_of_way_in: dict[int, int] = {}
        position = begin + num_states
        while heap:
            block_end, block_weight = position, 0
            while position > block_end - block_size:
                weight, negated = heapq.heappop(heap)
                position -= 1
                block_weight += weight
                kind = -negated
                if kind in block_of_way_in:
                    self._lead_on(position, block_of_way_in[kind])
                else:
                    result.position[kind] = position
                    self.states[position] = None if kind == _PUBLIC else kind
            if heap:
                heapq.heappush(heap, (block_weight, -next_way_in))
                block_of_way_in[next_way_in] = position
                self._block_ends[position] = block_end
                next_way_in += 1
            block_size = _BLOCK
        return result

    def _lead_on(self, state: int, block_begin: int) -> None:
        self.base_of_state[state] = block_begin
        for inside in range(block_begin, self._block_ends[block_begin]):
            self.way_in[inside] = state

    def _public_base(self, followers: Sequence[int]) -> int:
        """The smallest state that is used in the innermost block that leads to all followers."""
        low = len(self.states)
        block = None
        for follower in followers:
            position = self.public.position[follower]
            while block is None or not block <= position < block + _BLOCK:
                if block is None:
                    block = self._block_of(position)
                elif position < block:
                    way_in = self.way_in[block]
                    low = min(low, way_in)
                    block = self._block_of(way_in)
                else:
                    position = self.way_in[position]
            low = min(low, position)
        return low

    def _block_of(self, position: int) -> int:
        if position in self.way_in:
            return self.base_of_state[self.way_in[position]]
        return self.public.begin


def encode_transposed_chunk(
    records: Sequence[bytes],
    compressor: Compressor,
    bucket_size: int | None = None,
    chunk_type: int = ChunkType.TRANSPOSED,
) -> Chunk:
    """A transposed chunk that holds `records`.

    Args:
      records: The records.
      compressor: The compression.
      bucket_size: The approximate size of buffers compressed together; None for all of a kind.
      chunk_type: The type of the chunk; a metadata chunk says that it has no records.

    Raises:
      ResourceExhaustedError: readers would refuse the chunk: a record that is not taken apart is
        longer than `MAX_WHOLE_RECORD_SIZE`, or there are too many kinds of elements.
    """
    elements = take_apart(records)
    largest = max(elements.whole_sizes, default=0)
    if largest > MAX_WHOLE_RECORD_SIZE:
        raise ResourceExhaustedError(
            f"a record of {largest} bytes that is no proto message cannot be written with the "
            f"option transpose, only up to {MAX_WHOLE_RECORD_SIZE}; leave out that option"
        )
    groups, buffer_index = _buffers(elements)
    buffers = [buffer for group in groups for buffer in group]
    buckets = [bucket for group in groups for bucket in _buckets(group, bucket_size)]
    stored_buckets = [compressor.compress(bucket) for bucket in buckets]
    bucket_sizes = [sum(map(len, bucket)) for bucket in stored_buckets]
    states, transitions = _machine(elements, buffer_index)
    num_states, _ = read_varint(states, 0)
    if num_states > MAX_STATES or len(buffers) > MAX_BUFFERS or len(transitions) > MAX_TRANSITIONS:
        raise ResourceExhaustedError(
            f"a transposed chunk of {len(buffers)} fields, {num_states} states and "
            f"{len(transitions)} transitions could not be read; make chunk_size smaller"
        )
    header = compressor.compress(
        [
            encode_varints([len(buckets), len(buffers), *bucket_sizes, *map(len, buffers)]),
            states,
        ]
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


def _buffers(elements: Elements) -> tuple[list[list[bytes]], dict[int, int]]:
    """The buffers, in the groups that share no bucket, and for each node the index of its own."""
    groups: dict[int, list[tuple[int, int, int, int, bytes]]] = {
        wire_type: [] for wire_type in (VARINT, FIXED32, FIXED64, LENGTH, _WHOLE)
    }
    for index, node in enumerate(elements.nodes):
        if node.buffer:
            wire_type = node.tag & 7 if node.tag else _WHOLE
            groups[wire_type].append((len(node.buffer), node.parent, node.tag, index, node.buffer))
    ordered = [sorted(group) for group in groups.values() if group]
    index_of = {
        entry[3]: index for index, entry in enumerate(entry for group in ordered for entry in group)
    }
    buffers = [[entry[4] for entry in group] for group in ordered]
    if elements.whole_sizes:
        buffers.append([encode_varints(reversed(elements.whole_sizes))])
    return buffers, index_of


_WHOLE = -1


def _buckets(buffers: list[bytes], size: int | None) -> list[list[bytes]]:
    """Cuts a list of buffers, in the order of their sizes, into buckets of about the same size."""
    if size is None:
        return [buffers]
    buckets: list[list[bytes]] = [[]]
    current = 0
    remaining = sum(map(len, buffers))
    for count in range(len(buffers), 0, -1):
        buffer = buffers[count - 1]
        if buckets[-1] and current + len(buffer) / 2 >= size:
            buckets.append([])
            current = 0
        buckets[-1].insert(0, buffer)
        current += len(buffer)
        remaining -= len(buffer)
        if remaining <= size / 2:
            buckets[-1][:0] = buffers[: count - 1]
            break
    return buckets[::-1]


def _machine(elements: Elements, buffer_index: dict[int, int]) -> tuple[bytes, bytes]:
    """The part of the header that describes the states, and the transitions."""
    if not elements.sequence:
        return encode_varints((1, NO_OP, 0, 0)), b""
    followers = count_followers(elements.sequence, len(elements.kinds))
    described, ways = _plan(
        tuple((tag, subtype, buffer_index.get(node, -1)) for node, tag, subtype in elements.kinds),
        tuple(tuple(counts.items()) for counts in followers),
        elements.sequence[0],
        elements.sequence[-1],
    )
    return described, encode_transitions(elements.sequence, ways)


@lru_cache(maxsize=16)
def _plan(
    kinds: tuple[tuple[int, int, int], ...],
    counted_followers: tuple[tuple[tuple[int, int], ...], ...],
    first_kind: int,
    last_kind: int,
) -> tuple[bytes, list[dict[int, bytes]]]:
    """Returns the states for the header, and the transitions between elements.

    Chunks with few records are often alike in all that matters here, which saves most of the time
    that their encoding would keep other Python threads from running.

    Args:
      kinds: For each kind of elements its tag, its subtype, and the index of its buffer.
      counted_followers: For each kind the kinds that follow it, and how often.
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
    described = b"".join(
        (
            encode_varints([num_states, *tags, *bases]),
            bytes(subtypes),
            encode_varints([*buffers, first_state]),
        )
    )
    ways = [
        {follower: b"" if implicit[kind] else layout.way(kind, follower) for follower in counts}
        for kind, counts in enumerate(followers)
    ]
    return described, ways
