"""Web security: checks of `Host` and `Origin`, and the headers of responses.

A page of another site in the same browser can send requests to this server (cross-site request
forgery). A page that changes the address of its own host name (DNS rebinding) can even read the
responses. Therefore the `Host` of a request must be an allowed name of this server, and the
`Origin`, which browsers send with WebSockets and with all requests that change data, must be that
host.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Router
from starlette.types import Lifespan, Message, Receive, Scope, Send

from rlds_creator.server import errors

__all__ = ["CONTENT_SECURITY_POLICY", "Application", "Hosts", "is_loopback"]

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "object-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self'",
    )
)
_SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
_MAX_BODY_BYTES = 1_000_000
_BODY_TIMEOUT_S = 30.0
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
_CLOSE_POLICY_VIOLATION = 1008


def is_loopback(host: str) -> bool:
    """True if an address to listen on is reachable from this machine only."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class Hosts:
    """The allowed host names of this server.

    IP addresses are always allowed: DNS rebinding needs a name.

    >>> hosts = Hosts("127.0.0.1", ["lab.example.org"])
    >>> hosts.has("localhost:8000"), hosts.has("lab.example.org"), hosts.has("[::1]:80")
    (True, True, True)
    >>> hosts.has("rebound.example.com:8000")
    False
    """

    def __init__(self, host: str, allowed: Iterable[str] = ()) -> None:
        names = {"localhost", host, *allowed}
        if not is_loopback(host):
            names |= {socket.gethostname(), socket.getfqdn()}
        self.names = {name.lower().rstrip(".") for name in names}

    def has(self, host: str) -> bool:
        """True if the header `Host` of a request names this server."""
        name, colon, port = host.lower().rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host.lower(), ""
        if port and not port.isdecimal():
            return False
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
            return True
        return name.rstrip(".") in self.names


class Application:
    """The routes, with checks of all requests; errors become responses."""

    def __init__(
        self, routes: Sequence[BaseRoute], hosts: Hosts, lifespan: Lifespan[Any] | None = None
    ) -> None:
        self._hosts = hosts
        self._router = Router(routes, redirect_slashes=False, lifespan=lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request, see ASGI."""
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        scope["app"] = self  # With "app", the router raises for unknown paths.
        sender = _Sender(scope, send)
        try:
            self.check(scope)
            if scope["type"] == "http":
                receive = _LimitedBody(receive).receive
            await self._router(scope, receive, sender)
        except ClientDisconnect:
            pass
        except Exception as error:
            await sender.fail(errors.as_server_error(error), receive)

    def check(self, scope: Scope) -> None:
        """Raises a `ServerError` if a request is refused."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._hosts.has(hosts[0]):
            raise errors.BadRequestError(
                "Unknown host name. Start the server with `--allowed-host NAME`.", code="host"
            )
        if scope["type"] == "http" and scope["method"] in _SAFE_METHODS:
            return
        # Browsers send these headers with cross-site requests.
        origins = headers.getlist("origin")
        site = headers.get("sec-fetch-site", "same-origin")
        is_same_host = all(_same_host(origin, hosts[0]) for origin in origins)
        if len(origins) > 1 or not is_same_host or site not in ("same-origin", "none"):
            raise errors.ForbiddenError("Pages of other servers are refused.", code="origin")


def _same_host(origin: str, host: str) -> bool:
    scheme, _, origin_host = origin.lower().partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme)
    if port is None:
        return False
    return origin_host.removesuffix(port) == host.lower().removesuffix(port)


class _LimitedBody:
    """The body of a request, with a deadline and a size limit."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._size = 0
        self._deadline: float | None = None

    async def receive(self) -> Message:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + _BODY_TIMEOUT_S
        if self._deadline == float("inf"):
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise errors.BadRequestError("The request is incomplete.") from None
        self._size += len(message.get("body", b""))
        if self._size > _MAX_BODY_BYTES:
            raise errors.TooLargeError(f"The request is larger than {_MAX_BODY_BYTES} bytes.")
        if not message.get("more_body"):
            self._deadline = float("inf")  # The next message is the disconnection, at any time.
        return message


class _Sender:
    """Sends a response with the security headers, or an error if it has not started."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            if self._scope["path"].startswith("/api/"):
                headers.setdefault("cache-control", "no-store")
        self._has_started = True
        await self._send(message)

    async def fail(self, error: errors.ServerError, receive: Receive) -> None:
        if self._scope["type"] == "http":
            if not self._has_started:
                await errors.answer(error)(self._scope, receive, self)
        else:
            # A close before the socket is accepted becomes a response with status 403.
            await self._send({"type": "websocket.close", "code": _CLOSE_POLICY_VIOLATION})
