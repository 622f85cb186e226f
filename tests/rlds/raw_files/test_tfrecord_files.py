import gzip
import struct

import google_crc32c
import pytest
import tensorflow as tf
from etils import epath

from rlds.raw_files.tfrecord_files import TFRecordReader
from rlds.sources import SourceError

RECORDS = [b"first", b"", b"x" * 70, bytes(range(200))]


def write_records(file, records=RECORDS, compression=""):
    with tf.io.TFRecordWriter(str(file), tf.io.TFRecordOptions(compression)) as writer:
        for record in records:
            writer.write(record)
    return epath.Path(file)


def read_records(file):
    with TFRecordReader(file, "shard") as reader:
        return list(iter(reader.read, None))


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("records", [RECORDS, [], [b"only"]], ids=["four", "none", "one"])
def test_records_written_by_tensorflow_are_read(tmp_path, records, compression):
    assert read_records(write_records(tmp_path / "shard", records, compression)) == records


def test_length_that_looks_like_gzip_is_read_as_uncompressed(tmp_path):
    record = bytes(0x88B1F)  # Its length begins with 1f 8b 08.
    assert read_records(write_records(tmp_path / "shard", [record])) == [record]


def test_fraction_rises_from_zero_to_one(tmp_path):
    file = write_records(tmp_path / "shard")
    with TFRecordReader(file, "shard") as reader:
        fractions = [reader.fraction]
        while reader.read() is not None:
            fractions.append(reader.fraction)
    assert fractions[0] == 0.0
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_file_truncated_within_a_record_is_refused(tmp_path):
    file = write_records(tmp_path / "shard")
    data, ends = file.read_bytes(), [0]
    for record in RECORDS:
        ends.append(ends[-1] + 16 + len(record))
    for size in range(len(data)):
        file.write_bytes(data[:size])
        if size in ends:  # An uncompressed file does not declare its number of records.
            assert read_records(file) == RECORDS[: ends.index(size)]
        else:
            with pytest.raises(SourceError, match="shard, episode") as caught:
                read_records(file)
            assert caught.value.episode == sum(end <= size for end in ends) - 1


def test_truncated_compressed_file_is_refused(tmp_path):
    file = write_records(tmp_path / "shard", compression="GZIP")
    data = file.read_bytes()
    for size in range(2, len(data)):
        file.write_bytes(data[:size])
        with pytest.raises(SourceError, match="the gzip data ends too early"):
            read_records(file)


def test_record_after_a_damaged_one_is_readable(tmp_path):
    file = write_records(tmp_path / "shard")
    data = bytearray(file.read_bytes())
    data[12] ^= 1
    file.write_bytes(bytes(data))
    with TFRecordReader(file, "shard") as reader:
        with pytest.raises(
            SourceError, match="shard, episode 0: the data does not match its check"
        ):
            reader.read()
        assert not reader.ended
        assert list(iter(reader.read, None)) == RECORDS[1:]
        assert reader.ended
    with TFRecordReader(file, "shard") as reader:
        reader.read(check=False)
        assert reader.read() == RECORDS[1]


@pytest.mark.parametrize("position", [0, 8])
def test_damaged_length_ends_the_file(tmp_path, position):
    file = write_records(tmp_path / "shard")
    data = bytearray(file.read_bytes())
    data[21 + position] ^= 1
    file.write_bytes(bytes(data))
    with TFRecordReader(file, "shard") as reader:
        assert reader.read() == RECORDS[0]
        with pytest.raises(SourceError, match="shard, episode 1: the length of the record"):
            reader.read()
        assert reader.ended
        assert reader.read() is None


def test_damaged_compression_is_refused(tmp_path):
    file = write_records(tmp_path / "shard", compression="GZIP")
    data = bytearray(file.read_bytes())
    data[-6] ^= 1  # The checksum of gzip.
    file.write_bytes(bytes(data))
    with pytest.raises(SourceError, match="the gzip data is damaged"):
        read_records(file)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_length_beyond_the_file_is_refused_without_allocation(tmp_path, compress):
    length = struct.pack("<Q", 2**62)
    crc = google_crc32c.value(length)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    file = epath.Path(tmp_path / "shard")
    file.write_bytes(compress(length + struct.pack("<I", masked) + b"abc"))
    with pytest.raises(SourceError, match=r"bytes are declared, but the .* bytes of the file"):
        read_records(file)
