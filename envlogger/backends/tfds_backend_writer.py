"""Backend that records episodes as an RLDS dataset in TFDS format."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import dm_env
import numpy as np
import tensorflow_datasets as tfds
import tree
from dm_env import specs
from tensorflow_datasets.rlds.rlds_base import DatasetConfig
from typing_extensions import override

from envlogger.backends import rlds_utils
from envlogger.backends.backend_writer import BackendWriter
from envlogger.backends.directories import directory_to_write
from envlogger.backends.schedulers import Scheduler
from envlogger.converters.rlds_episode import to_rlds_episode
from envlogger.errors import InvalidStepError, UnsupportedTypeError, UnsupportedValueError
from envlogger.step_data import StepData
from rlds.tfds.examples import TfdsExampleEncoder
from rlds.tfds.features import TensorStorage, check_readable, fields_of_features, lossless_config
from rlds.tfds.growing import growing_dataset, new_info
from rlds_ecosystem.model.columns import first_row, known_field, stack_values
from rlds_ecosystem.model.fields import Field, is_known_mask, match_columns
from rlds_ecosystem.model.json_values import to_json
from tfds_files.growing import Appender

__all__ = ["DatasetConfig", "Episode", "TFDSBackendWriter"]

_TRANSITION_FIELDS = ("action", "reward", "discount")
_STEP_FLAGS = ("is_first", "is_last", "is_terminal")
_COMPLETE_FIELD = "complete"  # Converted logs have the field, too.
_STEP_FIELDS = ("observation", *_TRANSITION_FIELDS, *_STEP_FLAGS)


@dataclasses.dataclass
class Episode:
    """Builds an RLDS episode step by step, for code with its own writer.

    Attributes:
      prev_step: The last recorded step.
      steps: The earlier RLDS steps, or None.
      metadata: The metadata of the episode, or None.
    """

    prev_step: StepData
    steps: list[rlds_utils.Step] | None = None
    metadata: dict[str, Any] | None = None

    def add_step(self, step: StepData) -> None:
        """Appends a recorded step."""
        self.steps = [*(self.steps or []), rlds_utils.to_rlds_step(self.prev_step, step)]
        self.prev_step = step

    def get_rlds_episode(self) -> dict[str, Any]:
        """Returns the RLDS episode, which ends at the last recorded step."""
        last_step = rlds_utils.to_rlds_step(self.prev_step, None)
        return {"steps": [*(self.steps or []), last_step], **(self.metadata or {})}


class TFDSBackendWriter(BackendWriter):
    """Records to a directory as an RLDS dataset, for `tfds.builder_from_directory`.

    Steps are stored in RLDS order, see `envlogger.converters.rlds_episode`. All bits of values are
    kept: values that TFDS would change, such as float64, are stored as raw bytes unless `float64`
    requests rounding; readers return float64 in both cases. The custom data of a step must be a
    dict, whose entries become further fields of the step; likewise the metadata of an episode.

    If the config declares a bool `complete` in the metadata of episodes, it is false for truncated
    episodes.

    An episode is stored when the next episode begins, and on `close`. Episodes are collected in a
    shard, which is added to the dataset when it is full, after `flush_interval`, and on `flush` and
    `close`. After a crash, the dataset lacks the unfinished shard; the next writer of the directory
    adds its finished episodes, with a warning, or `rlds_utils.maybe_recover_last_shard` does so.
    New shards are added to an existing dataset, so several writers may record to one directory, at
    once or in turn.

    Args:
      data_directory: A directory; created if missing.
      ds_config: The name of the dataset and the features of its steps and episodes.
      max_episodes_per_file: The maximum number of episodes per shard.
      split_name: The name of the split; `train` if None.
      version: The version of the dataset, as `major.minor.patch`.
      store_ds_metadata: Whether to store `metadata`, in the types of JSON, as `info.metadata`.
      metadata: The metadata of the dataset, stored if `store_ds_metadata` is true. The metadata of
        an existing dataset are kept, with a warning if they differ.
      scheduler: Chooses the steps to record; None records all. See `BackendWriter`.
      flush_interval: The number of seconds after which the next finished episode also ends its
        shard; None for no limit. Short intervals result in many small files.
      episode_metadata_defaults: The values of missing fields in the metadata of episodes. If the
        config also has a bool `<name>_known` for a field, it is false for missing values.
      float64: The storage of float64 in steps: "bytes" keeps every bit; "float32" rounds, for the
        loaders of dlimp, Octo and OpenVLA. None keeps every bit, with a warning if TFDS would have
        rounded.
      tensor_encoding: The storage of arrays in steps, instead of the encoding of the features:
        "none" for plain values, which these loaders need too, or "zlib".
      png_level: The compression level of PNG files, 0 to 9 as for `zlib.compress`; all levels are
        lossless. None is 1, which is fast, or 6 for images that compress well.

    Raises:
      StorageError: The directory cannot be created or written to, or its dataset has a different
        config.
      UnsupportedTypeError: `metadata` hold a type that JSON lacks.
      UnsupportedValueError: `metadata` hold a value that JSON lacks.
      ValueError: A feature would lose information, or another argument is invalid.

    Python floats are rounded to the dtype of their feature, and lists of numbers become arrays. If
    a step does not match the features, `record_step` raises `InvalidStepError`, and the recording
    does not change.
    """

    stores_specs = False  # The features describe the values.

    def __init__(
        self,
        data_directory: str | os.PathLike[str],
        ds_config: DatasetConfig,
        max_episodes_per_file: int = 1000,
        split_name: str | None = None,
        version: str = "0.0.1",
        store_ds_metadata: bool = False,
        metadata: dict[str, Any] | None = None,
        scheduler: Scheduler | None = None,
        *,
        flush_interval: float | None = 60.0,
        episode_metadata_defaults: Mapping[str, Any] | None = None,
        float64: str | None = None,
        tensor_encoding: str | tfds.features.Encoding | None = None,
        png_level: int | None = None,
    ) -> None:
        if max_episodes_per_file <= 0:
            raise ValueError(f"max_episodes_per_file must be positive, got {max_episodes_per_file}")
        if flush_interval is not None and flush_interval <= 0:
            raise ValueError(f"flush_interval must be positive, got {flush_interval}")
        directory = directory_to_write(data_directory)
        self._storage = TensorStorage(float64, tensor_encoding, png_level=png_level)
        ds_config = lossless_config(ds_config, self._storage, stacklevel=2)
        ds_metadata = to_json(metadata, "metadata") if store_ds_metadata else None
        info = new_info(ds_config, directory, version=version, metadata=ds_metadata)
        self._split = split_name or "train"
        self._defaults = dict(episode_metadata_defaults or {})
        self._features = info.features
        check_readable(self._features, "ds_config, ")
        step_features = self._features["steps"].feature
        fields = fields_of_features(step_features)
        self._step_fields = _omit(fields, *_STEP_FLAGS)
        self._first_step_fields = _omit(self._step_fields, *_TRANSITION_FIELDS)
        self._episode_fields = _omit(fields_of_features(self._features), "steps")
        self._specs = {f"{n}_spec": _create_specs(step_features, n) for n in _TRANSITION_FIELDS}
        self._encoder = TfdsExampleEncoder(self._features, png_level=png_level)
        self._steps: list[StepData] = []
        self._episode_metadata: dict[str, Any] = {}
        self._num_episodes = 0
        dataset = growing_dataset(info)
        dataset.open([self._split], stacklevel=3)
        self._writer = Appender(dataset, max_episodes_per_file, flush_interval)
        super().__init__(metadata=metadata, scheduler=scheduler)

    def _record_step(self, data: StepData, is_new_episode: bool) -> None:
        step = self._fit_step(data, 0 if is_new_episode else len(self._steps))
        if is_new_episode:
            self._store_episode()
        self._steps.append(step)

    def _fit_step(self, data: StepData, index: int) -> StepData:
        """Copies a step, with values converted to the features."""
        timestep, action, custom_data = data
        episode_index = self._num_episodes + (index == 0 and bool(self._steps))
        location = f"episode {episode_index}, step {index}"
        if custom_data is not None and not isinstance(custom_data, Mapping):
            raise InvalidStepError(
                f"{location}: the custom data of a step must be a dict, whose entries are fields "
                f"of the dataset; got {type(custom_data).__name__}"
            )
        conflicts = [name for name in custom_data or {} if name in _STEP_FIELDS]
        if conflicts:
            raise InvalidStepError(
                f"{location}: the custom data has {conflicts}, the names of other fields; record "
                "it under other names"
            )
        fields = {**(custom_data or {}), "observation": timestep.observation}
        expected = self._first_step_fields
        if index:
            fields |= {"action": action, "reward": timestep.reward, "discount": timestep.discount}
            expected = self._step_fields
        try:
            columns = {
                name: stack_values([_convert(value, expected.get(name))], name)
                for name, value in fields.items()
            }
        except TypeError as e:
            raise UnsupportedTypeError(f"{location}, {e}") from e
        except ValueError as e:
            raise InvalidStepError(f"{location}, {e}") from e
        try:
            row = first_row(
                match_columns(
                    columns, expected, rows=1, where=location, rounds=self._storage.rounds
                )
            )
        except ValueError as e:
            raise InvalidStepError(str(e)) from e
        names = ("reward", "discount", "observation")
        timestep = dm_env.TimeStep(timestep.step_type, *(row.pop(name, None) for name in names))
        return StepData(timestep, row.pop("action", None), row or None)

    def _set_episode_metadata(self, data: Any) -> None:
        location = f"episode {self._num_episodes}"
        if not isinstance(data, Mapping):
            raise UnsupportedTypeError(
                f"{location}: the metadata of an episode must be a dict, whose entries are fields "
                f"of the dataset; got {type(data).__name__}"
            )
        expected = _omit(self._episode_fields, *(self._episode_fields.keys() - data))
        try:
            self._episode_metadata = _fit_metadata(data, expected, location)
        except TypeError as e:
            raise UnsupportedTypeError(f"{location}, {e}") from e
        except ValueError as e:
            raise UnsupportedValueError(str(e)) from e

    def _discard_episode(self) -> None:
        self._steps = []
        self._episode_metadata = {}

    def _store_episode(self) -> None:
        """Writes the episode of the last recorded step, if any."""
        steps, metadata = self._steps, {**self._defaults, **self._episode_metadata}
        self._discard_episode()
        if not steps:
            return
        episode_index, self._num_episodes = self._num_episodes, self._num_episodes + 1
        expected = self._episode_fields
        if is_known_mask(expected.get(_COMPLETE_FIELD)):
            is_complete = steps[0].timestep.first() and steps[-1].timestep.last()
            metadata = {_COMPLETE_FIELD: is_complete, **metadata}
        masks = {name: known_field(name) for name in expected if known_field(name) in expected}
        optional = {*metadata, *masks, *masks.values()}
        missing = [name for name in expected if name not in optional]
        if missing:
            raise UnsupportedValueError(
                f"episode {episode_index} is not stored, because its metadata lacks {missing}; "
                "call set_episode_metadata for each episode, or pass episode_metadata_defaults, "
                f"or have the ds_config mark what is missing, in a bool {known_field(missing[0])!r}"
            )
        try:
            metadata = _fit_metadata(metadata, expected, "")
            columns = to_rlds_episode(steps, **self._specs)
            columns = {name: columns[name] for name in self._features["steps"].feature}
            serialized = self._encoder.encode({"steps": columns, **metadata})
        except Exception as e:  # TFDS features raise various errors.
            raise UnsupportedValueError(f"episode {episode_index} is not stored: {e}") from e
        self._writer.add(serialized, self._split, f"episode {episode_index}")

    def flush(self) -> None:
        """Publishes all episodes but the running one in the dataset, as a new shard.

        Raises:
          StorageError: An episode cannot be written.
          UsageError: The writer is closed.
        """
        super().flush()
        self._writer.flush()

    def close(self) -> None:
        """Ends the running episode, and publishes all episodes; further calls do nothing.

        Raises:
          StorageError: An episode cannot be written.
          UnsupportedValueError: The last episode cannot be stored; all earlier episodes are stored.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._store_episode()
        finally:
            self._writer.flush()

    @override
    def disown(self) -> None:
        super().disown()
        self._writer.abandon()


