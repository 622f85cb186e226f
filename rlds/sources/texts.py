"""Texts, which come as `str` from some formats and as UTF-8 from others."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["as_text"]


def as_text(value: Any) -> str:
    """Returns a text of any of these forms, also if it is in an array without axes.

    >>> as_text(b"pick up"), as_text(np.array(b"pick up", object))
    ('pick up', 'pick up')
    """
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    return value.decode() if isinstance(value, bytes) else str(value)
