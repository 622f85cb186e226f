"""The values that the messages of a track give the steps of an episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlds.formats.bags.config import FieldOf
from rlds.formats.bags.tracks import Track, typical_step
from rlds.raw_files.jpeg_images import black_jpeg
from rlds.raw_files.png_images import encode_png
from rlds_ecosystem.fields import Field

__all__ = ["ages_of", "in_windows", "next_values", "rows_of", "stacked", "values_of"]


def rows_of(track: Track, field: FieldOf, times: Any) -> Any:
    """Returns which messages of a track each step has.

    Args:
      track: The track, ordered by stamps.
      field: The field.
      times: The times of the steps.

    Returns:
      A row of the track for each step, -1 if there is none; for "linear" and "slerp" the one at or
      before it; for "window" the last one of them.
    """
    stamps = track.stamps
    number = len(stamps)
    after = np.searchsorted(stamps, times, side="right")
    if not number:
        return np.full(len(times), -1)
    rows = after - 1
    following = np.minimum(rows + 1, number - 1)
    if field.policy == "nearest":
        before = np.maximum(rows, 0)
        is_nearer = stamps[following] - times < times - stamps[before]
        rows = np.where(is_nearer | (rows < 0), following, before)
    elif field.policy == "first":
        rows = np.searchsorted(stamps, times, side="left")
        ends = np.append(times[1:], times[-1:] + typical_step(times))
        is_in = (rows < number) & (stamps[np.minimum(rows, number - 1)] < ends)
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


def ages_of(track: Track, rows: Any, times: Any) -> tuple[Any, Any]:
    """Returns the stamps of messages, zero for none, and their ages in seconds, NaN for none."""
    if not len(track.stamps):
        return np.zeros(len(rows), np.int64), np.full(len(rows), np.nan)
    is_there, stamps = rows >= 0, track.stamps[rows]
    return np.where(is_there, stamps, 0), np.where(is_there, (times - stamps) / 1e9, np.nan)


def values_of(track: Track, field: FieldOf, rows: Any, times: Any) -> Any:
    """Returns the numbers of steps: of messages, or between them."""
    values = np.zeros((len(rows), *track.values.shape[1:]), track.values.dtype)
    is_there = rows >= 0
    rows, times = rows[is_there], times[is_there]
    if field.policy in ("linear", "slerp") and len(rows):
        values[is_there] = _between(track, rows, times, field.policy == "slerp")
    else:
        values[is_there] = track.values[rows]
    if values.dtype.kind == "f":
        values[~is_there] = np.nan
    return values


def _between(track: Track, rows: Any, times: Any, is_slerp: bool) -> Any:
    """Interpolates; what is known exactly stays as it is."""
    before, after = track.values[rows], track.values[np.minimum(rows + 1, len(track.values) - 1)]
    begin, end = track.stamps[rows], track.stamps[np.minimum(rows + 1, len(track.stamps) - 1)]
    share = (times - begin) / np.maximum(end - begin, 1)
    share = share.reshape(-1, *[1] * (before.ndim - 1))
    one, two = before.astype(np.float64), after.astype(np.float64)
    if is_slerp:
        cosine = np.sum(one * two, axis=-1, keepdims=True)
        two = np.where(cosine < 0, -two, two)  # The same rotation, the short way.
        angle = np.arccos(np.clip(np.abs(cosine), 0, 1))
        sine = np.maximum(np.sin(angle), 1e-12)
        is_near = angle < 1e-6
        weights = [
            np.where(is_near, plain, np.sin(plain * angle) / sine) for plain in (1 - share, share)
        ]
        found = weights[0] * one + weights[1] * two
        found /= np.maximum(np.linalg.norm(found, axis=-1, keepdims=True), 1e-12)
    else:
        found = one + (two - one) * share
    is_exact = (begin == times).reshape(share.shape)
    return np.where(is_exact, before, found.astype(before.dtype))


def in_windows(track: Track, size: int, rows: Any, times: Any) -> tuple[Any, Any, Any]:
    """Returns the values of the last messages of each step, their stamps, and their ages."""
    inner = np.where(rows[:, None] >= 0, rows[:, None] - np.arange(size)[::-1], -1).ravel()
    of_each = np.repeat(times, size)
    stamps, ages = ages_of(track, inner, of_each)
    values = values_of(track, FieldOf("", policy="window"), inner, of_each)
    shape = (len(rows), size)
    return values.reshape(*shape, *values.shape[1:]), stamps.reshape(shape), ages.reshape(shape)


def next_values(column: Any) -> Any:
    """Returns the values of the next steps; the last one has none."""
    made = np.zeros_like(column)
    made[:-1] = column[1:]
    return made


def stacked(values: Sequence[Any], field: Field) -> Any:
    """Returns a column; something plain in the place of None."""
    if field.is_text or field.encoding:
        column = np.empty(len(values), object)
        absent: Any = _absent(field) if any(value is None for value in values) else None
        for row, value in enumerate(values):
            column[row] = absent if value is None else value
        return column
    column = np.zeros((len(values), *map(int, field.shape)), field.dtype)  # type: ignore[arg-type]
    for row, value in enumerate(values):
        if value is not None:
            if value.shape != column.shape[1:] or value.dtype != column.dtype:
                found = f"{value.dtype} of shape {value.shape}"
                raise ValueError(f"{found}, expected {field}, as the first one is")
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
