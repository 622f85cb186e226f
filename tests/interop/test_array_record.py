"""Riegeli files go both ways between this project and array_record, which has Google's C++.

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


def number(field, value):
    return tag(field, 0) + varint(value)


def add_index(path, records, positions):
    """Appends what array_record looks for at the end: where what is, and where that is."""
    chunks = {}
    for record, position in zip(records, positions, strict=True):
        size, count = chunks.get(position.chunk_begin, (0, 0))
        chunks[position.chunk_begin] = (size + len(record), count + 1)
    about = number(1, 1) + number(2, len(chunks)) + number(3, len(records))
    index = [tag(1, 2) + varint(len(about)) + about]
    for begin, (size, count) in chunks.items():
        index.append(number(1, begin) + number(2, size) + number(3, count))
    pointer = number(1, append(path, index)) + number(2, 0x71930E704FDAE05E)
    append(path, [pointer] * 3)


def append(path, records):
    """Appends one chunk, padded to whole blocks; returns where it begins."""
    options = "uncompressed,chunk_size:1G,final_padding"
    with riegeli.RecordWriter(path.open("ab"), options=options) as writer:
        writer.write_records(records)
        return writer.last_pos.chunk_begin


def test_we_read_what_it_writes(tmp_path):
    path = tmp_path / "file"
    for seed in seeds():
        rng = random.Random(seed)
        expected = records(rng)
        options, _, _ = array_record_options(rng)
        write_with_array_record(path, options, expected)
        with riegeli.RecordReader(path) as reader:
            got = [reader.read_record() for _ in expected]
            index = list(reader.read_records())
        assert got == expected, f"seed {seed}, {options}"
        assert len(index) >= 4, f"seed {seed}, {options}"


def test_array_record_reads_what_we_write(tmp_path):
    path = tmp_path / "file"
    for seed in seeds():
        rng = random.Random(seed)
        expected = records(rng)
        # It wants as many records in all chunks but the last.
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
                got = [reader.read() for _ in expected]
            else:
                got = list(reader.read_all()) if expected else []
            assert got == expected, f"seed {seed}, {options}"
            reader.close()


def chunks_of_records(file):
    reader = ChunkReader(SeekableSource(file), 0)
    while (chunk := reader.read_chunk()) is not None:
        if chunk.num_records:
            yield chunk


def unpacked(chunk):
    """The decompressed content of a chunk, and the sizes of its compressed buckets."""
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
    # The header of a transposed chunk has the sizes of the buckets as they are stored.
    num_buckets, end = read_varint(first, 0)
    num_buffers, end = read_varint(first, end)
    buckets = []
    for _ in range(num_buckets):
        size, end = read_varint(first, end)
        buckets.append(unpack(size))
    return num_buffers, first[end:], buckets, unpack(len(data) - position)


def test_we_write_the_same_bytes(tmp_path):
    """With the same options: always before compression, and after it if the libraries agree."""
    path = tmp_path / "file"
    same, total = Counter(), Counter()
    for seed in seeds():
        rng = random.Random(seed)
        content = records(rng) or [b""]
        theirs, ours, group_size = array_record_options(rng)
        if brotli_window(ours) > 24:
            continue  # Cannot be written here.
        write_with_array_record(path, theirs, content)
        file = io.BytesIO()
        with riegeli.RecordWriter(file, owns_dest=False, options=ours) as writer:
            for begin in range(0, len(content), group_size):
                writer.write_records(content[begin : begin + group_size])
                writer.flush()
        is_same = path.read_bytes().startswith(file.getvalue())
        kind = kind_of(ours)
        total[kind] += 1
        same[kind] += is_same
        if "uncompressed" in kind:
            assert is_same, f"seed {seed}, {theirs}"
        with path.open("rb") as original:
            for their, our in zip(chunks_of_records(original), chunks_of_records(file)):
                assert unpacked(our) == unpacked(their), f"seed {seed}, {theirs}"
    print("\n".join(f"{kind}: {same[kind]} of {total[kind]} the same" for kind in sorted(total)))


def test_the_golden_files_can_be_made_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(GOLDEN)
    spec = importlib.util.spec_from_file_location("maker", GOLDEN / "make_array_record.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    for name, options in maker.FILES.items():
        golden = GOLDEN / "array_record_0_8_6" / f"{name}.array_record"
        maker.write(tmp_path / golden.name, options, maker.array_records.RECORDS)
        assert (tmp_path / golden.name).read_bytes() == golden.read_bytes()
