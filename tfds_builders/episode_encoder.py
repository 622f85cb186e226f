"""The episodes of a source as examples of a dataset: checked, and as bytes."""

from __future__ import annotations

import tensorflow_datasets as tfds

import rlds
from envlogger.converters.rlds_episode import first_row, stack_values
from envlogger.converters.tfds_examples import ExampleEncoder
from envlogger.converters.tfds_features import match_columns
from rlds.validation import Validator, Violation
from tfds_builders.episode_fields import fields_of
from tfds_builders.source import SourceEpisode, SourceError

__all__ = ["EpisodeEncoder", "counts_of"]

# What a message of protobuf can hold.
_MAX_SIZE = 2**31 - 1


class EpisodeEncoder:
    """Checks episodes, one after the other, and makes the bytes of examples of them.

    Args:
      features: The features of the dataset.
      finite_fields: The fields of steps that must be neither NaN nor infinite.
    """

    def __init__(
        self, features: tfds.features.FeaturesDict, finite_fields: tuple[str, ...] = ()
    ) -> None:
        self._steps = features[rlds.STEPS].feature
        self._others = tfds.features.FeaturesDict(
            {name: feature for name, feature in features.items() if name != rlds.STEPS}
        )
        self._encoder = ExampleEncoder(features)
        self._validator = Validator(finite_fields)

    def encode(self, episode: SourceEpisode) -> bytes:
        """Returns the bytes of an example.

        Raises:
          SourceError: The episode breaks a rule of RLDS, or does not fit the features.
        """
        fields = {**fields_of(episode), **episode.metadata}
        violation = next(iter(self._validator.add({rlds.STEPS: episode.steps, **fields})), None)
        if violation is not None:
            raise _error_of(violation, episode)
        try:
            steps = match_columns(
                episode.steps, self._steps, rows=episode.num_steps, where=episode.key
            )
            columns = match_columns(stack_values([fields]), self._others, rows=1, where=episode.key)
            example = self._encoder.encode({rlds.STEPS: steps, **first_row(columns)})
        except (TypeError, ValueError) as error:
            raise SourceError(str(error), file=episode.origin.file, episode=episode.key) from error
        if len(example) > _MAX_SIZE:
            raise SourceError(
                f"{len(example):,} bytes as an example of a dataset, which has room for "
                f"{_MAX_SIZE:,}; leave it out (`skip_damaged`), or cut it into several episodes",
                file=episode.origin.file,
                episode=episode.key,
            )
        return example


def counts_of(episode: SourceEpisode) -> dict[str, int]:
    """Returns what an episode contributes to the counts of a dataset."""
    steps = episode.num_steps
    return {
        "episodes": 1,
        "steps": steps,
        "transitions": steps - episode.final_observation_known,
        "terminated": int(episode.steps[rlds.IS_TERMINAL][-1]),
        "truncated": int(episode.truncated),
        "incomplete": int(not episode.complete),
        "final_observation_unknown": int(not episode.final_observation_known),
    }


def _error_of(violation: Violation, episode: SourceEpisode) -> SourceError:
    row = violation.step
    if row is not None:  # The final observation is found in the last row, if not in one of its own.
        row = min(episode.origin.begin + row, episode.origin.end - 1)
    return SourceError(
        violation.what,
        file=episode.origin.file,
        episode=episode.key,
        row=row,
        field=violation.field,
    )
