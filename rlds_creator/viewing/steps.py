"""The steps of an episode, read as they are asked for, whatever they are stored as.

An episode may be longer than memory, so that a step is read without the others: of a log its two
records (`LogSteps`), of a TFRecord file what an index says (`FolderSteps`). Other formats are read
by columns (`SourceSteps`).
"""

from __future__ import annotations

import abc
import functools
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

import rlds
import tfds_files
from envlogger.reader import Reader
from envlogger.step_data import StepData
from rlds.formats.tfds.source import FolderSource
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import RandomAccessSource, SourceError
from rlds.sources.episodes import Episodes
from rlds_creator.recorded import TIME
from rlds_creator.viewing.cache import Cache, size_of
from rlds_ecosystem.errors import EnvLoggerError
from rlds_ecosystem.fields import Field, Opaque
from rlds_ecosystem.mapping import map_file
from rlds_ecosystem.nests import at, leaves_at
from rlds_ecosystem.stores import is_local
from rlds_tools.cameras import evenly
from tfds_files import index_files
from tfds_files.example_scan import layouts_of
from tfds_files.indexing import index_shard
from tfds_files.record_files import FOOTER, masked_checksum
from tfds_files.shard_index import NOT_DIRECT, ShardIndex

__all__ = [
    "MOST_POINTS",
    "Cache",
    "FolderSteps",
    "LogSteps",
    "Shards",
    "SourceSteps",
    "Steps",
    "num_curves",
]

MOST_POINTS = 5_000
"""How many points a curve has at most."""

# A vector with more elements has no curves: nobody tells so many apart.
_MOST_CURVES = 512


def num_curves(field: Any) -> int:
    """Returns how many curves a field has: a number, a flag or a vector; 0 for what has none."""
    if not isinstance(field, Field) or field.column_dtype.kind not in "biuf":
        return 0
    size = math.prod(size or 0 for size in field.shape)
    return size if len(field.shape) <= 1 and size <= _MOST_CURVES else 0


class Steps(abc.ABC):
    """The steps of an episode, in RLDS order.

    Attributes:
      num_steps: How many there are.
      fields: The fields of a step, by their paths.
      metadata: The fields of the episode.
      has_last_action: Whether the last step has an action and a reward of its own.
      most_points: How many points a curve has; fewer where each takes its time.
    """

    num_steps: int
    fields: Mapping[str, Any]
    metadata: Mapping[str, Any]
    has_last_action: bool = False

    @property
    def most_points(self) -> int:
        """See above."""
        return MOST_POINTS

    @abc.abstractmethod
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        """Returns the values of some fields in a step; those that it has."""

    @abc.abstractmethod
    def numbers(self, path: str, seconds: float) -> tuple[np.ndarray, bool]:
        """Returns the numbers of a field in all steps, as far as they are read after some time.

        Returns:
          float64, NaN where there is none, or none yet; and whether all of them have been read.
        """

    @abc.abstractmethod
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        """Returns the values of a field, that has curves, in evenly chosen steps.

        Returns:
          float64 `[steps, elements]`, NaN where there is none.
        """

    def samples(self, path: str, number: int) -> list[Any]:
        """Returns the values of a field in some steps, evenly chosen."""
        found = [self.step(step, [path]).get(path) for step in evenly(self.num_steps, number)]
        return [value for value in found if value is not None]


# --- Logs of EnvLogger.


class _Place(NamedTuple):
    """Where the values of a field are.

    Attributes:
      keys: What leads to them in a record.
      ahead: 1 for what is recorded with the next step: see `to_rlds_episode`.
    """

    keys: tuple[Any, ...]
    ahead: int


# In how many records fields are looked for.
_MOST_TRIED = 20
_ARRIVES = (rlds.ACTION, rlds.REWARD, rlds.DISCOUNT)


