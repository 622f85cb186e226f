"""RLDS datasets that are streamed from a source, such as EnvLogger logs, without conversion.

The result is the same as converting the source and reading that dataset. Each episode is read on
demand, with all its columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import rlds
from rlds.formats.logs.recorded_logs import LogSource
from rlds.sources.episode_fields import fields_of
from rlds.sources.episodes import Episodes
from rlds.sources.opening import only_split
from rlds.sources.source import AnySource, SourceEpisode, SourceError
from rlds.tfds.features import fields_of_features
from rlds.transformations import _layouts
from rlds_ecosystem.model.fields import Opaque, match_columns
from rlds_ecosystem.model.nests import leaves_at, lookup, put
from tfds_builders.features import features_of
from tfds_builders.logs import EnvLoggerSource

__all__ = ["episodes_from_logs", "episodes_from_source"]

_LAYOUTS = ("nested", "batched")
# The maximum number of episodes, and of their stored bytes, in a group.
_MAX_GROUP_EPISODES = 8
_MAX_GROUP_BYTES = 1 << 21
# The approximate bytes of a step in a log besides its values.
_STEP_OVERHEAD_BYTES = 128
# The alignment of tensors that TensorFlow can slice without a copy.
_ALIGNMENT_BYTES = 64


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

    Nothing is written. The episodes, their fields and their values are those of the converted
    dataset, see `build_from_logs`: images are decoded, and tuples are dicts with the keys `'0'`,
    `'1'`, .... Episodes come in the order of recording, or shuffled. If the logs grow, later
    episodes are not added.

    The dataset has a cardinality, and iterators can be checkpointed.

    Args:
      logs: A directory (with all logs in it and below it), an open `envlogger.Reader`, or several
        of these.
      layout: 'nested': `steps` is a dataset of steps. 'batched': `steps` is one dict of tensors
        with a leading time axis, which is several times faster.
      shuffle: Whether to shuffle all episodes. Only their indices are kept in memory.
      seed: The seed of the order, as for `tf.data.Dataset.shuffle`.
      reshuffle_each_iteration: Whether each pass has another order.
      num_shards: The number of hosts that share the episodes. In each pass, each episode goes to
        exactly one host.
      shard_index: The index of this host.
      episode_metadata_defaults: Values for fields that are missing (or None) in the metadata of
        some episodes, by name. Without them, all episodes must have the same fields.

    Raises:
      FileNotFoundError: A directory does not exist, or holds no log.
      SourceError: Logs hold no episodes, or differ in their specs; the error names the log. While
        you read, a damaged episode raises an error of TensorFlow with the same text.
      ValueError: An argument is wrong, or hosts would shuffle without a common seed.

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
    if isinstance(logs, Mapping):
        raise ValueError(
            f"episodes_from_logs: logs has splits {list(logs)}; pass the logs of one of them"
        )
    order = _Order(shuffle, seed, reshuffle_each_iteration, num_shards, shard_index)
    order.check("episodes_from_logs", layout)
    source = EnvLoggerSource(logs, episode_metadata_defaults=episode_metadata_defaults)
    return _read_in_graph(Episodes(source), order, nested=layout == "nested")


def episodes_from_source(
    source: AnySource | Episodes,
    split: str | None = None,
    *,
    layout: str = "nested",
    shuffle: bool = False,
    seed: int | None = None,
    reshuffle_each_iteration: bool = True,
    num_shards: int = 1,
    shard_index: int = 0,
) -> tf.data.Dataset:
    """Returns the episodes of any source as an RLDS dataset.

    Nothing is written. The episodes, their fields and the values are those of the dataset that
    `convert` makes of the source, images included. They come in the order of the source, unless
    they are shuffled. The dataset has a cardinality, and iterators can be checkpointed.

    A format without random access (`Episodes.has_random_access`) is read once from beginning to end
    to count its episodes, unless it stores the count; shuffling it is slow.

    Args:
      source: The data: a source, or the result of `rlds.sources.open`.
      split: The split of a source; required if there are several.
      layout: See `episodes_from_logs`.
      shuffle: See `episodes_from_logs`.
      seed: See `episodes_from_logs`.
      reshuffle_each_iteration: See `episodes_from_logs`.
      num_shards: See `episodes_from_logs`.
      shard_index: See `episodes_from_logs`.

    Raises:
      KeyError: There is no such split.
      SourceError: The source has a field that a dataset cannot have. While reading, TensorFlow
        reports damaged episodes as errors of its own, with the same text.
      ValueError: An argument is wrong; or steps have sequences that vary in length, which
        `rlds.tfds.load` can read.

    >>> import tempfile
    >>> import envlogger
    >>> import rlds.sources
    >>> from envlogger.testing.catch_env import Catch
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> dataset = episodes_from_source(rlds.sources.open(directory), layout="batched")
    >>> [episode["steps"]["action"].shape for episode in dataset]
    [TensorShape([10])]
    """
    order = _Order(shuffle, seed, reshuffle_each_iteration, num_shards, shard_index)
    order.check("episodes_from_source", layout)
    if isinstance(source, Episodes) and split in (None, source.split):
        episodes = source
    else:
        raw = source.source if isinstance(source, Episodes) else source
        episodes = Episodes(raw, only_split(raw, split))
    return _read_in_graph(episodes, order, nested=layout == "nested")


@dataclasses.dataclass(frozen=True)
class _Order:
    """The order of episodes: shuffling, and sharding over hosts; see `episodes_from_logs`."""

    shuffle: bool
    seed: int | None
    reshuffle_each_iteration: bool
    num_shards: int
    shard_index: int

    def check(self, caller: str, layout: str) -> None:
        """Raises a `ValueError` if the arguments of a function are wrong."""
        if layout not in _LAYOUTS:
            raise ValueError(f"{caller}: layout must be one of {_LAYOUTS}, got {layout!r}")
        if self.num_shards < 1:
            raise ValueError(f"{caller}: num_shards must be positive, got {self.num_shards}")
        if not 0 <= self.shard_index < self.num_shards:
            raise ValueError(
                f"{caller}: shard_index must be from 0 to {self.num_shards - 1}, got "
                f"{self.shard_index}"
            )
        if self.shuffle and self.num_shards > 1 and self.seed is None:
            raise ValueError(
                f"{caller}: {self.num_shards} hosts that shuffle need the same seed; else they "
                "get some episodes twice and miss other episodes; pass a seed"
            )

    def indices(self, count: int) -> tf.data.Dataset:
        """Returns the indices of this host, of `count` episodes."""
        indices = tf.data.Dataset.range(count)
        if self.shuffle:
            indices = indices.shuffle(
                max(count, 1),
                seed=self.seed,
                reshuffle_each_iteration=self.reshuffle_each_iteration,
            )
        if self.num_shards > 1:
            indices = indices.shard(self.num_shards, self.shard_index)
        return indices


def _read_in_graph(source: Episodes, order: _Order, *, nested: bool) -> tf.data.Dataset:
    features = features_of(source.source)
    converted = _ConvertedEpisodes(source, features)
    spec = _EpisodeSpec(
        features[rlds.STEPS].feature.get_tensor_spec(),
        {name: child.get_tensor_spec() for name, child in features.items() if name != rlds.STEPS},
    )
    indices = order.indices(len(source))

    def read(index: np.ndarray) -> list[np.ndarray]:
        return spec.arrays(*converted.read(int(index)))

    @_layouts.in_graph
    def read_in_graph(index: tf.Tensor) -> dict[str, Any]:
        # The function is declared stateless, so that iterators can be checkpointed.
        leaves = tf.numpy_function(read, [index], spec.dtypes, stateful=False)
        num_columns = len(spec.columns)
        columns = [_with_shape(a, [None, *leaf.shape]) for a, leaf in zip(leaves, spec.columns)]
        values = [
            _with_shape(array, leaf.shape) for array, leaf in zip(leaves[num_columns:], spec.values)
        ]
        return spec.episode(columns, values)

    @_layouts.in_graph
    def with_nested_steps(episode: dict[str, Any]) -> dict[str, Any]:
        return {**episode, rlds.STEPS: tf.data.Dataset.from_tensor_slices(episode[rlds.STEPS])}

    # Adjacent episodes share a chunk of a log; one reader decompresses the chunk once.
    is_log = source.source.capabilities.run is not None
    groups = _Groups(source, spec) if is_log else None
    if groups is not None and groups.size > 1:
        episodes = groups.read_in_graph(indices, read_in_graph)
    else:
        episodes = indices.map(read_in_graph)
    if nested:
        episodes = episodes.map(with_nested_steps)
    return episodes.prefetch(tf.data.AUTOTUNE)


class _ConvertedEpisodes:
    """Episodes with the fields and dtypes of the converted dataset.

    Args:
      episodes: The episodes.
      features: The features of the dataset.
    """

    def __init__(self, episodes: Episodes, features: Any) -> None:
        self._episodes = episodes
        self._features = features[rlds.STEPS].feature
        self._fields = fields_of_features(self._features)
        self._episode_names = [name for name in features if name != rlds.STEPS]
        leaves = dict(leaves_at(self._fields, None))
        self._images = [path for path, field in leaves.items() if getattr(field, "encoding", "")]
        for path, field in leaves.items():
            if isinstance(field, Opaque) or (None in field.shape and not field.encoding):
                raise ValueError(
                    f"field {path!r}: {field} cannot be streamed; convert the source, and read the "
                    "dataset with rlds.tfds.load"
                )

    def read(self, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reads an episode: the columns of its steps, and the other fields."""
        episode = self._episodes.episode(index)
        try:
            steps = match_columns(
                episode.steps, self._fields, rows=episode.num_steps, where=episode.key
            )
            for path in self._images:
                put(steps, path, self._decode_images(path, lookup(steps, path)))
        except ValueError as error:
            raise SourceError(str(error), file=episode.origin.file, episode=episode.key) from error
        fields = fields_of(episode)
        return steps, {name: fields[name] for name in self._episode_names}

    def _decode_images(self, path: str, column: np.ndarray) -> np.ndarray:
        if column.dtype != object:
            return column
        feature = lookup(self._features, path)
        images = [feature.decode_example(image).numpy() for image in column]
        if len({image.shape for image in images}) > 1:
            raise ValueError(
                f"{path}: images of several sizes do not fit one tensor; convert the source instead"
            )
        return np.stack(images)


