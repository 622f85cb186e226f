"""Chunks are copied from file to file as they are stored."""

import io

import pytest

import riegeli


def write(records, options="chunk_size:40"):
    file = io.BytesIO()
    with riegeli.RecordWriter(file, owns_dest=False, options=options) as writer:
        positions = []
        for record in records:
            writer.write_record(record)
            positions.append(writer.last_pos.numeric)
    return file.getvalue(), positions


@pytest.mark.parametrize("options", ["chunk_size:40", "transpose,brotli,chunk_size:40"])
def test_chunks_can_be_copied_between_records(options):
    records = [bytes([index]) * (10 + 7000 * (index == 20)) for index in range(40)]
    content, positions = write(records, options)
    copy = io.BytesIO()
    expected = [b"new"]
    with (
        riegeli.RecordReader(io.BytesIO(content)) as reader,
        riegeli.RecordWriter(copy, owns_dest=False) as writer,
    ):
        writer.write_record(b"new")
        index = 5
        while index < len(records):
            chunk = reader.read_chunk(positions[index])
            first_index = positions.index(chunk.begin)
            assert first_index <= index < first_index + chunk.num_records
            writer.write_chunk(chunk)
            expected += records[first_index : first_index + chunk.num_records]
            assert writer.last_pos.record_index == chunk.num_records - 1
            index = first_index + chunk.num_records
        writer.write_record(b"last")
        expected.append(b"last")
    with riegeli.RecordReader(io.BytesIO(copy.getvalue())) as reader:
        assert list(reader.read_records()) == expected


def test_reading_goes_on_after_a_copied_chunk():
    content, positions = write([b"a" * 30, b"b" * 30, b"c" * 30])
    with riegeli.RecordReader(io.BytesIO(content)) as reader:
        assert reader.read_record() == b"a" * 30
        chunk = reader.read_chunk(positions[1])
        assert reader.read_record() == b"c" * 30
        assert reader.read_chunk(len(content)) is None
        reader.seek_numeric(chunk.begin)
        assert reader.read_record() == b"b" * 30


def test_damage_in_a_chunk_is_reported():
    content, positions = write([b"a" * 30, b"b" * 30])
    damaged = content[: positions[1] + 45] + b"?" + content[positions[1] + 46 :]
    with riegeli.RecordReader(io.BytesIO(damaged)) as reader:
        reader.read_chunk(positions[0])
        with pytest.raises(riegeli.InvalidArgumentError):
            reader.read_chunk(positions[1])