class LogSteps(Steps):
    """The steps of an episode of a log of EnvLogger.

    Which fields there are is found in its first steps and its last one.

    Args:
      reader: The log.
      index: Which episode of it.
      cache: Keeps steps.
      name: Names the log in the cache.
    """

    def __init__(self, reader: Reader, index: int, cache: Cache, name: str = "") -> None:
        self._reader, self._index, self._cache = reader, index, cache
        self._key = "log", name, index
        self._records = reader.episodes[index]
        self.num_steps = len(self._records)
        metadata = reader.episode_metadata()[index]
        self.metadata = metadata if isinstance(metadata, Mapping) else {"metadata": metadata}
        if metadata is None:
            self.metadata = {}
        self._places: dict[str, _Place] = {}
        self.fields = self._find_fields()
        self._lock = threading.Lock()
        self._points = evenly(self.num_steps, self.most_points)
        self._scan: Iterator[None] | None = self._scanned()
        self._numbers = {
            path: np.full(self.num_steps, np.nan)
            for path in (rlds.REWARD, TIME)
            if num_curves(self.fields.get(path)) == 1
        }
        self._curves: dict[str, np.ndarray] = {}
        self._num_scanned = 0

    @property
    @override
    def most_points(self) -> int:
        return MOST_POINTS if self.num_steps <= MOST_POINTS else MOST_POINTS * 2 // 5

    def _find_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for record in self._examples():
            for place, value in _leaves_of(record):
                path = _path_of(place.keys)
                if value is not None and path not in fields:
                    fields[path], self._places[path] = _field_like(value), place
        # They are stored in no order.
        known = {path: fields[path] for path in sorted(fields)}
        return known | dict.fromkeys(rlds.STEP_FLAGS, Field(np.bool_))

    def _examples(self) -> list[StepData]:
        """The first two records and the last one; others if these are damaged."""
        examples: list[StepData] = []
        damage: EnvLoggerError | None = None
        first = dict.fromkeys((0, 1, self.num_steps - 1))
        for number in [*first, *evenly(self.num_steps, _MOST_TRIED)]:
            if number >= self.num_steps or (examples and number not in first):
                continue
            try:
                examples.append(self._record(number))
            except EnvLoggerError as error:
                damage = damage or error
        if damage is not None and not examples:
            raise damage
        return examples

    def _record(self, number: int) -> StepData:
        record: StepData = self._cache.get((*self._key, number), lambda: self._records[number])
        return record

    @override
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        paths = list(paths)
        values = {path: self._flag(path, step) for path in paths if path in rlds.STEP_FLAGS}
        places = {path: self._places[path] for path in paths if path in self._places}
        found: dict[_Place, Any] = {}
        for ahead in {place.ahead for place in places.values()}:
            if step + ahead < self.num_steps:
                leaves = _leaves_of(self._record(step + ahead))
                found |= {place: leaf for place, leaf in leaves if place.ahead == ahead}
        return values | {path: found[place] for path, place in places.items() if place in found}

    def _flag(self, path: str, step: int) -> bool:
        is_last = step + 1 == self.num_steps
        if path != rlds.IS_TERMINAL:
            return is_last if path == rlds.IS_LAST else step == 0
        timestep = self._record(step).timestep
        return is_last and timestep.last() and _is_zero(timestep.discount)

    @override
    def numbers(self, path: str, seconds: float) -> tuple[np.ndarray, bool]:
        if path not in self._numbers:
            raise KeyError(path)
        with self._lock:
            self._go_on(time.monotonic() + seconds, self.num_steps)
            return self._numbers[path].copy(), self._scan is None

    @override
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        if path in rlds.STEP_FLAGS:
            return np.array([[self._flag(path, step)] for step in steps], np.float64)
        with self._lock:
            self._go_on(math.inf, len(self._points))
            return self._curves[path][np.searchsorted(self._points, steps)]

    def _go_on(self, deadline: float, number: int) -> None:
        """Reads on, until a number of steps has been read in all, or time is over."""
        while self._scan is not None and self._num_scanned < number:
            try:
                next(self._scan)
            except StopIteration:
                self._scan = None
                return
            self._num_scanned += 1
            if time.monotonic() > deadline:
                return
        if self._num_scanned == self.num_steps:
            self._scan = None

    def _scanned(self) -> Iterator[None]:
        """Reads steps, each when it is asked for: first some that are evenly spread."""
        paths = [
            path
            for path, field in self.fields.items()
            if num_curves(field) and path not in rlds.STEP_FLAGS
        ]
        for path in paths:
            shape = len(self._points), num_curves(self.fields[path])
            self._curves[path] = np.full(shape, np.nan)
        rows = {step: row for row, step in enumerate(self._points)}
        for step in _coarse_first(self._points):
            for path, value in zip(paths, self._picked(step, paths)):
                row = np.asarray(np.nan if value is None else value)
                curve = self._curves[path]
                if row.dtype.kind in "biuf" and row.size in (1, curve.shape[1]):
                    curve[rows[step]] = row.reshape(-1)
                    if path in self._numbers:
                        self._numbers[path][step] = curve[rows[step], 0]
            yield
        paths = list(self._numbers)
        for step in range(self.num_steps) if paths else ():
            if step not in rows:
                for path, value in zip(paths, self._picked(step, paths)):
                    self._numbers[path][step] = _as_number(value)
                yield

    def _picked(self, step: int, paths: Sequence[str]) -> list[Any]:
        """The values of fields in a step; None for those of a damaged record."""
        values: list[Any] = [None] * len(paths)
        for ahead in (0, 1):
            which = [i for i, path in enumerate(paths) if self._places[path].ahead == ahead]
            if not which or step + ahead >= self.num_steps:
                continue
            keys = [self._places[paths[i]].keys for i in which]
            try:
                [found] = self._reader.pick(self._index, [step + ahead], keys)
            except EnvLoggerError:
                continue
            for i, value in zip(which, found):
                values[i] = value
        return values


