"""Memory-mapped storage of a feed: random access to rows of TFRecord files of a TFDS dataset.

The index of a shard (`tfds_files.ShardIndex`) has the locations of the values of an episode. If a
field has the same size in every step, the offset of a row is computed. Other fields (compressed
arrays, integers of variable length) are read by whole episodes.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

import rlds
import tfds_files
from rlds.feeds._core import Buffers
from rlds.feeds._pure import UnreadableError
from rlds.feeds.storage import (
    CachedStorage,
    FileRows,
    Lengths,
    Progress,
    ReadOptions,
    Rows,
    Storage,
    hash_of,
    reopen,
)
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import arrays
from rlds.sources.episodes import Episodes
from rlds.sources.source import SourceError
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.mapping import map_file
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at
from tfds_files.indexing import index_shard, open_indexes
from tfds_files.shard_index import NOT_DIRECT, ShardIndex

__all__ = ["MappedStorage"]

# Slow checks of file states, such as thousands of files or network drives, take at most this
# fraction of the time.
_MIN_CHECK_SECONDS, _MAX_CHECK_FRACTION = 0.001, 0.05
# Up to this number of files, checking all files is as fast as finding the needed files.
_MAX_CHECKED_FILES = 4
# Up to this number of blocks per row, checking all blocks is as fast as finding the needed blocks.
_MAX_BLOCKS_PER_ROW = 16
# The value of an unknown last flag in an index.
_UNKNOWN_FLAG = 255


class MappedFiles:
    """Memory-mapped TFRecord files, read-only.

    Args:
      indexes: The indexes of the files.
      features: The features of their examples.
      copies: Local copies of remote files: missing blocks are fetched.

    Raises:
      SourceChangedError: A file has changed since it was indexed.
      OSError: A file cannot be read.
    """

    def __init__(
        self,
        indexes: Sequence[ShardIndex],
        features: tfds_files.Features,
        copies: stores.CopiedObjects | None = None,
    ) -> None:
        self._indexes, self._features, self.copies = indexes, features, copies
        maps = [map_file(index.path) for index in indexes]
        self._states = [_read_file_state(state) for _, state in maps]
        for index, (data, state) in zip(indexes if copies is None else (), maps):
            if (len(data), state.st_mtime_ns) != (index.file_size, index.modified_ns):
                difference = f"{len(data)} bytes, but {index.file_size} when it was indexed"
                raise SourceChangedError(difference, file=index.path)
        self._buffers = Buffers([np.frombuffer(data, np.uint8) for data, _ in maps])
        self._next_check, self._seconds_per_file = 0.0, math.inf

    def gather_steps(
        self,
        file_ids: np.ndarray,
        first_offsets: np.ndarray,
        episodes: np.ndarray,
        steps: np.ndarray,
        stride: int,
        width: int,
        out: np.ndarray,
    ) -> None:
        """Copies rows, see `Buffers.gather_steps`; call `check` afterwards."""

        def gather() -> None:
            self._buffers.gather_steps(file_ids, first_offsets, episodes, steps, stride, width, out)

        if self.copies is None:
            self._read(gather)
        else:
            offsets = first_offsets[episodes] + steps * stride
            self._read_copies(gather, file_ids, offsets, offsets + width)

    def copy_ranges(
        self, file_ids: np.ndarray, start_offsets: np.ndarray, end_offsets: np.ndarray
    ) -> list[np.ndarray]:
        """Copies byte ranges of the files to arrays of uint8; call `check` afterwards."""
        sizes = end_offsets - start_offsets
        widths, counts = np.unique(sizes, return_counts=True)
        memory = arrays.empty([int(sizes.sum())], np.uint8)
        copies: list[np.ndarray] = [memory] * len(sizes)
        # Ranges of equal size are copied at once.
        row_groups = np.split(np.argsort(sizes, kind="stable"), np.cumsum(counts)[:-1])
        chunks = np.split(memory, np.cumsum(counts * widths)[:-1])
        groups = []
        for rows, chunk, width in zip(row_groups, chunks, widths.tolist()):
            groups.append((rows, chunk.reshape(len(rows), width)))
            for row, copy in zip(rows.tolist(), groups[-1][1]):
                copies[row] = copy

        def gather() -> None:
            for rows, group in groups:
                self._buffers.gather(file_ids[rows], start_offsets[rows], group.shape[1], group)

        if self.copies is None:
            self._read(gather)
        else:
            self._read_copies(gather, file_ids, start_offsets, end_offsets)
        return copies

    def _read(self, gather: Callable[[], None]) -> None:
        try:
            gather()
        except UnreadableError as error:
            raise self._create_error(error) from error

    def read_ahead(self, file_ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        """Prefetches the missing blocks of byte ranges."""
        if self.copies is not None:
            with _store_errors():
                self.copies.fetch(self.copies.blocks_of(file_ids, starts, ends), wait=False)

    def _read_copies(
        self, gather: Callable[[], None], file_ids: np.ndarray, starts: np.ndarray, ends: np.ndarray
    ) -> None:
        assert self.copies is not None
        blocks = self.copies.all_blocks(_MAX_BLOCKS_PER_ROW * len(file_ids))
        if blocks is None:
            blocks = self.copies.blocks_of(file_ids, starts, ends)
        with _store_errors():
            self.copies.read(blocks, functools.partial(self._read, gather))

    def _create_error(self, error: UnreadableError) -> SourceError:
        self._check(error.buffer_id)
        problem = f"byte {error.offset} cannot be read: the file was cut, or its disk fails"
        return SourceError(problem, file=self.name_of(error.buffer_id))

    def name_of(self, file_id: int) -> str:
        """Returns the path of a file, or its URL."""
        return self._indexes[file_id].path if self.copies is None else self.copies.urls[file_id]

    def check(self, file_ids: Sequence[int]) -> None:
        """Raises an error if files were changed in place, so copied rows may be wrong.

        Writing changes the times of a file before its bytes, so rows that were copied before a
        successful check are right.

        Args:
          file_ids: The indices of the files of copied rows.

        Raises:
          SourceChangedError: A file has changed; the message names it.
        """
        # Versions of remote objects are checked during the download.
        if self.copies is not None or (begin := time.monotonic()) < self._next_check:
            return
        for file_id in file_ids:
            self._check(file_id)
        if file_ids:  # The minimum time excludes other load of the machine.
            end = time.monotonic()
            self._seconds_per_file = min(self._seconds_per_file, (end - begin) / len(file_ids))
            if (seconds := self._seconds_per_file * len(file_ids)) > _MIN_CHECK_SECONDS:
                self._next_check = end + seconds / _MAX_CHECK_FRACTION

    def _check(self, file_id: int) -> None:
        index, opened_state = self._indexes[file_id], self._states[file_id]
        try:
            state = _read_file_state(os.stat(index.path))
        except FileNotFoundError:
            return  # A removed file stays mapped.
        if state == opened_state or state[:2] != opened_state[:2]:
            return
        # Changed permissions or new links leave the contents unchanged.
        if state[:4] == opened_state[:4] and self._is_unchanged(index):
            self._states[file_id] = state
            return
        change = (
            "overwritten" if state[2] == opened_state[2] else f"cut or extended to {state[2]} bytes"
        )
        problem = f"it was changed while it was open: {change}. Open the dataset again"
        raise SourceChangedError(problem, file=index.path)

    def _is_unchanged(self, index: ShardIndex) -> bool:
        """True if a file still has the checksum of its index; reads the whole file."""
        try:
            current = index_shard(index.path, self._features, verify=True)
        except (tfds_files.DamagedFileError, OSError):
            return False
        return current.checksum == index.checksum


@contextlib.contextmanager
def _store_errors() -> Iterator[None]:
    """Converts errors of object stores to source errors with the name of the object."""
    try:
        yield
    except OSError as error:
        is_changed = isinstance(error, stores.ChangedObjectError)
        url, _, problem = str(error).partition(": ")
        raise (SourceChangedError if is_changed else SourceError)(problem, file=url) from error


def _read_file_state(state: os.stat_result) -> tuple[int, int, int, int, int]:
    """Returns the identity of a file, its size, and the times of its last changes."""
    # On Windows, the last value is the time of creation.
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


class _Column(NamedTuple):
    """The byte offsets of a field whose values have a fixed width.

    Attributes:
      first_offsets: The offset of the first step of each episode in its file.
      stride: The bytes from one value to the next.
      width: The bytes of a value.
      shape: The shape of a value.
      stored_dtype: The dtype of the stored values.
      dtype: The dtype of the field.
      is_mapped: A mask of the episodes with values of this layout; None for all.
    """

    first_offsets: np.ndarray
    stride: int
    width: int
    shape: tuple[int, ...]
    stored_dtype: np.dtype
    dtype: np.dtype
    is_mapped: np.ndarray | None


class _Strings(NamedTuple):
    """A column of texts or image files; the index has the location of each value.

    Attributes:
      name: The name of the field in the index.
    """

    name: str


class MappedStorage(Storage):
    """A storage of the steps of a TFDS dataset in memory-mapped TFRecord files.

    Args:
      episodes: The dataset.
      fields: The selected fields of a step, by their paths.
      options: Reading options.
      verify: Whether to check the checksums of all records that were not checked before.
      progress: A callback of the numbers of indexed files and of all files.

    Raises:
      UnsupportedFileError: The files cannot be mapped; the message has the reason.
      SourceError: A file is damaged.
    """

    def __init__(
        self,
        episodes: Episodes,
        fields: Mapping[str, Field],
        options: ReadOptions,
        *,
        verify: bool = False,
        progress: Progress | None = None,
    ) -> None:
        examples = episodes.source.capabilities.examples
        assert examples is not None
        self._episodes, self.fields, self._options = episodes, fields, options
        self.decoders = options.decoders(fields)
        folder = examples.folder
        split = folder[episodes.split]
        urls = [os.fspath(piece.path) for piece in split.record_ranges(0, len(split))]
        copies = None
        if urls and not stores.is_local(urls[0]) and folder.file_format == "tfrecord":
            with _store_errors():
                copies = stores.CopiedObjects(urls, options.disk_bytes)
        self.indexes = open_indexes(split, verify=verify, progress=progress, copies=copies)
        self.files = MappedFiles(self.indexes, folder.features, copies)
        self.is_remote = copies is not None
        self.num_files = len(self.indexes)
        counts = [len(index) for index in self.indexes]
        self.shards = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        # The first episode of each shard.
        self.first_episodes = np.cumsum([0, *counts])
        self.summaries = self._read_summaries()
        self.columns = {
            path: self._column_of(f"{rlds.STEPS}/{path}", field, self.summaries.num_steps)
            for path, field in fields.items()
        }
        self._episode_fields = dict(leaves_at(episodes.source.fields.episode, None))
        self.cached_storage = CachedStorage(episodes, fields, options, self.summaries)

    @override
    def __reduce__(self) -> Any:
        arguments = self._episodes, self.fields, self._options
        return reopen, (type(self), self.fingerprint(), *arguments)

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        return _MappedRows(self, episodes, steps, [p for p in paths if not self.is_random(p)])

    @override
    def read_ahead(
        self,
        episodes: np.ndarray,
        first_steps: np.ndarray,
        last_steps: np.ndarray,
        paths: Sequence[str],
    ) -> None:
        shards = self.shards[episodes]
        ranges = []
        for column in map(self.columns.get, paths):
            if isinstance(column, _Column):
                starts = column.first_offsets[episodes] + first_steps * column.stride
                stops = column.first_offsets[episodes] + last_steps * column.stride + column.width
                if column.is_mapped is not None:
                    stops = np.where(column.is_mapped[episodes], stops, starts)
                ranges.append((shards, starts, stops))
            elif column is not None:
                starts, _ = self.find_strings(column.name, shards, episodes, first_steps)
                _, stops = self.find_strings(column.name, shards, episodes, last_steps)
                ranges.append((shards, starts, stops))
        if ranges:
            self.files.read_ahead(*map(np.concatenate, zip(*ranges)))
        cached = [path for path in paths if not self.is_random(path)]
        if cached:
            self.cached_storage.read_ahead(episodes, first_steps, last_steps, cached)

    def find_strings(
        self, name: str, shards: np.ndarray, episodes: np.ndarray, steps: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the start and end offsets of texts or image files, in bytes of the shards."""
        starts, stops = np.empty((2, len(steps)), np.int64)
        for shard in np.unique(shards).tolist():
            rows = np.flatnonzero(shards == shard)
            index, shard_episodes = self.indexes[shard], episodes[rows] - self.first_episodes[shard]
            starts[rows], stops[rows] = index.find_strings(name, shard_episodes, steps[rows])
        return starts, stops

    @override
    def check(self, episodes: np.ndarray) -> None:
        if self.num_files <= _MAX_CHECKED_FILES:
            self.files.check(range(self.num_files))
        else:
            self.files.check(np.flatnonzero(np.bincount(self.shards[episodes])).tolist())

    @override
    def metadata_column(self, name: str) -> np.ndarray | None:
        field = self._episode_fields.get(name)
        if not isinstance(field, Field) or field.encoding:
            return None
        episodes = np.arange(len(self.shards))
        column = self._column_of(name, field, np.ones_like(episodes))
        rows = _MappedRows(self, episodes, np.zeros_like(episodes), [])
        if column is None or (isinstance(column, _Column) and column.is_mapped is not None):
            return None
        try:
            return rows.texts(column) if isinstance(column, _Strings) else rows.gather(column)
        finally:
            self.check(episodes)

    def is_random(self, path: str) -> bool:
        """True if a field is copied out of the mapped files, for all episodes."""
        column = self.columns[path]
        return isinstance(column, _Strings) or (column is not None and column.is_mapped is None)

    def fingerprint(self) -> str:
        """Hashes the record checksums of the files."""
        return hash_of(*((i.checksum, len(i), i.offsets[:1].tolist()) for i in self.indexes))

    @override
    def bytes_of_step(self, path: str) -> float:
        name = f"{rlds.STEPS}/{path}"
        sizes = [
            int(index.sizes[:, index.fields.index(name)].sum(dtype=np.int64))
            for index in self.indexes
            if name in index.fields
        ]
        return sum(sizes) / max(int(self.summaries.num_steps.sum()), 1)

    def error(self, problem: str, path: str, episode: int) -> SourceError:
        """Returns an error with its location."""
        file = self.files.name_of(int(self.shards[episode]))
        return SourceError(problem, file=file, episode=episode, field=path)

    def _concatenate(self, read: Callable[[ShardIndex], np.ndarray]) -> np.ndarray:
        """Concatenates an array of all shard indexes."""
        columns = [read(index) for index in self.indexes]
        return np.concatenate(columns) if columns else np.zeros(0, np.int64)

    def _field_column(self, read: Callable[[ShardIndex], np.ndarray], name: str) -> np.ndarray:
        """Concatenates the column of a field in an array of all shard indexes."""
        return self._concatenate(lambda index: read(index)[:, index.fields.index(name)])

    def _has(self, name: str) -> bool:
        return all(name in index.fields for index in self.indexes)

    def _read_summaries(self) -> Lengths:
        num_steps = self._concatenate(lambda index: index.num_elements).astype(np.int64)
        is_final_known = np.ones(len(num_steps), bool)
        if self._has(rlds.FINAL_OBSERVATION_KNOWN):
            is_final_known = self._read_last_values(rlds.FINAL_OBSERVATION_KNOWN, is_final_known)
        num_transitions = np.maximum(num_steps - 1, 0)
        if not is_final_known.all():
            name = f"{rlds.STEPS}/{rlds.IS_TERMINAL}"
            if not self._has(name):
                raise tfds_files.UnsupportedFileError(
                    "episodes without their final observation, and without is_terminal"
                )
            are_unknown = ~is_final_known & (num_steps > 0)
            num_transitions += are_unknown & self._read_last_values(name, are_unknown)
        return Lengths(num_steps, num_transitions, is_final_known)

    def _read_last_values(self, name: str, is_needed: np.ndarray) -> np.ndarray:
        """Returns the last value of a flag in each episode; checked only for needed episodes."""
        flags = self._field_column(lambda index: index.last_bytes, name)
        if (flags == _UNKNOWN_FLAG)[is_needed].any():
            raise tfds_files.UnsupportedFileError("flags that are not stored as booleans")
        return flags != 0

    def _column_of(self, name: str, field: Field, counts: np.ndarray) -> _Column | _Strings | None:
        """Returns the byte offsets of a field; None if its values cannot be read directly."""
        if not self._has(name):
            return None
        starts = self._field_column(lambda index: index.starts, name)
        is_mapped = starts != NOT_DIRECT
        if not len(starts):
            return None
        layout = self.indexes[0].layouts[self.indexes[0].fields.index(name)]
        if layout.kind == "strings":
            shard_starts, shard_ends = (
                self._concatenate(lambda index: index.string_ends[name][0][bounds])  # noqa: B023
                for bounds in (slice(-1), slice(1, None))
            )
            is_mapped &= shard_ends - shard_starts == counts
            return _Strings(name) if (is_mapped | (counts == 0)).all() else None
        if not layout.width:
            return None
        stride = layout.width + len(layout.head)
        sizes = self._field_column(lambda index: index.sizes, name)
        is_mapped &= sizes == counts * stride
        is_mapped |= counts == 0
        first_offsets = self._concatenate(lambda index: index.offsets) + starts
        shape = tuple(int(size or 0) for size in field.shape)
        dtypes = np.dtype(layout.dtype), field.column_dtype
        mask = None if is_mapped.all() else is_mapped
        return _Column(first_offsets, stride, layout.width, shape, *dtypes, mask)


