"""Metadata in the types of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlds_ecosystem.model.errors import UnsupportedTypeError, UnsupportedValueError

__all__ = ["parsed", "to_json"]


def parsed(text: Any) -> Any:
    """Parses a text that is a list or an object in JSON; returns other texts unchanged.

    >>> parsed('{"ArrowUp": 1}'), parsed("[so"), parsed("7")
    ({'ArrowUp': 1}, '[so', '7')
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            return text
    if not isinstance(text, str) or text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def to_json(value: Any, path: str) -> Any:
    """Returns a value in the types of JSON: arrays as lists, UTF-8 bytes as strings.

    Args:
      value: The value.
      path: The name of the value in error messages.

    Raises:
      UnsupportedTypeError: JSON cannot hold a type.
      UnsupportedValueError: Bytes are not UTF-8.

    >>> to_json({"size": np.array([1, 2]), "kind": b"arm"}, "metadata")
    {'size': [1, 2], 'kind': 'arm'}
    """
    if isinstance(value, Mapping):
        return {str(key): to_json(child, f"{path}/{key}") for key, child in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_json(child, f"{path}/{index}") for index, child in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as e:
            raise UnsupportedValueError(f"{path}: JSON cannot hold bytes that are not UTF-8") from e
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UnsupportedTypeError(f"{path}: JSON cannot hold a {type(value).__name__}: {value!r:.100}")
