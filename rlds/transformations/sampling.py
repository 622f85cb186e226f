"""Shuffling of steps with bounded memory, and sharding of episodes over hosts."""

from typing import Any

import numpy as np
import tensorflow as tf

from rlds.transformations import _layouts, shape_ops

__all__ = ["shard_episodes", "shuffle_steps"]

# Bytes of steps to permute at once by default.
_BUFFER_SIZE_IN_BYTES = 200_000_000


def shuffle_steps(
    episodes: tf.data.Dataset,
    *,
    seed: int | None = None,
    batch_size: int | None = None,
    episode_buffer: int = 100,
    step_buffer: int | None = None,
    drop_remainder: bool = False,
    reshuffle_each_iteration: bool = True,
) -> tf.data.Dataset:
    """Shuffles the steps (or transitions, windows) of many episodes.

    The episodes are shuffled by `Dataset.shuffle(episode_buffer)`. The steps of consecutive
    episodes form blocks of `step_buffer` steps, and each block is permuted. The steps in a block
    come from `step_buffer` / (length of an episode) random episodes; this number should be large
    compared to the batch size. Every step occurs once.

    The memory holds the episodes in the first buffer (nested episodes are small, because their
    steps are not read yet), and about three blocks.

    Args:
      episodes: episodes with steps in either layout. Batched steps are many times faster. The
        fields of a step must have the same shape in all episodes.
      seed: the seed of a reproducible order; if None, each run has another order.
      batch_size: the number of steps in a batch; None for single steps, which is slow.
      episode_buffer: the number of episodes to draw from; 0 and 1 keep the order of the episodes.
      step_buffer: the number of steps to permute; 0 and 1 keep the order of the steps. The default
        is 50,000, or the number of large steps that fit into 200 MB.
      drop_remainder: whether to drop a shorter last batch.
      reshuffle_each_iteration: whether each pass has another order of episodes.

    Returns:
      A dataset of steps, or of batches of steps. Iterators can be saved and restored.

    Raises:
      KeyError: if the elements of the dataset have no steps.
      ValueError: if an argument is out of range.

    >>> steps = {"observation": tf.reshape(tf.range(12), [3, 4])}
    >>> episodes = tf.data.Dataset.from_tensor_slices({"steps": steps})
    >>> batches = [b["observation"] for b in shuffle_steps(episodes, batch_size=6, seed=0)]
    >>> [len(batch) for batch in batches], sorted(tf.concat(batches, 0).numpy().tolist())
    ([6, 6], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    """
    caller = "shuffle_steps"
    _layouts.have_nested_steps(episodes, caller)
    if step_buffer is None:
        step_buffer = _default_step_buffer(_layouts.spec_of_nested_steps(episodes, caller))
    for name, value in (("episode_buffer", episode_buffer), ("step_buffer", step_buffer)):
        if value < 0:
            raise ValueError(f"{caller}: {name} must not be negative, got {value}.")
    _layouts.check_positive(caller, batch_size=batch_size)
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    if episode_buffer > 1:
        episodes = episodes.shuffle(
            episode_buffer, seed=seed, reshuffle_each_iteration=reshuffle_each_iteration
        )
    if step_buffer > 1:
        blocks = _layouts.batches_of_steps(episodes, step_buffer, caller)
        blocks = blocks.enumerate().map(lambda index, block: _permute(index, block, seed))
        # The next block is computed while the batches of this block are in use.
        blocks = blocks.prefetch(1)
    else:
        blocks = _layouts.batches_of_steps(episodes, batch_size or 1024, caller)
    if batch_size is None:
        return _layouts.unbatch(blocks)
    return blocks.rebatch(batch_size, drop_remainder=drop_remainder).prefetch(tf.data.AUTOTUNE)


def _default_step_buffer(step_spec: Any) -> int:
    # A field of unknown shape is probably an image.
    size = shape_ops.size_from_spec(step_spec) if _layouts.is_static(step_spec) else 200_000
    return min(50_000, max(1, _BUFFER_SIZE_IN_BYTES // max(1, size)))


@_layouts.in_graph
def _permute(index: tf.Tensor, block: Any, seed: int) -> Any:
    order = tf.random.experimental.stateless_shuffle(
        tf.range(_layouts.num_steps(block)), tf.stack([tf.constant(seed, tf.int64), index])
    )
    return tf.nest.map_structure(lambda leaf: tf.gather(leaf, order), block)


def shard_episodes(
    episodes: tf.data.Dataset, num_shards: int, index: int, *, drop_remainder: bool = True
) -> tf.data.Dataset:
    """Shards the episodes over hosts; all hosts get the same number of episodes.

    The first host gets the episodes 0, n, 2 n and so on. An incomplete last round is dropped. All
    hosts must see the episodes in the same order: shuffle afterwards, or with the same seed.

    Args:
      episodes: a dataset of any elements.
      num_shards: the number of hosts, n.
      index: the index of this host, from 0 on.
      drop_remainder: False to keep the last episodes, so that some hosts get one more.

    Returns:
      The episodes of the host, with an exact cardinality if the input has one.

    Raises:
      ValueError: if the index is out of range.

    >>> hosts = [shard_episodes(tf.data.Dataset.range(7), 3, i) for i in range(3)]
    >>> [[int(episode) for episode in host] for host in hosts]
    [[0, 3], [1, 4], [2, 5]]
    """
    caller = "shard_episodes"
    _layouts.check_positive(caller, num_shards=num_shards)
    if not 0 <= index < num_shards:
        raise ValueError(f"{caller}: index must be from 0 to {num_shards - 1}, got {index}.")
    if not drop_remainder:
        return episodes.shard(num_shards, index)
    cardinality = tf.get_static_value(episodes.cardinality())
    if cardinality is not None and cardinality >= 0:
        return episodes.take(cardinality // num_shards * num_shards).shard(num_shards, index)
    if cardinality == tf.data.experimental.INFINITE_CARDINALITY:
        return episodes.shard(num_shards, index)
    # A full round has an episode for each host.
    rounds = episodes.window(num_shards, drop_remainder=True)
    is_tuple = type(episodes.element_spec) is tuple
    return rounds.flat_map(
        lambda *m: tf.data.Dataset.zip(m if is_tuple else m[0]).skip(index).take(1)
    )