class _MappedRows(FileRows):
    def __init__(
        self,
        storage: MappedStorage,
        episodes: np.ndarray,
        steps: np.ndarray,
        cached_paths: Sequence[str],
    ) -> None:
        super().__init__(storage, episodes, steps)
        self._shards = storage.shards[episodes]
        # The fields read by whole episodes; they are read on first use, for the needed episodes.
        self._cached_paths = cached_paths
        # The rows of these fields, shared with rows of other steps of the episodes.
        self._cached_rows: list[Rows] = []

    def take(self, path: str) -> np.ndarray:
        column = self._storage.columns[path]
        if column is None:
            if not self._cached_rows:
                self._cached_rows.append(self._read_cached(slice(None)))
            return self._cached_rows[0].with_steps(self._steps).take(path)
        if isinstance(column, _Strings):
            if self._storage.fields[path].encoding:
                return self._decode(path, functools.partial(self._read_strings, column))
            return self.texts(column)
        if column.is_mapped is None:
            return self.gather(column)
        is_mapped = column.is_mapped[self._episodes]
        if is_mapped.all():
            return self.gather(column)
        cached_values = self._read_cached(~is_mapped).take(path)
        rows = arrays.empty((len(is_mapped), *cached_values.shape[1:]), cached_values.dtype)
        rows[~is_mapped] = cached_values
        rows[is_mapped] = self.gather(column, is_mapped)
        return rows

    def _read_cached(self, rows: Any) -> Rows:
        episodes, steps = self._episodes[rows], self._steps[rows]
        return self._storage.cached_storage.rows(episodes, steps, self._cached_paths)

    def gather(self, column: _Column, rows: Any = slice(None)) -> np.ndarray:
        """Returns the values of a column in some rows."""
        steps = self._steps[rows]
        out = arrays.empty((len(steps), *column.shape), column.stored_dtype)
        if len(out):
            self._storage.files.gather_steps(
                self._shards[rows],
                column.first_offsets,
                self._episodes[rows],
                steps,
                column.stride,
                column.width,
                arrays.as_bytes(out).reshape(-1, column.width),
            )
        if column.stored_dtype == column.dtype:
            return out
        return out != 0 if column.dtype == np.bool_ else out.astype(column.dtype)

    def texts(self, column: _Strings) -> np.ndarray:
        texts = np.empty(len(self._steps), object)
        strings = self._read_strings(column, np.arange(len(self._steps)))
        texts[:] = [string.tobytes() for string in strings]
        return texts

    def _read_strings(self, column: _Strings, rows: np.ndarray) -> list[np.ndarray]:
        """Returns the bytes of texts or image files."""
        shards = self._shards[rows]
        episodes, steps = self._episodes[rows], self._steps[rows]
        starts, stops = self._storage.find_strings(column.name, shards, episodes, steps)
        return self._storage.files.copy_ranges(shards, starts, stops)
