"""Recording of episodes as a TFDS dataset."""

import functools
import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.rlds.rlds_base import DatasetConfig

from rlds import rlds_types
from rlds.tfds.columns import fit_steps, fit_value
from rlds.tfds.config_generator import config_of_features
from rlds.tfds.examples import TfdsExampleEncoder
from rlds.tfds.features import TensorStorage, check_readable, lossless_config
from rlds.tfds.growing import growing_dataset, new_info
from rlds_ecosystem import install_command
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.json_values import to_json
from tfds_files.example_encoder import feature_at
from tfds_files.growing import Appender, Replacement

__all__ = ["DatasetConfig", "EpisodeWriter"]

_FILE_FORMATS = ("tfrecord", "array_record")


class EpisodeWriter:
    """Writes episodes to a directory as an RLDS dataset, for `tfds.builder_from_directory`.

    A context manager. Episodes are written to shards. A full shard is added to the dataset, the
    last shard on `close`. Finished shards do not change. Several writers may add to a dataset at a
    time.

    If the process dies, all finished shards can be read. The next writer that opens the directory
    adds the episodes of the unfinished shard, with a warning.

    With `overwrite`, `close` replaces the splits of the added episodes. Until then the old splits
    do not change, even if the process dies or an exception leaves the `with` block.

    Args:
      data_directory: The folder of the dataset; created if it is missing.
      ds_config: The name of the dataset and the features of its steps and episodes, see
        `generate_config_from_spec`. With the `info` of another dataset, its name, features,
        description and metadata are copied.
      max_episodes_per_file: The maximum number of episodes in a shard.
      split_name: The split to write, or several splits; 'train' if None.
      version: The version of the dataset, as `major.minor.patch`.
      overwrite: Whether to replace existing splits. Other splits of the dataset are kept, and need
        the same features. If false, new shards are added to the splits.
      file_format: 'tfrecord', or 'array_record' for random access (`tfds.data_source`).
      metadata: The metadata of the dataset, as `info.metadata`; in the types of JSON and
        NumPy. If None, a copy has the metadata of the other dataset, and an existing dataset keeps
        its metadata.
      float64: The storage of float64 in steps: "bytes" keeps every bit, "float32" rounds, which
        the loaders of dlimp, Octo and OpenVLA need. If None, every bit is kept, with a warning if
        TFDS would round.
      tensor_encoding: The storage of arrays in steps, for all features: "none" as plain numbers,
        which these loaders need too, or "zlib".
      layout: "direct" stores numbers of steps, for all features, so that `rlds.feeds` can read
        single steps: uncompressed, and with the same size for each value of a field.
      png_level: The compression level of PNG files, 0 to 9 as for `zlib.compress`. If None, 1,
        which is fast, or 6 for images that compress well. All levels are lossless.

    Raises:
      StorageError: The directory cannot be written to, or has another dataset; the message has the
        difference.
      ValueError: An argument is invalid, or a feature cannot hold its values without loss.

    >>> import tempfile, numpy as np
    >>> config = DatasetConfig(name="example", observation_info=np.int64)
    >>> flags = {"is_first": [True, False], "is_last": [False, True], "is_terminal": [False] * 2}
    >>> directory = tempfile.mkdtemp()
    >>> with EpisodeWriter(directory, config) as writer:
    ...     writer.add_episode({"steps": {"observation": [1, 2], **flags}})
    >>> dataset = tfds.builder_from_directory(directory).as_dataset(split="train")
    >>> [[int(step["observation"]) for step in episode["steps"]] for episode in dataset]
    [[1, 2]]
    """

    def __init__(
        self,
        data_directory: str | os.PathLike[str],
        ds_config: DatasetConfig | tfds.core.DatasetInfo,
        max_episodes_per_file: int = 1000,
        split_name: str | Iterable[str] | None = "train",
        version: str = "0.0.1",
        overwrite: bool = True,
        file_format: str = "tfrecord",
        *,
        metadata: Mapping[str, Any] | None = None,
        float64: str | None = None,
        tensor_encoding: str | tfds.features.Encoding | None = None,
        layout: str | None = None,
        png_level: int | None = None,
    ) -> None:
        storage = TensorStorage(float64, tensor_encoding, layout, png_level)
        if max_episodes_per_file <= 0:
            raise ValueError(f"max_episodes_per_file must be positive, got {max_episodes_per_file}")
        self._splits = _split_names(split_name)
        file_format = str(getattr(file_format, "value", file_format))
        if file_format not in _FILE_FORMATS:
            raise ValueError(f"file_format must be one of {_FILE_FORMATS}, got {file_format!r}")
        if file_format == "array_record" and importlib.util.find_spec("array_record") is None:
            raise ImportError(f"to write ArrayRecord files: {install_command('array_record')}")
        self._num_episodes = 0
        self._is_closed = False
        if isinstance(ds_config, tfds.core.DatasetInfo):
            metadata = ds_config.metadata if metadata is None else metadata
            ds_config = _config_of(ds_config)
        make_info = functools.partial(
            new_info,
            version=version,
            file_format=file_format,
            metadata=to_json(metadata or {}, "metadata") or None,
        )
        directory = stores.as_path(data_directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StorageError(f"cannot write {directory}: {e}") from e
        info = make_info(ds_config, directory)
        is_unchanged = (
            not overwrite  # Another program may have created the dataset.
            and storage == TensorStorage(png_level=png_level)
            and growing_dataset(info).has_same_features()
        )
        if not is_unchanged:
            ds_config = lossless_config(ds_config, storage, stacklevel=2)
            info = make_info(ds_config, directory)
        check_readable(info.features, "ds_config, ")
        self._encoder = TfdsExampleEncoder(info.features, png_level=png_level)
        self._target = self._dataset = growing_dataset(info)
        self._replacement: Replacement | None = None
        if overwrite and self._target.needs_replacement(self._splits):
            self._replacement = Replacement(directory)
            self._dataset = growing_dataset(make_info(ds_config, self._replacement.directory))
        self._dataset.open(self._splits, stacklevel=3)
        self._writer = Appender(self._dataset, max_episodes_per_file)
        self._features = self._encoder.features

    def add_episode(self, episode: rlds_types.Episode) -> None:
        """Writes an episode, if the writer has one split; otherwise see `add_episode_to_split`.

        Args:
          episode: The episode. The steps are a `tf.data.Dataset` of steps, one dict of columns
            (arrays or tensors with a leading time axis), or an iterable of steps. Columns are
            written many times faster than steps.

        Raises:
          StorageError: The episode cannot be written; earlier episodes are kept.
          ValueError: The episode has other fields than the dataset, a value that does not fit its
            feature, no steps, or a first step without `is_first`. The message has the location;
            the episode is not written.
        """
        if len(self._splits) > 1:
            raise ValueError(
                f"the writer has the splits {self._splits}; choose one with add_episode_to_split"
            )
        self.add_episode_to_split(episode, self._splits[0])

    def add_episode_to_split(self, episode: rlds_types.Episode, split: str) -> None:
        """Writes an episode to one of the splits.

        Args:
          episode: See `add_episode`.
          split: The name of the split.

        Raises:
          KeyError: The writer does not write this split.
          StorageError: See `add_episode`.
          ValueError: See `add_episode`.
        """
        if self._is_closed:
            raise ValueError("the writer is closed; create another one with overwrite=False")
        if split not in self._splits:
            raise KeyError(
                f"the writer has no split {split!r}, it has {self._splits}; name all splits in "
                "split_name"
            )
        example = self._encode(episode, f"episode {self._num_episodes}")
        self._writer.add(example, split, f"episode {self._num_episodes}")
        self._num_episodes += 1

    def _encode(self, episode: Any, location: str) -> bytes:
        names = list(self._features)
        if not isinstance(episode, Mapping) or episode.keys() != set(names):
            actual = sorted(episode) if isinstance(episode, Mapping) else type(episode).__name__
            raise ValueError(f"{location}: got {actual}, expected the fields {sorted(names)}")
        fields = {
            name: fit_value(value, self._features[name], name, location)
            for name, value in episode.items()
            if name != rlds_types.STEPS
        }
        step_features = feature_at(self._features, (rlds_types.STEPS, None))
        steps = fit_steps(episode[rlds_types.STEPS], step_features, location)
        _check_begin(steps[rlds_types.IS_FIRST], location)
        fields[rlds_types.STEPS] = steps
        try:
            return self._encoder.encode(fields)
        except Exception as e:  # A feature of TFDS may raise any error.
            raise ValueError(f"{location}, {e}") from e

    def close(self) -> None:
        """Adds all episodes to the dataset; further calls do nothing.

        Raises:
          StorageError: An episode cannot be written.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._writer.flush()
            if self._replacement is not None:
                self._replacement.commit(self._dataset, self._target)
        finally:
            if self._replacement is not None:
                self._replacement.abandon()

    def __enter__(self) -> "EpisodeWriter":
        return self

    def __exit__(self, exc_type: object, *_: object) -> None:
        if exc_type is not None and self._replacement is not None:
            self._is_closed = True  # The new splits are incomplete, so the old splits stay.
            self._writer.abandon()
            self._replacement.discard()
            return
        self.close()


def _check_begin(is_first: Sequence[bool], location: str) -> None:
    if not len(is_first):
        raise ValueError(f"{location} has no steps; leave it out")
    if not is_first[0]:
        raise ValueError(
            f"{location}, step 0, steps/{rlds_types.IS_FIRST}: got False, expected True: an "
            "episode begins with its first step"
        )


def _split_names(split_name: str | Iterable[str] | None) -> list[str]:
    names = ["train"] if split_name is None else split_name
    names = [names] if isinstance(names, str) else list(names)
    if not names or len(set(names)) < len(names) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"split_name must be the name of a split, or different names; got {names}")
    return names


def _config_of(info: tfds.core.DatasetInfo) -> DatasetConfig:
    """Returns the config of an existing dataset."""
    features = info.features
    if not isinstance(features, tfds.features.FeaturesDict) or rlds_types.STEPS not in features:
        raise ValueError(f"ds_config: {info.name} has no RLDS episodes: {features}")
    episode = dict(features.items())
    return config_of_features(
        dict(episode.pop(rlds_types.STEPS).feature.items()),
        episode,
        name=info.name,
        overall_description=info.description or "",
        homepage=next(iter(info.as_proto.location.urls), ""),  # Without a name, TFDS generates one.
        citation=info.citation or "",
    )
