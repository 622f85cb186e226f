"""Compressed buffers: round trips, and streams whose size is wrong."""

import tracemalloc

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from riegeli_internals import (
    MAX_DECOMPRESSED_SIZE,
    CompressionType,
    Compressor,
    compression,
    decompress,
)

import riegeli
from riegeli.varints import encode_varints

# The bytes 123, and 5 MiB of zeros after 24 other bytes, as Google's implementation compresses
# them with brotli:6,window_log:25.
LARGE_WINDOW_BROTLI = bytes.fromhex("1119040002313233 03")
LARGE_WINDOW_ZEROS = bytes.fromhex(
    "11595e00400110f8e65fbbadd5c24030a1271fe8a35c5c1808cfbd7f9a8f35b5d960edc33ab002"
)

COMPRESSORS = [
    Compressor(CompressionType.NONE),
    *(Compressor(CompressionType.BROTLI, level) for level in (0, 6, 11)),
    *(Compressor(CompressionType.ZSTD, level) for level in (-7, 0, 3, 22)),
    Compressor(CompressionType.BROTLI, 5, window_log=10),
    Compressor(CompressionType.ZSTD, 3, window_log=27),
    Compressor(CompressionType.ZSTD, 3, window_log=31),
    Compressor(CompressionType.SNAPPY),
]


@pytest.mark.slow
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
@given(data=st.binary(max_size=500))
def test_compressed_data_is_read_back(compressor, data):
    buffer = b"".join(compressor.compress([data]))
    assert decompress(compressor.compression_type, buffer, len(data)) == data
    assert decompress(compressor.compression_type, buffer, (1 << 64) - 1) == data
    for buffer_to_fill in (bytearray(len(data) + 3), bytearray(max(len(data) - 1, 0))):
        into = memoryview(buffer_to_fill)
        assert decompress(compressor.compression_type, buffer, len(data), into) == data
        if len(data) <= len(buffer_to_fill):
            assert buffer_to_fill.startswith(data)
            assert not any(buffer_to_fill[len(data) :])


@pytest.mark.parametrize("compressor", COMPRESSORS[1:], ids=repr)
def test_streams_of_another_size_are_refused(compressor):
    data = bytes(range(200)) * 50
    compressed = b"".join(compressor.compress([data]))
    stream = compressed[2:]  # The size takes two bytes.
    for claimed, damaged in [
        (len(data), stream[:-1]),
        (len(data), stream + b"\0"),
        (len(data), b""),
        (len(data) - 1, stream),
        (len(data) + 1, stream),
    ]:
        for into in (None, memoryview(bytearray(claimed))):
            with pytest.raises(riegeli.InvalidArgumentError):
                decompress(
                    compressor.compression_type, encode_varints([claimed]) + damaged, 1 << 20, into
                )


