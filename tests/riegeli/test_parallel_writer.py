"""Writing with chunks encoded in the background: the same files, and no thread left."""

import errno
import io
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proto_records import records

import riegeli
from riegeli import RecordReader, RecordWriter
from riegeli.records import record_writer

OPTIONS = ["uncompressed", "zstd,chunk_size:200", "transpose,brotli:1,chunk_size:500,padding:100"]
CHUNKS = [bytes([i]) * 1000 for i in range(20)]  # Each record makes a chunk of its own.
CHUNK_SIZE = 40 + 4 + 1000
ONE_RECORD_CHUNKS = "uncompressed,chunk_size:1000,parallelism:3"


def write(steps, options, *, compression=None, **kwargs):
    """Writes records, flushing at each None; returns the file and the reported positions."""
    file = io.BytesIO()
    positions = []
    with RecordWriter(file, owns_dest=False, options=options, **kwargs) as writer:
        if compression is not None:
            writer.set_compression(compression)
        for step in steps:
            if step is None:
                writer.flush()
            else:
                positions.append(writer.pos)
                writer.write_record(step)
                positions.append(writer.last_pos)
        positions.append(writer.pos)
    return file.getvalue(), positions


def list_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("riegeli")]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=20)
@given(
    steps=st.lists(st.one_of(records, records, st.none(), st.just(bytes(600))), max_size=40),
    parallelism=st.sampled_from([1, 2, 10]),
)
def test_files_and_positions_are_those_of_one_thread(options, steps, parallelism):
    data, positions = write(steps, options)
    parallel_data, parallel_positions = write(steps, f"{options},parallelism:{parallelism}")
    assert parallel_data == data
    assert parallel_positions == positions
    assert not list_threads()


@pytest.mark.parametrize("options", ["chunk_size:200", "transpose,chunk_size:200"])
def test_the_compression_of_each_chunk_may_be_chosen(options):
    """The file is as if a writer of its own had appended each record."""
    inputs = [bytes([i]) * 300 for i in range(9)]
    choices = ["zstd:3", "uncompressed", "brotli:2"] * 3
    expected = io.BytesIO()
    for record, choice in zip(inputs, choices, strict=True):
        with RecordWriter(expected, owns_dest=False, options=f"{options},{choice}") as writer:
            writer.write_record(record)

    def choose(records):
        return choices[inputs.index(*records)]

    assert write(inputs, options, compression=choose)[0] == expected.getvalue()
    parallel = f"{options},parallelism:2"
    assert write(inputs, parallel, compression=choose)[0] == expected.getvalue()
    with RecordReader(io.BytesIO(expected.getvalue())) as reader:
        assert list(reader.read_records()) == inputs
    with pytest.raises(riegeli.InvalidArgumentError, match="Unknown option 'zip'"):
        write(inputs, options, compression=lambda records: "zip")


def test_metadata_and_appended_records_have_the_bytes_of_writing_without_threads():
    metadata = riegeli.RecordsMetadata(file_comment="x" * 1000)
    assert (
        write(CHUNKS, ONE_RECORD_CHUNKS, metadata=metadata)[0]
        == write(CHUNKS, "uncompressed,chunk_size:1000", metadata=metadata)[0]
    )
    files = []
    for options in (ONE_RECORD_CHUNKS, "uncompressed,chunk_size:1000"):
        file = io.BytesIO(b"begun before" + bytes(100))
        file.seek(0, io.SEEK_END)
        with RecordWriter(file, owns_dest=False, options=options) as writer:
            writer.write_records(CHUNKS)
        files.append(file.getvalue())
    assert files[0] == files[1]


@pytest.fixture
def gate(monkeypatch):
    """Stops the encoding of chunks until it is set."""
    gate = threading.Event()
    encode = record_writer.encode_simple_chunk

    def wait_and_encode(*args):
        assert gate.wait(600)
        return encode(*args)

    monkeypatch.setattr(record_writer, "encode_simple_chunk", wait_and_encode)
    yield gate
    gate.set()


def test_writing_and_getting_positions_does_not_wait(gate):
    file = io.BytesIO()
    writer = RecordWriter(file, owns_dest=False, options=ONE_RECORD_CHUNKS)
    positions = []
    for record in CHUNKS[:3]:
        writer.write_record(record)
        positions.append(writer.last_pos)
    end = writer.pos
    assert writer.estimated_size() == 64  # Only the signature is written.
    gate.set()
    assert positions[0] < positions[1] < positions[2] < end
    assert {position.record_index for position in positions} == {0}
    writer.close()
    assert writer.last_pos == positions[2]
    with RecordReader(io.BytesIO(file.getvalue())) as reader:
        for record, position in zip(CHUNKS, positions):
            reader.seek(position)
            assert reader.read_record() == record


def test_other_threads_can_read_positions():
    file = io.BytesIO()
    with RecordWriter(file, owns_dest=False, options=ONE_RECORD_CHUNKS) as writer:
        with ThreadPoolExecutor(4) as threads:
            futures = []
            for record in CHUNKS:
                writer.write_record(record)
                futures.append(threads.submit(str, writer.last_pos))
    with RecordReader(io.BytesIO(file.getvalue())) as reader:
        for future in futures:
            reader.read_record()
            assert future.result() == str(reader.last_pos)


