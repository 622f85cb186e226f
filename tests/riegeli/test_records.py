"""Writing and reading the records of whole files."""

import io
import random
from functools import partial

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

import riegeli
from riegeli import FlushType, RecordPosition, RecordReader, RecordsMetadata, RecordWriter

OPTIONS = [
    "",
    "brotli:1",
    "zstd",
    "snappy",
    "uncompressed",
    "zstd,chunk_size:100",
    "uncompressed,padding",
]


def write(records, options="", **kwargs):
    """Returns the bytes of a file with `records`, and the position of each."""
    file = io.BytesIO()
    positions = []
    with RecordWriter(file, owns_dest=False, options=options, **kwargs) as writer:
        for record in records:
            writer.write_record(record)
            positions.append(writer.last_pos)
    return file.getvalue(), positions


def read(data):
    with RecordReader(io.BytesIO(data)) as reader:
        return list(reader.read_records())


def random_records(count, seed=0):
    generator = random.Random(seed)
    return [generator.randbytes(generator.randrange(3000)) for _ in range(count)]


class ForwardOnly:
    """A source like a pipe: it cannot seek, and gives a few bytes at a time."""

    def __init__(self, data):
        self._file = io.BytesIO(data)

    def close(self):
        self._file.close()

    def read(self, size):
        return self._file.read(min(size, 1000))


@pytest.mark.parametrize("options", OPTIONS)
def test_records_are_read_back_across_blocks_and_chunks(options):
    records = [*random_records(200), b"", bytes(400_000), b"last"]
    data, positions = write(records, options)
    with RecordReader(io.BytesIO(data)) as reader:
        for record, position in zip(records, positions):
            assert reader.pos <= position
            assert reader.read_record() == record
            assert reader.last_pos == position
        assert reader.read_record() is None
    assert positions == sorted(positions)
    assert len({position.numeric for position in positions}) == len(records)


def test_many_empty_records_take_up_room_for_their_positions():
    data, positions = write([b""] * 70_000, "zstd")
    assert len(data) >= positions[-1].numeric
    assert read(data) == [b""] * 70_000


def test_a_file_without_records_can_be_read():
    assert read(write([])[0]) == []
    assert read(b"") == []


def test_paths_work_like_files(tmp_path):
    path = tmp_path / "données.riegeli"
    with RecordWriter(path) as writer:
        writer.write_record(b"text")
    with RecordReader(str(path)) as reader:
        assert reader.read_record() == b"text"
        assert reader.size() == path.stat().st_size
    assert reader.src.closed


def test_a_file_object_that_is_not_owned_stays_open():
    file = io.BytesIO()
    RecordWriter(file, owns_dest=False).close()
    reader = RecordReader(file, owns_src=False)
    reader.close()
    assert not file.closed
    RecordReader(file).close()
    assert file.closed


def test_any_contiguous_buffer_is_a_record():
    view = memoryview(b"abcdef")
    assert read(write([bytearray(b"ab"), view[2:4]])[0]) == [b"ab", b"cd"]
    writer = RecordWriter(io.BytesIO())
    for value in ("text", None, 5):
        with pytest.raises(TypeError):
            writer.write_record(value)
    with pytest.raises(BufferError):
        writer.write_record(view[::2])


def test_chunks_are_closed_at_their_size():
    # Each record counts 8 bytes more than it has: three fit 35000, as in Google's own tests.
    _, positions = write([bytes(10_000)] * 23, "uncompressed,chunk_size:35000")
    assert [position.record_index for position in positions] == [i % 3 for i in range(23)]
    assert len({position.chunk_begin for position in positions}) == 8


def test_a_full_chunk_is_closed_at_once():
    file = io.BytesIO()
    writer = RecordWriter(file, owns_dest=False, options="uncompressed,chunk_size:100")
    writer.write_record(bytes(200))
    assert writer.pos == RecordPosition(len(file.getvalue()), 0)
    assert writer.last_pos == RecordPosition(64, 0)


def test_flush_makes_records_readable_while_writing(tmp_path):
    path = tmp_path / "records"
    writer = RecordWriter(path)
    for flush_type in FlushType:
        writer.write_record(flush_type.name.encode())
        writer.flush(flush_type)
        with RecordReader(path) as reader:
            assert list(reader.read_records())[-1] == flush_type.name.encode()
    size = writer.estimated_size()
    writer.flush()
    assert writer.estimated_size() == size == path.stat().st_size
    writer.close()
    assert writer.last_pos < writer.pos
    with pytest.raises(TypeError, match="FlushType"):
        RecordWriter(io.BytesIO()).flush(1)


