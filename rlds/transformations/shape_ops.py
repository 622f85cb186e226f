"""Sizes of steps, and steps of zeros."""

import sys
from typing import Any

import tensorflow as tf

from rlds.transformations import _layouts

__all__ = ["size_from_spec", "zero_dataset_like", "zeros_from_spec"]

# What a string counts for: its real size is not in the spec. Encoded images are larger and
# instructions smaller; counting nothing would put thousands of images in one internal batch.
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
      The same structure with tensors (and datasets) in place of the specs.

    >>> zeros = zeros_from_spec({"reward": tf.TensorSpec([], tf.float32),
    ...                          "action": tf.TensorSpec([None, 2], tf.int32)})
    >>> float(zeros["reward"]), zeros["action"].numpy().tolist()
    (0.0, [[0, 0]])
    """
    return tf.nest.map_structure(_zeros_of_leaf, spec)


def _zeros_of_leaf(spec: Any) -> Any:
    if isinstance(spec, tf.data.DatasetSpec):
        return zero_dataset_like(spec)
    dims = spec.shape.as_list() if spec.shape.rank is not None else []
    return tf.zeros([1 if dim is None else dim for dim in dims], spec.dtype)


def zero_dataset_like(ds: _layouts.Steps) -> _layouts.Steps:
    """Builds steps of length one, all zeros, with the structure of the given ones.

    Args:
      ds: a `tf.data.Dataset` of any elements, its `DatasetSpec`, or batched steps.

    Returns:
      A dataset of one element; for batched steps, tensors with a time axis of length 1. Unknown
      dimensions become 1.

    >>> steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, 2.0]})
    >>> [float(step["reward"]) for step in zero_dataset_like(steps)]
    [0.0]
    >>> zero_dataset_like({"reward": [1.0, 2.0]})["reward"].numpy().tolist()
    [0.0]
    """
    if isinstance(ds, tf.data.Dataset | tf.data.DatasetSpec):
        return tf.data.Dataset.from_tensors(zeros_from_spec(ds.element_spec))
    steps = _layouts.as_batch(ds, "zero_dataset_like")
    zeros = zeros_from_spec(_layouts.spec_of_steps(steps))
    return tf.nest.map_structure(lambda leaf: tf.expand_dims(leaf, 0), zeros)
