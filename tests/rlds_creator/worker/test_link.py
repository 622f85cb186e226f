"""Messages between the server and a worker."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlds_creator.worker.link import (
    HEADER_SIZE,
    MAX_PAYLOAD_SIZE,
    Link,
    LinkError,
    decode_header,
    decode_payload,
    encode,
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # A lone surrogate has no UTF-8.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary() | values.map(lambda value: {"op": "x", "value": value}))
def test_message_survives_a_round_trip(message):
    encoded = encode(message)
    kind, size = decode_header(encoded[:HEADER_SIZE])
    assert len(encoded) == HEADER_SIZE + size
    assert decode_payload(kind, encoded[HEADER_SIZE:]) == message


def test_invalid_messages_are_refused():
    for header in (b"\0\0\0\0X", struct.pack("<Ic", MAX_PAYLOAD_SIZE + 1, b"F")):
        with pytest.raises(LinkError):
            decode_header(header)
    for payload in (b"", b"[]", b"{}", b'{"op":1}', b'{"op":NaN}', b"\xff", b"[" * 100_000):
        with pytest.raises(LinkError):
            decode_payload(b"J", payload)
    for message in ({"op": float("nan")}, bytes(MAX_PAYLOAD_SIZE + 1)):
        with pytest.raises(LinkError):
            encode(message)


def test_messages_are_received_in_pieces():
    server_end, worker_end = socket.socketpair()
    link = Link(worker_end)
    assert link.receive(0) is None
    for byte in encode({"op": "ping"}) + encode({"op": "stop"}):
        server_end.send(bytes([byte]))
    assert [link.receive()["op"] for _ in range(2)] == ["ping", "stop"]
    server_end.sendall(encode({"op": "last"}) + b"no header")
    assert link.receive() == {"op": "last"}
    for _ in range(2):  # Invalid bytes count as the end of the server.
        with pytest.raises(EOFError):
            link.receive()
    server_end.close()
    with pytest.raises(EOFError):
        for _ in range(1000):
            link.send(b"picture" * 1000)
    link.close()
