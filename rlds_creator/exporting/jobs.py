"""Export jobs in child processes of the server."""

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

__all__ = ["ExportRequest", "run_export"]

# The time for a terminated process to clean up.
_TERMINATE_TIMEOUT_S = 5.0
# The fields of a request that are arguments of `export`; the remaining fields select episodes.
_EXPORT_ARGUMENTS = ("format", "name", "keep_internal", "end_at", "options")


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an export: the selection of episodes, the format and its options.

    Attributes:
      episodes: The identifiers of the episodes in their order; None for the results of `filter`.
      filter: A query of `GET /api/episodes`.
      format: One of `FORMATS`.
      name: The name of the dataset.
      keep_internal: See `export`.
      end_at: See `export`.
      options: See `export`.
      practice: Whether practice episodes are included.
    """

    episodes: tuple[Identifier, ...] | None = None
    filter: dict[str, Any] | None = None
    format: str = "log"
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    keep_internal: bool = False
    end_at: Annotated[tuple[Name, ...], msgspec.Meta(max_length=200)] = ()
    options: Annotated[tuple[str, ...], msgspec.Meta(max_length=50)] = ()
    practice: bool = False


async def run_export(
    request: ExportRequest,
    directories: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    progress: Callable[[float], None] = lambda done: None,
) -> Download:
    """Exports to a ZIP file in a process of low priority, which ends if the task is cancelled.

    Args:
      request: The request of the export.
      directories: The logs of its episodes.
      output: A new directory for the file `NAME.zip`. The directory is removed if the export fails,
        or is cancelled.
      progress: A callback for the completed fraction, from 0 to 1.

    Raises:
      ExportError: The export failed.
    """
    directory, export_options = Path(output), msgspec.to_builtins(request)
    job = {
        **{name: export_options[name] for name in _EXPORT_ARGUMENTS},
        "directories": [os.fspath(path) for path in directories],
        "output": os.fspath(directory / f"{dataset_name(request.name)}.zip"),
        "archive": True,
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        async with _run_process(job) as lines:
            async for line in lines:
                message = json.loads(line)
                if "error" in message:
                    raise ExportError(message["error"], details=message["details"])
                if "done" in message:
                    return Download(**message["done"])
                progress(message["progress"])
        raise ExportError("the export failed: its process was killed")
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


@contextlib.asynccontextmanager
async def _run_process(job: dict[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
    """Runs the process of a job, yields its output, and ends it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rlds_creator.exporting",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C stops the server, which ends its jobs.
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(ConnectionError):  # The output of the process has the reason.
            process.stdin.write(json.dumps(job).encode() + b"\n")
            await process.stdin.drain()
        yield process.stdout
    finally:
        process.stdin.close()  # This ends the process, see `__main__`.
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _TERMINATE_TIMEOUT_S)
        finally:  # A second cancellation must not skip this.
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
