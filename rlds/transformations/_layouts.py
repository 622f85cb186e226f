"""The two layouts of an episode's steps, and helpers of transformations for both layouts.

Nested: a `tf.data.Dataset` whose elements are steps. Batched: one structure of dense tensors (or
arrays, or lists of numbers) with a leading time axis, all of the same length.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar, cast

import tensorflow as tf
import tree

from rlds import rlds_types

# An episode's steps in either layout.
Steps: TypeAlias = Any

_Function = TypeVar("_Function", bound=Callable[..., Any])


def in_graph(function: _Function) -> _Function:
    """Marks a function for tf.data that consists of TensorFlow operations only.

    AutoGraph then does not translate the function and its callees, so building the transformation
    takes a fraction of the time.
    """
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))


def is_nested(steps: Steps) -> bool:
    """Returns whether the steps are a dataset of steps; otherwise they are one batch."""
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
    """Returns the length of the time axis; None if it is unknown before the graph runs."""
    shapes = [leaf.shape for leaf in tf.nest.flatten(batch)]
    lengths = (shape[0] for shape in shapes if shape.rank is not None and shape[0] is not None)
    return next(lengths, None)


def num_steps(batch: Any) -> tf.Tensor:
    """Returns the length of the time axis, an int64 scalar."""
    return tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]


def spec_of_steps(steps: Steps) -> Any:
    """Returns the spec of one step, from steps in either layout."""
    if is_nested(steps):
        return steps.element_spec
    return spec_without_time(tf.nest.map_structure(tf.TensorSpec.from_tensor, steps))


def spec_without_time(spec: Any) -> Any:
    """Returns the spec of one step, from the spec of the batched steps."""
    return tf.nest.map_structure(lambda s: tf.TensorSpec(s.shape[1:], s.dtype), spec)


def is_static(spec: Any) -> bool:
    """Returns whether all leaves are dense tensors of a fully known shape."""
    return all(
        isinstance(leaf, tf.TensorSpec) and leaf.shape.is_fully_defined()
        for leaf in tf.nest.flatten(spec)
    )


def have_nested_steps(episodes: tf.data.Dataset, caller: str) -> bool:
    """Checks that these are episodes, and returns whether their steps are nested."""
    if not isinstance(episodes, tf.data.Dataset):
        raise TypeError(
            f"{caller}: expected a tf.data.Dataset of episodes, got a {type(episodes).__name__}."
        )
    spec = episodes.element_spec
    if not isinstance(spec, Mapping) or rlds_types.STEPS not in spec:
        names = sorted(map(str, spec)) if isinstance(spec, Mapping) else spec
        raise KeyError(
            f"{caller}: the elements of the dataset have no field {rlds_types.STEPS!r}, they have "
            f"{names}. Is this a dataset of steps instead of episodes?"
        )
    return isinstance(spec[rlds_types.STEPS], tf.data.DatasetSpec)


def spec_of_nested_steps(episodes: tf.data.Dataset, caller: str) -> Any:
    """Returns the spec of one step, from episodes with steps in either layout."""
    are_nested = have_nested_steps(episodes, caller)
    spec = episodes.element_spec[rlds_types.STEPS]
    return spec.element_spec if are_nested else spec_without_time(spec)


def batches_of_steps(episodes: tf.data.Dataset, size: int, caller: str) -> tf.data.Dataset:
    """Returns the steps of all episodes, one after the other, in batches across episodes."""

    @in_graph
    def steps_of(episode: Mapping[str, Any]) -> Steps:
        return episode[rlds_types.STEPS]

    if have_nested_steps(episodes, caller):
        return episodes.flat_map(steps_of).batch(size)
    return episodes.map(steps_of).rebatch(size)


def map_steps(
    episodes: tf.data.Dataset,
    function: Callable[[Steps], Steps],
    num_parallel_calls: int | None = None,
) -> tf.data.Dataset:
    """Applies a function to the steps of each episode; its other fields are unchanged."""
    return episodes.map(
        lambda episode: {**episode, rlds_types.STEPS: function(episode[rlds_types.STEPS])},
        num_parallel_calls=num_parallel_calls,
    )


def map_elements(
    dataset: tf.data.Dataset, function: Callable[[Any], Any], **options: Any
) -> tf.data.Dataset:
    """Like `Dataset.map`, but an element that is a tuple is one argument, not several.

    The function must be written in operations of TensorFlow: see `in_graph`.
    """
    is_tuple = type(dataset.element_spec) is tuple

    @in_graph
    def function_of_element(*members: Any) -> Any:
        return function(members if is_tuple else members[0])

    return dataset.map(function_of_element, **options)


def with_cardinality(dataset: tf.data.Dataset, count: tf.Tensor) -> tf.data.Dataset:
    """Declares the number of elements; no effect if the count is unknown.

    Inside `Dataset.map` the count is only known when the graph runs.
    """
    is_known = tf.not_equal(count, tf.data.experimental.UNKNOWN_CARDINALITY)
    return select_dataset(
        is_known, dataset.apply(tf.data.experimental.assert_cardinality(count)), dataset
    )


def select_dataset(
    is_first: tf.Tensor, dataset1: tf.data.Dataset, dataset2: tf.data.Dataset
) -> tf.data.Dataset:
    """Returns the first dataset if `is_first` is true, otherwise the second dataset.

    In a graph, `tf.cond` takes longer for each episode than building both datasets.
    """
    if tf.executing_eagerly():
        return dataset1 if is_first else dataset2
    variant = tf.where(is_first, *map(tf.data.experimental.to_variant, (dataset1, dataset2)))
    return tf.data.experimental.from_variant(variant, dataset1.element_spec)


def batch_elements(
    dataset: tf.data.Dataset, size: int, drop_remainder: bool = False
) -> tf.data.Dataset:
    """Like `Dataset.batch`, also after a map.

    TensorFlow fuses a map and a batch into one operation. If a graph uses the cardinality of the
    mapped dataset too, its optimizer fails to fuse them ("can't delete node(s) with retained
    fanouts"), and a large batch overflows. Empty options between the two prevent this at no cost.
    """
    return dataset.with_options(tf.data.Options()).batch(size, drop_remainder)


# The size of a batch that holds all steps, larger than any episode.
ALL_STEPS = 2**62


def as_one_batch(steps: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset of one batch with all steps; without steps, an empty dataset."""
    return batch_elements(steps, 1024).rebatch(ALL_STEPS)


def with_end(chunks: tf.data.Dataset, empty: Any) -> tf.data.Dataset:
    """Returns pairs: each chunk with False, then an empty chunk with True."""
    marked = tf.data.Dataset.zip((chunks, tf.data.Dataset.from_tensors(False).repeat()))
    return marked.concatenate(tf.data.Dataset.from_tensors((empty, True)))


def are_episodes(data: Any) -> bool:
    """Returns True if data is a dataset of episodes, not an episode or steps."""
    spec = data.element_spec if is_nested(data) else None
    return isinstance(spec, Mapping) and rlds_types.STEPS in spec


def join_batches(batches: tf.data.Dataset, step_spec: Any) -> Any:
    """Returns the only batch of a dataset of at most one batch; without one, a batch of no steps.

    In a batch of no steps, dimensions that are unknown in the spec have length 0.
    """
    empty = tf.data.Dataset.from_tensors(no_steps(step_spec))
    return batches.concatenate(empty).take(1).get_single_element()


def no_steps(step_spec: Any) -> Any:
    """Returns a batch of no steps."""
    return tf.nest.map_structure(
        lambda leaf: tf.zeros([0, *known_dims(leaf.shape, 0)], leaf.dtype), step_spec
    )


def known_dims(shape: tf.TensorShape, unknown: int) -> list[int]:
    """Returns the dimensions of a shape, [] for an unknown rank; `unknown` replaces None."""
    dims = shape.as_list() if shape.rank is not None else []
    return [unknown if dim is None else dim for dim in dims]


def assert_finite(cardinality: tf.Tensor, caller: str) -> tf.Operation:
    """Raises an `InvalidArgumentError`, when the graph runs, if the dataset has no end."""
    return tf.debugging.assert_none_equal(
        cardinality,
        tf.constant(tf.data.experimental.INFINITE_CARDINALITY, tf.int64),
        message=f"{caller}: the dataset of steps is infinite.",
    )


def check_fields(spec: Any, names: Iterable[str], caller: str) -> None:
    """Checks that a step (or an episode) is a dict with these fields."""
    if not isinstance(spec, Mapping):
        raise TypeError(f"{caller}: each step must be a dict of fields, got {spec}.")
    for name in names:
        if name not in spec:
            hint = (
                " This flag marks the beginning or the end of an episode: keep it when you select "
                "fields of the steps."
                if name in rlds_types.STEP_FLAGS
                else ""
            )
            raise KeyError(
                f"{caller}: there is no field {name!r}. The fields are {sorted(map(str, spec))}."
                f"{hint}"
            )


def check_new_fields(spec: Any, names: Iterable[str], caller: str) -> None:
    """Checks that a step does not have the fields that are added."""
    if duplicates := sorted(set(names) & spec.keys()):
        raise ValueError(f"{caller}: the steps already have the fields {duplicates}.")


def check_positive(caller: str, **arguments: int | None) -> None:
    """Checks that arguments are positive; None is allowed."""
    for name, value in arguments.items():
        if value is not None and value < 1:
            raise ValueError(f"{caller}: {name} must be positive, got {value}.")


def unbatch(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the elements of batches, one by one.

    `Dataset.unbatch` is faster, but it crashes the process (TensorFlow 2.21) on tensors without
    elements, such as a vector of length 0.
    """
    specs = tf.nest.flatten(batches.element_spec)
    if all(isinstance(s, tf.TensorSpec) and s.shape[1:].num_elements() for s in specs):
        if tf.executing_eagerly():
            return batches.unbatch()
        # `Dataset.unbatch` first maps the batches by an identity function, which takes 10 ms at the
        # start of each iterator.
        spec = spec_without_time(batches.element_spec)
        variant = tf.raw_ops.UnbatchDataset(
            input_dataset=tf.data.experimental.to_variant(batches),
            output_types=[leaf.dtype for leaf in specs],
            output_shapes=[leaf.shape[1:] for leaf in specs],
        )
        return tf.data.experimental.from_variant(variant, spec)
    is_tuple = type(batches.element_spec) is tuple
    return batches.flat_map(
        lambda *members: tf.data.Dataset.from_tensor_slices(members if is_tuple else members[0])
    )
