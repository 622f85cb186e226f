"""Reads EnvLogger logs as an RLDS dataset, without a conversion in between.

What comes out is what converting the same logs and reading the dataset would give. An episode is
read at once, as columns, in the moment when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import rlds
from rlds.sources.episode_fields import fields_of
from rlds.sources.logs.recorded_logs import LogSource
from rlds.sources.source import SourceEpisode
from rlds.transformations import _layouts
from tfds_builders.envlogger_source import EnvLoggerSource
from tfds_builders.features import features_of

__all__ = ["episodes_from_logs"]

_LAYOUTS = ("nested", "batched")
# How much is read at once at most: episodes, and bytes of them as they are stored.
_MAX_EPISODES = 8
_MAX_BYTES = 1 << 21
# About how many bytes a log has for a step beside its values.
_OVERHEAD = 128
# TensorFlow does not copy what it cuts out of memory where all pieces begin at multiples of this.
_ALIGNMENT = 64


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
    >>> import envlogger
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


def _read_in_graph(
    source: EnvLoggerSource, indices: tf.data.Dataset, *, nested: bool
) -> tf.data.Dataset:
    features = features_of(source)
    spec = _Spec(
        features[rlds.STEPS].feature.get_tensor_spec(),
        {name: child.get_tensor_spec() for name, child in features.items() if name != rlds.STEPS},
    )

    def read(index: np.ndarray) -> list[np.ndarray]:
        return spec.arrays(source.read("train", int(index)))

    @_layouts.in_graph
    def read_in_graph(index: tf.Tensor) -> dict[str, Any]:
        # Said to be stateless, because iterators over other functions cannot be checkpointed.
        leaves = tf.numpy_function(read, [index], spec.dtypes, stateful=False)
        num_columns = len(spec.columns)
        columns = [
            _with_shape(array, [None, *leaf.shape]) for array, leaf in zip(leaves, spec.columns)
        ]
        values = [
            _with_shape(array, leaf.shape) for array, leaf in zip(leaves[num_columns:], spec.values)
        ]
        return spec.episode(columns, values)

    @_layouts.in_graph
    def with_nested_steps(episode: dict[str, Any]) -> dict[str, Any]:
        return {**episode, rlds.STEPS: tf.data.Dataset.from_tensor_slices(episode[rlds.STEPS])}

    # By one reader: neighbours are in the same chunk of a log, which several would all decompress.
    groups = _Groups(source, spec)
    if groups.size > 1:
        episodes = groups.read_in_graph(indices, read_in_graph)
    else:
        episodes = indices.map(read_in_graph)
    if nested:
        episodes = episodes.map(with_nested_steps)
    return episodes.prefetch(tf.data.AUTOTUNE)


class _Spec:
    """The spec of episodes.

    Args:
      steps: That of a step.
      episode: That of what else there is in an episode.

    Attributes:
      columns: The leaves of a step.
      values: The leaves of the rest.
    """

    def __init__(self, steps: Any, episode: Any) -> None:
        self._steps, self._episode = steps, episode
        self.columns: list[tf.TensorSpec] = tf.nest.flatten(steps)
        self.values: list[tf.TensorSpec] = tf.nest.flatten(episode)
        self.dtypes = [leaf.dtype for leaf in [*self.columns, *self.values]]

    def arrays(self, episode: SourceEpisode) -> list[np.ndarray]:
        """The leaves of an episode, as NumPy has them."""
        columns = tf.nest.flatten(episode.steps)
        values = tf.nest.flatten(fields_of(episode))
        return [
            _as_bytes(array) if array.dtype == object else array
            for array in [
                *columns,
                *(np.asarray(value, _dtype(leaf)) for value, leaf in zip(values, self.values)),
            ]
        ]

    def episode(self, columns: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> dict[str, Any]:
        """Makes an episode of its leaves."""
        steps = tf.nest.pack_sequence_as(self._steps, columns)
        return {**tf.nest.pack_sequence_as(self._episode, values), rlds.STEPS: steps}


class _Groups:
    """How small episodes get from NumPy into a graph: several at once.

    A group is read in one call of Python, as columns in which one episode comes after the other,
    and then split. An episode that cannot be read with the others is read by itself, so that an
    error comes in its place, and so are all after it in the group.

    Args:
      source: What is read.
      spec: That of the episodes.

    Attributes:
      size: The number of episodes in a group.
    """

    def __init__(self, source: EnvLoggerSource, spec: _Spec) -> None:
        self._source, self._spec = source, spec
        self._num_steps = source.num_steps("train")
        self._max_steps = _MAX_BYTES // (_OVERHEAD + sum(map(_size, spec.columns)))
        # Half as many as there may be, as some groups have longer episodes than others.
        size = int(self._max_steps / 2 / self._num_steps.mean())
        self.size = max(1, min(size, _MAX_EPISODES))
        is_bounded = all(leaf.dtype != tf.string for leaf in spec.columns)
        if not is_bounded or not all(leaf.shape.is_fully_defined() for leaf in spec.values):
            self.size = 1

    def read_in_graph(
        self, indices: tf.data.Dataset, read_one: Callable[[tf.Tensor], dict[str, Any]]
    ) -> tf.data.Dataset:
        """Returns the episodes, in the order of the indices.

        Args:
          indices: Which.
          read_one: Reads an episode by itself.
        """
        spec = self._spec

        @_layouts.in_graph
        def episodes_of(group: tf.Tensor) -> tf.data.Dataset:
            read = tf.numpy_function(
                self._read, [group], [tf.int64, tf.int64, *spec.dtypes], stateful=False
            )
            num_read, lengths = _with_shape(read[0], []), _with_shape(read[1], [self.size])
            arrays = iter(read[2:])
            columns = [_split(next(arrays), lengths, leaf) for leaf in spec.columns]
            values = [
                tf.unstack(_with_shape(next(arrays), [self.size, *leaf.shape]))
                for leaf in spec.values
            ]
            episodes = [
                tf.data.Dataset.from_tensors(spec.episode(*leaves))
                for leaves in zip(zip(*columns), zip(*values))
            ]
            while len(episodes) > 1:  # As a tree, whose leaves are not far away.
                pairs = zip(episodes[::2], episodes[1::2])
                rest = episodes[len(episodes) // 2 * 2 :]
                episodes = [*(one.concatenate(other) for one, other in pairs), *rest]
            together = episodes[0].take(num_read)
            alone = tf.data.Dataset.from_tensor_slices(group).skip(num_read)
            return together.concatenate(alone.map(read_one))

        episodes = indices.batch(self.size).flat_map(episodes_of)
        # What follows only gives them a cardinality. `assert_cardinality` would raise an error at
        # the end, again and again, if errors in the place of episodes are ignored.
        count = indices.cardinality()
        numbered = tf.data.Dataset.zip(tf.data.Dataset.range(count), episodes.repeat().take(count))
        return numbered.map(_layouts.in_graph(lambda _, episode: episode))

    def _read(self, indices: np.ndarray) -> list[np.ndarray]:
        """Reads the first episodes of a group: all if nothing is wrong, and they are small.

        Returns:
          How many, the number of steps of each, and the arrays of their columns and values.
        """
        num_small = int((np.cumsum(self._num_steps[indices]) <= self._max_steps).sum())
        episodes: list[SourceEpisode] = []
        while len(episodes) < num_small:
            rest = indices[len(episodes) : num_small]
            begin = int(rest[0])
            in_order = np.cumprod(rest == np.arange(begin, begin + len(rest)))
            run = self._source.read_run("train", begin, begin + int(in_order.sum()))
            if not run:
                break
            episodes += run
        lengths = [episode.num_steps for episode in episodes]
        all_columns = [tf.nest.flatten(episode.steps) for episode in episodes]
        all_values = [tf.nest.flatten(fields_of(episode)) for episode in episodes]
        columns, values = zip(*all_columns), zip(*all_values)
        return [
            np.array(len(episodes)),
            np.array(lengths + [0] * (self.size - len(episodes))),
            *(np.concatenate([_empty(leaf), *next(columns, ())]) for leaf in self._spec.columns),
            *(self._padded(next(values, ()), leaf) for leaf in self._spec.values),
        ]

    def _padded(self, values: Sequence[Any], leaf: tf.TensorSpec) -> np.ndarray:
        """An array of the values of some episodes, as long as if the group were full."""
        array = np.empty((self.size, *leaf.shape), _dtype(leaf))
        array[...] = b"" if leaf.dtype == tf.string else 0
        if values:
            array[: len(values)] = values
        return _as_bytes(array) if leaf.dtype == tf.string else array


def _split(columns: tf.Tensor, lengths: tf.Tensor, leaf: tf.TensorSpec) -> list[tf.Tensor]:
    """The columns of each episode of a group."""
    shape = [None, *leaf.shape]
    columns.set_shape(shape)
    if _size(leaf) % _ALIGNMENT == 0 < _size(leaf):
        # Else each would be a part of the same memory, and keep all of it.
        count = leaf.shape.num_elements()
        parts = tf.split(tf.reshape(columns, [-1]), lengths * count, num=lengths.shape[0])
        return [_with_shape(tf.reshape(part, [-1, *leaf.shape]), shape) for part in parts]
    parts = tf.split(columns, lengths, num=lengths.shape[0])
    return [_with_shape(part, shape) for part in parts]


def _dtype(leaf: tf.TensorSpec) -> Any:
    return object if leaf.dtype == tf.string else leaf.dtype.as_numpy_dtype


def _empty(leaf: tf.TensorSpec) -> np.ndarray:
    """A column of no steps."""
    return np.empty((0, *leaf.shape), _dtype(leaf))


def _size(leaf: tf.TensorSpec) -> int:
    """How many bytes a value has."""
    return int(leaf.dtype.size * leaf.shape.num_elements())


def _with_shape(tensor: tf.Tensor, shape: list[int | None]) -> tf.Tensor:
    tensor.set_shape(shape)
    return tensor


def _as_bytes(strings: np.ndarray) -> np.ndarray:
    """Strings, with `bytes` for `str`."""
    encoded = np.empty(strings.size, object)
    encoded[:] = [item.encode() if isinstance(item, str) else item for item in strings.flat]
    return encoded.reshape(strings.shape)
