"""Normalization of fields by the statistics of a dataset, and its inverse."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from rlds.normalization import (
    FieldFunction,
    apply_to_array,
    apply_to_field,
    check_field,
    names_of,
    normalizer,
    steps_expected,
    unnormalizer,
)
from rlds.statistics import FieldStatistics, Statistics
from rlds.transformations import _episodes, _layouts, nested_ops
from rlds.transformations.statistics import type_of

__all__ = ["normalize", "unnormalize"]


def normalize(
    data: Any,
    statistics: Statistics | FieldStatistics,
    *,
    kind: str = "normal",
    fields: Sequence[str] | None = None,
    clip: bool = True,
    floor: float = 1e-8,
) -> Any:
    """Normalizes the fields of steps, or the values of one field.

    * "normal": (x - mean) / std.
    * "bounds": the range from the minimum to the maximum becomes [-1, 1].
    * "bounds_q99": the range from the quantile 0.01 to the quantile 0.99 becomes [-1, 1].

    Elements with a false mask are unchanged. Elements with a single value in the dataset (or, for
    "bounds_q99", equal quantiles) become 0. Placeholders in the last step are treated as values.

    Args:
      data: steps in either layout, an episode, or a dataset of episodes, with `Statistics`. An
        array or a tensor that ends with the axes of a field, with its `FieldStatistics`.
      statistics: the statistics of the dataset, or of one field.
      kind: "normal", "bounds" or "bounds_q99".
      fields: paths of the fields to normalize; by default, all with statistics except for the
        reward.
      clip: whether to clip values to -1 and 1; not for "normal".
      floor: the minimum of the divisors: standard deviations, or half the ranges.

    Returns:
      The data with normalized values. Floating point values keep their dtype; other values become
      float32.

    Raises:
      KeyError: if a field or its statistics are missing.
      TypeError: if a field is not numeric, or the statistics are not of this data.
      ValueError: if the kind is unknown, the quantiles are missing, or a shape does not fit.

    >>> values = np.array([[0.0], [2.0]])
    >>> steps = {"action": values, "is_first": [True, False], "is_last": [False, False]}
    >>> from rlds.transformations.statistics import compute_statistics
    >>> statistics = compute_statistics(tf.data.Dataset.from_tensors({"steps": steps}))
    >>> normalize(steps, statistics)["action"].numpy().tolist()
    [[-1.0], [1.0]]
    >>> normalize(np.array([5.0]), statistics["action"], kind="bounds").tolist()
    [1.0]
    >>> unnormalize(np.array([0.5]), statistics["action"], kind="bounds").tolist()
    [1.5]
    """
    normalize_field = normalizer(kind, clip, floor, _apply)
    return _convert_fields(data, statistics, normalize_field, fields, "normalize")


def unnormalize(
    data: Any,
    statistics: Statistics | FieldStatistics,
    *,
    kind: str = "normal",
    fields: Sequence[str] | None = None,
    floor: float = 1e-8,
) -> Any:
    """Inverts `normalize` with the same arguments, except for clipped values.

    An element with a single value in the dataset becomes this value.

    Args:
      data: see `normalize`.
      statistics: see `normalize`.
      kind: see `normalize`.
      fields: see `normalize`.
      floor: see `normalize`.

    Returns:
      The data with values on their original scale.

    Raises:
      KeyError: see `normalize`, also for further errors.
    """
    normalize_field = unnormalizer(kind, floor, _apply)
    return _convert_fields(data, statistics, normalize_field, fields, "unnormalize")


def _apply(formula: Callable[[Any, Any], Any], values: Any, mask: np.ndarray) -> Any:
    """Applies a formula to an array or a tensor in float64."""
    if tf.is_tensor(values):
        exact = tf.cast(values, tf.float64)
        result = tf.where(mask, formula(exact, tf.experimental.numpy), exact)
        return tf.cast(result, _episodes.float_dtype(values))
    return apply_to_array(formula, values, mask)


def _convert_fields(
    data: Any,
    statistics: Statistics | FieldStatistics,
    normalize_field: FieldFunction,
    fields: Sequence[str] | None,
    caller: str,
) -> Any:
    if isinstance(statistics, FieldStatistics):
        return apply_to_field(data, statistics, normalize_field, caller)
    if not isinstance(data, Mapping | tf.data.Dataset):
        raise steps_expected(data, caller)
    names = names_of(fields, statistics)
    spec = dict(_layouts.named_leaves(_episodes.spec_of_step(data, caller)))
    for name in names:
        if name not in spec:
            raise KeyError(f"{caller}: there is no field {name!r}. The fields are {sorted(spec)}.")
        shape = getattr(spec[name], "shape", None)
        check_field(type_of(spec[name]), shape, statistics[name], name, caller)
        normalize_field(np.zeros(statistics[name].mean.shape), statistics[name], name)

    def convert_leaf(path: tuple[Any, ...], leaf: Any) -> Any:
        name = "/".join(map(str, path))
        return normalize_field(leaf, statistics[name], name) if name in names else leaf

    def transform_steps(steps: _layouts.Steps, _: Any) -> _layouts.Steps:
        if _layouts.is_nested(steps):
            return nested_ops.map_steps(
                steps, lambda s: tree.map_structure_with_path(convert_leaf, s)
            )
        return tree.map_structure_with_path(convert_leaf, _layouts.as_batch(steps, caller))

    return _episodes.over_steps(data, transform_steps)
