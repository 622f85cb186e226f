"""EnvLogger logs as datasets of TFDS, with TFDS features of your own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.rlds import rlds_base
from typing_extensions import override

import rlds
from rlds.formats.logs import source as logs_source
from rlds.formats.logs.recorded_logs import Logs
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import SourceInfo
from rlds.tfds.features import TensorStorage, fields_of_features, lossless, lossless_config
from tfds_builders.builder import NamedBuilder, check_name, prepared
from tfds_builders.features import feature_of

__all__ = ["EnvLoggerSource", "build_from_logs"]

_FIELDS_WITH_SPEC = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.DISCOUNT)


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
    float64: str | None = None,
    tensor_encoding: str | tfds.features.Encoding | None = None,
    png_level: int | None = None,
    file_format: str | None = None,
    download_config: Any = None,
) -> tfds.core.DatasetBuilder:
    """Writes an RLDS dataset from EnvLogger logs and returns a builder that reads it.

    An example of the dataset is an episode: its `steps` in RLDS order (see
    `envlogger.converters.rlds_episode`), the metadata recorded with it, `episode_id`, and the
    fields that `tfds_builders.SourceBuilder` adds to every episode. `episode_id` counts the
    episodes of all logs, in the order of `logs`. Episode `i` of a single log is
    `Reader(log).episodes[i]`. Episodes are stored in this order. TFDS reads 16 files of a dataset
    at a time; pass `tfds.ReadConfig(interleave_cycle_length=1)` to keep the order.

    The metadata recorded for the whole log, without the environment specs, becomes
    `info.metadata`, in the types of JSON: arrays as lists, UTF-8 bytes as strings, keys as strings.
    If the metadata of several logs differ, it is `{"logs": [metadata of the first log, ...]}`.

    Args:
      logs: See `EnvLoggerSource`, which also describes the conversion of values.
      name: The name of the dataset: lower-case letters, digits and `_`, as `tfds.load` needs it.
      version: The version as `major.minor.patch`; by default that of the config, or `1.0.0`.
      data_dir: The directory of TFDS datasets; the default directory of TFDS if None.
      config: Features of your own. Fields of it that are None are taken from the logs. Its name
        becomes the name of the TFDS config, which has its own directory.
      description: The description. The `overall_description` of the config overrides it.
      metadata: Replaces the recorded metadata of the logs in `info.metadata`.
      episode_metadata_defaults: Values for fields that are missing (or None) in the metadata of
        some episodes, by name. Without them, all episodes must have the same fields.
      images_as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` are stored as PNG.
      float64: See `tfds_builders.convert`. Without it, a warning says if TFDS would round float64
        to a feature of the config.
      tensor_encoding: See `tfds_builders.convert`.
      png_level: See `tfds_builders.convert`.
      file_format: A file format of TFDS; `tfrecord` if None.
      download_config: A `tfds.download.DownloadConfig`, for the number and size of shards, and for
        Apache Beam, see `tfds_builders.convert`.

    Returns:
      The builder that `tfds.builder_from_directory` makes. Its `data_path` is the new directory.

    Raises:
      FileExistsError: This version of the dataset exists; it does not change. (A TFDS builder
        would silently use the old data.)
      FileNotFoundError: A directory does not exist or holds no log.
      ValueError: A name is not valid; a log holds no episodes; logs differ in their specs; TFDS
        cannot hold a dtype; or data does not fit its spec, or earlier data. No dataset is left.
    """
    check_name(name)  # Raises before the logs are read.
    source = EnvLoggerSource(
        logs,
        config=config,
        metadata=metadata,
        episode_metadata_defaults=episode_metadata_defaults,
        images_as_png=images_as_png,
        float64=float64,
    )
    if config is not None:
        version = version or config.version
        description = config.overall_description or description
    builder = NamedBuilder(
        name=name,
        source=source,
        version=version or "1.0.0",
        data_dir=data_dir,
        config=config,
        description=description,
        shuffle=False,
        float64=float64,
        tensor_encoding=tensor_encoding,
        png_level=png_level,
        file_format=file_format,
    )
    return prepared(builder, download_config)


class EnvLoggerSource(logs_source.EnvLoggerSource):
    """EnvLogger logs: `rlds.formats.logs.source.EnvLoggerSource`, with the features of a dataset.

    Args:
      logs: See the base class.
      config: Features to use instead of those of the logs. Fields of it that are None are taken
        from the logs.
      metadata: See the base class.
      episode_metadata_defaults: See the base class.
      images_as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` are stored as PNG.
      float64: Whether the float64 of steps is kept ("bytes") or rounded ("float32"), see `convert`.
        If None, it is kept, with a warning if a feature of the config would have rounded it. Pass
        "float32" also if the config has a float32 feature for float64.

    Raises:
      ValueError: TFDS cannot hold a dtype; or see the base class.
    """

    def __init__(
        self,
        logs: Logs,
        *,
        config: rlds_base.DatasetConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        episode_metadata_defaults: Mapping[str, Any] | None = None,
        images_as_png: bool = True,
        float64: str | None = None,
    ) -> None:
        self._storage = TensorStorage(float64)
        self._config = lossless_config(
            config or rlds_base.DatasetConfig(name=""),
            self._storage,
            argument="config",
            stacklevel=2,
        )
        self._as_png = images_as_png
        super().__init__(
            logs,
            metadata=metadata,
            episode_metadata_defaults=episode_metadata_defaults,
            float64="float32" if self._storage.rounds else "bytes",
        )

    @property
    @override
    def source_info(self) -> SourceInfo:
        links = {"homepage": self._config.homepage or "", "citation": self._config.citation or ""}
        return super().source_info.replace(**links, images_as_png=self._as_png)

    def _find_step_fields(self, specs: Mapping[str, Any]) -> dict[str, Any]:
        configured = self._config_features()
        derived = self._features(
            super()._find_step_fields({n: specs[n] for n in specs if n not in configured})
        )
        features = {
            name: {**configured, **derived}[name]
            for name in specs
            if name in {**configured, **derived}
        }
        if self._config.step_metadata_info is not None:
            features = {name: features[name] for name in _FIELDS_WITH_SPEC if name in features}
            features.update(self._config.step_metadata_info)
        return dict(lossless(tfds.features.FeaturesDict(features), "steps", self._storage).items())

    def _find_episode_fields(self, specs: Mapping[str, Any]) -> dict[str, Any]:
        configured = self._config.episode_metadata_info
        if configured is None:
            return self._features(super()._find_episode_fields(specs))
        for reserved in RESERVED:
            if reserved in configured:
                raise ValueError(
                    f"config.episode_metadata_info: the name {reserved!r} is taken by the "
                    f"dataset itself. (A recorded {reserved!r} is kept as 'recorded_{reserved}'.)"
                )
        return dict(configured)

    def _expect_columns(self, fields: dict[str, Any]) -> dict[str, Any]:
        return fields_of_features(tfds.features.FeaturesDict(fields))

    def _features(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {
            name: feature_of(field, images_as_png=self._as_png, path=name)
            for name, field in fields.items()
        }

    def _is_declared(self, name: str) -> bool:
        return name in self._config_features()

    def _config_features(self) -> dict[str, Any]:
        """Returns the features of the config for fields with a spec."""
        features = {
            rlds.OBSERVATION: self._config.observation_info,
            rlds.ACTION: self._config.action_info,
            rlds.REWARD: self._config.reward_info,
            rlds.DISCOUNT: self._config.discount_info,
        }
        return {name: feature for name, feature in features.items() if feature is not None}
