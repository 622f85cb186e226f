"""Files that are damaged, cut off, or of another format; files that cannot be written."""

import errno
import io
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riegeli_internals import (
    BLOCK_SIZE,
    SIGNATURE,
    Chunk,
    ChunkHeader,
    ChunkReader,
    ChunkType,
    encode_block_header,
    file_with,
)

import riegeli
from riegeli import RecordReader, RecordWriter

RECORDS = [random.Random(i).randbytes(2000) for i in range(100)]


@pytest.fixture
def path(tmp_path):
    """A file of five chunks with twenty records each, over four blocks."""
    path = tmp_path / "records.riegeli"
    with RecordWriter(path, options="zstd,chunk_size:40200") as writer:
        writer.write_records(RECORDS)
    return path


def flip(path, offset, bit=0):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def read(path):
    with RecordReader(path) as reader:
        return list(reader.read_records())


def chunk_begins(path):
    begins = []
    with RecordReader(path) as reader:
        while reader.read_record() is not None:
            begins.append(reader.last_pos.chunk_begin)
    return sorted(set(begins))


def test_the_file_has_five_chunks_over_four_blocks(path):
    assert read(path) == RECORDS
    assert len(chunk_begins(path)) == 5
    assert 3 * BLOCK_SIZE < path.stat().st_size < 4 * BLOCK_SIZE


def test_a_flipped_bit_in_a_chunk_header_is_an_error(path):
    begin = chunk_begins(path)[2]
    flip(path, begin + 10)
    with RecordReader(path) as reader:
        records = [reader.read_record() for _ in range(40)]
        assert records == RECORDS[:40]
        with pytest.raises(
            riegeli.InvalidArgumentError,
            match=rf"header of the chunk at byte {begin} is damaged.* of .*records\.riegeli",
        ):
            reader.read_record()
        with pytest.raises(riegeli.InvalidArgumentError, match="is damaged"):
            reader.read_record()
        with pytest.raises(riegeli.InvalidArgumentError, match="is damaged"):
            reader.close()


def test_a_flipped_bit_in_the_data_is_an_error_that_seeking_avoids(path):
    begins = chunk_begins(path)
    flip(path, begins[2] + 1000, bit=7)
    with RecordReader(path) as reader:
        assert [reader.read_record() for _ in range(40)] == RECORDS[:40]
        message = f"data is damaged.*byte {begins[2]} of"
        with pytest.raises(riegeli.InvalidArgumentError, match=message):
            reader.read_record()
        reader.seek(riegeli.RecordPosition(begins[3], 0))
        assert list(reader.read_records()) == RECORDS[60:]


def test_a_flipped_bit_in_a_block_header_is_an_error(path):
    flip(path, BLOCK_SIZE + 20)
    with pytest.raises(riegeli.InvalidArgumentError, match="block header at byte 65536 is damaged"):
        read(path)


@given(st.data())
def test_a_cut_file_gives_its_complete_chunks_and_an_error_on_closing(data):
    file = io.BytesIO()
    with RecordWriter(file, owns_dest=False, options="zstd,chunk_size:6100") as writer:
        writer.write_records(RECORDS[:9])
    intact = file.getvalue()
    with RecordReader(io.BytesIO(intact)) as reader:
        begins = [reader.last_pos.chunk_begin for _ in reader.read_records()]
    ends = [min((b for b in begins if b > begin), default=len(intact)) for begin in begins]

    size = data.draw(st.integers(0, len(intact)))
    reader = RecordReader(io.BytesIO(intact[:size]))
    assert list(reader.read_records()) == RECORDS[: sum(end <= size for end in ends)]
    if size in {0, 64, *ends}:
        reader.close()
    else:
        with pytest.raises(riegeli.InvalidArgumentError, match="ends in the middle of a chunk"):
            reader.close()


