"""The steps of a log of EnvLogger, which may still be recorded: a step is read from its records."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

import rlds
from envlogger.reader import Reader
from envlogger.step_data import StepData
from rlds.sources.cameras import evenly
from rlds.sources.source import OF_TRANSITIONS
from rlds_creator.recorded import TIME
from rlds_creator.viewing import steps
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.steps import EpisodeSteps, num_curves
from rlds_ecosystem.model.errors import EnvLoggerError
from rlds_ecosystem.model.fields import Field, Opaque

__all__ = ["LogSteps"]


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


class LogSteps(EpisodeSteps):
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
        most = steps.MOST_POINTS
        return most if self.num_steps <= most else most * 2 // 5

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
        """Reads steps, each when it is requested: first some that are evenly spread."""
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
    for name, value in zip(OF_TRANSITIONS, arrived):
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
