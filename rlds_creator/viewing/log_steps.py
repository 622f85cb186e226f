"""The steps of a log of EnvLogger, which may still be recorded: a step is read from its records."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

import rlds
from envlogger.reader import Reader
from envlogger.step_data import StepData
from rlds.sources.cameras import evenly
from rlds.sources.source import TRANSITION_FIELDS
from rlds_creator.recorded import TIME
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.steps import EpisodeSteps, num_curves
from rlds_ecosystem.model.errors import EnvLoggerError
from rlds_ecosystem.model.fields import Field, Opaque

__all__ = ["LogSteps"]


# The keys of a leaf in a record, as `_leaves_of` yields them.
_Keys: TypeAlias = tuple[Any, ...]
_LeafKeys: TypeAlias = dict[str, _Keys]
# The number of records that are searched for fields.
_MAX_SEARCHED_RECORDS = 20


class LogSteps(EpisodeSteps):
    """The steps of an episode of a log of EnvLogger.

    Which fields there are is found in its first steps and its last one.

    Args:
      reader: The log.
      index: The number of the episode.
      cache: Keeps steps.
      name: Names the log in the cache.
    """

    is_slow = True

    def __init__(self, reader: Reader, index: int, cache: Cache, name: str = "") -> None:
        self._reader, self._index, self._cache = reader, index, cache
        self._key = "log", name, index
        self._records = reader.episodes[index]
        self.num_steps = len(self._records)
        metadata = reader.episode_metadata()[index]
        named = {} if metadata is None else {"metadata": metadata}
        self.metadata = metadata if isinstance(metadata, Mapping) else named
        self._leaf_keys: _LeafKeys = {}
        self.fields = self._find_fields()
        self._lock = threading.Lock()
        self._points = evenly(self.num_steps, self.most_points)
        sizes = {path: num_curves(self.fields[path]) for path in self._leaf_keys}
        self._curves = {p: np.full((len(self._points), n), np.nan) for p, n in sizes.items() if n}
        numbers = [path for path in (rlds.REWARD, TIME) if sizes.get(path) == 1]
        self._numbers = {path: np.full(self.num_steps, np.nan) for path in numbers}
        self._scan, self._num_scanned = self._scanned(), 0

    def _find_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for record in self._examples():
            for keys, value in _leaves_of(record):
                path = _path_of(keys)
                if value is not None and path not in fields:
                    fields[path], self._leaf_keys[path] = _field_like(value), keys
        # They are stored in no order.
        return dict(sorted(fields.items())) | dict.fromkeys(rlds.STEP_FLAGS, Field(np.bool_))

    def _examples(self) -> list[StepData]:
        """The first two records and the last one; other records in place of damaged ones."""
        examples: list[StepData] = []
        damage: EnvLoggerError | None = None
        first = dict.fromkeys((0, 1, self.num_steps - 1))
        for number in [*first, *evenly(self.num_steps, _MAX_SEARCHED_RECORDS)]:
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
        for ahead, leaf_keys in self._grouped(paths):
            if step + ahead < self.num_steps:
                leaves = dict(_leaves_of(self._record(step + ahead)))
                values |= {path: leaves[keys] for path, keys in leaf_keys.items() if keys in leaves}
        return values

    def _grouped(self, paths: Iterable[str]) -> list[tuple[int, _LeafKeys]]:
        """Groups fields by the record that stores them: 0 for the step, 1 for the next step."""
        groups: dict[int, _LeafKeys] = {}  # Some come with the next step: see `to_rlds_episode`.
        for path in paths:
            if path in self._leaf_keys:
                keys = self._leaf_keys[path]
                groups.setdefault(keys[0] in TRANSITION_FIELDS, {})[path] = keys
        return [*groups.items()]

    def _flag(self, path: str, step: int) -> bool:
        is_last = step + 1 == self.num_steps
        if path != rlds.IS_TERMINAL:
            return is_last if path == rlds.IS_LAST else step == 0
        timestep = self._record(step).timestep
        return is_last and timestep.last() and _is_zero(timestep.discount)

    @override
    def numbers(self, path: str, seconds: float) -> tuple[np.ndarray, bool]:
        numbers = self._numbers[path]
        with self._lock:
            self._go_on(time.monotonic() + seconds, self.num_steps)
            return numbers.copy(), self._num_scanned == self.num_steps

    @override
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        if path in rlds.STEP_FLAGS:
            return np.array([[self._flag(path, step)] for step in steps], np.float64)
        with self._lock:
            self._go_on(math.inf, len(self._points))
            return self._curves[path][np.searchsorted(self._points, steps)]

    def _go_on(self, deadline: float, number: int) -> None:
        """Reads on, until a number of steps has been read in all, or time is over."""
        while self._num_scanned < number:
            next(self._scan, None)
            self._num_scanned += 1
            if time.monotonic() > deadline:
                return

    def _scanned(self) -> Iterator[None]:
        """Reads a step for each `next`: first evenly spaced steps, then the other ones."""
        rows = {step: row for row, step in enumerate(self._points)}
        other_steps = (step for step in range(self.num_steps) if step not in rows)
        of_points, of_others = self._grouped(self._curves), self._grouped(self._numbers)
        for step in itertools.chain(_coarse_first(self._points), other_steps):
            row = rows.get(step)
            for path, value in self._picked(step, of_others if row is None else of_points):
                numbers = _as_numbers(value, self._curves[path].shape[1])
                if row is not None:
                    self._curves[path][row] = numbers
                if path in self._numbers:
                    self._numbers[path][step] = numbers[0]
            yield

    def _picked(self, step: int, groups: list[tuple[int, _LeafKeys]]) -> Iterator[tuple[str, Any]]:
        """Yields the values of fields in a step; not those of a damaged record."""
        for ahead, leaf_keys in groups:
            if step + ahead < self.num_steps:
                with contextlib.suppress(EnvLoggerError):
                    [values] = self._reader.pick(self._index, [step + ahead], [*leaf_keys.values()])
                    yield from zip(leaf_keys, values)


def _leaves_of(record: StepData) -> Iterator[tuple[_Keys, Any]]:
    timestep = record.timestep
    values = record.action, timestep.reward, timestep.discount, timestep.observation
    named = dict(zip((*TRANSITION_FIELDS, rlds.OBSERVATION), values))
    return _walked({**named, "custom_data": record.custom_data}, ())


def _walked(value: Any, keys: _Keys) -> Iterator[tuple[_Keys, Any]]:
    """Yields the leaves of nested dicts and tuples, with their keys."""
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
    except ValueError:  # A list of arrays of different shapes.
        return Opaque("a list")
    if array.dtype.kind in "US":
        return Field(str if array.dtype.kind == "U" else bytes, array.shape)
    return Field(array.dtype, array.shape)


def _is_zero(discount: Any) -> bool:
    leaves = [leaf for _, leaf in _walked(discount, ()) if leaf is not None]
    return bool(leaves) and all(not np.any(leaf) for leaf in leaves)


def _as_numbers(value: Any, size: int) -> np.ndarray:
    """Returns a value as a flat array of 1 or `size` numbers; a NaN if it does not fit."""
    array = np.asarray(np.nan if value is None else value)
    fits = array.dtype.kind in "biuf" and array.size in (1, size)
    return array.reshape(-1) if fits else np.array([np.nan])


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
