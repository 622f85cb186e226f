"""The protocol between the server and a worker: messages over a pair of sockets.

A message has a header of 5 bytes and a payload:

    offset  type  field
    0       u32   length of the payload, little-endian
    4       u8    kind: "J" a JSON object in UTF-8 with the key "op", "F" a picture

A picture is a message of `rlds_creator.frames`, which the server forwards unchanged.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = [
    "HEADER_SIZE",
    "MAX_PAYLOAD_SIZE",
    "Link",
    "LinkError",
    "Message",
    "decode_header",
    "decode_payload",
    "encode",
]

# A message is a JSON object, or a picture.
Message = dict[str, Any] | bytes

HEADER_SIZE = 5
# The maximum size of a message in bytes, because a page cannot show larger pictures in time.
MAX_PAYLOAD_SIZE = 16 << 20

_HEADER = struct.Struct("<Ic")
_JSON_KIND, _PICTURE_KIND = b"J", b"F"

# The maximum number of messages in the queue of the worker; if it is full, the server waits.
_MAX_QUEUED_MESSAGES = 1000

# The time for a worker to close its log after the end of the server.
_CLOSE_TIMEOUT_S = 10.0
# The time for a full queue to accept a message.
_FULL_QUEUE_TIMEOUT_S = 60.0


class LinkError(Exception):
    """A received message is malformed, or a message to send is too large."""


def encode(message: Mapping[str, Any] | bytes) -> bytes:
    r"""Returns the bytes of a message.

    Raises:
      LinkError: The message is too large, or has a number that JSON cannot represent.

    >>> encode({"op": "ping"})
    b'\r\x00\x00\x00J{"op":"ping"}'
    """
    if isinstance(message, bytes):
        return _encode_header(message, _PICTURE_KIND) + message
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as e:
        raise LinkError(f"a message cannot be sent: {e}") from e
    payload = text.encode(errors="replace")
    return _encode_header(payload, _JSON_KIND) + payload


def _encode_header(payload: bytes, kind: bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD_SIZE:
        raise LinkError(f"a message has {len(payload)} bytes, more than {MAX_PAYLOAD_SIZE}")
    return _HEADER.pack(len(payload), kind)


def decode_header(header: bytes) -> tuple[bytes, int]:
    """Returns the kind of a message, and the length of its payload.

    Raises:
      LinkError: The header is invalid, or the payload is too large.
    """
    size, kind = _HEADER.unpack(header)
    if kind not in (_JSON_KIND, _PICTURE_KIND) or size > MAX_PAYLOAD_SIZE:
        raise LinkError(f"unknown message: kind {kind!r}, {size} bytes")
    return kind, size


def decode_payload(kind: bytes, payload: bytes) -> Message:
    """Returns the message of a payload.

    Raises:
      LinkError: The payload is not JSON, or not an object with an "op".
    """
    if kind == _PICTURE_KIND:
        return payload
    try:
        message = json.loads(payload, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as e:
        raise LinkError(f"the message is not JSON: {e}") from e
    if not isinstance(message, dict) or not isinstance(message.get("op"), str):
        raise LinkError('the message is not an object with an "op"')
    return message


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


class Link:
    """The worker's end of the socket pair.

    A thread only receives and queues messages; the main thread alone uses the environment. If the
    connection to the server is lost, the worker has a few seconds to end; then the thread ends it,
    because the environment may hang. A process that the environment forks ends if it uses the link.

    Args:
      connection: A stream socket, which is closed with the link.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.set_inheritable(False)
        self._connection = connection
        self._owner_pid = os.getpid()
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue(_MAX_QUEUED_MESSAGES)
        self._is_lost = False
        self._is_closed = threading.Event()
        os.register_at_fork(after_in_child=self._close_fork)
        threading.Thread(target=self._receive_all, name="link", daemon=True).start()

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Returns the next message; None after the timeout, which may be None to wait forever.

        Raises:
          EOFError: The connection to the server is lost.
        """
        self._check_owner()
        if self._is_lost and self._messages.empty():
            raise EOFError
        try:
            message = self._messages.get(timeout=timeout)
        except queue.Empty:
            return None
        if message is None:
            self._is_lost = True
            raise EOFError
        return message

    def send(self, message: Mapping[str, Any] | bytes) -> None:
        """Sends a message.

        Raises:
          EOFError: The connection to the server is lost.
          LinkError: The message is too large.
        """
        self._check_owner()
        encoded = encode(message)
        try:
            self._connection.sendall(encoded)
        except OSError as e:
            self._is_lost = True
            raise EOFError from e

    def close(self) -> None:
        """Closes the socket; the thread ends."""
        self._is_closed.set()
        with contextlib.suppress(OSError):  # The server may have closed the link.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _check_owner(self) -> None:
        if os.getpid() != self._owner_pid:
            os._exit(1)

    def _close_fork(self) -> None:
        # An open socket in a forked process would hide the end of the worker from the server.
        self._connection.close()

    def _receive_all(self) -> None:
        try:
            while True:
                kind, size = decode_header(self._read(HEADER_SIZE))
                message = decode_payload(kind, self._read(size))
                if isinstance(message, dict):
                    self._messages.put(message, timeout=_FULL_QUEUE_TIMEOUT_S)
        except queue.Full:
            os._exit(1)
        except (EOFError, OSError, LinkError):
            pass
        try:
            self._messages.put(None, timeout=_CLOSE_TIMEOUT_S)
        except queue.Full:
            os._exit(1)
        if not self._is_closed.wait(_CLOSE_TIMEOUT_S):
            os._exit(1)

    def _read(self, size: int) -> bytes:
        chunks = []
        while size:
            chunk = self._connection.recv(min(size, 1 << 16))
            if not chunk:
                raise EOFError
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)
