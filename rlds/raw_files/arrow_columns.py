"""Columns of Arrow tables as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import objects

__all__ = ["as_rows"]


def as_rows(array: Any) -> np.ndarray:
    """Converts an Arrow array of numbers, texts, bytes, or nested lists of one length.

    Raises:
      ValueError: Lists have different lengths, a value is missing, or values have another type.
    """
    types = import_extra("pyarrow").types
    shape = [len(array)]
    while types.is_list(array.type) or types.is_large_list(array.type) or _is_fixed(array):
        if _is_fixed(array):
            lengths = [array.type.list_size]
        else:
            lengths = array.value_lengths().unique().to_pylist()
        if len(lengths) > 1 or array.null_count:
            raise ValueError(f"lists of the lengths {lengths}, expected one length")
        shape.append(lengths[0] if lengths else 0)
        array = array.flatten()
    if array.null_count:
        raise ValueError("no value")
    kind = array.type
    if any(is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary)):
        return objects(array.to_pylist()).reshape(shape)
    if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)):
        raise ValueError(f"values of the Arrow type {kind}, expected numbers or text")
    return np.asarray(array.to_numpy(zero_copy_only=False)).reshape(shape)


def _is_fixed(array: Any) -> bool:
    return bool(import_extra("pyarrow").types.is_fixed_size_list(array.type))
