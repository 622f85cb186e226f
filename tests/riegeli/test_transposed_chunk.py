"""Transposed chunks: the bytes of the reference, and refused chunks."""

import io
import re
from pathlib import Path

import pytest
from proto_records import field, with_length
from riegeli_internals import (
    MAX_NESTING,
    SIGNATURE,
    UNCOMPRESSED,
    Chunk,
    ChunkType,
    CompressionType,
    Compressor,
    chunks_in,
    compression,
    decode_transposed_chunk,
    encode_simple_chunk,
    encode_transposed_chunk,
    padding_chunk,
    parse_options,
    transposed_encoder,
)
from transposed_parts import Sections, sections_of

import riegeli
from riegeli.varints import encode_varints

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
def test_transposed_chunks_have_the_bytes_of_the_reference(expected, data):
    expected = [bytes.fromhex(record) for record in expected]
    chunk = chunk_of(data, len(expected), sum(map(len, expected)))
    assert decode_transposed_chunk(chunk, len(expected)) == expected
    assert encode_transposed_chunk(expected, UNCOMPRESSED) == chunk


def test_a_transposed_chunk_may_have_no_records():
    chunk = encode_transposed_chunk([], UNCOMPRESSED)
    assert chunk.data.hex() == "0006000001000000"
    assert decode_transposed_chunk(chunk, 0) == []


@pytest.mark.parametrize("num_fields", [63, 64, 65, 66, 128, 300, 5000])
def test_state_machines_with_many_states_are_decoded(num_fields):
    # Each field follows each other one at most once, so that all states are in the public list.
    order = [n * step % num_fields + 1 for step in (1, 7, 11) for n in range(num_fields)]
    expected = [b"".join(field(n, 0, b"\x07") for n in order)] * 2
    chunk = encode_transposed_chunk(expected, UNCOMPRESSED)
    assert decode_transposed_chunk(chunk, 2) == expected


@pytest.mark.parametrize("depth", [1, 99, 100, 101, 150])
def test_messages_deeper_than_100_stay_in_one_piece(depth):
    record = field(1, 0, b"\x05")
    for _ in range(depth):
        record = field(2, 2, with_length(record))
    chunk = encode_transposed_chunk([record], UNCOMPRESSED)
    assert decode_transposed_chunk(chunk, 1) == [record]
    # A message in one piece has its length in a buffer, as a byte.
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


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("envlogger_1_2/transpose_*/**/*.riegeli")), ids=lambda p: p.name
)
def test_chunks_written_by_google_are_encoded_to_the_same_bytes(path):
    options = parse_options("transpose,brotli:6")
    num_transposed = 0
    for chunk in chunks_in(path):
        if chunk.chunk_type == ChunkType.TRANSPOSED:
            actual = decode_transposed_chunk(chunk, chunk.num_records)
            encoded = encode_transposed_chunk(actual, options.compressor, options.bucket_size)
            assert encoded == chunk
            num_transposed += 1
    assert num_transposed > 0


# Faults of `000c0101020202030800020100011601`: one record 089601, whose header says
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
        ("000c0101020302030800020100011601", "the buckets have 2 bytes, the buffers 3"),
        ("000c0101020102030800020100011601", "the buckets have 2 bytes, the buffers 1"),
        ("000b00010202030800020100011601", "there are 1 buffers, but no buckets"),
        ("000c0101020200030800020100011601", "the machine has no states"),
        ("000c0101020202040800020100011601", "tag 4 of a state means nothing"),
        ("000c0101020202050800020100011601", "tag 5 of a state means nothing"),
        ("000c0101020202060800020100011601", "tag 6 of a state means nothing"),
        ("000c0101020202070800020100011601", "tag 7 of a state means nothing"),
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


SOUND = Sections([3, 8], [0, 2], b"\1", [0], 1, [b"\x16\1"], [2])
RECORD = bytes.fromhex("089601")


