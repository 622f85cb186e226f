"""Writes messages to a Riegeli/records file, and reads one of their fields back.

python -m riegeli.records.examples.write_read_records [FILE]
"""

import sys
import tempfile
from pathlib import Path

from google.protobuf.timestamp_pb2 import Timestamp

import riegeli

__all__ = ["main", "read_records", "write_records"]


def write_records(filename: str) -> None:
    """Writes a hundred timestamps."""
    print("Writing", filename)
    metadata = riegeli.RecordsMetadata(file_comment="a hundred timestamps")
    riegeli.set_record_type(metadata, Timestamp)
    with riegeli.RecordWriter(filename, options="transpose", metadata=metadata) as writer:
        writer.write_messages(Timestamp(seconds=i, nanos=i**3) for i in range(100))


def read_records(filename: str) -> None:
    """Prints the seconds of the timestamps; no other field is read."""
    print("Reading", filename)
    projection = [[Timestamp.SECONDS_FIELD_NUMBER]]
    with riegeli.RecordReader(filename, field_projection=projection) as reader:
        print(*(timestamp.seconds for timestamp in reader.read_messages(Timestamp)))


def main(arguments: list[str]) -> None:
    """Runs the example with a given or a temporary file."""
    with tempfile.TemporaryDirectory() as directory:
        filename = arguments[0] if arguments else str(Path(directory, "timestamps"))
        write_records(filename)
        read_records(filename)


if __name__ == "__main__":
    main(sys.argv[1:])
