"""Shifts fields of steps in time, and declares the alignment of steps."""

import enum
import operator
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _layouts, flexible_batch

__all__ = ["AlignmentType", "add_alignment_to_step", "shift_keys"]


def shift_keys(
    steps: _layouts.Steps,
    keys: Sequence[str],
    shift: int,
    batch_size: int = flexible_batch.BATCH_AUTO_TUNE,
) -> _layouts.Steps:
    """Shifts some fields of steps in time.

    Step i gets the values of these fields in step i + `shift`. Steps without such a source are
    dropped: `abs(shift)` steps, at the end if the shift is positive and at the beginning if it is
    negative. All other fields stay with their step, including flags such as `is_first`.

    Args:
      steps: the steps of one episode, dicts, in either layout.
      keys: the top-level fields to shift.
      shift: the distance in steps. 0 returns the steps unchanged.
      batch_size: the number of steps to process at once in the nested layout, above `abs(shift)`.

    Returns:
      The steps in their layout, with a cardinality if the input has one.

    Raises:
      KeyError: if the steps have no field of that name.
      TypeError: if the steps are not dicts, or `keys` is a single string.
      ValueError: if the batch size is not larger than `abs(shift)`.

    >>> steps = {"observation": [0, 1, 2, 3], "action": [0, 1, 2, 3]}
    >>> for shift in (-1, 1):
    ...     shifted = shift_keys(steps, ["observation"], shift)
    ...     print(shifted["observation"].numpy().tolist(), shifted["action"].numpy().tolist())
    [0, 1, 2] [1, 2, 3]
    [1, 2, 3] [0, 1, 2]
    """
    shift = operator.index(shift)
    if isinstance(keys, str):
        raise TypeError(f"shift_keys: keys must be a list of fields, got the string {keys!r}.")
    if not _layouts.is_nested(steps):
        steps = _layouts.as_batch(steps, "shift_keys")
    _layouts.check_fields(_layouts.spec_of_steps(steps), keys, "shift_keys")
    distance = abs(shift)
    size = max(flexible_batch.get_batch_size(steps, batch_size), 4 * distance)
    if batch_size != flexible_batch.BATCH_AUTO_TUNE:
        size = batch_size
    if distance >= size:
        raise ValueError(
            f"shift_keys: cannot shift {shift} positions with a batch size of {size}, which must "
            "be larger than the shift. BATCH_AUTO_TUNE selects a valid size."
        )
    if shift == 0:
        return steps

    # Each result joins the early fields of a step with the other fields `distance` steps later.
    early = {name for name in _layouts.spec_of_steps(steps) if (name in keys) == (shift < 0)}
    if not _layouts.is_nested(steps):
        return _shift_batch(steps, early, distance)
    if _layouts.is_static(steps.element_spec):
        shifted = _shift_chunks(steps, early, distance, size)
    else:
        shifted = _shift_one_by_one(steps, early, distance)
    return _layouts.with_cardinality(shifted, steps.skip(distance).cardinality())


def _shift_batch(steps: Any, early: set[str], distance: int) -> Any:
    def shift(name: str, field: Any) -> Any:
        rows = slice(None, -distance) if name in early else slice(distance, None)
        return tf.nest.map_structure(lambda leaf: leaf[rows], field)

    return {name: shift(name, field) for name, field in steps.items()}


def _shift_chunks(
    steps: tf.data.Dataset, early: set[str], distance: int, size: int
) -> tf.data.Dataset:
    """Shifts chunks of steps; the early fields of their last steps wait for the next chunk."""
    if not early:
        return steps.skip(distance)
    empty = _layouts.no_steps({name: steps.element_spec[name] for name in early})

    def advance(waiting: Any, chunk: Any) -> tuple[Any, Any]:
        late = {name: field for name, field in chunk.items() if name not in early}
        new = {name: field for name, field in chunk.items() if name in early}
        waiting = tf.nest.map_structure(lambda *leaves: tf.concat(leaves, 0), waiting, new)
        # `count` is at most the length of the chunk, because at most `distance` steps wait.
        num_waiting = _layouts.num_steps(waiting)
        count = tf.maximum(num_waiting - distance, 0)
        early_steps, waiting = _split(waiting, count, num_waiting - count)
        _, late_steps = _split(late, _layouts.num_steps(chunk) - count, count)
        return waiting, {**early_steps, **late_steps}

    return _layouts.unbatch(
        _layouts.batch_elements(steps, size).scan(empty, _layouts.in_graph(advance))
    )


def _split(batch: Any, size1: tf.Tensor, size2: tf.Tensor) -> tuple[Any, Any]:
    """Splits steps in two, with fewer operations than two slices of each field."""
    sizes = tf.stack((size1, size2))
    pairs = [tf.split(leaf, sizes) for leaf in tf.nest.flatten(batch)]
    first, second = (tf.nest.pack_sequence_as(batch, [pair[i] for pair in pairs]) for i in (0, 1))
    return first, second


def _shift_one_by_one(steps: tf.data.Dataset, early: set[str], distance: int) -> tf.data.Dataset:
    """Shifts step by step, which is slow, but supports any fields.

    Fields may differ in shape from step to step, or be datasets themselves.
    """

    def join_ends(window: dict[str, Any]) -> tf.data.Dataset:
        def pick(name: str, field: Any) -> Any:
            skipped = 0 if name in early else distance
            return tf.nest.map_structure(lambda values: values.skip(skipped).take(1), field)

        return tf.data.Dataset.zip({name: pick(name, field) for name, field in window.items()})

    windows = steps.window(distance + 1, shift=1, drop_remainder=True)
    return windows.flat_map(join_ends)


@enum.unique
class AlignmentType(enum.Enum):
    """The alignment of the fields of a step.

    Attributes:
      UNKNOWN: unknown.
      SAR: state, action, reward: the action was taken in this observation and brought this reward.
      ARS: action, reward, state: the action brought this reward and led to this observation.
      RSA: reward, state, action: the reward came with this observation, in which the action was
        taken.
    """

    UNKNOWN = 1
    SAR = 2
    ARS = 3
    RSA = 4


def add_alignment_to_step(step: rlds_types.Step, alignment: AlignmentType) -> rlds_types.Step:
    """Adds the alignment to a step.

    Args:
      step: a single step, which is modified. For many steps, pass this function to `map_steps`.
      alignment: the alignment; its value becomes the field `alignment`.

    Returns:
      The same step.

    Raises:
      TypeError: if the alignment is not an `AlignmentType`.

    >>> add_alignment_to_step({"reward": 1.0}, AlignmentType.SAR)
    {'reward': 1.0, 'alignment': 2}
    """
    if not isinstance(alignment, AlignmentType):
        raise TypeError(
            f"add_alignment_to_step: the alignment must be an AlignmentType, got {alignment!r}."
        )
    step[rlds_types.ALIGNMENT] = alignment.value
    return step
