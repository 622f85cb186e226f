"""Transposed chunks: byte by byte as the reference writes them, and what is refused."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proto_records import field, records, with_length

import riegeli
from riegeli._files import RandomAccessSource
from riegeli._format.chunk import Chunk, ChunkType
from riegeli._format.compression import CompressionType, Compressor
from riegeli._format.options import parse_options
from riegeli._format.transposed_chunk import decode_transposed_chunk
from riegeli._format.transposed_encoder import encode_transposed_chunk
from riegeli.records._chunk_reader import ChunkReader

UNCOMPRESSED = Compressor(CompressionType.NONE)
GOLDEN = Path(__file__).parents[1] / "golden"

# Whole chunks that Google's implementation wrote.
REFERENCE = [
    (["089601"], "000c0101020202030800020100011601"),
    (
        ["089601", "0803", "ff"],
        "00160303020101020101040808030106060005010d0001031601ff0100",
    ),
    (["0a0210050a021006"], "00100101020204030e100200060700000001060505"),
    (["0b10010c"], "000d000004030b100c000405060b03"),
    ([""], "0006000001030000"),
    (
        ["1a03616263", "1a03646566", "2501020304"],
        "0010020204080408031a032504000401000201020304036465660361626301",
    ),
    (["0a026869"], "001001010101040368020e0006040500000369"),
]


def chunk_of(data, num_records, size):
    return Chunk(ChunkType.TRANSPOSED, bytes.fromhex(data), num_records, size)


def decode(data, num_records=1, size=3):
    return decode_transposed_chunk(chunk_of(data, num_records, size), num_records)


@pytest.mark.parametrize(("expected", "data"), REFERENCE)
def test_chunks_of_the_reference(expected, data):
    expected = [bytes.fromhex(record) for record in expected]
    chunk = chunk_of(data, len(expected), sum(map(len, expected)))
    assert decode_transposed_chunk(chunk, len(expected)) == expected
    assert encode_transposed_chunk(expected, UNCOMPRESSED) == chunk


def test_no_records():
    chunk = encode_transposed_chunk([], UNCOMPRESSED)
    assert chunk.data.hex() == "0006000001000000"
    assert decode_transposed_chunk(chunk, 0) == []


@given(
    st.lists(records, max_size=20),
    st.sampled_from(["uncompressed", "zstd:1", "brotli:1"]),
    st.sampled_from([None, 1, 10, 1000]),
)
def test_records_come_back(expected, options, bucket_size):
    compressor = parse_options(options).compressor
    chunk = encode_transposed_chunk(expected, compressor, bucket_size)
    assert (chunk.num_records, chunk.decoded_data_size) == (len(expected), sum(map(len, expected)))
    assert decode_transposed_chunk(chunk, len(expected)) == expected


@pytest.mark.parametrize("num_fields", [63, 64, 65, 66, 128, 300, 5000])
def test_machines_with_many_states(num_fields):
    # Each field follows each other one at most once, so that all states are in the public list.
    order = [n * step % num_fields + 1 for step in (1, 7, 11) for n in range(num_fields)]
    expected = [b"".join(field(n, 0, b"\x07") for n in order)] * 2
    chunk = encode_transposed_chunk(expected, UNCOMPRESSED)
    assert decode_transposed_chunk(chunk, 2) == expected


@pytest.mark.parametrize("depth", [1, 99, 100, 101, 150])
def test_nesting(depth):
    record = field(1, 0, b"\x05")
    for _ in range(depth):
        record = field(2, 2, with_length(record))
    chunk = encode_transposed_chunk([record], UNCOMPRESSED)
    assert decode_transposed_chunk(chunk, 1) == [record]
    # What is deeper than 100 messages stays in one piece: its length is in a buffer, as a byte.
    assert (chunk.data.count(b"\x12") > 0) == (depth > 100)


@pytest.mark.parametrize(
    "record",
    [
        "088000",  # 0, in two bytes
        "8a0000",  # a tag in two bytes
        "0a8000",  # a length in two bytes
        "00",  # field number 0
        "08",  # cut off
        "0a05616263",  # cut off
        "0900000000000000",  # cut off
        "0d000000",  # cut off
        "0e",  # wire type 6
        "0f",  # wire type 7
        "0b",  # a group without end
        "0c",  # the end of no group
        "0b14",  # the end of another group
        "08ffffffffffffffffff02",  # over 64 bits
        "f8ffffffff0100",  # a tag over 32 bits
    ],
)
def test_records_that_are_no_canonical_messages_are_stored_whole(record):
    record = bytes.fromhex(record)
    chunk = encode_transposed_chunk([record], UNCOMPRESSED)
    assert chunk.data.endswith(record + bytes([len(record)]))
    assert decode_transposed_chunk(chunk, 1) == [record]


def chunks_in(path):
    with open(path, "rb") as file:
        reader = ChunkReader(RandomAccessSource(file), 0)
        while (chunk := reader.read_chunk()) is not None:
            yield chunk


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("envlogger_1_2/transpose_*/**/*.riegeli")), ids=lambda p: p.name
)
def test_what_google_wrote_with_brotli_is_written_again_byte_by_byte(path):
    options = parse_options("transpose,brotli:6")
    num_transposed = 0
    for chunk in chunks_in(path):
        if chunk.chunk_type == ChunkType.TRANSPOSED:
            found = decode_transposed_chunk(chunk, chunk.num_records)
            written = encode_transposed_chunk(found, options.compressor, options.bucket_size)
            assert written == chunk
            num_transposed += 1
    assert num_transposed > 0


@given(st.lists(records, min_size=1, max_size=30), st.integers(1, 10))
def test_array_record_reads_and_writes_the_same_bytes(tmp_path_factory, expected, group_size):
    module = pytest.importorskip("array_record.python.array_record_module")
    path = tmp_path_factory.mktemp("array_record") / "file"
    writer = module.ArrayRecordWriter(
        str(path), f"group_size:{group_size},transpose:true,uncompressed"
    )
    for record in expected:
        writer.write(record)
    writer.close()
    found = []
    for chunk in chunks_in(path):
        if chunk.chunk_type == ChunkType.TRANSPOSED:
            decoded = decode_transposed_chunk(chunk, chunk.num_records)
            assert encode_transposed_chunk(decoded, UNCOMPRESSED) == chunk
            found += decoded
    assert found == expected


@pytest.mark.parametrize(
    "options", ["transpose", "transpose,zstd,chunk_size:200", "transpose,uncompressed"]
)
@given(expected=st.lists(records, max_size=20))
def test_files_of_transposed_chunks(options, expected):
    file = io.BytesIO()
    with riegeli.RecordWriter(file, owns_dest=False, options=options) as writer:
        positions = []
        for record in expected:
            writer.write_record(record)
            positions.append(writer.last_pos)
    with riegeli.RecordReader(io.BytesIO(file.getvalue())) as reader:
        assert list(reader.read_records()) == expected
        for record, position in zip(expected, positions):
            reader.seek(position)
            assert reader.read_record() == record


# What can be wrong with `000c0101020202030800020100011601`: one record 089601, whose header says
# 1 bucket, 1 buffer, sizes 2 and 2; 2 states with the tags 3 and 8, the bases 0 and 2 (implicitly
# 0), the subtype 1, the buffer 0, the first state 1; then the buffer 1601.
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "without data"),
        ("00", "size of the header is damaged"),
        ("0020", "the header takes 32 bytes"),
        ("0000", "header of a transposed chunk is damaged"),
        ("000d010102020203080002010001001601", "1 bytes follow the header"),
        ("000c0101030202030800020100011601", "the buckets take more bytes"),
        ("000c0101020302030800020100011601", "buffer 0 has 3 bytes, but its bucket 2"),
        ("000c0101020102030800020100011601", "the buckets have more bytes than the buffers"),
        ("000b00010202030800020100011601", "the buckets end before buffer 0"),
        ("000c0101020200030800020100011601", "the machine has no states"),
        ("000c0101020202040800020100011601", "tag 4 of a state means nothing"),
        ("000c0101020202060800020100011601", "tag 6 of a state means nothing"),
        ("000c01010202020b0f00020100011601", "tag 15 of a state means nothing"),
        ("000c0101020202030800040100011601", "the base of a state is 4, which is too large"),
        ("000c0101020202030800028a00011601", "subtype 138 of a state means nothing"),
        ("000c0101020202030800020101011601", "the buffer of a state is 1, which is too large"),
        ("000c0101020202030800020100021601", "the first state is 2, which is too large"),
        ("000c0101020202030802020100011601", "leads back to itself for ever"),
        ("000c0101020202030802030100011601", "leads back to itself for ever"),
        ("000c0101020202030800020200011601", "buffer 0 ends before its last value"),
        ("000c010102020203080002010001160100", "more than 1 records"),
        ("000c0101020202030800020100001601", "records have 0 bytes, not 3"),
        ("000c01010202020308000201000116010c", "transition 0 leads to state 3 of 2"),
        ("000c0101020202020800020100011601", "a submessage has a begin, but no end"),
        ("000c01010202020e0800020100011601", "a submessage has an end, but no begin"),
        ("000a0101020202030e0002011601", "a record begins inside a submessage"),
    ],
)
def test_damaged_chunks_are_refused(data, message):
    with pytest.raises(riegeli.InvalidArgumentError, match=message):
        decode(data)


@pytest.mark.parametrize(
    ("num_records", "size", "message"),
    [(0, 3, "more than 0 records"), (2, 3, "after 1 of 2"), (1, 2, "more than 2"), (1, 4, "not 4")],
)
def test_the_records_must_be_those_announced(num_records, size, message):
    with pytest.raises(riegeli.InvalidArgumentError, match=message):
        decode("000c0101020202030800020100011601", num_records, size)


def test_counts_cannot_be_more_than_the_bytes_that_are_there():
    for header in ("ffffffff0f00", "00ffffffff0f", "0000ffffffff0f"):
        with pytest.raises(riegeli.InvalidArgumentError):
            decode("00" + f"{len(header) // 2:02x}" + header)


def test_a_machine_that_writes_nothing_is_stopped():
    # 300 implicit states that do nothing, and transitions that run through them again and again.
    num_states = 300
    states = bytes.fromhex("ac02") + bytes(num_states)
    bases = (
        b"".join(riegeli._core.encode_varints((num_states + i + 1,)) for i in range(299)) + b"\0"
    )
    header = b"\0\0" + states + bases + b"\0"
    data = b"\0" + with_length(header) + b"\3" * 100_000
    with pytest.raises(riegeli.InvalidArgumentError, match="without writing anything"):
        decode_transposed_chunk(Chunk(ChunkType.TRANSPOSED, data, 1, 1), 1)


def test_unknown_compression_is_told_from_damage():
    with pytest.raises(riegeli.UnimplementedError, match="0x61"):
        decode("610100")


@given(st.data())
def test_no_damage_does_worse_than_an_error(data):
    chunk = encode_transposed_chunk(data.draw(st.lists(records, max_size=5)), UNCOMPRESSED)
    damaged = bytearray(chunk.data)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    damaged = Chunk(chunk.chunk_type, bytes(damaged), chunk.num_records, chunk.decoded_data_size)
    try:
        found = decode_transposed_chunk(damaged, chunk.num_records)
    except riegeli.RiegeliError:
        return
    assert len(found) == chunk.num_records
    assert sum(map(len, found)) == chunk.decoded_data_size
