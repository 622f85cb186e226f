"""The text form of writer options."""

import pytest
from riegeli_internals import CompressionType, Compressor, parse_options

import riegeli

BROTLI, ZSTD, NONE = CompressionType.BROTLI, CompressionType.ZSTD, CompressionType.NONE
SNAPPY = CompressionType.SNAPPY


@pytest.mark.parametrize(
    ("text", "compressor"),
    [
        ("", Compressor(BROTLI, 6)),
        ("default", Compressor(BROTLI, 6)),
        ("brotli", Compressor(BROTLI, 6)),
        ("brotli:11", Compressor(BROTLI, 11)),
        ("brotli:+5", Compressor(BROTLI, 5)),
        ("brotli: 5", Compressor(BROTLI, 5)),
        ("zstd", Compressor(ZSTD, 3)),
        ("zstd:-131072", Compressor(ZSTD, -131072)),
        ("zstd,window_log:auto", Compressor(ZSTD, 3)),
        ("window_log:31,zstd:22", Compressor(ZSTD, 22, 31)),
        ("brotli,window_log:24", Compressor(BROTLI, 6, 24)),
        ("transpose:false,,zstd:1,", Compressor(ZSTD, 1)),
        ("brotli_encoder:cbrotli", Compressor(BROTLI, 6)),
        ("snappy", Compressor(SNAPPY, 1)),
        ("snappy:2", Compressor(SNAPPY, 2)),
    ],
)
def test_the_text_chooses_the_compressor(text, compressor):
    assert parse_options(text).compressor == compressor


def test_uncompressed_chooses_no_compression():
    assert parse_options("uncompressed").compressor.compression_type == NONE


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 1 << 20),
        ("uncompressed", 4096),
        ("chunk_size:auto", 1 << 20),
        ("chunk_size:35000", 35000),
        ("chunk_size: 1K", 1024),
        ("chunk_size:1.5K", 1536),
        ("chunk_size:2M", 2 << 20),
        ("chunk_size:1e3", 1000),
        ("chunk_size:10B", 10),
        ("chunk_size:0.5", 1),
        ("chunk_size:16E", 2**64 - 1),
        ("chunk_size:1e400", 2**64 - 1),
    ],
)
def test_the_text_chooses_the_chunk_size(text, size):
    assert parse_options(text).chunk_size == size


@pytest.mark.parametrize(
    ("text", "initial", "final"),
    [
        ("", 1, 1),
        ("padding", 65536, 65536),
        ("padding:64K,final_padding:1", 65536, 1),
        ("initial_padding:100", 100, 1),
        ("initial_padding:100,padding:7", 7, 7),
        ("pad_to_block_boundary", 65536, 65536),
        ("pad_to_block_boundary:false", 1, 1),
    ],
)
def test_the_text_chooses_initial_and_final_padding(text, initial, final):
    options = parse_options(text)
    assert (options.initial_padding, options.final_padding) == (initial, final)


@pytest.mark.parametrize(
    ("text", "transpose", "bucket_size"),
    [
        ("", False, 1 << 20),
        ("transpose", True, 1 << 20),
        ("transpose:true,chunk_size:100,bucket_fraction:0.255", True, 26),
        ("transpose,bucket_fraction:0", True, 1),
        ("transpose:false", False, 1 << 20),
        ("transpose,uncompressed", True, None),
    ],
)
def test_the_text_chooses_transposition_and_bucket_size(text, transpose, bucket_size):
    options = parse_options(text)
    assert (options.transpose, options.bucket_size) == (transpose, bucket_size)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed:11", "Unknown option 'speed', expected one of: default, transpose, uncompressed"),
        ("Brotli", "Unknown option 'Brotli'"),
        (" brotli", "Unknown option ' brotli'"),
        ("brotli,brotli", "Option brotli is present more than once"),
        ("brotli,zstd", "Option zstd conflicts with option brotli"),
        ("brotli:12", "Option brotli: '12' is invalid, expected an integer from 0 to 11"),
        ("brotli:six", "Option brotli: 'six' is invalid"),
        ("zstd:23", "Option zstd: '23' is invalid, expected an integer from -131072 to 22"),
        ("uncompressed:1", "Option uncompressed: '1' is invalid, expected no value"),
        ("transpose:yes", "Option transpose: 'yes' is invalid"),
        ("zstd,default", "Option default must be the first"),
        ("window_log", "Option window_log: '' is invalid"),
        ("window_log:9", "Option window_log: '9' is invalid"),
        ("window_log:31", "Option window_log: '31' is invalid, expected 'at most 30"),
        ("uncompressed,window_log:auto", "Option window_log conflicts with option uncompressed"),
        ("snappy,window_log:auto", "Option window_log conflicts with option snappy"),
        ("snappy:3", "Option snappy: '3' is invalid, expected an integer from 1 to 2"),
        ("chunk_size:0", "Option chunk_size: '0' is invalid, expected a size"),
        ("chunk_size:0.4", "Option chunk_size"),
        ("chunk_size:-1", "Option chunk_size"),
        ("chunk_size:1KB", "Option chunk_size"),
        ("chunk_size:nan", "Option chunk_size"),
        ("bucket_fraction", "Option bucket_fraction: '' is invalid"),
        ("bucket_fraction:1.1", "Option bucket_fraction"),
        ("bucket_fraction:nan", "Option bucket_fraction"),
        ("parallelism:-1", "Option parallelism"),
        ("parallelism:\u0663", "Option parallelism"),  # A digit, but not an ASCII one.
        ("chunk_size:\u0663K", "Option chunk_size"),
        ("bucket_fraction:\u0660", "Option bucket_fraction"),
        ("bucket_fraction:0_1", "Option bucket_fraction"),
        ("brotli_encoder:mine", "Option brotli_encoder: 'mine' is invalid"),
    ],
)
def test_invalid_options_are_named_with_the_fault(text, message):
    with pytest.raises(riegeli.InvalidArgumentError) as error:
        parse_options(text)
    assert message.replace("'at most", "at most") in str(error.value)


def test_unsupported_options_raise_an_unimplemented_error():
    with pytest.raises(
        riegeli.UnimplementedError, match="no Python package does; the largest is 24"
    ):
        parse_options("brotli,window_log:25")
