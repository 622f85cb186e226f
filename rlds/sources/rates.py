"""The frame rate (steps per second) in the metadata of datasets and episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlds_ecosystem.model.json_values import parsed

__all__ = ["rate_in", "rates_in", "with_rate"]

_RATE_KEYS = (
    *("fps", "control_frequency", "control_freq", "control_hz", "control_rate"),
    *("frequency_hz", "control_frequency_hz"),
)
_MAX_METADATA_DEPTH = 7


def rate_in(metadata: Any) -> float | None:
    """Returns the frame rate in metadata, in steps per second; None if there is none.

    Args:
      metadata: A dict, or the JSON of a dict.

    >>> rate_in({"lerobot": {"fps": 10}}), rate_in('{"control_freq": 20}'), rate_in({})
    (10.0, 20.0, None)
    """
    return next(rates_in(metadata), None)


def rates_in(metadata: Any, depth: int = 0) -> Iterator[float]:
    """Yields all frame rates in metadata, in steps per second, the outer ones first.

    Args:
      metadata: A dict, or the JSON of a dict.
      depth: The number of dicts around it.
    """
    if isinstance(metadata, str | bytes) and metadata[:1] in ("{", b"{"):
        metadata = parsed(metadata)
    if not isinstance(metadata, Mapping) or depth > _MAX_METADATA_DEPTH:
        return
    for name in _RATE_KEYS:
        value = metadata.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            continue
        if 0 < value < 1e6:
            yield float(value)
    for value in metadata.values():
        yield from rates_in(value, depth + 1)


def with_rate(metadata: Mapping[str, Any], rate: float) -> dict[str, Any]:
    """Adds a frame rate to metadata, where `rate_in` finds it.

    >>> with_rate({"robot": "panda"}, 10.0)
    {'robot': 'panda', 'fps': 10.0}
    """
    return {**metadata, **({} if rate_in(metadata) == rate else {"fps": rate})}