def _leaves_of(record: StepData) -> Iterator[tuple[_Place, Any]]:
    timestep = record.timestep
    arrived = record.action, timestep.reward, timestep.discount
    for name, value in zip(_ARRIVES, arrived):
        yield from ((_Place(keys, 1), leaf) for keys, leaf in _walked(value, (name,)))
    for name, value in (
        (rlds.OBSERVATION, timestep.observation),
        ("custom_data", record.custom_data),
    ):
        yield from ((_Place(keys, 0), leaf) for keys, leaf in _walked(value, (name,)))


def _walked(value: Any, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What is nested in dicts and tuples, with the keys that lead to it."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _walked(child, (*keys, key))
    elif isinstance(value, tuple):
        for number, child in enumerate(value):
            yield from _walked(child, (*keys, number))
    else:
        yield keys, value


def _path_of(keys: Sequence[Any]) -> str:
    """The path of a field. That of custom data in a dict has no more than its own keys."""
    is_custom = keys[0] == "custom_data" and len(keys) > 1
    return "/".join(map(str, keys[1:] if is_custom else keys))


def _field_like(value: Any) -> Any:
    if isinstance(value, str | bytes):
        return Field(type(value))
    try:
        array = np.asarray(value)
    except ValueError:  # A list of what differs in shape.
        return Opaque("a list")
    if array.dtype.kind in "US":
        return Field(str if array.dtype.kind == "U" else bytes, array.shape)
    return Field(array.dtype, array.shape)


def _is_zero(discount: Any) -> bool:
    leaves = [leaf for _, leaf in _walked(discount, ()) if leaf is not None]
    return bool(leaves) and all(not np.any(leaf) for leaf in leaves)


def _as_number(value: Any) -> float:
    """A number; NaN if there is none."""
    array = np.asarray(np.nan if value is None else value)
    return float(array.reshape(-1)[0]) if array.size and array.dtype.kind in "biuf" else math.nan


def _coarse_first(points: Sequence[int]) -> Iterator[int]:
    """Points so that any number of the first ones are spread over all of them.

    >>> list(_coarse_first([0, 1, 2, 3, 4]))
    [0, 4, 2, 1, 3]
    """
    stride = 1 << max(len(points) - 1, 0).bit_length()
    yield from points[:: stride or 1]
    while stride > 1:
        yield from points[stride // 2 :: stride]
        stride //= 2


# --- Any other source.

# Values of fewer bytes are read as whole columns, all at once; of larger ones, so many at once.
_SMALL, _BLOCK = 4096, 4 << 20


class SourceSteps(Steps):
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
        reads_spans = isinstance(source, RandomAccessSource) and source.reads_rows
        if not reads_spans and path not in self._too_large:
            # All is read in any case; it is kept if there is room for it.
            return _rows(self._cache.get((*self._key, path), lambda: self._whole(path)), step)
        size = 1 << 14
        if isinstance(field, Field) and not field.encoding:
            size = math.prod(side or 64 for side in field.shape) * field.column_dtype.itemsize
        length = max(1, min(64, _BLOCK // max(size, 1)))
        begin = step // length * length
        end = min(begin + length, self.num_steps)
        rows = self._cache.get((*self._key, path, begin), lambda: self._read([path], begin, end))
        return _rows(rows[path], step - begin)

    def _whole(self, path: str) -> Any:
        column = self._read([path])[path]
        if size_of(column) > self._cache.max_bytes // 2:
            self._too_large.add(path)
        return column

    @override
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        small = self._columns()
        return {
            path: _rows(small[path], step) if path in small else self._large(path, step)
            for path in paths
            if path in self.fields
        }

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


# --- Datasets of TFDS in TFRecord files of this machine.

# Larger records are not compared with their checksums: that takes as long as reading them.
_MOST_CHECKED = 64 << 20
_MOST_SHARDS = 8


class _Shard(NamedTuple):
    places: ShardIndex
    memory: memoryview


class Shards:
    """The files of a dataset, mapped into memory, with the indexes that say what is where.

    An index that was saved beside a file is used; those that are missing are made, and not saved.

    Args:
      source: The dataset.
    """

    def __init__(self, source: FolderSource) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._open: dict[str, _Shard] = {}

    @classmethod
    def of(cls, source: Any) -> Shards | None:
        """Returns those of a dataset; None if it cannot be read that way."""
        is_folder = isinstance(source, FolderSource) and is_local(source.directory)
        return cls(source) if is_folder and source.folder.file_format == "tfrecord" else None

    def open(self, path: str) -> _Shard:
        """Opens a file, unless it is open.

        Raises:
          SourceError: It is damaged, or was changed.
        """
        with self._lock:
            shard = self._open.get(path)
            if shard is not None and os.stat(path).st_size == len(shard.memory):
                return shard
            try:
                features = self.source.folder.features
                index = index_files.load(path, *layouts_of(features))
                index = index_shard(path, features) if index is None else index
            except tfds_files.DamagedFileError as error:
                raise SourceError(str(error), file=path) from error
            memory, _ = map_file(path)
            if len(memory) != index.file_size:
                raise SourceChangedError("it was changed while it was opened", file=path)
            self._open[path] = _Shard(index, memory)
            while len(self._open) > _MOST_SHARDS:
                del self._open[next(iter(self._open))]
            return self._open[path]

    def num_steps(self, split: str, index: int) -> int:
        """Returns how many steps an episode has."""
        path, record = self.source.folder[split].place_of(index)
        return int(self.open(os.fspath(path)).places.num_elements[record])

    def check(self, path: str, shard: _Shard) -> None:
        """Raises a `SourceChangedError` if a file was cut: reading it would end the process."""
        if os.stat(path).st_size < len(shard.memory):
            raise SourceChangedError("it was cut while it was open", file=path)


class FolderSteps(SourceSteps):
    """The steps of an episode in a TFRecord file, each read where it is.

    Args:
      shards: The files.
      episodes: The episodes.
      index: Which of them.
      cache: Keeps columns of what has to be decoded.
      name: Names the episodes in the cache.

    Raises:
      SourceError: The episode is damaged.
    """

    def __init__(
        self, shards: Shards, episodes: Episodes, index: int, cache: Cache, name: str = ""
    ) -> None:
        self._shards = shards
        split, number = episodes.place(index)
        path, self._record = shards.source.folder[split].place_of(number)
        self._path = os.fspath(path)
        self._shard = shards.open(self._path)
        super().__init__(episodes, index, cache, name)

    def _read_about(self) -> None:
        index, folder = self._shard.places, self._shards.source.folder
        self._begin = int(index.offsets[self._record])
        self._end = self._begin + int(index.lengths[self._record])
        data = self._shard.memory[self._begin : self._end]
        if len(data) <= _MOST_CHECKED:
            stored = self._shard.memory[self._end : self._end + FOOTER.size]
            if masked_checksum(data) != FOOTER.unpack(stored)[0]:
                raise self._error("it does not have the checksum that is stored with it")
        self.num_steps = int(index.num_elements[self._record])
        fields = tuple(name for name in folder.features if name != rlds.STEPS)
        try:
            about = folder.decoder(fields).decode(data) if fields else {}
        except tfds_files.TfdsFilesError as error:
            raise self._error(str(error)) from error
        self.metadata = about
        self.has_last_action = not about.get(rlds.FINAL_OBSERVATION_KNOWN, True)

    def _error(self, what: str) -> SourceError:
        return SourceError(what, file=self._path, row=self._record)

    @functools.cached_property
    def _direct(self) -> dict[str, Any]:
        """Columns that are views of the file; of strings, where they are."""
        index = self._shard.places
        columns: dict[str, Any] = {}
        for number, layout in enumerate(index.layouts):
            path = layout.name.removeprefix(f"{rlds.STEPS}/")
            field = self.fields.get(path)
            start = int(index.starts[self._record, number])
            is_there = layout.in_sequence and layout.kind and start != NOT_DIRECT
            if not (is_there and self.num_steps and isinstance(field, Field)):
                continue
            if layout.kind == "strings":
                begins = index.entries[layout.name][0]
                if begins[self._record + 1] - begins[self._record] == self.num_steps:
                    columns[path] = _Strings(self._shard, layout.name, self._record)
                continue
            stride = layout.width + len(layout.head)
            if int(index.sizes[self._record, number]) != self.num_steps * stride:
                continue
            stored = np.dtype(layout.dtype)
            shape = tuple(int(size or 0) for size in field.shape)
            columns[path] = np.ndarray(
                (self.num_steps, *shape),
                stored,
                self._shard.memory,
                self._begin + start,
                (stride, *_strides(shape, stored.itemsize)),
            )
        return columns

    def _read(self, paths: Sequence[str], begin: int = 0, end: int | None = None) -> dict[str, Any]:
        names = [f"{rlds.STEPS}/{path}" for path in paths]
        decoder = self._shards.source.folder.decoder(tuple(names))
        try:
            decoded = decoder.decode(self._shard.memory[self._begin : self._end])
        except tfds_files.TfdsFilesError as error:
            raise self._error(str(error)) from error
        steps = decoded[rlds.STEPS]
        return {path: _rows(at(steps, path), slice(begin, end)) for path in paths}

    @override
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        self._shards.check(self._path, self._shard)
        paths = [path for path in paths if path in self.fields]
        others = [path for path in paths if path not in self._direct]
        values = super().step(step, others) if others else {}
        for path in paths:
            if path in self._direct:
                values[path] = self._as_declared(path, self._direct[path][step])
        return values

    def _as_declared(self, path: str, value: Any) -> Any:
        if isinstance(value, bytes):
            return value
        dtype = self.fields[path].column_dtype
        return value != 0 if dtype == np.bool_ else np.array(value, dtype)

    def _columns(self) -> Mapping[str, Any]:
        self._small = [path for path in self._small if path not in self._direct]
        return super()._columns() if self._small else {}

    @override
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        self._shards.check(self._path, self._shard)
        column = self._direct.get(path)
        if column is None:
            return super().curves(path, steps)
        rows = column if len(steps) == self.num_steps else column[np.asarray(steps, np.intp)]
        return np.array(rows, np.float64).reshape(len(steps), -1)


def _strides(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """The strides of an array whose elements follow each other."""
    return tuple(size * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class _Strings:
    """Text, or files of images, of an episode."""

    def __init__(self, shard: _Shard, name: str, record: int) -> None:
        self._shard, self._name, self._record = shard, name, np.array([record])

    def __getitem__(self, step: int) -> bytes:
        [begin], [end] = self._shard.places.find_strings(self._name, self._record, np.array([step]))
        return bytes(self._shard.memory[int(begin) : int(end)])
