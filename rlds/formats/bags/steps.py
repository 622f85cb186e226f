"""Resampling of bags: episode bounds, step times, and the messages of each step."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlds.formats.bags.config import BagConfig, EpisodeBounds, FieldConfig
from rlds.formats.bags.messages import LAST_TIME
from rlds.formats.bags.tracks import Index, Track
from rlds.raw_files.image_files import black_jpeg
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from tfds_files.png import encode_png

__all__ = [
    "EpisodeSpan",
    "find_spans",
    "match_rows",
    "sample_values",
    "shift_values",
    "stack_values",
    "stamps_and_ages",
    "step_times",
    "window_rows",
]

# A larger backward jump of the stamps of a topic, in logging order, separates two recordings.
_MAX_BACKWARD_NS = 10**9
_MAX_STEPS = 10_000_000


@dataclasses.dataclass(frozen=True)
class EpisodeSpan:
    """The first log time of an episode, its end, and its metadata record."""

    start: int = 0
    end: int = LAST_TIME
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_end: bool = True


def find_spans(
    index: Index, config: EpisodeBounds, records: Sequence[tuple[str, Mapping[str, str]]]
) -> list[EpisodeSpan]:
    """Returns the episodes of a recording, in order.

    Args:
      index: The index of the recording.
      config: The rule that bounds episodes, except "bag".
      records: The names and contents of the metadata records.

    Raises:
      KeyError: A metadata record has no times.
    """
    if config.by == "marker":
        edges = [*index.markers, (LAST_TIME, False)]
        # If other ends have markers, the marker is missing.
        begins_end = all(is_begin for _, is_begin in index.markers)
        return [
            EpisodeSpan(start, end, has_end=end < LAST_TIME and (begins_end or not is_next_begin))
            for (start, is_begin), (end, is_next_begin) in itertools.pairwise(edges)
            if is_begin
        ]
    if config.by == "metadata":
        spans = [
            EpisodeSpan(int(content[config.begin_key]), int(content[config.end_key]), content)
            for name, content in records
            if name == config.name
        ]
        return sorted(spans, key=lambda span: span.start)
    log_times, pauses = index.clock.log_times, np.diff(index.clock.stamps)
    boundaries = np.flatnonzero((pauses > config.seconds * 1e9) | (pauses < -_MAX_BACKWARD_NS)) + 1
    times = [0, *log_times[boundaries].tolist(), LAST_TIME]
    return [EpisodeSpan(*times) for times in itertools.pairwise(times)] if len(log_times) else []


def step_times(
    index: Index, span: EpisodeSpan, config: BagConfig, tracks: Mapping[str, Track]
) -> Any:
    """Returns the times of the steps of an episode.

    Raises:
      ValueError: The stamps jump.
    """
    if config.clock.topic:
        start, stop = np.searchsorted(index.clock.log_times, [span.start, span.end], side="left")
        stamps = index.clock.stamps[start:stop]
        _check_runs(stamps, config.clock.topic)
        return np.sort(stamps, kind="stable")
    # Messages before the episode provide the values at its begin, but do not extend it.
    series = [track.stamps[track.log_times >= span.start] for track in tracks.values()]
    series = [stamps for stamps in series if len(stamps)]
    if not series:
        return np.zeros(0, np.int64)
    first = max(int(stamps[0]) for stamps in series)
    last = min((int(stamps[-1]) for stamps in series if len(stamps) > 1), default=first)
    num_steps = int((last - first) * config.clock.rate / 1e9) + 1 if last >= first else 0
    if num_steps > _MAX_STEPS:
        raise ValueError(
            f"{num_steps:,} steps at {config.clock.rate} Hz, expected at most {_MAX_STEPS:,}: the "
            'stamps seem to jump; try stamp = "log_time"'
        )
    return first + np.round(np.arange(num_steps) * 1e9 / config.clock.rate).astype(np.int64)


def _check_runs(stamps: Any, topic: str) -> None:
    if len(stamps) > 1 and (jump := int(np.diff(stamps).min())) < -_MAX_BACKWARD_NS:
        raise ValueError(
            f"the stamps of {topic} go back by {-jump / 1e9:.3f} s: the clock was set back, or a "
            'simulation restarted. Split there with episodes.by = "gap", or use '
            'stamp = "log_time"'
        )


def match_rows(track: Track, field: FieldConfig, times: Any) -> Any:
    """Returns the row of a track for each step.

    Args:
      track: The track, ordered by stamps.
      field: The field.
      times: The times of the steps.

    Returns:
      The rows of messages, or -1 for a step without a message. For "linear" and "slerp", the
      message at or before the step; for "window", the last message.
    """
    stamps, num_messages = track.stamps, len(track.stamps)
    if not num_messages:
        return np.full(len(times), -1)
    rows = np.searchsorted(stamps, times, side="right") - 1
    next_rows = np.minimum(rows + 1, num_messages - 1)
    if field.policy == "nearest":
        previous_rows = np.maximum(rows, 0)
        is_nearer = stamps[next_rows] - times < times - stamps[previous_rows]
        rows = np.where(is_nearer | (rows < 0), next_rows, previous_rows)
    elif field.policy == "first":
        rows = np.searchsorted(stamps, times, side="left")
        usual_step = int(np.median(np.diff(times))) if len(times) > 1 else 10**8
        end_times = np.append(times[1:], times[-1:] + usual_step)
        is_before_end = stamps[np.minimum(rows, num_messages - 1)] < end_times
        rows = np.where(is_before_end & (rows < num_messages), rows, -1)
    elif field.policy in ("linear", "slerp"):
        is_exact = stamps[rows] == times
        is_between = (rows >= 0) & (next_rows > rows)
        is_between &= stamps[next_rows] - times <= field.max_age * 1e9
        rows = np.where(is_exact | is_between, rows, -1)
    oldest = rows
    if field.policy == "window":
        rows = np.where(rows >= field.size - 1, rows, -1)
        oldest = np.maximum(rows - field.size + 1, 0)
    is_near = np.abs(times - stamps[oldest]) <= field.max_age * 1e9
    return np.where((rows >= 0) & is_near, rows, -1)


def window_rows(rows: Any, size: int) -> Any:
    """Returns the rows of the last messages of each step, the oldest first; -1 if missing."""
    return np.where(rows[:, None] >= 0, rows[:, None] - np.arange(size)[::-1], -1)


def stamps_and_ages(track: Track, rows: Any, times: Any) -> tuple[Any, Any]:
    """Returns the stamps (zero if missing) and the ages in seconds (NaN if missing) of messages."""
    if not len(track.stamps):
        return np.zeros(rows.shape, np.int64), np.full(rows.shape, np.nan)
    is_present, stamps = rows >= 0, track.stamps[rows]
    return np.where(is_present, stamps, 0), np.where(is_present, (times - stamps) / 1e9, np.nan)


def sample_values(track: Track, field: FieldConfig, rows: Any, times: Any) -> Any:
    """Returns the numbers of steps, interpolated if needed; NaN or zero without a message."""
    values = np.zeros((*rows.shape, *track.values.shape[1:]), track.values.dtype)
    is_present = rows >= 0
    if field.policy in ("linear", "slerp") and is_present.any():
        is_slerp = field.policy == "slerp"
        values[is_present] = _interpolate(track, rows[is_present], times[is_present], is_slerp)
    else:
        values[is_present] = track.values[rows[is_present]]
    if values.dtype.kind == "f":
        values[~is_present] = np.nan
    return values


def _interpolate(track: Track, rows: Any, times: Any, is_slerp: bool) -> Any:
    """Interpolates between messages; keeps values at the exact time unchanged."""
    next_rows = np.minimum(rows + 1, len(track.values) - 1)
    values, start_times, end_times = track.values[rows], track.stamps[rows], track.stamps[next_rows]
    fraction = (times - start_times) / np.maximum(end_times - start_times, 1)
    fraction = fraction.reshape(-1, *[1] * (values.ndim - 1))
    begin_values, end_values = values.astype(np.float64), track.values[next_rows].astype(np.float64)
    if is_slerp:
        cosine = np.sum(begin_values * end_values, axis=-1, keepdims=True)
        # Changing the sign of a quaternion keeps its rotation, and shortens the path.
        end_values = np.where(cosine < 0, -end_values, end_values)
        angle = np.arccos(np.clip(np.abs(cosine), 0, 1))
        sine = np.maximum(np.sin(angle), 1e-12)
        weights = [
            np.where(angle < 1e-6, weight, np.sin(weight * angle) / sine)
            for weight in (1 - fraction, fraction)
        ]
        interpolated = weights[0] * begin_values + weights[1] * end_values
        interpolated /= np.maximum(np.linalg.norm(interpolated, axis=-1, keepdims=True), 1e-12)
    else:
        interpolated = begin_values + (end_values - begin_values) * fraction
    is_exact = (start_times == times).reshape(fraction.shape)
    return np.where(is_exact, values, interpolated.astype(values.dtype))


def shift_values(column: Any) -> Any:
    """Returns the values of the next steps; zeros for the last step."""
    shifted = np.zeros_like(column)
    shifted[:-1] = column[1:]
    return shifted


def stack_values(values: Sequence[Any], field: Field) -> Any:
    """Stacks values to a column, with placeholders for None."""
    if field.is_text or field.encoding:
        placeholder: Any = _placeholder(field) if any(value is None for value in values) else None
        return objects(placeholder if value is None else value for value in values)
    column = np.zeros((len(values), *map(int, field.shape)), field.dtype)  # type: ignore[arg-type]
    for row, value in enumerate(values):
        if value is not None:
            if value.shape != column.shape[1:] or value.dtype != column.dtype:
                actual = f"{value.dtype} of shape {value.shape}"
                raise ValueError(f"{actual}, expected {field}, as in the first message")
            column[row] = value
    return column


def _placeholder(field: Field) -> Any:
    shape = tuple(map(int, field.shape))  # type: ignore[arg-type]
    if field.encoding == "jpeg":
        return black_jpeg(shape if shape[-1] > 1 else shape[:2])
    if field.encoding:
        return encode_png(np.zeros(shape, field.dtype))
    if field.shape:
        return np.zeros(0, object)
    return "" if field.dtype == str else b""
