"""Conversions and statistics on Apache Beam: the same work by many processes, on many machines.

The steps of a conversion can be done by anyone in any order (see `conversion`), so the pipelines
here only hand them out: one stages the parts of the source, the next one writes files. What they
leave undone, such as a part that is damaged, is done by the process that called them, which so
meets the error as if there had been no pipeline.

Workers have to see the same files: on several machines the raw data and the directory of the
dataset are on a shared file system, or in an object store such as `gs://`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

from etils import epath

from rlds.conversion.beam import run_in_pipeline, tried
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.stores import is_local
from tfds_builders.conversion.job import (
    ConversionJob,
    SourcePart,
    Work,
    in_workers,
    stage_part,
    write_staged_shard,
)
from tfds_builders.conversion.sharding import ShardPlan

__all__ = ["in_pipeline"]

# Into how many units of work the writing of a split is divided. Each reads the plan once.
_MAX_WRITERS = 256


def in_pipeline(runner: Any = None, options: Any = None) -> Work:
    """Returns what does the work of a conversion on Beam.

    The parts of the source are the units of work. The result is the same as that of
    `conversion.in_workers`, to the last byte.

    Args:
      runner: A runner, or its name, such as "DirectRunner".
      options: `PipelineOptions` (or a list of flags), such as
        `["--direct_num_workers=2", "--direct_running_mode=multi_processing"]`.

    Raises:
      ImportError: Apache Beam is not installed.
    """
    import_extra("apache_beam")

    def work(job: ConversionJob, progress: bool | None) -> Mapping[str, ShardPlan]:
        if is_local(job.directory):  # Workers may run in other folders.
            absolute = epath.Path(os.path.abspath(job.directory))
            job = dataclasses.replace(job, directory=absolute)
        folder = _folder_of_relative_paths(job)
        parts = [part for split in job.source.splits for part in job.parts(split)]
        run_in_pipeline(functools.partial(_stage, job, folder), parts, runner, options, "Stage")
        for part in parts:
            stage_part(job, part)
        files = [
            (split, begin)
            for split in job.source.splits
            for begin in range(min(job.plan(split).num_shards, _MAX_WRITERS))
        ]
        run_in_pipeline(functools.partial(_write, job), files, runner, options, "Write")
        return in_workers(1)(job, progress)

    return work


def _folder_of_relative_paths(job: ConversionJob) -> str | None:
    """The folder from which the raw data is named; None if its paths are absolute."""
    paths = [os.fspath(path) for path in job.source.inputs()]
    is_relative = any(is_local(path) and not os.path.isabs(path) for path in paths)
    return os.getcwd() if is_relative else None


def _stage(job: ConversionJob, folder: str | None, split: str, number: int, name: str) -> None:
    if folder is not None and os.getcwd() != folder:
        raise ValueError(
            f"the raw data has relative paths, as from {folder}, but a Beam worker runs in "
            f"{os.getcwd()}. Open the data with an absolute path."
        )
    tried(stage_part, job, SourcePart(split, number, name))


def _write(job: ConversionJob, split: str, begin: int) -> None:
    plan = job.plan(split)
    for index in range(begin, plan.num_shards, _MAX_WRITERS):
        tried(write_staged_shard, job, plan, split, index)
