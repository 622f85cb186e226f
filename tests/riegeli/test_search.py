"""Searching sorted records."""

import io

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

import riegeli
from riegeli import RecordPosition, RecordReader, RecordsMetadata, RecordWriter

# A record without a number, which has no order.
NO_NUMBER = b"-"


def write(records, options="uncompressed,chunk_size:30"):
    file = io.BytesIO()
    positions = []
    with RecordWriter(file, owns_dest=False, options=options) as writer:
        for record in records:
            writer.write_record(record)
            positions.append(writer.last_pos)
    return file, positions


def compare(target):
    def test(record):
        if record == NO_NUMBER:
            return None
        return (int(record) > target) - (int(record) < target)

    return test


@settings(max_examples=25)
@given(
    values=st.lists(st.integers(0, 50), max_size=60).map(sorted),
    gaps=st.sets(st.integers(0, 59)),
    target=st.integers(-1, 51),
    chunk_size=st.sampled_from([1, 30, 100, 10_000]),
)
def test_a_search_equals_a_scan_of_all_records(values, gaps, target, chunk_size):
    records = [str(value).encode() for value in values]
    for gap in gaps:
        records.insert(gap, NO_NUMBER)
    file, positions = write(records, f"uncompressed,chunk_size:{chunk_size}")
    positions_read = []

    def test(record):
        positions_read.append(reader.last_pos)
        return compare(target)(record)

    with RecordReader(file) as reader:
        answer = reader.search_for_record(test)
        with pytest.raises(riegeli.FailedPreconditionError):
            _ = reader.last_pos
        actual = reader.read_record()
        if target in values:
            assert (answer, actual) == (0, str(target).encode())
        elif any(value > target for value in values):
            next_value = next(value for value in values if value > target)
            assert (answer, actual) == (1, str(next_value).encode())
            index = records.index(str(next_value).encode())
            assert reader.last_pos == positions[index]
        else:
            assert (answer, actual) == (-1 if values else None, None)
    assert len(set(positions_read)) == len(positions_read)


def test_a_search_compares_few_of_many_records():
    file, _ = write([str(i).encode() for i in range(20_000)], "uncompressed,chunk_size:1000")
    compared = []

    def test(record):
        compared.append(record)
        return compare(12_345)(record)

    with RecordReader(file) as reader:
        assert reader.search_for_record(test) == 0
        assert reader.read_record() == b"12345"
    assert len(compared) < 25


def test_a_search_can_use_the_reader_itself():
    file, positions = write([b"1", b"3", b"5"])
    with RecordReader(file) as reader:
        assert reader.search(lambda reader: compare(3)(reader.read_record())) == 0
        assert reader.pos == positions[1]
        # A test may seek.
        assert reader.search(lambda reader: reader.seek(RecordPosition(0, 0))) is None


@pytest.mark.parametrize("records", [[], [NO_NUMBER] * 10])
def test_a_search_without_comparable_records_finds_nothing(records):
    file, _ = write(records)
    with RecordReader(file) as reader:
        assert reader.search_for_record(compare(1)) is None
        assert reader.read_record() is None


def test_the_test_of_a_search_can_stop_or_fail():
    file, _ = write([b"1", b"2"])
    reader = RecordReader(file)

    def give_up(record):
        raise StopIteration

    def fail(record):
        raise ZeroDivisionError

    assert reader.search_for_record(give_up) is None
    assert reader.search(give_up) is None
    with pytest.raises(ZeroDivisionError):
        reader.search_for_record(fail)
    with pytest.raises(TypeError, match="must return an int or None, got 'after'"):
        reader.search_for_record(lambda record: "after")
    assert reader.search_for_record(compare(2)) == 0


def make_messages(values):
    """Returns a message for each value, and invalid bytes for None."""
    return [
        b"\xff" if value is None else RecordsMetadata(num_records=value).SerializeToString()
        for value in values
    ]


def compare_message(target):
    return lambda m: (m.num_records > target) - (m.num_records < target)


@pytest.mark.parametrize("chunk_size", [1, 1000])
def test_searching_finds_messages_in_order(chunk_size):
    options = f"zstd,chunk_size:{chunk_size}"
    file, positions = write(make_messages([1, 3, 5, 7]), options)
    with RecordReader(file) as reader:
        for target, answer, index in [(5, 0, 2), (4, 1, 2), (0, 1, 0)]:
            assert reader.search_for_message(RecordsMetadata, compare_message(target)) == answer
            assert reader.pos == positions[index]
        assert reader.search_for_message(RecordsMetadata, compare_message(9)) == -1


@pytest.mark.parametrize("chunk_size", [1, 1000])
def test_records_that_are_not_messages_are_skipped_if_recovery_is_on(chunk_size):
    file, positions = write(make_messages([None, 1, None, 3]), f"zstd,chunk_size:{chunk_size}")
    with RecordReader(file, owns_src=False) as reader:
        with pytest.raises(DecodeError):
            reader.search_for_message(RecordsMetadata, compare_message(2))
    regions = []
    with RecordReader(file, owns_src=False, recovery=regions.append) as reader:
        assert reader.search_for_message(RecordsMetadata, compare_message(2)) == 1
        assert reader.pos == positions[3]
    assert {region.begin for region in regions} <= {positions[0].numeric, positions[2].numeric}
    assert regions

    def stop(region):
        raise StopIteration

    with RecordReader(file, recovery=stop) as reader:
        assert reader.search_for_message(RecordsMetadata, compare_message(2)) is None


@pytest.mark.slow
@given(st.data())
def test_a_search_around_damage_finds_every_readable_record(data):
    values = range(0, 6000, 2)
    file, positions = write([str(i).encode().zfill(50) for i in values], "zstd,chunk_size:2000")
    damaged = bytearray(file.getvalue())
    position = data.draw(st.integers(64, len(damaged) - 1))
    damaged[position] ^= 1
    target = data.draw(st.integers(-1, 6001))
    regions = []
    with RecordReader(io.BytesIO(bytes(damaged)), recovery=regions.append) as reader:
        answer = reader.search_for_record(compare(target))
        actual = reader.read_record()
        lost_values = {
            value
            for value, position in zip(values, positions)
            if any(region.begin <= position.numeric < region.end for region in regions)
        }
        readable_values = [value for value in values if value not in lost_values]
        expected = next((value for value in readable_values if value >= target), None)
        if expected is None:
            assert answer == (-1 if readable_values else None)
        else:
            assert answer == int(expected != target)
        assert actual == (None if expected is None else str(expected).encode().zfill(50))


def test_a_search_of_a_cut_file_ends_where_its_last_chunk_begins():
    file, positions = write([str(i).encode() for i in range(10)], "uncompressed,chunk_size:1")
    cut_off = io.BytesIO(file.getvalue()[:-1])
    reader = RecordReader(cut_off)
    assert reader.search_for_record(compare(20)) == 1
    assert reader.pos == RecordPosition(positions[9].chunk_begin, 0)
    assert reader.read_record() is None
    assert reader.search_for_record(compare(8)) == 0


def test_a_search_without_random_access_is_refused():
    file, _ = write([b"1"])
    file.seek(0)
    with RecordReader(file, assumed_pos=0) as reader:
        with pytest.raises(riegeli.UnimplementedError, match="random access"):
            reader.search_for_record(compare(1))
