"""Worker processes, which run the environments of RLDS Creator: one for each player.

They are started anew and never forked from the server, in a process group of their own: what an
environment starts ends with it. The server speaks with a worker over a pair of sockets, see
`rlds_creator.worker.link`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlds_creator.server.errors import BadRequestError, ServiceUnavailableError
from rlds_creator.worker import link

__all__ = ["Interpreters", "Worker", "WorkerMaker", "WorkerTimeouts", "hear_worker"]

logger = logging.getLogger(__name__)

# The maximum size of unread messages to a worker, after which it is killed.
_MAX_UNREAD_BYTES = 1 << 20
_DESCRIBE_TIMEOUT_S = 60.0
# The maximum output of a worker that is kept for the log of a failure.
_MAX_OUTPUT_BYTES = 8192


@dataclasses.dataclass(frozen=True)
class WorkerTimeouts:
    """The timeouts of a worker, in seconds.

    Attributes:
      to_make: For its environment, and the first picture.
      to_answer: For a step, or to reset the environment; it is asked all the time.
      to_end: For the end of its log.
      between_pings: The interval of pings.
    """

    to_make: float = 120.0
    to_answer: float = 30.0
    to_end: float = 10.0
    between_pings: float = 5.0


class Interpreters:
    """The Python interpreters of workers, by their names in studies.

    Attributes:
      names: "" for that of the server, and the others.
    """

    def __init__(self, other_pythons: Mapping[str, str] | None = None) -> None:
        self._paths = {"": sys.executable, **(other_pythons or {})}
        self.names = list(self._paths)
        self._described: dict[str, asyncio.Task[dict[str, Any]]] = {}

    def path(self, name: str) -> str:
        """Returns the path of an interpreter.

        Raises:
          BadRequestError: There is none of this name.
        """
        if name not in self._paths:
            raise BadRequestError(
                f"This server has no interpreter {name!r:.80}. "
                "Start it with `--interpreter NAME=PYTHON`."
            )
        return self._paths[name]

    async def describe(self, name: str) -> dict[str, Any]:
        """Returns what can be made in an interpreter, see `rlds_creator.worker.describing`.

        Raises:
          BadRequestError: There is none of this name.
          ServiceUnavailableError: It does not say.
        """
        path = self.path(name)
        task = self._described.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._described[name] = asyncio.create_task(_describe(path, name))
        return await asyncio.shield(task)


async def _describe(path: str, name: str) -> dict[str, Any]:
    families: dict[str, Any] = {}

    def hear(message: link.Message) -> bool:
        if isinstance(message, dict) and message["op"] == "described":
            families.update(message["families"])
        return bool(families)

    make = functools.partial(Worker, timeouts=WorkerTimeouts(to_make=_DESCRIBE_TIMEOUT_S))
    with contextlib.suppress(ServiceUnavailableError):
        await hear_worker(make, path, {"op": "describe"}, hear)
    if not families:
        called = f"{name!r}" if name else "of the server"
        raise ServiceUnavailableError(
            f"The interpreter {called} cannot list its environments. Is `rlds-ecosystem` "
            "installed there?"
        )
    return families


async def hear_worker(
    make: WorkerMaker,
    python: str,
    message: Mapping[str, Any],
    hear: Callable[[link.Message], bool],
) -> str:
    """Runs a worker until it has sent a message; returns the reason of its end, or "".

    Args:
      make: Makes the worker.
      python: See `Worker.start`, also for its errors.
      message: See there.
      hear: Is called with what the worker says; returns whether that is all.
    """
    over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(message: link.Message) -> None:
        if hear(message):
            ended("")

    def ended(why: str) -> None:
        if not over.done():
            over.set_result(why)

    worker = make(heard, ended)
    try:
        await worker.start(python, message)
        return await over
    finally:
        await worker.stop()


@dataclasses.dataclass(eq=False)
class Worker:
    """A process, and the server's end of the pair of sockets.

    Attributes:
      on_message: Is called with each object and each picture that comes.
      on_end: Is called once, when the process is gone, with why: "stopped" if it was asked to,
        "ended" if it went by itself, "crashed", or "hung".
      timeouts: The timeouts.
      inherits: Descriptors that are open in the process.
    """

    on_message: Callable[[link.Message], None]
    on_end: Callable[[str], None]
    timeouts: WorkerTimeouts = WorkerTimeouts()
    inherits: Sequence[int] = ()

    def __post_init__(self) -> None:
        self._is_ready = False
        self._is_stopping = False
        self._why = ""
        self._output = b""
        self._heard = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self, python: str, message: Mapping[str, Any]) -> None:
        """Starts the process.

        Args:
          python: The interpreter.
          message: The first thing it is told.

        Raises:
          ServiceUnavailableError: It cannot be started.
        """
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [python, "-m", "rlds_creator.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno(), *self.inherits],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=_environment(),
            )
        except OSError as error:
            ours.close()
            logger.error("a worker cannot be started: %s", error)
            raise ServiceUnavailableError(
                "The process of the environment could not be started."
            ) from None
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self.send(message)
        self._heard = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run())

    @property
    def pid(self) -> int:
        """The process identifier."""
        return self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message to the worker, without waiting."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self.kill("hung")
            return
        self._writer.write(link.encode(message))

    async def stop(self) -> None:
        """Asks the worker to close its log and exit; kills it after a timeout."""
        if self._task is None:
            return
        if not self._is_stopping:
            self._is_stopping = True
            self.send({"op": "stop"})
        await asyncio.wait([self._task], timeout=self.timeouts.to_end)
        self.kill("hung")
        await asyncio.wait([self._task])

    def kill(self, why: str = "") -> None:
        """Kills the worker process and its children; the shown steps are recorded."""
        if self._task is not None and not self._task.done():
            self._why = self._why or why
            _kill_group(self._process.pid)

    async def _run(self) -> None:
        output = asyncio.create_task(self._keep_output())
        watch = asyncio.create_task(self._watch())
        try:
            await self._receive()
        except (OSError, asyncio.IncompleteReadError):
            pass
        except Exception:
            logger.exception("what a worker said could not be handled")
            self._why = self._why or "crashed"
        finally:
            watch.cancel()
            # Its log is complete when it closes the link; it may still have files to remove. The
            # process is not waited for before its group is killed: until then, the number of the
            # group cannot belong to anybody else.
            await asyncio.wait([output], timeout=2 if not self._why else 0)
            _kill_group(self._process.pid)
            status = await asyncio.to_thread(self._process.wait)
            await asyncio.wait([output], timeout=1)
            output.cancel()
            self._writer.close()
            self._process.stderr.close()  # type: ignore[union-attr]
            self._end(status)

    def _end(self, status: int) -> None:
        if not self._why:
            if self._is_stopping:
                self._why = "stopped"
            else:
                self._why = "crashed" if status else "ended"
        if self._why in ("crashed", "hung"):
            printed = self._output.decode("utf-8", "replace")
            logger.warning("a worker %s (status %d): %s", self._why, status, printed)
        self.on_end(self._why)

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            header = await self._reader.readexactly(link.HEADER_SIZE)
            kind, size = link.decode_header(header)
            message = link.decode_payload(kind, await self._reader.readexactly(size))
            self._heard = loop.time()
            if isinstance(message, bytes):
                self._is_ready = True
            elif message["op"] == "pong":
                continue
            self.on_message(message)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.timeouts.between_pings)
            self.send({"op": "ping"})
            timeout = self.timeouts.to_answer if self._is_ready else self.timeouts.to_make
            if loop.time() - self._heard > timeout:
                self.kill("hung")

    async def _keep_output(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        assert self._process.stderr is not None
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stderr
        )
        with contextlib.closing(transport):
            while part := await reader.read(1 << 16):
                self._output = (self._output + part)[-_MAX_OUTPUT_BYTES:]


WorkerMaker = Callable[[Callable[[link.Message], None], Callable[[str], None]], Worker]
"""Makes a worker, which is still to be started, of what hears its messages and of its end."""


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    # Players share the cores, so libraries get one thread in each worker.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**threads, **os.environ}
