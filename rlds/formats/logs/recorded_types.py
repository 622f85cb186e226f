"""Conversion of recorded values that differ from their specs in dtype or shape.

Environments declare float32 and return float64, and agents act with lists instead of arrays. A
field has the dtype and shape of its spec, widened to the recorded values, so that all episodes can
be read. Values are rounded only on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env import specs

from rlds_ecosystem.model.columns import cast_exact
from rlds_ecosystem.model.fields import Field, MismatchError, children_of

__all__ = ["match_declared", "widen_spec"]


def widen_spec(spec: Any, columns: Any) -> Any:
    """Widens a spec, which may be nested, to recorded values.

    Integers and booleans get the dtype of the spec, floats the wider dtype, axes of length 1 are
    ignored, and a list of numbers is an array.

    Args:
      spec: The spec of the environment.
      columns: Recorded values as columns.

    >>> widen_spec(specs.Array((2,), np.float32), np.zeros((5, 2)))
    Array(shape=(2,), dtype=dtype('float64'), name=None)
    >>> widen_spec(specs.Array((2,), np.float32), np.zeros((5, 1, 2), int))
    Array(shape=(2,), dtype=dtype('float32'), name=None)
    """
    if not isinstance(spec, specs.Array):
        children = dict(enumerate(columns)) if isinstance(columns, (list, tuple)) else columns
        children = children if isinstance(children, Mapping) else {}
        items = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        children = {key: widen_spec(child, children.get(key)) for key, child in items}
        return children if isinstance(spec, Mapping) else type(spec)(children.values())
    column = _as_array(columns)
    if column is None or spec.dtype.kind not in "biufc":
        return spec
    dtype = spec.dtype
    if column.dtype.kind not in "biu" or dtype.kind == "b":
        dtype = np.result_type(dtype, column)
    is_alike = _drop_ones(column.shape[1:]) == _drop_ones(spec.shape)
    shape = spec.shape if is_alike else column.shape[1:]
    if (shape, dtype) == (spec.shape, spec.dtype):
        return spec
    return specs.Array(shape, dtype, spec.name)


def match_declared(columns: Any, fields: Any, *, rounds: bool, path: str = "") -> Any:
    """Converts recorded columns to the dtypes and shapes of fields, if no value changes.

    Raises:
      MismatchError: Floats are wider than their field, and `rounds` is False.
    """
    if isinstance(fields, Mapping):
        if not isinstance(columns, (Mapping, list, tuple)):
            return columns
        return {
            name: match_declared(
                child, fields.get(name), rounds=rounds, path=f"{path}/{name}" if path else name
            )
            for name, child in children_of(columns, path).items()
        }
    column = _as_array(columns)
    if column is None or not isinstance(fields, Field) or fields.encoding:
        return columns
    dtype = fields.column_dtype
    if None not in fields.shape and _drop_ones(column.shape[1:]) == _drop_ones(fields.shape):
        column = column.reshape(len(column), *fields.shape)
    if column.dtype.kind in "biu" and dtype.kind in "iufc":
        return cast_exact(column, dtype, column)
    if not rounds and column.dtype == np.float64 and dtype == np.float32:
        raise MismatchError(
            "",
            path,
            "got float64, but the first and the last episode of the log hold float32. Open the log "
            "with float64='float32' (on the command line: -O float64=float32) to round it.",
        )
    return column


def _as_array(columns: Any) -> np.ndarray | None:
    """Returns a column of numbers, also for a list of columns; None for other values."""
    if isinstance(columns, (list, tuple)):
        children = [child for child in map(_as_array, columns) if child is not None]
        if len(children) < len(columns) or len({child.shape for child in children}) != 1:
            return None
        common = [cast_exact(child, np.result_type(*children)) for child in children]
        return None if any(child is None for child in common) else np.stack(common, axis=1)
    is_numeric = isinstance(columns, np.ndarray) and columns.dtype.kind in "biufc"
    return columns if is_numeric else None


def _drop_ones(shape: tuple[int | None, ...]) -> list[int | None]:
    return [size for size in shape if size != 1]
