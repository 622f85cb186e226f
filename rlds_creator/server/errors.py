"""What a request can do wrong, and what it is answered: a status, a code and a sentence.

The answer never has a path or a traceback in it. What nobody expected is logged with a number, and
the answer has that number only.
"""

from __future__ import annotations

import logging
import re
import secrets
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rlds_creator.type_errors import in_words

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

# Where an error says which file it is about.
_FOLDERS = re.compile(
    r"(?:\b[A-Za-z][A-Za-z0-9+.-]*:/|(?<![\w.~-]))(?:~|\.{1,2})?(?:/[^\s/'\":,;()]+)+/"
)


class ServerError(Exception):
    """Something that a request is refused for.

    Attributes:
      status: The status of the answer.
      code: What went wrong, for programs.
      more: What else the answer has.
    """

    status: int = 500
    code: str = "internal"

    def __init__(self, message: str, *, code: str | None = None, **more: Any) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.more = more


class BadRequestError(ServerError):
    """The request is not what this address takes."""

    status = 400
    code = "bad_request"


class LoginError(ServerError):
    """Nobody knows who asks."""

    status = 401
    code = "login"


class ForbiddenError(ServerError):
    """Who asks may not do this."""

    status = 403
    code = "forbidden"


class MissingError(ServerError):
    """There is nothing at this address, or nothing that who asks may see."""

    status = 404
    code = "not_found"


class ConflictError(ServerError):
    """What there is has changed, or is in the way."""

    status = 409
    code = "conflict"


class TooLargeError(ServerError):
    """The request is too large."""

    status = 413
    code = "too_large"


class TooManyError(ServerError):
    """Too much is requested at a time."""

    status = 429
    code = "too_many"


class ServiceUnavailableError(ServerError):
    """It could be done, but not here, or not now."""

    status = 503
    code = "unavailable"


def as_server_error(error: Exception) -> ServerError:
    """Returns what to answer when something was raised; logs what nobody expected."""
    if isinstance(error, ServerError):
        return error
    if isinstance(error, HTTPException):  # Such as of a method that an address does not have.
        code = {404: "not_found", 405: "method"}.get(error.status_code, "bad_request")
        refused = ServerError(error.detail, code=code)
        refused.status = error.status_code
        return refused
    if isinstance(error, msgspec.DecodeError):  # With those that are JSON, but not as expected.
        return BadRequestError(in_words(error))
    number = secrets.token_hex(4)
    logger.error("error %s", number, exc_info=error)
    return ServerError(f"Internal error. The log of the server has the details, under {number}.")


def answer(error: ServerError) -> Response:
    """Returns the answer for an error."""
    body = {"error": {"code": error.code, "message": str(error)}, **error.more}
    return Response(msgspec.json.encode(body), error.status, media_type="application/json")


def without_folders(text: str) -> str:
    """Returns a message without the folders of the files that it names.

    >>> without_folders("/data/my/run7/steps.riegeli, episode 3: it was cut off")
    'steps.riegeli, episode 3: it was cut off'
    """
    return _FOLDERS.sub("", text)
