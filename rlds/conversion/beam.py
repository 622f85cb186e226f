"""Apache Beam pipelines: conversions and audits on several machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlds.sources.source import SourceError
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.errors import StorageError

__all__ = ["check_shared_folder", "run_in_pipeline", "suppress_errors"]


def run_in_pipeline(
    function: Callable[..., None],
    arguments: Sequence[tuple[Any, ...]],
    runner: Any,
    options: Any,
    label: str,
) -> None:
    """Runs a pipeline that calls a function with each tuple of arguments, and waits for the end.

    Args:
      function: A picklable function with side effects.
      arguments: The arguments of each call.
      runner: A runner, or its name, such as "DirectRunner".
      options: `PipelineOptions`, or a list of flags.
      label: The name of the step.

    Raises:
      ImportError: Apache Beam is not installed.
    """
    beam = import_extra("apache_beam")
    if options is None or isinstance(options, (list, tuple)):
        flags = import_extra("apache_beam.options.pipeline_options")
        options = flags.PipelineOptions(list(options or ()))
    if "Dask" in (runner if isinstance(runner, str) else type(runner).__name__):
        module = import_extra("apache_beam.runners.dask.dask_runner")
        runner = module.DaskRunner() if runner == "DaskRunner" else runner  # Beam lacks this name.
        dask = options.view_as(module.DaskOptions)
        if not (dask.npartitions or dask.partition_size):
            dask.partition_size = 1  # The default gives one worker 128 tasks.
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        _ = (
            pipeline
            | "Arguments" >> beam.Create(list(arguments))
            | "Spread" >> beam.Reshuffle()
            | label >> beam.MapTuple(function)
        )


def suppress_errors(function: Callable[..., None], *arguments: Any) -> None:
    """Calls a function, ignoring data errors: the main process repeats the call and raises them."""
    with contextlib.suppress(SourceError, StorageError):
        function(*arguments)


def check_shared_folder(folder: Path, contents: str, alternative: str = "") -> None:
    """Checks that this machine has the folder that all workers share.

    Args:
      folder: The folder.
      contents: The contents of the folder, for the error.
      alternative: Another remedy, for the error.

    Raises:
      ValueError: The folder is missing.
    """
    if not folder.is_dir():
        raise ValueError(
            f"{folder}, the folder of the {contents}, is not on this machine. Pass a folder that "
            f"all machines share (draft=, --draft on the command line){alternative}"
        )
