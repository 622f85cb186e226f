import contextlib
import gzip
import os
import pickle
import random
import signal
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf

from tfds_files import (
    FILE_FORMATS,
    DamagedFileError,
    TfdsFilesError,
    UnsupportedFileError,
    open_record_file,
)
from tfds_files.record_files import valid_records, write_records

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDS = [b"", b"a", b"x" * 70_000, bytes(range(256)), b"", b"end"]


def write_tfrecord(path, records=RECORDS):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def golden_shard(file_format):
    return GOLDEN / "tfds_4_9_10" / file_format / f"golden-train.{file_format}-00000-of-00002"


def test_records_are_read_in_any_order(tmp_path):
    file = open_record_file(write_tfrecord(tmp_path / "a"), "tfrecord")
    order = [5, 0, 2, 2, 4, 1, 3]
    assert [bytes(file.read(i)) for i in order] == [RECORDS[i] for i in order]
    assert len(file) == 6
    for index in (6, -1):
        with pytest.raises(IndexError, match=f"record {index} of 6"):
            file.read(index)
    file.close()
    assert file.read(1) == b"a"
    assert repr(file).endswith("a')")


def test_reopened_files_are_read_in_their_current_state(tmp_path):
    count = 300  # More files than stay open.
    for name in range(count):
        write_records(tmp_path / f"{name}", "tfrecord", [b"%d" % name, b"old"])
    files = [open_record_file(tmp_path / f"{name}", "tfrecord") for name in range(count)]
    assert [bytes(file.read(0)) for file in files] == [b"%d" % name for name in range(count)]
    write_records(tmp_path / "new", "tfrecord", [b"longer than it was", b"new"])
    os.replace(tmp_path / "new", tmp_path / "3")
    with open(tmp_path / "4", "ab") as file:
        file.write((tmp_path / "5").read_bytes())
    assert [bytes(file.read(1)) for file in files[:3]] == [b"old"] * 3
    assert bytes(files[3].read(1)) == b"new"
    assert [bytes(files[4].read(index)) for index in range(4)] == [b"4", b"old", b"5", b"old"]
    for file in files:
        file.close()


def test_records_are_written_to_tfrecord_and_array_record_files(tmp_path):
    write_records(tmp_path / "a", "tfrecord", RECORDS)
    assert (tmp_path / "a").read_bytes() == write_tfrecord(tmp_path / "b").read_bytes()
    write_records(tmp_path / "c", "array_record", RECORDS)
    with contextlib.closing(open_record_file(tmp_path / "c", "array_record")) as file:
        assert [file.read(index) for index in range(len(file))] == RECORDS
    with pytest.raises(UnsupportedFileError, match="cannot write files in the format 'bagz'"):
        write_records(tmp_path / "d", "bagz", RECORDS)


def test_intact_records_of_a_torn_file_are_read(tmp_path):
    records = [b"ab", b"", b"cde"]
    data = write_tfrecord(tmp_path / "whole", records).read_bytes()
    ends = [18, 34, 53]
    for size in range(len(data) + 1):
        (tmp_path / "torn").write_bytes(data[:size])
        assert list(valid_records(tmp_path / "torn")) == records[: sum(e <= size for e in ends)]
    for offset in range(len(data)):
        (tmp_path / "torn").write_bytes(data[:offset] + b"!" + data[offset + 1 :])
        assert list(valid_records(tmp_path / "torn")) == records[: sum(e <= offset for e in ends)]


def test_files_without_records_can_be_opened(tmp_path):
    assert len(open_record_file(write_tfrecord(tmp_path / "a", []), "tfrecord")) == 0
    empty = GOLDEN / "array_record_0_8_6" / "empty.array_record"
    assert len(open_record_file(empty, "array_record")) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted((GOLDEN / "array_record_0_8_6").glob("[!e]*")), ids=lambda path: path.stem
)
def test_array_record_files_of_every_kind_are_read(path):
    from array_record.python.array_record_module import ArrayRecordReader

    reader = ArrayRecordReader(str(path))
    expected = reader.read(list(range(reader.num_records())))
    reader.close()
    file = open_record_file(path, "array_record")
    assert len(file) == len(expected)
    order = random.Random(0).sample(range(len(expected)), 40)
    assert [file.read(i) for i in order] == [expected[i] for i in order]


