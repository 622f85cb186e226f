"""How many steps there are in a second, as the metadata of datasets and episodes says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["rate_in"]

_NAMES = (
    *("fps", "control_frequency", "control_freq", "control_hz", "control_rate"),
    "frequency_hz",
)
_DEEPEST = 3


def rate_in(metadata: Any, depth: int = 0) -> float | None:
    """Returns the number of steps in a second that metadata speaks of, if it does.

    Args:
      metadata: A dict, or one as JSON.
      depth: How many dicts it is in.

    >>> rate_in({"lerobot": {"fps": 10}}), rate_in('{"control_freq": 20}'), rate_in({})
    (10.0, 20.0, None)
    """
    if isinstance(metadata, str | bytes) and metadata[:1] in ("{", b"{"):
        try:
            metadata = json.loads(metadata)
        except (ValueError, RecursionError):
            return None
    if not isinstance(metadata, Mapping) or depth > _DEEPEST:
        return None
    for name in _NAMES:
        value = metadata.get(name)
        if isinstance(value, int | float | np.number) and 0 < value < 1e6:
            return float(value)
    found = (rate_in(value, depth + 1) for value in metadata.values())
    return next((rate for rate in found if rate is not None), None)
