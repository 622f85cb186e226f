"""The episodes of a source as examples of a dataset: checked, and as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

import rlds
from rlds.sources.episode_fields import fields_of
from rlds.sources.source import Columns, SourceEpisode, SourceError
from rlds.tfds.examples import TfdsExampleEncoder
from rlds.tfds.features import EXACT, TensorStorage, fields_of_features
from rlds.validation import Validator, Violation
from rlds_ecosystem.model.columns import stack_values
from rlds_ecosystem.model.fields import Field, match_columns
from rlds_ecosystem.model.nests import leaves_at

__all__ = ["EpisodeEncoder", "counts_of"]

# What a message of protobuf can hold.
_MAX_SIZE = 2**31 - 1


class EpisodeEncoder:
    """Checks episodes, one after the other, and makes the bytes of examples of them.

    Args:
      features: The features of the dataset.
      finite_fields: The fields of steps that must be neither NaN nor infinite.
      storage: How steps are stored; the features say the same of numbers.
    """

    def __init__(
        self,
        features: tfds.features.FeaturesDict,
        finite_fields: tuple[str, ...] = (),
        storage: TensorStorage = EXACT,
    ) -> None:
        self._rounds = storage.rounds
        self._steps = fields_of_features(features[rlds.STEPS].feature)
        self._others = fields_of_features(features)
        del self._others[rlds.STEPS]
        self._encoder = TfdsExampleEncoder(features, png_level=storage.png_level)
        shapes = {
            path: field.shape
            for path, field in leaves_at(self._steps, None)
            if isinstance(field, Field) and None in field.shape
        }
        self._validator = Validator(finite_fields, shapes=shapes)

    def encode(self, episode: SourceEpisode) -> bytes:
        """Returns the bytes of an example.

        Raises:
          SourceError: The episode breaks a rule of RLDS, or does not fit the features.
        """
        fields = fields_of(episode)
        violation = next(iter(self._validator.add({rlds.STEPS: episode.steps, **fields})), None)
        if violation is not None:
            raise _error_of(violation, episode)
        try:
            columns = stack_values([fields])
            (example,) = self._encode(episode.steps, [episode.num_steps], columns, episode.key)
        except (TypeError, ValueError) as error:
            raise SourceError(str(error), file=episode.origin.file, episode=episode.key) from error
        if len(example) > _MAX_SIZE:
            raise SourceError(
                f"{len(example):,} bytes, but an example of a dataset holds at most "
                f"{_MAX_SIZE:,}; skip it (`skip_damaged`), or cut it into several episodes",
                file=episode.origin.file,
                episode=episode.key,
            )
        return example

    def encode_all(self, episodes: Sequence[SourceEpisode]) -> list[bytes] | None:
        """Returns the bytes of several examples: the same as those of each, in much less time.

        Args:
          episodes: Episodes whose columns have the same names, dtypes and shapes.

        Returns:
          The examples; None if anything is wrong with one of them, which `encode` will find.
        """
        lengths = [episode.num_steps for episode in episodes]
        steps = _joined([episode.steps for episode in episodes])
        try:
            fields = stack_values([fields_of(episode) for episode in episodes])
            examples = self._encode(steps, lengths, fields, "")
        except (TypeError, ValueError):
            return None
        if max(map(len, examples)) > _MAX_SIZE:
            return None
        is_right = self._validator.add_all(steps, np.array(lengths), fields)
        return examples if is_right else None

    def _encode(
        self, steps: Columns, lengths: Sequence[int], fields: Columns, where: str
    ) -> list[bytes]:
        steps = match_columns(
            steps, self._steps, rows=sum(lengths), where=where, rounds=self._rounds
        )
        fields = match_columns(fields, self._others, rows=len(lengths), where=where)
        return self._encoder.encode_all({rlds.STEPS: steps, **fields}, np.array(lengths))


def _joined(columns: Sequence[Any]) -> Any:
    """The columns of several episodes, one after the other."""
    head = columns[0]
    if isinstance(head, Mapping):
        return {name: _joined([column[name] for column in columns]) for name in head}
    return np.concatenate(columns)


def counts_of(
    lengths: Any, is_terminal: Any, truncated: Any, complete: Any, final_observation_known: Any
) -> dict[str, int]:
    """Returns what episodes contribute to the counts of a dataset.

    Args:
      lengths: The number of steps of each.
      is_terminal: The flags of their last steps, or of all.
      truncated: The field of each.
      complete: The field of each.
      final_observation_known: The field of each.
    """
    num_steps, num_known = np.sum(lengths), np.sum(final_observation_known)
    counts = {
        "episodes": len(lengths),
        "steps": num_steps,
        "transitions": num_steps - num_known,
        "terminated": np.sum(is_terminal),
        "truncated": np.sum(truncated),
        "incomplete": len(lengths) - np.sum(complete),
        "final_observation_unknown": len(lengths) - num_known,
    }
    return {name: int(count) for name, count in counts.items()}


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
