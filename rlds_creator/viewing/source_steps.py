"""The steps of an episode of any source: single steps if possible, else by columns."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

import rlds
from rlds import feeds
from rlds.sources import Source, reading
from rlds.sources.episodes import Episodes
from rlds.sources.source import AnySource
from rlds.sources.view import stored_location
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.steps import EpisodeSteps
from rlds_ecosystem.files.stores import is_local
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field, is_known_mask
from rlds_ecosystem.model.nests import leaves_at, lookup

__all__ = ["SourceSteps", "Tables"]

_MAX_OPEN = 8
# The maximum size of an episode whose checksum is verified; larger ones take too long.
_MAX_CHECKED_BYTES = 32 << 20
# Values of fewer bytes are read as whole columns; larger values in blocks of this many bytes.
_SMALL_BYTES, _BLOCK_BYTES = 4096, 4 << 20
# A table, and the row of an episode in it.
_Row: TypeAlias = tuple[feeds.Table, int] | None


class Tables:
    """The indexed tables of TFDS datasets in TFRecord files, opened when an episode is viewed.

    Args:
      source: A dataset, or a view of datasets.
    """

    def __init__(self, source: AnySource) -> None:
        self._source, self._lock = source, threading.Lock()
        self._open = functools.lru_cache(_MAX_OPEN)(_table)

    @classmethod
    def create(cls, source: AnySource) -> Tables | None:
        """Returns the tables of a source; None if its files are not local TFRecord files."""
        stored = [base.can.examples for base in reading.roots(source)]
        has_tables = all(
            x and is_local(x.directory) and x.folder.file_format == "tfrecord" for x in stored
        )
        return cls(source) if has_tables else None

    def find(self, split: str, index: int) -> tuple[feeds.Table, int]:
        """Returns the table of an episode, and the row of the episode in the table.

        Raises:
          SourceError: The file is damaged, or has changed.
        """
        source, first, name = self._source, index, f"{split}[{index}:{index + 1}]"
        stored = stored_location(source, split, index)
        if stored and (shards := stored.source.can.shards):  # The complete file costs the same.
            source, split, index = stored
            begins = [*itertools.accumulate(shards(split), initial=0)]
            shard = bisect.bisect_right(begins, index) - 1
            first, name = begins[shard], f"{split}[{shard}shard]"
        with self._lock:
            return self._open(source, name), index - first


def _table(source: AnySource, name: str) -> feeds.Table:
    return feeds.open(Episodes(source, name), decode_images=False, progress=False)


class SourceSteps(EpisodeSteps):
    """The steps of an episode of any source.

    Args:
      episodes: The episodes.
      index: The index of the episode.
      cache: The cache of columns.
      name: The name of the episodes in the cache.
      table_row: The table of the episode and its row, see `Tables`; None without a table.

    Raises:
      SourceError: The episode is damaged.
    """

    def __init__(
        self, episodes: Episodes, index: int, cache: Cache, name: str = "", table_row: _Row = None
    ) -> None:
        self._episodes, self._index, self._cache = episodes, index, cache
        self._key = "source", name, index
        self.fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        self._direct: set[str] = set()
        if table_row is None or not self._read_facts(*table_row):
            episode = episodes.peek(index)
            self.metadata = {"episode_id": episode.key, **episode.metadata}
            self.has_last_action = not episode.final_observation_known
            if table_row is None:
                # The length is unknown before reading if the episode has no flags.
                self.num_steps = len(episode) or len(episodes.episode(index))
        small = (path for path, field in self.fields.items() if _size_of(field) < _SMALL_BYTES)
        self._small = [path for path in small if path not in self._direct]

    def _read_facts(self, table: feeds.Table, row: int) -> bool:
        """Reads facts of an episode from its table; returns False if it is small enough to peek."""
        self._table, self._row = table, row
        storage, outlines = table.storage, table.outlines
        self._direct = {p for p in self.fields if p in table.fields and storage.is_random(p)}
        self.num_steps = int(outlines.num_steps[row])
        if sum(map(storage.bytes_of_step, storage.fields)) * self.num_steps <= _MAX_CHECKED_BYTES:
            return False
        paths = self._episodes.source.fields.episode
        columns = {path: storage.metadata_column(path) for path in paths}
        self.metadata = {path: c[row] for path, c in columns.items() if c is not None}
        self.has_last_action = not outlines.final_observation_known[row]
        return True

    @override
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        paths = [path for path in paths if path in self.fields]
        marks = {path: known_field(path) for path in paths if self._has_mark(path)}
        is_known = self._values(step, {*marks.values()})
        present = [path for path in paths if path not in marks or is_known[marks[path]]]
        return dict.fromkeys(paths) | self._values(step, present)

    def _has_mark(self, path: str) -> bool:
        """True if a mask field marks the steps that have a value."""
        return is_known_mask(self.fields.get(known_field(path)))

    def _values(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        direct = [path for path in paths if path in self._direct]
        values = {path: rows[0] for path, rows in self._take([step], direct).items()}
        return values | {path: self._value(path, step) for path in paths if path not in values}

    def _take(self, steps: Sequence[int], paths: Sequence[str]) -> dict[str, np.ndarray]:
        if not paths:
            return {}
        episodes = np.full(len(steps), self._row, np.int64)
        return self._table.take(episodes, np.asarray(steps, np.int64), paths)

    def _value(self, path: str, step: int) -> Any:
        if path in self._small:
            return self._columns()[path][step]
        length = max(1, min(64, _BLOCK_BYTES // max(_size_of(self.fields[path]), 1)))
        begin = step // length * length
        key = (*self._key, path, begin)
        block = self._cache.get(key, lambda: self._block(path, begin, begin + length))
        return _take_rows(block[path], step - begin)

    def _columns(self) -> Mapping[str, Any]:
        """Returns the columns of small fields."""
        columns: Mapping[str, Any] = self._cache.get(self._key, lambda: self._read(self._small))
        return columns

    def _block(self, path: str, begin: int, end: int) -> dict[str, Any]:
        """Returns a block of rows of a column of large values."""
        source = self._episodes.source
        if isinstance(source, Source) and source.can.reads_rows:
            marks = [known_field(path)] if self._has_mark(path) else []
            return self._read([path, *marks], begin, end)
        # The source reads the complete column in any case; it is cached if it fits.
        column = self._cache.get((*self._key, path), lambda: self._read([path]))[path]
        return {path: _copy(_take_rows(column, slice(begin, end)))}

    def _read(self, paths: Sequence[str], begin: int = 0, end: int | None = None) -> dict[str, Any]:
        """Returns copies of columns, by path."""
        if isinstance(self.fields[paths[0]], Field):
            columns = self._episodes.columns(self._index, paths, begin, end, decode_images=False)
            return {path: _copy(lookup(columns, path)) for path in paths}
        steps = self._episodes.episode(self._index).steps  # Fields without a type.
        return {path: _take_rows(lookup(steps, path), slice(begin, end)) for path in paths}

    @override
    def scalars(self, path: str, seconds: float) -> tuple[np.ndarray, bool]:
        return self.curves(path, range(self.num_steps))[:, 0], True

    @override
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        columns = self._take(steps, [path] if path in self._direct else [])
        column = columns[path] if columns else self._columns()[path][np.asarray(steps, np.int64)]
        return np.asarray(column, np.float64).reshape(len(steps), -1)


def _size_of(field: Any) -> int:
    """Returns the approximate bytes of a value; 0 for text, which is read as one column."""
    if not isinstance(field, Field) or field.encoding:
        return 1 << 14
    size = math.prod(side or 64 for side in field.shape) * field.column_dtype.itemsize
    return 0 if field.is_text else size


def _copy(column: Any) -> Any:
    """Returns a copy of a column, so that the buffer of which it is a view can be freed."""
    is_view = isinstance(column, np.ndarray) and column.base is not None
    return column.copy() if is_view else column


def _take_rows(column: Any, rows: int | slice) -> Any:
    if isinstance(column, Mapping):  # A nested field.
        return {name: _take_rows(inner, rows) for name, inner in column.items()}
    return column[rows]