def test_seeking_behind_a_cut_is_an_error(path):
    begins = chunk_begins(path)
    data = path.read_bytes()
    path.write_bytes(data[: begins[4] + 500])
    with RecordReader(path) as reader:
        message = r"records\.riegeli ends in the middle"
        with pytest.raises(riegeli.InvalidArgumentError, match=message):
            reader.seek(riegeli.RecordPosition(begins[4], 3))
        reader.seek(riegeli.RecordPosition(begins[3], 0))
        assert reader.read_record() == RECORDS[60]


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04" + bytes(100), b"some text, quite long " * 10, bytes(64), bytes(10**5)]
)
def test_files_of_other_formats_are_refused(tmp_path, content):
    path = tmp_path / "else.zip"
    path.write_bytes(content)
    message = r"chunk at byte 0 of .*else\.zip; is it a Riegeli/records file\?"
    for method in ("check_file_format", "read_record", "read_metadata"):
        with pytest.raises(riegeli.InvalidArgumentError, match=message):
            with RecordReader(path) as reader:
                getattr(reader, method)()


def test_a_file_shorter_than_its_header_is_refused_on_closing(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"short")
    reader = RecordReader(path)
    assert reader.check_file_format() is False
    assert reader.read_record() is None
    with pytest.raises(riegeli.InvalidArgumentError, match="its header is cut off"):
        reader.close()


def test_missing_files_and_directories_raise_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        RecordReader(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        RecordWriter(tmp_path / "missing" / "file")


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (Chunk(ChunkType.SIGNATURE, b"x"), "a file signature must be empty"),
        (Chunk(ChunkType.SIGNATURE, b"", 1), "a file signature must be empty"),
        (Chunk(ChunkType.SIGNATURE, b"", 0, 1), "a file signature must be empty"),
        (Chunk(ChunkType.PADDING, b"", 1), "a padding chunk cannot hold records"),
        (Chunk(ChunkType.PADDING, b"", 0, 5), "a padding chunk cannot hold records"),
        (Chunk(ChunkType.METADATA, b"", 2), "a metadata chunk cannot hold records"),
        (Chunk(ChunkType.SIMPLE, b""), "simple chunk without data"),
        (Chunk(ChunkType.SIMPLE, b"\x00\x00", 1), "1 record sizes cannot fit in 0 bytes"),
    ],
)
def test_chunks_that_break_the_rules_of_the_format_are_refused(chunk, message):
    with pytest.raises(
        riegeli.InvalidArgumentError, match=f"{message}; reading the chunk at byte 64"
    ):
        RecordReader(file_with(SIGNATURE, chunk)).read_record()


@pytest.mark.parametrize(
    "chunk",
    [
        Chunk(ChunkType.PADDING, b""),
        Chunk(ChunkType.SIGNATURE, b"x"),
        Chunk(ChunkType.SIGNATURE, b"", 1),
        Chunk(ChunkType.SIGNATURE, b"", 0, 1),
    ],
)
def test_a_file_that_does_not_begin_with_its_signature_is_refused(chunk):
    with pytest.raises(riegeli.InvalidArgumentError, match="must be its signature"):
        RecordReader(file_with(chunk)).read_record()


@pytest.mark.parametrize("options", ["transpose,uncompressed", "transpose,zstd"])
def test_records_cannot_decode_to_more_than_the_limit(options):
    file = io.BytesIO()
    with RecordWriter(file, owns_dest=False, options=options) as writer:
        writer.write_record(b"\x08\x01")
    chunk_data = file.getvalue()[64 + 40 :]
    chunk = Chunk(ChunkType.TRANSPOSED, chunk_data, 1, (1 << 32) + 1)
    with pytest.raises(riegeli.ResourceExhaustedError, match="take 4294967297 bytes, more than"):
        RecordReader(file_with(SIGNATURE, chunk)).read_record()


def test_chunks_of_an_unknown_type_are_refused_if_they_hold_records():
    chunk = Chunk(ord("x"), b"\0", 1)
    with pytest.raises(riegeli.UnimplementedError, match="unknown type 0x78 hold 1 records"):
        RecordReader(file_with(SIGNATURE, chunk)).read_record()


@pytest.mark.parametrize(
    "chunk",
    [
        SIGNATURE,
        Chunk(ChunkType.PADDING, b"anything"),
        Chunk(ChunkType.METADATA, b"garbage"),
        Chunk(ord("x"), b"from the future"),
    ],
)
def test_chunks_without_records_are_skipped(chunk):
    simple = Chunk(ChunkType.SIMPLE, bytes.fromhex("00010161"), 1, 1)
    with RecordReader(file_with(SIGNATURE, chunk, simple)) as reader:
        assert list(reader.read_records()) == [b"a"]


