"""The names that users of Google's package import."""

import importlib
import inspect
import subprocess
import sys

import pytest

import riegeli

# Google's modules, and their names.
MODULES = {
    "riegeli.base.riegeli_error": [
        *("RiegeliError", "CancelledError", "UnknownError", "InvalidArgumentError"),
        *("DeadlineExceededError", "NotFoundError", "AlreadyExistsError", "PermissionDeniedError"),
        *("ResourceExhaustedError", "FailedPreconditionError", "AbortedError", "OutOfRangeError"),
        *("UnimplementedError", "InternalError", "UnavailableError", "DataLossError"),
        "UnauthenticatedError",
    ],
    "riegeli.records.record_position": ["RecordPosition"],
    "riegeli.records.record_reader": ["EXISTENCE_ONLY", "RecordReader", "get_record_type"],
    "riegeli.records.record_writer": ["FlushType", "RecordWriter", "set_record_type"],
    "riegeli.records.records_metadata_pb2": ["RecordsMetadata"],
    "riegeli.records.skipped_region": ["SkippedRegion"],
}


@pytest.mark.parametrize("module", MODULES)
def test_modules_of_upstream_export_the_same_objects(module):
    for name in MODULES[module]:
        assert getattr(importlib.import_module(module), name) is getattr(riegeli, name)


def test_the_package_exports_exactly_these_names():
    names = {name for names in MODULES.values() for name in names}
    assert set(riegeli.__all__) == names | {
        *("IMPLEMENTATION", "JoinedRecords", "StoredChunk", "decode_file")
    }


# Google's arguments and methods.
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (
            riegeli.RecordReader,
            "src, *, owns_src, assumed_pos, min_buffer_size, max_buffer_size, buffer_size, "
            "field_projection, recovery",
        ),
        (
            riegeli.RecordWriter,
            "dest, *, owns_dest, assumed_pos, min_buffer_size, max_buffer_size, buffer_size, "
            "options, metadata, serialized_metadata",
        ),
        (riegeli.SkippedRegion, "begin, end, message"),
        (riegeli.RecordPosition, "chunk_begin, record_index"),
        (riegeli.RecordReader.read_message, "self, message_type"),
        (riegeli.RecordReader.read_messages, "self, message_type"),
        (riegeli.RecordReader.set_field_projection, "self, field_projection"),
        (riegeli.RecordReader.seek, "self, pos"),
        (riegeli.RecordReader.seek_numeric, "self, pos"),
        (riegeli.RecordReader.search, "self, test"),
        (riegeli.RecordReader.search_for_record, "self, test"),
        (riegeli.RecordReader.search_for_message, "self, message_type, test"),
        (riegeli.RecordWriter.write_record, "self, record"),
        (riegeli.RecordWriter.write_message, "self, record"),
        (riegeli.RecordWriter.write_records, "self, records"),
        (riegeli.RecordWriter.write_messages, "self, records"),
        (riegeli.RecordWriter.flush, "self, flush_type"),
        (riegeli.set_record_type, "metadata, message_type"),
        (riegeli.get_record_type, "metadata"),
    ],
)
def test_functions_have_the_arguments_of_upstream(function, arguments):
    names = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind == inspect.Parameter.KEYWORD_ONLY and "*" not in names:
            names.append("*")
        names.append(parameter.name)
    assert ", ".join(names) == arguments


def test_classes_have_the_members_of_upstream():
    for name in ("check_file_format", "read_metadata", "read_serialized_metadata", "read_record"):
        assert callable(getattr(riegeli.RecordReader, name))
    for name in ("read_records", "seek_back", "size", "close", "__enter__", "__exit__"):
        assert callable(getattr(riegeli.RecordReader, name))
    for name in ("pos", "last_pos", "supports_random_access", "src"):
        assert isinstance(getattr(riegeli.RecordReader, name), property)
    for name in ("estimated_size", "close", "__enter__", "__exit__"):
        assert callable(getattr(riegeli.RecordWriter, name))
    for name in ("pos", "last_pos", "dest"):
        assert isinstance(getattr(riegeli.RecordWriter, name), property)


def test_importing_loads_no_heavy_modules():
    code = """if True:
        import sys, riegeli
        print([name for name in ("tensorflow", "numpy", "cramjam") if name in sys.modules])
    """
    process = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert process.stdout == "[]\n"


def test_error_codes_are_the_canonical_ones():
    errors = riegeli.RiegeliError.__subclasses__()
    assert sorted(error.code for error in errors) == list(range(1, 17))
    assert riegeli.InvalidArgumentError.code == 3
    assert riegeli.UnimplementedError.code == 12
