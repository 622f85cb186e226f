"""Columns: fields of many steps as arrays whose first axis is the step, nested in dicts.

Dicts, lists and tuples around the arrays are kept. Dtypes are kept, too: a Python `float` gives
float64, `int` int64, `bool` bool; `str`, `bytes` and NumPy string arrays give arrays of dtype
object. `None` gives object arrays of `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlds_ecosystem.model.nests import join_path

__all__ = [
    "cast_exact",
    "concat_ranges",
    "dtype_and_shape",
    "first_row",
    "fits",
    "known_field",
    "leaves",
    "map_columns",
    "missing",
    "objects",
    "shift_steps",
    "stack_partial",
    "stack_values",
    "step_flags",
    "with_placeholder",
    "zeros_like",
]

_EMPTY_VALUES = {str: "", bytes: b"", type(None): None}


def shift_steps(columns: Any, last_steps: Sequence[int]) -> Any:
    """Moves values that arrived with an observation to the previous step: the alignment shift.

    Args:
      columns: The values that arrived with the observations of concatenated episodes, as columns,
        which may be nested, and a row of placeholders: see `with_placeholder`.
      last_steps: The indices of the last steps of the episodes.

    Returns:
      Views of the columns, with a row for each observation. The last step of an episode has
      placeholders.

    >>> shift_steps({"reward": with_placeholder(np.array([0.0, 1.0, 2.0]))}, [2])
    {'reward': array([1., 2., 0.])}
    """

    def shift(column: np.ndarray) -> np.ndarray:
        steps = column[1:]
        if len(last_steps) > 1:
            steps[last_steps] = steps[-1:]
        return steps

    return map_columns(shift, columns)


def concat_ranges(counts: np.ndarray) -> np.ndarray:
    """Returns 0, 1, …, count - 1 for each count, concatenated.

    >>> concat_ranges(np.array([2, 3]))
    array([0, 1, 0, 1, 2])
    """
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def with_placeholder(columns: Any) -> Any:
    """Adds a row of placeholders to columns, which may be nested, for a step without a successor.

    The placeholders are zeros, or empty strings for strings.

    >>> with_placeholder({"action": np.array(["a", "b"], object)})
    {'action': array(['a', 'b', ''], dtype=object)}
    """

    def lengthen(column: np.ndarray) -> np.ndarray:
        extended = np.empty((len(column) + 1, *column.shape[1:]), column.dtype)
        extended[:-1] = column
        if column.dtype != object:
            extended[-1:] = 0
        else:
            extended[-1:] = zeros_like(column[-1:]) if len(column) else b""
        return extended

    return map_columns(lengthen, columns)


def step_flags(lengths: Sequence[int], are_terminal: Sequence[bool]) -> dict[str, np.ndarray]:
    """Returns the columns `is_first`, `is_last` and `is_terminal` of concatenated episodes.

    Args:
      lengths: The number of steps of each episode, all positive.
      are_terminal: True for each episode that ends in a terminal state.

    >>> step_flags([2, 1], [True, False])["is_terminal"]
    array([False,  True, False])
    """
    is_first, is_last, is_terminal = (np.zeros(sum(lengths), bool) for _ in range(3))
    start = 0
    for length, is_end in zip(lengths, are_terminal):
        end = start + length
        is_first[start] = is_last[end - 1] = True
        is_terminal[end - 1] = is_end
        start = end
    return {"is_first": is_first, "is_last": is_last, "is_terminal": is_terminal}


def stack_values(
    values: Sequence[Any], path: str = "", *, steps: Sequence[int] | None = None
) -> Any:
    """Stacks values of equal structure into columns.

    Args:
      values: At least one value: a leaf (number, string, array, None) or a nest of dicts, lists and
        tuples of leaves. All have the same structure, shapes and dtypes. Numbers of different
        dtypes are stacked in a common dtype if all values stay equal.
      path: The name of the values in error messages.
      steps: The indices of the steps in error messages; by default, 0 and so on.

    Returns:
      The structure of `values[0]` with arrays of shape `[len(values), ...]` as leaves. See
      `to_rlds_episode` for dtypes.

    Raises:
      ValueError: Two values differ in structure, dtype or shape, or an integer exceeds int64.
      TypeError: A leaf is neither a number, a string, nor an array of them.

    >>> stack_values([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}])
    {'x': array([1, 2]), 'y': array(['a', 'b'], dtype=object)}
    """
    return _stack(values, path, range(len(values)) if steps is None else steps)


def known_field(name: Any) -> str:
    """Returns the name of the mask field that marks the known values of another field.

    >>> known_field("seed")
    'seed_known'
    """
    return f"{name}_known"


def missing(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns the placeholder of a missing value: NaN, zero, False or the empty string.

    >>> missing((2,), np.dtype(np.float32)), missing((), np.dtype(object))
    (array([nan, nan], dtype=float32), array('', dtype=object))
    """
    if dtype.kind == "O":
        return np.full(shape, "", object)
    return np.full(shape, np.nan if dtype.kind in "fc" else 0, dtype)


