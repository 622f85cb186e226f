"""The features of the dataset that a source becomes, and what every builder says of an episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow_datasets as tfds

import rlds
from envlogger.converters.tfds_features import EXACT, TensorStorage, check_readable, lossless
from tfds_builders.source import Source, SourceEpisode, SourceError, StoredSource, files_of

__all__ = ["COMPLETE", "ORIGIN", "RESERVED", "TRUNCATED", "features_of", "fields_of"]

TRUNCATED = "truncated"
COMPLETE = "complete"
ORIGIN = "source"

# What every builder says of an episode, beside what its source has to tell.
_EPISODE_FEATURES = {
    rlds.metadata.EPISODE_ID: tfds.features.Text(),
    rlds.FINAL_OBSERVATION_KNOWN: np.bool_,
    TRUNCATED: np.bool_,
    COMPLETE: np.bool_,
    ORIGIN: {"file": tfds.features.Text(), "begin": np.int64, "end": np.int64},
}
# The names of an episode's fields that a source cannot use.
RESERVED = (rlds.STEPS, *_EPISODE_FEATURES)


def features_of(source: Source, storage: TensorStorage = EXACT) -> tfds.features.FeaturesDict:
    """Returns the features of the dataset that a source becomes.

    Args:
      source: The source.
      storage: How the numbers of its steps are stored.

    Raises:
      SourceError: The source has a field of a name that the dataset itself uses, or one that TFDS
        cannot hold without loss.
      ValueError: The episodes are copied, but are to be stored in another way.
    """
    if isinstance(source, StoredSource):
        if storage.rounds or storage.tensor_encoding is not None:
            raise ValueError(
                f"{type(source).__name__}: the episodes are copied as they are stored, so float64 "
                "and tensor_encoding cannot change them. Read them with rlds.tfds.load, and write "
                "them with rlds.tfds.EpisodeWriter, which has both arguments."
            )
        return source.features()
    steps, episode = dict(source.step_features()), dict(source.episode_features())
    for taken, fields in ((rlds.STEP_FLAGS, steps), (RESERVED, episode)):
        for name in taken:
            if name in fields:
                raise SourceError(
                    f"{type(source).__name__}: the name {name!r} is taken", file=files_of(source)
                )
    steps.update(dict.fromkeys(rlds.STEP_FLAGS, np.bool_))
    try:
        step_features = lossless(tfds.features.FeaturesDict(steps), rlds.STEPS, storage)
        others = lossless(tfds.features.FeaturesDict({**_EPISODE_FEATURES, **episode}), "episode")
        features = tfds.features.FeaturesDict(
            {rlds.STEPS: tfds.features.Dataset(step_features), **dict(others.items())}
        )
        check_readable(features, f"{type(source).__name__}: ")
    except ValueError as error:  # The fields, too, may be those that a file names.
        raise SourceError(str(error), file=files_of(source)) from error
    return features


def fields_of(episode: SourceEpisode) -> dict[str, Any]:
    """Returns the fields of an episode beside its steps."""
    return {
        rlds.metadata.EPISODE_ID: episode.key,
        rlds.FINAL_OBSERVATION_KNOWN: np.bool_(episode.final_observation_known),
        TRUNCATED: np.bool_(episode.truncated),
        COMPLETE: np.bool_(episode.complete),
        ORIGIN: {
            "file": episode.origin.file,
            "begin": np.int64(episode.origin.begin),
            "end": np.int64(episode.origin.end),
        },
        **episode.metadata,
    }