@pytest.mark.parametrize("options", ["zstd", "uncompressed,padding", "brotli,initial_padding:100"])
def test_records_can_be_appended_to_a_file(options, tmp_path):
    path = tmp_path / "records"
    records = random_records(50)
    for batch in (records[:20], records[20:21], records[21:]):
        with RecordWriter(open(path, "ab"), options=options) as writer:
            writer.write_records(batch)
    with RecordReader(path) as reader:
        assert list(reader.read_records()) == records


@pytest.mark.parametrize("max_records", [1, 3, 7, 1000])
def test_batches_have_records_of_one_chunk(max_records):
    records = random_records(50)
    content, _ = write(records, "chunk_size:200")
    with RecordReader(io.BytesIO(content)) as reader:
        actual = []
        while batch := reader.read_batch(max_records):
            assert len(batch) <= max_records
            position = reader.last_pos
            assert position.record_index >= len(batch) - 1
            actual += batch
        assert actual == records
        reader.seek(position)
        assert reader.read_batch() == records[-1:]
        with pytest.raises(ValueError, match="max_records must be positive, got 0"):
            reader.read_batch(0)


@pytest.mark.parametrize("options", ["", "zstd", "snappy", "uncompressed", "transpose"])
@given(data=st.data())
def test_joined_records_are_those_of_batches(options, data):
    size = data.draw(st.integers(1, 60))
    uniform = st.just(data.draw(st.binary(min_size=size, max_size=size)))
    record = data.draw(st.sampled_from([uniform, uniform | st.just(b""), st.binary(max_size=60)]))
    records = data.draw(st.lists(record, max_size=40))
    content = bytearray(write(records, f"{options},chunk_size:200".lstrip(","))[0])
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 4
    skipped, expected_skipped = [], []
    reader = RecordReader(io.BytesIO(content), recovery=skipped.append)
    expected = RecordReader(io.BytesIO(content), recovery=expected_skipped.append)
    calls = {
        "joined": RecordReader.read_batch,
        "into": RecordReader.read_batch,
        "batch": RecordReader.read_batch,
        "one": lambda reader, _: reader.read_record(),
        "seek": lambda reader, count: reader.seek_numeric(len(content) * count // 20),
        "back": lambda reader, _: reader.seek_back(),
    }
    for _ in range(data.draw(st.integers(1, 12))):
        count = data.draw(st.integers(1, 20))
        name = data.draw(st.sampled_from(["joined", "into", "batch", "one", "seek", "back"]))
        expected_result = attempt(calls[name], expected, count)
        if name in ("joined", "into"):
            room = bytearray(data.draw(st.integers(0, 12)) * size)
            into = memoryview(room) if name == "into" else None
            joined = attempt(partial(reader.read_joined, count, into=into, record_size=size))
            result = joined if isinstance(joined, str) else joined.cut()
            assert isinstance(joined, str) or joined.sizes == list(map(len, result))
            room[:] = b"?" * len(room)  # The reader does not read it again.
        else:
            result = attempt(calls[name], reader, count)
        assert result == expected_result
        assert (reader.pos, skipped) == (expected.pos, expected_skipped)
        assert attempt(getattr, reader, "last_pos") == attempt(getattr, expected, "last_pos")


def attempt(function, *args):
    """Returns the result of a function, or its error as text."""
    try:
        return function(*args)
    except riegeli.RiegeliError as e:
        return f"{type(e).__name__}: {e}"


def test_joined_records_of_a_whole_chunk_fill_the_buffer_of_the_caller():
    for options in ("", "zstd", "snappy", "uncompressed"):
        data, _ = write([b"ant", b"bee", b"cat"], options)
        for size, count, room, fits in [
            (3, 3, 10, True),
            (3, 2, 10, False),
            (3, 5, 8, False),
            (4, 5, 12, False),
        ]:
            into = memoryview(bytearray(room))
            with RecordReader(io.BytesIO(data)) as reader:
                joined = reader.read_joined(count, into=into, record_size=size)
            assert joined.cut() == [b"ant", b"bee", b"cat"][:count]
            assert (bytes(into[:9]) == b"antbeecat") == fits


def test_reading_joined_records_needs_a_positive_count():
    with (
        RecordReader(io.BytesIO(write([b"a"])[0])) as reader,
        pytest.raises(ValueError, match="max_records must be positive, got 0"),
    ):
        reader.read_joined(0)


def test_files_padded_to_blocks_can_be_joined():
    first, second = random_records(10, 1), random_records(10, 2)
    joined = write(first, "padding")[0] + write(second, "padding")[0]
    assert read(joined) == first + second


def test_appending_where_no_chunk_can_begin_fills_up_the_block():
    file = io.BytesIO(bytes(65536 + 7))
    file.seek(65536 + 7)
    with RecordWriter(file, owns_dest=False) as writer:
        writer.write_record(b"here")
    file.seek(2 * 65536)
    with RecordReader(file) as reader:
        assert reader.read_record() == b"here"


@pytest.mark.parametrize("options", OPTIONS)
def test_a_reader_seeks_every_record(options):
    records = [*random_records(80), b"", b"", bytes(200_000)]
    data, positions = write(records, options)
    order = list(range(len(records)))
    random.Random(1).shuffle(order)
    with RecordReader(io.BytesIO(data)) as reader:
        for i in order:
            reader.seek(positions[i])
            assert reader.pos.numeric <= positions[i].numeric
            assert reader.read_record() == records[i]
            reader.seek_numeric(positions[i].numeric)
            assert reader.read_record() == records[i]
            assert reader.last_pos == positions[i]


@given(st.data())
def test_seek_numeric_goes_to_the_record_or_the_next_chunk(data):
    sizes = data.draw(st.lists(st.integers(0, 40_000), min_size=1, max_size=12))
    file, positions = write([bytes(size) for size in sizes], "uncompressed,chunk_size:30K")
    numerics = [position.numeric for position in positions]
    with RecordReader(io.BytesIO(file)) as reader:
        for target in data.draw(st.lists(st.integers(0, len(file)), max_size=20)):
            reader.seek_numeric(target)
            record = reader.read_record()
            if target in numerics:
                expected = numerics.index(target)
            else:
                begins = [i for i, p in enumerate(positions) if p.chunk_begin >= target]
                expected = begins[0] if begins else None
            if expected is None:
                assert record is None
            else:
                assert reader.last_pos == positions[expected]


def test_seeking_past_the_records_of_a_chunk_leads_to_the_next_one():
    data, positions = write([b"a", b"b", b"c"], "uncompressed,chunk_size:20")
    with RecordReader(io.BytesIO(data)) as reader:
        reader.seek(RecordPosition(positions[0].chunk_begin, 5))
        assert reader.read_record() == b"c"


def test_seeking_past_the_end_of_the_file_is_refused():
    data, _ = write([b"a"])
    reader = RecordReader(io.BytesIO(data))
    for seek in (
        lambda: reader.seek(RecordPosition(len(data) + 1, 0)),
        lambda: reader.seek_numeric(len(data) + 1),
        lambda: reader.seek_numeric(10 * 65536),
    ):
        with pytest.raises(riegeli.InvalidArgumentError, match="exceeds the file size"):
            seek()
    reader.seek(RecordPosition(len(data), 0))
    assert reader.read_record() is None
    reader.seek_numeric(len(data))
    assert reader.read_record() is None
    with pytest.raises(TypeError, match="RecordPosition"):
        reader.seek(64)


@pytest.mark.parametrize("kind", ["cannot seek", "assumed position"])
def test_sources_that_only_go_forward_can_be_read(kind):
    records = random_records(100)
    data, positions = write(records, "zstd,chunk_size:7K")
    if kind == "cannot seek":
        reader = RecordReader(ForwardOnly(data))
    else:
        file = io.BytesIO(b"something else" + data)
        file.seek(14)
        reader = RecordReader(file, assumed_pos=0)
    with reader:
        assert not reader.supports_random_access
        assert reader.check_file_format()
        for record, position in zip(records, positions):
            assert reader.read_record() == record
            assert reader.last_pos == position
        assert reader.read_record() is None
        for call in (reader.size, reader.seek_back, lambda: reader.seek(positions[0])):
            with pytest.raises(riegeli.UnimplementedError, match="random access"):
                call()


def test_the_last_position_needs_a_record_just_read():
    data, positions = write([b"a", b"b"])
    reader = RecordReader(io.BytesIO(data))
    for call in (
        lambda: None,
        lambda: reader.seek(positions[1]),
        lambda: reader.seek_numeric(positions[1].numeric),
        reader.seek_back,
        lambda: reader.search(lambda reader: 0),
        lambda: list(reader.read_records()),
        reader.close,
    ):
        call()
        with pytest.raises(riegeli.FailedPreconditionError, match="was just read"):
            _ = reader.last_pos
        if call != reader.close:
            reader.seek(positions[0])
            reader.read_record()
            assert reader.last_pos == positions[0]


def test_closing_keeps_the_position():
    data, positions = write([b"a", b"b"])
    reader = RecordReader(io.BytesIO(data))
    reader.read_record()
    reader.close()
    assert reader.pos == positions[1]


def test_reading_and_seeking_can_be_mixed_while_iterating():
    data, positions = write([b"a", b"b", b"c"])
    with RecordReader(io.BytesIO(data)) as reader:
        records = reader.read_records()
        assert next(records) == b"a"
        reader.seek(positions[2])
        assert next(records) == b"c"
        reader.seek_back()
        assert list(records) == [b"c"]


def test_metadata_is_read_back():
    metadata = RecordsMetadata(file_comment="für alle", num_records=1)
    data, _ = write([b"a"], metadata=metadata)
    with RecordReader(io.BytesIO(data)) as reader:
        assert reader.read_metadata() == metadata
        assert reader.read_record() == b"a"
        with pytest.raises(riegeli.FailedPreconditionError, match="before anything else"):
            reader.read_metadata()
    assert read(data) == [b"a"]
    data, _ = write([], serialized_metadata=metadata.SerializeToString())
    with RecordReader(io.BytesIO(data)) as reader:
        assert reader.read_serialized_metadata() == metadata.SerializeToString()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (write([b"a"])[0], b""),
        (write([])[0], None),  # The file ends before the metadata.
        (write([], metadata=RecordsMetadata())[0], b""),
        (b"", None),
    ],
)
def test_files_without_metadata_can_be_read(data, expected):
    with RecordReader(io.BytesIO(data)) as reader:
        assert reader.read_serialized_metadata() == expected