def _omit(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: field for name, field in fields.items() if name not in names}


def _fit_metadata(metadata: Mapping[str, Any], expected: Mapping[str, Any], location: str) -> Any:
    """Converts the metadata of an episode to the features."""
    columns = stack_values([_convert(metadata, expected)])
    return first_row(match_columns(columns, expected, rows=1, where=location))


def _create_specs(features: Any, name: str) -> Any:
    """Returns the specs of a feature, for placeholders in an episode of a single step."""
    if name not in features:
        return {}
    return tree.map_structure(
        lambda info: specs.Array([size or 0 for size in info.shape], np.dtype(info.np_dtype)),
        features[name].get_tensor_info(),
    )


def _convert(value: Any, field: Any) -> Any:
    """Converts Python numbers and lists to the arrays of a field."""
    if isinstance(value, Mapping):
        fields = field if isinstance(field, Mapping) else {}
        return {name: _convert(child, fields.get(name)) for name, child in value.items()}
    if not isinstance(field, Field) or type(value) not in (float, list):
        return value
    if any(type(leaf) not in (float, int, bool) for leaf in tree.flatten(value)):
        return value
    array = np.asarray(value)
    if {array.dtype.kind, field.column_dtype.kind} != {"f"}:
        return array
    with np.errstate(over="ignore"):
        rounded = array.astype(field.column_dtype)
    return rounded if (np.isfinite(rounded) == np.isfinite(array)).all() else array
