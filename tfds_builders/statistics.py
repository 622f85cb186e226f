"""Statistics of a stored dataset, with the same result by one process or by many."""

from __future__ import annotations

import functools
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow_datasets as tfds
from etils import epath

from rlds.statistics import warn_of_last_actions
from rlds.tfds import load
from rlds.transformations import Statistics, compute_statistics
from rlds_ecosystem.files import stores

__all__ = ["dataset_statistics"]


def dataset_statistics(
    path: str | os.PathLike[str],
    split: str = "train",
    fields: Sequence[str] | None = None,
    *,
    quantiles: Sequence[float] = (0.01, 0.99),
    include_last_action: bool | None = None,
    beam_runner: Any = None,
    beam_options: Any = None,
    temp_dir: str | os.PathLike[str] | None = None,
) -> Statistics:
    """Returns mean, std, min, max, quantiles and counts of the fields of a dataset.

    Each file of the dataset is described separately, and the results are merged in order. So the
    result does not depend on the number of workers.

    Args:
      path: The directory of the dataset.
      split: The split.
      fields: The fields to describe, see `rlds.transformations.compute_statistics`.
      quantiles: See `rlds.transformations.compute_statistics`.
      include_last_action: See `rlds.transformations.compute_statistics`.
      beam_runner: A runner of Apache Beam, see `tfds_builders.conversion.beam.in_pipeline`. If
        neither this nor options are given, this process reads one file after the other.
      beam_options: The options of the runner.
      temp_dir: The directory for the results of workers; all workers can access it.

    Raises:
      KeyError: There is no such split, or no such field.
    """
    path = os.path.abspath(path) if stores.is_local(path) else os.fspath(path)
    builder = tfds.builder_from_directory(path)
    describe = functools.partial(
        _describe_file,
        path,
        split,
        fields=None if fields is None else list(fields),
        quantiles=tuple(quantiles),
        include_last_action=bool(include_last_action),  # None would warn for each file.
    )
    lengths = builder.info.splits[split].shard_lengths
    shards = [index for index, length in enumerate(lengths) if length]
    if beam_runner is None and beam_options is None:
        results = [describe(index) for index in shards]
    else:
        results = _describe_by_beam(describe, shards, beam_runner, beam_options, temp_dir)
    statistics = functools.reduce(Statistics.merge, results)
    if include_last_action is None:
        warn_of_last_actions(statistics)
    return statistics


def _describe_by_beam(
    describe: Callable[[int], Statistics],
    shards: Sequence[int],
    beam_runner: Any,
    beam_options: Any,
    temp_dir: str | os.PathLike[str] | None,
) -> list[Statistics]:
    from rlds.conversion.beam import run_in_pipeline

    with tempfile.TemporaryDirectory(dir=temp_dir) as directory:
        directory = os.path.abspath(directory)
        run_in_pipeline(
            functools.partial(_store, describe, directory),
            [(index,) for index in shards],
            beam_runner,
            beam_options,
            "Describe",
        )
        # Unpickling is safe: this call wrote the files, in a directory of its own.
        return [pickle.loads(_result_path(directory, index).read_bytes()) for index in shards]


def _describe_file(path: str, split: str, index: int, **options: Any) -> Statistics:
    instruction = tfds.core.ReadInstruction(split, from_=index, to=index + 1, unit="shard")
    episodes = load(path, instruction)
    return compute_statistics(episodes, **options)


def _store(describe: Any, directory: str, index: int) -> None:
    _result_path(directory, index).write_bytes(pickle.dumps(describe(index)))


def _result_path(directory: str, index: int) -> epath.Path:
    return epath.Path(directory) / f"{index:05d}"
