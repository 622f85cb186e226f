"""Encoding of episodes to TFDS examples, with checks."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import rlds
from rlds.formats.tfds.features import field_of
from rlds.raw_files.untrusted import is_damage
from rlds.sources.episode_fields import RESERVED, fields_of
from rlds.sources.source import Columns, SourceEpisode, SourceError
from rlds.validation import Validator, Violation
from rlds_ecosystem.model.columns import map_columns, objects, stack_values
from rlds_ecosystem.model.fields import Field, match_columns
from rlds_ecosystem.model.nests import leaves_at, lookup, put
from tfds_files import ExampleEncoder, Features, RaggedColumn
from tfds_files.example_encoder import feature_at, png_files

__all__ = ["RAW", "EncodedEpisode", "EpisodeEncoder", "counts_of"]

RAW = "raw/"
"""The prefix of the names of counts of the raw data."""

# The size limit of a protobuf message.
_MAX_MESSAGE_BYTES = 2**31 - 1


class EncodedEpisode(NamedTuple):
    """An encoded episode.

    Attributes:
      episode: The episode in the form of the dataset, with image files.
      example: The bytes of the example.
    """

    episode: SourceEpisode
    example: bytes


class EpisodeEncoder:
    """Checks episodes and encodes them to TFDS examples.

    Args:
      encoder: The encoder of the bytes.
      finite: The fields of steps that must be neither NaN nor infinite.
      checks: Whether to validate the rules of RLDS, and to convert columns to the dtypes of the
        fields.
      rounds: Whether float64 is rounded to float32 fields.
      png_level: The compression level of PNG files.
    """

    def __init__(
        self,
        encoder: ExampleEncoder,
        finite: Sequence[str] = (),
        *,
        checks: bool = True,
        rounds: bool = False,
        png_level: int | None = None,
    ) -> None:
        self._encoder, self._checks = encoder, checks
        self._rounds, self._png_level = rounds, png_level
        self._step_features = feature_at(encoder.features, (rlds.STEPS, None))
        self._steps: Any = field_of(self._step_features)
        self._fields = field_of(encoder.features)
        del self._fields[rlds.STEPS]
        leaves = [(path, f) for path, f in leaves_at(self._steps, None) if isinstance(f, Field)]
        shapes = {path: field.shape for path, field in leaves if None in field.shape}
        self._ragged = [path for path in shapes if not lookup(self._steps, path).is_text]
        self._validator = Validator(finite, shapes=shapes)

    def encode(self, episode: SourceEpisode) -> EncodedEpisode:
        """Encodes an episode.

        Raises:
          SourceError: The episode breaks a rule of RLDS, or does not fit the features.
        """
        if not self._checks:
            return self._encode_alone(episode)
        fields = fields_of(episode)
        violation = next(iter(self._validator.add({rlds.STEPS: episode.steps, **fields})), None)
        if violation is not None:
            raise _error_of(violation, episode)
        try:
            columns = stack_values([fields])
            (example,) = self._encode([episode], episode.steps, columns, episode.key)
        except (TypeError, ValueError) as error:
            raise SourceError(str(error), file=episode.origin.file, episode=episode.key) from error
        if len(example.example) > _MAX_MESSAGE_BYTES:
            raise SourceError(
                f"{len(example.example):,} bytes, but an example of a dataset holds at most "
                f"{_MAX_MESSAGE_BYTES:,}; skip it (`skip_damaged`), or cut it into several "
                "episodes",
                file=episode.origin.file,
                episode=episode.key,
            )
        return example

    def encode_all(self, episodes: Sequence[SourceEpisode]) -> Sequence[EncodedEpisode] | None:
        """Encodes several episodes, to the same bytes as one by one, but much faster.

        Args:
          episodes: Episodes whose columns have the same names, dtypes and shapes.

        Returns:
          None if an episode is invalid; `encode` raises the error.
        """
        if len(episodes) == 1 or not self._checks:
            return None
        steps = _concatenate([episode.steps for episode in episodes])
        try:
            fields = stack_values([fields_of(episode) for episode in episodes])
            examples = self._encode(episodes, steps, fields, "")
            lengths = np.array([episode.num_steps for episode in episodes])
            fits = max(len(episode.example) for episode in examples) <= _MAX_MESSAGE_BYTES
            fits = fits and self._validator.add_all(steps, lengths, fields)
        except Exception as error:
            if not (isinstance(error, TypeError | ValueError) or is_damage(error)):
                raise
            return None
        return examples if fits else None

    def _encode_alone(self, episode: SourceEpisode) -> EncodedEpisode:
        """Encodes an episode without checks; drops metadata that the dataset lacks."""
        steps = self._with_files(episode.steps, self._step_features)
        fields = {name: value for name, value in fields_of(episode).items() if name in self._fields}
        example = self._encoder.encode({**fields, rlds.STEPS: steps})
        return EncodedEpisode(dataclasses.replace(episode, steps=steps), example)

    def _encode(
        self, episodes: Sequence[SourceEpisode], steps: Columns, fields: Columns, location: str
    ) -> Sequence[EncodedEpisode]:
        lengths = [episode.num_steps for episode in episodes]
        steps = self._with_files(self._match(steps, sum(lengths), location), self._step_features)
        fields = match_columns(fields, self._fields, rows=len(lengths), where=location)
        fields = self._with_files(fields, self._encoder.features)
        examples = self._encoder.encode_all({rlds.STEPS: steps, **fields}, np.array(lengths))
        metadata = {name: fields[name] for name in fields if name not in RESERVED}
        encoded_episodes, start = [], 0
        for row, (episode, example) in enumerate(zip(episodes, examples, strict=True)):
            rows = slice(start, start + lengths[row])
            start = rows.stop
            episode_steps = steps if len(episodes) == 1 else _rows_of(steps, rows)
            matched_episode = dataclasses.replace(
                episode, steps=episode_steps, metadata=_rows_of(metadata, row)
            )
            encoded_episodes.append(EncodedEpisode(matched_episode, example))
        return encoded_episodes

    def _match(self, steps: Columns, rows: int, location: str) -> dict[str, Any]:
        """Returns step columns matched with the fields; ragged columns stay unchanged."""
        columns = dict(leaves_at(steps, None)) if self._ragged else {}
        ragged = {path: columns[path] for path in self._ragged if _is_ragged(columns.get(path))}
        expected = self._steps
        if ragged:
            expected, steps = (_without(nest, ragged) for nest in (expected, steps))
        matched_steps: dict[str, Any] = match_columns(
            steps, expected, rows=rows, where=location, rounds=self._rounds
        )
        for path, column in ragged.items():
            put(matched_steps, path, column)
        return matched_steps

    def _with_files(self, columns: Any, feature: Any) -> Any:
        """Encodes pixels to PNG files in columns whose feature stores PNG."""
        if isinstance(columns, Mapping) and isinstance(feature, Features):
            return {name: self._with_files(c, feature[name]) for name, c in columns.items()}
        files = png_files(feature, columns, self._png_level)
        return columns if files is None else objects(files)


def _is_ragged(column: Any) -> bool:
    """Whether the rows of a column differ in shape."""
    return isinstance(column, RaggedColumn) or getattr(column, "dtype", None) == np.dtype(object)


def _without(nest: Mapping[str, Any], paths: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    return {
        name: _without(child, paths, f"{prefix}{name}/") if isinstance(child, Mapping) else child
        for name, child in nest.items()
        if prefix + name not in paths
    }


def _rows_of(columns: Any, rows: Any) -> Any:
    return map_columns(operator.itemgetter(rows), columns)


def _concatenate(columns: Sequence[Any]) -> Any:
    """Concatenates columns of several episodes."""
    first_column = columns[0]
    if isinstance(first_column, Mapping):
        return {name: _concatenate([column[name] for column in columns]) for name in first_column}
    return first_column if len(columns) == 1 else np.concatenate(columns)


def counts_of(episode: SourceEpisode) -> dict[str, int]:
    """Returns the contribution of an episode to the counts of a dataset."""
    steps, is_final_known = episode.num_steps, bool(episode.final_observation_known)
    return {
        "episodes": 1,
        "steps": steps,
        "transitions": steps - is_final_known,
        "terminated": int(
            rlds.IS_TERMINAL in episode.steps and episode.steps[rlds.IS_TERMINAL][-1]
        ),
        "truncated": int(episode.truncated),
        "incomplete": int(not episode.complete),
        "final_observation_unknown": int(not is_final_known),
        **{RAW + name: int(count) for name, count in episode.counts.items()},
    }


def _error_of(violation: Violation, episode: SourceEpisode) -> SourceError:
    row = violation.step
    if row is not None:  # A final observation without a row of its own is in the last row.
        row = min(episode.origin.begin + row, episode.origin.end - 1)
    return SourceError(
        violation.what,
        file=episode.origin.file,
        episode=episode.key,
        row=row,
        field=violation.field,
    )