def stack_partial(values: Sequence[Mapping[Any, Any] | None], path: str = "") -> dict[Any, Any]:
    """Stacks dicts to columns like `stack_values`, but with optional entries.

    If an entry is missing, None or an empty dict in some of the dicts, it gets a mask: the column
    `<name>_known` is False for values filled up by `missing`. This also applies to nested dicts.

    Args:
      values: Dicts of leaves, which may be nested. None stands for an empty dict.
      path: The name of the values in error messages.

    Returns:
      Columns `[len(values), ...]`, nested as the dicts.

    Raises:
      ValueError: As `stack_values`; or the name of a mask is taken.
      TypeError: As `stack_values`.

    >>> stack_partial([{"x": 1}, {"x": 2, "force": 0.5}])
    {'x': array([1, 2]), 'force': array([nan, 0.5]), 'force_known': array([False,  True])}
    """
    columns: dict[Any, Any] = {}
    names = dict.fromkeys(name for value in values for name in value or ())
    for name in names:
        children = [value.get(name) if value else None for value in values]
        present_steps = [step for step, child in enumerate(children) if not _is_empty(child)]
        present_values = [children[step] for step in present_steps]
        if not present_steps:
            columns[name] = np.full(len(values), None)
            continue
        if all(isinstance(child, Mapping) for child in present_values):
            column = stack_partial(present_values, join_path(path, name))
        else:
            column = stack_values(present_values, join_path(path, name), steps=present_steps)
        columns[name] = _spread(column, present_steps, len(values))
        if len(present_steps) < len(values):
            if known_field(name) in names:
                raise ValueError(
                    f"{path}: {name!r} is missing in step "
                    f"{min(set(range(len(values))) - set(present_steps))}, and "
                    f"{known_field(name)!r}, the marker of missing values, is recorded, too; "
                    "rename one of them."
                )
            columns[known_field(name)] = np.isin(np.arange(len(values)), present_steps)
    return columns


def cast_exact(array: np.ndarray, dtype: np.dtype, otherwise: Any = None) -> Any:
    """Returns numbers in another dtype if all of them stay equal; else `otherwise`.

    >>> cast_exact(np.array([1, 2]), np.dtype(np.float32))
    array([1., 2.], dtype=float32)
    >>> cast_exact(np.array([0.1]), np.dtype(np.float32)) is None
    True
    """
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype)
        # Compares after casting back, because NumPy rounds integers to compare them with floats.
        candidates = converted, converted.astype(array.dtype)
    has_nan = array.dtype.kind == "f"
    are_equal = all(np.array_equal(candidate, array, equal_nan=has_nan) for candidate in candidates)
    return converted if are_equal else otherwise


def fits(shape: tuple[int | None, ...], expected: tuple[int | None, ...]) -> bool:
    """True if a shape fits an expected shape, in which None stands for any size.

    >>> fits((4, 3), (None, 3)), fits((4,), (None, 3))
    (True, False)
    """
    return len(shape) == len(expected) and all(
        size == expected_size or expected_size is None
        for size, expected_size in zip(shape, expected)
    )


