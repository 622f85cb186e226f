"""The errors of this package.

TfdsFilesError (ValueError)
|-- DamagedFileError                           stored bytes that are not what a writer writes
`-- UnsupportedFileError (NotImplementedError) a valid form that is not read here
"""

from __future__ import annotations

__all__ = ["DamagedFileError", "TfdsFilesError", "UnsupportedFileError"]


class TfdsFilesError(ValueError):
    """The base of all errors of this package: the files of a dataset cannot be read."""


class DamagedFileError(TfdsFilesError):
    """Stored bytes are damaged, cut short, or not what a writer of TFDS datasets writes."""


class UnsupportedFileError(TfdsFilesError, NotImplementedError):
    """A file has a valid form that is not read here; the message says what reads it."""