def one_field(tag, values):
    return Sections([3, tag], [0, 2], b"", [0], 1, [values], [len(values)])


def whole_records(*buffers, transitions=b""):
    sizes = list(map(len, buffers))
    return Sections([1], [0], b"", [0], 0, buffers, sizes, transitions)


# Whether Google's implementation agrees is tested below.
REFUSED = {
    "a record kept whole, without buffers": (
        *(Sections([1], [0], indices=[0]), 1, 0),
        "the buffer of a state is 0, which is too large",
    ),
    "buffers without buckets": (
        *(Sections([3], [0], buffer_sizes=[0]), 1, 0),
        "1 buffers, but no buckets",
    ),
    "buckets without buffers": (
        *(Sections([3], [0], buckets=[b"", b""]), 1, 0),
        "2 buckets, but no buffers",
    ),
    "first bucket empty, first buffer not": (
        *(SOUND.replace(buckets=[b"", b"\x16\1"]), 1, 3),
        "buffer 0 has 2 bytes, but its bucket 0 more",
    ),
    "buffer in two buckets": (
        *(SOUND.replace(buckets=[b"\x16", b"\1"]), 1, 3),
        "buffer 0 has 2 bytes, but its bucket 1 more",
    ),
    "bucket with more": (
        *(SOUND.replace(buckets=[b"\x16\1\1"]), 1, 3),
        "the buckets have 3 bytes, the buffers 2",
    ),
    "bucket behind the last buffer": (
        *(SOUND.replace(buckets=[b"\x16\1", b"\1"]), 1, 3),
        "the buckets have 3 bytes, the buffers 2",
    ),
    "fixed32 used up": (one_field(0x0D, b"abc"), 1, 5, "buffer 0 ends before its last value"),
    "fixed64 used up": (one_field(0x09, b"abcdefg"), 1, 9, "buffer 0 ends before its last value"),
    "bytes used up": (one_field(0x0A, b"\5ab"), 1, 7, "buffer 0 ends before its last value"),
    "length of bytes cut off": (one_field(0x0A, b"\x80"), 1, 3, "varint at byte 0 is cut off"),
    "4 GiB of bytes": (
        *(one_field(0x0A, b"\x80\x80\x80\x80\x10ab"), 1, 8),
        "buffer 0 has a value of 4294967296 bytes",
    ),
    "record kept whole used up": (
        *(whole_records(b"ab", b"\3"), 1, 3),
        "buffer 0 ends before its last value",
    ),
    "lengths of records used up": (
        *(whole_records(b"ab", b"\1", transitions=b"\0"), 2, 2),
        "varint at byte 1 is cut off",
    ),
    "4 GiB of record kept whole": (
        *(whole_records(b"ab", b"\x80\x80\x80\x80\x10"), 1, 2),
        "buffer 1 has a value of 4294967296 bytes",
    ),
    "something in front of the first record": (
        *(Sections([3, 8], [1, 0], b"\x0b", first=1, transitions=b"\0\0"), 1, 4),
        "something is written before the first record",
    ),
    "too few records": (SOUND, 2, 3, "after 1 of 2"),
    "too many records": (Sections([3], [0], transitions=b"\3"), 4, 0, "more than 4 records"),
    "records too long": (SOUND, 1, 2, "more than 2 bytes"),
    "records too short": (SOUND, 1, 4, "have 3 bytes, not 4"),
}

