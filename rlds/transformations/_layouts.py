"""The two layouts of an episode's steps, and the questions every transformation asks them.

Nested: a `tf.data.Dataset` whose elements are steps. Batched: one structure of dense tensors (or
arrays, or lists of numbers) with a leading time axis, all of the same length.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf
import tree

from rlds import rlds_types

# An episode's steps in either layout.
Steps: TypeAlias = Any


def is_nested(steps: Steps) -> bool:
    """Whether the steps are a dataset of steps; otherwise they are one batch."""
    return isinstance(steps, tf.data.Dataset)


def as_tensors(structure: Any) -> Any:
    """Converts the leaves to tensors; like in tf.data, a list is a leaf and a tuple is not."""

    def convert(node: Any) -> Any:
        if isinstance(node, Mapping | tuple):
            return None
        is_ready = tf.is_tensor(node) or isinstance(node, tf.data.Dataset)
        return node if is_ready else tf.convert_to_tensor(node)

    return tree.traverse(convert, structure)


def named_leaves(structure: Any) -> Iterator[tuple[str, Any]]:
    """Yields the leaves with their paths, such as 'observation/image'."""
    for path, leaf in tree.flatten_with_path(structure):
        yield "/".join(map(str, path)), leaf


def as_batch(steps: Steps, caller: str) -> Any:
    """Converts batched steps to tensors and checks that they share one time axis."""
    batch = as_tensors(steps)
    lengths = {}
    for name, leaf in named_leaves(batch):
        if not isinstance(leaf, tf.Tensor):
            raise TypeError(
                f"{caller}: field {name!r} of the batched steps is a {type(leaf).__name__}, but "
                "only dense tensors can be batched. Use the nested layout: a tf.data.Dataset of "
                "steps."
            )
        if leaf.shape.rank == 0:
            raise ValueError(
                f"{caller}: field {name!r} of the batched steps is a scalar, but every field "
                "needs a leading time axis. Is this a single step?"
            )
        lengths[name] = leaf.shape[0] if leaf.shape.rank is not None else None
    if not lengths:
        raise ValueError(f"{caller}: the batched steps have no fields.")
    if len(set(lengths.values()) - {None}) > 1:
        raise ValueError(f"{caller}: the fields of the batched steps differ in length: {lengths}.")
    return batch


def static_num_steps(batch: Any) -> int | None:
    """The length of the time axis, None where the graph does not know it."""
    shapes = [leaf.shape for leaf in tf.nest.flatten(batch)]
    known = (shape[0] for shape in shapes if shape.rank is not None and shape[0] is not None)
    return next(known, None)


def num_steps(batch: Any) -> tf.Tensor:
    """The length of the time axis, an int64 scalar."""
    return tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]


def spec_of_steps(steps: Steps) -> Any:
    """The spec of one step, from steps in either layout."""
    if is_nested(steps):
        return steps.element_spec
    return spec_without_time(tf.nest.map_structure(tf.TensorSpec.from_tensor, steps))


def spec_without_time(spec: Any) -> Any:
    """The spec of one step, from the spec of the batched steps."""
    return tf.nest.map_structure(lambda s: tf.TensorSpec(s.shape[1:], s.dtype), spec)


def is_static(spec: Any) -> bool:
    """Whether all leaves are dense tensors of a fully known shape."""
    return all(
        isinstance(leaf, tf.TensorSpec) and leaf.shape.is_fully_defined()
        for leaf in tf.nest.flatten(spec)
    )


def have_nested_steps(episodes: tf.data.Dataset, caller: str) -> bool:
    """Checks that these are episodes, and tells whether their steps are nested."""
    if not isinstance(episodes, tf.data.Dataset):
        raise TypeError(
            f"{caller}: expected a tf.data.Dataset of episodes, got a {type(episodes).__name__}."
        )
    spec = episodes.element_spec
    if not isinstance(spec, Mapping) or rlds_types.STEPS not in spec:
        found = sorted(map(str, spec)) if isinstance(spec, Mapping) else spec
        raise KeyError(
            f"{caller}: the elements of the dataset have no field {rlds_types.STEPS!r}, they have "
            f"{found}. Is this a dataset of steps instead of episodes?"
        )
    return isinstance(spec[rlds_types.STEPS], tf.data.DatasetSpec)


def spec_of_nested_steps(episodes: tf.data.Dataset, caller: str) -> Any:
    """The spec of one step, from episodes with steps in either layout."""
    are_nested = have_nested_steps(episodes, caller)
    spec = episodes.element_spec[rlds_types.STEPS]
    return spec.element_spec if are_nested else spec_without_time(spec)


def batches_of_steps(episodes: tf.data.Dataset, size: int, caller: str) -> tf.data.Dataset:
    """The steps of all episodes, one after the other, in batches across episodes."""
    if have_nested_steps(episodes, caller):
        return episodes.flat_map(lambda episode: episode[rlds_types.STEPS]).batch(size)
    return episodes.map(lambda episode: episode[rlds_types.STEPS]).rebatch(size)


def map_elements(
    dataset: tf.data.Dataset, function: Callable[[Any], Any], **options: Any
) -> tf.data.Dataset:
    """Like `Dataset.map`, but an element that is a tuple is one argument, not several."""
    is_tuple = type(dataset.element_spec) is tuple

    def whole(*members: Any) -> Any:
        return function(members if is_tuple else members[0])

    return dataset.map(whole, **options)


def with_cardinality(dataset: tf.data.Dataset, count: tf.Tensor) -> tf.data.Dataset:
    """Declares the number of elements, unless the count is unknown.

    Inside `Dataset.map` the count is only known when the graph runs: hence the `tf.cond`, which
    outside of a graph just calls one of its branches.
    """
    return tf.cond(
        tf.equal(count, tf.data.experimental.UNKNOWN_CARDINALITY),
        lambda: dataset,
        lambda: dataset.apply(tf.data.experimental.assert_cardinality(count)),
    )
