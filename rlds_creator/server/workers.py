"""Worker processes, which run the environments of RLDS Creator: one for each player.

A worker is a new process, not a fork of the server, in a process group of its own: child processes
of an environment end with it. The server and a worker exchange messages over a pair of sockets, see
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

__all__ = ["Interpreters", "Worker", "WorkerFactory", "WorkerTimeouts", "run_worker"]

logger = logging.getLogger(__name__)

# The maximum size of unread messages to a worker; a worker with more is killed.
_MAX_UNREAD_BYTES = 1 << 20
_DESCRIBE_TIMEOUT_S = 60.0
# The maximum size of the worker output in the log of a failure.
_MAX_OUTPUT_BYTES = 8192


@dataclasses.dataclass(frozen=True)
class WorkerTimeouts:
    """The timeouts of a worker, in seconds.

    Attributes:
      creation: The timeout for the environment and its first picture.
      response: The timeout for a step or a reset of the environment, checked by pings.
      shutdown: The timeout for the end of the log.
      ping_interval: The interval of pings.
    """

    creation: float = 120.0
    response: float = 30.0
    shutdown: float = 10.0
    ping_interval: float = 5.0


class Interpreters:
    """The Python interpreters of workers, by their names in studies.

    Attributes:
      names: The names; "" is the interpreter of the server.
    """

    def __init__(self, other_pythons: Mapping[str, str] | None = None) -> None:
        self._paths = {"": sys.executable, **(other_pythons or {})}
        self.names = list(self._paths)
        self._descriptions: dict[str, asyncio.Task[dict[str, Any]]] = {}

    def path(self, name: str) -> str:
        """Returns the path of an interpreter.

        Raises:
          BadRequestError: The interpreter does not exist.
        """
        if name not in self._paths:
            raise BadRequestError(
                f"This server has no interpreter {name!r:.80}. "
                "Start it with `--interpreter NAME=PYTHON`."
            )
        return self._paths[name]

    async def describe(self, name: str) -> dict[str, Any]:
        """Returns the environments of an interpreter, see `rlds_creator.worker.describing`.

        Raises:
          BadRequestError: The interpreter does not exist.
          ServiceUnavailableError: The worker does not list its environments.
        """
        path = self.path(name)
        task = self._descriptions.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._descriptions[name] = asyncio.create_task(_list_families(path, name))
        return await asyncio.shield(task)


async def _list_families(path: str, name: str) -> dict[str, Any]:
    families: dict[str, Any] = {}

    def handle(message: link.Message) -> bool:
        if isinstance(message, dict) and message["op"] == "described":
            families.update(message["families"])
        return bool(families)

    create = functools.partial(Worker, timeouts=WorkerTimeouts(creation=_DESCRIBE_TIMEOUT_S))
    with contextlib.suppress(ServiceUnavailableError):
        await run_worker(create, path, {"op": "describe"}, handle)
    if not families:
        interpreter = f"{name!r}" if name else "of the server"
        raise ServiceUnavailableError(
            f"The interpreter {interpreter} cannot list its environments. Is `rlds-ecosystem` "
            "installed there?"
        )
    return families


async def run_worker(
    create: WorkerFactory,
    python: str,
    message: Mapping[str, Any],
    handle: Callable[[link.Message], bool],
) -> str:
    """Runs a worker until a message is handled; returns the reason of its early end, or "".

    Args:
      create: Creates the worker.
      python: The interpreter, see `Worker.start`, also for the errors.
      message: The first message to the worker.
      handle: Handles a message of the worker; returns True to end the worker.
    """
    end_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_message(message: link.Message) -> None:
        if handle(message):
            on_end("")

    def on_end(reason: str) -> None:
        if not end_reason.done():
            end_reason.set_result(reason)

    worker = create(on_message, on_end)
    try:
        await worker.start(python, message)
        return await end_reason
    finally:
        await worker.stop()


@dataclasses.dataclass(eq=False)
class Worker:
    """A worker process, and the server's end of the pair of sockets.

    Attributes:
      on_message: A callback for each message: a JSON object or a picture.
      on_end: A callback for the end of the process, with the reason: "stopped" by the server,
        "ended" by itself, "crashed" or "hung".
      timeouts: The timeouts.
      pass_fds: The file descriptors that the process inherits.
    """

    on_message: Callable[[link.Message], None]
    on_end: Callable[[str], None]
    timeouts: WorkerTimeouts = WorkerTimeouts()
    pass_fds: Sequence[int] = ()

    def __post_init__(self) -> None:
        self._is_ready = False
        self._is_stopping = False
        self._end_reason = ""
        self._output = b""
        self._last_message_time = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self, python: str, message: Mapping[str, Any]) -> None:
        """Starts the process.

        Args:
          python: The interpreter.
          message: The first message.

        Raises:
          ServiceUnavailableError: The process cannot be started.
        """
        server_end, worker_end = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [python, "-m", "rlds_creator.worker", str(worker_end.fileno())],
                pass_fds=[worker_end.fileno(), *self.pass_fds],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=_create_process_environment(),
            )
        except OSError as error:
            server_end.close()
            logger.error("a worker cannot be started: %s", error)
            text = "The process of the environment could not be started."
            raise ServiceUnavailableError(text) from None
        finally:
            worker_end.close()
        self._reader, self._writer = await asyncio.open_connection(sock=server_end)
        self.send(message)
        self._last_message_time = asyncio.get_running_loop().time()
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
        await asyncio.wait([self._task], timeout=self.timeouts.shutdown)
        self.kill("hung")
        await asyncio.wait([self._task])

    def kill(self, reason: str = "") -> None:
        """Kills the worker process and its children; the shown steps are recorded."""
        if self._task is not None and not self._task.done():
            self._end_reason = self._end_reason or reason
            _kill_group(self._process.pid)

    async def _run(self) -> None:
        output = asyncio.create_task(self._collect_output())
        watch = asyncio.create_task(self._watch())
        try:
            await self._receive()
        except (OSError, asyncio.IncompleteReadError):
            pass
        except Exception:
            logger.exception("a message of a worker could not be handled")
            self._end_reason = self._end_reason or "crashed"
        finally:
            watch.cancel()
            # When the worker closes the link, its log is complete; it may still remove files. Kill
            # the group before waiting for the process: afterwards, the id of the group is free, and
            # may be reused by other processes.
            await asyncio.wait([output], timeout=2 if not self._end_reason else 0)
            _kill_group(self._process.pid)
            status = await asyncio.to_thread(self._process.wait)
            await asyncio.wait([output], timeout=1)
            output.cancel()
            self._writer.close()
            self._process.stderr.close()  # type: ignore[union-attr]
            self._report_end(status)

    def _report_end(self, status: int) -> None:
        if not self._end_reason:
            outcome = "crashed" if status else "ended"
            self._end_reason = "stopped" if self._is_stopping else outcome
        if self._end_reason in ("crashed", "hung"):
            output = self._output.decode("utf-8", "replace")
            logger.warning("a worker %s (status %d): %s", self._end_reason, status, output)
        self.on_end(self._end_reason)

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            header = await self._reader.readexactly(link.HEADER_SIZE)
            kind, size = link.decode_header(header)
            message = link.decode_payload(kind, await self._reader.readexactly(size))
            self._last_message_time = loop.time()
            if isinstance(message, bytes):
                self._is_ready = True
            elif message["op"] == "pong":
                continue
            self.on_message(message)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.timeouts.ping_interval)
            self.send({"op": "ping"})
            timeout = self.timeouts.response if self._is_ready else self.timeouts.creation
            if loop.time() - self._last_message_time > timeout:
                self.kill("hung")

    async def _collect_output(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        assert self._process.stderr is not None
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stderr
        )
        with contextlib.closing(transport):
            while chunk := await reader.read(1 << 16):
                self._output = (self._output + chunk)[-_MAX_OUTPUT_BYTES:]


WorkerFactory = Callable[[Callable[[link.Message], None], Callable[[str], None]], Worker]
"""Creates a worker, not started yet, from the callbacks for its messages and its end."""


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _create_process_environment() -> dict[str, str]:
    # Players share the cores: libraries use one thread in each worker.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**threads, **os.environ}
