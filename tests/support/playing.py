"""A worker of the server, for tests that play."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, Self

from rlds_creator.frames import Frame
from rlds_creator.worker.link import HEADER_SIZE, Link, decode_header, decode_payload, encode
from rlds_creator.worker.player import serve

# Seconds after which a process counts as hanging.
PATIENCE = 30.0


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Player:
    """A worker in a thread, and the server's end of the link.

    Attributes:
      ready: The message "ready".
      states: The states so far, the last one last.
      episodes: The episodes so far, as the worker reported them, in order.
      errors: The errors so far.
      frames: The frames so far.
      status: Its exit status.
    """

    def __init__(
        self, directory: Path, *, clock: Any = time.monotonic, wait: bool = True, **environment: Any
    ) -> None:
        self.clock = clock
        self.connection, worker_end = socket.socketpair()
        self.connection.settimeout(PATIENCE)
        self._begin(worker_end)
        self.ready: dict[str, Any] = {}
        self.states: list[dict[str, Any]] = []
        self.episodes: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.frames: list[Frame] = []
        self.num_pongs = 0
        self.status: int | None = None
        self._num_inputs = 0
        options = {"id": "discrete", **environment.pop("options", {})}
        start = environment.pop("start", {})
        environment = {"name": "Drawn", "family": "drawn", "seed": 7, "fps": 60.0, **environment}
        self.send(
            op="start",
            environment={**environment, "options": options},
            directory=os.fspath(directory),
            agent_id="agent",
            study_id="study",
            env_id="e",
            **{"next_seed": None, "expiry": {}, **start},
        )
        if wait:
            self.until(lambda: self.states)

    def _begin(self, connection: socket.socket) -> None:
        def run() -> None:
            self.status = serve(Link(connection), clock=self.clock)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def _end(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()
        self._end()

    def send(self, **message: Any) -> None:
        self.connection.sendall(encode(message))

    def press(self, *names: str, value: float = 1.0, key: str = "") -> int:
        """Sends presses in one message; returns the index of the message."""
        return self.events(*[{"t": 0, "name": n, "value": value, "key": key} for n in names])

    def release(self, *names: str) -> int:
        return self.press(*names, value=0.0)

    def events(self, *events: dict[str, Any]) -> int:
        self._num_inputs += 1
        self.send(
            op="input", seq=self._num_inputs, events=[{"key": "", **event} for event in events]
        )
        return self._num_inputs

    def control(self, do: str, **more: Any) -> None:
        self.send(op="control", do=do, **more)

    def receive(self) -> Any:
        """Receives a message and files it."""
        kind, size = decode_header(self._read(HEADER_SIZE))
        message = decode_payload(kind, self._read(size))
        if isinstance(message, bytes):
            self.frames.append(Frame.decode(message))
            return self.frames[-1]
        match message["op"]:
            case "ready":
                self.ready = message
            case "state":
                self.states.append(message)
            case "episode":
                self.episodes.append(message["episode"])
            case "error":
                self.errors.append(message)
            case "pong":
                self.num_pongs += 1
            case op:
                raise AssertionError(op)
        return message

    def until(self, condition: Any) -> Any:
        """Receives until a condition is true; returns its value."""
        end = time.monotonic() + PATIENCE
        while not (value := condition()):
            assert time.monotonic() < end, (self.states[-1:], self.errors, len(self.frames))
            self.receive()
        return value

    def sync(self) -> None:
        """Receives until the worker has processed all sent messages."""
        num_pongs = self.num_pongs
        self.send(op="ping")
        self.until(lambda: self.num_pongs > num_pongs)

    def until_state(self, state: str, reason: str = "") -> dict[str, Any]:
        """Receives until the worker is in a state."""

        def is_reached() -> bool:
            last = self.states[-1]
            return last["state"] == state and reason in ("", last["why"])

        self.until(is_reached)
        return self.states[-1]

    def until_step(self, step: int) -> Frame:
        """Receives until the last frame shows a step."""
        self.until(lambda: self.frames and self.frames[-1].step >= step)
        return self.frames[-1]

    def drain(self) -> None:
        """Receives until the worker ends."""
        try:
            while True:
                self.receive()
        except (EOFError, ConnectionError):
            pass

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.connection.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data


class Worker(Player):
    """A worker process.

    Attributes:
      process: The process.
      output: The content of its standard output, after its end.
      printed: The content of its standard error output.
    """

    def _begin(self, connection: socket.socket) -> None:
        self._output, self._errors = (
            tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed at the end)
            for _ in range(2)
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rlds_creator.worker", str(connection.fileno())],
            pass_fds=[connection.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            start_new_session=True,
        )
        connection.close()

    def _end(self) -> None:
        try:
            self.status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self.output, self.printed = map(_text, (self._output, self._errors))

    def kill(self) -> None:
        """Kills it, and receives its earlier messages."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.drain()


def _text(file: IO[str]) -> str:
    with file:
        file.seek(0)
        return file.read()
