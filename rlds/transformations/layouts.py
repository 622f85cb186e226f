"""Conversion of steps and of datasets of episodes between the nested and the batched layout."""

from typing import Any

import tensorflow as tf

from rlds.transformations import _layouts

__all__ = ["to_batched", "to_nested"]


def to_batched(dataset: _layouts.Steps, *, num_parallel_calls: int | None = None) -> Any:
    """Converts steps, or the steps of all episodes, to the batched layout.

    Args:
      dataset: the steps of an episode, in either layout, or a dataset of episodes (anything with
        a field `steps`). Batched steps are only checked.
      num_parallel_calls: for a dataset of episodes: the number to convert at the same time, in
        their order; `tf.data.AUTOTUNE` selects it, None means one after the other.

    Returns:
      For steps: tensors with a leading time axis. Steps are read to the end, and held in memory.
      For episodes: the same episodes with batched steps, read one by one.

    Raises:
      TypeError: if a field is not a dense tensor, so it cannot be batched.
      tf.errors.InvalidArgumentError: if a field differs in shape from step to step, or the steps
        are infinite. In a graph it is raised when the graph runs.

    >>> steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, 2.0]})
    >>> to_batched(steps)["reward"].numpy().tolist()
    [1.0, 2.0]
    >>> episodes = tf.data.Dataset.range(2).map(lambda i: {"id": i, "steps": steps.take(i + 1)})
    >>> [episode["steps"]["reward"].numpy().tolist() for episode in to_batched(episodes)]
    [[1.0], [1.0, 2.0]]
    """
    if not _layouts.is_nested(dataset):
        return _layouts.as_batch(dataset, "to_batched")
    if not _layouts.are_episodes(dataset):
        return _stack(dataset)
    if not _layouts.have_nested_steps(dataset, "to_batched"):
        return dataset
    return _layouts.map_steps(dataset, _stack, num_parallel_calls)


def _stack(steps: tf.data.Dataset) -> Any:
    for name, leaf in _layouts.named_leaves(steps.element_spec):
        if not isinstance(leaf, tf.TensorSpec):
            raise TypeError(
                f"to_batched: field {name!r} of the steps is a {type(leaf).__name__}, but only "
                "dense tensors can be batched. Map the field to a dense tensor first, or keep the "
                "nested layout."
            )
    with tf.control_dependencies([_layouts.assert_finite(steps.cardinality(), "to_batched")]):
        return _layouts.join_batches(_layouts.as_one_batch(steps), steps.element_spec)


def to_nested(dataset: _layouts.Steps, *, num_parallel_calls: int | None = None) -> Any:
    """Converts steps, or the steps of all episodes, to the nested layout.

    Args:
      dataset: the steps of an episode, in either layout, or a dataset of episodes (anything with
        a field `steps`). Nested steps are unchanged.
      num_parallel_calls: for a dataset of episodes: the number to convert at the same time, in
        their order; `tf.data.AUTOTUNE` selects it, None means one after the other.

    Returns:
      For steps: a `tf.data.Dataset` of steps, with a cardinality. For episodes: the same episodes
      with nested steps.

    Raises:
      TypeError: if a field of batched steps is not a dense tensor.
      ValueError: if batched steps differ in length.

    >>> [float(step["reward"]) for step in to_nested({"reward": [1.0, 2.0]})]
    [1.0, 2.0]
    >>> episodes = tf.data.Dataset.from_tensors({"id": 7, "steps": {"reward": [1.0, 2.0]}})
    >>> [len(episode["steps"]) for episode in to_nested(episodes)]
    [2]
    """
    if not _layouts.is_nested(dataset):
        return tf.data.Dataset.from_tensor_slices(_layouts.as_batch(dataset, "to_nested"))
    if not _layouts.are_episodes(dataset) or _layouts.have_nested_steps(dataset, "to_nested"):
        return dataset
    return _layouts.map_steps(dataset, to_nested, num_parallel_calls)
