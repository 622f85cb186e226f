"""The example of Google's package runs."""

from google.protobuf.timestamp_pb2 import Timestamp

import riegeli
from riegeli.records.examples import write_read_records


def test_the_example_runs(tmp_path, capsys):
    path = tmp_path / "timestamps"
    write_read_records.main([str(path)])
    words = capsys.readouterr().out.split()
    assert words == ["Writing", str(path), "Reading", str(path), *map(str, range(100))]
    with riegeli.RecordReader(path) as reader:
        record_type = riegeli.get_record_type(reader.read_metadata())
        assert record_type.DESCRIPTOR.full_name == Timestamp.DESCRIPTOR.full_name
        assert list(reader.read_messages(Timestamp))[3] == Timestamp(seconds=3, nanos=27)


def test_the_example_leaves_no_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write_read_records.main([])
    assert capsys.readouterr().out.endswith("98 99\n")
    assert list(tmp_path.iterdir()) == []
