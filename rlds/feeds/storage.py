"""Storages of a feed: random access to rows of step fields, by episode and step.

* `CachedStorage` reads whole episodes of any format, and keeps recent episodes in memory.
* `rlds.feeds.mapped.MappedStorage` copies single rows out of memory-mapped files.
"""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

import numpy as np
from typing_extensions import override

import tfds_files
from rlds.feeds._core import Buffers
from rlds.feeds.images import ImageDecoder, ImageError
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import arrays, reading
from rlds.sources.episodes import Episodes
from rlds.sources.source import Lengths, SourceError, files_of
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.daemon_threads import DaemonThreads
from rlds_ecosystem.files.forking import reset_in_forks
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at

__all__ = [
    "CachedStorage",
    "EpisodeCache",
    "FileRows",
    "Lengths",
    "Progress",
    "ReadOptions",
    "Rows",
    "Storage",
    "hash_of",
    "reopen",
    "row_bytes",
    "row_shape",
]

# For a larger fraction of unique images, decoding duplicates is faster than copying images.
_MAX_UNIQUE_FRACTION = 0.8

# The number of episodes to read from an object store in parallel.
_MAX_PARALLEL_READS = 16

Progress = Callable[[int, int], None]

# The size of each hashed range of a file.
_HASHED_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The reading options of `rlds.feeds.open`."""

    jpeg: Literal["accurate", "tf"]
    threads: int | None
    cache_bytes: int
    disk_bytes: int
    decode_images: bool = True

    def decoders(self, fields: Mapping[str, Field]) -> dict[str, ImageDecoder]:
        """Returns the decoders of the fields of image files, by path."""
        return {
            path: ImageDecoder(
                field.shape,
                field.column_dtype,
                field.encoding,
                jpeg=self.jpeg,
                threads=self.threads,
            )
            for path, field in fields.items()
            if field.encoding
        }


class Rows(abc.ABC):
    """Rows of a storage; each row is a step of an episode."""

    _steps: np.ndarray

    @abc.abstractmethod
    def take(self, path: str) -> np.ndarray:
        """Returns the values of a field in these rows, as a new array with a leading axis.

        Raises:
          SourceError: A value cannot be read; the message has the location.
        """

    def with_steps(self, steps: np.ndarray) -> Rows:
        """Returns rows of other steps of the same episodes."""
        other = copy.copy(self)
        other._steps = steps
        return other


class Storage(abc.ABC):
    """The steps of the episodes of a split.

    Attributes:
      fields: The fields of a step, by their paths.
      summaries: The numbers of steps and transitions of each episode.
      why_cached: The reason for reading whole episodes; empty if files are read in place.
      num_files: The number of files that `check` may examine.
      is_remote: True if some of the files are in an object store.
    """

    fields: Mapping[str, Field]
    summaries: Lengths
    why_cached: str = ""
    num_files: int = 0
    is_remote: bool = False

    @abc.abstractmethod
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        """Returns rows of the fields at some paths.

        Args:
          episodes: The episode of each row, int64 of shape `[n]`.
          steps: The step of each row in its episode, in the same form, within bounds.
          paths: The requested fields.
        """

    def read_ahead(
        self,
        episodes: np.ndarray,
        first_steps: np.ndarray,
        last_steps: np.ndarray,
        paths: Sequence[str],
    ) -> None:
        """Prefetches ranges of steps in the background.

        Args:
          episodes: The episode of each range, int64 of shape `[n]`.
          first_steps: The first step of each range, in the same form.
          last_steps: The last step of each range.
          paths: The requested fields.
        """
        del episodes, first_steps, last_steps, paths  # Local data needs no prefetch.

    def check(self, episodes: np.ndarray) -> None:
        """Checks that the files of episodes have not changed since they were opened.

        Args:
          episodes: The indices of the episodes, int64 of shape `[n]`, which may repeat.

        Raises:
          SourceChangedError: A file was changed in place; the message names it.
        """
        del episodes  # Reads of whole episodes check the files.

    def metadata_column(self, name: str) -> np.ndarray | None:
        """Returns an episode field of all episodes; None if they must be read one by one."""
        del name
        return None

    @abc.abstractmethod
    def is_random(self, path: str) -> bool:
        """True if rows of a field have random access, without the rest of the episode."""

    def is_image(self, path: str) -> bool:
        """True if a row of a field is an image that has to be decoded."""
        return bool(self.fields[path].encoding)

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Returns a hash that changes with the contents of the files."""

    def bytes_of_step(self, path: str) -> float:
        """Returns the mean stored bytes of a field per step; NaN if unknown."""
        del path
        return math.nan


