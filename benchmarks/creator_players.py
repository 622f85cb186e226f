"""Servers of `rlds create` in processes of their own, and players who are connected to them.

A player is a client of the WebSocket that does what the page of a player does, without looking at
the pictures. It notes when each picture came.
"""

import asyncio
import contextlib
import dataclasses
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Self

import processes
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from rlds_creator.frames import Frame

BIN = Path(sys.executable).parent
# In seconds; nothing takes this long on a machine that does nothing else.
PATIENCE = 120.0

KEYS = ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Space")


def command() -> list[str]:
    """The installed command, or that of the checkout."""
    installed = BIN / "rlds"
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "rlds_tools"]


class Server:
    """A server, as people start it: a context manager. It can be killed, and started again.

    Args:
      directory: The data directory.
      is_shared: Whether people enter by invites; otherwise one person is there, who is everybody.
      players: How many may play.

    Attributes:
      address: Where it is.
      cookie: Of the first person.
    """

    def __init__(self, directory: Path, *, is_shared: bool = False, players: int = 32) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.directory = directory
        self.cookie = ""
        self._is_shared = is_shared
        self._command = [*command(), "create", str(directory), "--no-open", "--quiet"]
        self._command += ["--port", str(self.port), "--max-players", str(players)]
        self._command += ["--behind-proxy"] * is_shared
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts the process, and waits until it answers."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            env={**os.environ, "RLDS_CREATOR_TESTING": "1"},
        )
        assert self._process.stdout is not None
        link = self._process.stdout.readline().split()[0]
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.ask("GET", "/api/me")
                break
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.02)
        if self._is_shared and not self.cookie:
            self.cookie = self.enter(link.partition("#")[2], "owner")

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None
        return self._process.pid

    def workers(self) -> list[int]:
        """The processes of environments, and of exports."""
        return processes.family(self.pid)[1:]

    def kill(self) -> None:
        """Kills the process; the workers see that it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Has it end, as Ctrl-C does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def fetch(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        cookie: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any, bytes]:
        """Asks for something: the status, the headers, the bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        cookie = self.cookie if cookie is None else cookie
        given = {"content-type": "application/json", **(headers or {})}
        with contextlib.closing(connection):
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {**given, "cookie": cookie})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def ask(self, method: str, path: str, body: Any = None, *, cookie: str | None = None) -> Any:
        """Asks for something that is granted: the JSON that is answered."""
        status, _, content = self.fetch(method, path, body, cookie=cookie)
        if status != 200:
            raise RuntimeError(f"{method} {path}: {status} {content.decode()[:500]}")
        return json.loads(content)

    def enter(self, token: str, name: str) -> str:
        """Enters with an invite; returns the cookie."""
        status, headers, content = self.fetch(
            "POST", "/api/enter", {"token": token, "name": name}, cookie=""
        )
        if status != 200:
            raise RuntimeError(f"nobody could enter: {content.decode()[:500]}")
        return str(headers["set-cookie"]).partition(";")[0]

    def people(self, count: int) -> list[str]:
        """Adds people; returns their cookies."""
        invite = {"role": "participant", "uses": count}
        token = self.ask("POST", "/api/invites", invite)["link"].partition("#")[2]
        return [self.enter(token, f"person {number}") for number in range(count)]

    def study(self, **environment: Any) -> str:
        """Adds a study of one environment that can be played; returns its identifier."""
        study = {"name": "Study", "state": "enabled", "environments": [environment]}
        return str(self.ask("POST", "/api/studies", study)["id"])