@pytest.mark.parametrize("data_size", [0, 1 << 40, 1 << 62])
@pytest.mark.parametrize("num_records", [0, 1 << 50])
def test_a_claimed_size_is_not_allocated(data_size, num_records):
    header = ChunkHeader(data_size, 0, ChunkType.SIMPLE, num_records, 1 << 60)
    reader = RecordReader(io.BytesIO(SIGNATURE.encode(0) + header.encode() + b"data"))
    if data_size == num_records == 0:
        with pytest.raises(riegeli.InvalidArgumentError, match="data is damaged"):
            reader.read_record()
    else:
        assert reader.read_record() is None
        with pytest.raises(riegeli.InvalidArgumentError, match="ends in the middle"):
            reader.close()


@pytest.mark.parametrize("pos", [1, 24, BLOCK_SIZE + 5])
def test_reading_cannot_begin_inside_a_block_header(pos):
    file = io.BytesIO(bytes(70_000))
    file.seek(pos)
    with pytest.raises(riegeli.InvalidArgumentError, match="no chunk can begin here"):
        RecordReader(file)


def test_reading_can_begin_at_any_chunk(path):
    with open(path, "rb") as file:
        file.seek(chunk_begins(path)[3])
        with RecordReader(file) as reader:
            assert list(reader.read_records()) == RECORDS[60:]


