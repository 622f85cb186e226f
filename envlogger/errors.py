"""The errors of this package; `rlds_ecosystem.model.errors` has them for all packages."""

from rlds_ecosystem.model.errors import (
    DamagedDataError,
    EnvLoggerError,
    InvalidStepError,
    StorageError,
    UnsupportedTypeError,
    UnsupportedValueError,
    UsageError,
    storage_errors,
)

__all__ = [
    "DamagedDataError",
    "EnvLoggerError",
    "InvalidStepError",
    "StorageError",
    "UnsupportedTypeError",
    "UnsupportedValueError",
    "UsageError",
    "storage_errors",
]
