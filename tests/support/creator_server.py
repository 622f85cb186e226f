"""Servers of `rlds create` in this process, and clients for calls and for players."""

import asyncio
import contextlib
import http.client
import json
import threading
import time
import types

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from rlds_creator.frames import Frame
from rlds_creator.server import running
from rlds_creator.server.app import ServerSettings, creator
from rlds_creator.server.directory import DataDirectory


async def _call(app, method="GET", path="/", body=b"", headers=(), kind="http"):
    """Returns the status, the headers and the body of a response."""
    messages, chunks = [], [body[i : i + 65536] for i in range(0, len(body), 65536)] or [b""]
    path, _, query = path.partition("?")

    async def receive():
        if kind == "websocket":
            return {"type": "websocket.connect"}
        if not chunks:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def send(message):
        messages.append(message)

    all_headers = {"host": "localhost:8000", **dict(headers)}
    scope = {"type": kind, "method": method, "path": path, "query_string": query.encode()}
    scope["headers"] = [(k.encode(), v.encode()) for k, v in all_headers.items() if v is not None]
    await app(scope, receive, send)
    if kind == "websocket":
        return [message["type"] for message in messages]
    response_headers = {k.decode(): v.decode() for k, v in messages[0]["headers"]}
    return (
        messages[0]["status"],
        response_headers,
        b"".join(message.get("body", b"") for message in messages[1:]),
    )


def answered(app, *args, **kwargs):
    return asyncio.run(_call(app, *args, **kwargs))


def call(address, method, path, body=None, *, cookie="", headers=()):
    """Returns the status and the JSON of a response."""
    status, _, content = fetch(address, method, path, body, cookie=cookie, headers=headers)
    return status, json.loads(content)


