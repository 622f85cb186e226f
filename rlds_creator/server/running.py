"""The web server process: its port, log messages, and shutdown."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from typing import Any

import click
import uvicorn

from rlds_creator.server.connections import Connections
from rlds_creator.server.limits import Bucket
from rlds_creator.server.security import Application

__all__ = ["RateLimitFilter", "address_of", "listen", "serve", "server", "wants_browser"]

# The maximum number of log lines per minute, because clients can cause log lines.
_MAX_LOGS_PER_MINUTE = 60


@contextlib.contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """Listens on a port; 0 selects any free port.

    Raises:
      OSError: The port is in use, or the address is not of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except socket.gaierror as error:
        raise OSError(f"--host {host}: not an address of this machine: {error.strerror}") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise OSError(f"cannot listen on {host}, port {port}: {reason}. Try --port 0.") from None
    with listener:
        yield listener


def address_of(listener: socket.socket) -> str:
    """Returns the URL for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def wants_browser() -> bool:
    """True if this machine can open a browser window for its user."""
    if os.environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    has_screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or bool(has_screen)


def server(
    app: Application,
    *,
    behind_proxy: bool = False,
    connections: Connections | None = None,
    **settings: Any,
) -> uvicorn.Server:
    """Returns a server of an application; `serve` runs it.

    Args:
      app: The application.
      behind_proxy: Whether all connections are from a proxy on this machine that names the clients.
      connections: The connection limits.
      **settings: Settings of `uvicorn.Config` instead of those here.
    """
    if connections is None:
        connections = Connections(per_address=None) if behind_proxy else Connections()
    config = uvicorn.Config(
        app,
        **{
            "loop": "asyncio",
            "http": connections.http,
            "ws": connections.sockets,  # The "websockets-sansio" protocol.
            "ws_max_size": 65536,
            "ws_ping_interval": 20.0,
            "ws_ping_timeout": 20.0,
            # Pictures are not compressible, and compression needs memory for each connection.
            "ws_per_message_deflate": False,
            "proxy_headers": behind_proxy,
            "server_header": False,
            "access_log": False,
            "log_config": None,
            "lifespan": "on",
            # The time after which running requests are cancelled.
            "timeout_graceful_shutdown": 5,
            **settings,
        },
    )
    return uvicorn.Server(config)


def serve(
    app: Application,
    listener: socket.socket,
    link: str,
    *,
    opens_browser: bool | None = None,
    quiet: bool = False,
    behind_proxy: bool = False,
    verbose: bool = False,
) -> None:
    """Serves until Ctrl-C or a signal ends the process.

    Args:
      app: The application.
      listener: The listening socket, see `listen`.
      link: The URL of the page, which is printed after the start.
      opens_browser: Whether to open the page in a browser; by default if there is a screen.
      quiet: Whether to print only the URL.
      behind_proxy: See `server`.
      verbose: Whether to log events, not only warnings and errors.
    """
    running_server = server(app, behind_proxy=behind_proxy)

    def announce() -> None:
        while not running_server.started and not running_server.should_exit:
            time.sleep(0.02)
        if running_server.started:
            click.echo(link if quiet else f"{link}   (Ctrl-C stops it)")
            if wants_browser() if opens_browser is None else opens_browser:
                webbrowser.open(link)

    threading.Thread(target=announce, daemon=True).start()
    with _configure_logging(logging.INFO if verbose else logging.WARNING):
        with contextlib.suppress(KeyboardInterrupt):
            running_server.run(sockets=[listener])


class RateLimitFilter(logging.Filter):
    """A log filter that limits the rate of lines; the next line has the number of dropped lines."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._bucket = Bucket(per_minute, per_minute / 60, clock)
        self._num_dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns True if a log line is within the rate."""
        if self._bucket.take():
            self._num_dropped += 1
            return False
        if self._num_dropped:
            record.msg, record.args = f"{record.getMessage()} ({self._num_dropped} left out)", None
            self._num_dropped = 0
        return True


@contextlib.contextmanager
def _configure_logging(level: int) -> Iterator[None]:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(RateLimitFilter(_MAX_LOGS_PER_MINUTE))
    loggers = [logging.getLogger(name) for name in ("uvicorn", "asyncio", "rlds_creator")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True
            logger.setLevel(logging.NOTSET)
