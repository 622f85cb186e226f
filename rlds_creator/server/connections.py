"""Limits of connections: in total, per address, and a timeout for the request.

A connection over a limit is closed before any data is read.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

__all__ = ["Connections"]


@dataclasses.dataclass
class Connections:
    """The counts and limits of connections; `http` and `sockets` are the protocols for uvicorn.

    Attributes:
      in_total: The maximum number of concurrent connections.
      per_address: The maximum number of connections from one address; None for no limit.
      seconds: The timeout for the request line and the headers.
    """

    in_total: int = 1000
    per_address: int | None = 200
    seconds: float = 15.0

    def __post_init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def enter(self, address: str) -> bool:
        """Counts a connection; returns False if a limit is reached."""
        self._counts[address] += 1
        max_per_address = self.in_total if self.per_address is None else self.per_address
        return self._counts[address] <= max_per_address and self._counts.total() <= self.in_total

    def leave(self, address: str) -> None:
        """Removes a closed connection from the counts."""
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    @property
    def http(self) -> type[asyncio.Protocol]:
        """The protocol of new HTTP connections."""
        return type("_Http", (_Http,), {"connections_": self})

    @property
    def sockets(self) -> type[asyncio.Protocol]:
        """The protocol of connections upgraded to WebSockets."""
        return type("_Socket", (_Socket,), {"connections_": self})


class _CountedProtocol(asyncio.Protocol):
    connections_: Connections
    client: tuple[str, int] | None
    _address: str | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if not self.connections_.enter(self._address):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def _leave(self) -> None:
        if self._address is not None:
            self.connections_.leave(self._address)
            self._address = None


class _Http(_CountedProtocol, H11Protocol):
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        previous_scope = self.scope
        super().data_received(data)
        if self.scope is not previous_scope:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        answered_scope = self.scope
        super().on_response_complete()
        # A new scope means that the next request has already arrived.
        if self.scope is answered_scope and not self.transport.is_closing():
            self._expect_request()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._leave()  # The WebSocket protocol counts the connection again.
        super().handle_websocket_upgrade(event)

    def _expect_request(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(self.connections_.seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _leave(self) -> None:
        self._stop_waiting()
        super()._leave()


class _Socket(_CountedProtocol, WebSocketsSansIOProtocol):
    pass
