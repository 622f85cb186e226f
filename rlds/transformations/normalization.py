"""Normalizes fields by the statistics of a dataset, and back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from rlds.normalization import (
    OfField,
    apply_to_array,
    check_field,
    names_of,
    normalizer,
    of_one_field,
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
    * "bounds": the range from the least to the largest value becomes [-1, 1].
    * "bounds_q99": the range from the quantile 0.01 to the quantile 0.99 becomes [-1, 1].

    Elements whose mask is false stay as they are. Elements that had a single value (or, for
    "bounds_q99", equal quantiles) become 0. Placeholders in the last step are treated as any value.

    Args:
      data: steps in either layout, an episode, or a dataset of episodes, with `Statistics`. An
        array or a tensor that ends with the axes of a field, with its `FieldStatistics`.
      statistics: of the dataset, or of one field.
      kind: "normal", "bounds" or "bounds_q99".
      fields: paths of the fields to normalize; all that there are statistics of but the reward,
        if not given.
      clip: whether values outside of the range become -1 or 1; not of kind "normal".
      floor: the least standard deviation, and half of the least range, to divide by.

    Returns:
      The data with normalized values. Floating point values keep their dtype, others become
      float32.

    Raises:
      KeyError: if there is no such field, or there are no statistics of it.
      TypeError: if a field is not numeric, or the statistics do not go with the data.
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
    of_field = normalizer(kind, clip, floor, _apply)
    return _over_fields(data, statistics, of_field, fields, "normalize")


def unnormalize(
    data: Any,
    statistics: Statistics | FieldStatistics,
    *,
    kind: str = "normal",
    fields: Sequence[str] | None = None,
    floor: float = 1e-8,
) -> Any:
    """The inverse of `normalize` with the same arguments, up to what was clipped.

    An element that had a single value becomes that value.

    Args:
      data: see `normalize`.
      statistics: see `normalize`.
      kind: see `normalize`.
      fields: see `normalize`.
      floor: see `normalize`.

    Returns:
      The data with values on their original scale.

    Raises:
      KeyError: see `normalize`; likewise the others.
    """
    of_field = unnormalizer(kind, floor, _apply)
    return _over_fields(data, statistics, of_field, fields, "unnormalize")


def _apply(formula: Callable[[Any, Any], Any], values: Any, mask: np.ndarray) -> Any:
    """Applies a formula to an array or a tensor in float64."""
    if tf.is_tensor(values):
        exact = tf.cast(values, tf.float64)
        result = tf.where(mask, formula(exact, tf.experimental.numpy), exact)
        return tf.cast(result, _episodes.float_dtype(values))
    return apply_to_array(formula, values, mask)


def _over_fields(
    data: Any,
    statistics: Statistics | FieldStatistics,
    of_field: OfField,
    fields: Sequence[str] | None,
    caller: str,
) -> Any:
    if isinstance(statistics, FieldStatistics):
        return of_one_field(data, statistics, of_field, caller)
    if not isinstance(data, Mapping | tf.data.Dataset):
        raise steps_expected(data, caller)
    names = names_of(fields, statistics)
    spec = dict(_layouts.named_leaves(_episodes.spec_of_step(data, caller)))
    for name in names:
        if name not in spec:
            raise KeyError(f"{caller}: there is no field {name!r}. The fields are {sorted(spec)}.")
        shape = getattr(spec[name], "shape", None)
        check_field(type_of(spec[name]), shape, statistics[name], name, caller)
        of_field(np.zeros(statistics[name].mean.shape), statistics[name], name)

    def of_leaf(path: tuple[Any, ...], leaf: Any) -> Any:
        name = "/".join(map(str, path))
        return of_field(leaf, statistics[name], name) if name in names else leaf

    def of_steps(steps: _layouts.Steps, _: Any) -> _layouts.Steps:
        if _layouts.is_nested(steps):
            return nested_ops.map_steps(steps, lambda s: tree.map_structure_with_path(of_leaf, s))
        return tree.map_structure_with_path(of_leaf, _layouts.as_batch(steps, caller))

    return _episodes.over_steps(data, of_steps)