def test_messages_and_their_type_are_read_back():
    message_type = descriptor_pb2.FieldDescriptorProto
    metadata = RecordsMetadata()
    riegeli.set_record_type(metadata, message_type)
    messages = [message_type(name=f"field {i}", number=i) for i in range(1, 6)]
    file = io.BytesIO()
    with RecordWriter(file, owns_dest=False, metadata=metadata) as writer:
        writer.write_messages(messages)
    with RecordReader(io.BytesIO(file.getvalue())) as reader:
        read_type = riegeli.get_record_type(reader.read_metadata())
        assert read_type.DESCRIPTOR.full_name == message_type.DESCRIPTOR.full_name
        assert [m.name for m in reader.read_messages(read_type)] == [m.name for m in messages]
    assert riegeli.get_record_type(RecordsMetadata()) is None


def test_a_record_that_is_no_message_can_be_skipped():
    data, _ = write([b"\xff\xff", RecordsMetadata(num_records=7).SerializeToString()])
    with RecordReader(io.BytesIO(data)) as reader:
        with pytest.raises(DecodeError):
            reader.read_message(RecordsMetadata)
        assert reader.read_message(RecordsMetadata).num_records == 7
        assert reader.read_message(RecordsMetadata) is None


def test_a_reader_goes_on_when_the_file_grows(tmp_path):
    path = tmp_path / "records"
    data, _ = write([b"first", b"second"], "uncompressed,chunk_size:10")
    path.write_bytes(data[:-3])
    with RecordReader(path) as reader:
        assert list(reader.read_records()) == [b"first"]
        path.write_bytes(data)
        assert reader.read_record() == b"second"


