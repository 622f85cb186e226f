"""Conversion of texts from strings, UTF-8 and arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from rlds_ecosystem.model.columns import objects

__all__ = ["as_text", "as_texts", "as_utf8", "is_instruction", "json_in"]

# Names of fields with an instruction.
_INSTRUCTION_NAMES = (
    *("language_instruction", "natural_language_instruction", "instruction", "language"),
    *("task", "task_description", "prompt"),
)


def as_text(value: Any, errors: str = "strict") -> str:
    """Returns a text as `str`, from `str`, UTF-8 or an array without axes.

    Args:
      value: The text.
      errors: The handling of bytes that are not UTF-8, see `bytes.decode`.

    Raises:
      UnicodeDecodeError: The bytes are not UTF-8.

    >>> as_text(b"pick up"), as_text(np.array(b"pick up", object))
    ('pick up', 'pick up')
    """
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    return value.decode(errors=errors) if isinstance(value, bytes) else str(value)


def as_texts(values: np.ndarray) -> np.ndarray:
    """Returns an array of `str` from strings and UTF-8 bytes."""
    texts = (item.decode() if isinstance(item, bytes) else item for item in values.flat)
    return objects(texts).reshape(values.shape)


def as_utf8(values: Iterable[Any]) -> np.ndarray:
    """Returns strings and UTF-8 bytes as a column of `bytes`.

    >>> as_utf8(["pick up", b"put down"])
    array([b'pick up', b'put down'], dtype=object)
    """
    texts: dict[Any, bytes] = {}  # Equal texts share one object.
    items = (texts.setdefault(t, t.encode() if isinstance(t, str) else bytes(t)) for t in values)
    return objects(items)


def json_in(text: Any, field: str) -> dict[str, Any]:
    """Parses a JSON object; an empty text becomes an empty object.

    Args:
      text: The text, in any form of `as_text`.
      field: The name of the field with the text, for the error.

    Raises:
      ValueError: The text is not a JSON object.
    """
    try:
        return dict(json.loads(as_text(text) or "{}"))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{field}: got {as_text(text)!r:.100}, expected JSON: {error}") from None


def is_instruction(path: str) -> bool:
    """Whether a field is an instruction, by its name."""
    return path.rsplit("/", 1)[-1] in _INSTRUCTION_NAMES
