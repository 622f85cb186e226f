"""Servers of `rlds create` in this process, and what calls them and plays there."""

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
    """The response of an application to a request: the status, the headers, the body."""
    sent, parts = [], [body[i : i + 65536] for i in range(0, len(body), 65536)] or [b""]
    path, _, query = path.partition("?")

    async def receive():
        if kind == "websocket":
            return {"type": "websocket.connect"}
        if not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    given = {"host": "localhost:8000", **dict(headers)}
    scope = {"type": kind, "method": method, "path": path, "query_string": query.encode()}
    scope["headers"] = [(k.encode(), v.encode()) for k, v in given.items() if v is not None]
    await app(scope, receive, send)
    if kind == "websocket":
        return [message["type"] for message in sent]
    response_headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return (
        sent[0]["status"],
        response_headers,
        b"".join(message.get("body", b"") for message in sent[1:]),
    )


def answered(app, *args, **kwargs):
    return asyncio.run(_call(app, *args, **kwargs))


def call(address, method, path, body=None, *, cookie="", headers=()):
    """Asks a server for something: the status, and the JSON that is answered."""
    status, _, content = fetch(address, method, path, body, cookie=cookie, headers=headers)
    return status, json.loads(content)


def fetch(address, method, path, body=None, *, cookie="", headers=()):
    """Asks a server for something: the status, the headers, the bytes."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    given = {"content-type": "application/json", **({"cookie": cookie} if cookie else {})}
    content = body if isinstance(body, bytes | None) else json.dumps(body)
    with contextlib.closing(connection):
        connection.request(method, path, content, {**given, **dict(headers)})
        response = connection.getresponse()
        return response.status, response.headers, response.read()


@contextlib.contextmanager
def serving(app, **uvicorn):
    """Has an application answer in a thread of this process; gives its `address`, and the rest."""
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
      address: Where it is.
      creator: Its parts.
    """

    def __init__(self, directory, *, database="", uvicorn=(), **settings):
        self.directory, self._database = directory, database
        self._settings, self._uvicorn = settings, dict(uvicorn)

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        data = DataDirectory(self.directory)
        opened = creator(data, self._database, ServerSettings(**self._settings))
        self.creator = self._stack.enter_context(opened)
        self._there = self._stack.enter_context(serving(self.creator.app, **self._uvicorn))
        self.address = self._there.address
        return self

    def __exit__(self, *_):
        self._stack.close()

    def end_at_once(self, seconds):
        """Ends as after a second Ctrl-C; whether that took no longer than so many seconds."""
        server, thread = self._there.server, self._there.thread
        server.should_exit = server.force_exit = True
        thread.join(seconds)
        return not thread.is_alive()

    def call(self, *args, **kwargs):
        """Asks for something: the status, and the JSON that is answered."""
        return call(self.address, *args, **kwargs)

    def fetch(self, *args, **kwargs):
        """Asks for something: the status, the headers, the bytes."""
        return fetch(self.address, *args, **kwargs)

    def good(self, method, path, body=None, *, cookie=""):
        """Asks for something that is granted: the JSON that is answered."""
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
      frames: The pictures that came.
      messages: What else came.
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

    def receive(self, timeout=60):
        """The next picture or message."""
        message = self.socket.recv(timeout=timeout)
        if isinstance(message, bytes):
            message = Frame.decode(message)
            self.frames.append(message)
            if self.acks:
                with contextlib.suppress(ConnectionClosed):  # What was said before can be read.
                    self.say("ack", frame=message.index)
        else:
            message = json.loads(message)
            self.messages.append(message)
        return message

    def receive_frame(self):
        """The last picture that came; the next one if there was none yet."""
        while not self.frames:
            self.receive()
        return self.frames[-1]

    def until_frame(self):
        """The next picture."""
        number = len(self.frames)
        while len(self.frames) == number:
            self.receive()
        return self.frames[-1]

    def until(self, op, **fields):
        """The next message of a kind with some values, `episode__state` being those of a part.

        It is one after that which was asked for before.
        """
        while True:
            for index in range(self._next.get(op, 0), len(self.messages)):
                message = self.messages[index]
                if message["op"] == op and all(
                    _part(message, name) == value for name, value in fields.items()
                ):
                    self._next[op] = index + 1
                    return message
            self.receive()

    def until_step(self, step, *, is_last=False):
        """The picture of a step, if that is not the last one that came."""
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


def _part(message, name):
    for part in name.split("__"):
        message = message[part]
    return message


def poll(ask, is_good, seconds=60):
    """Asks until the answer is good."""
    deadline = time.monotonic() + seconds
    while not is_good(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)
    return answer
