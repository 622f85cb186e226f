"""Decoding whole files gives the records that a reader gives."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

import riegeli
from riegeli.records import decode_file as module

OPTIONS = ("uncompressed", "zstd:1", "brotli:1", "transpose,zstd:1", "zstd:1,chunk_size:10")


def make_file(records, options="uncompressed"):
    file = io.BytesIO()
    with riegeli.RecordWriter(file, options=options, owns_dest=False) as writer:
        writer.write_records(records)
    return file.getvalue()


@given(st.lists(st.binary(max_size=50), max_size=20), st.sampled_from(OPTIONS))
def test_decoding_returns_the_records_that_were_written(records, options):
    assert riegeli.decode_file(make_file(records, options)) == records


def test_only_small_files_take_the_fast_path():
    assert module._decode_small_file(make_file([b"a", b""], "zstd:3")) == [b"a", b""]
    records = [bytes([i]) * 1000 for i in range(100)]
    assert module._decode_small_file(make_file(records)) is None
    assert riegeli.decode_file(make_file(records)) == records


def test_a_file_that_ends_at_a_block_boundary_is_decoded():
    records = [b"a" * (65536 - 24 - 40 - 40 - 1 - 1 - 3)]
    content = make_file(records)
    assert len(content) == 65536
    assert module._decode_small_file(content) == records


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_each_flipped_bit_is_an_error(options):
    records = [b"one", b"two"]
    content = make_file(records, options)
    for i in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[i // 8] ^= 1 << i % 8
        with pytest.raises(riegeli.InvalidArgumentError):
            riegeli.decode_file(bytes(damaged))


def test_a_cut_file_is_an_error_and_an_empty_file_is_not():
    content = make_file([b"one"], "zstd:3")
    for size in range(1, len(content)):
        if size != 64:  # The size of a file without records.
            with pytest.raises(riegeli.InvalidArgumentError):
                riegeli.decode_file(content[:size])
    assert riegeli.decode_file(content[:64]) == []
    assert riegeli.decode_file(b"") == []
