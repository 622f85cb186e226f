"""Resampling of bags: episode bounds, step times, and the messages of each step."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlds.formats.bags.config import BagConfig, EpisodesBy, FieldOf
from rlds.formats.bags.messages import LAST_TIME
from rlds.formats.bags.tracks import Index, Track
from rlds.raw_files.image_files import black_jpeg
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from tfds_files.png import encode_png

__all__ = [
    "EpisodeSpan",
    "ages_of",
    "next_values",
    "rows_of",
    "spans_of",
    "stacked",
    "step_times",
    "values_of",
    "window_of",
]

# Stamps of a topic that decrease by more, in the order of logging, come from two runs.
_MAX_BACKWARD_NS = 10**9
_MAX_STEPS = 10_000_000


@dataclasses.dataclass(frozen=True)
class EpisodeSpan:
    """The span of an episode: its first and last log time, and its metadata record."""

    begin: int = 0
    end: int = LAST_TIME
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_end: bool = True


def spans_of(
    index: Index, config: EpisodesBy, records: Sequence[tuple[str, Mapping[str, str]]]
) -> list[EpisodeSpan]:
    """Returns the episodes of a recording, in order.

    Args:
      index: The index of the recording.
      config: The rule that bounds episodes, if a recording is not one.
      records: Its metadata records: their names, and what they say.

    Raises:
      KeyError: A record says no times.
    """
    if config.by == "marker":
        edges = [*index.markers, (LAST_TIME, False)]
        # If some ends are marked, an unmarked one is missing.
        begins_end = all(begins for _, begins in index.markers)
        return [
            EpisodeSpan(begin, end, has_end=end < LAST_TIME and (begins_end or not next_begins))
            for (begin, begins), (end, next_begins) in itertools.pairwise(edges)
            if begins
        ]
    if config.by == "metadata":
        spans = [
            EpisodeSpan(int(content[config.begin_key]), int(content[config.end_key]), content)
            for name, content in records
            if name == config.name
        ]
        return sorted(spans, key=lambda span: span.begin)
    logged, pauses = index.clock.logged, np.diff(index.clock.stamps)
    cuts = np.flatnonzero((pauses > config.seconds * 1e9) | (pauses < -_MAX_BACKWARD_NS)) + 1
    times = [0, *logged[cuts].tolist(), LAST_TIME]
    return [EpisodeSpan(*times) for times in itertools.pairwise(times)] if len(logged) else []


def step_times(
    index: Index, span: EpisodeSpan, config: BagConfig, tracks: Mapping[str, Track]
) -> Any:
    """Returns the times of the steps of an episode.

    Raises:
      ValueError: Stamps jump.
    """
    if config.clock.topic:
        first, after = np.searchsorted(index.clock.logged, [span.begin, span.end], side="left")
        stamps = index.clock.stamps[first:after]
        _check_runs(stamps, config.clock.topic)
        return np.sort(stamps, kind="stable")
    # Messages before the episode only provide values that have not changed since.
    series = [track.stamps[track.logged >= span.begin] for track in tracks.values()]
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
    if len(stamps) > 1 and (back := int(np.diff(stamps).min())) < -_MAX_BACKWARD_NS:
        raise ValueError(
            f"the stamps of {topic} go back by {-back / 1e9:.3f} s: the clock was set back, or a "
            'simulation restarted. Split there with episodes.by = "gap", or use '
            'stamp = "log_time"'
        )


def rows_of(track: Track, field: FieldOf, times: Any) -> Any:
    """Returns the message of a track for each step.

    Args:
      track: The track, ordered by stamps.
      field: The field.
      times: The times of the steps.

    Returns:
      A row of the track for each step, -1 if there is none; for "linear" and "slerp" the one at or
      before it; for "window" the last one of them.
    """
    stamps, num_messages = track.stamps, len(track.stamps)
    if not num_messages:
        return np.full(len(times), -1)
    rows = np.searchsorted(stamps, times, side="right") - 1
    following = np.minimum(rows + 1, num_messages - 1)
    if field.policy == "nearest":
        before = np.maximum(rows, 0)
        is_nearer = stamps[following] - times < times - stamps[before]
        rows = np.where(is_nearer | (rows < 0), following, before)
    elif field.policy == "first":
        rows = np.searchsorted(stamps, times, side="left")
        usual = int(np.median(np.diff(times))) if len(times) > 1 else 10**8
        ends = np.append(times[1:], times[-1:] + usual)
        is_in = (rows < num_messages) & (stamps[np.minimum(rows, num_messages - 1)] < ends)
        rows = np.where(is_in, rows, -1)
    elif field.policy in ("linear", "slerp"):
        is_exact = stamps[rows] == times
        is_between = (rows >= 0) & (following > rows)
        is_between &= stamps[following] - times <= field.max_age * 1e9
        rows = np.where(is_exact | is_between, rows, -1)
    farthest = rows
    if field.policy == "window":
        rows = np.where(rows >= field.size - 1, rows, -1)
        farthest = np.maximum(rows - field.size + 1, 0)
    is_near = np.abs(times - stamps[farthest]) <= field.max_age * 1e9
    return np.where((rows >= 0) & is_near, rows, -1)


def window_of(rows: Any, size: int) -> Any:
    """Returns the rows of the last messages of each step, the oldest first; -1 for none."""
    return np.where(rows[:, None] >= 0, rows[:, None] - np.arange(size)[::-1], -1)


def ages_of(track: Track, rows: Any, times: Any) -> tuple[Any, Any]:
    """Returns the stamps of messages, zero for none, and their ages in seconds, NaN for none."""
    if not len(track.stamps):
        return np.zeros(rows.shape, np.int64), np.full(rows.shape, np.nan)
    is_there, stamps = rows >= 0, track.stamps[rows]
    return np.where(is_there, stamps, 0), np.where(is_there, (times - stamps) / 1e9, np.nan)


def values_of(track: Track, field: FieldOf, rows: Any, times: Any) -> Any:
    """Returns numbers for steps, from messages or interpolated; NaN or zero without a message."""
    values = np.zeros((*rows.shape, *track.values.shape[1:]), track.values.dtype)
    is_there = rows >= 0
    if field.policy in ("linear", "slerp") and is_there.any():
        is_slerp = field.policy == "slerp"
        values[is_there] = _between(track, rows[is_there], times[is_there], is_slerp)
    else:
        values[is_there] = track.values[rows[is_there]]
    if values.dtype.kind == "f":
        values[~is_there] = np.nan
    return values


def _between(track: Track, rows: Any, times: Any, is_slerp: bool) -> Any:
    """Interpolates between messages; values at the exact time stay unchanged."""
    following = np.minimum(rows + 1, len(track.values) - 1)
    before, begin, end = track.values[rows], track.stamps[rows], track.stamps[following]
    share = (times - begin) / np.maximum(end - begin, 1)
    share = share.reshape(-1, *[1] * (before.ndim - 1))
    one, two = before.astype(np.float64), track.values[following].astype(np.float64)
    if is_slerp:
        cosine = np.sum(one * two, axis=-1, keepdims=True)
        two = np.where(cosine < 0, -two, two)  # The same rotation, by the shorter path.
        angle = np.arccos(np.clip(np.abs(cosine), 0, 1))
        sine = np.maximum(np.sin(angle), 1e-12)
        weights = [
            np.where(angle < 1e-6, plain, np.sin(plain * angle) / sine)
            for plain in (1 - share, share)
        ]
        mixed = weights[0] * one + weights[1] * two
        mixed /= np.maximum(np.linalg.norm(mixed, axis=-1, keepdims=True), 1e-12)
    else:
        mixed = one + (two - one) * share
    is_exact = (begin == times).reshape(share.shape)
    return np.where(is_exact, before, mixed.astype(before.dtype))


def next_values(column: Any) -> Any:
    """Returns the values of the next steps; zeros for the last step."""
    shifted = np.zeros_like(column)
    shifted[:-1] = column[1:]
    return shifted


def stacked(values: Sequence[Any], field: Field) -> Any:
    """Stacks values to a column; None becomes a placeholder."""
    if field.is_text or field.encoding:
        absent: Any = _absent(field) if any(value is None for value in values) else None
        return objects(absent if value is None else value for value in values)
    column = np.zeros((len(values), *map(int, field.shape)), field.dtype)  # type: ignore[arg-type]
    for row, value in enumerate(values):
        if value is not None:
            if value.shape != column.shape[1:] or value.dtype != column.dtype:
                got = f"{value.dtype} of shape {value.shape}"
                raise ValueError(f"{got}, expected {field}, as in the first message")
            column[row] = value
    return column


def _absent(field: Field) -> Any:
    shape = tuple(map(int, field.shape))  # type: ignore[arg-type]
    if field.encoding == "jpeg":
        return black_jpeg(shape if shape[-1] > 1 else shape[:2])
    if field.encoding:
        return encode_png(np.zeros(shape, field.dtype))
    if field.shape:
        return np.zeros(0, object)
    return "" if field.dtype == str else b""
