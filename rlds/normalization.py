"""Normalization of NumPy arrays by the statistics of a dataset, and its inverse.

`rlds.transformations` has the same two functions for TensorFlow datasets and tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlds import rlds_types
from rlds.statistics import FieldStatistics, FieldType, Statistics
from rlds_ecosystem.model.columns import fits
from rlds_ecosystem.model.nests import is_below, map_named_leaves, named_leaves, root_of

__all__ = ["normalize", "unnormalize"]

_NORMALIZATION_KINDS = ("normal", "bounds", "bounds_q99")

# A function of values, the statistics of their field, and its path.
FieldFunction: TypeAlias = Callable[[Any, FieldStatistics, str], Any]


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

    Args:
      data: steps as columns, which may be nested in dicts, with `Statistics`. The values may also
        be an array that ends with the axes of a field, with its `FieldStatistics`.
      statistics: the statistics of the dataset, or of one field.
      kind: "normal", "bounds" or "bounds_q99", see `rlds.transformations.normalize`.
      fields: paths of the fields to normalize; by default, all fields with statistics except the
        reward.
      clip: whether values outside of the range become -1 or 1; not for the kind "normal".
      floor: the smallest divisor: of the standard deviation, or of half the range.

    Returns:
      The data with normalized values; integers become float32.

    Raises:
      KeyError: if there is no such field, or it has no statistics.
      TypeError: if a field is not numeric, or the statistics do not match the data.
      ValueError: if the kind is unknown, the quantiles are missing, or a shape does not match.

    >>> from rlds.statistics import compute_statistics
    >>> steps = {"action": np.array([[0.0], [2.0], [0.0]]), "is_last": np.array([0, 0, 1], bool)}
    >>> statistics = compute_statistics([{"steps": steps}])
    >>> normalize(steps, statistics)["action"].tolist()
    [[-1.0], [1.0], [-1.0]]
    >>> unnormalize(np.array([0.5]), statistics["action"], kind="bounds").tolist()
    [1.5]
    """
    return _map_fields(data, statistics, normalizer(kind, clip, floor), fields, "normalize")


def unnormalize(
    data: Any,
    statistics: Statistics | FieldStatistics,
    *,
    kind: str = "normal",
    fields: Sequence[str] | None = None,
    floor: float = 1e-8,
) -> Any:
    """Reverts `normalize` with the same arguments, except for clipped values.

    A constant element becomes its constant value.
    """
    return _map_fields(data, statistics, unnormalizer(kind, floor), fields, "unnormalize")


def apply_to_array(formula: Callable[[Any, Any], Any], values: Any, mask: np.ndarray) -> Any:
    """Applies a formula in float64; the formula takes values, and NumPy or a similar library."""
    array = np.asarray(values)
    is_floating = np.issubdtype(array.dtype, np.floating)
    exact = array.astype(np.float64)
    result = np.where(mask, formula(exact, np), exact)
    return result.astype(array.dtype if is_floating else np.float32)


def normalizer(
    kind: str, clip: bool, floor: float, apply: Callable[..., Any] = apply_to_array
) -> FieldFunction:
    """Returns the function that normalizes the values of a field."""

    def normalize_field(values: Any, field: FieldStatistics, name: str) -> Any:
        offset, scale, is_constant = _parameters(field, kind, floor, name, "normalize")

        def formula(x: Any, library: Any) -> Any:
            result = (x - offset) / scale
            if clip and kind != "normal":
                result = library.clip(result, -1.0, 1.0)
            return library.where(is_constant, 0.0, result)

        return apply(formula, values, field.mask)

    return normalize_field


def unnormalizer(
    kind: str, floor: float, apply: Callable[..., Any] = apply_to_array
) -> FieldFunction:
    """Returns the inverse of a `normalizer`."""

    def normalize_field(values: Any, field: FieldStatistics, name: str) -> Any:
        offset, scale, is_constant = _parameters(field, kind, floor, name, "unnormalize")

        def formula(x: Any, library: Any) -> Any:
            return library.where(is_constant, offset, x * scale + offset)

        return apply(formula, values, field.mask)

    return normalize_field


def apply_to_field(
    values: Any, field: FieldStatistics, function: FieldFunction, caller: str
) -> Any:
    """Applies a function to the values of one field."""
    if isinstance(values, Mapping) or hasattr(values, "element_spec"):
        raise TypeError(
            f"{caller}: the statistics of one field need an array of its values, got a "
            f"{type(values).__name__}. Pass the Statistics of all fields."
        )
    check_shape(np.shape(values), field, "the values", caller)
    return function(values, field, "the field")


def names_of(fields: Sequence[str] | None, statistics: Statistics) -> set[str]:
    """Returns the paths of the requested fields with statistics."""
    if fields is None:
        return {name for name in statistics if root_of(name) != rlds_types.REWARD}
    fields = [fields] if isinstance(fields, str) else fields
    for field in fields:
        if not any(is_below(name, field) for name in statistics):
            statistics[field]  # Raises an error that lists the fields with statistics.
    return {name for name in statistics if any(is_below(name, field) for field in fields)}


def check_shape(shape: Any, field: FieldStatistics, subject: str, caller: str) -> None:
    expected = field.mean.shape
    if not fits(expected, tuple(shape)[len(tuple(shape)) - len(expected) :]):
        raise ValueError(
            f"{caller}: the shape of {subject} is {tuple(shape)}, but the statistics are of shape "
            f"{expected}."
        )


def check_field(
    kind: FieldType, shape: Any, field: FieldStatistics, name: str, caller: str
) -> None:
    """Checks that a field of the data matches the statistics."""
    if not kind.is_numeric:
        raise TypeError(f"{caller}: field {name!r} must be numeric, got {kind.description}.")
    check_shape(shape, field, repr(name), caller)


def steps_expected(data: Any, caller: str) -> TypeError:
    """Returns the error for data other than steps with the statistics of all fields."""
    return TypeError(
        f"{caller}: the statistics of all fields need steps, got a {type(data).__name__}. Pass the "
        "statistics of one field: statistics['action']."
    )


def _map_fields(
    data: Any,
    statistics: Statistics | FieldStatistics,
    function: FieldFunction,
    fields: Sequence[str] | None,
    caller: str,
) -> Any:
    if isinstance(statistics, FieldStatistics):
        return apply_to_field(data, statistics, function, caller)
    if not isinstance(data, Mapping):
        raise steps_expected(data, caller)
    columns = {name: np.asarray(leaf) for name, leaf in named_leaves(data)}
    names = names_of(fields, statistics)
    for name in names:
        if name not in columns:
            field_names = sorted(columns)
            raise KeyError(f"{caller}: there is no field {name!r}. The fields are {field_names}.")
        column = columns[name]
        check_field(FieldType.from_column(column), column.shape, statistics[name], name, caller)
    return map_named_leaves(
        lambda name, leaf: function(leaf, statistics[name], name) if name in names else leaf, data
    )


def _parameters(
    field: FieldStatistics, kind: str, floor: float, name: str, caller: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the offset and the scale of a normalization, and a mask of constant elements."""
    if kind not in _NORMALIZATION_KINDS:
        raise ValueError(f"{caller}: kind must be one of {_NORMALIZATION_KINDS}, got {kind!r}.")
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
    # Halving first avoids an overflow of the range.
    return low / 2 + high / 2, np.maximum(high / 2 - low / 2, floor), low == high
