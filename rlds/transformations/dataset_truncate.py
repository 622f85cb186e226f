"""Truncation of episodes by a condition."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _layouts, flexible_batch
from rlds.transformations._step_function import StepFunction, step_function

__all__ = ["truncate_after_condition"]


def truncate_after_condition(
    steps_dataset: _layouts.Steps,
    truncate_condition: Callable[..., Any],
    *,
    set_is_last: bool = False,
) -> _layouts.Steps:
    """Keeps the steps up to and including the first step that satisfies a condition.

    Args:
      steps_dataset: the steps of one episode, in either layout.
      truncate_condition: takes a step and returns one boolean. The function may use Python control
        flow, and may also get later steps, which are read in chunks.
      set_is_last: whether to set `is_last` to True in the step that satisfies the condition. By
        default steps are unchanged, so `is_last` of the last step may be False.

    Returns:
      The kept steps, in their layout: all steps, unchanged, if no step satisfies the condition.
      The cardinality of the result is unknown.

    Raises:
      KeyError: if `is_last` is to be set but the steps have no such field.
      TypeError: if the condition does not return one boolean.

    >>> steps = {"reward": [0.0, 1.0, 0.0], "is_last": [False, False, True]}
    >>> def is_rewarded(step):
    ...     return step["reward"] > 0.0
    >>> kept = truncate_after_condition(steps, is_rewarded, set_is_last=True)
    >>> kept["reward"].numpy().tolist(), kept["is_last"].numpy().tolist()
    ([0.0, 1.0], [False, True])
    """
    caller = "truncate_after_condition"
    if not _layouts.is_nested(steps_dataset):
        steps_dataset = _layouts.as_batch(steps_dataset, caller)
    if set_is_last:
        _layouts.check_fields(_layouts.spec_of_steps(steps_dataset), [rlds_types.IS_LAST], caller)
    condition = step_function(truncate_condition, _layouts.spec_of_steps(steps_dataset))
    _check_condition(condition.output_spec)
    if not _layouts.is_nested(steps_dataset):
        remaining, _ = _cut(steps_dataset, condition, set_is_last)
        return remaining

    def advance(is_over: tf.Tensor, chunk: Any) -> tuple[tf.Tensor, Any]:
        remaining, is_cut = _cut(chunk, condition, set_is_last)
        return is_over | is_cut, (is_over, remaining)

    def advance_one(is_over: tf.Tensor, step: Any) -> tuple[tf.Tensor, Any]:
        is_met = tf.reshape(condition(step), [])
        return is_over | is_met, (is_over, _mark_last(step, is_met) if set_is_last else step)

    if not _layouts.is_static(steps_dataset.element_spec):
        return _until_over(steps_dataset, advance_one)
    chunks = _layouts.batch_elements(steps_dataset, flexible_batch.get_batch_size(steps_dataset))
    return _layouts.unbatch(_until_over(chunks, advance))


def _until_over(
    elements: tf.data.Dataset, advance: Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]]
) -> tf.data.Dataset:
    """Takes elements until `advance` sets its state to True; reading stops there."""
    flagged = elements.scan(tf.constant(False), _layouts.in_graph(advance))
    flagged = flagged.take_while(lambda was_over, _: tf.logical_not(was_over))
    return flagged.map(lambda _, element: element)


def _check_condition(spec: Any) -> None:
    is_boolean = isinstance(spec, tf.TensorSpec) and spec.dtype.is_bool
    if not is_boolean or spec.shape.num_elements() not in (1, None):
        raise TypeError(
            "truncate_after_condition: truncate_condition must return one boolean for a step, got "
            f"{spec}."
        )


def _cut(steps: Any, condition: StepFunction, set_is_last: bool) -> tuple[Any, tf.Tensor]:
    """Returns the batched steps up to the cut, and a flag that the condition is met."""
    length = _layouts.num_steps(steps)
    is_met = tf.reshape(condition.apply(steps), [length])
    first_met = tf.reduce_min(tf.where(is_met, tf.range(length), length))
    count = tf.minimum(first_met, length - 1) + 1
    remaining = tf.nest.map_structure(lambda leaf: leaf[:count], steps)
    if set_is_last:
        remaining = _mark_last(remaining, is_met[:count])
    return remaining, first_met < length


def _mark_last(step: Any, is_met: tf.Tensor) -> Any:
    """Sets `is_last` in a step, or in batched steps, that meet the condition."""
    is_last = step[rlds_types.IS_LAST]
    is_met = tf.reshape(is_met, tf.shape(is_last))
    marked = tf.where(is_met, tf.cast(True, is_last.dtype), is_last)
    return {**step, rlds_types.IS_LAST: marked}