def fetch(address, method, path, body=None, *, cookie="", headers=()):
    """Returns the status, the headers and the bytes of a response."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=600)
    default_headers = {"content-type": "application/json", **({"cookie": cookie} if cookie else {})}
    content = body if isinstance(body, bytes | None) else json.dumps(body)
    with contextlib.closing(connection):
        connection.request(method, path, content, {**default_headers, **dict(headers)})
        response = connection.getresponse()
        return response.status, response.headers, response.read()


@contextlib.contextmanager
def serving(app, **uvicorn):
    """Serves an application in a thread; yields its `address`, `server` and `thread`."""
    with running.listen("127.0.0.1", 0) as listener:
        server = running.server(app, **uvicorn)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server has not started"
            time.sleep(0.005)
        try:
            yield types.SimpleNamespace(
                address=running.address_of(listener), server=server, thread=thread
            )
        finally:
            server.should_exit = True
            thread.join()


class Served:
    """A server with a port, in a thread of this process: a context manager.

    Attributes:
      address: Its URL.
      creator: Its store, its recordings and its application.
    """

    def __init__(self, directory, *, database="", uvicorn=(), **settings):
        self.directory, self._database = directory, database
        self._settings, self._uvicorn = settings, dict(uvicorn)

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        data = DataDirectory(self.directory)
        opened = creator(data, self._database, ServerSettings(**self._settings))
        self.creator = self._stack.enter_context(opened)
        self._run = self._stack.enter_context(serving(self.creator.app, **self._uvicorn))
        self.address = self._run.address
        return self

    def __exit__(self, *_):
        self._stack.close()

    def end_at_once(self, seconds):
        """Ends as after a second Ctrl-C; returns whether it ended within the seconds."""
        server, thread = self._run.server, self._run.thread
        server.should_exit = server.force_exit = True
        thread.join(seconds)
        return not thread.is_alive()

    def call(self, *args, **kwargs):
        """Returns the status and the JSON of a response."""
        return call(self.address, *args, **kwargs)

    def fetch(self, *args, **kwargs):
        """Returns the status, the headers and the bytes of a response."""
        return fetch(self.address, *args, **kwargs)

    def good(self, method, path, body=None, *, cookie=""):
        """Returns the JSON of a response, whose status must be 200."""
        status, answer = self.call(method, path, body, cookie=cookie)
        assert status == 200, answer
        return answer

    def study(self, *environments, **more):
        """Adds an enabled study, and returns it."""
        study = {"name": "Walk", "state": "enabled", **more}
        return self.good("POST", "/api/studies", {**study, "environments": environments})

    def play(self, study, environment=None, *, cookie=""):
        """Begins to play; returns the identifier of the play."""
        wish = {"study": study["id"], "environment": environment}
        return self.good("POST", "/api/plays", wish, cookie=cookie)["play"]

    def player(self, play, **options):
        """Connects to a play."""
        return Player(f"{self.address.replace('http', 'ws')}/api/plays/{play}", **options)


def drawn(id="discrete", mode="sync", **options):
    """An environment of `drawn_family`."""
    fields = {
        key: options.pop(key) for key in ("seed", "fps", "max_episode_steps") if key in options
    }
    return {
        "name": f"Drawn {id}",
        "family": "drawn",
        "options": {"id": id, **options},
        "mode": mode,
        **fields,
    }


class Player:
    """A simulated page of a player: a context manager.

    Attributes:
      frames: The received pictures.
      messages: The received messages of other kinds.
    """

    def __init__(self, address, *, cookie="", acks=True, says_hello=True, origin=None):
        headers = {"cookie": cookie} if cookie else {}
        self._stack = contextlib.ExitStack()
        self.socket = self._stack.enter_context(
            connect(
                address, additional_headers=headers, compression=None, max_size=None, origin=origin
            )
        )
        self.acks, self.frames, self.messages = acks, [], []
        self._seq, self._next = 0, {}
        if says_hello:
            self.say("hello", protocol=1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def say(self, op, **more):
        self.socket.send(json.dumps({"op": op, **more}))

    def press(self, name, value=1, **more):
        self._seq += 1
        events = [{"t": self._seq, "name": name, "value": value, **more}]
        self.say("input", seq=self._seq, events=events)

    def tap(self, name):
        self.press(name)
        self.press(name, 0)

    def receive(self, timeout=600):
        """The next picture or message."""
        message = self.socket.recv(timeout=timeout)
        if isinstance(message, bytes):
            message = Frame.decode(message)
            self.frames.append(message)
            if self.acks:
                with contextlib.suppress(ConnectionClosed):  # Earlier messages can still be read.
                    self.say("ack", frame=message.index)
        else:
            message = json.loads(message)
            self.messages.append(message)
        return message

    def receive_frame(self):
        """The last received picture; waits for one if there is none yet."""
        while not self.frames:
            self.receive()
        return self.frames[-1]

    def until_frame(self):
        """The next picture."""
        num_frames = len(self.frames)
        while len(self.frames) == num_frames:
            self.receive()
        return self.frames[-1]

    def until(self, op, **fields):
        """Returns the next message of a kind with some values; `episode__state` is a nested key.

        The search begins after the last message of the kind that was returned.
        """
        while True:
            for index in range(self._next.get(op, 0), len(self.messages)):
                message = self.messages[index]
                if message["op"] == op and all(
                    _field(message, name) == value for name, value in fields.items()
                ):
                    self._next[op] = index + 1
                    return message
            self.receive()

    def until_step(self, step, *, is_last=False):
        """The picture of a step: the last received one, or a later one."""
        while True:
            if self.frames and self.frames[-1].step == step and self.frames[-1].is_last >= is_last:
                return self.frames[-1]
            self.receive()

    def walk(self, *names):
        """Steps once for each key."""
        for name in names:
            self.tap(name)
            step = self.frames[-1].step
            self.until_step(step + 1)


def _field(value, name):
    for key in name.split("__"):
        value = value[key]
    return value


def poll(ask, is_good, seconds=60):
    """Asks until the answer is good."""
    deadline = time.monotonic() + seconds
    while not is_good(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)
    return answer