def row_shape(field: Field) -> tuple[int, ...] | None:
    """Returns the shape of a row; None if shapes vary, or values are not numeric."""
    if field.is_text or None in field.shape:
        return None
    return tuple(int(size or 0) for size in field.shape)


def row_bytes(field: Field, default: int) -> int:
    """Returns the bytes of a row in memory; `default` if sizes vary."""
    shape = row_shape(field)
    return default if shape is None else math.prod(shape) * field.column_dtype.itemsize


class FileRows(Rows):
    """Rows of episodes that are read from files.

    Args:
      storage: The storage of the rows, with `decoders` and `error`.
      episodes: The episode of each row.
      steps: The step of each row in its episode.
    """

    def __init__(self, storage: Any, episodes: np.ndarray, steps: np.ndarray) -> None:
        self._storage, self._episodes, self._steps = storage, episodes, steps

    def _decode(self, path: str, read_files: Callable[[np.ndarray], Any]) -> np.ndarray:
        """Decodes the images of rows; if sizes may differ, the result is an array of arrays.

        Overlapping windows share images. If many images are shared, each image is decoded once.

        Args:
          path: The field.
          read_files: A function that returns the image files of rows.
        """
        field, steps = self._storage.fields[path], self._steps
        step_keys = self._episodes * (int(steps.max(initial=0)) + 1) + steps
        _, rows, image_rows = np.unique(step_keys, return_index=True, return_inverse=True)
        is_unique = len(rows) > _MAX_UNIQUE_FRACTION * len(steps)
        if is_unique:
            rows = np.arange(len(steps))
        try:
            images = self._storage.decoders[path].decode(read_files(rows))
        except ImageError as error:
            row = int(rows[error.row])
            episode, step = int(self._episodes[row]), int(steps[row])
            raise self._storage.error(f"step {step}: {error.problem}", path, episode) from error
        if None in field.shape:
            images = arrays.as_objects(images)
            if not is_unique:  # Callers may change the values of a batch.
                images = arrays.as_objects([images[row].copy() for row in image_rows.tolist()])
            return images
        if is_unique:
            return images
        out = arrays.empty((len(image_rows), *images.shape[1:]), images.dtype)
        return images.take(image_rows, axis=0, out=out, mode="clip")


def reopen(
    kind: Callable[..., Storage], fingerprint: str, episodes: Episodes, *arguments: Any
) -> Storage:
    """Reopens a pickled storage in another process.

    Args:
      kind: The class of the storage.
      fingerprint: The fingerprint of the pickled storage.
      episodes: The episodes of the storage, its first argument.
      *arguments: The further arguments of the class.

    Raises:
      SourceChangedError: The storage has another fingerprint now.
    """
    with reading.unchanged(episodes.source):
        storage = kind(episodes, *arguments)
    if storage.fingerprint() != fingerprint:
        problem = "it was changed since it was opened in another process. Open the dataset again"
        raise SourceChangedError(problem, file=files_of(episodes.source))
    return storage


