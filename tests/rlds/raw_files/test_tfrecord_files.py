import gzip
import struct

import google_crc32c
import pytest
import tensorflow as tf
from etils import epath

from rlds.raw_files.tfrecord_files import TFRecordReader
from rlds.sources import SourceError

RECORDS = [b"first", b"", b"x" * 70, bytes(range(200))]


def write(file, records=RECORDS, compression=""):
    with tf.io.TFRecordWriter(str(file), tf.io.TFRecordOptions(compression)) as writer:
        for record in records:
            writer.write(record)
    return epath.Path(file)


def read(file):
    with TFRecordReader(file, "shard") as reader:
        return list(iter(reader.read, None))


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("records", [RECORDS, [], [b"only"]], ids=["four", "none", "one"])
def test_reads_what_tensorflow_writes(tmp_path, records, compression):
    assert read(write(tmp_path / "shard", records, compression)) == records


def test_a_record_whose_length_looks_like_gzip_is_no_gzip(tmp_path):
    record = bytes(0x88B1F)  # Its length begins with 1f 8b 08.
    assert read(write(tmp_path / "shard", [record])) == [record]


def test_tells_how_much_was_read(tmp_path):
    file = write(tmp_path / "shard")
    with TFRecordReader(file, "shard") as reader:
        fractions = [reader.fraction]
        while reader.read() is not None:
            fractions.append(reader.fraction)
    assert fractions[0] == 0.0
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_a_file_that_was_cut_anywhere_is_found_out(tmp_path):
    file = write(tmp_path / "shard")
    data, ends = file.read_bytes(), [0]
    for record in RECORDS:
        ends.append(ends[-1] + 16 + len(record))
    for cut in range(len(data)):
        file.write_bytes(data[:cut])
        if cut in ends:  # An uncompressed file does not say how many records it has.
            assert read(file) == RECORDS[: ends.index(cut)]
        else:
            with pytest.raises(SourceError, match="shard, episode") as caught:
                read(file)
            assert caught.value.episode == sum(end <= cut for end in ends) - 1


def test_a_compressed_file_that_was_cut_anywhere_is_found_out(tmp_path):
    file = write(tmp_path / "shard", compression="GZIP")
    data = file.read_bytes()
    for cut in range(2, len(data)):
        file.write_bytes(data[:cut])
        with pytest.raises(SourceError, match="the gzip data ends too early"):
            read(file)


def test_after_a_damaged_record_the_next_one_can_be_read(tmp_path):
    file = write(tmp_path / "shard")
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
def test_after_a_damaged_length_nothing_can_be_read(tmp_path, position):
    file = write(tmp_path / "shard")
    data = bytearray(file.read_bytes())
    data[21 + position] ^= 1
    file.write_bytes(bytes(data))
    with TFRecordReader(file, "shard") as reader:
        assert reader.read() == RECORDS[0]
        with pytest.raises(SourceError, match="shard, episode 1: the length of the record"):
            reader.read()
        assert reader.ended
        assert reader.read() is None


def test_damaged_compression_is_found_out(tmp_path):
    file = write(tmp_path / "shard", compression="GZIP")
    data = bytearray(file.read_bytes())
    data[-6] ^= 1  # The checksum of gzip.
    file.write_bytes(bytes(data))
    with pytest.raises(SourceError, match="the gzip data is damaged"):
        read(file)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_length_that_the_file_does_not_have_costs_no_memory(tmp_path, compress):
    length = struct.pack("<Q", 2**62)
    crc = google_crc32c.value(length)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    file = epath.Path(tmp_path / "shard")
    file.write_bytes(compress(length + struct.pack("<I", masked) + b"abc"))
    with pytest.raises(SourceError, match=r"bytes are declared, but the .* bytes of the file"):
        read(file)
