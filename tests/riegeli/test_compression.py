"""Compressed buffers: round trips, and streams that lie."""

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import riegeli
from riegeli._core import encode_varints
from riegeli._format.compression import CompressionType, Compressor, decompress

COMPRESSORS = [
    Compressor(CompressionType.NONE),
    *(Compressor(CompressionType.BROTLI, level) for level in (0, 6, 11)),
    *(Compressor(CompressionType.ZSTD, level) for level in (-7, 0, 3, 22)),
    Compressor(CompressionType.BROTLI, 5, window_log=10),
    Compressor(CompressionType.ZSTD, 3, window_log=27),
]


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
@given(data=st.binary(max_size=500))
def test_round_trip(compressor, data):
    buffer = compressor.compress(data)
    assert decompress(compressor.compression_type, buffer, len(data)) == data


@pytest.mark.parametrize("compressor", COMPRESSORS[1:], ids=repr)
def test_streams_that_lie_are_refused(compressor):
    data = bytes(range(200)) * 50
    good = compressor.compress(data)
    stream = good[2:]  # The size takes two bytes.
    for claimed, bad in [
        (len(data), stream[:-1]),
        (len(data), stream + b"\0"),
        (len(data), b""),
        (len(data) - 1, stream),
        (len(data) + 1, stream),
    ]:
        with pytest.raises(riegeli.InvalidArgumentError):
            decompress(compressor.compression_type, encode_varints([claimed]) + bad, 1 << 20)


def test_more_than_makes_sense_is_refused():
    compressor = Compressor(CompressionType.ZSTD, 3)
    with pytest.raises(riegeli.InvalidArgumentError, match="claims 10 bytes of at most 9"):
        decompress(CompressionType.ZSTD, compressor.compress(bytes(10)), 9)


def test_a_claimed_size_is_not_allocated():
    petabyte = 1 << 50
    tiny_zstd = encode_varints([petabyte]) + zstandard.ZstdCompressor().compress(b"tiny")
    with pytest.raises(riegeli.InvalidArgumentError, match="cannot become"):
        decompress(CompressionType.ZSTD, tiny_zstd, petabyte)
    tiny_brotli = encode_varints([petabyte]) + brotli.compress(b"tiny")
    with pytest.raises(riegeli.InvalidArgumentError, match="has 4 bytes, but claims"):
        decompress(CompressionType.BROTLI, tiny_brotli, petabyte)


def test_zstd_frames_without_content_size_are_read():
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 1000)
    assert decompress(CompressionType.ZSTD, encode_varints([3000]) + stream, 3000) == b"abc" * 1000


def test_large_window_brotli_is_said_to_be_unsupported():
    with pytest.raises(riegeli.UnimplementedError, match="window_log:25"):
        Compressor(CompressionType.BROTLI, 6, window_log=25)
