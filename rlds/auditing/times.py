"""Measures of timestamps: intervals, order, gaps."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["Times", "measure_times"]


@dataclasses.dataclass(frozen=True)
class Times:
    """Measures of the times of the rows of an episode.

    Attributes:
      interval: The median interval from row to row, in the unit of the data.
      stops: The number of rows in which the time does not increase.
      stops_row: The first of these rows.
      gap: The ratio of the largest interval to the median.
      gap_row: The row after the largest interval.
    """

    interval: float
    stops: int
    stops_row: int
    gap: float
    gap_row: int


def measure_times(times: np.ndarray) -> Times | None:
    """Measures timestamps; None for fewer than three times, or times that are not finite."""
    steps = np.diff(times)
    if len(steps) < 2 or not np.isfinite(steps).all():
        return None
    stops = np.flatnonzero(steps <= 0)
    intervals = steps[steps > 0]
    interval = float(np.median(intervals)) if len(intervals) else float("nan")
    largest = int(steps.argmax())
    first_stop = int(stops[0]) + 1 if len(stops) else -1
    return Times(interval, len(stops), first_stop, steps[largest] / interval, largest + 1)
