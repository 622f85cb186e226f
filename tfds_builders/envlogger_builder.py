"""Turns EnvLogger logs into an RLDS dataset that TFDS reads anywhere, without this package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.rlds import rlds_base

from rlds.formats.logs.recorded_logs import Logs
from tfds_builders.builder import NamedBuilder, check_name, prepared
from tfds_builders.envlogger_source import EnvLoggerSource

__all__ = ["EnvLoggerBuilder", "build_from_logs"]


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
    file_format: str | None = None,
    download_config: Any = None,
) -> tfds.core.DatasetBuilder:
    """Writes an RLDS dataset from EnvLogger logs and returns a builder that reads it.

    Args:
      logs: See `EnvLoggerBuilder`, also for the following arguments.
      name: The name of the dataset.
      version: Its version.
      data_dir: The directory that TFDS keeps datasets in.
      config: Features of your own; the others are taken from the logs.
      description: What the dataset is about.
      metadata: Replaces the recorded metadata of the logs.
      episode_metadata_defaults: Stand in for fields that some episodes lack.
      images_as_png: Whether to store images as PNG.
      float64: How the float64 of steps is stored: "bytes" keeps every bit, "float32" rounds it, as
        the loaders of dlimp, Octo and OpenVLA need it.
      tensor_encoding: How the arrays of steps are stored: "none" or "zlib".
      file_format: The file format.
      download_config: A `tfds.download.DownloadConfig`, for the number and size of shards, and for
        Apache Beam, see `tfds_builders.convert`.

    Returns:
      The builder that `tfds.builder_from_directory` makes. Its `data_path` is the new directory.

    Raises:
      FileExistsError: This version of the dataset exists; it does not change. (A TFDS builder
        would silently use the old data.)
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
        float64=float64,
        tensor_encoding=tensor_encoding,
        file_format=file_format,
    )
    return prepared(builder, download_config)


class EnvLoggerBuilder(NamedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A TFDS builder for the episodes of EnvLogger logs.

    An example of the dataset is an episode: its `steps` in RLDS order (see
    `envlogger.converters.rlds_episode`), the metadata recorded with it, `episode_id`, and the
    fields that `tfds_builders.SourceBuilder` adds to every episode. `episode_id` counts the
    episodes of all logs, in the order of `logs`. Episode `i` of a single log is
    `Reader(log).episodes[i]`. Episodes are stored in this order. TFDS reads 16 files of a dataset
    at a time; pass `tfds.ReadConfig(interleave_cycle_length=1)` to keep the order.

    The metadata recorded for the whole log, without the environment specs, becomes
    `info.metadata`, in the types of JSON: arrays as lists, UTF-8 bytes as strings, keys as strings.
    If the metadata of several logs differ, it is `{"logs": [metadata of the first log, ...]}`.

    As with any TFDS builder, `download_and_prepare` does nothing if the dataset exists;
    `build_from_logs` raises an error instead.

    Args:
      logs: See `EnvLoggerSource`, which also describes the conversion of values.
      name: The name of the dataset: lower-case letters, digits and `_`, as `tfds.load` needs it.
      version: The version as `major.minor.patch`; `1.0.0` if neither this nor the config says.
      data_dir: The directory that TFDS keeps datasets in; its default directory if None.
      config: Features of your own. Fields of it that are None are taken from the logs. Its name
        becomes the name of the TFDS config, which has its own directory.
      description: What the dataset is about. The config's `overall_description`, if given, wins.
      metadata: Replaces the recorded metadata of the logs in `info.metadata`.
      episode_metadata_defaults: Values for fields that are missing (or None) in the metadata of
        some episodes, by name. Without them, all episodes must have the same fields.
      images_as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` are stored as PNG.
      float64: See `tfds_builders.convert`. Without it, a config in whose features TFDS would round
        float64 gives a warning.
      tensor_encoding: See `tfds_builders.convert`.
      file_format: A file format of TFDS; `tfrecord` if None.

    Raises:
      FileNotFoundError: If a directory does not exist or holds no log.
      ValueError: If a name is not valid; if a log holds no episodes; if logs differ in their specs;
        if TFDS cannot hold a dtype; if data does not fit its spec, or what was recorded before it.
    """

    SHUFFLE = False

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
        float64: str | None = None,
        tensor_encoding: str | tfds.features.Encoding | None = None,
        file_format: str | None = None,
    ) -> None:
        if config is not None:
            self.BUILDER_CONFIGS = [config]
            version = version or config.version
            description = config.overall_description or description
        check_name(name)  # Before the logs are read.
        source = EnvLoggerSource(
            logs,
            config=config,
            metadata=metadata,
            episode_metadata_defaults=episode_metadata_defaults,
            images_as_png=images_as_png,
            float64=float64,
        )
        super().__init__(
            name=name,
            source=source,
            version=version or "1.0.0",
            data_dir=data_dir,
            config=config,
            description=description,
            float64=float64,
            tensor_encoding=tensor_encoding,
            file_format=file_format,
        )
