"""Views of episodes trimmed to a range of steps, and of episodes with recomputed step flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources.digests import as_array
from rlds.sources.episode_fields import TRUNCATED
from rlds.sources.source import (
    ALL_ROWS,
    TRANSITION_FIELDS,
    Fields,
    Lengths,
    Origin,
    Source,
    SourceEpisode,
)
from rlds.sources.view import RowContext, View, num_steps_of, read_values, select_rows
from rlds.video import FIRST, FRAMES, VIDEO
from rlds_ecosystem.model.columns import zeros_like
from rlds_ecosystem.model.nests import root_of
from tfds_files.columns import stack

__all__ = ["FlagsView", "TrimView"]

_STEPS = f"{rlds.STEPS}/"
_FLAG_PATHS = tuple(_STEPS + name for name in rlds.STEP_FLAGS)


class TrimView(View):
    """A view of the episodes of one split, with some of them trimmed to a range of steps.

    Video clips do not change; only the index of their first frame does.

    Args:
      base: The source.
      begin: The first kept step of each episode, int64 of shape `[episodes]`.
      end: The step after the last kept one; negative to keep the end.
    """

    def __init__(self, base: Source, begin: np.ndarray, end: np.ndarray) -> None:
        super().__init__(base)
        self._first_steps, self._end_steps = begin, end

    @override
    def base_steps(self, split: str, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        first_steps: np.ndarray = self._first_steps[episodes]
        return steps + first_steps

    @override
    def lengths(self, split: str, episodes: np.ndarray, lengths: Lengths) -> Lengths:
        begin, end = self._first_steps[episodes], self._end_steps[episodes]
        old_num_steps = lengths.num_steps
        is_cut = (end >= 0) & (end < old_num_steps)
        num_steps = np.where(is_cut, end, old_num_steps) - begin
        if not lengths.are_complete:
            return Lengths(num_steps)
        without_action = np.where(is_cut, 1, old_num_steps - lengths.num_transitions)
        return Lengths(num_steps, num_steps - without_action, lengths.final_observation_known)

    @override
    def changed_episodes(self, split: str, episodes: np.ndarray) -> np.ndarray:
        mask: np.ndarray = (self._first_steps[episodes] > 0) | (self._end_steps[episodes] >= 0)
        return mask

    @override
    def values(
        self, split: str, index: int, fields: Collection[str] | None, rows: slice = ALL_ROWS
    ) -> tuple[SourceEpisode, dict[str, Any]]:
        begin, end = int(self._first_steps[index]), int(self._end_steps[index])
        location = self.locate(split, index)
        if begin <= 0 and end < 0:
            return read_values(location, fields, rows)
        episode, values = read_values(location, None if fields is None else {*fields, *_FLAG_PATHS})
        num_steps = num_steps_of(values)
        end = num_steps if end < 0 else min(end, num_steps)
        if begin >= end:
            raise ValueError(
                f"trim: no step of episode {episode.key!r} is left: it has {num_steps}, got "
                f"{begin}:{end}"
            )
        trimmed = _trim(values, begin, end, is_cut=end < num_steps)
        trimmed |= _step_flags(trimmed.get(_FLAG_PATHS[2]), end - begin, self.fields.flags)
        origin, origin_begin = episode.origin, episode.origin.begin
        num_rows = origin.end - origin_begin  # Some origins exclude the final observation.
        if num_rows in (num_steps, num_steps - bool(values[rlds.FINAL_OBSERVATION_KNOWN])):
            origin = Origin(origin.file, origin_begin + begin, origin_begin + min(end, num_rows))
        return dataclasses.replace(episode, origin=origin), select_rows(trimmed, rows)


class FlagsView(View):
    """A view of one split that recomputes the step flags of some episodes from step positions.

    Args:
      base: The source.
      mask: A mask of the episodes with recomputed flags.
    """

    keeps_values, uses_all_steps = True, True
    changed_paths = _FLAG_PATHS

    def __init__(self, base: Source, mask: np.ndarray) -> None:
        super().__init__(base)
        self._mask = mask

    @property
    @override
    def fields(self) -> Fields:
        return super().fields.replace(flags=rlds.STEP_FLAGS)

    @override
    def changed_episodes(self, split: str, episodes: np.ndarray) -> np.ndarray:
        mask: np.ndarray = self._mask[episodes]
        return mask

    @override
    def needs(self, fields: Collection[str]) -> Collection[str]:
        stored_names = {*self.bases[0].fields.flags, *self.bases[0].fields.steps}
        flags = [path for name, path in zip(rlds.STEP_FLAGS, _FLAG_PATHS) if name in stored_names]
        return {*fields, *flags}

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        if not self._mask[rows.episode_index]:
            return values
        return values | _step_flags(values.get(_FLAG_PATHS[2]), len(rows.steps), rlds.STEP_FLAGS)


def _trim(values: Mapping[str, Any], begin: int, end: int, *, is_cut: bool) -> dict[str, Any]:
    """Selects a range of steps. Video clips do not change, except the index of the first frame."""
    trimmed = {
        path: _stack_column(value[begin:end]) if path.startswith(_STEPS) else value
        for path, value in values.items()
    }
    for path in trimmed if is_cut and values[rlds.FINAL_OBSERVATION_KNOWN] else ():
        if path.startswith(_STEPS) and root_of(path.removeprefix(_STEPS)) in TRANSITION_FIELDS:
            trimmed[path] = as_array(trimmed[path]).copy()
            trimmed[path][-1:] = zeros_like(trimmed[path][-1:])
    for path in [path for path in values if root_of(path) == VIDEO and path.endswith(f"/{FIRST}")]:
        frames = path.removesuffix(FIRST) + FRAMES
        if frames in values:
            trimmed[frames] = values[frames][begin:end]
            visible_frames = trimmed[frames][trimmed[frames] >= 0]
            trimmed[path] = np.int64(visible_frames[0] if len(visible_frames) else values[path])
        else:
            trimmed[path] = np.int64(values[path] + begin)
    trimmed[TRUNCATED] = values[TRUNCATED] or is_cut
    return trimmed


def _stack_column(column: Any) -> Any:
    """Returns a column of arrays as one array, if the remaining rows have one shape."""
    is_ragged = isinstance(column, np.ndarray) and column.dtype == object
    is_ragged = is_ragged and isinstance(column.flat[0], np.ndarray)
    return stack(list(column)) if is_ragged else column


def _step_flags(is_terminal: Any, num_steps: int, names: Collection[str]) -> dict[str, np.ndarray]:
    """Returns the step flags by path: `is_first` of the first step, `is_last` of the last one."""
    rows = np.arange(num_steps)
    is_terminal = np.zeros(num_steps, np.bool_) if is_terminal is None else is_terminal
    is_last = rows == num_steps - 1
    flags = {
        rlds.IS_FIRST: rows == 0,
        rlds.IS_LAST: is_last,
        rlds.IS_TERMINAL: np.asarray(is_terminal, np.bool_) & is_last,
    }
    return {_STEPS + name: column for name, column in flags.items() if name in names}