def objects(values: Iterable[Any]) -> np.ndarray:
    """Returns an array of objects, even for values that NumPy would convert to a matrix."""
    return np.array([*values, None], object)[:-1]


def first_row(columns: Any) -> Any:
    """Returns the first row of columns, which may be nested.

    >>> first_row({"x": np.array([1, 2]), "y": {"z": np.array(["a", "b"], object)}})
    {'x': np.int64(1), 'y': {'z': 'a'}}
    """
    return map_columns(lambda column: column[0], columns)


def map_columns(function: Callable[[Any], Any], columns: Any) -> Any:
    """Applies a function to columns, which may be nested in dicts, lists and tuples.

    >>> map_columns(lambda column: column[1:], {"x": np.array([1, 2]), "y": [np.array([3, 4])]})
    {'x': array([2]), 'y': [array([4])]}
    """
    if isinstance(columns, np.ndarray):  # The check for a Mapping is slower.
        return function(columns)
    if isinstance(columns, Mapping):
        return {name: map_columns(function, child) for name, child in columns.items()}
    if isinstance(columns, (list, tuple)):
        children = [map_columns(function, child) for child in columns]
        return type(columns)(*children) if hasattr(columns, "_fields") else type(columns)(children)
    return function(columns)


def _stack(values: Sequence[Any], path: str, steps: Sequence[int]) -> Any:
    """Stacks `values`, which belong to `steps`."""
    column = _stack_uniform(values)
    if column is not None:
        return column
    _check_equal([_describe_structure(value) for value in values], path, steps)
    first_value = values[0]
    if not isinstance(first_value, (Mapping, list, tuple)):
        return _stack_leaves(values, path, steps)
    keys = list(first_value) if isinstance(first_value, Mapping) else range(len(first_value))
    columns = [
        _stack([value[key] for value in values], join_path(path, key), steps) for key in keys
    ]
    if isinstance(first_value, Mapping):
        return dict(zip(keys, columns))
    if hasattr(first_value, "_fields"):
        return type(first_value)(*columns)
    return tuple(columns) if isinstance(first_value, tuple) else columns


def _stack_uniform(values: Sequence[Any]) -> np.ndarray | None:
    """Stacks arrays of one dtype and shape, or scalars of one type, as in most fields.

    Returns:
      The column; None for other values, whose stacking is 10 times slower per step.
    """
    types = set(map(type, values))
    if len(types) > 1:
        return None
    first_value = values[0]
    if types == {np.ndarray}:
        dtype, shape = first_value.dtype, first_value.shape
        if dtype.kind not in "biufc" or not dtype.isnative:
            return None
        if any(value.dtype != dtype or value.shape != shape for value in values):
            return None
    elif isinstance(first_value, (bool, float, np.number, np.bool_)):
        dtype, shape = np.asarray(first_value).dtype, ()
        if dtype.kind not in "biufc":
            return None
    elif types <= {str, bytes}:
        dtype, shape = np.dtype(object), ()
    else:
        return None
    column = np.empty((len(values), *shape), dtype)
    column[:] = values
    return column


def _stack_leaves(values: Sequence[Any], path: str, steps: Sequence[int]) -> np.ndarray:
    arrays = [_as_array(value, path, step) for step, value in zip(steps, values)]
    dtypes, shapes = {array.dtype for array in arrays}, {array.shape for array in arrays}
    kinds = {dtype.kind for dtype in dtypes}
    if len(dtypes) > 1 and len(shapes) == 1 and (kinds <= {"i", "f"} or kinds <= {"u", "f"}):
        common = [cast_exact(array, np.result_type(*dtypes)) for array in arrays]
        if all(array is not None for array in common):
            return np.stack(common)
    _check_equal([dtype_and_shape(array) for array in arrays], path, steps)
    return np.stack(arrays)


