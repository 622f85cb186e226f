"""Reads a dataset back, and compares it with what was written."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

import rlds
from envlogger.errors import StorageError
from rlds.tfds import load
from rlds.validation import InvalidDatasetError, Report, Validator, Violation
from tfds_builders.conversion import ConvertedSplit, SplitReport
from tfds_builders.episode_fields import COMPLETE, TRUNCATED
from tfds_builders.example_files import read_examples
from tfds_builders.sharding import ShardPlan
from tfds_builders.source import Source, StoredSource

__all__ = ["check_copy", "check_dataset", "leaves_but_images", "verify"]


def verify(source: Source, directory: epath.Path, converted: Mapping[str, ConvertedSplit]) -> None:
    """Reads a dataset back, and checks that it is what was to be made.

    Args:
      source: What was converted.
      directory: The directory of the dataset.
      converted: What was written of each split.

    Raises:
      InvalidDatasetError: The dataset breaks a rule, or something is missing.
      StorageError: A copy of a dataset is not the same.
    """
    if isinstance(source, StoredSource):
        builder = tfds.builder_from_directory(directory)
        for name, split in converted.items():
            check_copy(split.plan, builder, name)
    else:
        reports = {name: split.report for name, split in converted.items()}
        check_dataset(directory, reports, source.finite_fields)


def check_dataset(
    directory: str | os.PathLike[str],
    reports: Mapping[str, SplitReport],
    finite_fields: Sequence[str] = (),
) -> None:
    """Checks a dataset that was converted: the rules of RLDS, and the numbers of all that is in it.

    Everything is read; images are not decoded.

    Args:
      directory: The directory of the dataset.
      reports: For each split, what was written.
      finite_fields: The fields of steps that must be neither NaN nor infinite.

    Raises:
      InvalidDatasetError: The dataset breaks a rule, or something is missing.
    """
    builder = tfds.builder_from_directory(directory)
    decoded = list(leaves_but_images(builder.info.features[rlds.STEPS].feature))
    for split, report in reports.items():
        dataset = load(builder, split, decode=decoded)
        validator = Validator(finite_fields)
        validator.declare(dataset)
        counts: Counter[str] = Counter()
        violations: list[Violation] = []
        for episode in dataset.as_numpy_iterator():
            violations += validator.add(episode)
            counts.update(_counts(episode))
        for name, written in report.counts.items():
            if counts[name] != written:
                what = f"{counts[name]} {name} were read, but {written} were written"
                violations.append(Violation(f"split {split!r}: {what}", validator.num_episodes))
        if violations:
            raise InvalidDatasetError(
                Report(tuple(violations), validator.num_episodes, validator.num_steps)
            )


def check_copy(plan: ShardPlan, builder: tfds.core.DatasetBuilder, split: str) -> None:
    """Checks that the files of a split hold the examples that they should, byte by byte.

    Args:
      plan: What they should hold.
      builder: The dataset.
      split: The split.

    Raises:
      StorageError: They do not.
    """
    expected = [example.checksum for _, example in plan.examples]
    found = [
        zlib.crc32(example)
        for path in builder.info.splits[split].filepaths
        for example in read_examples(path, builder.info.file_format)
    ]
    if found != expected:
        raise StorageError(
            f"{builder.data_path}, split {split!r}: what was read back is not what was written; "
            "convert again, to another disk"
        )


def _counts(episode: Mapping[str, Any]) -> dict[str, int]:
    """What `episode_encoder.counts_of` counts, in an episode of the dataset."""
    steps = episode[rlds.STEPS]
    num_steps = len(steps[rlds.IS_FIRST])
    is_known = bool(episode[rlds.FINAL_OBSERVATION_KNOWN])
    return {
        "episodes": 1,
        "steps": num_steps,
        "transitions": num_steps - is_known,
        "terminated": int(np.sum(steps[rlds.IS_TERMINAL])),
        "truncated": int(episode[TRUNCATED]),
        "incomplete": int(not episode[COMPLETE]),
        "final_observation_unknown": int(not is_known),
    }


def leaves_but_images(features: Any, path: str = "") -> Iterator[str]:
    """Yields the paths of the fields that are no images."""
    for name, feature in features.items():
        here = f"{path}/{name}" if path else name
        if isinstance(feature, tfds.features.FeaturesDict):
            yield from leaves_but_images(feature, here)
        elif not isinstance(feature, tfds.features.Image):
            yield here
