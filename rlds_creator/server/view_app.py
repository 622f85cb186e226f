"""The application of `rlds view`: its pages, and the datasets to view."""

from __future__ import annotations

import hashlib
import hmac

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope
from typing_extensions import override

from rlds_creator.server import errors
from rlds_creator.server.bodies import LoginRequest, answer, body
from rlds_creator.server.pages import Pages
from rlds_creator.server.security import Application, Hosts
from rlds_creator.server.viewing_routes import dataset_routes
from rlds_creator.viewing import Catalog
from rlds_ecosystem import version

__all__ = ["view_app"]

_ME, _ENTER = "/api/me", "/api/enter"


def view_app(
    catalog: Catalog, hosts: Hosts | None = None, *, token: str = "", by: str = ""
) -> Application:
    """Returns the application of `rlds view`.

    Args:
      catalog: The datasets.
      hosts: The allowed host names; None for this machine only.
      token: The required token; "" for none.
      by: The default name of the annotator, which the page can change.
    """
    # The cookie has a hash, which does not reveal the token of the link.
    secret = hashlib.sha256(token.encode()).hexdigest()
    cookie = f"rlds_view_{secret[:8]}"  # The name is unique, because ports share cookies.

    def may_view(headers: Headers) -> bool:
        value = cookie_parser(headers.get("cookie", "")).get(cookie, "")
        return not token or hmac.compare_digest(value.encode(), secret.encode())

    async def me(request: Request) -> Response:
        return answer(
            {
                "person": None,
                "may": ["view"] if may_view(request.headers) else [],
                "mode": "view",
                "single_user": not token,
                "by": by,
                "version": version(),
            }
        )

    async def enter(request: Request) -> Response:
        entry = await body(request, LoginRequest)
        if not hmac.compare_digest(entry.token.encode(), token.encode()):
            text = "This link has expired. Open the link that `rlds view` printed last."
            raise errors.LoginError(text)
        response = answer({"person": None})
        response.set_cookie(cookie, secret, httponly=True, samesite="lax")
        return response

    class Guarded(Application):
        """An application that refuses requests without a token, except the login."""

        @override
        def check(self, scope: Scope) -> None:
            super().check(scope)
            is_open = not scope["path"].startswith("/api/") or scope["path"] in (_ME, _ENTER)
            if not is_open and not may_view(Headers(scope=scope)):
                raise errors.LoginError("Please open the link that `rlds view` printed.")

    routes = [
        Route(_ME, me),
        Route(_ENTER, enter, methods=["POST"]),
        *dataset_routes(catalog),
        *Pages().routes(),
    ]
    return Guarded(routes, hosts or Hosts("localhost"))
