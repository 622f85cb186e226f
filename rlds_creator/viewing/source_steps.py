"""The steps of an episode of any source, read by columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources import Source
from rlds.sources.episodes import Episodes
from rlds_creator.viewing.cache import Cache, size_of
from rlds_creator.viewing.steps import EpisodeSteps
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field, is_mark
from rlds_ecosystem.model.nests import at, leaves_at

__all__ = ["SourceSteps"]

# Values of fewer bytes are read as whole columns, all at once; of larger ones, so many at once.
_SMALL, _BLOCK = 4096, 4 << 20


class SourceSteps(EpisodeSteps):
    """The steps of an episode of any source.

    Args:
      episodes: The episodes.
      index: Which of them.
      cache: Keeps columns.
      name: Names the episodes in the cache.

    Raises:
      SourceError: The episode is damaged.
    """

    def __init__(self, episodes: Episodes, index: int, cache: Cache, name: str = "") -> None:
        self._episodes, self._index, self._cache = episodes, index, cache
        self._key = "source", name, index
        self.fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        self._read_about()
        self._small = [path for path, field in self.fields.items() if _is_small(field)]
        self._too_large: set[str] = set()

    def _read_about(self) -> None:
        """Finds out what is said of the episode as a whole."""
        episode = self._episodes.peek(self._index)
        self.num_steps = len(next((c for _, c in leaves_at(episode.steps, None)), ()))
        self.metadata = {"episode_id": episode.key, **episode.metadata}
        self.has_last_action = not episode.final_observation_known

    def _columns(self) -> Mapping[str, Any]:
        """The columns of small fields."""
        columns: Mapping[str, Any] = self._cache.get(
            (*self._key, "columns"), lambda: self._read(self._small)
        )
        return columns

    def _read(self, paths: Sequence[str], begin: int = 0, end: int | None = None) -> dict[str, Any]:
        """Columns by their paths, which share no memory with others."""
        known = [path for path in paths if isinstance(self.fields[path], Field)]
        end = self.num_steps if end is None else end
        found: dict[str, Any] = {}
        if known:
            columns = self._episodes.columns(self._index, known, begin, end, decode_images=False)
            found = {path: _own(at(columns, path)) for path in known}
        if len(known) < len(paths):  # Of which nothing is known but what is there.
            steps = self._episodes.episode(self._index).steps
            others = (path for path in paths if path not in found)
            found |= {path: _rows(at(steps, path), slice(begin, end)) for path in others}
        return found

    def _large(self, path: str, step: int) -> Any:
        """The value of a field of large values."""
        field = self.fields[path]
        source = self._episodes.source
        reads_spans = isinstance(source, Source) and source.can.reads_rows
        if not reads_spans and path not in self._too_large:
            # All is read in any case; it is kept if there is room for it.
            return _rows(self._cache.get((*self._key, path), lambda: self._whole(path)), step)
        size = 1 << 14
        if isinstance(field, Field) and not field.encoding:
            size = math.prod(side or 64 for side in field.shape) * field.column_dtype.itemsize
        length = max(1, min(64, _BLOCK // max(size, 1)))
        begin = step // length * length
        paths = [path, *([known_field(path)] if self._has_mark(path) else [])]
        end = min(begin + length, self.num_steps)
        rows = self._cache.get((*self._key, path, begin), lambda: self._read(paths, begin, end))
        return _rows(rows[path], step - begin)

    def _whole(self, path: str) -> Any:
        column = self._read([path])[path]
        if size_of(column) > self._cache.max_bytes // 2:
            self._too_large.add(path)
        return column

    @override
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        small = self._columns()

        def value(path: str) -> Any:
            mark = small.get(known_field(path)) if self._has_mark(path) else None
            if mark is not None and not mark[step]:
                return None
            return _rows(small[path], step) if path in small else self._large(path, step)

        return {path: value(path) for path in paths if path in self.fields}

    def _has_mark(self, path: str) -> bool:
        """Whether another field says in which steps a value is known."""
        return is_mark(self.fields.get(known_field(path)))

    @override
    def numbers(self, path: str, seconds: float) -> tuple[np.ndarray, bool]:
        return self.curves(path, range(self.num_steps))[:, 0].copy(), True

    @override
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        column = self._columns()[path]
        if len(steps) < self.num_steps:
            column = column[np.asarray(steps, np.intp)]
        return np.asarray(column, np.float64).reshape(len(steps), -1)


def _is_small(field: Any) -> bool:
    if not isinstance(field, Field) or field.encoding:
        return False
    size = math.prod(side or 64 for side in field.shape)
    return field.is_text or size * field.column_dtype.itemsize < _SMALL


def _own(column: Any) -> Any:
    """A column that keeps nothing else in memory."""
    is_view = isinstance(column, np.ndarray) and column.base is not None
    return column.copy() if is_view else column


def _rows(column: Any, rows: int | slice) -> Any:
    if isinstance(column, Mapping):  # Of a field that has fields of its own.
        return {name: _rows(inner, rows) for name, inner in column.items()}
    return column[rows]
