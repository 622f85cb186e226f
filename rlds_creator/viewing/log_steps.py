"""The steps of an episode in an EnvLogger log, also during its recording; read by records."""

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


# The keys of a leaf in a record, see `_record_leaves`.
_Keys: TypeAlias = tuple[Any, ...]
_LeafKeys: TypeAlias = dict[str, _Keys]
# The number of records that are searched for fields.
_MAX_SEARCHED_RECORDS = 20


class LogSteps(EpisodeSteps):
    """The steps of an episode of an EnvLogger log.

    The fields are inferred from the first steps and the last step.

    Args:
      reader: The reader of the log.
      index: The index of the episode.
      cache: The cache of records.
      name: The name of the log in the cache.
    """

    is_slow = True

    def __init__(self, reader: Reader, index: int, cache: Cache, name: str = "") -> None:
        self._reader, self._index, self._cache = reader, index, cache
        self._key = "log", name, index
        self._records = reader.episodes[index]
        self.num_steps = len(self._records)
        metadata = reader.episode_metadata()[index]
        if not isinstance(metadata, Mapping):
            metadata = {} if metadata is None else {"metadata": metadata}
        self.metadata = metadata
        self._leaf_keys: _LeafKeys = {}
        self.fields = self._find_fields()
        self._lock = threading.Lock()
        self._points = evenly(self.num_steps, self.max_points)
        sizes = {path: num_curves(self.fields[path]) for path in self._leaf_keys}
        self._curves = {p: np.full((len(self._points), n), np.nan) for p, n in sizes.items() if n}
        scalars = [path for path in (rlds.REWARD, TIME) if sizes.get(path) == 1]
        self._scalars = {path: np.full(self.num_steps, np.nan) for path in scalars}
        self._scan_iterator, self._num_scanned = self._scan_steps(), 0

    def _find_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for record in self._example_records():
            for keys, value in _record_leaves(record):
                path = _field_path(keys)
                if value is not None and path not in fields:
                    fields[path], self._leaf_keys[path] = _infer_field(value), keys
        # Fields are sorted, because records store fields in any order.
        return dict(sorted(fields.items())) | dict.fromkeys(rlds.STEP_FLAGS, Field(np.bool_))

    def _example_records(self) -> list[StepData]:
        """Returns the first two records and the last record; another record if they are damaged."""
        examples: list[StepData] = []
        first_error: EnvLoggerError | None = None
        preferred = dict.fromkeys((0, 1, self.num_steps - 1))
        for step in [*preferred, *evenly(self.num_steps, _MAX_SEARCHED_RECORDS)]:
            if step >= self.num_steps or (examples and step not in preferred):
                continue
            try:
                examples.append(self._read_record(step))
            except EnvLoggerError as error:
                first_error = first_error or error
        if first_error is not None and not examples:
            raise first_error
        return examples

    def _read_record(self, step: int) -> StepData:
        record: StepData = self._cache.get((*self._key, step), lambda: self._records[step])
        return record

    @override
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        paths = list(paths)
        values = {path: self._read_flag(path, step) for path in paths if path in rlds.STEP_FLAGS}
        for offset, leaf_keys in self._group_by_record(paths):
            if step + offset < self.num_steps:
                leaves = dict(_record_leaves(self._read_record(step + offset)))
                values |= {path: leaves[keys] for path, keys in leaf_keys.items() if keys in leaves}
        return values

    def _group_by_record(self, paths: Iterable[str]) -> list[tuple[int, _LeafKeys]]:
        """Groups fields by the record that stores them: 0 for the step, 1 for the next step."""
        groups: dict[int, _LeafKeys] = {}  # Actions are in the next record, see `to_rlds_episode`.
        for path in paths:
            if path in self._leaf_keys:
                keys = self._leaf_keys[path]
                groups.setdefault(keys[0] in TRANSITION_FIELDS, {})[path] = keys
        return [*groups.items()]

    def _read_flag(self, path: str, step: int) -> bool:
        is_last = step + 1 == self.num_steps
        if path != rlds.IS_TERMINAL:
            return is_last if path == rlds.IS_LAST else step == 0
        timestep = self._read_record(step).timestep
        return is_last and timestep.last() and _is_zero(timestep.discount)

    @override
    def scalars(self, path: str, seconds: float) -> tuple[np.ndarray, bool]:
        scalars = self._scalars[path]
        with self._lock:
            self._read_until(time.monotonic() + seconds, self.num_steps)
            return scalars.copy(), self._num_scanned == self.num_steps

    @override
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        if path in rlds.STEP_FLAGS:
            return np.array([[self._read_flag(path, step)] for step in steps], np.float64)
        with self._lock:
            self._read_until(math.inf, len(self._points))
            return self._curves[path][np.searchsorted(self._points, steps)]

    def _read_until(self, deadline: float, count: int) -> None:
        """Continues the scan until a total number of steps is read, or the deadline."""
        while self._num_scanned < count:
            next(self._scan_iterator, None)
            self._num_scanned += 1
            if time.monotonic() > deadline:
                return

    def _scan_steps(self) -> Iterator[None]:
        """Reads a step on each `next`: first evenly spaced steps, then the remaining steps."""
        rows = {step: row for row, step in enumerate(self._points)}
        other_steps = (step for step in range(self.num_steps) if step not in rows)
        curves = self._group_by_record(self._curves)
        scalars = self._group_by_record(self._scalars)
        for step in itertools.chain(_coarse_first(self._points), other_steps):
            row = rows.get(step)
            for path, value in self._read_values(step, scalars if row is None else curves):
                vector = _as_vector(value, self._curves[path].shape[1])
                if row is not None:
                    self._curves[path][row] = vector
                if path in self._scalars:
                    self._scalars[path][step] = vector[0]
            yield

    def _read_values(
        self, step: int, groups: list[tuple[int, _LeafKeys]]
    ) -> Iterator[tuple[str, Any]]:
        """Yields the values of fields in a step, without those of damaged records."""
        for offset, leaf_keys in groups:
            if step + offset < self.num_steps:
                with contextlib.suppress(EnvLoggerError):
                    fields = [*leaf_keys.values()]
                    [values] = self._reader.pick(self._index, [step + offset], fields)
                    yield from zip(leaf_keys, values)


