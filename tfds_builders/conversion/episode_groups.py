"""Episodes that are so small that it takes longer to look at each than to convert it: in groups.

A group is bounded: in episodes, in bytes, and in the time that it takes to come together, as what
is in it is lost if the process dies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlds.sources.source import SourceEpisode, StoredEpisode

__all__ = ["in_groups"]

_MAX_EPISODES = 256
_MAX_BYTES = 1 << 20
_MAX_SECONDS = 0.1


class _Form(NamedTuple):
    """What the episodes of a group have in common, and how many bytes they have.

    Attributes:
      kind: The same for episodes whose columns can be joined; None for one that stays alone, so
        that it need not wait in memory for the next one.
      size: The size of the columns.
    """

    kind: Hashable
    size: float


def in_groups(episodes: Iterable[Any]) -> Iterator[list[Any]]:
    """Yields episodes in lists: small ones of one form together, all others by themselves.

    An error of the source, or an interruption, comes after the episodes before it.
    """
    group: list[Any] = []
    kind: Hashable = None
    size = began = 0.0
    stream = iter(episodes)
    while True:
        try:
            episode = next(stream, None)
        except BaseException:
            if group:
                yield group
            raise
        form = _Form(None, math.inf) if episode is None else _form_of(episode)
        is_full = len(group) == _MAX_EPISODES or size + form.size > _MAX_BYTES
        if group and (is_full or form.kind != kind or time.monotonic() - began > _MAX_SECONDS):
            yield group
            group, size = [], 0.0
        if episode is None:
            return
        if form.kind is None:
            yield [episode]
            del episode  # It may be large, and the next one is read now.
            continue
        if not group:
            kind, began = form.kind, time.monotonic()
        group.append(episode)
        size += form.size


def _form_of(episode: Any) -> _Form:
    if isinstance(episode, StoredEpisode):
        return _Form("stored", len(episode.example))
    if not isinstance(episode, SourceEpisode):  # A damaged one.
        return _Form(None, math.inf)
    forms: list[Hashable] = []
    size = _measure(episode.steps, forms)
    return _Form(tuple(forms) if size <= _MAX_BYTES else None, size)


def _measure(columns: Any, forms: list[Hashable]) -> float:
    """Returns the bytes of columns, and appends what is the same if they can be joined.

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
