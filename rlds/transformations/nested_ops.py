"""Maps over the steps of episodes, sums of fields, and episode lengths."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rlds.transformations import _layouts, flexible_batch, shape_ops
from rlds.transformations._step_function import StepFunction, step_function

__all__ = [
    "apply_nested_steps",
    "episode_length",
    "final_step",
    "map_nested_steps",
    "map_steps",
    "sum_dataset",
    "sum_nested_steps",
]


def map_steps(
    steps_dataset: _layouts.Steps,
    transform_step: Callable[..., Any],
    optimization_batch_size: int = flexible_batch.BATCH_AUTO_TUNE,
    *,
    num_parallel_calls: int | None = None,
) -> _layouts.Steps:
    """Applies a function to each step.

    The function takes a single step, may use Python control flow on its values and may modify the
    step. The function runs vectorized over many steps at once if possible, and step by step if
    shapes depend on the data (`tf.boolean_mask`). Vectorized floating point operations, in
    particular matrix products, may differ from single ones in the last digits.

    Args:
      steps_dataset: the steps, in either layout.
      transform_step: takes a step and returns any structure of tensors. If the steps are tuples
        it takes their members, as in `Dataset.map`.
      optimization_batch_size: the number of steps to process at once in the nested layout; 0 and 1
        call the function for single steps, in both layouts.
      num_parallel_calls: the number of batches (or single steps) to process at the same time, in
        their order, in the nested layout; `tf.data.AUTOTUNE` selects it, None means one after the
        other.

    Returns:
      The results of all steps, in the layout of the steps. In the batched layout the results of all
      steps must have the same shape.

    Raises:
      ValueError: if the batch size is negative, or batched steps differ in length.

    >>> steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, -2.0]})
    >>> [float(reward) for reward in map_steps(steps, lambda step: abs(step["reward"]))]
    [1.0, 2.0]
    >>> map_steps({"reward": [1.0, -2.0]}, lambda step: abs(step["reward"])).numpy().tolist()
    [1.0, 2.0]
    """
    size = flexible_batch.get_batch_size(steps_dataset, optimization_batch_size)
    if not _layouts.is_nested(steps_dataset):
        batch = _layouts.as_batch(steps_dataset, "map_steps")
        spec = _layouts.spec_of_steps(batch)
        return step_function(transform_step, spec, vectorize=size > 1).apply(batch)
    if size > 1 and _layouts.is_static(steps_dataset.element_spec):
        function = step_function(transform_step, steps_dataset.element_spec)
        if function.is_vectorized:
            batches = _layouts.map_elements(
                _layouts.batch_elements(steps_dataset, size),
                function.apply,
                num_parallel_calls=num_parallel_calls,
            )
            return _layouts.with_cardinality(_layouts.unbatch(batches), steps_dataset.cardinality())
    return steps_dataset.map(transform_step, num_parallel_calls=num_parallel_calls)


def map_nested_steps(
    episodes_dataset: tf.data.Dataset,
    transform_step: Callable[..., Any],
    optimization_batch_size: int = flexible_batch.BATCH_AUTO_TUNE,
    *,
    num_parallel_calls: int | None = None,
) -> tf.data.Dataset:
    """Applies a function to each step of each episode.

    Args:
      episodes_dataset: episodes with steps in either layout.
      transform_step: see `map_steps`.
      optimization_batch_size: see `map_steps`.
      num_parallel_calls: the number of episodes to process at the same time, in their order;
        `tf.data.AUTOTUNE` selects it, None means one after the other.

    Returns:
      The episodes with the results as `steps`; other fields are unchanged.

    Raises:
      KeyError: if the elements of the dataset have no steps.
      ValueError: if the batch size is negative.

    >>> episodes = tf.data.Dataset.from_tensors({"id": 7, "steps": {"reward": [1.0, -2.0]}})
    >>> doubled = map_nested_steps(episodes, lambda step: {"reward": 2.0 * step["reward"]})
    >>> [episode["steps"]["reward"].numpy().tolist() for episode in doubled]
    [[2.0, -4.0]]
    """
    _layouts.have_nested_steps(episodes_dataset, "map_nested_steps")
    size = flexible_batch.get_batch_size(episodes_dataset, optimization_batch_size)
    return _layouts.map_steps(
        episodes_dataset, lambda steps: map_steps(steps, transform_step, size), num_parallel_calls
    )


def apply_nested_steps(
    episodes_dataset: tf.data.Dataset,
    transform_step_dataset: Callable[[Any], Any],
    *,
    num_parallel_calls: int | None = None,
) -> tf.data.Dataset:
    """Applies a function to all steps of an episode, episode by episode.

    Args:
      episodes_dataset: episodes with steps in either layout.
      transform_step_dataset: takes the steps in their layout and returns steps in this layout: a
        `tf.data.Dataset`, or a structure of tensors with a leading time axis.
      num_parallel_calls: the number of episodes to process at the same time, in their order;
        `tf.data.AUTOTUNE` selects it, None means one after the other.

    Returns:
      The episodes with the results as `steps`; other fields are unchanged.

    Raises:
      KeyError: if the elements of the dataset have no steps.
      TypeError: if the steps are a dataset and the function returns something else.

    >>> steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, 2.0, 3.0]})
    >>> episodes = tf.data.Dataset.range(2).map(lambda i: {"id": i, "steps": steps})
    >>> shorter = apply_nested_steps(episodes, lambda steps: steps.take(2))
    >>> [len(episode["steps"]) for episode in shorter]
    [2, 2]
    """
    are_nested = _layouts.have_nested_steps(episodes_dataset, "apply_nested_steps")

    def transform(steps: _layouts.Steps) -> _layouts.Steps:
        # `apply` checks that the result is a dataset.
        return steps.apply(transform_step_dataset) if are_nested else transform_step_dataset(steps)

    return _layouts.map_steps(episodes_dataset, transform, num_parallel_calls)


def sum_dataset(
    steps_dataset: _layouts.Steps,
    data_to_sum: Callable[..., Any],
    optimization_batch_size: int = flexible_batch.BATCH_AUTO_TUNE,
) -> Any:
    """Sums values over all steps.

    Integers and booleans are added exactly, in int64 (uint64 in uint64); floats in float64, and
    the sum is rounded once to the dtype of the result.

    Args:
      steps_dataset: the steps, in either layout.
      data_to_sum: takes a step and returns any structure of numeric tensors.
      optimization_batch_size: the number of steps to process at once, see `map_steps`.

    Returns:
      The structure of sums. Integers and booleans (a count) become int64; float16 and bfloat16
      become float32; uint64, float32, float64 and complex numbers keep their dtype. For a dataset
      without steps: zeros, where unknown dimensions have length 1.

    Raises:
      TypeError: if a value is not numeric.
      ValueError: if the batch size is negative, or batched steps differ in length.

    >>> steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, 2.0], "is_last": [False, True]})
    >>> total = sum_dataset(steps, lambda step: step)
    >>> float(total["reward"]), int(total["is_last"])
    (3.0, 1)
    """
    size = flexible_batch.get_batch_size(steps_dataset, optimization_batch_size)
    if not _layouts.is_nested(steps_dataset):
        batch = _layouts.as_batch(steps_dataset, "sum_dataset")
        function = step_function(data_to_sum, _layouts.spec_of_steps(batch), vectorize=size > 1)
        _check_summable(function.output_spec, "sum_dataset")
        return _cast_sums(_sum_of_batch(function.apply(batch)), function.output_spec)
    function = step_function(data_to_sum, steps_dataset.element_spec, vectorize=size > 1)
    batches = _layouts.batch_elements(steps_dataset, _stackable_size(size, function))
    return _sum_of_batches(batches, function, "sum_dataset")


def sum_nested_steps(
    episodes_dataset: tf.data.Dataset,
    data_to_sum: Callable[..., Any],
    optimization_batch_size: int = flexible_batch.BATCH_AUTO_TUNE,
) -> Any:
    """Sums values over all steps of all episodes.

    Args:
      episodes_dataset: episodes with steps in either layout.
      data_to_sum: takes a step and returns any structure of numeric tensors.
      optimization_batch_size: the number of steps to process at once, see `map_steps`.

    Returns:
      The structure of sums, as in `sum_dataset`.

    Raises:
      KeyError: if the elements of the dataset have no steps.
      TypeError: if a value is not numeric.
      ValueError: if the batch size is negative.

    >>> steps = {"reward": [[1.0, 2.0], [3.0, 4.0]]}
    >>> episodes = tf.data.Dataset.from_tensor_slices({"steps": steps})
    >>> float(sum_nested_steps(episodes, lambda step: step["reward"]))
    10.0
    """
    caller = "sum_nested_steps"
    step_spec = _layouts.spec_of_nested_steps(episodes_dataset, caller)
    size = flexible_batch.get_batch_size(episodes_dataset, optimization_batch_size)
    function = step_function(data_to_sum, step_spec, vectorize=size > 1)
    batches = _layouts.batches_of_steps(episodes_dataset, _stackable_size(size, function), caller)
    return _sum_of_batches(batches, function, caller)


def _stackable_size(size: int, function: StepFunction) -> int:
    """Returns the batch size, or 1 if the results of steps may differ in shape."""
    return max(1, size) if _layouts.is_static(function.output_spec) else 1


def _sum_of_batches(batches: tf.data.Dataset, function: StepFunction, caller: str) -> Any:
    _check_summable(function.output_spec, caller)
    spec = function.output_spec
    is_eager = tf.executing_eagerly()
    sums = _layouts.map_elements(
        batches,
        lambda batch: _sum_of_batch(function.apply(batch)),
        num_parallel_calls=tf.data.AUTOTUNE if is_eager else None,
    )
    total = _sum_of_few(sums) if not is_eager and _layouts.is_static(spec) else _sum_of_many(sums)
    return _cast_sums(total, spec)


def _sum_of_many(values: tf.data.Dataset) -> Any:
    return values.reduce(
        shape_ops.zeros_from_spec(values.element_spec),
        _layouts.in_graph(lambda total, value: tf.nest.map_structure(tf.add, total, value)),
    )


def _sum_of_few(values: tf.data.Dataset) -> Any:
    """Like `_sum_of_many`, but keeps one partial sum per 256 values in memory.

    In a graph, each call of `Dataset.reduce` instantiates its function, which takes longer (10 ms)
    than the sum over the steps of an episode.
    """
    sums = _layouts.map_elements(
        _layouts.batch_elements(values, 256),
        lambda batch: tf.nest.map_structure(lambda leaf: tf.reduce_sum(leaf, 0, True), batch),
    )
    batch = _layouts.join_batches(sums.rebatch(_layouts.ALL_STEPS), values.element_spec)
    return tf.nest.map_structure(lambda leaf: tf.reduce_sum(leaf, 0), batch)


def _sum_of_batch(values: Any) -> Any:
    return tf.nest.map_structure(
        lambda value: tf.reduce_sum(tf.cast(value, _accumulator(value.dtype)), axis=0), values
    )


def _check_summable(spec: Any, caller: str) -> None:
    for name, leaf in _layouts.named_leaves(spec):
        dtype = getattr(leaf, "dtype", None)
        if not isinstance(leaf, tf.TensorSpec) or _accumulator(dtype) is None:
            location = f"field {name!r} of the values to sum" if name else "the value to sum"
            raise TypeError(
                f"{caller}: {location} must be a numeric tensor, got {dtype or leaf!r}. "
                "Let data_to_sum return only the fields that can be added."
            )


def _accumulator(dtype: tf.DType) -> tf.DType | None:
    """Returns the dtype of sums: exact for integers, more precise than the data for floats."""
    if dtype == tf.uint64:
        return tf.uint64
    if dtype.is_integer or dtype.is_bool:
        return tf.int64
    if dtype.is_floating:
        return tf.float64
    return tf.complex128 if dtype.is_complex else None


def _cast_sums(total: Any, spec: Any) -> Any:
    """Casts the sums to the dtype of the result."""

    def cast(value: tf.Tensor, leaf: tf.TensorSpec) -> tf.Tensor:
        if leaf.dtype in (tf.float16, tf.bfloat16):
            # Sums soon exceed the range of these dtypes: 65504 for float16.
            return tf.cast(value, tf.float32)
        is_inexact = leaf.dtype.is_floating or leaf.dtype.is_complex
        return tf.cast(value, leaf.dtype) if is_inexact else value

    return tf.nest.map_structure(cast, total, spec)


def final_step(steps_dataset: _layouts.Steps) -> Any:
    """Returns the last step.

    Args:
      steps_dataset: the steps, in either layout. A dataset of unknown length is read to the end.

    Returns:
      The last step.

    Raises:
      tf.errors.InvalidArgumentError: if there are no steps, or the steps are infinite. In a graph
        it is raised when the graph runs.

    >>> steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, 2.0]})
    >>> float(final_step(steps)["reward"])
    2.0
    """
    empty = "final_step: the episode has no steps."
    if not _layouts.is_nested(steps_dataset):
        batch = _layouts.as_batch(steps_dataset, "final_step")
        length = _layouts.num_steps(batch)
        with tf.control_dependencies([tf.debugging.assert_positive(length, message=empty)]):
            return tf.nest.map_structure(lambda leaf: tf.gather(leaf, length - 1), batch)

    cardinality = steps_dataset.cardinality()
    with tf.control_dependencies([_layouts.assert_finite(cardinality, "final_step")]):
        count, step = last_step(steps_dataset)
    with tf.control_dependencies([tf.debugging.assert_positive(count, message=empty)]):
        return tf.nest.map_structure(tf.identity, step)


def last_step(steps: tf.data.Dataset) -> tuple[tf.Tensor, Any]:
    """Returns the number of steps that were read, and the last step (zeros without steps)."""
    # If the cardinality is unknown (a negative number), all steps are read.
    last_steps = steps.skip(tf.maximum(steps.cardinality() - 1, 0))
    if not _layouts.is_static(steps.element_spec):
        count, final = last_steps.reduce(
            (tf.constant(0, tf.int64), shape_ops.zeros_from_spec(steps.element_spec)),
            _layouts.in_graph(lambda state, step: (state[0] + 1, step)),
        )
        return count, final
    # `Dataset.reduce` is slow in a graph, see `_sum_of_few`.
    last_rows = _layouts.map_elements(
        _layouts.batch_elements(last_steps, 256),
        lambda batch: tf.nest.map_structure(lambda leaf: leaf[-1:], batch),
    )
    batch = _layouts.join_batches(last_rows.rebatch(_layouts.ALL_STEPS), steps.element_spec)

    def last_or_zeros(leaf: tf.Tensor) -> tf.Tensor:
        return tf.concat([tf.zeros([1, *leaf.shape[1:]], leaf.dtype), leaf], 0)[-1]

    return _layouts.num_steps(batch), tf.nest.map_structure(last_or_zeros, batch)


def episode_length(
    steps_dataset: _layouts.Steps, optimization_batch_size: int = flexible_batch.BATCH_AUTO_TUNE
) -> tf.Tensor:
    """Counts the steps.

    Args:
      steps_dataset: the steps, in either layout. A dataset is read if its cardinality is unknown.
      optimization_batch_size: the number of steps to count at once.

    Returns:
      The number of steps, an int32 scalar tensor.

    Raises:
      tf.errors.InvalidArgumentError: if the steps are infinite. In a graph it is raised when the
        graph runs.
      ValueError: if the batch size is negative, or batched steps differ in length.

    >>> steps = tf.data.Dataset.from_tensor_slices({"reward": [1.0, -2.0, 3.0]})
    >>> int(episode_length(steps))
    3
    >>> int(episode_length(steps.filter(lambda step: step["reward"] > 0.0)))
    2
    """
    if not _layouts.is_nested(steps_dataset):
        batch = _layouts.as_batch(steps_dataset, "episode_length")
        return tf.cast(_layouts.num_steps(batch), tf.int32)
    size = flexible_batch.get_batch_size(steps_dataset, optimization_batch_size)

    cardinality = steps_dataset.cardinality()
    with tf.control_dependencies([_layouts.assert_finite(cardinality, "episode_length")]):
        length = tf.cond(
            tf.equal(cardinality, tf.data.experimental.UNKNOWN_CARDINALITY),
            lambda: _count(steps_dataset, max(1, size)),
            lambda: cardinality,
        )
    return tf.cast(length, tf.int32)


def _count(dataset: tf.data.Dataset, size: int) -> tf.Tensor:
    """Counts elements of any kind by the lengths of windows, without stacking elements."""
    windows = _layouts.map_elements(
        dataset.window(size), lambda window: tf.nest.flatten(window)[0].cardinality()
    )
    return windows.reduce(tf.constant(0, tf.int64), tf.add)