ACCEPTED = {
    "sound": (SOUND, [RECORD]),
    "bytes of a buffer that are not used": (
        SOUND.replace(buckets=[b"\x16\1\7\7"], buffer_sizes=[4]),
        [RECORD],
    ),
    "empty bucket at the end": (SOUND.replace(buckets=[b"\x16\1", b"", b""]), [RECORD]),
    "empty bucket in the middle": (
        SOUND.replace(buckets=[b"\x16\1", b"", b"\7"], buffer_sizes=[2, 1]),
        [RECORD],
    ),
    "empty bucket alone": (Sections([3], [0], buckets=[b""]), [b""]),
    "empty buffer at the begin": (SOUND.replace(buffer_sizes=[0, 2], indices=[1]), [RECORD]),
    "empty buffer in an empty bucket": (
        SOUND.replace(buckets=[b"", b"\x16\1"], buffer_sizes=[0, 2], indices=[1]),
        [RECORD],
    ),
    "empty buffers at the end": (SOUND.replace(buffer_sizes=[2, 0, 0]), [RECORD]),
    "begin of a group that has no end": (Sections([3, 0x0B], [0, 2], first=1), [b"\x0b"]),
    "end of a group that has no begin": (Sections([3, 0x0C], [0, 2], first=1), [b"\x0c"]),
    "high bits in the buffer of a varint": (
        SOUND.replace(buckets=[b"\x96\x81"]),
        [bytes.fromhex("089681")],
    ),
    "moves that do nothing": (
        Sections(
            *([0, 8, 0, 3], [0, 2, 2, 3], b"\1", [0], 0, [b"\x16\1"], [2]),
            transitions=b"\3\0\4\0\3\4",
        ),
        [RECORD],
    ),
    "one buffer for records kept whole and for their lengths": (whole_records(b"\2ab"), [b"ab"]),
    "repeats behind the last transition": (Sections([3], [0], transitions=b"\3"), [b""] * 5),
}


