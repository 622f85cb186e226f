"""HTTP errors of the server, each with status, code and message.

A response never has a path or a traceback. An unexpected error is logged with an identifier, and
the response has only the identifier.
"""

from __future__ import annotations

import logging
import re
import secrets
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rlds_creator.type_errors import explain

__all__ = [
    "BadRequestError",
    "ConflictError",
    "ForbiddenError",
    "LoginError",
    "MissingError",
    "ServerError",
    "ServiceUnavailableError",
    "TooLargeError",
    "TooManyError",
    "answer",
    "as_server_error",
    "without_folders",
]

logger = logging.getLogger(__name__)

# The folders of a file path in a message.
_FOLDERS = re.compile(
    r"(?:\b[A-Za-z][A-Za-z0-9+.-]*:/|(?<![\w.~-]))(?:~|\.{1,2})?(?:/[^\s/'\":,;()]+)+/"
)


class ServerError(Exception):
    """An error response to a request.

    Attributes:
      status: The HTTP status.
      code: The error code, for programs.
      fields: Further fields of the response.
    """

    status: int = 500
    code: str = "internal"

    def __init__(self, message: str, *, code: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.fields = fields


class BadRequestError(ServerError):
    """The request is malformed."""

    status = 400
    code = "bad_request"


class LoginError(ServerError):
    """The request has no valid session or invitation."""

    status = 401
    code = "login"


class ForbiddenError(ServerError):
    """The user lacks the required role."""

    status = 403
    code = "forbidden"


class MissingError(ServerError):
    """The resource does not exist, or the user may not see it."""

    status = 404
    code = "not_found"


class ConflictError(ServerError):
    """The request conflicts with the current state, such as a newer version."""

    status = 409
    code = "conflict"


class TooLargeError(ServerError):
    """The request is too large."""

    status = 413
    code = "too_large"


class TooManyError(ServerError):
    """The request exceeds a rate limit, or a limit on the number of something."""

    status = 429
    code = "too_many"


class ServiceUnavailableError(ServerError):
    """The server cannot handle the request here, or at the moment."""

    status = 503
    code = "unavailable"


def as_server_error(error: Exception) -> ServerError:
    """Converts any error to a response; logs unexpected errors."""
    if isinstance(error, ServerError):
        return error
    if isinstance(error, HTTPException):  # The path or method is unknown.
        code = {404: "not_found", 405: "method"}.get(error.status_code, "bad_request")
        response = ServerError(error.detail, code=code)
        response.status = error.status_code
        return response
    if isinstance(error, msgspec.DecodeError):  # The JSON is invalid, or has wrong types.
        return BadRequestError(explain(error))
    error_id = secrets.token_hex(4)
    logger.error("error %s", error_id, exc_info=error)
    return ServerError(f"Internal error. The log of the server has the details, under {error_id}.")


def answer(error: ServerError) -> Response:
    """Returns the response for an error."""
    body = {"error": {"code": error.code, "message": str(error)}, **error.fields}
    return Response(msgspec.json.encode(body), error.status, media_type="application/json")


def without_folders(text: str) -> str:
    """Returns a message without the folders of file paths.

    >>> without_folders("/data/my/run7/steps.riegeli, episode 3: it was cut off")
    'steps.riegeli, episode 3: it was cut off'
    """
    return _FOLDERS.sub("", text)
