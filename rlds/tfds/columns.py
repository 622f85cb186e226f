"""Conversion of steps in any layout to columns in the exact types of a dataset's features."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import tfds_files
from rlds.transformations import _layouts
from rlds_ecosystem.model.columns import fits
from rlds_ecosystem.model.nests import named_leaves
from tfds_files import Feature, Features, Image, RaggedColumn, Tensor

__all__ = ["fit_steps", "fit_value"]

_BATCH_SIZE = 1024


def fit_steps(steps: Any, features: Feature, episode: str) -> dict[str, Any]:
    """Returns steps as columns for an `ExampleEncoder`.

    Numbers are converted to the dtype of their feature if it can hold their value; floats may be
    rounded to the precision of the feature.

    Args:
      steps: A dataset of steps, one dict of columns, or any iterable of steps.
      features: The features of a step.
      episode: The episode, for error messages.

    Raises:
      ValueError: Fields are missing or unexpected, or a value does not fit its feature. The message
        names the episode, the step and the field.
    """
    if isinstance(steps, tf.data.Dataset):
        steps = _read(steps)
    if not isinstance(steps, Mapping):
        steps = list(steps)
        if not steps:
            return dict(_create_empty(features))
        return dict(_fit(features, steps, _Location(episode, "steps", np.arange(len(steps)))))
    lengths = {path: _count_rows(leaf) for path, leaf in named_leaves({"steps": steps})}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{episode}: the columns of steps need equal lengths, got {lengths}")
    num_steps = next(iter(lengths.values()), None)
    if num_steps is None:
        raise ValueError(f"{episode}: the steps have no fields")
    location = _Location(episode, "steps", np.arange(num_steps))
    columns: dict[str, Any] = _fit(features, steps, location)
    return columns


def fit_value(value: Any, feature: Any, name: str, episode: str) -> Any:
    """Returns a single value, such as the metadata of an episode, in the type of its feature.

    Args:
      value: The value.
      feature: The feature of the value.
      name: The name of the field.
      episode: The episode, for error messages.

    Raises:
      ValueError: The value does not fit; the message names the episode and the field.
    """
    return _first_row(_fit(feature, [value], _Location(episode, name, None)))


class _Location:
    """The location of rows for error messages, with the optional step index of each row."""

    def __init__(self, episode: str, path: str, steps: np.ndarray | None) -> None:
        self.episode = episode
        self.path = path
        self.steps = steps

    def __truediv__(self, name: str) -> "_Location":
        return _Location(self.episode, f"{self.path}/{name}", self.steps)

    def of_elements(self, lengths: np.ndarray) -> "_Location":
        """Returns the location of the elements, if the rows are sequences."""
        steps = None if self.steps is None else np.repeat(self.steps, lengths)
        return _Location(self.episode, self.path, steps)

    def error(self, row: int | None, actual: str, expected: str) -> ValueError:
        """Returns the error of an unexpected row; a row of None stands for all rows."""
        step = "" if self.steps is None or row is None else f", step {self.steps[row]}"
        return ValueError(f"{self.episode}{step}, {self.path}: got {actual}, expected {expected}")


def _fit(feature: Any, rows: Any, location: _Location) -> Any:
    """Returns rows as a column, or a dict of columns, of a feature.

    Args:
      feature: The feature of a row.
      rows: A list of rows, a column, or a dict of these.
      location: The location of the rows.
    """
    if isinstance(feature, Features):
        children = _split_fields(list(feature), rows, location)
        return {name: _fit(feature[name], children[name], location / name) for name in feature}
    rows = _as_rows(rows)
    if isinstance(rows, list) and not rows:
        return _create_empty(feature)
    if isinstance(feature, tfds_files.Sequence) and not isinstance(feature, tfds_files.Dataset):
        return _fit_sequences(feature, rows, location)
    if isinstance(rows, RaggedColumn):
        rows = np.split(rows.values, np.cumsum(rows.lengths))[:-1]
    if isinstance(feature, Tensor) and not feature.optional:
        return _fit_tensors(feature, rows, location)
    if isinstance(feature, Image):
        return _fit_images(feature, rows, location)
    return rows


def _split_fields(names: list[str], rows: Any, location: _Location) -> dict[str, Any]:
    """Converts dicts of rows to a dict of columns."""
    expected = f"the fields {names}"
    if isinstance(rows, Mapping):
        if rows.keys() != set(names):
            raise location.error(None, _compare(rows, names), expected)
        return dict(rows)
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping) or row.keys() != set(names):
            actual = _compare(row, names) if isinstance(row, Mapping) else _describe(row)
            raise location.error(index, actual, expected)
    return {name: [row[name] for row in rows] for name in names}


def _compare(fields: Iterable[str], expected: Iterable[str]) -> str:
    missing, unknown = sorted(set(expected) - set(fields)), sorted(set(fields) - set(expected))
    return " and ".join(
        f"{kind} fields {names}"
        for kind, names in (("missing", missing), ("unknown", unknown))
        if names
    )


def _fit_sequences(feature: Any, rows: Any, location: _Location) -> Any:
    inner = feature.feature
    if isinstance(inner, tfds_files.Sequence):
        return rows  # TFDS encodes nested sequences.
    if isinstance(inner, Features):
        if not isinstance(rows, Mapping):
            if not all(isinstance(row, Mapping) for row in rows):
                return rows
            rows = _split_fields(list(inner), rows, location)
        rows = _split_fields(list(inner), rows, location)
        return {
            name: _fit_sequences(
                dataclasses.replace(feature, feature=inner[name]),
                _as_rows(rows[name]),
                location / name,
            )
            for name in inner
        }
    if isinstance(rows, np.ndarray) and rows.dtype != object and rows.ndim >= 2:
        shape = rows.shape
        rows = RaggedColumn(
            rows.reshape(shape[0] * shape[1], *shape[2:]), np.full(shape[0], shape[1])
        )
    elif not isinstance(rows, RaggedColumn):
        for index, row in enumerate(rows):
            if isinstance(row, str | bytes) or not hasattr(row, "__len__"):
                raise location.error(index, _describe(row), "a sequence")
        lengths = np.array([len(row) for row in rows], np.int64)
        rows = RaggedColumn([element for row in rows for element in row], lengths)
    values = rows.values
    if not len(values) and len(rows.lengths):
        values = _create_empty(inner)
    return RaggedColumn(_fit(inner, values, location.of_elements(rows.lengths)), rows.lengths)


def _fit_tensors(feature: Tensor, rows: Any, location: _Location) -> Any:
    dtype = feature.dtype
    expected = f"{_name_dtype(dtype)} of shape {feature.shape}"
    column = _as_column(rows, dtype)
    if column is None:  # The shapes of the rows differ.
        arrays = [_as_array(row, dtype) for row in rows]
        for index, array in enumerate(arrays):
            if not fits(array.shape, feature.shape):
                raise location.error(index, _describe(array), expected)
        if feature.encoding == "none":
            first = next(i for i, a in enumerate(arrays) if a.shape != arrays[0].shape)
            raise location.error(
                first,
                _describe(arrays[first]),
                f"the shape of the first step, {arrays[0].shape}, because TFDS stores different "
                "shapes only in a Sequence, or in a Tensor with an encoding",
            )
        return [
            _convert(array[np.newaxis], dtype, expected, _row(location, index))[0]
            for index, array in enumerate(arrays)
        ]
    if isinstance(rows, list) and column.dtype.kind in "SUO" and dtype.kind != "O":
        for index, row in enumerate(rows):  # NumPy converts mixed rows to strings or objects.
            if np.asarray(row).dtype.kind in "SUO":
                raise location.error(index, _describe(row), expected)
    if not fits(column.shape[1:], feature.shape):
        actual = f"{_name_dtype(column.dtype)} of shape {column.shape[1:]}"
        raise location.error(None, actual, expected)
    return _convert(column, dtype, expected, location)


def _fit_images(feature: Image, rows: Any, location: _Location) -> Any:
    expected = f"{feature.dtype.name} of shape {feature.shape}"
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "OSU":
        rows = rows.tolist()
    if isinstance(rows, list):
        if not all(isinstance(row, np.ndarray) or tf.is_tensor(row) for row in rows):
            return rows  # Other inputs of TFDS, such as encoded images, pass unchanged.
        rows = [np.asarray(row) for row in rows]
    for index, row in enumerate(rows):
        if row.dtype != feature.dtype or not fits(row.shape, feature.shape):
            raise location.error(index, _describe(row), expected)
    if isinstance(rows, list) and len({row.shape for row in rows}) == 1:
        return np.stack(rows)
    return rows


def _convert(column: np.ndarray, dtype: np.dtype, expected: str, location: _Location) -> np.ndarray:
    """Converts a column to another dtype, which must hold all values exactly."""
    if dtype.kind == "O":
        column = column.astype(object) if column.dtype.kind in "SU" else column
        is_text = np.frompyfunc(lambda item: isinstance(item, str | bytes), 1, 1)
        invalid = ~is_text(column).astype(bool) if column.dtype.kind == "O" else None
        converted = column
    elif column.dtype == dtype:
        return column
    else:
        converted, invalid = _convert_numbers(column, dtype)
    if invalid is None:
        invalid = np.ones(column.shape, bool)
    if invalid.any():
        index = tuple(np.argwhere(invalid)[0])
        value = column[index]
        value = value.item() if isinstance(value, np.generic) else value
        raise location.error(int(index[0]), f"{value!r:.100} ({type(value).__name__})", expected)
    return converted


def _convert_numbers(column: np.ndarray, dtype: np.dtype) -> tuple[Any, np.ndarray | None]:
    """Converts numbers to another dtype; also returns a mask of the values that do not fit."""
    if column.dtype.kind not in "biuf" or column.dtype == object:
        column = column.astype(np.float64) if column.dtype.name == "bfloat16" else column
        if column.dtype.kind not in "fc" or (column.dtype.kind == "c" and dtype.kind != "c"):
            return None, None
    with np.errstate(over="ignore", invalid="ignore"):
        converted = column.astype(dtype)
        if dtype.kind in "biu":
            # Compares the signs too, as NumPy compares int64 and uint64 after rounding to float64.
            changed = converted.astype(column.dtype) != column
            if dtype.kind != "b" and column.dtype.kind != "b":
                changed |= (converted < 0) != (column < 0)
            return converted, changed
        if column.dtype.kind in "biu":
            return converted, converted.astype(column.dtype) != column
        wide = converted.astype(np.complex128 if dtype.kind == "c" else np.float64)
        return converted, np.isfinite(wide) != np.isfinite(column)


def _read(steps: tf.data.Dataset) -> Any:
    """Reads nested steps: as columns if their shapes are fixed, otherwise one by one."""
    spec = steps.element_spec
    if isinstance(spec, Mapping) and _layouts.is_static(spec):
        batches = list(steps.batch(_BATCH_SIZE).as_numpy_iterator())
        if batches:
            return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *batches)
        return []
    return list(steps.as_numpy_iterator())


def _create_empty(feature: Any) -> Any:
    """Returns an empty column of a feature."""
    if isinstance(feature, Features):
        return {name: _create_empty(child) for name, child in feature.items()}
    if isinstance(feature, Tensor | Image):
        return np.zeros((0, *(size or 0 for size in feature.shape)), feature.dtype)
    return []


def _as_rows(rows: Any) -> Any:
    """Converts tensors in rows to arrays."""
    if isinstance(rows, tf.RaggedTensor):
        if rows.ragged_rank > 1:
            return rows.to_list()
        return RaggedColumn(rows.values.numpy(), rows.row_lengths().numpy())
    if tf.is_tensor(rows):
        return rows.numpy()
    if isinstance(rows, tuple):
        return list(rows)
    if isinstance(rows, list) and any(hasattr(row, "to_list") for row in rows):
        return [row.to_list() if hasattr(row, "to_list") else row for row in rows]
    return rows


def _as_column(rows: Any, dtype: np.dtype) -> np.ndarray | None:
    """Returns rows as one array; None if their shapes differ."""
    if isinstance(rows, np.ndarray):
        return rows
    if dtype.kind == "O":
        arrays = [_as_array(row, dtype) for row in rows]
        return np.stack(arrays) if len({array.shape for array in arrays}) == 1 else None
    try:
        return np.asarray(rows)
    except ValueError:
        return None


def _as_array(value: Any, dtype: np.dtype) -> np.ndarray:
    """Returns a value as an array; strings as objects, as NumPy strings drop trailing zeros."""
    if tf.is_tensor(value):
        value = value.numpy()
    if dtype.kind == "O" and isinstance(value, str | bytes):
        array = np.empty((), object)
        array[()] = value
        return array
    return np.asarray(value, object if dtype.kind == "O" else None)


def _row(location: _Location, index: int) -> _Location:
    steps = None if location.steps is None else location.steps[index : index + 1]
    return _Location(location.episode, location.path, steps)


def _first_row(columns: Any) -> Any:
    if isinstance(columns, RaggedColumn):
        return columns.values
    if isinstance(columns, Mapping):
        return {name: _first_row(child) for name, child in columns.items()}
    return columns[0]


def _count_rows(leaf: Any) -> int | None:
    if isinstance(leaf, tf.RaggedTensor):
        return int(leaf.nrows())
    if isinstance(leaf, str | bytes) or not hasattr(leaf, "__len__"):
        return None
    try:
        return len(leaf)
    except TypeError:  # A scalar has no length.
        return None


def _name_dtype(dtype: np.dtype) -> str:
    return "string" if dtype.kind == "O" else dtype.name


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{_name_dtype(value.dtype)} of shape {value.shape}"
    return f"{type(value).__name__} {value!r:.100}"
