"""The errors of this package.

TfdsFilesError (ValueError)
|-- DamagedFileError                           stored bytes that no writer writes
`-- UnsupportedFileError (NotImplementedError) a valid, but unsupported form
"""

from __future__ import annotations

__all__ = ["DamagedFileError", "TfdsFilesError", "UnsupportedFileError"]


class TfdsFilesError(ValueError):
    """The base of all errors of this package: the files of a dataset cannot be read."""


class DamagedFileError(TfdsFilesError):
    """Stored bytes are damaged, cut short, or not from a writer of TFDS datasets."""


class UnsupportedFileError(TfdsFilesError, NotImplementedError):
    """A file has a valid, but unsupported form; the message names another reader."""
