"""Concatenation of the steps of episodes."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _layouts, flexible_batch, nested_ops, shape_ops

__all__ = ["concat_if_terminal", "concatenate"]


def concatenate(steps1: _layouts.Steps, steps2: _layouts.Steps) -> _layouts.Steps:
    """Appends the steps of one sequence to another.

    A field that only one sequence has, at any level, is added to the other sequence: as zeros
    (False, empty strings) of the same shape. Flags such as `is_first` and `is_last` are unchanged.

    Args:
      steps1: the steps that come first, in either layout.
      steps2: the steps that follow, in the same layout.

    Returns:
      All steps, in their layout, with a cardinality if both inputs have one. In the nested layout
      fields may differ in shape, and then their dimensions are unknown; an added field has length 0
      in dimensions that are unknown in the other sequence.

    Raises:
      TypeError: if the layouts differ, or a field differs in dtype or in structure.
      ValueError: if a field of batched steps differs in shape.

    >>> both = concatenate({"reward": [1.0, 2.0]}, {"reward": [0.0], "is_extra": [True]})
    >>> both["reward"].numpy().tolist(), both["is_extra"].numpy().tolist()
    ([1.0, 2.0, 0.0], [False, False, True])
    """
    if _layouts.is_nested(steps1) != _layouts.is_nested(steps2):
        raise TypeError(
            "concatenate: one of the steps is nested and the other batched. Convert one of them "
            "with to_nested or to_batched."
        )
    if not _layouts.is_nested(steps1):
        return _concatenate_batches(
            _layouts.as_batch(steps1, "concatenate"), _layouts.as_batch(steps2, "concatenate")
        )
    spec1, spec2 = steps1.element_spec, steps2.element_spec
    _check_compatible(spec1, spec2, ())
    return _fill_dataset(steps1, spec2).concatenate(_fill_dataset(steps2, spec1))


def _check_compatible(spec1: Any, spec2: Any, path: tuple[str, ...]) -> None:
    """Checks that common fields have the same type."""
    if isinstance(spec1, Mapping) and isinstance(spec2, Mapping):
        for name in spec1:
            if name in spec2:
                _check_compatible(spec1[name], spec2[name], (*path, str(name)))
        return
    if isinstance(spec1, tuple) and isinstance(spec2, tuple) and len(spec1) == len(spec2):
        for i, (one, other) in enumerate(zip(spec1, spec2)):
            _check_compatible(one, other, (*path, str(i)))
        return
    location = f"field {'/'.join(path)!r}" if path else "the value"
    if isinstance(spec1, Mapping | tuple) or isinstance(spec2, Mapping | tuple):
        raise TypeError(
            f"concatenate: {location} differs in structure: {spec1} in the first steps, {spec2} in "
            "the second."
        )
    dtypes = [getattr(spec, "dtype", type(spec).__name__) for spec in (spec1, spec2)]
    if dtypes[0] != dtypes[1]:
        raise TypeError(
            f"concatenate: {location} differs in dtype: {dtypes[0]} in the first steps, "
            f"{dtypes[1]} in the second. Cast one of them."
        )


def _lacks(spec: Any, other: Any) -> bool:
    """Returns True if the other spec has a field that this spec lacks."""
    if isinstance(other, Mapping):
        return any(name not in spec or _lacks(spec[name], other[name]) for name in other)
    if isinstance(other, tuple):
        return any(map(_lacks, spec, other))
    return False


def _add_fields(value: Any, other: Any, create: Callable[[Any], Any]) -> Any:
    """Returns the value with the fields that only the other value has, created by `create`."""
    if isinstance(other, Mapping):
        added = {name: create(other[name]) for name in other if name not in value}
        filled = {
            name: _add_fields(field, other[name], create) if name in other else field
            for name, field in value.items()
        }
        return {**filled, **added}
    if isinstance(other, tuple):
        members = [_add_fields(*pair, create) for pair in zip(value, other)]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    return value


def _fill_dataset(steps: tf.data.Dataset, other_spec: Any) -> tf.data.Dataset:
    if not _lacks(steps.element_spec, other_spec):
        return steps
    other_spec = tf.nest.map_structure(_without_unknown_dims, other_spec)
    if not _layouts.is_static(steps.element_spec) or not _layouts.is_static(other_spec):
        return _layouts.map_elements(
            steps, lambda step: _add_fields(step, other_spec, shape_ops.zeros_from_spec)
        )
    empty = _layouts.no_steps(other_spec)
    batches = _layouts.batch_elements(steps, flexible_batch.get_batch_size(steps))
    filled = _layouts.map_elements(batches, lambda batch: _fill_batch(batch, empty))
    return _layouts.with_cardinality(_layouts.unbatch(filled), steps.cardinality())


def _without_unknown_dims(spec: Any) -> Any:
    if not isinstance(spec, tf.TensorSpec):
        return spec
    return tf.TensorSpec(_layouts.known_dims(spec.shape, unknown=0), spec.dtype)


def _fill_batch(batch: Any, other: Any) -> Any:
    """Adds the fields that only the other batch has, as zeros."""
    length = _layouts.num_steps(batch)

    def zeros_like(leaf: tf.Tensor) -> tf.Tensor:
        dims = tf.concat([[length], tf.shape(leaf, out_type=tf.int64)[1:]], 0)
        return tf.ensure_shape(tf.zeros(dims, leaf.dtype), [None, *leaf.shape[1:]])

    return _add_fields(batch, other, lambda field: tf.nest.map_structure(zeros_like, field))


def _concatenate_batches(steps1: Any, steps2: Any) -> Any:
    spec1, spec2 = _layouts.spec_of_steps(steps1), _layouts.spec_of_steps(steps2)
    _check_compatible(spec1, spec2, ())
    steps1, steps2 = _fill_batch(steps1, steps2), _fill_batch(steps2, steps1)
    for (name, one), (_, other) in zip(
        _layouts.named_leaves(steps1), _layouts.named_leaves(steps2)
    ):
        if not one.shape[1:].is_compatible_with(other.shape[1:]):
            raise ValueError(
                f"concatenate: field {name!r} of the batched steps differs in shape: "
                f"{one.shape[1:]} in the first steps, {other.shape[1:]} in the second. Only the "
                "nested layout (to_nested) can hold both."
            )
    return tf.nest.map_structure(lambda *leaves: tf.concat(leaves, 0), steps1, steps2)


def concat_if_terminal(
    steps: _layouts.Steps, make_extra_steps: Callable[[rlds_types.Step], _layouts.Steps]
) -> _layouts.Steps:
    """Appends extra steps, such as absorbing states, if the last step is terminal.

    Args:
      steps: the steps of one episode, at least one, with a field `is_terminal`. A dataset of
        unknown length is read to the end to find the last step.
      make_extra_steps: takes the last step and returns the steps to append, in the layout of the
        steps. The function is called for each episode; if the episode is not terminal, the result
        only determines which fields to add.

    Returns:
      The steps with the appended steps, joined as by `concatenate`. Terminal and other episodes
      therefore have the same fields.

    Raises:
      KeyError: if the steps have no field `is_terminal`.
      TypeError: if the extra steps differ in layout, or in the type of a field.
      tf.errors.InvalidArgumentError: if there are no steps. In a graph it is raised when the
        graph runs.

    >>> def absorbing(last):
    ...     return {"reward": tf.zeros([2]), "is_terminal": [True, True]}
    >>> steps = {"reward": [1.0, 2.0], "is_terminal": [False, True]}
    >>> concat_if_terminal(steps, absorbing)["reward"].numpy().tolist()
    [1.0, 2.0, 0.0, 0.0]
    >>> steps = {"reward": [1.0, 2.0], "is_terminal": [False, False]}
    >>> concat_if_terminal(steps, absorbing)["reward"].numpy().tolist()
    [1.0, 2.0]
    """
    caller = "concat_if_terminal"
    if not _layouts.is_nested(steps):
        steps = _layouts.as_batch(steps, caller)
    _layouts.check_fields(_layouts.spec_of_steps(steps), [rlds_types.IS_TERMINAL], caller)
    final_step = nested_ops.final_step(steps)
    is_terminal = tf.reshape(tf.cast(final_step[rlds_types.IS_TERMINAL], tf.bool), [])
    extra = make_extra_steps(final_step)
    if _layouts.is_nested(steps) != _layouts.is_nested(extra):
        layout = "nested" if _layouts.is_nested(steps) else "batched"
        raise TypeError(
            f"{caller}: the steps are {layout}, but make_extra_steps returned a "
            f"{type(extra).__name__}. Return to_{layout}(...) of the extra steps."
        )
    if _layouts.is_nested(steps):
        return concatenate(steps, extra.take(tf.where(is_terminal, tf.constant(-1, tf.int64), 0)))
    extra = _layouts.as_batch(extra, caller)
    count = tf.where(is_terminal, _layouts.num_steps(extra), 0)
    return concatenate(steps, tf.nest.map_structure(lambda leaf: leaf[:count], extra))
