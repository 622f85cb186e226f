"""JSON bodies of requests and responses: parsing, validation and encoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rlds_creator.server import errors
from rlds_creator.type_errors import explain

__all__ = ["LoginRequest", "answer", "body", "convert", "query"]

T = TypeVar("T")


class LoginRequest(msgspec.Struct):
    """The body of a login: the token of an invitation, and the name of a person."""

    token: Annotated[str, msgspec.Meta(max_length=200)]
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""


def answer(value: Any) -> Response:
    """Returns a response with a JSON body."""
    return Response(msgspec.json.encode(value), media_type="application/json")


async def body(request: Request, kind: type[T]) -> T:
    """Returns the parsed JSON body of a request.

    Raises:
      BadRequestError: The body does not have the type; the message has the reason.
    """
    # Pages of other sites cannot send this type without a preflight request.
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise errors.BadRequestError("The content type of the request must be application/json.")
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except UnicodeDecodeError:
        raise errors.BadRequestError("The request is not valid UTF-8.") from None
    except RecursionError:
        raise errors.BadRequestError("The request is nested too deeply.") from None


def query(request: Request, kind: type[T]) -> T:
    """Returns the parsed query parameters of a request.

    Raises:
      BadRequestError: A parameter does not have its type; the message has the reason.
    """
    params: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if value:
            params[name] = [*params[name], value] if name in params else value
    return convert(params, kind, strict=False)


def convert(value: Mapping[str, Any], kind: type[T], *, strict: bool = True) -> T:
    """Converts a mapping to a type of the model.

    Raises:
      BadRequestError: The value does not have the type; the message has the reason.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise errors.BadRequestError(explain(error)) from None
