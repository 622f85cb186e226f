"""Measures of the times of rows."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["Times", "times_of"]


@dataclasses.dataclass(frozen=True)
class Times:
    """Measures of the times of the rows of an episode.

    Attributes:
      interval: The median interval from row to row, in the unit of the data.
      stops: The number of rows in which the time does not grow.
      stops_row: The first of these rows.
      gap: The ratio of the largest interval to the median.
      gap_row: The row after the largest interval.
    """

    interval: float
    stops: int
    stops_row: int
    gap: float
    gap_row: int


def times_of(times: np.ndarray) -> Times | None:
    """Measures the times of rows; None for fewer than three times, or if one is not finite."""
    steps = np.diff(times)
    if len(steps) < 2 or not np.isfinite(steps).all():
        return None
    stops = np.flatnonzero(steps <= 0)
    grows = steps[steps > 0]
    interval = float(np.median(grows)) if len(grows) else float("nan")
    largest = int(steps.argmax())
    first = int(stops[0]) + 1 if len(stops) else -1
    return Times(interval, len(stops), first, steps[largest] / interval, largest + 1)
