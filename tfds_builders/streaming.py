"""Reads EnvLogger logs as an RLDS dataset, without a conversion in between.

What comes out is what converting the same logs and reading the dataset would give. An episode is
read at once, as columns, in the moment when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import rlds
from rlds.transformations import _layouts
from tfds_builders.envlogger_source import EnvLoggerSource
from tfds_builders.episode_fields import features_of, fields_of
from tfds_builders.recorded_logs import LogSource

__all__ = ["episodes_from_logs"]

_LAYOUTS = ("nested", "batched")
# A value of so many bytes costs more to copy than to hand over by itself.
_LARGE = 4096


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
    packing = _Packing(
        features[rlds.STEPS].feature.get_tensor_spec(),
        {name: child.get_tensor_spec() for name, child in features.items() if name != rlds.STEPS},
    )

    def read(index: np.ndarray) -> list[np.ndarray]:
        episode = source.read("train", int(index))
        return packing.pack(episode.steps, fields_of(episode))

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
    """How an episode gets from NumPy into a graph: most numbers as one array of bytes.

    Every array that TensorFlow gets from Python costs it more time than to take this one apart.
    Strings and large values, such as images, come by themselves.

    Args:
      steps: The spec of a step.
      episode: The spec of what else there is in an episode.
    """

    def __init__(self, steps: Any, episode: Any) -> None:
        self._steps, self._episode = steps, episode
        self._columns = tf.nest.flatten(steps)
        self._values = tf.nest.flatten(episode)
        leaves = [*self._columns, *self._values]
        self._is_alone = [leaf.dtype == tf.string or _size(leaf) >= _LARGE for leaf in leaves]
        alone = [leaf.dtype for leaf, is_alone in zip(leaves, self._is_alone) if is_alone]
        self.dtypes = [tf.int64, tf.uint8, *alone]

    def pack(self, steps: Any, episode: Any) -> list[np.ndarray]:
        columns = tf.nest.flatten(steps)
        values = [
            np.asarray(value, object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype)
            for value, spec in zip(tf.nest.flatten(episode), self._values)
        ]
        arrays = list(zip([*columns, *values], self._is_alone))
        numbers = [array.reshape(-1).view(np.uint8) for array, is_alone in arrays if not is_alone]
        alone = [
            _as_bytes(array) if array.dtype == object else array
            for array, is_alone in arrays
            if is_alone
        ]
        return [np.array(len(columns[0])), np.concatenate(numbers), *alone]

    def unpack(self, packed: Sequence[tf.Tensor]) -> tuple[Any, Any]:
        num_steps, numbers, *alone = packed
        num_steps.set_shape([])
        sizes = [
            (_size(leaf), number < len(self._columns))
            for number, leaf in enumerate([*self._columns, *self._values])
            if not self._is_alone[number]
        ]
        per_step = [size if is_column else 0 for size, is_column in sizes]
        per_episode = [0 if is_column else size for size, is_column in sizes]
        parts = iter(tf.split(numbers, num_steps * per_step + per_episode))
        rest = iter(alone)
        is_alone = iter(self._is_alone)
        columns, values = (
            [
                _with_shape(next(rest), [*rows, *leaf.shape])
                if next(is_alone)
                else _from_bytes(next(parts), [*rows, *leaf.shape], leaf.dtype, num_steps)
                for leaf in leaves
            ]
            for leaves, rows in ((self._columns, [None]), (self._values, []))
        )
        return (
            tf.nest.pack_sequence_as(self._steps, columns),
            tf.nest.pack_sequence_as(self._episode, values),
        )


def _size(leaf: tf.TensorSpec) -> int:
    """How many bytes a value has."""
    return int(leaf.dtype.size * leaf.shape.num_elements())


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
