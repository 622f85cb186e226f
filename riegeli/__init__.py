"""Riegeli/records: files of byte strings, compressed, checksummed, seekable.

The names, arguments and defaults are those of Google's `riegeli` package.
"""

from typing import TYPE_CHECKING

from riegeli._core import IMPLEMENTATION
from riegeli.base.riegeli_error import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    RiegeliError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
    from riegeli.records.decode_file import decode_file
    from riegeli.records.record_position import RecordPosition
    from riegeli.records.record_reader import (
        EXISTENCE_ONLY,
        JoinedRecords,
        RecordReader,
        get_record_type,
    )
    from riegeli.records.record_writer import FlushType, RecordWriter, set_record_type
    from riegeli.records.records_metadata_pb2 import RecordsMetadata
    from riegeli.records.skipped_region import SkippedRegion

__all__ = [
    "EXISTENCE_ONLY",
    "IMPLEMENTATION",
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "FlushType",
    "InternalError",
    "InvalidArgumentError",
    "JoinedRecords",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "RecordPosition",
    "RecordReader",
    "RecordWriter",
    "RecordsMetadata",
    "ResourceExhaustedError",
    "RiegeliError",
    "SkippedRegion",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "decode_file",
    "get_record_type",
    "set_record_type",
]

__version__: str

# They need protobuf, which `riegeli.varints` does without.
_HOMES = {
    "riegeli.records.decode_file": ["decode_file"],
    "riegeli.records.record_position": ["RecordPosition"],
    "riegeli.records.record_reader": [
        *("EXISTENCE_ONLY", "JoinedRecords", "RecordReader", "get_record_type")
    ],
    "riegeli.records.record_writer": ["FlushType", "RecordWriter", "set_record_type"],
    "riegeli.records.records_metadata_pb2": ["RecordsMetadata"],
    "riegeli.records.skipped_region": ["SkippedRegion"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