@pytest.mark.parametrize("algorithm", CompressionType, ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("case", REFUSED)
def test_malformed_chunks_are_refused(case, algorithm):
    sections, num_records, size, message = REFUSED[case]
    chunk = sections.chunk(num_records, size, Compressor(algorithm, 1))
    with pytest.raises(riegeli.InvalidArgumentError, match=message):
        decode_transposed_chunk(chunk, num_records)


@pytest.mark.parametrize("algorithm", CompressionType, ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("case", ACCEPTED)
def test_unusual_chunks_are_accepted(case, algorithm):
    sections, expected = ACCEPTED[case]
    chunk = sections.chunk(len(expected), sum(map(len, expected)), Compressor(algorithm, 1))
    assert decode_transposed_chunk(chunk, len(expected)) == expected


def as_array_record(chunk):
    """Returns a file that `array_record` reads: the chunk, and then its position."""
    data = SIGNATURE.encode(0)
    offsets = []

    def varints(*values):
        return b"".join(field(n, 0, encode_varints((v,))) for n, v in enumerate(values, start=1))

    about_file = field(1, 2, with_length(varints(1, 1, chunk.num_records)))
    footer = [about_file, varints(len(data), chunk.decoded_data_size, chunk.num_records)]
    for make_chunk in (
        lambda: chunk,
        lambda: encode_simple_chunk(footer, UNCOMPRESSED),
        lambda: encode_simple_chunk([varints(offsets[1], 0x71930E704FDAE05E)] * 3, UNCOMPRESSED),
    ):
        offsets.append(len(data))
        data += make_chunk().encode(len(data))
        data += padding_chunk(len(data), 65536).encode(len(data))
    return data


@pytest.mark.parametrize("case", [*REFUSED, *ACCEPTED])
def test_google_refuses_and_accepts_the_same(case, tmp_path):
    module = pytest.importorskip("array_record.python.array_record_module")
    path = tmp_path / "file"
    if case in REFUSED:
        sections, num_records, size, _ = REFUSED[case]
        path.write_bytes(as_array_record(sections.chunk(num_records, size)))
        with pytest.raises(RuntimeError):
            module.ArrayRecordReader(str(path)).read([*range(num_records)])
    else:
        sections, expected = ACCEPTED[case]
        path.write_bytes(as_array_record(sections.chunk(len(expected), sum(map(len, expected)))))
        assert module.ArrayRecordReader(str(path)).read([*range(len(expected))]) == expected


def test_a_header_that_ends_early_is_refused():
    header_size = SOUND.data()[1]
    header = SOUND.data()[2 : 2 + header_size]
    for size in range(header_size):
        data = b"\0" + with_length(header[:size]) + b"\x16\1"
        with pytest.raises(riegeli.InvalidArgumentError):
            decode_transposed_chunk(Chunk(ChunkType.TRANSPOSED, data, 1, 3), 1)


def test_stored_buckets_must_have_the_sizes_of_the_header():
    for sizes in ([1], [3], [2, 1], [2**64 - 1]):
        with pytest.raises(riegeli.InvalidArgumentError):
            SOUND.replace(bucket_sizes=sizes).read(1, 3)


LIMITS = "riegeli._format.transposed_chunk."


@pytest.mark.parametrize(
    ("sections", "limit", "value", "message"),
    [
        (SOUND, "MAX_HEADER_SIZE", 11, "12 bytes of header, more than the limit 11"),
        (SOUND, "MAX_STATES", 1, "2 states, more than the limit 1"),
        (
            SOUND.replace(buffer_sizes=[2, 0, 0]),
            *("MAX_BUFFERS", 2, "3 buffers or buckets, more than the limit 2"),
        ),
        (
            SOUND.replace(buckets=[b"\x16\1", b"", b""]),
            *("MAX_BUFFERS", 2, "3 buffers or buckets, more than the limit 2"),
        ),
        (
            SOUND.replace(transitions=b"\0\0"),
            *("MAX_TRANSITIONS", 1, "2 transitions, more than the limit 1"),
        ),
    ],
)
def test_chunks_beyond_a_limit_are_refused(monkeypatch, sections, limit, value, message):
    monkeypatch.setattr(LIMITS + limit, value)
    with pytest.raises(riegeli.ResourceExhaustedError, match=message):
        sections.read(1, 3)


@pytest.mark.parametrize("options", ["zstd", "brotli", "snappy"])
def test_all_buckets_together_cannot_decompress_to_more_than_the_limit(monkeypatch, options):
    buckets = [b"\x0a" + b"a" * 99] * 10
    sections = one_field(0x0A, b"").replace(buckets=buckets, buffer_sizes=[100] * 10)
    compressor = parse_options(options).compressor
    chunk = sections.chunk(1, 12, compressor)
    assert decode_transposed_chunk(chunk, 1) == [b"\x0a\x0a" + b"a" * 10]
    monkeypatch.setattr(LIMITS + "MAX_DECOMPRESSED_SIZE", 999)
    with pytest.raises(riegeli.ResourceExhaustedError, match="1000 bytes of buffers, more than"):
        decode_transposed_chunk(chunk, 1)
    # Buckets that are not compressed take no more memory.
    assert sections.read(1, 12) == [b"\x0a\x0a" + b"a" * 10]


def test_nothing_is_decompressed_before_all_sizes_are_checked(monkeypatch):
    decompressed = []

    def decompress(compression_type, buffer, max_size):
        decompressed.append(bytes(buffer))
        return compression.decompress(compression_type, buffer, max_size)

    sections = SOUND.replace(buckets=[b"\x16\1", bytes(1000)], buffer_sizes=[2, 1])
    chunk = sections.chunk(1, 3, Compressor(CompressionType.ZSTD))
    monkeypatch.setattr(LIMITS + "decompress", decompress)
    with pytest.raises(riegeli.InvalidArgumentError, match="have 1002 bytes, the buffers 3"):
        decode_transposed_chunk(chunk, 1)
    assert len(decompressed) == 1  # The header.


def test_more_transitions_than_the_records_need_are_refused():
    sections = Sections([0, 3], [0, 0], transitions=b"\0" * 4096 + b"\4")
    assert sections.read(1, 0) == [b""]
    sections = sections.replace(transitions=b"\0" * 5000 + b"\4")
    with pytest.raises(riegeli.InvalidArgumentError, match="5001 transitions are too many for 1 "):
        sections.read(1, 0)


def test_records_beyond_their_declared_number_are_refused():
    with pytest.raises(riegeli.InvalidArgumentError, match="more than 0 records"):
        SOUND.read(0, 3)


def test_submessages_nested_beyond_a_limit_are_refused():
    # All ends of submessages, all begins, and the begin of the record.
    def nested(depth):
        return Sections(
            *([14, 2, 3], [0, 1, 2], b"", [], 0),
            transitions=b"\0" * (depth - 1) + b"\4" + b"\0" * (depth - 1) + b"\4",
        )

    record = b""
    for _ in range(5):
        record = field(1, 2, with_length(record))
    assert nested(5).read(1, len(record)) == [record]
    (record,) = read_records(nested(MAX_NESTING))
    assert record.startswith(b"\x0a")
    with pytest.raises(riegeli.InvalidArgumentError, match="more than 65536 messages inside each"):
        nested(MAX_NESTING + 1).read(1, len(record) + 4)


def read_records(sections):
    """Reads the records of a chunk of unknown size."""
    with pytest.raises(riegeli.InvalidArgumentError) as error:
        sections.read(1, 1 << 20)
    return sections.read(1, int(re.search(r"have (\d+) bytes", str(error.value))[1]))


def test_skipped_fields_count_as_progress(monkeypatch):
    monkeypatch.setattr("riegeli._pure.machine._MIN_STEP_LIMIT", 0)
    # Hundreds of states follow each other without a transition, and write nothing.
    record = b"".join(field(n, 0, b"\7") for n in range(1, 200))
    sections = sections_of([record] * 100)
    assert len(sections.transitions) < 100
    chunk = sections.chunk(100, 100 * len(record))
    assert decode_transposed_chunk(chunk, 100, {1: True}) == [b"\x08\7"] * 100
    assert decode_transposed_chunk(chunk, 100, {}) == [b""] * 100


def test_records_too_long_for_readers_are_not_written(monkeypatch):
    monkeypatch.setattr(transposed_encoder, "MAX_WHOLE_RECORD_SIZE", 10)
    message = field(1, 2, with_length(b"\xff" * 20))
    encode_transposed_chunk([b"\xff" * 10, message], UNCOMPRESSED)
    with riegeli.RecordWriter(io.BytesIO(), options="transpose:false") as writer:
        writer.write_record(b"\xff" * 11)
    writer = riegeli.RecordWriter(io.BytesIO(), options="transpose,chunk_size:1")
    with pytest.raises(riegeli.ResourceExhaustedError, match=r"a record of 11 bytes .* up to 10;"):
        writer.write_record(b"\xff" * 11)
    monkeypatch.undo()
    assert transposed_encoder.MAX_WHOLE_RECORD_SIZE == 2**32 - 1  # The limit of lengths.


@pytest.mark.parametrize("limit", ["MAX_STATES", "MAX_BUFFERS", "MAX_TRANSITIONS"])
def test_chunks_that_could_not_be_read_are_not_written(monkeypatch, limit):
    monkeypatch.setattr(transposed_encoder, limit, 2)
    records = [field(1, 0, b"\7")]
    assert decode_transposed_chunk(encode_transposed_chunk(records, UNCOMPRESSED), 1) == records
    records = [b"".join(field(n % 7 + 1, 0, b"\7") for n in range(0, 100, step)) for step in (1, 3)]
    with pytest.raises(riegeli.ResourceExhaustedError, match="make chunk_size smaller"):
        encode_transposed_chunk(records, UNCOMPRESSED)


def test_counts_beyond_the_bytes_of_the_header_are_refused():
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
    data = b"\0" + with_length(header) + b"\3" * 4000
    with pytest.raises(riegeli.InvalidArgumentError, match="without writing anything"):
        decode_transposed_chunk(Chunk(ChunkType.TRANSPOSED, data, 1, 1), 1)


def test_unknown_compression_is_an_unimplemented_error():
    with pytest.raises(riegeli.UnimplementedError, match="0x61"):
        decode("610100")
