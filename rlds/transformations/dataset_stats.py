"""Mean and standard deviation of the fields of a dataset."""

import warnings
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from rlds import rlds_types
from rlds.transformations import _layouts, flexible_batch, shape_ops
from rlds.transformations._step_function import step_function

__all__ = ["mean_and_std", "sar_fields_mask"]


def sar_fields_mask(step: rlds_types.Step) -> tuple[dict[str, Any], dict[str, Any]]:
    """Selects observation, action and reward of a step in SAR alignment, the order of RLDS.

    This is an argument for `mean_and_std`, if these fields are numeric.

    Args:
      step: a step, or a batch of steps.

    Returns:
      The fields that the step has, and a mask for each field: the action and the reward of the
      last step are invalid.

    Raises:
      KeyError: if the step has none of these fields, or an action or a reward but no `is_last`.

    >>> data, mask = sar_fields_mask({"observation": 0.5, "action": 1, "is_last": True})
    >>> sorted(data), bool(mask["observation"]), bool(mask["action"])
    (['action', 'observation'], True, False)
    """
    names = (rlds_types.OBSERVATION, rlds_types.ACTION, rlds_types.REWARD)
    data = {name: step[name] for name in names if name in step}
    if not data:
        raise KeyError(f"sar_fields_mask: the step has none of {names}, only {sorted(step)}.")
    if rlds_types.OBSERVATION in data and len(data) == 1:
        return data, {rlds_types.OBSERVATION: True}
    if rlds_types.IS_LAST not in step:
        raise KeyError(
            f"sar_fields_mask: the step has no field {rlds_types.IS_LAST!r}, only {sorted(step)}; "
            "without it the placeholders in the last step look like real values."
        )
    is_valid = tf.logical_not(step[rlds_types.IS_LAST])
    return data, {name: True if name == rlds_types.OBSERVATION else is_valid for name in data}


def mean_and_std(
    episodes_dataset: tf.data.Dataset,
    get_step_fields: Callable[..., tuple[Any, Any]],
    optimization_batch_size: int = flexible_batch.BATCH_AUTO_TUNE,
) -> tuple[Any, Any]:
    """Calculates mean and standard deviation of fields over all steps of all episodes.

    The data is read once, and the result depends on the batch size only by the rounding of float64.
    Values with a False mask are ignored. A NaN or an infinity with a True mask makes the result of
    its element NaN (or infinite), with a warning.

    Args:
      episodes_dataset: episodes with steps in either layout.
      get_step_fields: takes a step and returns the data, any structure of numeric or boolean
        tensors, and the mask. The mask has one boolean per top-level field of the data, or is
        nested down to the leaves, where it may be a tensor that broadcasts to the value.
      optimization_batch_size: the number of steps to process at once, see `map_steps`.

    Returns:
      The mean and the standard deviation with divisor n - 1, both NumPy float64 arrays (inside a
      graph, tensors) in the structure and shape of the data. The arrays have the method `numpy()`,
      for code written for tensors. Without valid values the mean is NaN; with fewer than two the
      standard deviation is NaN. Outside of graphs, both cases emit a `RuntimeWarning`.

    Raises:
      KeyError: if the elements of the dataset have no steps.
      TypeError: if a value is not numeric, or a mask not boolean.
      ValueError: if the mask does not fit the data, or the batch size is negative.

    >>> steps = {"observation": [[1.0, 3.0, 5.0]], "action": [[2, 4, 0]],
    ...          "is_last": [[False, False, True]]}
    >>> episodes = tf.data.Dataset.from_tensor_slices({"steps": steps})
    >>> mean, std = mean_and_std(episodes, sar_fields_mask)
    >>> float(mean["observation"]), float(std["observation"]), float(mean["action"])
    (3.0, 2.0, 3.0)
    """
    caller = "mean_and_std"
    step_spec = _layouts.spec_of_nested_steps(episodes_dataset, caller)
    size = flexible_batch.get_batch_size(episodes_dataset, optimization_batch_size)
    function = step_function(get_step_fields, step_spec, vectorize=size > 1)
    check_fields(function.output_spec, caller)
    data_spec, _ = function.output_spec
    if not _layouts.is_static(data_spec):
        size = 1

    moments = _layouts.map_elements(
        _layouts.batches_of_steps(episodes_dataset, max(1, size), caller),
        lambda batch: _compute_moments(*function.apply(batch)),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    total = moments.reduce(
        shape_ops.zeros_from_spec(moments.element_spec), _layouts.in_graph(_merge)
    )
    mean = tree.map_structure(_compute_mean, total.count, total.mean)
    std = tree.map_structure(_compute_std, total.count, total.squares)
    if not tf.executing_eagerly():
        return mean, std
    _warn_of_undefined(tree.map_structure(np.asarray, total))
    return tree.map_structure(_create_result, mean), tree.map_structure(_create_result, std)


class ResultArray(np.ndarray[Any, np.dtype[np.float64]]):
    """An array with `numpy()`, as of a tensor, and `round()`, as of a scalar.

    Code for the published package calls `numpy()` on the mean, which is a tensor there. An array is
    more flexible: it works with arrays, and with tensors of any dtype, such as float32.
    """

    def numpy(self) -> Any:
        """Returns the values as a plain array, or a single value as a scalar."""
        return np.asarray(self)[()]

    def __round__(self, ndigits: int | None = None) -> Any:
        """Rounds the value of a scalar field."""
        return round(self.numpy(), ndigits)


def _create_result(values: tf.Tensor) -> ResultArray:
    return np.asarray(values).view(ResultArray)


def check_fields(spec: Any, caller: str) -> None:
    """Checks the result of a function like `get_step_fields` for one step."""
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise ValueError(f"{caller}: the function of a step must return (data, mask), got {spec}.")
    data_spec, mask_spec = spec
    try:
        masks = spread_mask(mask_spec, data_spec)
        tree.assert_same_structure(masks, data_spec)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{caller}: the mask needs one boolean per top-level field of the data. The data "
            f"is {data_spec}, the mask is {mask_spec}."
        ) from error
    for (name, leaf), mask in zip(_layouts.named_leaves(data_spec), tree.flatten(masks)):
        location = f"{caller}: field {name!r}" if name else f"{caller}: the data"
        if not isinstance(leaf, tf.TensorSpec) or not (
            leaf.dtype.is_integer or leaf.dtype.is_floating or leaf.dtype.is_bool
        ):
            raise TypeError(
                f"{location} must be a numeric tensor, got {leaf}. "
                "Let the function return only the fields to describe."
            )
        if not isinstance(mask, tf.TensorSpec) or not mask.dtype.is_bool:
            raise TypeError(f"{location} must have a boolean mask, got {mask}.")
        if not _broadcasts(mask.shape, leaf.shape):
            raise ValueError(
                f"{location} has shape {leaf.shape}, to which a mask of shape {mask.shape} does "
                "not broadcast."
            )