class FullDisk(io.BytesIO):
    """A file with room for some bytes."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def write(self, data):
        if self.tell() + len(data) > self.room:
            super().write(data[: self.room - self.tell()])
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_full_disk_ends_the_writing_and_keeps_written_chunks():
    file = FullDisk(100_000)
    writer = RecordWriter(file, options="uncompressed,chunk_size:30K", owns_dest=False)
    with pytest.raises(OSError, match="No space left"):
        writer.write_records(RECORDS)
    for call in (lambda: writer.write_record(b""), writer.flush, writer.close):
        with pytest.raises(OSError, match="No space left"):
            call()
    reader = RecordReader(io.BytesIO(file.getvalue()))
    actual = list(reader.read_records())
    assert actual == RECORDS[: len(actual)]
    assert len(actual) == 45  # Three chunks of fifteen.
    with pytest.raises(riegeli.InvalidArgumentError, match="interrupted"):
        reader.close()


def test_errors_of_the_file_object_pass_through():
    class BrokenFile(io.BytesIO):
        def readinto1(self, buffer):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RecordReader(BrokenFile()).read_record()


@pytest.mark.parametrize("length", [-1, 10**6, None])
def test_file_objects_that_break_their_contract_are_refused(length):
    class IntoBuffer:
        def readinto(self, buffer):
            return length

    class Bytes:
        def read(self, size):
            return None if length is None else bytes(abs(length) * size)

    with pytest.raises(riegeli.InternalError, match=f"reading 64 bytes.* returned {length}"):
        RecordReader(IntoBuffer(), owns_src=False).read_record()
    if length != -1:
        with pytest.raises(riegeli.InternalError, match="reading 64 bytes from <Bytes> returned"):
            RecordReader(Bytes(), owns_src=False).read_record()
    with pytest.raises(TypeError, match="<object> is neither a path nor a file object"):
        RecordReader(object(), owns_src=False)


@pytest.mark.parametrize("method", ["readinto1", "readinto", "read1", "read"])
def test_any_one_of_the_reading_methods_is_enough(method):
    class Source:
        pass

    file = file_with(SIGNATURE, Chunk(ChunkType.SIMPLE, bytes.fromhex("00010161"), 1, 1))
    source = Source()
    setattr(source, method, getattr(file, method))
    assert RecordReader(source, owns_src=False).read_record() == b"a"


def test_file_objects_may_write_fewer_bytes_than_passed():
    class Dest:
        def __init__(self):
            self.data = b""

        def write(self, data):
            self.data += data[:1000]
            return len(data[:1000])

    dest = Dest()
    writer = RecordWriter(dest, owns_dest=False)
    writer.write_records(RECORDS[:9])
    writer._finish_chunks()
    assert list(RecordReader(io.BytesIO(dest.data)).read_records()) == RECORDS[:9]


@pytest.mark.parametrize("length", [0, -1, 10**6])
def test_file_objects_that_do_not_write_are_refused(length):
    class Dest(io.BytesIO):
        def write(self, data):
            return length

    with pytest.raises(riegeli.InternalError, match=f"write.. of 64 bytes .* returned {length}"):
        RecordWriter(Dest())


def test_closing_leaves_a_file_object_after_the_last_chunk_read(path):
    with open(path, "rb") as file:
        reader = RecordReader(file, owns_src=False)
        reader.read_record()
        end = chunk_begins(path)[1]
        reader.close()
        assert file.tell() == end


def test_an_exception_in_flight_is_not_hidden_by_closing(path):
    flip(path, chunk_begins(path)[2] + 10)
    with pytest.raises(ZeroDivisionError):
        with RecordReader(path) as reader:
            with pytest.raises(riegeli.InvalidArgumentError):
                list(reader.read_records())
            raise ZeroDivisionError


def test_seeking_back_over_empty_chunks_reads_each_about_once(monkeypatch):
    num_chunks = 500  # All in one block, without records.
    empty = Chunk(ChunkType.PADDING, b"")
    simple = Chunk(ChunkType.SIMPLE, bytes.fromhex("00010161"), 1, 1)
    file = file_with(SIGNATURE, simple, *[empty] * num_chunks)
    num_read = 0
    read_header = ChunkReader._read_header

    def count_reads(*args):
        nonlocal num_read
        num_read += 1
        return read_header(*args)

    monkeypatch.setattr(ChunkReader, "_read_header", count_reads)
    with RecordReader(file) as reader:
        reader.seek_numeric(reader.size())
        assert reader.seek_back()
        assert reader.read_record() == b"a"
        assert not (reader.seek_back() and reader.seek_back())
    assert num_read < 4 * num_chunks


def test_each_of_many_damages_is_one_region():
    # Each block header is valid, but points to a chunk that does not exist.
    data = bytearray(random.Random(1).randbytes(40 * BLOCK_SIZE))
    data[:64] = SIGNATURE.encode(0)
    for block in range(BLOCK_SIZE, len(data), BLOCK_SIZE):
        data[block : block + 24] = encode_block_header(100, 100)
    skipped = []
    with RecordReader(io.BytesIO(data), recovery=skipped.append) as reader:
        assert list(reader.read_records()) == []
    assert len(skipped) == 40
    assert [region.begin for region in skipped[1:]] == [region.end for region in skipped[:-1]]
    assert (skipped[0].begin, skipped[-1].end) == (64, len(data))


@pytest.mark.parametrize("method", ["search", "seek_back"])
def test_block_headers_that_point_to_no_chunk_are_refused(method):
    chunk = Chunk(ChunkType.PADDING, bytes(100_000))
    intact = file_with(SIGNATURE, chunk).getvalue()
    for to_begin in (2**64 - 1, 2 * BLOCK_SIZE, BLOCK_SIZE, 30):
        data = bytearray(intact)
        data[BLOCK_SIZE : BLOCK_SIZE + 24] = encode_block_header(to_begin, 2**40)
        reader = RecordReader(io.BytesIO(data))
        with pytest.raises(riegeli.InvalidArgumentError):
            if method == "search":
                reader.search_for_record(lambda record: -1)
            else:
                reader.seek_numeric(len(data))
                reader.seek_back()
                list(reader.read_records())


def test_a_large_window_with_little_data_takes_no_memory():
    script = """
import resource, sys
from riegeli._format.compression import decompress
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = bytes.fromhex("01") + bytes.fromhex(sys.argv[1])
assert bytes(decompress(ord("z"), data, 1)) == b"x"
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    frame = bytes.fromhex("28b52ffd00a8") + (1 << 3 | 1).to_bytes(3, "little") + b"x"
    command = [sys.executable, "-c", script, frame.hex()]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(process.stdout) < 50  # MiB
