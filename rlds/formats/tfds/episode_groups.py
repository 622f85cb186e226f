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
    """Yields groups of episodes with their indices: small episodes of equal layout are grouped."""
    group: list[tuple[int, SourceEpisode]] = []
    group_layout: Hashable = None
    room = 0.0
    for item in episodes:
        layout: list[Hashable] = []
        size = _measure(item[1].steps, layout)
        if group and (
            len(group) == _MAX_GROUP_EPISODES or size > room or tuple(layout) != group_layout
        ):
            yield group
            group = []
        if not group:
            group_layout, room = tuple(layout), _MAX_GROUP_BYTES
        group.append(item)
        room -= size
        if room <= 0:  # A large episode ends its group.
            yield group
            group = []
        del item
    if group:
        yield group


def _measure(columns: Any, layout: list[Hashable]) -> float:
    """Returns the size of columns in bytes, and appends their dtypes and shapes to `layout`.

    The size is infinite if the columns cannot be concatenated with other columns.
    """
    if type(columns) is np.ndarray:
        layout.append((columns.dtype, columns.shape[1:]))
        if columns.dtype != object:
            return columns.nbytes
        items = columns.ravel().tolist()
        return sum(map(len, items)) if {str, bytes}.issuperset(map(type, items)) else math.inf
    if not isinstance(columns, Mapping):
        return math.inf
    size = 0.0
    for name, child in columns.items():
        layout.append(name)
        size += _measure(child, layout)
    layout.append(None)  # None marks the end of the dict.
    return size