def test_closed_writers_and_readers_refuse_calls():
    writer = RecordWriter(io.BytesIO())
    writer.close()
    writer.close()
    with pytest.raises(riegeli.FailedPreconditionError, match="closed"):
        writer.write_record(b"a")
    with pytest.raises(riegeli.FailedPreconditionError, match="closed"):
        writer.flush()
    with pytest.raises(riegeli.FailedPreconditionError, match="no record was written"):
        _ = writer.last_pos
    reader = RecordReader(io.BytesIO())
    reader.close()
    reader.close()
    for call in (reader.read_record, reader.size, reader.check_file_format, reader.seek_back):
        with pytest.raises(riegeli.FailedPreconditionError, match="closed"):
            call()
    assert reader.pos == RecordPosition(0, 0)


def test_invalid_arguments_are_refused():
    with pytest.raises(TypeError, match="either"):
        RecordWriter(io.BytesIO(), metadata=RecordsMetadata(), serialized_metadata=b"x")
    with pytest.raises(TypeError, match="options must be str or bytes"):
        RecordWriter(io.BytesIO(), options=None)
    with pytest.raises(OverflowError):
        RecordWriter(io.BytesIO(), assumed_pos=-1)
    with pytest.raises(OverflowError):
        RecordReader(io.BytesIO(), buffer_size=-1)


def test_invalid_options_leave_an_existing_file_alone(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(b"precious")
    with pytest.raises(riegeli.InvalidArgumentError):
        RecordWriter(path, options="brotli:12")
    assert path.read_bytes() == b"precious"


def test_reprs_name_the_file(tmp_path):
    path = tmp_path / "records"
    with RecordWriter(path) as writer:
        assert str(path) in repr(writer)
    with RecordReader(path) as reader:
        assert str(path) in repr(reader)
