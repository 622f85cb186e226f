"""The errors of this package.

    RiegeliError
    |-- CancelledError            1   not raised here
    |-- UnknownError              2
    |-- InvalidArgumentError      3   damaged: the bytes violate the format; invalid options
    |-- DeadlineExceededError     4   not raised here
    |-- NotFoundError             5
    |-- AlreadyExistsError        6
    |-- PermissionDeniedError     7
    |-- ResourceExhaustedError    8
    |-- FailedPreconditionError   9   misuse: the object is closed, or not in the required state
    |-- AbortedError             10
    |-- OutOfRangeError          11
    |-- UnimplementedError       12   not supported by this package or this file object
    |-- InternalError            13   the file object broke its contract
    |-- UnavailableError         14
    |-- DataLossError            15
    `-- UnauthenticatedError     16

Names and `code` are the same as in Google's `riegeli.base.riegeli_error` (canonical status codes).
Errors of the file object, such as `OSError`, pass through unchanged.
"""


class RiegeliError(Exception):
    """The base class of the errors of this package."""

    code: int


class CancelledError(RiegeliError):
    """The operation was cancelled."""

    code = 1


class UnknownError(RiegeliError):
    """An error with no better class."""

    code = 2


class InvalidArgumentError(RiegeliError):
    """The file is damaged or not a Riegeli/records file, or an option is invalid."""

    code = 3


class DeadlineExceededError(RiegeliError):
    """The operation took too long."""

    code = 4


class NotFoundError(RiegeliError):
    """An item does not exist."""

    code = 5


class AlreadyExistsError(RiegeliError):
    """An item exists already."""

    code = 6


class PermissionDeniedError(RiegeliError):
    """The operation is not permitted."""

    code = 7


class ResourceExhaustedError(RiegeliError):
    """A limit was reached."""

    code = 8


class FailedPreconditionError(RiegeliError):
    """The object is closed, or not in the state that the call requires."""

    code = 9


class AbortedError(RiegeliError):
    """The operation was aborted."""

    code = 10


class OutOfRangeError(RiegeliError):
    """A value is out of range."""

    code = 11


class UnimplementedError(RiegeliError):
    """The file or the request is valid, but not supported here."""

    code = 12


class InternalError(RiegeliError):
    """A file object broke the contract of Python file objects."""

    code = 13


class UnavailableError(RiegeliError):
    """The service is unavailable."""

    code = 14


class DataLossError(RiegeliError):
    """Data was lost."""

    code = 15


class UnauthenticatedError(RiegeliError):
    """Credentials are missing or wrong."""

    code = 16
