"""Turns EnvLogger logs into an RLDS dataset that TFDS reads anywhere, without this package.

The features come from the recorded environment specs and, for what has no spec (step metadata,
episode metadata), from the first recorded values; all later values are checked against them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.rlds import rlds_base

import envlogger
import rlds
from envlogger.converters.rlds_episode import stack_values, to_rlds_episode
from envlogger.converters.tfds_features import lossless, match_columns
from envlogger.step_data import StepData
from tfds_builders.spec_features import feature_from_spec, specs_from_columns

__all__ = ["EnvLoggerBuilder", "LogSource", "Logs", "build_from_logs", "find_logs"]

_STEPS = rlds.STEPS
_EPISODE_ID = rlds.metadata.EPISODE_ID
_RECORDED_EPISODE_ID = "recorded_episode_id"
_FIELDS_WITH_SPEC = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.DISCOUNT)
_FLAGS = (rlds.IS_FIRST, rlds.IS_LAST, rlds.IS_TERMINAL)
_LOG_FILE = "metadata.riegeli"
_DESCRIPTION = "Episodes recorded with EnvLogger."

LogSource: TypeAlias = str | os.PathLike[str] | envlogger.Reader
Logs: TypeAlias = LogSource | Sequence[LogSource] | Mapping[str, LogSource | Sequence[LogSource]]


def find_logs(path: str | os.PathLike[str]) -> list[str]:
    """Returns the directories with EnvLogger logs at and below a directory, sorted by path.

    Raises:
      FileNotFoundError: If the directory does not exist, or holds no log.
    """
    directory = epath.Path(path)
    if not directory.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)!r} is not a directory.")
    logs = sorted(os.fspath(root) for root, _, files in directory.walk() if _LOG_FILE in files)
    if not logs:
        raise FileNotFoundError(
            f"{os.fspath(path)!r} holds no EnvLogger log: there is no metadata.riegeli in it, nor "
            "in a directory below it."
        )
    return logs


def build_from_logs(
    logs: Logs,
    *,
    name: str,
    version: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    config: rlds_base.DatasetConfig | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    episode_metadata_defaults: Mapping[str, Any] | None = None,
    images_as_png: bool = True,
    file_format: str | None = None,
    download_config: Any = None,
) -> tfds.core.DatasetBuilder:
    """Writes an RLDS dataset from EnvLogger logs and returns a builder that reads it.

    Args:
      logs: See `EnvLoggerBuilder`, also for the following arguments.
      name: The name of the dataset.
      version: Its version.
      data_dir: The directory that TFDS keeps datasets in.
      config: Features to use instead of those that are found.
      description: What the dataset is about.
      metadata: Replaces the recorded metadata of the logs.
      episode_metadata_defaults: Stand in for fields that some episodes lack.
      images_as_png: Whether to store images as PNG.
      file_format: The file format.
      download_config: A `tfds.download.DownloadConfig`, for the number and size of shards.

    Returns:
      The builder that `tfds.builder_from_directory` makes. Its `data_path` is the new directory.

    Raises:
      FileExistsError: If the dataset exists in this version; it is left as it is. (A TFDS builder
        would silently go on with the old data.)
      FileNotFoundError: As `EnvLoggerBuilder`.
      ValueError: As `EnvLoggerBuilder`. Nothing is left at the place of the dataset.
    """
    builder = EnvLoggerBuilder(
        logs=logs,
        name=name,
        version=version,
        data_dir=data_dir,
        config=config,
        description=description,
        metadata=metadata,
        episode_metadata_defaults=episode_metadata_defaults,
        images_as_png=images_as_png,
        file_format=file_format,
    )
    if builder.data_path.exists():
        raise FileExistsError(
            f"{builder.data_path} exists and is not overwritten; give another version, name or "
            "data_dir, or delete it first."
        )
    builder.download_and_prepare(download_config=download_config)
    return tfds.builder_from_directory(builder.data_path)


class EnvLoggerBuilder(  # type: ignore[call-arg]
    tfds.core.GeneratorBasedBuilder,  # type: ignore[misc]
    skip_registration=True,
):
    """A TFDS builder for the episodes of EnvLogger logs.

    An example of the dataset is an episode: its `steps`, aligned as RLDS demands (see
    `envlogger.converters.rlds_episode`), the metadata recorded with it, and `episode_id` (int64),
    the index of the episode counted over all logs in the order given: episode `i` of a single log
    is `Reader(log).episodes[i]`. Episodes are stored in this order. TFDS reads a dataset of several
    files from 16 at a time, unless `tfds.ReadConfig(interleave_cycle_length=1)` asks for the order.

    Values are kept bit by bit in the dtype they were recorded in; see `spec_features` for the
    features that do so. What is None, and containers that hold nothing, have no feature. Metadata
    of an episode that is no dict stands under `episode_metadata`; a recorded `episode_id` under
    `recorded_episode_id`.

    The metadata recorded for the whole log, without the environment specs, becomes
    `info.metadata`, in the types of JSON: arrays as lists, UTF-8 bytes as strings, keys as strings.
    If several logs differ in it, `info.metadata` is `{"logs": [metadata of the first log, ...]}`.

    As with any TFDS builder, `download_and_prepare` does nothing if the dataset exists;
    `build_from_logs` raises an error instead. One episode at a time is in memory, apart from the
    buffer of TFDS (1 GB, then files beside the dataset).

    Args:
      logs: A directory, a reader that is already open, a list of these, or a dict of these by the
        name of the split; without names, the split is `train`. In a directory, all logs at and
        below it count (see `find_logs`). Open readers are left open.
      name: The name of the dataset: lower-case letters, digits and `_`, as `tfds.load` needs it.
      version: The version as `major.minor.patch`; `1.0.0` if neither this nor the config says.
      data_dir: The directory that TFDS keeps datasets in; its default directory if None.
      config: Features to use instead of those that are found; fields of it that are None are found
        as without it. Its name becomes the name of the TFDS config, a directory of its own.
      description: What the dataset is about. The config's `overall_description`, if given, wins.
      metadata: Replaces the recorded metadata of the logs in `info.metadata`.
      episode_metadata_defaults: Values for fields that are missing (or None) in the metadata of
        some episodes, by name. Without them, all episodes must have the same fields.
      images_as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` are stored as PNG.
      file_format: A file format of TFDS; `tfrecord` if None.

    Raises:
      FileNotFoundError: If a directory does not exist or holds no log.
      ValueError: If a name is not valid; if a log holds no episodes; if logs differ in their specs;
        if TFDS cannot hold a dtype; if data does not fit its spec, or what was recorded before it.
    """

    # Nothing is downloaded. (Looking for checksums, TFDS would need `importlib_resources`.)
    url_infos = None

    def __init__(
        self,
        *,
        logs: Logs,
        name: str,
        version: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        config: rlds_base.DatasetConfig | None = None,
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        episode_metadata_defaults: Mapping[str, Any] | None = None,
        images_as_png: bool = True,
        file_format: str | None = None,
    ) -> None:
        if not re.fullmatch("[a-z][a-z0-9_]*", name):
            raise ValueError(
                f"{name!r} is not a name for a dataset; use lower-case letters, digits and '_', "
                "beginning with a letter."
            )
        version = version or (config and config.version) or "1.0.0"
        self.name = name
        self.VERSION = tfds.core.Version(version)
        if config is not None:
            self.BUILDER_CONFIGS = [config]
        self._config = config or rlds_base.DatasetConfig(name="")
        self._description = self._config.overall_description or description or _DESCRIPTION
        self._defaults = dict(episode_metadata_defaults or {})
        self._images_as_png = images_as_png
        self._splits = _logs_by_split(logs)
        self._given_metadata = metadata
        self._scan()
        super().__init__(data_dir=data_dir, config=config, version=version, file_format=file_format)

    def _scan(self) -> None:
        """Reads all that is needed before the first episode is written; checks what is cheap."""
        self._num_episodes: dict[_Log, int] = {}
        self._first_id: dict[str, int] = {}
        metadata = []
        first_log = next(iter(self._splits.values()))[0]
        for split, logs in self._splits.items():
            self._first_id[split] = sum(self._num_episodes.values())
            for log in logs:
                with log.open() as reader:
                    self._num_episodes[log] = len(reader.episodes)
                    if not self._num_episodes[log]:
                        raise ValueError(f"{log.name} holds no episodes.")
                    recorded = _recorded_specs(reader)
                    if log is first_log:
                        self._specs = _step_specs(reader, recorded, log.name)
                        self._step_features = self._find_step_features()
                        self._episode_features = self._find_episode_features(reader, log.name)
                    self._check_specs(recorded, log.name, first_log.name)
                    for index, episode_metadata in enumerate(reader.episode_metadata()):
                        self._episode_fields(episode_metadata, f"{log.name}, episode {index}")
                    metadata.append(self._log_metadata(reader, log.name))
        kinds = {json.dumps(data, sort_keys=True) for data in metadata}
        self._metadata = metadata[0] if len(kinds) == 1 else {"logs": metadata}

    def _find_step_features(self) -> Any:
        config = self._config
        given = self._given_features()
        found = {
            field: given[field] if field in given else self._feature(spec, field)
            for field, spec in self._specs.items()
            if field not in _FLAGS
        }
        if config.step_metadata_info is not None:
            found = {field: found[field] for field in _FIELDS_WITH_SPEC if field in found}
            found.update(config.step_metadata_info)
        features = {field: feature for field, feature in found.items() if feature is not None}
        features.update(dict.fromkeys(_FLAGS, np.bool_))
        return lossless(tfds.features.FeaturesDict(features), "config")

    def _find_episode_features(self, reader: envlogger.Reader, log: str) -> Any:
        features = self._config.episode_metadata_info
        if features is None:
            where = f"{log}, episode 0"
            columns = _episode_columns(reader.episode_metadata()[0], self._defaults, where)
            found = {
                field: self._feature(spec, field)
                for field, spec in specs_from_columns(columns).items()
            }
            features = {field: feature for field, feature in found.items() if feature is not None}
        for reserved in (_STEPS, _EPISODE_ID):
            if reserved in features:
                raise ValueError(
                    f"config.episode_metadata_info: the name {reserved!r} is taken by the dataset "
                    f"itself. (A recorded {_EPISODE_ID!r} is kept as {_RECORDED_EPISODE_ID!r}.)"
                )
        return lossless(tfds.features.FeaturesDict(features), "config")

    def _given_features(self) -> dict[str, Any]:
        """Returns the features that the config has for fields with a spec."""
        features = {
            "observation": self._config.observation_info,
            "action": self._config.action_info,
            "reward": self._config.reward_info,
            "discount": self._config.discount_info,
        }
        return {field: feature for field, feature in features.items() if feature is not None}

    def _feature(self, spec: Any, field: str) -> Any:
        return feature_from_spec(spec, images_as_png=self._images_as_png, path=field)

    def _check_specs(self, recorded: Mapping[str, Any], log: str, first_log: str) -> None:
        for field, spec in recorded.items():
            if spec is None or field in self._given_features():
                continue
            feature, first = self._feature(spec, field), self._feature(self._specs[field], field)
            if repr(feature) != repr(first):
                raise ValueError(
                    f"{log}, {field}: the spec describes {feature}, that of {first_log} {first}; "
                    "logs with different specs need a dataset each."
                )

    def _log_metadata(self, reader: envlogger.Reader, log: str) -> Any:
        if self._given_metadata is not None:
            return _to_json(self._given_metadata, "metadata")
        metadata = dict(reader.metadata())
        metadata.pop("environment_specs", None)
        return _to_json(metadata, f"{log}, metadata")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=self._description,
            features=tfds.features.FeaturesDict(
                {
                    _STEPS: tfds.features.Dataset(self._step_features),
                    _EPISODE_ID: np.int64,
                    **self._episode_features,
                }
            ),
            supervised_keys=self._config.supervised_keys,
            homepage=self._config.homepage or None,
            citation=self._config.citation or None,
            metadata=tfds.core.MetadataDict(self._metadata),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, Any]]]:
        del dl_manager
        return {split: self._generate_examples(split) for split in self._splits}

    def _download_and_prepare(self, dl_manager: Any, download_config: Any = None) -> None:
        super()._download_and_prepare(dl_manager, download_config)
        # The episodes are written in order, but need not be read so: where a dataset is marked as
        # ordered, TFDS refuses to shuffle its files.
        self.info.as_proto.disable_shuffling = False

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        first_id = self._first_id[split]
        # TFDS orders the episodes by key. Beyond 1 GB it spreads them over files by the highest of
        # 128 bits, and then sorts one file at a time in memory: small keys would all be in one.
        stride = 2**128 // sum(self._num_episodes[log] for log in self._splits[split])
        for index, episode in enumerate(self._episodes(split)):
            yield index * stride, {_EPISODE_ID: np.int64(first_id + index), **episode}

    def _episodes(self, split: str) -> Iterator[dict[str, Any]]:
        for log in self._splits[split]:
            with log.open() as reader:
                episodes, metadata = reader.episodes, reader.episode_metadata()
                for index in range(self._num_episodes[log]):
                    where = f"{log.name}, episode {index}"
                    fields = self._episode_fields(metadata[index], where)
                    yield {_STEPS: self._steps(episodes[index], where), **fields}

    def _steps(self, steps: Iterable[StepData], where: str) -> Any:
        columns = _step_columns(list(steps), self._specs, where)
        return match_columns(
            columns, self._step_features, rows=len(columns["is_first"]), where=f"{where}, step 0"
        )

    def _episode_fields(self, metadata: Any, where: str) -> Any:
        columns = _episode_columns(metadata, self._defaults, where)
        try:
            columns = match_columns(columns, self._episode_features, rows=1, where=where)
        except ValueError as error:
            raise ValueError(
                f"{error} The metadata of all episodes must be alike; `episode_metadata_defaults` "
                "can give values for fields that are missing in some."
            ) from error
        return _first_row(columns)


@dataclasses.dataclass(frozen=True, eq=False)
class _Log:
    """A log that is opened when it is read."""

    name: str
    source: str | envlogger.Reader

    @contextlib.contextmanager
    def open(self) -> Iterator[envlogger.Reader]:
        if isinstance(self.source, str):
            with envlogger.Reader(self.source) as reader:
                yield reader
        else:
            yield self.source


def _logs_by_split(logs: Logs) -> dict[str, list[_Log]]:
    splits = logs if isinstance(logs, Mapping) else {"train": logs}
    if not splits:
        raise ValueError("No logs were given.")
    return {split: _split_logs(split, sources) for split, sources in splits.items()}


def _split_logs(split: str, sources: LogSource | Sequence[LogSource]) -> list[_Log]:
    if not re.fullmatch(r"\w+", split) or split == "all":
        raise ValueError(
            f"{split!r} is not a name for a split; use letters, digits and '_' ('all' means all "
            "splits to TFDS)."
        )
    if isinstance(sources, (str, os.PathLike)) or not isinstance(sources, Sequence):
        sources = [sources]
    logs = []
    for index, source in enumerate(sources):
        if isinstance(source, (str, os.PathLike)):
            logs += [_Log(path, path) for path in find_logs(source)]
        else:
            logs.append(_Log(f"reader {index} of split {split!r}", source))
    if not logs:
        raise ValueError(f"No logs were given for the split {split!r}.")
    return logs


def _recorded_specs(reader: envlogger.Reader) -> dict[str, Any]:
    """Returns the specs of the environment, None where the log has none."""
    return {
        "observation": reader.observation_spec(),
        "action": reader.action_spec(),
        "reward": reader.reward_spec(),
        "discount": reader.discount_spec(),
    }


def _step_specs(reader: envlogger.Reader, recorded: dict[str, Any], log: str) -> dict[str, Any]:
    """Returns specs for all fields of a step: the recorded ones, the rest from recorded values."""
    known = {field: spec for field, spec in recorded.items() if spec is not None}
    for index, episode in enumerate(reader.episodes):
        if len(known) == len(recorded) or len(episode) > 1:
            columns = _step_columns(list(episode), known, f"{log}, episode {index}")
            return {**specs_from_columns(columns), **known}
    missing = [field for field in recorded if field not in known]
    raise ValueError(
        f"{log} has no specs of the environment, and no episode with an action to find out what "
        f"{missing} look like."
    )


def _step_columns(steps: list[StepData], specs: Mapping[str, Any], where: str) -> dict[str, Any]:
    try:
        return to_rlds_episode(
            steps,
            action_spec=specs.get("action"),
            reward_spec=specs.get("reward"),
            discount_spec=specs.get("discount"),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}, {error}") from error


def _episode_columns(metadata: Any, defaults: Mapping[str, Any], where: str) -> Any:
    """Returns the metadata of one episode as columns with a single row."""
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, Mapping):
        metadata = {"episode_metadata": metadata}
    metadata = {field: value for field, value in metadata.items() if value is not None}
    if _STEPS in metadata:
        raise ValueError(
            f"{where}: the metadata has a field {_STEPS!r}, the name of the steps in the dataset."
        )
    if _EPISODE_ID in metadata:
        if _RECORDED_EPISODE_ID in metadata:
            raise ValueError(
                f"{where}: the metadata has both {_EPISODE_ID!r} and {_RECORDED_EPISODE_ID!r}, "
                f"which is the name that a recorded {_EPISODE_ID!r} gets in the dataset."
            )
        metadata[_RECORDED_EPISODE_ID] = metadata.pop(_EPISODE_ID)
    try:
        return stack_values([{**defaults, **metadata}], "")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}, {error}") from error


def _first_row(columns: Any) -> Any:
    if isinstance(columns, dict):
        return {name: _first_row(child) for name, child in columns.items()}
    return columns[0]


def _to_json(value: Any, path: str) -> Any:
    """Returns a value in the types of JSON."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(child, f"{path}/{key}") for key, child in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_to_json(child, f"{path}/{index}") for index, child in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: bytes that are not UTF-8 have no place in JSON; pass `metadata` to "
                "replace what was recorded."
            ) from error
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"{path}: {type(value).__name__} has no place in JSON: {value!r:.100}.")
