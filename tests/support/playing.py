"""A worker as the server has it, for tests that play."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rlds_creator.frames import Frame
from rlds_creator.worker.link import HEADER_SIZE, decode_header, decode_payload, encode


class Worker:
    """A worker process.

    Attributes:
      process: The process.
      ready: The message of that name.
      states: The states so far, the last one last.
      episodes: The episodes so far, as the worker reported them, in order.
      errors: The errors so far.
      frames: The frames so far.
    """

    def __init__(self, directory: Path, wait: bool = True, **environment: Any) -> None:
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rlds_creator.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "RLDS_CREATOR_TESTING": "1"},
        )
        theirs.close()
        self.connection = ours
        ours.settimeout(30)
        self.ready: dict[str, Any] = {}
        self.states: list[dict[str, Any]] = []
        self.episodes: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.frames: list[Frame] = []
        self.pongs = 0
        self._num_inputs = 0
        options = {"id": "discrete", **environment.pop("options", {})}
        start = environment.pop("start", {})
        self.send(
            op="start",
            environment={
                "id": "e",
                "name": "Drawn",
                "family": "drawn",
                "seed": 7,
                "fps": 60.0,
                **environment,
                "options": options,
            },
            directory=os.fspath(directory),
            agent_id="agent",
            study_id="study",
            env_id="e",
            **{"next_seed": None, "limits": {}, "expiry": {}, **start},
        )
        if wait:
            self.until(lambda: self.states)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()
        if error[0] is not None:
            self.process.kill()
        try:
            _, self.stderr = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def send(self, **message: Any) -> None:
        self.connection.sendall(encode(message))

    def press(self, *names: str, value: float = 1.0, key: str = "") -> int:
        """Sends presses in one message; returns its number."""
        return self.events(*[{"t": 0, "name": n, "value": value, "key": key} for n in names])

    def release(self, *names: str) -> int:
        return self.press(*names, value=0.0)

    def events(self, *events: dict[str, Any]) -> int:
        self._num_inputs += 1
        self.send(op="input", seq=self._num_inputs, events=list(events))
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
                self.pongs += 1
            case op:
                raise AssertionError(op)
        return message

    def until(self, condition: Any, seconds: float = 30.0) -> Any:
        """Receives until a condition holds; returns what it returned."""
        end = time.monotonic() + seconds
        while not (met := condition()):
            assert time.monotonic() < end, (self.states[-1:], self.errors, len(self.frames))
            self.receive()
        return met

    def until_state(self, state: str, why: str = "") -> dict[str, Any]:
        """Receives until the last state is this one."""

        def is_there() -> bool:
            last = self.states[-1]
            return last["state"] == state and why in ("", last["why"])

        self.until(is_there)
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

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.drain()
        self.process.wait()

    def _read(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self.connection.recv(size - len(parts))
            if not part:
                raise EOFError
            parts += part
        return parts
