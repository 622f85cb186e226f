"""Chunk headers, padding chunks and small files, byte by byte."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riegeli_internals import (
    CHUNK_HEADER_SIZE,
    Chunk,
    ChunkHeader,
    ChunkType,
    CompressionType,
    Compressor,
    blocks,
    decode_joined,
    decode_simple_chunk,
    encode_simple_chunk,
    padding_chunk,
)

import riegeli

SIGNATURE_HEX = (
    "83af70d10d884a3f 0000000000000000 4000000000000000"  # block header: 0 back, 64 ahead
    "91bac23c9287e1a9 0000000000000000 e19f13c0e9b1c372"  # header hash, no data, its hash
    "7300000000000000 0000000000000000"  # type 's', no records, nothing decoded
)


def _file(*records: bytes, options: str = "uncompressed") -> bytes:
    file = io.BytesIO()
    with riegeli.RecordWriter(file, owns_dest=False, options=options) as writer:
        writer.write_records(records)
    return file.getvalue()


def test_the_file_signature_has_the_specified_bytes():
    assert _file() == bytes.fromhex(SIGNATURE_HEX)


# Chunks that Google's implementation wrote: header and data.
@pytest.mark.parametrize(
    ("records", "chunk"),
    [
        (
            [b"abc"],
            "113d3d6c0b1deb36 0600000000000000 f634c5aa8c802fe8 7201000000000000 0300000000000000"
            "00 01 03 616263",
        ),
        (
            [b"a", b"", b"bb"],
            "3468bfd4172c865c 0800000000000000 40d6e75069747756 7203000000000000 0300000000000000"
            "00 03 010002 616262",
        ),
    ],
)
def test_simple_chunks_have_the_bytes_of_the_reference(records, chunk):
    data = bytes.fromhex(chunk)
    file = _file(*records)[64:]
    # A chunk that is shorter than its number of records would be padded; these are not.
    assert file == data
    with riegeli.RecordReader(io.BytesIO(bytes.fromhex(SIGNATURE_HEX) + data)) as reader:
        assert list(reader.read_records()) == records


@pytest.mark.parametrize(
    "data",
    [
        "7a 0d 03 28b52ffd2003190000323232 9601 28b52ffd20964d00001061610100110a6001",  # zstd
        "62 08 03 0b018032323203 9601 1b95000024c242b1401e",  # brotli:6
        "73 06 03 0308323232 9601 96010061fe0100fe0100520100",  # snappy
    ],
)
def test_compressed_simple_chunks_of_the_reference_are_read(data):
    chunk = Chunk(ChunkType.SIMPLE, bytes.fromhex(data), num_records=3, decoded_data_size=150)
    assert decode_simple_chunk(chunk) == [b"a" * 50] * 3


def test_padding_chunks_have_the_bytes_of_the_reference():
    file = _file(b"abc", options="uncompressed,padding:64K")
    header = "6b58eb2698507897 6aff000000000000 ddcf2e6633a02e4d 7000000000000000 0000000000000000"
    assert len(file) == blocks.BLOCK_SIZE
    assert file[110:150] == bytes.fromhex(header)
    assert not any(file[150:])


@given(st.integers(0, 2**64 - 1), st.integers(0, 255), st.integers(0, 2**56 - 1))
def test_chunk_headers_are_read_back(size, chunk_type, num_records):
    header = ChunkHeader(size, size // 3, chunk_type, num_records, size // 5)
    encoded = header.encode()
    assert len(encoded) == CHUNK_HEADER_SIZE
    assert ChunkHeader.decode(encoded, 64) == header


def test_a_chunk_that_crosses_block_boundaries_is_laid_out_around_the_headers():
    file = _file(bytes(range(256)) * 1024)
    for block in range(blocks.BLOCK_SIZE, len(file), blocks.BLOCK_SIZE):
        header = file[block : block + blocks.BLOCK_HEADER_SIZE]
        assert blocks.decode_block_header(header, block) == (block - 64, len(file) - block)


@given(st.integers(0, 300_000).filter(blocks.is_possible_chunk_boundary), st.integers(0, 70_000))
def test_padding_always_has_room_for_its_own_header(begin, alignment):
    chunk = padding_chunk(begin, alignment)
    if chunk is None:
        assert alignment <= 1 or begin % alignment == 0
    else:
        end = begin + len(chunk.encode(begin))
        assert end % alignment == 0
        assert blocks.is_possible_chunk_boundary(end)


def test_snappy_is_written_as_by_the_reference():
    chunk = encode_simple_chunk([b"a" * 50] * 3, Compressor(CompressionType.SNAPPY))
    assert chunk.data == bytes.fromhex("73 06 03 0308323232 9601 96010061fe0100fe0100520100")


# Invalid data of simple chunks with two records of 3 bytes together, and the error.
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "without data"),
        ("00", "cut off"),
        ("00 ffffffffffffffffff02", "does not fit 64 bits"),
        ("00 8080808080808080808001", "does not fit 64 bits"),
        ("00 06 0102 616263", "record sizes take 6 bytes"),
        ("00 01 03 616263", "2 record sizes cannot fit in 1 bytes"),
        ("00 03 010200 616263", "1 bytes follow the 2 record sizes"),
        ("00 02 0103 616263", "record 1 ends at byte 4 of 3"),
        ("00 02 0101 616263", "records take 2 of 3 bytes"),
        ("00 02 0102 6162", "records take 2 bytes, but 3 are declared"),
        ("00 02 0102 61626364", "4 bytes where at most 3 can be"),
        ("00 02 0180 616263", "cut off"),
        ("00 0b 01ffffffffffffffffff02 616263", "does not fit 64 bits"),
        ("7a 02 02 28 03 28", "zstd stream is damaged"),
        ("62 02 02 ff 03 ff", "brotli stream is"),
        ("73 02 02 ff 03 ff", "snappy stream is"),
        ("62 02 ff01 03 ff", "claims 255 bytes of at most 20"),
        ("62 01 80 03", "size of a compressed buffer is damaged"),
        ("61 01 80 03", "size of a compressed buffer is damaged"),
    ],
)
def test_damaged_simple_chunks_are_refused(data, message):
    chunk = Chunk(ChunkType.SIMPLE, bytes.fromhex(data), num_records=2, decoded_data_size=3)
    with pytest.raises(riegeli.InvalidArgumentError, match=message):
        decode_simple_chunk(chunk)
    joined_message = "records take" if "ends at byte" in message else message
    with pytest.raises(riegeli.InvalidArgumentError, match=joined_message):
        decode_joined(chunk)


@pytest.mark.parametrize(
    ("data", "num_records", "size", "expected"),
    [
        ("00 00", 0, 0, []),
        ("00 03 810002 616263", 2, 3, [b"a", b"bc"]),  # The size 1 in two bytes.
        ("00 8200 0102 616263", 2, 3, [b"a", b"bc"]),  # Likewise the size of the sizes.
    ],
)
def test_unusual_simple_chunks_are_read(data, num_records, size, expected):
    chunk = Chunk(ChunkType.SIMPLE, bytes.fromhex(data), num_records, size)
    assert decode_simple_chunk(chunk) == decode_joined(chunk).cut() == expected


def test_unknown_compression_is_an_unimplemented_error():
    data = bytes.fromhex("610302010203616263")
    chunk = Chunk(ChunkType.SIMPLE, data, num_records=2, decoded_data_size=3)
    with pytest.raises(riegeli.UnimplementedError, match="unknown compression type 0x61"):
        decode_simple_chunk(chunk)
