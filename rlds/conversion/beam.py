"""Work that Apache Beam has other machines do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlds.sources.source import SourceError
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.errors import StorageError

__all__ = ["check_is_seen", "run_in_pipeline", "tried"]


def run_in_pipeline(
    function: Callable[..., None],
    arguments: Sequence[tuple[Any, ...]],
    runner: Any,
    options: Any,
    label: str,
) -> None:
    """Calls a function once for each tuple of arguments, in a pipeline, and waits for the end.

    Args:
      function: A function with side effects; it has to be picklable.
      arguments: The arguments of each call.
      runner: A runner, or its name, such as "DirectRunner".
      options: `PipelineOptions`, or a list of flags.
      label: The name of the step.

    Raises:
      ImportError: Apache Beam is not installed.
    """
    beam = import_extra("apache_beam")
    if options is None or isinstance(options, (list, tuple)):
        options = import_extra("apache_beam.options.pipeline_options").PipelineOptions(
            list(options or ())
        )
    if "Dask" in (runner if isinstance(runner, str) else type(runner).__name__):
        module = import_extra("apache_beam.runners.dask.dask_runner")
        runner = module.DaskRunner() if runner == "DaskRunner" else runner  # Beam has no such name.
        dask = options.view_as(module.DaskOptions)
        if not (dask.npartitions or dask.partition_size):
            dask.partition_size = 1  # Else one worker gets 128 of them.
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        _ = (
            pipeline
            | "Arguments" >> beam.Create(list(arguments))
            | "Spread" >> beam.Reshuffle()
            | label >> beam.MapTuple(function)
        )


def tried(function: Callable[..., None], *arguments: Any) -> None:
    """Calls a function without its errors: the process that runs the pipeline meets them again."""
    with contextlib.suppress(SourceError, StorageError):
        function(*arguments)


def check_is_seen(folder: Path, contents: str, instead: str = "") -> None:
    """Checks that a folder which all workers use is on this machine.

    Args:
      folder: The folder.
      contents: The contents of the folder, for the error.
      instead: What else can be done, for the error.

    Raises:
      ValueError: It is not there.
    """
    if not folder.is_dir():
        raise ValueError(
            f"{folder}, the folder of the {contents}, is not on this machine. Pass one that all "
            f"machines see (draft=, --draft on the command line){instead}"
        )