def spread_mask(mask: Any, data: Any) -> Any:
    """Expands the mask to the structure of the data."""
    return tree.map_structure_up_to(
        mask, lambda valid, field: tree.map_structure(lambda _: valid, field), mask, data
    )


def _broadcasts(mask: tf.TensorShape, value: tf.TensorShape) -> bool:
    if mask.rank is None or value.rank is None or mask.rank > value.rank:
        return bool(mask.rank == 0)
    pairs = zip(reversed(mask.as_list()), reversed(value.as_list()))
    return all(dim in (1, None, of_value) or of_value is None for dim, of_value in pairs)


class _Moments(NamedTuple):
    """Running moments of the values so far, each nested like the data and in float64.

    Unlike plain sums, they keep their precision if the mean is far from zero, and the moments of
    two subsets of the data can be merged.
    """

    count: Any  # The number of valid values.
    mean: Any
    squares: Any  # The sum of the squared distances from the mean.


def _compute_moments(data: Any, mask: Any) -> _Moments:
    """Returns the moments over a batch."""
    values = tree.map_structure(lambda field: tf.cast(field, tf.float64), data)
    valid = tree.map_structure(_broadcast_mask, spread_mask(mask, data), values)
    count = tree.map_structure(lambda v: tf.reduce_sum(tf.cast(v, tf.float64), 0), valid)
    mean = tree.map_structure(
        lambda x, v, n: tf.math.divide_no_nan(tf.reduce_sum(tf.where(v, x, 0.0), 0), n),
        values,
        valid,
        count,
    )
    squares = tree.map_structure(
        lambda x, v, m: tf.reduce_sum(tf.where(v, tf.square(x - m), 0.0), 0), values, valid, mean
    )
    return _Moments(count, mean, squares)


def _broadcast_mask(mask: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Broadcasts the mask of each step to its values; both have a leading time axis."""
    steps, dims = tf.split(tf.shape(mask), [1, mask.shape.rank - 1])
    missing = [1] * (values.shape.rank - mask.shape.rank)
    return tf.broadcast_to(tf.reshape(mask, tf.concat([steps, missing, dims], 0)), tf.shape(values))


def _merge(one: _Moments, other: _Moments) -> _Moments:
    """Merges the moments of two subsets of the data."""
    count = tree.map_structure(tf.add, one.count, other.count)
    weight = tree.map_structure(tf.math.divide_no_nan, other.count, count)
    delta = tree.map_structure(tf.subtract, other.mean, one.mean)
    mean = tree.map_structure(lambda m, d, w: m + d * w, one.mean, delta, weight)
    squares = tree.map_structure(
        lambda s, t, d, n, w: s + t + tf.square(d) * n * w,
        one.squares,
        other.squares,
        delta,
        one.count,
        weight,
    )
    return _Moments(count, mean, squares)


_NAN: Final = np.float64("nan")


def _compute_mean(count: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
    return tf.where(count > 0, mean, _NAN)


def _compute_std(count: tf.Tensor, squares: tf.Tensor) -> tf.Tensor:
    return tf.where(count > 1, tf.sqrt(squares / tf.maximum(count - 1, 1)), _NAN)


def _warn_of_undefined(total: _Moments) -> None:
    """Warns of fields with NaN or infinite results, with the reason."""
    reasons = []
    for (name, count), mean in zip(_layouts.named_leaves(total.count), tree.flatten(total.mean)):
        problems = {
            "no valid values": count == 0,
            "a single valid value": count == 1,
            "NaN or infinite values that are not masked": (count > 0) & ~np.isfinite(mean),
        }
        counts = {problem: np.sum(mask) for problem, mask in problems.items()}
        faults = [f"{problem} in {n}" for problem, n in counts.items() if n]
        if faults:
            reasons.append(f"{name or 'data'}: {', '.join(faults)} of its {count.size} elements")
    if reasons:
        warnings.warn(
            f"mean_and_std: some results are NaN or infinite. {'; '.join(reasons)}.",
            RuntimeWarning,
            stacklevel=3,
        )