def hash_of(*values: object) -> str:
    """Returns a hash of values, as bytes or by their texts: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(value if isinstance(value, bytes) else f"{value}\n".encode())
    return digest.hexdigest()[:16]


class EpisodeCache:
    """A thread-safe LRU cache of the columns of episodes.

    A forked process begins with an empty cache. Remote episodes are read in parallel.

    Args:
      episodes: The source of the columns.
      max_bytes: The memory limit; the last episode may exceed it.
    """

    def __init__(self, episodes: Episodes, max_bytes: int) -> None:
        self.episodes, self.max_bytes = episodes, max_bytes
        self.is_remote = not stores.is_local(files_of(episodes.source))
        self._cached: collections.OrderedDict[int, dict[str, Any]] = collections.OrderedDict()
        self._bytes, self._lock = 0, threading.Lock()
        # Fields that were requested once, which are read for all later episodes.
        self._paths: dict[str, None] = {}
        self._reset()
        reset_in_forks(self)

    def _reset(self) -> None:
        self._cached.clear()
        self._bytes, self._lock = 0, threading.Lock()
        self._threads = DaemonThreads(_MAX_PARALLEL_READS, "rlds-episodes")
        self._reading: dict[int, Future[dict[str, Any]]] = {}

    def columns(self, episodes: Iterable[int], paths: Sequence[str]) -> list[dict[str, Any]]:
        """Returns the columns of episodes, at least the columns at the paths."""
        if not self.is_remote:
            return [self._columns(episode, paths) for episode in episodes]
        all_columns = []
        for episode, future in [(episode, self.submit(episode, paths)) for episode in episodes]:
            columns = future.result() if future is not None else {}
            is_complete = columns.keys() >= {*paths}  # The read may have begun with fewer paths.
            all_columns.append(columns if is_complete else self._columns(episode, paths))
        return all_columns

    def submit(self, episode: int, paths: Sequence[str]) -> Future[dict[str, Any]] | None:
        """Begins to read an episode in the background; returns None if it is cached."""
        with self._lock:
            if self._cached.get(episode, {}).keys() >= {*paths}:
                return None
            future = self._reading.get(episode)
            if future is None:
                future = self._threads.submit(self._columns, episode, paths)
                self._reading[episode] = future
        future.add_done_callback(lambda _: self._reading.pop(episode, None))
        return future

    def _columns(self, episode: int, paths: Sequence[str]) -> dict[str, Any]:
        with self._lock:
            cached = self._cached.get(episode, {})
            if cached:
                self._cached.move_to_end(episode)
            missing_paths = [path for path in paths if path not in cached]
            if not missing_paths:
                return cached
            self._paths.update(dict.fromkeys(missing_paths))
            missing = [path for path in self._paths if path not in cached]
        nested_columns = self.episodes.columns(episode, missing, decode_images=False)
        with self._lock:
            newest = self._cached.pop(episode, {})  # Another thread may have read more.
            columns = {**cached, **newest, **dict(leaves_at(nested_columns, None))}
            self._bytes += _count_bytes(columns) - _count_bytes(newest)
            self._cached[episode] = columns
            while self._bytes > self.max_bytes and len(self._cached) > 1:
                self._bytes -= _count_bytes(self._cached.popitem(last=False)[1])
        return columns


def _count_bytes(columns: Mapping[str, Any]) -> int:
    return sum(_count_column_bytes(column) for column in columns.values())


def _count_column_bytes(column: Any) -> int:
    if isinstance(column, tfds_files.RaggedColumn):
        return _count_column_bytes(column.values) + column.lengths.nbytes
    if column.dtype != object:
        return int(column.nbytes)
    return sum(getattr(item, "nbytes", None) or len(item) for item in column.flat)


class CachedStorage(Storage):
    """Steps in any format, read by whole episodes.

    Args:
      episodes: The episodes.
      fields: The selected fields of a step, by their paths.
      options: Reading options.
      summaries: The numbers of steps and transitions of each episode; None to read them.
      why_cached: See `Storage`.
      progress: A callback of the numbers of counted episodes and of all episodes.

    Raises:
      SourceError: An episode is damaged.
    """

    def __init__(
        self,
        episodes: Episodes,
        fields: Mapping[str, Field],
        options: ReadOptions,
        summaries: Lengths | None = None,
        why_cached: str = "",
        *,
        progress: Progress | None = None,
    ) -> None:
        self.episodes, self.fields, self._options = episodes, fields, options
        self.decoders, self.why_cached = options.decoders(fields), why_cached
        self.cache = EpisodeCache(episodes, options.cache_bytes)
        self.is_remote = self.cache.is_remote
        self.summaries = _read_summaries(episodes, progress) if summaries is None else summaries

    @override
    def __reduce__(self) -> Any:
        arguments = self.episodes, self.fields, self._options, self.summaries, self.why_cached
        return reopen, (type(self), self.fingerprint(), *arguments)

    @override
    def read_ahead(
        self,
        episodes: np.ndarray,
        first_steps: np.ndarray,
        last_steps: np.ndarray,
        paths: Sequence[str],
    ) -> None:
        del first_steps, last_steps
        if self.is_remote:
            for episode in dict.fromkeys(episodes.tolist()):  # Keeps the order of the rows.
                self.cache.submit(episode, paths)

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        return _CachedRows(self, episodes, steps, paths)

    def is_random(self, path: str) -> bool:
        """Always false: whole episodes are read."""
        del path
        return False

    def fingerprint(self) -> str:
        """Hashes the names, sizes and excerpts of the files, and the lengths of the episodes."""
        files = [_hash_of_file(path) for path in self.episodes.source.inputs()]
        summaries = [array.tobytes() for array in self.summaries]
        return hash_of(self.episodes.ranges, files, *summaries)

    def error(self, problem: str, path: str, episode: int) -> SourceError:
        """Returns an error with its location."""
        return SourceError(problem, file=self._file_of(episode), episode=episode, field=path)

    def _file_of(self, episode: int) -> str:
        source = self.episodes.source
        if source.capabilities.examples is None:
            return files_of(source)
        split, example_index = self.episodes.locate(episode)
        file, _ = source.capabilities.examples.folder[split].location_of(example_index)
        return str(file)


def _hash_of_file(path: str | os.PathLike[str]) -> str:
    """Hashes the name and the size of a file; for a local file, also excerpts of its contents."""
    file = stores.as_path(path)
    size, excerpts = file.stat().length, []
    if stores.is_local(os.fspath(file)):
        with file.open("rb") as content:
            for begin in (0, size // 3, size * 2 // 3, max(size - _HASHED_BYTES, 0)):
                content.seek(begin)
                excerpts.append(content.read(_HASHED_BYTES))
    return hash_of(file.name, size, *excerpts)


def _read_summaries(episodes: Episodes, progress: Progress | None) -> Lengths:
    """Reads the numbers of steps and transitions of all episodes."""
    if (lengths := episodes.lengths()) is not None and lengths.are_complete:
        return lengths
    summaries = []
    total = len(episodes) if episodes.has_random_access else 0
    for summary in episodes.summaries():
        summaries.append(summary)
        if progress is not None:
            progress(len(summaries), total)
    num_steps, num_transitions, is_known = np.array(summaries, np.int64).reshape(-1, 3).T
    return Lengths(num_steps, num_transitions, is_known.astype(bool))


class _CachedRows(FileRows):
    def __init__(
        self, storage: CachedStorage, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]
    ) -> None:
        super().__init__(storage, episodes, steps)
        self._cached_episodes, inverse = np.unique(episodes, return_inverse=True)
        self._cached_indices = inverse.astype(np.int32)
        self._columns = storage.cache.columns(self._cached_episodes.tolist(), paths)

    def take(self, path: str) -> np.ndarray:
        field = self._storage.fields[path]
        columns = [self._column(index, path) for index in range(len(self._columns))]
        decoder = self._storage.decoders.get(path)
        if decoder is not None and any(column.dtype == object for column in columns):
            return self._decode(path, lambda rows: self._object_column(columns, rows))
        shape = row_shape(field)
        if shape is None:
            return self._object_column(columns, np.arange(len(self._steps)))
        dtype = field.column_dtype
        for index, column in enumerate(columns):
            if column.dtype != dtype or column.shape[1:] != shape:
                problem = f"values of {column.dtype} of shape {column.shape[1:]}, expected {field}"
                episode = int(self._cached_episodes[index])
                raise self._storage.error(f"step 0: {problem}", path, episode)
        width = math.prod(shape) * dtype.itemsize
        out = arrays.empty((len(self._steps), *shape), dtype)
        if width and len(out):
            memory = [arrays.as_bytes(np.ascontiguousarray(column)) for column in columns]
            rows = arrays.as_bytes(out).reshape(-1, width)
            Buffers(memory).gather(self._cached_indices, self._steps * width, width, rows)
        return out

    def _column(self, index: int, path: str) -> Any:
        episode = int(self._cached_episodes[index])
        if path not in self._columns[index]:  # The batch was read without this field.
            self._columns[index] = self._storage.cache.columns([episode], [path])[0]
        column = self._columns[index][path]
        if len(column) != (steps := self._storage.summaries.num_steps[episode]):
            problem = f"the field has {len(column)} values, and the episode {steps} steps"
            raise self._storage.error(problem, path, episode)
        return column

    def _object_column(self, columns: Sequence[Any], rows: np.ndarray) -> np.ndarray:
        out = np.empty(len(rows), object)
        locations = zip(self._cached_indices[rows].tolist(), self._steps[rows].tolist())
        for row, (column_index, step) in enumerate(locations):
            value = columns[column_index][step]
            # The cache keeps the column, so callers get copies, which they may change.
            is_array = isinstance(value, np.ndarray | tfds_files.RaggedColumn)
            out[row] = np.array(value) if is_array else value
        return out
