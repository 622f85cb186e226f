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

_MAX_OPEN_TABLES = 8
# The maximum size of an episode whose checksum is verified; larger episodes take too long.
_MAX_CHECKED_BYTES = 32 << 20
# Values of fewer bytes are read as whole columns; larger values in blocks of this many bytes.
_SMALL_BYTES, _BLOCK_BYTES = 4096, 4 << 20
# A table, and the row of an episode in the table.
_Row: TypeAlias = tuple[feeds.Table, int] | None


class Tables:
    """The indexed tables of TFDS datasets in TFRecord files, opened when an episode is viewed.

    Args:
      source: A dataset, or a view of datasets.
    """

    def __init__(self, source: AnySource) -> None:
        self._source, self._lock = source, threading.Lock()
        self._open_cached = functools.lru_cache(_MAX_OPEN_TABLES)(_open_table)

    @classmethod
    def create(cls, source: AnySource) -> Tables | None:
        """Returns the tables of a source; None if its files are not local TFRecord files."""
        for dataset in (root.capabilities.examples for root in reading.roots(source)):
            if dataset is None or dataset.folder.file_format != "tfrecord":
                return None
            if not is_local(dataset.directory):
                return None
        return cls(source)

    def find(self, split: str, index: int) -> tuple[feeds.Table, int]:
        """Returns the table of an episode, and the row of the episode in the table.

        Raises:
          SourceError: The file is damaged, or has changed.
        """
        source, start, split_slice = self._source, index, f"{split}[{index}:{index + 1}]"
        location = stored_location(source, split, index)
        # A shard is read as a whole, because reading a slice of it costs the same.
        if location and (shards := location.source.capabilities.shards):
            source, split, index = location
            shard_starts = [*itertools.accumulate(shards(split), initial=0)]
            shard = bisect.bisect_right(shard_starts, index) - 1
            start, split_slice = shard_starts[shard], f"{split}[{shard}shard]"
        with self._lock:
            return self._open_cached(source, split_slice), index - start


def _open_table(source: AnySource, split_slice: str) -> feeds.Table:
    return feeds.open(Episodes(source, split_slice), decode_images=False, progress=False)


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
        self._indexed_fields: set[str] = set()
        if table_row is None or not self._read_from_table(*table_row):
            episode = episodes.peek(index)
            self.metadata = {"episode_id": episode.key, **episode.metadata}
            self.has_last_action = not episode.final_observation_known
            if table_row is None:
                # The length is unknown before reading if the episode has no flags.
                self.num_steps = len(episode) or len(episodes.episode(index))
        paths = (path for path, field in self.fields.items() if _size_of(field) < _SMALL_BYTES)
        self._small_fields = [path for path in paths if path not in self._indexed_fields]

    def _read_from_table(self, table: feeds.Table, row: int) -> bool:
        """Reads the number of steps from the table; returns False if it is small enough to peek."""
        self._table, self._row = table, row
        storage, summaries = table.storage, table.summaries
        self._indexed_fields = {path for path in table.fields if storage.is_random(path)}
        self.num_steps = int(summaries.num_steps[row])
        if sum(map(storage.bytes_of_step, storage.fields)) * self.num_steps <= _MAX_CHECKED_BYTES:
            return False
        paths = self._episodes.source.fields.episode
        columns = ((path, storage.metadata_column(path)) for path in paths)
        self.metadata = {path: column[row] for path, column in columns if column is not None}
        self.has_last_action = not summaries.final_observation_known[row]
        return True

    @override
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        paths = [path for path in paths if path in self.fields]
        masks = {path: known_field(path) for path in paths if self._has_mask(path)}
        is_known = self._read_values(step, {*masks.values()})
        present_paths = [path for path in paths if path not in masks or is_known[masks[path]]]
        return dict.fromkeys(paths) | self._read_values(step, present_paths)

    def _has_mask(self, path: str) -> bool:
        """True if a mask field marks the steps that have a value."""
        return is_known_mask(self.fields.get(known_field(path)))

    def _read_values(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        indexed_paths = [path for path in paths if path in self._indexed_fields]
        values = {path: rows[0] for path, rows in self._take_steps([step], indexed_paths).items()}
        return values | {path: self._read_value(path, step) for path in paths if path not in values}

    def _take_steps(self, steps: Sequence[int], paths: Sequence[str]) -> dict[str, np.ndarray]:
        if not paths:
            return {}
        episodes = np.full(len(steps), self._row, np.int64)
        return self._table.take(episodes, np.asarray(steps, np.int64), paths)

    def _read_value(self, path: str, step: int) -> Any:
        if path in self._small_fields:
            return self._read_small_columns()[path][step]
        length = max(1, min(64, _BLOCK_BYTES // max(_size_of(self.fields[path]), 1)))
        start = step // length * length
        key = (*self._key, path, start)
        block = self._cache.get(key, lambda: self._read_block(path, start, start + length))
        return _take_rows(block[path], step - start)

    def _read_small_columns(self) -> Any:
        """Returns a dict of the columns of small fields."""
        return self._cache.get(self._key, lambda: self._read_columns(self._small_fields))

    def _read_block(self, path: str, start: int, end: int) -> dict[str, Any]:
        """Returns a block of rows of a column of large values."""
        source = self._episodes.source
        if isinstance(source, Source) and source.capabilities.reads_rows:
            masks = [known_field(path)] if self._has_mask(path) else []
            return self._read_columns([path, *masks], start, end)
        # The source reads the complete column in any case; it is cached if it fits.
        column = self._cache.get((*self._key, path), lambda: self._read_columns([path]))[path]
        return {path: _copy(_take_rows(column, slice(start, end)))}

    def _read_columns(self, paths: Sequence[str], start: int = 0, end: int | None = None) -> Any:
        """Returns a dict of copies of columns, by path."""
        if isinstance(self.fields[paths[0]], Field):
            columns = self._episodes.columns(self._index, paths, start, end, decode_images=False)
            return {path: _copy(lookup(columns, path)) for path in paths}
        steps = self._episodes.episode(self._index).steps  # Fields without a type.
        return {path: _take_rows(lookup(steps, path), slice(start, end)) for path in paths}

    @override
    def scalars(self, path: str, seconds: float) -> tuple[np.ndarray, bool]:
        return self.curves(path, range(self.num_steps))[:, 0], True

    @override
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        columns = self._take_steps(steps, [path] if path in self._indexed_fields else [])
        rows = np.asarray(steps, np.int64)
        column = columns[path] if columns else self._read_small_columns()[path][rows]
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
    if isinstance(column, Mapping):  # The field is nested.
        return {name: _take_rows(inner, rows) for name, inner in column.items()}
    return column[rows]
