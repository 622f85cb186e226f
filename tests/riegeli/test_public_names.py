"""The names that users of Google's package import."""

import riegeli


def test_modules_of_upstream():
    from riegeli.base.riegeli_error import RiegeliError
    from riegeli.records.record_position import RecordPosition
    from riegeli.records.record_reader import RecordReader, get_record_type
    from riegeli.records.record_writer import FlushType, RecordWriter, set_record_type
    from riegeli.records.records_metadata_pb2 import RecordsMetadata

    for thing in (
        RiegeliError,
        RecordPosition,
        RecordReader,
        get_record_type,
        FlushType,
        RecordWriter,
        set_record_type,
        RecordsMetadata,
    ):
        assert getattr(riegeli, thing.__name__) is thing


def test_error_codes_are_the_canonical_ones():
    errors = riegeli.RiegeliError.__subclasses__()
    assert sorted(error.code for error in errors) == list(range(1, 17))
    assert riegeli.InvalidArgumentError.code == 3
    assert riegeli.UnimplementedError.code == 12
