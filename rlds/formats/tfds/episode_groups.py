"""Groups of small episodes, which are encoded together to save overhead."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rlds.sources.source import SourceEpisode

__all__ = ["in_groups"]

_MAX_GROUP_EPISODES = 256
_MAX_GROUP_BYTES = 1 << 20


def in_groups(
    episodes: Iterable[tuple[int, SourceEpisode]],
) -> Iterator[list[tuple[int, SourceEpisode]]]:
    """Yields lists of numbered episodes: small episodes of equal form are grouped."""
    group: list[tuple[int, SourceEpisode]] = []
    kind: Hashable = None
    room = 0.0
    for item in episodes:
        forms: list[Hashable] = []
        size = _measure(item[1].steps, forms)
        if group and (len(group) == _MAX_GROUP_EPISODES or size > room or tuple(forms) != kind):
            yield group
            group = []
        if not group:
            kind, room = tuple(forms), _MAX_GROUP_BYTES
        group.append(item)
        room -= size
        if room <= 0:  # A large episode does not wait in memory.
            yield group
            group = []
        del item
    if group:
        yield group


def _measure(columns: Any, forms: list[Hashable]) -> float:
    """Returns the bytes of columns, and appends the properties that must agree to join them.

    They are infinitely many if the columns cannot be joined with others.
    """
    if type(columns) is np.ndarray:
        forms.append((columns.dtype, columns.shape[1:]))
        if columns.dtype != object:
            return columns.nbytes
        items = columns.ravel().tolist()
        return sum(map(len, items)) if {str, bytes}.issuperset(map(type, items)) else math.inf
    if not isinstance(columns, Mapping):
        return math.inf
    size = 0.0
    for name, child in columns.items():
        forms.append(name)
        size += _measure(child, forms)
    forms.append(None)  # The end of the dict.
    return size
