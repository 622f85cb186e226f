"""Accepted requests, and the headers of every response."""

import asyncio
import json
import logging
import re

import pytest
from creator_server import answered
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from rlds_creator.server import errors
from rlds_creator.server.pages import Pages
from rlds_creator.server.running import RateLimitFilter
from rlds_creator.server.security import Application, Hosts


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def fail(request: Request) -> Response:
    raise FileNotFoundError("/secret/folder is not there")


async def refuse(request: Request) -> Response:
    raise errors.ConflictError("It has changed.", current={"version": 2})


async def accept_socket(websocket) -> None:
    await websocket.accept()
    await websocket.close()


@pytest.fixture
def app() -> Application:
    return Application(
        [
            Route("/api/echo", echo, methods=["GET", "POST"]),
            Route("/api/broken", fail),
            Route("/api/refused", refuse),
            WebSocketRoute("/api/socket", accept_socket),
            *Pages().routes(),
        ],
        Hosts("127.0.0.1", ["Lab.example.org"]),
    )


def test_unknown_host_names_are_refused(app) -> None:
    own_hosts = ("localhost", "LOCALHOST:9", "127.0.0.1:8000", "[::1]:8000", "lab.example.org.:443")
    for host in own_hosts:
        assert answered(app, path="/api/echo", headers={"host": host})[0] == 200, host
    foreign = ("rebound.example.com", "localhost.example.com:8000", "localhost:8000@example.com")
    for host in (*foreign, "", None):
        status, headers, body = answered(app, path="/api/echo", headers={"host": host})
        assert (status, json.loads(body)["error"]["code"]) == (400, "host"), host
        assert "content-security-policy" in headers


OWN_HEADERS = [
    {},  # No browser.
    {"origin": "http://localhost:8000", "sec-fetch-site": "same-origin"},
    {"origin": "https://lab.example.org", "host": "lab.example.org:443"},
]
FOREIGN_HEADERS = [
    {"origin": "http://localhost:8001"},
    {"origin": "http://localhost"},
    {"origin": "https://evil.example.com"},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "file://localhost:8000"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://localhost:8000"},
]


def test_requests_of_foreign_pages_are_refused(app) -> None:
    for headers in (*OWN_HEADERS, *FOREIGN_HEADERS):
        is_own = headers in OWN_HEADERS
        status, _, _ = answered(app, "POST", "/api/echo", b"x", headers)
        assert status == (200 if is_own else 403), headers
        types = answered(app, path="/api/socket", headers=headers, kind="websocket")
        assert types[0] == ("websocket.accept" if is_own else "websocket.close")
        assert answered(app, path="/api/echo", headers=headers)[0] == 200, "reading changes nothing"


def test_every_response_has_a_security_policy(app) -> None:
    for path in ("/", "/api/echo", "/api/broken", "/api/none", "/static/x/y.js"):
        _, headers, _ = answered(app, path=path)
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert answered(app, path="/api/echo")[1]["cache-control"] == "no-store"


def test_a_body_that_is_too_large_is_refused(app) -> None:
    assert answered(app, "POST", "/api/echo", b"x" * 1_000_000)[0] == 200
    status, _, body = answered(app, "POST", "/api/echo", b"x" * 1_000_001)
    assert status == 413
    assert json.loads(body)["error"]["code"] == "too_large"


def test_body_that_never_ends_is_refused(app, monkeypatch) -> None:
    monkeypatch.setattr("rlds_creator.server.security._BODY_TIMEOUT_S", 0.01)

    async def receive_forever():
        await asyncio.Event().wait()

    async def request() -> list:
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/api/echo", "query_string": b""}
        scope["headers"] = [(b"host", b"localhost")]
        await app(scope, receive_forever, send)
        return sent

    assert asyncio.run(request())[0]["status"] == 400


def test_errors_are_reported_without_paths(app, caplog) -> None:
    with caplog.at_level(logging.ERROR):
        status, _, body = answered(app, path="/api/broken")
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (500, "internal")
    assert not re.search(b"secret|Error", body)
    error_id = error["message"].rpartition(" ")[2].rstrip(".")
    assert re.search(f"error {error_id}(.|\n)*/secret/folder", caplog.text)

    status, _, body = answered(app, path="/api/refused")
    assert (status, json.loads(body)["current"]) == (409, {"version": 2})
    assert answered(app, path="/api/none")[0] == 404
    status, _, body = answered(app, "DELETE", "/api/echo")
    assert (status, json.loads(body)["error"]["code"]) == (405, "method")


def test_log_is_limited_to_some_lines_per_minute() -> None:
    now = 0.0
    rate_limit = RateLimitFilter(60, clock=lambda: now)

    def log(count):
        records = [logging.makeLogRecord({"msg": "wrong %d", "args": (i,)}) for i in range(count)]
        return [record.getMessage() for record in records if rate_limit.filter(record)]

    assert len(log(1000)) == 60
    now = 2.0
    assert log(1000) == ["wrong 0 (940 left out)", "wrong 1"]
    now = 3600.0
    assert len(log(1000)) == 60