class _EpisodeSpec:
    """The TensorFlow spec of episodes, and the conversion from and to lists of leaves.

    Args:
      steps: The spec of a step.
      episode: The spec of the other fields of an episode.

    Attributes:
      columns: The leaves of a step.
      values: The leaves of the other fields.
    """

    def __init__(self, steps: Any, episode: Any) -> None:
        self._steps, self._episode = steps, episode
        self.columns: list[tf.TensorSpec] = tf.nest.flatten(steps)
        self.values: list[tf.TensorSpec] = tf.nest.flatten(episode)
        self.dtypes = [leaf.dtype for leaf in [*self.columns, *self.values]]

    def arrays(self, steps: Any, fields: Any) -> list[np.ndarray]:
        """Returns the leaves of an episode as arrays."""
        columns, values = tf.nest.flatten(steps), tf.nest.flatten(fields)
        return [
            _as_bytes(array) if array.dtype == object else array
            for array in [
                *columns,
                *(np.asarray(value, _get_dtype(leaf)) for value, leaf in zip(values, self.values)),
            ]
        ]

    def episode(self, columns: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> dict[str, Any]:
        """Returns an episode from its leaves."""
        steps = tf.nest.pack_sequence_as(self._steps, columns)
        return {**tf.nest.pack_sequence_as(self._episode, values), rlds.STEPS: steps}


class _Groups:
    """Groups of small episodes, which a TensorFlow graph reads from NumPy in one call.

    A group is read in one call of Python, as concatenated columns, and then split. If an episode
    cannot be read, it and all later ones of the group are read one by one, so that the error comes
    in order.

    Args:
      episodes: The episodes of logs.
      spec: The spec of the episodes.

    Attributes:
      size: The number of episodes in a group.
    """

    def __init__(self, episodes: Episodes, spec: _EpisodeSpec) -> None:
        run = episodes.source.capabilities.run
        assert run is not None
        self._run, self._location_of, self._spec = run, episodes.locate, spec
        lengths = episodes.lengths()
        assert lengths is not None
        self._num_steps = lengths.num_steps
        step_bytes = _STEP_OVERHEAD_BYTES + sum(map(_size_of, spec.columns))
        self._max_steps = _MAX_GROUP_BYTES // step_bytes
        # Half of the maximum leaves space, because the sizes of groups vary.
        size = int(self._max_steps / 2 / self._num_steps.mean())
        self.size = max(1, min(size, _MAX_GROUP_EPISODES))
        is_bounded = all(leaf.dtype != tf.string for leaf in spec.columns)
        if not is_bounded or not all(leaf.shape.is_fully_defined() for leaf in spec.values):
            self.size = 1

    def read_in_graph(
        self, indices: tf.data.Dataset, read_episode: Callable[[tf.Tensor], dict[str, Any]]
    ) -> tf.data.Dataset:
        """Returns the episodes, in the order of the indices.

        Args:
          indices: The indices of the episodes.
          read_episode: Reads an episode by itself.
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
            while len(episodes) > 1:  # Pairs keep the tree flat.
                pairs = zip(episodes[::2], episodes[1::2])
                unpaired = episodes[len(episodes) // 2 * 2 :]
                episodes = [*(left.concatenate(right) for left, right in pairs), *unpaired]
            grouped = episodes[0].take(num_read)
            single = tf.data.Dataset.from_tensor_slices(group).skip(num_read)
            return grouped.concatenate(single.map(read_episode))

        episodes = indices.batch(self.size).flat_map(episodes_of)
        # The `zip` adds the cardinality. `assert_cardinality` would raise an error at the end,
        # repeatedly, if errors of episodes are ignored.
        count = indices.cardinality()
        numbered = tf.data.Dataset.zip(tf.data.Dataset.range(count), episodes.repeat().take(count))
        return numbered.map(_layouts.in_graph(lambda _, episode: episode))

    def _read(self, indices: np.ndarray) -> list[np.ndarray]:
        """Reads the first episodes of a group, up to a damaged one or the maximum size.

        Returns:
          The number of episodes, their lengths, and the arrays of columns and values.
        """
        num_fitting = int((np.cumsum(self._num_steps[indices]) <= self._max_steps).sum())
        episodes: list[SourceEpisode] = []
        while len(episodes) < num_fitting:
            locations = [
                self._location_of(int(index)) for index in indices[len(episodes) : num_fitting]
            ]
            split, begin = locations[0]
            end = begin
            while locations[end - begin : end - begin + 1] == [(split, end)]:
                end += 1
            group = self._run(split, begin, end)
            if not group:
                break
            episodes += group
        lengths = [episode.num_steps for episode in episodes]
        all_columns = [tf.nest.flatten(episode.steps) for episode in episodes]
        all_values = [tf.nest.flatten(fields_of(episode)) for episode in episodes]
        columns, values = zip(*all_columns), zip(*all_values)
        return [
            np.array(len(episodes)),
            np.array(lengths + [0] * (self.size - len(episodes))),
            *(
                np.concatenate([_create_empty_column(leaf), *next(columns, ())])
                for leaf in self._spec.columns
            ),
            *(self._pad(next(values, ()), leaf) for leaf in self._spec.values),
        ]

    def _pad(self, values: Sequence[Any], leaf: tf.TensorSpec) -> np.ndarray:
        """Pads the values of episodes to the size of a full group."""
        array = np.empty((self.size, *leaf.shape), _get_dtype(leaf))
        array[...] = b"" if leaf.dtype == tf.string else 0
        if values:
            array[: len(values)] = values
        return _as_bytes(array) if leaf.dtype == tf.string else array


def _split(columns: tf.Tensor, lengths: tf.Tensor, leaf: tf.TensorSpec) -> list[tf.Tensor]:
    """Splits the columns of a group by episode."""
    shape = [None, *leaf.shape]
    columns.set_shape(shape)
    if _size_of(leaf) % _ALIGNMENT_BYTES == 0 < _size_of(leaf):
        # A copy, because a slice would keep the memory of all columns alive.
        count = leaf.shape.num_elements()
        slices = tf.split(tf.reshape(columns, [-1]), lengths * count, num=lengths.shape[0])
        return [_with_shape(tf.reshape(piece, [-1, *leaf.shape]), shape) for piece in slices]
    slices = tf.split(columns, lengths, num=lengths.shape[0])
    return [_with_shape(piece, shape) for piece in slices]


def _get_dtype(leaf: tf.TensorSpec) -> Any:
    return object if leaf.dtype == tf.string else leaf.dtype.as_numpy_dtype


def _create_empty_column(leaf: tf.TensorSpec) -> np.ndarray:
    """Returns a column without steps."""
    return np.empty((0, *leaf.shape), _get_dtype(leaf))


def _size_of(leaf: tf.TensorSpec) -> int:
    """Returns the number of bytes of a value."""
    return int(leaf.dtype.size * leaf.shape.num_elements())


def _with_shape(tensor: tf.Tensor, shape: list[int | None]) -> tf.Tensor:
    tensor.set_shape(shape)
    return tensor


def _as_bytes(strings: np.ndarray) -> np.ndarray:
    """Encodes strings to `bytes`."""
    encoded = np.empty(strings.size, object)
    encoded[:] = [item.encode() if isinstance(item, str) else item for item in strings.flat]
    return encoded.reshape(strings.shape)
