"""The compiled hot functions equal their plain Python twins, also for damaged input."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riegeli_internals import (
    UNCOMPRESSED,
    blocks,
    encode_transposed_chunk,
    pure,
    transposed_chunk,
)

compiled = pytest.importorskip("riegeli._compiled")

kinds = st.integers(0, 5)


def attempt(function, *args):
    """Returns the result of a function, or its error as text."""
    try:
        return function(*args)
    except ValueError as e:
        return str(e)


def capture_arguments(expected):
    """Returns the arguments of `run_machine` when records are read."""
    arguments = []

    def run_machine(*args):
        arguments.extend(args)
        return expected

    chunk = encode_transposed_chunk(expected, UNCOMPRESSED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transposed_chunk, "run_machine", run_machine)
        transposed_chunk.decode_transposed_chunk(chunk, len(expected))
    return arguments


@given(st.binary(max_size=200))
def test_compiled_and_pure_hashes_agree(data):
    expected = pure.highway_hash64(data)
    assert compiled.highway_hash64(data) == expected
    assert compiled.highway_hash64(data, use_lanes=False) == expected


pieces = st.lists(st.one_of(st.binary(max_size=40), st.just(bytes(range(250)) * 150)), max_size=9)
offsets = st.one_of(st.integers(0, 200_000), st.integers(65_500, 65_600), st.just(1 << 16))


@given(pieces, offsets, st.integers(-30, 70_000))
def test_compiled_and_pure_block_headers_are_interleaved_alike(pieces, begin, room):
    end = max(0, blocks.advance(begin, sum(map(len, pieces))) + room)
    expected = attempt(pure.interleave_block_headers, pieces, begin, end)
    assert attempt(compiled.interleave_block_headers, pieces, begin, end) == expected


@given(
    offsets, st.integers(0, 70_000), st.sampled_from([(1, 0), (0, 1), (0, 1 << 64)]), st.booleans()
)
def test_block_headers_of_another_chunk_are_not_stripped(begin, size, shifts, is_damaged):
    begin = blocks.round_up_to_possible_chunk_boundary(begin)
    end = blocks.advance(begin, size)
    stored = bytearray(pure.interleave_block_headers([bytes(size)], begin, end))
    block = begin + blocks.remaining_in_block(begin)
    has_block_header = block < end
    if has_block_header and is_damaged:
        stored[block - begin + 7] ^= 1
        shifts = (0, 0)
    for function in (compiled.strip_block_headers, pure.strip_block_headers):
        content = function(stored, begin, begin + shifts[0], end + shifts[1])
        assert content == (None if has_block_header else bytes(size))


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_compiled_and_pure_varints_are_encoded_alike(values):
    assert compiled.encode_varints(values) == pure.encode_varints(values)


varint_bytes = st.one_of(st.binary(max_size=30), st.lists(st.sampled_from([0, 1, 2, 128, 255])))


@given(varint_bytes.map(bytes), st.integers(0, 12), st.integers(0, 5))
def test_compiled_and_pure_varints_are_read_alike(data, begin, count):
    assert attempt(compiled.read_varint, data, begin) == attempt(pure.read_varint, data, begin)
    args = (memoryview(data), begin, count)
    assert attempt(compiled.read_varints, *args) == attempt(pure.read_varints, *args)


@given(st.lists(st.binary(max_size=40)))
def test_joined_records_are_split_where_they_were_joined(expected):
    for twin in (compiled, pure):
        sizes = twin.encode_varints(map(len, expected))
        assert twin.split_records(sizes, len(expected), b"".join(expected)) == expected


def test_compiled_and_pure_split_fields_deep_groups_and_messages_alike():
    deep = b""
    for _ in range(150):
        deep = b"\x0b" + deep + b"\x0c"
    for _ in range(3):
        deep = b"\x12" + pure.encode_varints((len(deep),)) + deep
    expected = [deep, b"\x0b" * 1000 + b"\x0c" * 1000, b"\x0b" * 1000]
    assert compiled.split_fields(expected) == pure.split_fields(expected)


def test_only_bytes_are_split_into_fields():
    with pytest.raises(TypeError):
        compiled.split_fields([bytearray(b"\x08\x01")])


@given(st.lists(kinds))
def test_compiled_and_pure_counts_of_followers_agree(sequence):
    expected = [list(counts.items()) for counts in pure.count_followers(sequence, 6)]
    for form in (sequence, array("I", sequence)):
        actual = compiled.count_followers(form, 6)
        assert [list(counts.items()) for counts in actual] == expected


def test_kinds_that_are_too_large_are_refused():
    for twin in (compiled, pure):
        with pytest.raises(IndexError):
            twin.count_followers([0, 3, 0], 3)


def test_impossible_transitions_are_refused():
    for twin in (compiled, pure):
        with pytest.raises(LookupError):
            twin.encode_transitions([0, 1, 0], [{1: b"\0"}, {2: b"\0"}])
        with pytest.raises(ValueError, match="64 states from a base, at most 63"):
            twin.encode_transitions([0, 0], [{0: b"\0\x40"}])


def test_the_size_that_a_chunk_claims_is_not_allocated():
    states = ([3], [0], [False], [0], [-1])
    for twin in (compiled, pure):
        with pytest.raises(ValueError, match="records have 0 bytes, not"):
            twin.run_machine(states, 0, [], b"", 1, 2**62)


def test_outputs_much_longer_than_their_input_agree():
    # A state whose value is in its subtype, again and again: 8000 bytes from 1000 transitions.
    states = ([8, 3], [0, 0], [False, False], [17, 0], [-1, -1])
    arguments = (states, 0, [], b"\3" * 999 + b"\4", 1, 2 * 3997)
    assert compiled.run_machine(*arguments) == pure.run_machine(*arguments) == [b"\x08\7" * 3997]


def test_nested_scopes_reach_the_fields_below():
    arguments = capture_arguments([b"\x08\x01\x10\x02"])[:-1]
    assert compiled.run_machine(*arguments, {2: True}) == [b"\x10\x02"]