def _record_leaves(record: StepData) -> Iterator[tuple[_Keys, Any]]:
    timestep = record.timestep
    values = record.action, timestep.reward, timestep.discount, timestep.observation
    fields = dict(zip((*TRANSITION_FIELDS, rlds.OBSERVATION), values))
    return _walk({**fields, "custom_data": record.custom_data}, ())


def _walk(value: Any, keys: _Keys) -> Iterator[tuple[_Keys, Any]]:
    """Yields the leaves of nested dicts and tuples, with their keys."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _walk(child, (*keys, key))
    elif isinstance(value, tuple):
        for index, child in enumerate(value):
            yield from _walk(child, (*keys, index))
    else:
        yield keys, value


def _field_path(keys: Sequence[Any]) -> str:
    """Returns the path of a field; the path of a field of custom data has no prefix."""
    is_custom = keys[0] == "custom_data" and len(keys) > 1
    return "/".join(map(str, keys[1:] if is_custom else keys))


def _infer_field(value: Any) -> Any:
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
    leaves = [leaf for _, leaf in _walk(discount, ()) if leaf is not None]
    return bool(leaves) and all(not np.any(leaf) for leaf in leaves)


def _as_vector(value: Any, size: int) -> np.ndarray:
    """Returns a value as a flat array of 1 or `size` elements; a NaN if it does not fit."""
    array = np.asarray(np.nan if value is None else value)
    fits = array.dtype.kind in "biuf" and array.size in (1, size)
    return array.reshape(-1) if fits else np.array([np.nan])


def _coarse_first(points: Sequence[int]) -> Iterator[int]:
    """Yields points in an order in which the first points are spread over the complete range.

    >>> list(_coarse_first([0, 1, 2, 3, 4]))
    [0, 4, 2, 1, 3]
    """
    stride = 1 << max(len(points) - 1, 0).bit_length()
    yield from points[:: stride or 1]
    while stride > 1:
        yield from points[stride // 2 :: stride]
        stride //= 2
