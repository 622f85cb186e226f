"""Riegeli files are exchanged with array_record, which has Google's C++.

An array_record file is a Riegeli file with an index at its end. Run with `-s` to see the counts.
"""

import importlib.util
import io
import random
from collections import Counter
from pathlib import Path

import pytest
from interop import seeds
from random_records import (
    array_record_options,
    brotli_window,
    kind_of,
    records,
    riegeli_options,
    tag,
    varint,
)
from riegeli_internals import ChunkReader, ChunkType, SeekableSource, decompress

import riegeli
from riegeli.varints import read_varint

array_record = pytest.importorskip("array_record.python.array_record_module")

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden"


def write_with_array_record(path, options, records):
    writer = array_record.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()


def varint_field(field, value):
    return tag(field, 0) + varint(value)


def add_index(path, records, positions):
    """Appends the index of array_record: the offsets of chunks, and the offset of the index."""
    chunks = {}
    for record, position in zip(records, positions, strict=True):
        size, count = chunks.get(position.chunk_begin, (0, 0))
        chunks[position.chunk_begin] = (size + len(record), count + 1)
    summary = varint_field(1, 1) + varint_field(2, len(chunks)) + varint_field(3, len(records))
    index = [tag(1, 2) + varint(len(summary)) + summary]
    for begin, (size, count) in chunks.items():
        index.append(varint_field(1, begin) + varint_field(2, size) + varint_field(3, count))
    pointer = varint_field(1, append(path, index)) + varint_field(2, 0x71930E704FDAE05E)
    append(path, [pointer] * 3)


def append(path, records):
    """Appends one chunk, padded to whole blocks; returns its offset."""
    options = "uncompressed,chunk_size:1G,final_padding"
    with riegeli.RecordWriter(path.open("ab"), options=options) as writer:
        writer.write_records(records)
        return writer.last_pos.chunk_begin


def test_files_of_array_record_are_read(tmp_path):
    path = tmp_path / "file"
    for seed in seeds():
        rng = random.Random(seed)
        expected = records(rng)
        options, _, _ = array_record_options(rng)
        write_with_array_record(path, options, expected)
        with riegeli.RecordReader(path) as reader:
            actual = [reader.read_record() for _ in expected]
            index = list(reader.read_records())
        assert actual == expected, f"seed {seed}, {options}"
        assert len(index) >= 4, f"seed {seed}, {options}"


def test_array_record_reads_written_files(tmp_path):
    path = tmp_path / "file"
    for seed in seeds():
        rng = random.Random(seed)
        expected = records(rng)
        # It requires equal numbers of records in all chunks except the last one.
        group_size = rng.choice([1, 10, rng.randint(1, 200), 10_000])
        options = riegeli_options(rng, newest=True, chunk_size="chunk_size:1G")
        metadata = rng.choice([None, b"", rng.randbytes(50)])
        positions = []
        with riegeli.RecordWriter(path, options=options, serialized_metadata=metadata) as writer:
            for i, record in enumerate(expected, 1):
                writer.write_record(record)
                positions.append(writer.last_pos)
                if i % group_size == 0:
                    writer.flush()
        add_index(path, expected, positions)
        for reading in ("", "max_parallelism:0", "readahead_buffer_size:0,max_parallelism:0"):
            reader = array_record.ArrayRecordReader(str(path), reading)
            assert reader.num_records() == len(expected), f"seed {seed}, {options}"
            if reading:
                actual = [reader.read() for _ in expected]
            else:
                actual = list(reader.read_all()) if expected else []
            assert actual == expected, f"seed {seed}, {options}"
            reader.close()


def chunks_of_records(file):
    reader = ChunkReader(SeekableSource(file), 0)
    while (chunk := reader.read_chunk()) is not None:
        if chunk.num_records:
            yield chunk


def decompressed(chunk):
    """The decompressed content of a chunk, without the sizes of compressed buckets."""
    data = bytes(chunk.data)
    position = 1

    def unpack(size):
        nonlocal position
        begin, position = position, position + size
        return bytes(decompress(data[0], data[begin:position], 1 << 40))

    size, position = read_varint(data, position)
    first = unpack(size)
    if chunk.chunk_type == ChunkType.SIMPLE:
        return first, unpack(len(data) - position)
    # The header of a transposed chunk has the sizes of compressed buckets.
    num_buckets, end = read_varint(first, 0)
    num_buffers, end = read_varint(first, end)
    buckets = []
    for _ in range(num_buckets):
        size, end = read_varint(first, end)
        buckets.append(unpack(size))
    return num_buffers, first[end:], buckets, unpack(len(data) - position)


def test_written_chunks_equal_those_of_array_record(tmp_path):
    """Compares content, and without compression also bytes; counts equal files."""
    path = tmp_path / "file"
    same, total = Counter(), Counter()
    for seed in seeds():
        rng = random.Random(seed)
        content = records(rng) or [b""]
        their_options, own_options, group_size = array_record_options(rng)
        if brotli_window(own_options) > 24:
            continue  # Cannot be written here.
        write_with_array_record(path, their_options, content)
        file = io.BytesIO()
        with riegeli.RecordWriter(file, owns_dest=False, options=own_options) as writer:
            for begin in range(0, len(content), group_size):
                writer.write_records(content[begin : begin + group_size])
                writer.flush()
        is_same = path.read_bytes().startswith(file.getvalue())
        kind = kind_of(own_options)
        total[kind] += 1
        same[kind] += is_same
        if "uncompressed" in kind:
            assert is_same, f"seed {seed}, {their_options}"
        with path.open("rb") as original:
            for their, our in zip(chunks_of_records(original), chunks_of_records(file)):
                assert decompressed(our) == decompressed(their), f"seed {seed}, {their_options}"
    print("\n".join(f"{kind}: {same[kind]} of {total[kind]} the same" for kind in sorted(total)))


def test_makers_reproduce_the_golden_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(GOLDEN)
    spec = importlib.util.spec_from_file_location("maker", GOLDEN / "make_array_record.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    for name, options in maker.FILES.items():
        golden = GOLDEN / "array_record_0_8_6" / f"{name}.array_record"
        maker.write(tmp_path / golden.name, options, maker.array_records.RECORDS)
        assert (tmp_path / golden.name).read_bytes() == golden.read_bytes()
