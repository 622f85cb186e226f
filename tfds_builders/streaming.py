"""Reads EnvLogger logs as an RLDS dataset, without a conversion in between.

What comes out is what converting the same logs and reading the dataset would give. An episode is
read at once, as columns, in the moment when it is asked for.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from etils import epath

import envlogger
import rlds
from envlogger.converters.tfds_features import match_columns
from envlogger.errors import EnvLoggerError
from rlds.transformations import _layouts
from tfds_builders.envlogger_builder import (
    LogSource,
    _episode_columns,
    _first_row,
    _Log,
    _logs_by_split,
    _recorded_specs,
    _step_columns,
    _step_specs,
    _to_json,
)
from tfds_builders.episode_fields import COMPLETE, ORIGIN, TRUNCATED, features_of, fields_of
from tfds_builders.source import Origin, RandomAccessSource, SourceEpisode, SourceError
from tfds_builders.spec_features import feature_from_spec, specs_from_columns

__all__ = ["EnvLoggerSource", "episode_flags", "episodes_from_logs"]

_LAYOUTS = ("nested", "batched")
_FLAGS = (rlds.IS_FIRST, rlds.IS_LAST, rlds.IS_TERMINAL)
# Names of the dataset itself. What was recorded under them gets a name of its own.
_TAKEN = (rlds.FINAL_OBSERVATION_KNOWN, TRUNCATED, COMPLETE, ORIGIN)
# How many logs are kept open. Each has two open files at most.
_MAX_OPEN_LOGS = 16


def episodes_from_logs(
    logs: LogSource | Sequence[LogSource],
    *,
    layout: str = "nested",
    shuffle: bool = False,
    seed: int | None = None,
    reshuffle_each_iteration: bool = True,
    num_shards: int = 1,
    shard_index: int = 0,
    episode_metadata_defaults: Mapping[str, Any] | None = None,
) -> tf.data.Dataset:
    """Returns the episodes of EnvLogger logs as an RLDS dataset.

    Nothing is written. The episodes, their fields and the values are those that the dataset has
    that `convert` makes of an `EnvLoggerSource` of the logs: images are decoded, and tuples are
    dicts with the keys `'0'`, `'1'`, .... They come in the order in which they were recorded,
    unless they are shuffled. Of logs that grow, the episodes that are there now are read.

    The cardinality is known, and iterators can be checkpointed.

    Args:
      logs: A directory (every log in and below it counts), an open `envlogger.Reader`, or several
        of these.
      layout: 'nested', where `steps` is a dataset of steps, or 'batched', where it is one dict of
        tensors with a leading time axis. That is several times faster.
      shuffle: Whether the episodes come in a random order; any order of all episodes may come. Only
        their numbers are kept in memory.
      seed: Determines the order, as that of `tf.data.Dataset.shuffle`.
      reshuffle_each_iteration: Whether each pass has another order.
      num_shards: How many hosts share the episodes. In each pass, no two hosts get the same
        episode, and all hosts together get them all.
      shard_index: Which of the hosts this is, from 0 on.
      episode_metadata_defaults: Values for fields that are missing (or None) in the metadata of
        some episodes, by name. Without them, all episodes must have the same fields.

    Raises:
      FileNotFoundError: A directory does not exist, or holds no log.
      SourceError: Logs hold no episodes, or differ in their specs; says which log. While reading,
        the same of damaged episodes is told by the error of TensorFlow.
      ValueError: An argument is wrong. Or hosts would shuffle without a common seed.

    >>> import tempfile
    >>> from envlogger.testing.catch_env import Catch
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> [episode] = episodes_from_logs(directory, layout="batched")
    >>> episode["steps"]["observation"].shape, bool(episode["complete"])
    (TensorShape([10, 10, 5]), True)
    """
    caller = "episodes_from_logs"
    if isinstance(logs, Mapping):
        raise ValueError(f"{caller}: logs has splits {list(logs)}; give the logs of one of them")
    if layout not in _LAYOUTS:
        raise ValueError(f"{caller}: layout must be one of {_LAYOUTS}, got {layout!r}")
    if num_shards < 1:
        raise ValueError(f"{caller}: num_shards must be positive, got {num_shards}")
    if not 0 <= shard_index < num_shards:
        raise ValueError(
            f"{caller}: shard_index must be from 0 to {num_shards - 1}, got {shard_index}"
        )
    if shuffle and num_shards > 1 and seed is None:
        raise ValueError(
            f"{caller}: {num_shards} hosts that shuffle need the same seed, or else they get some "
            "episodes twice and others never; give one"
        )
    source = EnvLoggerSource(logs, episode_metadata_defaults=episode_metadata_defaults)
    indices = tf.data.Dataset.range(source.num_episodes("train"))
    if shuffle:
        indices = indices.shuffle(
            source.num_episodes("train"),
            seed=seed,
            reshuffle_each_iteration=reshuffle_each_iteration,
        )
    if num_shards > 1:
        indices = indices.shard(num_shards, shard_index)
    return _read_in_graph(source, indices, nested=layout == "nested")


def episode_flags(
    is_terminal: np.ndarray, *, begins: bool, ends: bool, file: str, begin: int
) -> dict[str, Any]:
    """Returns what a `SourceEpisode` says of a recorded episode, by the names of its attributes.

    Args:
      is_terminal: The column of the episode.
      begins: Whether its first step is a FIRST step.
      ends: Whether its last step is a LAST step. If not, the environment was reset before, or
        recording stopped.
      file: The name of the log.
      begin: How many steps the log has before it.

    >>> flags = episode_flags(np.array([False] * 3), begins=True, ends=True, file="log", begin=7)
    >>> flags["truncated"], flags["complete"], flags["origin"]
    (True, True, Origin(file='log', begin=7, end=10))
    """
    return {
        "final_observation_known": True,
        "truncated": not is_terminal[-1],
        "complete": begins and ends,
        "origin": Origin(file, begin, begin + len(is_terminal)),
    }


class EnvLoggerSource(RandomAccessSource):
    """EnvLogger logs: of one environment, recorded with any metadata.

    The features come from the recorded environment specs and, for what has no spec (step metadata,
    episode metadata), from the first recorded values.

    The key of an episode is its index, counted over all logs in the order given. `truncated` is
    true if its last state is not terminal; `complete` is false if it does not begin with a FIRST
    step and end with a LAST one. Metadata of an episode that is no dict stands under
    `episode_metadata`; what was recorded under a name of the dataset (`episode_id`, `truncated`)
    stands under `recorded_<name>`.

    Args:
      logs: A directory (every log in and below it counts), an open `envlogger.Reader`, a list of
        these, or one of these for each split. Of logs that grow, the episodes that are there now
        are read.
      images_as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` are stored as PNG.
      episode_metadata_defaults: Values for fields that are missing (or None) in the metadata of
        some episodes, by name.

    Raises:
      FileNotFoundError: A directory does not exist, or holds no log.
      SourceError: Logs hold no episodes, or differ in their specs; says which log.
    """

    description = "Episodes recorded with EnvLogger."

    def __init__(
        self,
        logs: LogSource | Sequence[LogSource] | Mapping[str, LogSource | Sequence[LogSource]],
        *,
        images_as_png: bool = True,
        episode_metadata_defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self._images_as_png = images_as_png
        self._defaults = dict(episode_metadata_defaults or {})
        splits = _logs_by_split(logs)
        names = _names([log for split_logs in splits.values() for log in split_logs])
        self._splits = {
            split: [_OpenedLog(log, names[log]) for log in split_logs]
            for split, split_logs in splits.items()
        }
        self._ends = {
            split: np.cumsum([log.num_episodes for log in split_logs]).tolist()
            for split, split_logs in self._splits.items()
        }
        first = self._all_logs()[0]
        self._specs = first.step_specs()
        self._episode_specs = specs_from_columns(self._metadata_columns(first, first.reader, 0))
        self._check_specs(first)
        step_features = {**self.step_features(), **dict.fromkeys(_FLAGS, np.bool_)}
        self._step_features = tfds.features.FeaturesDict(step_features)
        self._metadata_features = tfds.features.FeaturesDict(self.episode_features())
        self._idle = _IdleReaders()

    def _check_specs(self, first: _OpenedLog) -> None:
        features = {field: self._feature(spec, field) for field, spec in self._specs.items()}
        for log in self._all_logs():
            for field, spec in _recorded_specs(log.reader).items():
                if spec is None:
                    continue
                feature = self._feature(spec, field)
                if repr(feature) != repr(features[field]):
                    raise SourceError(
                        f"the spec describes {feature}, that of {first.path} {features[field]}; "
                        "logs with different specs need a dataset each",
                        file=log.path,
                        field=field,
                    )

    def _all_logs(self) -> list[_OpenedLog]:
        return [log for logs in self._splits.values() for log in logs]

    def _feature(self, spec: Any, field: str) -> Any:
        return feature_from_spec(spec, images_as_png=self._images_as_png, path=field)

    def _features(self, specs: Mapping[str, Any]) -> dict[str, Any]:
        found = {field: self._feature(spec, field) for field, spec in specs.items()}
        return {field: feature for field, feature in found.items() if feature is not None}

    @property
    def splits(self) -> Sequence[str]:
        """The names of the splits."""
        return list(self._splits)

    def step_features(self) -> Mapping[str, Any]:
        """See `Source`."""
        specs = {field: spec for field, spec in self._specs.items() if field not in _FLAGS}
        return self._features(specs)

    def episode_features(self) -> Mapping[str, Any]:
        """See `Source`."""
        return self._features(self._episode_specs)

    def metadata(self) -> Mapping[str, Any]:
        """Returns what was recorded of the logs: if they differ, of each in a list, "logs"."""
        recorded = []
        for log in self._all_logs():
            metadata = dict(log.reader.metadata())
            metadata.pop("environment_specs", None)
            recorded.append(_to_json(metadata, f"{log.path}, metadata"))
        if all(metadata == recorded[0] for metadata in recorded):
            return dict(recorded[0])
        return {"logs": recorded}

    def inputs(self) -> Sequence[epath.Path]:
        """See `Source`."""
        return [
            file
            for log in self._all_logs()
            if log.directory is not None
            for pattern in ("*.riegeli", "*/*.riegeli")
            for file in sorted(epath.Path(log.directory).glob(pattern))
        ]

    def options(self) -> Mapping[str, Any]:
        """See `Source`."""
        return {
            "images_as_png": self._images_as_png,
            "episode_metadata_defaults": _to_json(self._defaults, "episode_metadata_defaults"),
            "num_episodes": {split: ends[-1] for split, ends in self._ends.items()},
        }

    def totals(self, split: str) -> Mapping[str, int]:
        """See `Source`."""
        return {"steps": sum(log.num_steps for log in self._splits[split])}

    def num_episodes(self, split: str) -> int:
        """See `RandomAccessSource`."""
        return int(self._ends[split][-1])

    def key(self, split: str, index: int) -> str:
        """Returns the index of an episode, counted over all logs of all splits."""
        names = list(self._splits)
        return str(sum(self._ends[s][-1] for s in names[: names.index(split)]) + index)

    def read(self, split: str, index: int) -> SourceEpisode:
        """See `RandomAccessSource`."""
        number = bisect.bisect_right(self._ends[split], index)
        log = self._splits[split][number]
        index_in_log = index - (self._ends[split][number] - log.num_episodes)
        with self._idle.borrow(log) as reader:
            return self._read(log, reader, index_in_log, self.key(split, index))

    def _read(
        self, log: _OpenedLog, reader: envlogger.Reader, index: int, key: str
    ) -> SourceEpisode:
        try:
            episode = reader.episodes[index]
            if len(episode) == 1:  # Its missing action, reward and discount may have no spec.
                steps = _step_columns(list(episode), self._specs, f"episode {index}")
            else:
                steps = reader.columns(index, rlds=True)
            steps = match_columns(
                steps, self._step_features, rows=len(episode), where=f"episode {index}"
            )
            is_terminal = steps[rlds.IS_TERMINAL]
            flags = episode_flags(
                is_terminal,
                begins=episode[0].timestep.first(),
                ends=is_terminal[-1] or episode[-1].timestep.last(),
                file=log.name,
                begin=log.begins[index],
            )
            metadata = match_columns(
                self._metadata_columns(log, reader, index),
                self._metadata_features,
                rows=1,
                where=f"the metadata of episode {index}",
            )
        except SourceError:
            raise
        except (EnvLoggerError, TypeError, ValueError) as error:
            raise SourceError(str(error), file=log.path, episode=index) from error
        return SourceEpisode(
            key=key,
            steps=steps,
            metadata=_first_row(metadata),
            counts={"steps": len(steps[rlds.IS_FIRST])},
            **flags,
        )

    def _metadata_columns(
        self, log: _OpenedLog, reader: envlogger.Reader, index: int
    ) -> dict[str, Any]:
        try:
            metadata = reader.episode_metadata()[index]
            columns = _episode_columns(metadata, self._defaults, f"episode {index}")
        except (EnvLoggerError, ValueError) as error:
            raise SourceError(str(error), file=log.path, episode=index) from error
        return {
            f"recorded_{field}" if field in _TAKEN else field: column
            for field, column in columns.items()
        }


def _names(logs: Sequence[_Log]) -> dict[_Log, str]:
    """Names of logs that are the same on every machine: without the directory they all are in."""
    paths = [os.path.abspath(log.source) for log in logs if isinstance(log.source, str)]
    parent = os.path.dirname(os.path.commonpath(paths)) if paths else ""
    return {
        log: os.path.relpath(os.path.abspath(log.source), parent)
        if isinstance(log.source, str)
        else log.name
        for log in logs
    }


class _OpenedLog:
    """A log as it was when it was opened."""

    def __init__(self, log: _Log, name: str) -> None:
        self.path, self.name = log.name, name
        self.directory = log.source if isinstance(log.source, str) else None
        # A copy, as the one that was given may be closed by its owner.
        given = log.source
        self.reader = envlogger.Reader(given) if isinstance(given, str) else given.copy()
        lengths = [len(episode) for episode in self.reader.episodes]
        if not lengths:
            raise SourceError("the log holds no episodes", file=self.path)
        self.num_episodes = len(lengths)
        self.begins = [0, *np.cumsum(lengths).tolist()]

    @property
    def num_steps(self) -> int:
        return int(self.begins[-1])

    def step_specs(self) -> dict[str, Any]:
        try:
            specs = _step_specs(self.reader, _recorded_specs(self.reader), self.path)
        except ValueError as error:
            raise SourceError(str(error), file=self.path) from error
        return specs


class _IdleReaders:
    """Readers of logs that are open, but not in use.

    Threads that read at the same time get a reader each. What is open is not copied to another
    process with the source.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: list[tuple[_OpenedLog, envlogger.Reader]] = []

    def __reduce__(self) -> Any:
        return _IdleReaders, ()

    @contextlib.contextmanager
    def borrow(self, log: _OpenedLog) -> Iterator[envlogger.Reader]:
        reader = self._take(log) or log.reader.copy()
        try:
            yield reader
        finally:
            self._give_back(log, reader)

    def _give_back(self, log: _OpenedLog, reader: envlogger.Reader) -> None:
        with self._lock:
            self._readers.append((log, reader))
            surplus = self._readers[:-_MAX_OPEN_LOGS]
            del self._readers[:-_MAX_OPEN_LOGS]
        for _, unused in surplus:
            unused.close()

    def _take(self, log: _OpenedLog) -> envlogger.Reader | None:
        with self._lock:
            for number, (other, reader) in enumerate(self._readers):
                if other is log:
                    del self._readers[number]
                    return reader
        return None


def _read_in_graph(
    source: EnvLoggerSource, indices: tf.data.Dataset, *, nested: bool
) -> tf.data.Dataset:
    features = features_of(source)
    packing = _Packing(
        features[rlds.STEPS].feature.get_tensor_spec(),
        {name: child.get_tensor_spec() for name, child in features.items() if name != rlds.STEPS},
    )

    def read(index: np.ndarray) -> list[np.ndarray]:
        episode = source.read("train", int(index))
        return packing.pack(episode.steps, {**fields_of(episode), **episode.metadata})

    @_layouts.in_graph
    def read_in_graph(index: tf.Tensor) -> dict[str, Any]:
        # Said to be stateless, because iterators over other functions cannot be checkpointed.
        packed = tf.numpy_function(read, [index], packing.dtypes, stateful=False)
        steps, episode = packing.unpack(packed)
        if nested:
            steps = tf.data.Dataset.from_tensor_slices(steps)
        return {**episode, rlds.STEPS: steps}

    # One at a time: neighbours are in the same chunk of a log, which several readers would all
    # decompress.
    return indices.map(read_in_graph).prefetch(tf.data.AUTOTUNE)


class _Packing:
    """How an episode gets from NumPy into a graph: all numbers as one array of bytes.

    Every array that TensorFlow gets from Python costs it more time than to take this one apart.
    Columns of strings come by themselves.

    Args:
      steps: The spec of a step.
      episode: The spec of what else there is in an episode.
    """

    def __init__(self, steps: Any, episode: Any) -> None:
        self._steps, self._episode = steps, episode
        self._columns = tf.nest.flatten(steps)
        self._values = tf.nest.flatten(episode)
        leaves = [*self._columns, *self._values]
        self._is_text = [leaf.dtype == tf.string for leaf in leaves]
        self.dtypes = [tf.int64, tf.uint8, *[tf.string] * sum(self._is_text)]

    def pack(self, steps: Any, episode: Any) -> list[np.ndarray]:
        columns = tf.nest.flatten(steps)
        values = [
            np.asarray(value, object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype)
            for value, spec in zip(tf.nest.flatten(episode), self._values)
        ]
        arrays = list(zip([*columns, *values], self._is_text))
        numbers = [array.reshape(-1).view(np.uint8) for array, is_text in arrays if not is_text]
        texts = [_as_bytes(array) for array, is_text in arrays if is_text]
        return [np.array(len(columns[0])), np.concatenate(numbers), *texts]

    def unpack(self, packed: Sequence[tf.Tensor]) -> tuple[Any, Any]:
        num_steps, numbers, *texts = packed
        num_steps.set_shape([])
        sizes = [
            (leaf.dtype.size * leaf.shape.num_elements(), number < len(self._columns))
            for number, leaf in enumerate([*self._columns, *self._values])
            if not self._is_text[number]
        ]
        per_step = [size if is_column else 0 for size, is_column in sizes]
        per_episode = [0 if is_column else size for size, is_column in sizes]
        parts = iter(tf.split(numbers, num_steps * per_step + per_episode))
        rest = iter(texts)
        columns, values = (
            [
                _with_shape(next(rest), [*rows, *leaf.shape])
                if leaf.dtype == tf.string
                else _from_bytes(next(parts), [*rows, *leaf.shape], leaf.dtype, num_steps)
                for leaf in leaves
            ]
            for leaves, rows in ((self._columns, [None]), (self._values, []))
        )
        return (
            tf.nest.pack_sequence_as(self._steps, columns),
            tf.nest.pack_sequence_as(self._episode, values),
        )


def _from_bytes(
    data: tf.Tensor, shape: list[int | None], dtype: tf.DType, num_steps: tf.Tensor
) -> tf.Tensor:
    """Bytes as an array, whose first axis may be that of the steps (None)."""
    dims: Any = [*shape, dtype.size] if dtype.size > 1 else shape
    if None in shape:
        dims = tf.stack([num_steps, *dims[1:]]) if 0 in shape else [-1, *dims[1:]]
    data = tf.reshape(data, dims)
    array = tf.cast(data, tf.bool) if dtype == tf.bool else tf.bitcast(data, dtype)
    return _with_shape(array, shape)


def _with_shape(tensor: tf.Tensor, shape: list[int | None]) -> tf.Tensor:
    tensor.set_shape(shape)
    return tensor


def _as_bytes(strings: np.ndarray) -> np.ndarray:
    """Strings, with `bytes` for `str`."""
    encoded = np.empty(strings.size, object)
    encoded[:] = [item.encode() if isinstance(item, str) else item for item in strings.flat]
    return encoded.reshape(strings.shape)
