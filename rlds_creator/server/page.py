"""The WebSocket connection to a player's page, with backpressure for pictures.

A page that is slower than the environment gets fewer pictures: `MAX_UNACKNOWLEDGED` pictures may
wait for its acknowledgement, and of later pictures only the newest is queued.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from rlds_creator.frames import read_index

__all__ = ["MAX_UNACKNOWLEDGED", "Page"]

MAX_UNACKNOWLEDGED = 2
# The maximum number of queued messages; one more closes the connection.
_MAX_QUEUED_MESSAGES = 200
_CLOSE_POLICY_VIOLATION = 1008


class Page:
    """A connection to a page, with its queue of unsent messages."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._queue: deque[dict[str, Any]] = deque()
        self._frame: bytes | None = None
        self._unacknowledged: deque[int] = deque()
        self._full_since: float | None = None
        self._wake = asyncio.Event()
        self._is_closing = False
        self._close_code = 1000

    def queue(self, message: dict[str, Any]) -> None:
        """Queues a message to be sent."""
        if len(self._queue) < _MAX_QUEUED_MESSAGES:
            self._queue.append(message)
        else:
            self._is_closing, self._close_code = True, _CLOSE_POLICY_VIOLATION
        self._wake.set()

    def show(self, frame: bytes) -> None:
        """Queues a picture; a newer picture replaces it until the page can receive."""
        self._frame = frame
        self._wake.set()

    def ack(self, index: int) -> None:
        """Handles the acknowledgement of a picture by the page."""
        while self._unacknowledged and self._unacknowledged[0] <= index:
            self._unacknowledged.popleft()
            self._full_since = None
        self._wake.set()

    def reset_frames(self) -> None:
        """Drops the queued picture and restarts the count of pictures."""
        self._frame = None
        self._unacknowledged.clear()
        self._full_since = None

    def bye(self, reason: str) -> None:
        """Queues a message with the reason of the end, and closes the connection after it."""
        if not self._is_closing:
            self._frame = None
            self.queue({"op": "bye", "reason": reason})
            self._is_closing = True

    def seconds_without_ack(self, now: float) -> float:
        """Returns the seconds since the last acknowledgement, if the window is full."""
        return 0.0 if self._full_since is None else now - self._full_since

    async def send(self) -> None:
        """Sends queued messages and pictures until the connection is closed."""
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            while await self._send_next():
                pass

    async def _send_next(self) -> bool:
        if self._queue:
            message = self._queue.popleft()
            await self._websocket.send_text(msgspec.json.encode(message).decode())
        elif self._is_closing:
            await self._websocket.close(self._close_code)
            return False
        elif self._frame is not None and len(self._unacknowledged) < MAX_UNACKNOWLEDGED:
            frame, self._frame = self._frame, None
            self._unacknowledged.append(read_index(frame))
            if len(self._unacknowledged) == MAX_UNACKNOWLEDGED:
                self._full_since = asyncio.get_running_loop().time()
            await self._websocket.send_bytes(frame)
        else:
            self._wake.clear()
            await self._wake.wait()
        return True
