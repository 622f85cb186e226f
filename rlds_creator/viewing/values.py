"""Step values as JSON for browsers: without NaN and large integers, and of limited size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import tfds_files

__all__ = ["as_json", "finite_or_none"]

# The maximum size of a complete array, and the number of first elements in a summary.
_MAX_ELEMENTS, _FIRST_ELEMENTS = 128, 32
_MAX_CHARACTERS, _MAX_SHOWN_BYTES = 20_000, 32
# The maximum depth of nesting, and number of entries of lists and dicts; the rest is left out.
_MAX_DEPTH, _MAX_ENTRIES = 20, 1_000
# The largest exact integer in JavaScript.
_MAX_SAFE_INTEGER = 2**53


def as_json(value: Any) -> Any:
    r"""Returns a value of a step in the types of JSON.

    Large arrays become a summary. NaN and infinities become the strings "NaN", "Infinity" and
    "-Infinity", integers too large for JavaScript become strings of digits. Bytes in UTF-8 become
    text.

    >>> as_json({"a": np.array([1.5, np.nan], np.float32), "b": b"left", "c": np.int64(2**60)})
    {'a': [1.5, 'NaN'], 'b': 'left', 'c': '1152921504606846976'}
    >>> as_json(np.zeros((64, 64)))["shape"], as_json(b"\xff\x00")
    ([64, 64], {'bytes': 2, 'first': 'ff00'})
    """
    return _as_json(value, 0)


def _as_json(value: Any, depth: int) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        if value.size > _MAX_ELEMENTS:
            return _summary(value, depth)
        return [_as_json(item, depth + 1) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, tfds_files.RaggedColumn):
        value = [value[index] for index in range(min(len(value), _MAX_ENTRIES + 1))]
    if isinstance(value, Mapping | list | tuple):
        return _nest(value, depth)
    return _text(str(value))  # The value is a complex number, or of another type.


_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _nest(value: Any, depth: int) -> Any:
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        items = list(value.items())[:_MAX_ENTRIES]
        return {_text(str(key)): _as_json(item, depth + 1) for key, item in items}
    items = [_as_json(item, depth + 1) for item in value[:_MAX_ENTRIES]]
    return items if len(value) <= _MAX_ENTRIES else [*items, "…"]


def _text(text: str) -> str:
    if not text.isascii():  # A lone surrogate cannot be encoded.
        text = text.encode(errors="replace").decode()
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _bytes(value: bytes) -> Any:
    try:
        return _text(value.decode())
    except UnicodeDecodeError:
        return {"bytes": len(value), "first": value[:_MAX_SHOWN_BYTES].hex()}


def _summary(array: np.ndarray, depth: int) -> dict[str, Any]:
    first_elements = array.flat[:_FIRST_ELEMENTS]
    summary: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if array.dtype.kind in "biuf":
        # `fmin` and `fmax` ignore NaN.
        low, high = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
        summary |= {"minimum": _as_json(low, depth), "maximum": _as_json(high, depth)}
    return summary | {"first": [_as_json(item, depth + 1) for item in first_elements]}


def finite_or_none(value: float) -> float | None:
    """Returns a value of a curve; None for NaN and infinities.

    >>> finite_or_none(0.1), finite_or_none(float("inf"))
    (0.1, None)
    """
    return value if math.isfinite(value) else None
