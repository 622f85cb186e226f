"""Authentication of requests, and calls of blocking functions in threads."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import anyio.to_thread
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from rlds_creator import store
from rlds_creator.model import Person
from rlds_creator.server import errors
from rlds_creator.server.permissions import May, may
from rlds_creator.store import Store

__all__ = ["Authentication", "error_responses", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

_LOGIN_SECONDS = 30 * 86_400


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a blocking function in a thread; errors of the store become error responses."""
    with error_responses():
        return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs))


@contextlib.contextmanager
def error_responses() -> Iterator[None]:
    """Converts errors of the store in this context to error responses."""
    try:
        yield
    except store.RecordNotFoundError as error:
        raise errors.MissingError(_sentence(error)) from None
    except store.StaleError as error:
        raise errors.ConflictError(_sentence(error), code="stale", current=error.current) from None
    except store.QuotaError as error:
        raise errors.ForbiddenError(_sentence(error), code="quota") from None
    except store.InUseError as error:
        raise errors.ConflictError(_sentence(error), code="in_use") from None
    except store.StoreError as error:
        raise errors.BadRequestError(_sentence(error)) from None


def _sentence(error: Exception) -> str:
    text = str(error)
    return re.sub(r"(?<![.!?])$", ".", text[:1].upper() + text[1:])


@dataclasses.dataclass(eq=False)
class Authentication:
    """The authentication of requests.

    Attributes:
      store: The store of people and logins.
      single_user: The only person of a server without logins; None if people log in.
      cookie: The name of the login cookie.
      is_secure: Whether browsers send the cookie by https only.
    """

    store: Store
    single_user: Person | None
    cookie: str
    is_secure: bool = False

    async def authenticate(self, request: HTTPConnection) -> Person | None:
        """Returns the person who sends a request; None if the login is missing or invalid."""
        if self.single_user is not None:
            return self.single_user
        token = request.cookies.get(self.cookie)
        return await in_thread(self.store.person_of, token) if token else None

    async def require_person(
        self, request: HTTPConnection, permission: May | None = None
    ) -> Person:
        """Returns the person who sends a request, and checks a permission.

        Raises:
          LoginError: The request has no valid login.
          ForbiddenError: The person lacks the permission.
        """
        person = await self.authenticate(request)
        if person is None:
            raise errors.LoginError("Please enter with your invitation link.")
        if permission is not None and not may(person, permission):
            role = person.role.value
            raise errors.ForbiddenError(f"The role {role} may not do this. Ask an owner.")
        return person

    def log_in(self, response: Response, token: str) -> None:
        """Sets the login cookie in the browser."""
        response.set_cookie(
            self.cookie,
            token,
            max_age=_LOGIN_SECONDS,
            secure=self.is_secure,
            httponly=True,
            samesite="lax",
        )

    async def log_out(self, request: Request, response: Response) -> None:
        """Ends the login of a browser, and deletes its cookie."""
        token = request.cookies.get(self.cookie)
        if token:
            await asyncio.shield(in_thread(self.store.end_login, token))
        response.delete_cookie(self.cookie, httponly=True, secure=self.is_secure)
