"""Broken or hostile clients: the server stays up, small and available to other clients."""

import base64
import contextlib
import dataclasses
import os
import socket
import struct
import time
from urllib.parse import quote

import pytest
from creator_server import Served, drawn, poll
from websockets.exceptions import ConnectionClosed

from rlds_creator.server.connections import Connections
from rlds_creator.server.plays import Limits


@pytest.fixture(scope="module")
def limits():
    return Limits(starts=100, max_invalid_messages=20, messages_per_second=500)


@pytest.fixture(scope="module")
def served(tmp_path_factory, limits):
    directory = tmp_path_factory.mktemp("attacked")
    with Served(directory, limits=limits) as served:
        yield served


@pytest.fixture(scope="module")
def study(served):
    return served.study(drawn())


@pytest.fixture
def play(served, study):
    play = served.play(study)
    yield play
    # After the attack, the play goes on for a correct page.
    with served.player(play) as player:
        player.until("hello")
        step = player.receive_frame().step
        player.say("control", do="resume")
        player.until("state", state="running")
        player.walk("Space")
        assert player.frames[-1].step == step + 1


class Raw:
    """A connection on which anything can be sent: a context manager."""

    def __init__(self, served, play=None, **headers):
        host, _, port = served.address.removeprefix("http://").partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        if play is not None:
            key = base64.b64encode(os.urandom(16)).decode()
            headers = {
                "Host": f"{host}:{port}",
                "Upgrade": "websocket",
                "Connection": "Upgrade",
                "Sec-WebSocket-Key": key,
                "Sec-WebSocket-Version": "13",
                **headers,
            }
            lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
            self.socket.sendall(
                "\r\n".join([f"GET /api/plays/{play} HTTP/1.1", *lines, "", ""]).encode()
            )
            self.status = int(self.read_until(b"\r\n\r\n").split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def read_until(self, end):
        data = b""
        while not data.endswith(end):
            data += self.socket.recv(1)
        return data

    def send_frame(self, payload, *, opcode=1, fin=True, rsv=0, is_masked=True, length=None):
        """Sends a valid or an invalid frame."""
        first_byte = fin << 7 | rsv << 4 | opcode
        size = len(payload) if length is None else length
        mask = 0x80 * is_masked
        if size < 126:
            head = struct.pack("!BB", first_byte, mask | size)
        elif size < 65536:
            head = struct.pack("!BBH", first_byte, mask | 126, size)
        else:
            head = struct.pack("!BBQ", first_byte, mask | 127, size)
        key = b"\0\0\0\0" if is_masked else b""
        self.socket.sendall(head + key + payload)

    def read_close_code(self):
        """Returns the code with which the server closes, or None without a code."""
        with contextlib.suppress(ConnectionError):
            while head := self.socket.recv(2, socket.MSG_WAITALL):
                size = head[1]
                if size == 126:
                    (size,) = struct.unpack("!H", self.socket.recv(2, socket.MSG_WAITALL))
                payload = self.socket.recv(size, socket.MSG_WAITALL)
                if head[0] & 0xF == 8:
                    return struct.unpack("!H", payload[:2])[0]
        return None


HELLO = b'{"op":"hello","protocol":1}'


def test_invalid_frames_close_the_connection(served, play) -> None:
    def close_code_of(*, says_hello=True, **frame):
        with Raw(served, play) as raw:
            assert raw.status == 101
            if says_hello:
                raw.send_frame(HELLO)
            raw.send_frame(frame.pop("payload", b""), **frame)
            return raw.read_close_code()

    assert close_code_of(payload=b"x" * 200_000) == 1009, "too long"
    assert close_code_of(length=2**62) == 1009, "declared as too long"
    assert close_code_of(payload=b"{}", is_masked=False) == 1002
    assert close_code_of(payload=b"{}", rsv=4) == 1002
    assert close_code_of(payload=b"\xff\xfe", opcode=1) == 1007, "no UTF-8"
    assert close_code_of(payload=b"{}", opcode=3) == 1002
    assert close_code_of(payload=b"x" * 126, opcode=9) == 1002, "a ping is short"


def test_connection_without_hello_is_closed(served, play, limits, monkeypatch) -> None:
    hasty = dataclasses.replace(limits, until_hello=0.3)
    monkeypatch.setattr(served.creator.plays, "limits", hasty)
    for message in (None, b'{"op":"ack","frame":1}', b'{"op":"hello","protocol":2}', b"[]", b"\0"):
        with Raw(served, play) as raw:
            if message is not None:
                raw.send_frame(message)
            assert raw.read_close_code() == 1008
    with Raw(served, play) as raw:
        raw.send_frame(HELLO, opcode=2)
        assert raw.read_close_code() == 1008, "bytes are no message"


@pytest.mark.slow
def test_connection_without_pong_is_closed(tmp_path) -> None:
    uvicorn = {"ws_ping_interval": 0.2, "ws_ping_timeout": 0.2}
    with Served(tmp_path, uvicorn=uvicorn) as served:
        play = served.play(served.study(drawn()))
        with Raw(served, play) as raw:
            raw.send_frame(HELLO)
            assert raw.read_close_code() == 1011


def test_foreign_pages_get_no_socket(served, play) -> None:
    for headers in (
        {"Origin": "https://evil.example.com"},
        {"Origin": "null"},
        {"Origin": served.address.replace("127.0.0.1", "localhost")},
        {"Host": "rebound.example.com"},
    ):
        with Raw(served, play, **headers) as raw:
            assert raw.status == 403
    with Raw(served, play, Origin=served.address) as raw:
        assert raw.status == 101


INVALID_MESSAGES = [
    "",
    "[]",
    "{" * 30_000,
    '{"op":"input","seq":1,"events":' + "[" * 20_000 + "]" * 20_000 + "}",
    '{"op":"no such thing"}',
    '{"op":["input"]}',
    '{"op":"input","seq":4294967296,"events":[]}',
    '{"op":"input","seq":1,"events":[{"t":1,"name":"KeyA"}]}',
    '{"op":"input","seq":1,"events":[{"t":1,"name":"KeyA","value":NaN}]}',
    '{"op":"input","seq":1,"events":[{"t":1,"name":"KeyA","value":1e308}]}',
    '{"op":"input","seq":1,"events":[{"t":-1,"name":"KeyA","value":1}]}',
    '{"op":"input","seq":1,"events":[{"t":1,"name":"' + "K" * 33 + '","value":1}]}',
    '{"op":"input","seq":1,"events":[{"t":1,"name":"K","value":1,"more":1}]}',
    '{"op":"input","seq":1,"events":[' + ",".join(['{"t":1,"name":"KeyA","value":1}'] * 101) + "]}",
    *(f'{{"op":"set","fps":{fps}}}' for fps in ("0", "1e9", '"15"')),
    *(f'{{"op":"set","camera":{camera}}}' for camera in ("-1", "2147483648", "1.5")),
    '{"op":"set","quality":"ultra"}',
    '{"op":"control","do":"confirm","value":"great"}',
    '{"op":"ack","frame":-1}',
]

# Valid messages that this state or this environment does not accept.
REFUSED_MESSAGES = [
    '{"op":"control","do":"confirm","value":"completed"}',
    '{"op":"control","do":"confirm"}',
    '{"op":"control","do":"end"}',
    '{"op":"control","do":"retry"}',
    '{"op":"control","do":"success","value":"completed"}',
    '{"op":"set","camera":7}',
]


def test_invalid_messages_are_refused_without_effect(served) -> None:
    study = served.study(drawn(), name="Wrong")
    for batch in (INVALID_MESSAGES[:12], INVALID_MESSAGES[12:]):
        with served.player(served.play(study)) as player:
            player.until("state")
            for message in batch:
                player.socket.send(message)
                error = player.until("error")
                assert (error["code"], error["fatal"]) == ("message", False), message
                assert "/" not in error["message"]
                assert len(error["message"]) < 300
    play = served.play(study)
    with served.player(play) as player:
        player.until_step(0)
        for message in REFUSED_MESSAGES:
            player.socket.send(message)
            error = player.until("error")
            assert (error["code"], error["fatal"]) == ("refused", False), message
        player.say("ack", frame=4_000_000_000)
        player.say("hello", protocol=9)
        player.press("Key\u202eA<script>\x07")
        player.walk("Space")
        assert len(player.frames) == 2, "one step, and nothing else has happened"
    served.good("DELETE", f"/api/plays/{play}")


def test_client_with_too_many_invalid_messages_is_disconnected(served, play) -> None:
    with served.player(play) as player:
        player.until("hello")
        with pytest.raises(ConnectionClosed):
            for _ in range(1000):
                player.say("nonsense")
                player.until("error")
        assert player.socket.protocol.close_code == 1008
        assert 15 < len([m for m in player.messages if m["op"] == "error"]) <= 25


def test_flood_is_throttled_and_other_requests_are_answered(served, play, limits) -> None:
    with served.player(play) as player:
        player.until("hello")
        for _ in range(3 * int(limits.messages_per_second)):
            player.say("ack", frame=0)
        player.say("nonsense")
        assert served.good("GET", "/api/me")["person"]
        (served_play,) = [p for p in served.creator.plays._plays.values() if p.id == play]
        assert served_play.worker._writer.transport.get_write_buffer_size() == 0
        assert player.until("error")["code"] == "message"


def test_identifiers_and_names_never_become_paths(served, study) -> None:
    before = {path for path in served.directory.rglob("*") if "sqlite" not in path.name}
    hostile = [
        "..",
        "../salt",
        "/etc/passwd",
        "%2e%2e%2fsalt",
        "a\0b",
        "x" * 300,
        "file",
        "file.pickle",
        "CON",
        "-rf",
        "\u202etxt",
    ]
    for name in hostile:
        quoted = quote(name, safe="")
        for method, path, body in (
            ("GET", f"/api/episodes/{quoted}", None),
            ("GET", f"/api/episodes/{quoted}/view", None),
            ("GET", f"/api/episodes/{quoted}/view/steps/0", None),
            ("GET", f"/api/episodes/{quoted}/view/labels", None),
            ("DELETE", f"/api/episodes/{quoted}", None),
            ("GET", f"/api/exports/{quoted}/file", None),
            ("DELETE", f"/api/exports/{quoted}", None),
            ("GET", f"/api/studies/{quoted}", None),
            ("DELETE", f"/api/studies/{quoted}", None),
            ("GET", f"/static/{quoted}/{quoted}", None),
            ("POST", "/api/plays", {"study": name}),
            ("POST", "/api/plays", {"study": study["id"], "environment": name}),
            ("POST", "/api/episodes/delete", {"ids": [name]}),
            ("POST", "/api/exports", {"episodes": [name]}),
        ):
            status, answer = served.call(method, path, body)
            if (method, path) == ("POST", "/api/episodes/delete") and status == 200:
                assert answer == {"deleted": 0}
                continue
            assert status in (400, 404, 405), (method, path, answer)
            assert set(answer) == {"error"}
            assert str(served.directory) not in answer["error"]["message"]
    after = {path for path in served.directory.rglob("*") if "sqlite" not in path.name}
    assert after == before


INVALID_STUDIES = [
    b"",
    b"[" * 500_000,
    b"null",
    b'{"name": "\xff"}',
    {"name": ""},
    {"name": "a\0b"},
    {"name": "Walk", "description": "x" * 20_001},
    {"name": "Walk", "state": "open"},
    {"name": "Walk", "quota": 0},
    {"name": "Walk", "environments": [drawn()] * 101},
    {"name": "Walk", "environments": [{**drawn(), "fps": 1e9}]},
    {"name": "Walk", "environments": [{**drawn(), "seed": 2**31}]},
    {"name": "Walk", "environments": "drawn"},
]
INVALID_QUERIES = [
    "limit=-1",
    "limit=x",
    "offset=9223372036854775808",
    "sort=salt",
    "since=NaN&until=x",
]


def test_invalid_studies_and_queries_are_refused(served) -> None:
    num_studies = len(served.good("GET", "/api/studies")["studies"])
    for body in INVALID_STUDIES:
        status, answer = served.call("POST", "/api/studies", body)
        assert (status, answer["error"]["code"]) == (400, "bad_request"), str(body)[:80]
    # Browsers send these types to foreign servers without asking first.
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        status, _ = served.call(
            "POST", "/api/studies", {"name": "A"}, headers={"content-type": kind}
        )
        assert status == 400
    assert len(served.good("GET", "/api/studies")["studies"]) == num_studies
    for query in INVALID_QUERIES:
        status, answer = served.call("GET", f"/api/episodes?{query}")
        assert (status, answer["error"]["code"]) == (400, "bad_request"), query


@pytest.mark.slow
def test_unlisted_environments_are_not_created(served) -> None:
    for environment in (
        {**drawn(), "family": "os"},
        {**drawn(), "family": "drawn_family:DrawnFamily"},
        {**drawn(), "family": "gymnasium", "options": {"id": "os:system"}},
        drawn("../discrete"),
        {**drawn(), "options": {"id": "discrete", "__class__": "x"}},
        {**drawn(), "interpreter": "/bin/sh"},
        drawn(trouble="import"),
    ):
        result = served.good("POST", "/api/environments/test", {"environment": environment})
        assert not result["ok"]
        assert result["error"]
        assert result["picture"] is None
        assert "/" not in result["error"].replace("../discrete", "").replace("/bin/sh", "")


@pytest.mark.slow
def test_repeated_starts_leave_no_rows_and_one_process(tmp_path) -> None:
    with Served(tmp_path, limits=Limits(starts=3, starts_per_minute=1)) as served:
        studies = [served.study(drawn(), name=name) for name in ("One", "Other")]
        answers = [
            served.call("POST", "/api/plays", {"study": one["id"]})[0] for one in studies * 10
        ]
        # Only the newest play goes on.
        assert answers == [200] * 3 + [429, 200] * 8 + [429]
        (play,) = [play for play in served.creator.plays._plays.values() if not play.is_over]
        processes = [play.worker.pid for play in served.creator.plays._plays.values()]
        assert [pid for pid in processes if _is_running(pid)] == [play.worker.pid]
        assert served.good("GET", "/api/episodes")["total"] == 0


def _is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_idle_connections_do_not_block_new_ones(tmp_path) -> None:
    connections = Connections(in_total=20, per_address=10, seconds=1.0)
    with (
        Served(tmp_path, uvicorn={"connections": connections}) as served,
        contextlib.ExitStack() as stack,
    ):
        idle = [stack.enter_context(Raw(served)) for _ in range(15)]
        # Connections over the limit are closed at once, idle ones after a timeout,
        # also if a byte comes now and then.
        for _ in range(4):
            with contextlib.suppress(OSError):
                idle[0].socket.sendall(b"G")
            time.sleep(0.1)
        for raw in idle:
            with contextlib.suppress(ConnectionError):
                assert raw.socket.recv(1) == b""
        assert served.good("GET", "/api/me")["person"]
        poll(lambda: connections._counts, lambda counts: not counts)