@given(data=st.data())
def test_damaged_zstd_has_the_same_result_for_each_target(data):
    content = bytes(range(50)) * data.draw(st.integers(0, 40))
    parameters = zstandard.ZstdCompressionParameters(
        write_checksum=data.draw(st.booleans()), write_content_size=data.draw(st.booleans())
    )
    stream = bytearray(zstandard.ZstdCompressor(compression_params=parameters).compress(content))
    for _ in range(data.draw(st.integers(0, 2))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    stream += data.draw(st.sampled_from([b"", b"\0", bytes(stream)]))
    buffer = encode_varints([len(content)]) + stream
    into = memoryview(bytearray(len(content)))
    outcomes = []
    for arguments in ([], [into]):
        try:
            outcomes.append(decompress(CompressionType.ZSTD, buffer, len(content), *arguments))
        except riegeli.RiegeliError as e:
            outcomes.append(repr(e))
    assert outcomes[0] == outcomes[1]


def test_data_that_claims_more_than_the_limit_is_refused():
    compressor = Compressor(CompressionType.ZSTD, 3)
    with pytest.raises(riegeli.InvalidArgumentError, match="claims 10 bytes of at most 9"):
        decompress(CompressionType.ZSTD, b"".join(compressor.compress([bytes(10)])), 9)


@pytest.mark.parametrize(
    ("compression_type", "stream", "message"),
    [
        (CompressionType.ZSTD, zstandard.compress(b"tiny"), "cannot become"),
        (CompressionType.SNAPPY, b"\xff\xff\xff\xff\x0f\x0ctiny", "cannot become"),
        (CompressionType.BROTLI, brotli.compress(b"tiny"), "has 4 bytes, but claims"),
        (CompressionType.BROTLI, LARGE_WINDOW_BROTLI, "has 3 bytes, but claims"),
        (CompressionType.BROTLI, LARGE_WINDOW_BROTLI[:1], "stream is damaged"),
    ],
)
def test_a_claimed_size_is_not_allocated(compression_type, stream, message):
    tracemalloc.start()
    with pytest.raises(riegeli.InvalidArgumentError, match=message):
        decompress(compression_type, encode_varints([1 << 30]) + stream, 1 << 40)
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


@pytest.mark.parametrize("size", [MAX_DECOMPRESSED_SIZE + 1, (1 << 64) - 1])
@pytest.mark.parametrize("compression_type", [CompressionType.BROTLI, CompressionType.ZSTD])
def test_sizes_above_the_limit_are_refused(compression_type, size):
    with pytest.raises(riegeli.ResourceExhaustedError, match="more than the limit 4294967296"):
        decompress(compression_type, encode_varints([size]) + b"stream", (1 << 64) - 1)


def test_compressed_data_never_exceeds_the_limit_for_reading(monkeypatch):
    monkeypatch.setattr(compression, "MAX_DECOMPRESSED_SIZE", 1000)
    with pytest.raises(riegeli.ResourceExhaustedError, match="make chunk_size smaller"):
        Compressor().compress([bytes(1001)])
    buffer = b"".join(Compressor().compress([bytes(1000)]))
    assert decompress(CompressionType.BROTLI, buffer, 1 << 40) == bytes(1000)
    assert Compressor(CompressionType.NONE).compress([bytes(1001)]) == [bytes(1001)]


@pytest.mark.parametrize("claimed", [1 << 20, (1 << 20) - 1])
def test_a_bomb_is_stopped_at_the_size_that_it_claims(claimed):
    for compressor in (Compressor(), Compressor(CompressionType.ZSTD, 3)):
        stream = b"".join(compressor.compress([bytes(10 << 20)]))[4:]
        with pytest.raises(riegeli.InvalidArgumentError):
            decompress(compressor.compression_type, encode_varints([claimed]) + stream, 1 << 40)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
def test_pieces_are_compressed_together(compressor):
    pieces = [b"ab" * 100_000, memoryview(b"c"), b"", b"ab" * 100_000]
    data = b"".join(pieces)
    buffer = b"".join(compressor.compress(pieces))
    assert buffer == b"".join(compressor.compress([data]))
    assert decompress(compressor.compression_type, buffer, len(data)) == data


def test_zstd_frames_have_the_size_of_their_content():
    _, *stream = Compressor(CompressionType.ZSTD, 3).compress([bytes(300_000)])
    assert zstandard.get_frame_parameters(b"".join(stream)).content_size == 300_000


def test_buffers_may_be_views():
    for compressor in COMPRESSORS:
        view = memoryview(b"".join(compressor.compress([b"abc" * 100])))
        assert decompress(compressor.compression_type, view, 300) == b"abc" * 100
    large_window = memoryview(b"\3" + LARGE_WINDOW_BROTLI)
    assert decompress(CompressionType.BROTLI, large_window, 3) == b"123"


def test_zstd_frames_without_content_size_are_read():
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 1000)
    assert decompress(CompressionType.ZSTD, encode_varints([3000]) + stream, 3000) == b"abc" * 1000


def test_a_second_zstd_frame_is_refused():
    stream = zstandard.compress(b"abc") + zstandard.compress(b"def")
    for size in (3, 6):
        with pytest.raises(riegeli.InvalidArgumentError, match="zstd"):
            decompress(CompressionType.ZSTD, encode_varints([size]) + stream, 100)


def test_a_zstd_checksum_is_verified():
    stream = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"abc"))
    assert decompress(CompressionType.ZSTD, b"\3" + stream, 3) == b"abc"
    stream[-1] ^= 1
    with pytest.raises(riegeli.InvalidArgumentError, match="zstd stream is damaged"):
        decompress(CompressionType.ZSTD, b"\3" + stream, 3)


def test_large_window_brotli_is_read_but_not_written():
    assert decompress(CompressionType.BROTLI, b"\3" + LARGE_WINDOW_BROTLI, 3) == b"123"
    with pytest.raises(riegeli.InvalidArgumentError, match="brotli stream is damaged"):
        decompress(CompressionType.BROTLI, b"\2" + LARGE_WINDOW_BROTLI, 3)
    with pytest.raises(riegeli.UnimplementedError, match="window_log:25 cannot be written"):
        Compressor(CompressionType.BROTLI, 6, window_log=25)


def test_large_window_brotli_is_decompressed_to_any_size_below_the_limit():
    size = 24 + (5 << 20)
    buffer = encode_varints([size]) + LARGE_WINDOW_ZEROS
    data = decompress(CompressionType.BROTLI, buffer, size)
    assert len(data) == size
    assert not any(data[24:])
