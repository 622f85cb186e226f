"""Reading some fields of messages."""

import io

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st
from proto_records import field, flat_fields, with_length
from riegeli_internals import to_scope

import riegeli
from riegeli import EXISTENCE_ONLY, RecordReader, RecordWriter


@pytest.mark.parametrize(
    ("paths", "scope"),
    [
        (None, True),
        ([], {}),
        ([[]], True),
        ([[1], []], True),
        ([[0]], {}),
        ([[1]], {1: True}),
        ([[1, 0]], {1: None}),
        ([[1, 2, 3], [1, 4]], {1: {2: {3: True}, 4: True}}),
        # A whole field includes its subfields, and these its existence.
        ([[1], [1, 2]], {1: True}),
        ([[1, 2], [1]], {1: True}),
        ([[1, 2], [1, 0]], {1: {2: True}}),
        ([[1, 0], [1, 2]], {1: {2: True}}),
        ([[1, 0], [1]], {1: True}),
        ([[1], [1, 0]], {1: True}),
        (iter([(2**29 - 1,)]), {2**29 - 1: True}),
    ],
)
def test_paths_become_a_scope(paths, scope):
    assert to_scope(paths) == scope


@pytest.mark.parametrize(
    ("paths", "error", "message"),
    [
        ([["id"]], TypeError, "a field number is an int, got 'id'"),
        ([[1.0]], TypeError, "got 1.0 in the path"),
        ([1], TypeError, "not iterable"),
        ([[-1]], OverflowError, "field number -1 in the path"),
        ([[1, 2**29]], OverflowError, "is not from 0 to 536870911"),
        ([[1, 0, 2]], riegeli.InvalidArgumentError, "EXISTENCE_ONLY can only be the last"),
    ],
)
def test_invalid_paths_of_fields_are_refused(paths, error, message):
    for call in (
        lambda: RecordReader(io.BytesIO(), field_projection=paths),
        lambda: RecordReader(io.BytesIO()).set_field_projection(paths),
    ):
        with pytest.raises(error, match=message):
            call()


def write(records, options="transpose,zstd,chunk_size:500"):
    file = io.BytesIO()
    with RecordWriter(file, owns_dest=False, options=options) as writer:
        writer.write_records(records)
    return file.getvalue()


def read(data, projection):
    joined = []
    with RecordReader(io.BytesIO(data), field_projection=projection) as reader:
        while (batch := reader.read_joined(3)).sizes:
            joined += batch.cut()
    with RecordReader(io.BytesIO(data), field_projection=projection) as reader:
        assert list(reader.read_records()) == joined
    return joined


Message = descriptor_pb2.DescriptorProto
MESSAGES = [
    Message(
        name=f"message {i}",
        field=[Message().field.add(name=f"field {j}", number=j) for j in range(i)],
    )
    for i in range(10)
]
NAME, FIELD, FIELD_NUMBER = 1, 2, 3


@pytest.mark.parametrize("bucket_fraction", [0, 1])
def test_only_the_requested_fields_of_messages_are_read(bucket_fraction):
    serialized = [message.SerializeToString() for message in MESSAGES]
    data = write(serialized, f"transpose,brotli,bucket_fraction:{bucket_fraction}")
    names = [Message.FromString(record) for record in read(data, [[NAME]])]
    assert names == [Message(name=message.name) for message in MESSAGES]

    paths = [[NAME, EXISTENCE_ONLY], [FIELD, FIELD_NUMBER]]
    for message, record in zip(MESSAGES, read(data, paths)):
        actual = Message.FromString(record)
        assert actual.HasField("name")
        assert actual.name == ""
        assert [f.number for f in actual.field] == [f.number for f in message.field]
        assert not any(f.HasField("name") for f in actual.field)

    counts = [Message.FromString(record) for record in read(data, [[FIELD, EXISTENCE_ONLY]])]
    assert counts == [Message(field=[{}] * i) for i in range(10)]
    assert read(data, []) == [b""] * 10
    assert read(data, [[]]) == serialized


@pytest.mark.slow
@given(
    st.lists(st.lists(st.tuples(st.integers(1, 4), flat_fields), max_size=6), max_size=10),
    st.sets(st.integers(1, 4)),
)
def test_fields_in_any_order_are_projected(messages, selected):
    def record(fields):
        return b"".join(field(tag, 2, with_length(b"\x0c" + value)) for tag, value in fields)

    expected = [record([f for f in fields if f[0] in selected]) for fields in messages]
    assert read(write(map(record, messages)), [[tag] for tag in selected]) == expected


@pytest.mark.parametrize("options", ["uncompressed", "zstd"])
def test_simple_chunks_have_all_fields(options):
    serialized = [message.SerializeToString() for message in MESSAGES]
    assert read(write(serialized, options), [[NAME]]) == serialized


def test_records_that_are_no_messages_are_read_back():
    assert read(write([b"\xff", b"\x08\x01", b"\x10\x01"]), [[1]]) == [b"\xff", b"\x08\x01", b""]


def read_one_joined(reader):
    return next(iter(reader.read_joined(1).cut()), None)


@pytest.mark.parametrize("assumed_pos", [None, 0])
@pytest.mark.parametrize("read_one", [RecordReader.read_record, read_one_joined])
def test_a_new_projection_applies_from_the_next_record(assumed_pos, read_one):
    serialized = [message.SerializeToString() for message in MESSAGES]
    data = write(serialized, "transpose,zstd,chunk_size:300")
    names = [Message(name=message.name).SerializeToString() for message in MESSAGES]
    with RecordReader(io.BytesIO(data), assumed_pos=assumed_pos) as reader:
        for i in range(10):
            reader.set_field_projection([[NAME]] if i % 3 else None)
            pos = reader.pos
            assert read_one(reader) == (names[i] if i % 3 else serialized[i])
            assert pos <= reader.last_pos
            last_pos = reader.last_pos
            reader.set_field_projection([])
            assert reader.last_pos == last_pos
        assert read_one(reader) is None


def test_seeking_keeps_the_projection():
    data = write([b"\x08\x01\x10\x02"] * 50, "transpose,chunk_size:100")
    with RecordReader(io.BytesIO(data), field_projection=[[2]]) as reader:
        assert list(reader.read_records()) == [b"\x10\x02"] * 50
        assert reader.seek_back()
        assert reader.read_record() == b"\x10\x02"
        reader.set_field_projection(None)
        assert reader.seek_back()
        assert reader.read_record() == b"\x08\x01\x10\x02"


def test_a_closed_reader_refuses_a_projection():
    reader = RecordReader(io.BytesIO())
    reader.close()
    with pytest.raises(riegeli.FailedPreconditionError, match="closed"):
        reader.set_field_projection(None)