def test_pending_chunks_do_not_exceed_the_parallelism(monkeypatch):
    counts = []
    encode = record_writer.encode_simple_chunk

    def count_and_encode(*args):
        counts.append(len(writer._chunks._pending))
        return encode(*args)

    monkeypatch.setattr(record_writer, "encode_simple_chunk", count_and_encode)
    writer = RecordWriter(io.BytesIO(), options=ONE_RECORD_CHUNKS)
    for record in CHUNKS:
        writer.write_record(record)
        counts.append(len(writer._chunks._pending))
    writer.close()
    assert 1 <= max(counts) <= 3


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


@pytest.mark.parametrize("room", [500, 5000, 12_345, 20_900])
def test_a_full_disk_is_an_error_by_closing_and_keeps_written_chunks(room):
    file = FullDisk(room)
    writer = RecordWriter(file, options=ONE_RECORD_CHUNKS, owns_dest=False)
    with pytest.raises(OSError, match="No space left"):
        writer.write_records(CHUNKS)
        writer.flush()
    for call in (lambda: writer.write_record(b""), writer.flush, writer.close):
        with pytest.raises(OSError, match="No space left"):
            call()
    assert not list_threads()
    with pytest.raises(riegeli.FailedPreconditionError):
        _ = writer.last_pos
    reader = RecordReader(io.BytesIO(file.getvalue()))
    actual = list(reader.read_records())
    assert actual == CHUNKS[: len(actual)]
    assert len(actual) == (writer.estimated_size() - 64) // CHUNK_SIZE


def test_a_chunk_that_cannot_be_encoded_ends_the_writing_after_the_chunks_before_it(monkeypatch):
    encode = record_writer.encode_simple_chunk

    def fail_at_five(records, compressor):
        if records == CHUNKS[5:6]:
            raise MemoryError("five")
        return encode(records, compressor)

    monkeypatch.setattr(record_writer, "encode_simple_chunk", fail_at_five)
    file = io.BytesIO()
    writer = RecordWriter(file, options=ONE_RECORD_CHUNKS, owns_dest=False)
    positions, ends = [], []
    with pytest.raises(MemoryError, match="five"):
        for record in CHUNKS:
            writer.write_record(record)
            positions.append(writer.last_pos)
            ends.append(writer.pos)
        writer.flush()
    with pytest.raises(MemoryError, match="five"):
        writer.close()
    assert positions[4] < ends[4] == positions[5]
    with pytest.raises(MemoryError, match="five"):
        str(ends[5])
    assert list(RecordReader(io.BytesIO(file.getvalue())).read_records()) == CHUNKS[:5]
    assert not list_threads()


def test_an_abandoned_record_has_no_position(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    gates = [threading.Event(), threading.Event()]
    encode = record_writer.encode_simple_chunk

    def wait_and_encode(records, compressor):
        index = CHUNKS.index(records[0])
        assert index >= len(gates) or gates[index].wait(600)
        return encode(records, compressor)

    monkeypatch.setattr(record_writer, "encode_simple_chunk", wait_and_encode)

    class BrokenFile(io.BytesIO):
        def write(self, data):
            if self.tell():
                raise OSError("broken")
            return super().write(data)

    writer = RecordWriter(BrokenFile(), options="uncompressed,chunk_size:1000,parallelism:3")
    for record in CHUNKS[:3]:
        writer.write_record(record)
    end = writer.pos
    gates[0].set()
    # The first chunk is encoded and cannot be written; the third one is still waiting.
    with pytest.raises(OSError, match="broken"):
        writer.write_record(CHUNKS[3])
    gates[1].set()
    with pytest.raises(OSError, match="broken"):
        writer.close()
    assert not list_threads()
    with pytest.raises(riegeli.FailedPreconditionError, match="it has no position"):
        str(end)


def test_an_interrupt_ends_the_threads():
    class InterruptedFile(io.BytesIO):
        def write(self, data):
            if self.tell():
                raise KeyboardInterrupt
            return super().write(data)

    with pytest.raises(KeyboardInterrupt):
        with RecordWriter(InterruptedFile(), options=ONE_RECORD_CHUNKS) as writer:
            writer.write_records(CHUNKS)
    assert not list_threads()


@pytest.mark.parametrize(
    ("ending", "is_complete"),
    [
        ("", False),
        ("import atexit; atexit.register(writer.close)", True),
        ("writer.close()", True),
        ("raise SystemExit", False),
    ],
)
def test_a_process_ends_also_without_closing(tmp_path, ending, is_complete):
    path = tmp_path / "records"
    code = f"""if True:
        from riegeli import RecordWriter
        writer = RecordWriter({str(path)!r}, options="brotli:6,chunk_size:100000,parallelism:8")
        for i in range(10_005):
            writer.write_record(str(i).encode() * 30)
        {ending}
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
    with RecordReader(path, recovery=lambda region: None) as reader:
        actual = [int(record[: len(record) // 30]) for record in reader.read_records()]
    assert actual == list(range(len(actual)))
    if is_complete:
        assert len(actual) == 10_005
