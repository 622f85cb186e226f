"""Reads a dataset back, and compares it with what was written."""

from __future__ import annotations

import functools
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from etils import epath

import rlds
from rlds.raw_files.tfrecord_files import read_examples
from rlds.sources.episode_fields import COMPLETE, TRUNCATED
from rlds.sources.source import AnySource, SourceError, StoredEpisode
from rlds.tfds import load
from rlds.tfds.joined_episodes import JoinedEpisodes, can_be_joined
from rlds.tfds.loading import leaves_of_features
from rlds.validation import InvalidDatasetError, Report, Validator, Violation
from rlds_ecosystem.model.errors import StorageError
from tfds_builders.conversion.encoder import counts_of
from tfds_builders.conversion.episode_groups import in_groups
from tfds_builders.conversion.job import ConvertedSplit, SplitReport
from tfds_builders.conversion.sharding import ShardPlan

__all__ = ["leaves_but_images", "verify"]


def verify(
    source: AnySource, directory: epath.Path, converted: Mapping[str, ConvertedSplit]
) -> None:
    """Reads a dataset back, and checks that it is what was to be made.

    The files hold the bytes that they should, example by example. And unless these are copies, TFDS
    makes episodes of them that keep the rules of RLDS, of which there are as many (and as many
    steps, ...) as were written. Images are not decoded.

    Args:
      source: What was converted.
      directory: The directory of the dataset.
      converted: What was written of each split.

    Raises:
      InvalidDatasetError: The dataset breaks a rule, or something is missing.
      StorageError: The files do not hold what was written.
    """
    builder = tfds.builder_from_directory(directory)
    for name, split in converted.items():
        examples = _read_back(split.plan, builder, name)
        if source.can.examples is None:
            finite_fields = source.about.finite
            features = builder.info.features
            if can_be_joined(features) and _is_right(
                examples, features, split.report, finite_fields
            ):
                continue
            _check_one_by_one(builder, name, split.report, finite_fields)
        for _ in examples:
            pass


def _read_back(plan: ShardPlan, builder: tfds.core.DatasetBuilder, split: str) -> Iterator[bytes]:
    """Yields the examples of a split, and checks that they are those that were staged."""
    expected = (example.checksum for _, example in plan.examples)
    found = (
        example
        for path in builder.info.splits[split].filepaths
        for example in read_examples(path, builder.info.file_format.file_suffix)
    )
    wrong = StorageError(
        f"{builder.data_path}, split {split!r}: the data read back differs from the data written; "
        "convert again, to another disk"
    )
    try:
        for example, checksum in itertools.zip_longest(found, expected):
            if example is None or zlib.crc32(example) != checksum:
                raise wrong
            yield example
    except SourceError as error:  # A file is no longer one of its format.
        raise wrong from error


def _is_right(
    examples: Iterator[bytes], features: Any, report: SplitReport, finite_fields: Sequence[str]
) -> bool:
    """Whether all is well; if not, nothing is known of what it is."""
    validator = Validator(finite_fields)
    joined = _joined_episodes(json.dumps(features.to_json(), sort_keys=True))
    counts: Counter[str] = Counter()
    for group in in_groups(StoredEpisode("", example) for example in examples):
        try:
            fields, lengths = joined.decode([episode.example for episode in group])
        except (tf.errors.OpError, ValueError):
            return False
        steps = fields.pop(rlds.STEPS)
        if not validator.add_all(steps, lengths, fields):
            return False
        counts.update(_counts(steps, lengths, fields))
    return all(counts[name] == written for name, written in report.counts.items())


@functools.lru_cache(maxsize=16)
def _joined_episodes(features_json: str) -> JoinedEpisodes:
    """The decoder for features; tracing its graph takes longer than decoding a small dataset."""
    features = tfds.features.FeaturesDict.from_json(json.loads(features_json))
    return JoinedEpisodes(features, list(leaves_but_images(features[rlds.STEPS].feature)))


def _check_one_by_one(
    builder: tfds.core.DatasetBuilder,
    split: str,
    report: SplitReport,
    finite_fields: Sequence[str],
) -> None:
    """Reads the episodes as a user does.

    Raises:
      InvalidDatasetError: They break a rule, or something is missing.
    """
    decoded = list(leaves_but_images(builder.info.features[rlds.STEPS].feature))
    dataset = load(builder, split, decode=decoded)
    validator = Validator(finite_fields)
    validator.declare(dataset)
    counts: Counter[str] = Counter()
    violations: list[Violation] = []
    for episode in dataset.as_numpy_iterator():
        violations += validator.add(episode)
        steps = episode.pop(rlds.STEPS)
        lengths = np.array([len(steps[rlds.IS_FIRST])])
        columns = tf.nest.map_structure(lambda value: np.asarray(value)[np.newaxis], episode)
        counts.update(_counts(steps, lengths, columns))
    for name, written in report.counts.items():
        if counts[name] != written:
            what = f"{counts[name]} {name} were read, but {written} were written"
            violations.append(Violation(f"split {split!r}: {what}", validator.num_episodes))
    if violations:
        raise InvalidDatasetError(
            Report(tuple(violations), validator.num_episodes, validator.num_steps)
        )


def _counts(steps: Any, lengths: Any, fields: Mapping[str, Any]) -> dict[str, int]:
    names = (TRUNCATED, COMPLETE, rlds.FINAL_OBSERVATION_KNOWN)
    return counts_of(lengths, steps[rlds.IS_TERMINAL], *(fields[name] for name in names))


def leaves_but_images(features: Any) -> Iterator[str]:
    """Yields the paths of the fields that are no images."""
    for path, feature in leaves_of_features(features):
        if not isinstance(feature, tfds.features.Image):
            yield path
