"""Sizes of steps, and steps of zeros or random values, from specs."""

import sys
from typing import Any

import tensorflow as tf
import tree

from rlds.transformations import _layouts

__all__ = ["size_from_spec", "uniform_from_spec", "zero_dataset_like", "zeros_from_spec"]

# The assumed size of a string, as specs have no sizes. Encoded images are larger, and instructions
# smaller; a size of 0 would put thousands of images in one internal batch.
_STRING_SIZE_IN_BYTES = 1024


def size_from_spec(spec: Any) -> int:
    """Returns the size in bytes of an element with the given spec.

    Args:
      spec: any structure of `tf.TensorSpec`.

    Returns:
      The number of bytes, where each string counts for 1024; `sys.maxsize` if a shape is not
      fully known or a leaf is not a dense tensor.

    >>> size_from_spec({"a": tf.TensorSpec([3, 2], tf.float32), "b": tf.TensorSpec([], tf.bool)})
    25
    >>> size_from_spec(tf.TensorSpec([None], tf.float32)) == sys.maxsize
    True
    """
    if not _layouts.is_static(spec):
        return sys.maxsize
    return sum(_leaf_size(leaf) for leaf in tf.nest.flatten(spec))


def _leaf_size(spec: tf.TensorSpec) -> int:
    item_size = _STRING_SIZE_IN_BYTES if spec.dtype == tf.string else spec.dtype.size
    return int(item_size * spec.shape.num_elements())


def zeros_from_spec(spec: Any) -> Any:
    """Builds an element of zeros (False, empty strings) with the given spec.

    Args:
      spec: any structure of specs, for instance `Dataset.element_spec`. An unknown dimension
        becomes 1 and an unknown rank 0. A nested dataset becomes a dataset of one such element.

    Returns:
      The same structure with tensors (and datasets) for the specs.

    >>> zeros = zeros_from_spec({"reward": tf.TensorSpec([], tf.float32),
    ...                          "action": tf.TensorSpec([None, 2], tf.int32)})
    >>> float(zeros["reward"]), zeros["action"].numpy().tolist()
    (0.0, [[0, 0]])
    """
    return tf.nest.map_structure(_zeros_of_leaf, spec)


def _zeros_of_leaf(spec: Any) -> Any:
    if isinstance(spec, tf.data.DatasetSpec):
        return _zero_dataset(spec.element_spec)
    return tf.zeros(_layouts.known_dims(spec.shape, unknown=1), spec.dtype)


def zero_dataset_like(ds: _layouts.Steps) -> _layouts.Steps:
    """Builds steps of length one, all zeros, with the structure of other steps.

    Args:
      ds: a `tf.data.Dataset` of any elements, its `DatasetSpec`, or batched steps.

    Returns:
      A dataset of one element, with the same `element_spec`; for batched steps, tensors with a
      time axis of length 1. Unknown dimensions of the spec have length 1.

    >>> steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, 2.0]})
    >>> [float(step["reward"]) for step in zero_dataset_like(steps)]
    [0.0]
    >>> zero_dataset_like({"reward": [1.0, 2.0]})["reward"].numpy().tolist()
    [0.0]
    """
    if isinstance(ds, tf.data.Dataset | tf.data.DatasetSpec):
        return _zero_dataset(ds.element_spec)
    steps = _layouts.as_batch(ds, "zero_dataset_like")
    zeros = zeros_from_spec(_layouts.spec_of_steps(steps))
    return tf.nest.map_structure(lambda leaf: tf.expand_dims(leaf, 0), zeros)


def _zero_dataset(spec: Any) -> tf.data.Dataset:
    """Returns a dataset of one element of zeros with a spec."""
    zeros = zeros_from_spec(spec)
    if _layouts.is_static(spec):
        return tf.data.Dataset.from_tensors(zeros)

    def forget_shape(value: Any, leaf: Any) -> Any:
        if not isinstance(leaf, tf.TensorSpec):
            return value
        return tf.compat.v1.placeholder_with_default(value, leaf.shape)

    # A placeholder with a default removes the static shape of a value.
    return tf.data.Dataset.from_tensors(0).map(
        lambda _: tf.nest.map_structure(forget_shape, zeros, spec)
    )


def uniform_from_spec(spec: Any, minval: Any, maxval: Any, seed: int | None) -> Any:
    """Draws an element with the given spec.

    Args:
      spec: any structure of specs, for instance `Dataset.element_spec`. An unknown dimension
        becomes 1 and an unknown rank 0. A nested dataset becomes a dataset of one such element.
      minval: the smallest value. Booleans ignore `minval` and `maxval`.
      maxval: the exclusive upper bound.
      seed: a seed of `tf.random`, or None. Each field draws from its own stream of this seed.

    Returns:
      The same structure with tensors (and datasets) for the specs. Values of floating
      point and integer dtypes are uniform in [`minval`, `maxval`), booleans True half the time.

    Raises:
      ValueError: if the dtype of a field has no uniform values, such as strings, or cannot hold
        the range, or if the range is empty.

    >>> spec = {"image": tf.TensorSpec([2, 2], tf.uint8), "done": tf.TensorSpec([], tf.bool)}
    >>> step = uniform_from_spec(spec, 3, 5, seed=0)
    >>> set(step["image"].numpy().ravel().tolist()) <= {3, 4}, step["done"].dtype
    (True, tf.bool)
    """
    paths_and_leaves = list(_layouts.named_leaves(spec))
    seeds = [None if seed is None else seed + i for i in range(len(paths_and_leaves))]
    values = [
        _uniform_of_leaf(name, leaf, minval, maxval, leaf_seed)
        for (name, leaf), leaf_seed in zip(paths_and_leaves, seeds)
    ]
    return tree.unflatten_as(spec, values)


def _uniform_of_leaf(name: str, spec: Any, minval: Any, maxval: Any, seed: int | None) -> Any:
    if isinstance(spec, tf.data.DatasetSpec):
        step = uniform_from_spec(spec.element_spec, minval, maxval, seed)
        return tf.data.Dataset.from_tensors(step)
    location = f"uniform_from_spec: field {name!r}" if name else "uniform_from_spec: the value"
    shape = _layouts.known_dims(spec.shape, unknown=1)
    if spec.dtype.is_bool:
        return tf.cast(tf.random.uniform(shape, 0, 2, tf.int32, seed), tf.bool)
    if not (spec.dtype.is_floating or spec.dtype.is_integer):
        raise ValueError(f"{location} has dtype {spec.dtype.name}, which has no uniform values.")
    largest = maxval - 1 if spec.dtype.is_integer else maxval
    if not minval < maxval:
        raise ValueError(f"{location}: the range [{minval}, {maxval}) is empty.")
    if minval < spec.dtype.min or largest > spec.dtype.max:
        raise ValueError(f"{location}: {spec.dtype.name} cannot hold [{minval}, {maxval}).")
    if spec.dtype.is_floating:
        return tf.random.uniform(shape, minval, maxval, spec.dtype, seed)
    return tf.cast(tf.random.uniform(shape, minval, maxval, tf.int64, seed), spec.dtype)