def drawn(mode: str = "async", fps: float = 30.0, **options: Any) -> dict[str, Any]:
    """An environment that draws its steps, see `rlds_creator.testing`."""
    options = {"id": "discrete", **options}
    return {"name": "Drawn", "family": "drawn", "options": options, "mode": mode, "fps": fps}


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A picture that came.

    Attributes:
      at: When, on the clock of `time.time`.
      frame: The picture; without the file, unless the player keeps it.
      size: The length of the message.
    """

    at: float
    frame: Frame
    size: int


class Player:
    """What the page of a player does: `async with Player(...)`.

    Args:
      server: Where.
      play: What is played, see `begin`.
      cookie: Who plays; the first person by default.
      port: Of a proxy in front of the server.
      keeps: Whether to keep the files of the pictures.
      acks: Whether to say that a picture was shown.

    Attributes:
      seen: The pictures that came.
      said: What else came.
      state: The last state.
      reason: Why the server has closed the connection; "" if it did not say.
    """

    socket: ClientConnection

    def __init__(
        self,
        server: Server,
        play: str,
        cookie: str | None = None,
        *,
        port: int = 0,
        keeps: bool = False,
        acks: bool = True,
    ) -> None:
        self.play = play
        self.seen: list[Seen] = []
        self.said: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {}
        self.reason = ""
        self.is_over = asyncio.Event()
        self._address = f"ws://127.0.0.1:{port or server.port}/api/plays/{play}"
        self._headers = {"cookie": server.cookie if cookie is None else cookie}
        self._keeps, self._acks = keeps, acks
        self._seq = 0
        self._heard = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.socket = await connect(
            self._address,
            additional_headers=self._headers,
            compression=None,
            max_size=None,
            open_timeout=PATIENCE,
            ping_interval=None,
            close_timeout=1,
        )
        await self.say("hello", protocol=1)
        self._tasks.append(asyncio.create_task(self._receive()))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self.socket.close()

    async def say(self, op: str, **more: Any) -> None:
        """Sends a message, unless the connection is closed."""
        with contextlib.suppress(ConnectionClosed, OSError):
            await self.socket.send(json.dumps({"op": op, **more}))

    async def press(self, *events: tuple[str, float]) -> None:
        """Sends events of inputs, in one message."""
        self._seq += 1
        listed = [{"t": self._seq, "name": name, "value": value} for name, value in events]
        await self.say("input", seq=self._seq, events=listed)

    async def _receive(self) -> None:
        try:
            async for message in self.socket:
                if isinstance(message, bytes):
                    now, frame = time.time(), Frame.decode(message)
                    if not self._keeps:
                        frame = dataclasses.replace(frame, picture=b"")
                    self.seen.append(Seen(now, frame, len(message)))
                    if self._acks:
                        await self.say("ack", frame=frame.number)
                else:
                    said = json.loads(message)
                    self.said.append(said)
                    if said["op"] == "state":
                        self.state = said
                    elif said["op"] == "bye":
                        self.reason = said["reason"]
                self._heard.set()
        except (ConnectionClosed, OSError):
            pass
        finally:
            self.is_over.set()
            self._heard.set()

    async def until(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Waits until a condition holds; returns what it returned."""
        async with asyncio.timeout(seconds):
            while not (met := condition()):
                if self.is_over.is_set():
                    raise RuntimeError(f"the connection was closed: {self.reason}")
                self._heard.clear()
                await self._heard.wait()
        return met

    async def until_state(self, *states: str) -> None:
        """Waits for a state."""
        await self.until(lambda: self.state.get("state") in states)

    async def resume(self) -> None:
        """Begins, or goes on."""
        await self.until_state("ready", "paused", "running")
        await self.say("control", do="resume")
        await self.until_state("running")

    def do(self, work: Any) -> None:
        """Does something meanwhile, until the connection is closed."""
        self._tasks.append(asyncio.create_task(work))

    async def fidget(self, seed: int) -> None:
        """Presses keys, a few in a second; plays the next episode when one is over."""
        chance = random.Random(seed)
        while not self.is_over.is_set():
            name = chance.choice(KEYS)
            await self.press((name, 1.0))
            await asyncio.sleep(chance.uniform(0.05, 0.3))
            await self.press((name, 0.0))
            if self.state.get("state") == "ended":
                await self.say("control", do="confirm", value="completed")
                await asyncio.sleep(0.1)
            if self.state.get("state") == "ready":
                await self.say("control", do="resume")

    def completed(self) -> dict[str, int]:
        """The episodes that the server has said are completed, and how many steps they have."""
        return {
            said["episode"]["id"]: said["episode"]["num_steps"]
            for said in self.said
            if said["op"] == "episode" and said["episode"]["state"] == "completed"
        }


def begin(server: Server, study: str, cookie: str | None = None) -> str:
    """Begins to play; returns the identifier of the play."""
    return str(server.ask("POST", "/api/plays", {"study": study}, cookie=cookie)["play"])


@contextlib.asynccontextmanager
async def players(
    server: Server, study: str, cookies: Sequence[str]
) -> AsyncIterator[list[Player]]:
    """Has people play and press keys, each with a cookie."""
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for seed, cookie in enumerate(cookies):
            play = await asyncio.to_thread(begin, server, study, cookie)
            player = await stack.enter_async_context(Player(server, play, cookie))
            await player.until(lambda player=player: player.seen)
            found.append(player)
            player.do(player.fidget(seed))
        for player in found:
            await player.resume()
        yield found


class Proxy:
    """Passes bytes between players and a server: `async with Proxy(...)`.

    Args:
      port: Of the server.
      rate: How many bytes in a second it passes to players; None for any number.

    Attributes:
      port: Where it is.
      is_cut: Whether nothing comes through, as if the cable was pulled out.
    """

    def __init__(self, port: int, rate: float | None = None) -> None:
        self._to = port
        self._rate = rate
        self.is_cut = False
        self._passing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in list(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near = socket.socket()
        if self._rate is not None:  # What lies in buffers is not on its way to a slow player.
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        near.setblocking(False)
        await asyncio.get_running_loop().sock_connect(near, ("127.0.0.1", self._to))
        from_server, to_server = await asyncio.open_connection(sock=near, limit=4096)
        for work in (
            self._copy(reader, to_server, None),
            self._copy(from_server, writer, self._rate),
        ):
            task = asyncio.create_task(work)
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float | None
    ) -> None:
        due = time.monotonic()
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while part := await reader.read(4096 if rate else 65536):
                while self.is_cut:
                    await asyncio.sleep(0.05)
                if rate:
                    due = max(due, time.monotonic()) + len(part) / rate
                    await asyncio.sleep(due - time.monotonic())
                writer.write(part)
                await writer.drain()
