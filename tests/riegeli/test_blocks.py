"""Positions of chunk bytes between the block headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riegeli_internals import ChunkHeader, blocks, encode_block_header

import riegeli

# (chunk begin, data size, number of records, chunk end), checked against Google's implementation.
CHUNK_ENDS = [
    (0, 0, 0, 64),
    (64, 6, 1, 110),
    (65536, 8, 1, 65608),
    (65535, 0, 0, 65599),
    (65497, 0, 0, 65561),
    (65496, 0, 0, 65536),
    (131071, 100, 0, 131235),
    (65561, 65471, 0, 131072),
    (64, 65432, 0, 65536),
    (64, 65433, 0, 65561),
    (64, 131000, 0, 131152),
    (64, 10, 5000, 5064),
    (64, 10, 65472, 65536),
    (64, 10, 65473, 65561),
    (64, 10, 65500, 65564),
    (65561, 65472, 0, 131097),
]

possible_begins = st.integers(0, 5 * blocks.BLOCK_SIZE).filter(blocks.is_possible_chunk_boundary)


@pytest.mark.parametrize(("begin", "data_size", "num_records", "end"), CHUNK_ENDS)
def test_the_end_of_a_chunk_counts_block_headers(begin, data_size, num_records, end):
    assert ChunkHeader(data_size, 0, ord("r"), num_records, 0).end(begin) == end


@given(possible_begins, st.integers(0, 200_000))
def test_advance_counts_the_block_headers_on_the_way(begin, size):
    pos, remaining = begin, size
    while remaining:  # Byte runs between block headers, one after the other.
        if pos % blocks.BLOCK_SIZE == 0:
            pos += blocks.BLOCK_HEADER_SIZE
        run = min(remaining, blocks.BLOCK_SIZE - pos % blocks.BLOCK_SIZE)
        pos, remaining = pos + run, remaining - run
    assert blocks.advance(begin, size) == pos


@given(possible_begins, st.integers(1, 200_000))
def test_distance_undoes_advance(begin, size):
    assert blocks.distance(begin, blocks.advance(begin, size)) == size


@given(st.integers(0, 5 * blocks.BLOCK_SIZE))
def test_rounding_up_gives_the_next_chunk_boundary(pos):
    rounded = blocks.round_up_to_possible_chunk_boundary(pos)
    assert blocks.is_possible_chunk_boundary(rounded)
    assert not any(map(blocks.is_possible_chunk_boundary, range(pos, rounded)))


# Block headers of files that envlogger 1.2 wrote.
@pytest.mark.parametrize(
    ("header", "to_begin", "to_end"),
    [
        ("83af70d10d884a3f00000000000000004000000000000000", 0, 64),
        ("f88a1942bd2c4054511f000000000000fc50000000000000", 8017, 20732),
        ("7d638b0d5e5eeb0f4201000000000000f60e000000000000", 322, 3830),
        ("4ff939f13d360e991b000000000000003002000000000000", 27, 560),
    ],
)
def test_block_headers_have_the_specified_bytes(header, to_begin, to_end):
    assert encode_block_header(to_begin, to_end).hex() == header
    assert blocks.decode_block_header(bytes.fromhex(header), 65536) == (to_begin, to_end)


def test_a_flipped_bit_in_a_block_header_is_named_with_its_position():
    header = bytearray(encode_block_header(1, 2))
    header[9] ^= 4
    with pytest.raises(riegeli.InvalidArgumentError, match="block header at byte 65536 is damaged"):
        blocks.decode_block_header(bytes(header), 65536)
