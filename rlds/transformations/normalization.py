"""Normalizes fields by the statistics of a dataset, and back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from rlds import rlds_types
from rlds.transformations import _episodes, _layouts, nested_ops
from rlds.transformations.statistics import FieldStatistics, Statistics

__all__ = ["normalize", "unnormalize"]

_KINDS = ("normal", "bounds", "bounds_q99")


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

    def of_field(values: Any, field: FieldStatistics, name: str) -> Any:
        offset, scale, is_constant = _parameters(field, kind, floor, name, "normalize")

        def formula(x: Any, library: Any) -> Any:
            result = (x - offset) / scale
            if clip and kind != "normal":
                result = library.clip(result, -1.0, 1.0)
            return library.where(is_constant, 0.0, result)

        return _apply(formula, values, field.mask)

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

    def of_field(values: Any, field: FieldStatistics, name: str) -> Any:
        offset, scale, is_constant = _parameters(field, kind, floor, name, "unnormalize")

        def formula(x: Any, library: Any) -> Any:
            return library.where(is_constant, offset, x * scale + offset)

        return _apply(formula, values, field.mask)

    return _over_fields(data, statistics, of_field, fields, "unnormalize")


def _parameters(
    field: FieldStatistics, kind: str, floor: float, name: str, caller: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The value that becomes 0, the distance from it that becomes 1, and what is constant."""
    if kind not in _KINDS:
        raise ValueError(f"{caller}: kind must be one of {_KINDS}, got {kind!r}.")
    if kind == "normal":
        return field.mean, np.maximum(field.std, floor), field.std == 0.0
    if kind == "bounds":
        low, high = field.min, field.max
    else:
        missing = {0.01, 0.99} - field.quantiles.keys()
        if missing:
            raise ValueError(
                f"{caller}: kind {kind!r} needs the quantiles 0.01 and 0.99 of {name!r}, there are "
                f"{sorted(field.quantiles)}."
            )
        low, high = field.quantiles[0.01], field.quantiles[0.99]
    # Halved first: a range may be too large for its dtype.
    return low / 2 + high / 2, np.maximum(high / 2 - low / 2, floor), low == high


def _apply(formula: Callable[[Any, Any], Any], values: Any, mask: np.ndarray) -> Any:
    """Calculates in float64, of an array or of a tensor."""
    if tf.is_tensor(values):
        exact = tf.cast(values, tf.float64)
        result = tf.where(mask, formula(exact, tf.experimental.numpy), exact)
        return tf.cast(result, _episodes.float_dtype(values))
    array = np.asarray(values)
    is_floating = np.issubdtype(array.dtype, np.floating)
    exact = array.astype(np.float64)
    result = np.where(mask, formula(exact, np), exact)
    return result.astype(array.dtype if is_floating else np.float32)


def _over_fields(
    data: Any,
    statistics: Statistics | FieldStatistics,
    of_field: Callable[[Any, FieldStatistics, str], Any],
    fields: Sequence[str] | None,
    caller: str,
) -> Any:
    if isinstance(statistics, FieldStatistics):
        if isinstance(data, Mapping | tf.data.Dataset):
            raise TypeError(
                f"{caller}: the statistics of one field go with an array of its values, but the "
                f"data is a {type(data).__name__}. Pass the Statistics of all fields."
            )
        _check_shape(np.shape(data), statistics, "the values", caller)
        return of_field(data, statistics, "the field")
    if not isinstance(data, Mapping | tf.data.Dataset):
        raise TypeError(
            f"{caller}: the statistics of all fields go with steps, but the data is a "
            f"{type(data).__name__}. Pass those of one field: statistics['action']."
        )
    names = _names(fields, statistics)
    spec = dict(_layouts.named_leaves(_episodes.spec_of_step(data, caller)))
    for name in names:
        if name not in spec:
            raise KeyError(f"{caller}: there is no field {name!r}. The fields are {sorted(spec)}.")
        leaf = spec[name]
        if not isinstance(leaf, tf.TensorSpec) or leaf.dtype == tf.string or leaf.dtype.is_complex:
            raise TypeError(f"{caller}: field {name!r} must be a numeric tensor, got {leaf}.")
        _check_shape(leaf.shape, statistics[name], repr(name), caller)
        of_field(np.zeros(statistics[name].mean.shape), statistics[name], name)

    def of_leaf(path: tuple[Any, ...], leaf: Any) -> Any:
        name = "/".join(map(str, path))
        return of_field(leaf, statistics[name], name) if name in names else leaf

    def of_steps(steps: _layouts.Steps, _: Any) -> _layouts.Steps:
        if _layouts.is_nested(steps):
            return nested_ops.map_steps(steps, lambda s: tree.map_structure_with_path(of_leaf, s))
        return tree.map_structure_with_path(of_leaf, _layouts.as_batch(steps, caller))

    return _episodes.over_steps(data, of_steps)


def _names(fields: Sequence[str] | None, statistics: Statistics) -> set[str]:
    """The paths of the fields that there are statistics of."""
    if fields is None:
        return {name for name in statistics if name != rlds_types.REWARD}
    fields = [fields] if isinstance(fields, str) else fields
    for field in fields:
        if not any(f"{name}/".startswith(f"{field}/") for name in statistics):
            statistics[field]  # raises the error that names what there is
    return {name for name in statistics if any(f"{name}/".startswith(f"{f}/") for f in fields)}


def _check_shape(shape: Any, field: FieldStatistics, which: str, caller: str) -> None:
    expected = field.mean.shape
    dims = tuple(shape)[len(tuple(shape)) - len(expected) :]
    if len(dims) != len(expected) or any(d not in (None, e) for d, e in zip(dims, expected)):
        raise ValueError(
            f"{caller}: the shape of {which} is {tuple(shape)}, but the statistics are of shape "
            f"{expected}."
        )
