"""Backpressure and flush schedule of the writing thread: queue limits, flush times, idle time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

__all__ = ["Pacing"]

# The bytes that gather before the thread is woken: often enough to keep it busy, seldom enough that
# not one step in a hundred pays for it.
_WAKE_BYTES = 1 << 22

# The jobs that may wait before their duration is known.
_FIRST_JOBS = 64

# Resting a third of the time shows that the thread keeps up: how much more or less counts.
_SLACK_SECONDS = 0.1


class Pacing:
    """Measures the speed of a thread, and limits the jobs that may wait for it.

    In each round the thread does the jobs that have gathered, and flushes if that is due. What is
    accepted is to be flushed within the interval: half of it passes between flushes, a quarter is
    for the jobs that are there when a flush is due, and the last quarter for the flush itself.

    Args:
      flush_interval: After how many seconds at the latest a job is flushed; None for never.
      max_bytes: The maximum number of bytes in the queue.
      clock: Returns the time in seconds.

    Attributes:
      max_bytes: The maximum number of bytes in the queue, with those being written.
      max_jobs: The maximum number of jobs in the queue, with those being done.
      wake_bytes: The number of new bytes that wakes the thread.
      wake_jobs: More new jobs than these wake the thread.
    """

    def __init__(
        self,
        flush_interval: float | None,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_bytes = max_bytes
        self.max_jobs = math.inf if flush_interval is None else _FIRST_JOBS
        self.wake_bytes = min(_WAKE_BYTES, max_bytes // 4)
        self.wake_jobs = self.max_jobs / 2
        self._clock = clock
        self._flush_period = math.inf if flush_interval is None else flush_interval / 2
        self._slack = -_SLACK_SECONDS
        self._begin = self._end = clock()  # Of the last round.
        self._next_flush = self._end + self._flush_period
        self._flush_begin: float | None = None  # Of the flush that ends this round.
        self._seconds, self._num_jobs = 0.0, 0  # Since the last flush.
        self._seconds_per_job = 1e-9  # Times before the last flush, and during it.

    def seconds_to_flush(self) -> float:
        """Returns the seconds until the next flush; 0 or less if one is due."""
        return min(self._next_flush - self._clock(), threading.TIMEOUT_MAX)

    def has_time(self, num_new_jobs: int, num_bytes: int) -> bool:
        """Whether the thread idles a third of the time, and its queue is less than half full.

        Args:
          num_new_jobs: The number of jobs in the queue.
          num_bytes: The number of bytes in the queue, with those being written.
        """
        return (
            self._slack > 0
            and num_bytes <= self.max_bytes / 2
            and num_new_jobs <= self.wake_jobs / 2
        )

    def begin_round(self) -> None:
        """Called when the thread has rested, and begins to work."""
        self._begin = self._clock()
        self._slack = min(self._slack + 2 * (self._begin - self._end), _SLACK_SECONDS)

    def flush_is_due(self) -> bool:
        """Whether this round ends with a flush; called when its jobs are done."""
        now = self._clock()
        self._flush_begin = now if now >= self._next_flush else None
        return self._flush_begin is not None

    def end_round(self, num_jobs: int) -> None:
        """Called when the jobs of a round are done, and flushed if that was due.

        Args:
          num_jobs: The number of jobs.
        """
        self._end = self._clock()
        seconds = self._end - self._begin
        self._slack = max(self._slack - seconds, -_SLACK_SECONDS)
        self._seconds += seconds
        self._num_jobs += num_jobs
        if self._num_jobs:
            # Accepted jobs have to be done within the flush period.
            seconds_per_job = self._seconds / self._num_jobs
            possible = self._flush_period / 2 / max(seconds_per_job, self._seconds_per_job)
            self.max_jobs = max(1, min(possible, 2 * self.max_jobs))
            self.wake_jobs = self.max_jobs / 2
            if self._flush_begin is not None:
                self._seconds_per_job = seconds_per_job
                self._seconds, self._num_jobs = 0.0, 0
        if self._flush_begin is not None:
            # The longer it took, the sooner the next one begins, so that it is over in time.
            self._next_flush = 2 * self._flush_begin + self._flush_period - self._end