@pytest.mark.parametrize("file_format", FILE_FORMATS)
def test_threads_and_processes_may_share_a_file(file_format):
    file = open_record_file(golden_shard(file_format), file_format)
    expected = [bytes(file.read(i)) for i in range(len(file))]
    with ThreadPoolExecutor(4) as threads:
        actual = threads.map(file.read, [i % len(expected) for i in range(100)])
        assert [bytes(record) for record in actual] == [
            expected[i % len(expected)] for i in range(100)
        ]
    copy = pickle.loads(pickle.dumps(file))
    assert bytes(copy.read(0)) == expected[0]


def test_damage_in_a_tfrecord_file_is_reported(tmp_path):
    data = write_tfrecord(tmp_path / "a").read_bytes()
    path = tmp_path / "b"

    def read_all():
        file = open_record_file(path, "tfrecord")
        return [bytes(file.read(i)) for i in range(len(file))]

    path.write_bytes(data[:-3])
    with pytest.raises(DamagedFileError, match=r"b: the file ends within the record at byte \d+"):
        read_all()
    path.write_bytes(data[:-18])
    with pytest.raises(DamagedFileError, match=r"b: no record begins at byte \d+"):
        read_all()
    path.write_bytes(data[:60] + b"?" + data[61:])
    with pytest.raises(DamagedFileError, match="record 2 does not match its checksum"):
        read_all()
    file = open_record_file(path, "tfrecord")
    assert file.read(3) == RECORDS[3]  # Other records are intact.
    path.write_bytes(struct.pack("<Q", 1 << 60) + data[8:])
    with pytest.raises(DamagedFileError, match="no record begins at byte 0"):
        read_all()
    path.write_bytes(gzip.compress(data))
    with pytest.raises(UnsupportedFileError, match="decompress it with gunzip"):
        read_all()


def test_a_file_that_shrinks_while_it_is_open_raises_a_damaged_file_error(tmp_path):
    path = write_tfrecord(tmp_path / "a")
    file = open_record_file(path, "tfrecord")
    assert len(file) == 6
    with path.open("r+b") as changed:
        changed.truncate(40_000)
    with pytest.raises(DamagedFileError, match="record 2 was cut off while the file was open"):
        file.read(2)


def test_files_of_unsupported_formats_are_refused(tmp_path):
    with pytest.raises(UnsupportedFileError, match="format 'bagz', expected one of tfrecord, arr"):
        open_record_file(tmp_path / "a", "bagz")
    for file_format in FILE_FORMATS:
        with pytest.raises(OSError, match="a"):
            len(open_record_file(tmp_path / "a", file_format))


@pytest.mark.parametrize("file_format", FILE_FORMATS)
def test_damaged_files_raise_only_errors_of_the_package(tmp_path, file_format):
    original = golden_shard(file_format).read_bytes()
    used = len(original.rstrip(b"\0"))
    rng = random.Random(7)
    path = tmp_path / "spoilt"
    num_refused = 0
    for _ in range(150):
        data = bytearray(original)
        for _ in range(rng.randint(1, 4)):
            # Also near the end, where the offsets of all records are.
            offset = rng.choice([rng.randrange(used), used - 1 - rng.randrange(64)])
            data[offset] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            file = open_record_file(path, file_format)
            for index in range(min(len(file), 5)):
                file.read(index)
        except (TfdsFilesError, OSError):
            num_refused += 1
    assert num_refused > 75


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_forked_processes_read_files_of_their_own(tmp_path, file_format):
    """The parent has the lock, and continues to read."""
    records = [bytes([i]) * 1000 for i in range(50)]
    write_records(tmp_path / "file", file_format, records)
    file = open_record_file(tmp_path / "file", file_format)
    assert file.read(7) == records[7]
    with file._lock:  # As if a thread was reading.
        child = os.fork()
        if not child:
            signal.alarm(60)
            os._exit(any(file.read(i % 50) != records[i % 50] for i in range(500)))
    assert all(file.read(i % 50) == records[i % 50] for i in range(500))
    assert not os.waitpid(child, 0)[1]
