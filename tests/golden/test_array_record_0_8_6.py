"""Riegeli files of array_record 0.8.6 are read: all compressions, simple and transposed."""

import importlib.util
from pathlib import Path

import pytest

import riegeli

HERE = Path(__file__).parent
FILES = sorted((HERE / "array_record_0_8_6").iterdir())

spec = importlib.util.spec_from_file_location("golden_array_records", HERE / "array_records.py")
array_records = importlib.util.module_from_spec(spec)
spec.loader.exec_module(array_records)

with_records = pytest.mark.parametrize(
    "golden", [path for path in FILES if path.stem != "empty"], ids=lambda path: path.stem
)


def test_all_golden_files_exist():
    assert [path.stem for path in FILES] == [
        "brotli",
        "brotli_large_window",
        "empty",
        "padded",
        "snappy",
        "transposed",
        "transposed_brotli",
        "transposed_few",
        "transposed_snappy",
        "transposed_zstd",
        "transposed_zstd_buckets",
        "uncompressed",
        "uncompressed_one_by_one",
        "zstd",
        "zstd_window",
    ]


@with_records
def test_all_records_are_read(golden):
    with riegeli.RecordReader(golden) as reader:
        assert reader.check_file_format()
        records = list(reader.read_records())
    expected = array_records.RECORDS
    assert records[: len(expected)] == expected
    # The index follows: a summary, a record for each chunk, and three copies of its offset.
    index = records[len(expected) :]
    assert len(index) >= 5
    assert index[-3] == index[-2] == index[-1] != index[-4]


@with_records
def test_seek_reaches_records_by_position(golden):
    with riegeli.RecordReader(golden) as reader:
        positions = []
        for _ in array_records.RECORDS:
            reader.read_record()
            positions.append(reader.last_pos)
        for i in (len(positions) - 1, 0, 300, 299, 30):
            reader.seek(positions[i])
            assert reader.read_record() == array_records.RECORDS[i]
            reader.seek_numeric(positions[i].numeric)
            assert reader.read_record() == array_records.RECORDS[i]


@pytest.mark.parametrize("name", ["transposed", "transposed_zstd_buckets", "transposed_brotli"])
def test_a_projection_reads_one_field(name):
    golden = HERE / "array_record_0_8_6" / f"{name}.array_record"
    begin = len(array_records.NOT_PROTOS) + len(array_records.PROTOS)
    with riegeli.RecordReader(golden, field_projection=[[1]]) as reader:
        records = [reader.read_record() for _ in array_records.RECORDS]
    assert records[begin : begin + len(array_records.ALIKE)] == [
        array_records.field(1, array_records.VARINT, array_records.varint(i))
        for i in range(len(array_records.ALIKE))
    ]


def test_a_file_without_records_is_read():
    with riegeli.RecordReader(HERE / "array_record_0_8_6" / "empty.array_record") as reader:
        assert len(list(reader.read_records())) == 4  # The index, with three copies of its offset.
