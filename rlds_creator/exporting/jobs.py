"""Exports in a process of their own, for a server that must not wait."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rlds_creator.exporting.exports import Download
from rlds_creator.exporting.recordings import ExportError
from rlds_creator.model import Identifier, Name
from rlds_tools.converting import dataset_name

__all__ = ["ExportJob", "ExportRequest"]

# How long a process has to clean up after itself, in seconds.
_PATIENCE = 5.0
# What a request says to `export`; the rest says of which episodes.
_ARGUMENTS = ("format", "name", "keep_internal", "end_at", "options")


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to download.

    Attributes:
      episodes: The identifiers of the episodes, in their order; None for those that `filter` finds.
      filter: What `GET /api/episodes` takes.
      format: One of `FORMATS`.
      name: What the data is called.
      keep_internal: See `export`.
      end_at: See `export`.
      options: See `export`.
      practice: Whether practice episodes are in it.
    """

    episodes: tuple[Identifier, ...] | None = None
    filter: dict[str, Any] | None = None
    format: str = "log"
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    keep_internal: bool = False
    end_at: Annotated[tuple[Name, ...], msgspec.Meta(max_length=200)] = ()
    options: Annotated[tuple[str, ...], msgspec.Meta(max_length=50)] = ()
    practice: bool = False


class ExportJob:
    """An export to a ZIP file, made by a process of low priority.

        job = ExportJob(request, directories, "exports/x1")
        job.start(turn=turns)
        exported = await job.result()

    Args:
      request: What is exported, and how.
      directories: The logs of its episodes.
      output: A directory of its own, which gets the file `NAME.zip`. It is removed if the job
        fails, or is cancelled.

    Attributes:
      progress: How much is done, from 0 to 1.
      is_running: Whether its turn has come.
    """

    def __init__(
        self,
        request: ExportRequest,
        directories: Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
    ) -> None:
        self.progress, self.is_running = 0.0, False
        self._output = Path(output)
        self._task: asyncio.Task[Download] | None = None
        wanted = msgspec.to_builtins(request)
        self._job = {
            **{name: wanted[name] for name in _ARGUMENTS},
            "directories": [os.fspath(directory) for directory in directories],
            "output": os.fspath(self._output / f"{dataset_name(request.name)}.zip"),
            "archive": True,
        }

    def start(
        self,
        *,
        progress: Callable[[float], None] | None = None,
        turn: asyncio.Semaphore | None = None,
    ) -> None:
        """Starts it; needs a running event loop.

        Args:
          progress: Called with how much is done, from 0 to 1, a few times per second.
          turn: What jobs wait for that shall not run at the same time.
        """
        self._task = asyncio.create_task(self._run(progress, turn))

    def cancel(self) -> None:
        """Ends it, if it is not done; `result` then raises `asyncio.CancelledError`."""
        if self._task is not None:
            self._task.cancel()

    async def result(self) -> Download:
        """Waits until it is done; who waits may be cancelled without an effect on the job.

        Raises:
          ExportError: It failed.
          asyncio.CancelledError: It was cancelled.
        """
        assert self._task is not None  # It was started.
        return await asyncio.shield(self._task)

    async def _run(
        self,
        progress: Callable[[float], None] | None,
        turn: asyncio.Semaphore | None,
    ) -> Download:
        async with turn or contextlib.nullcontext():
            self.is_running = True
            try:
                self._output.mkdir(parents=True, exist_ok=True)
                async with _process(self._job) as messages:
                    async for message in messages:
                        if "progress" in message:
                            self.progress = message["progress"]
                            if progress is not None:
                                progress(self.progress)
                        elif "error" in message:
                            raise ExportError(message["error"], details=message["details"])
                        else:
                            return Download(**message["done"])
                raise ExportError("the export failed: its process was killed")
            except BaseException:
                shutil.rmtree(self._output, ignore_errors=True)
                raise


@contextlib.asynccontextmanager
async def _process(job: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The messages of a process, which is gone in the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rlds_creator.exporting",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the server, which then ends its jobs.
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(ConnectionError):  # Then it says why, or nothing.
            process.stdin.write(json.dumps(job).encode() + b"\n")
            await process.stdin.drain()
        yield _messages(process.stdout)
    finally:
        await _end(process)


async def _messages(lines: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    async for line in lines:
        yield json.loads(line)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends a process, also where the task that waits is cancelled again."""
    assert process.stdin is not None
    process.stdin.close()  # Which ends it, see `__main__`.
    try:
        await asyncio.wait_for(process.wait(), _PATIENCE)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if not isinstance(error, TimeoutError):
            raise
        await process.wait()