def _is_empty(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_empty, value.values()))
    return value is None


def _spread(columns: Any, rows: Sequence[int], length: int) -> Any:
    """Spreads columns over more rows; all further rows are missing values."""

    def spread(column: np.ndarray) -> np.ndarray:
        extended = missing((length, *column.shape[1:]), column.dtype)
        extended[rows] = column
        return extended

    return columns if len(rows) == length else map_columns(spread, columns)


def _check_equal(descriptions: Sequence[Any], path: str, steps: Sequence[int]) -> None:
    expected = descriptions[0]
    for step, description in zip(steps, descriptions):
        if description != expected:
            raise ValueError(
                f"{path}: step {step} holds {_describe(description)}, "
                f"step {steps[0]} holds {_describe(expected)}; all steps must be alike."
            )


def _describe_structure(value: Any) -> tuple[str, Any] | None:
    if isinstance(value, Mapping):
        return "dict", set(value)
    if isinstance(value, (list, tuple)):
        return "sequence", len(value)
    return None


def dtype_and_shape(array: np.ndarray) -> tuple[Any, tuple[int, ...]]:
    """Returns the dtype, or the types of objects, and the shape of a value."""
    if array.dtype != object:
        return array.dtype, array.shape
    types = {type(item).__name__ for item in array.flat}
    return " or ".join(sorted(types)) or "object", array.shape


def _describe(description: Any) -> str:
    if description is None:
        return "a single value"
    kind, details = description
    if kind == "dict":
        return f"a dict with the keys {sorted(details, key=str)}"
    if kind == "sequence":
        return f"a sequence of length {details}"
    return f"{kind} of shape {details}"


def _as_array(value: Any, path: str, step: int) -> np.ndarray:
    """Returns a leaf as an array of a fixed dtype, or of `str`, `bytes` or `None` objects."""
    # Strings are handled first, because NumPy would cut off their trailing NULs.
    if isinstance(value, str):
        return _object_scalar(str.__str__(value))
    if isinstance(value, bytes):
        return _object_scalar(bytes(value))
    if value is None:
        return _object_scalar(None)
    if isinstance(value, int) and not isinstance(value, (bool, np.generic)):
        if not -(2**63) <= value < 2**63:
            raise ValueError(
                f"{path}: step {step} holds the integer {value}, which does not fit int64; record "
                "it as a float, as bytes, or (below 2**64) as np.uint64."
            )
        return np.array(value, np.int64)
    is_number = isinstance(value, (bool, float, complex, np.generic))
    if isinstance(value, np.ma.MaskedArray) or not (is_number or hasattr(value, "__array__")):
        raise _unsupported(value, path, step)
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype == object and any(type(item) not in _EMPTY_VALUES for item in array.flat):
        raise _unsupported(value, path, step)
    if array.dtype.byteorder not in "=|":
        return array.astype(array.dtype.newbyteorder("="))
    return array


def _object_scalar(value: Any) -> np.ndarray:
    array = np.empty((), object)
    array[()] = value
    return array


def _unsupported(value: Any, path: str, step: int) -> TypeError:
    return TypeError(
        f"{path}: step {step} holds {type(value).__name__} {value!r:.100}; expected a number, a "
        "string, or an array of numbers or of strings."
    )


def zeros_like(array: np.ndarray) -> np.ndarray:
    """Returns zeros, or empty strings for strings; arrays of zeros for arrays of arrays."""
    if array.dtype != object:
        return np.zeros_like(array)
    zeros = np.empty(array.size, object)
    for index, item in enumerate(array.flat):
        is_array = isinstance(item, np.ndarray)
        zeros[index] = zeros_like(item) if is_array else _EMPTY_VALUES[type(item)]
    return zeros.reshape(array.shape)


def leaves(value: Any) -> Iterator[Any]:
    """Yields the leaves of dicts, lists and tuples, without `None`."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for child in value:
            yield from leaves(child)
    elif value is not None:
        yield value
