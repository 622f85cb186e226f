"""Backpressure and flush schedule of EnvLogger's writing thread: queue limits, idle time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

__all__ = ["Backpressure"]

# The number of queued bytes that wakes the thread: small enough to keep the thread busy, and large
# enough that less than one step in a hundred wakes it.
_WAKE_BYTES = 1 << 22

# The queue limit before the first measurement of the duration of a job.
_INITIAL_MAX_JOBS = 64

# The limit of the idle budget, which is twice the idle time minus the busy time.
_MAX_IDLE_S = 0.1


class Backpressure:
    """Measures the speed of the writing thread, and limits its queue.

    The thread runs the queued jobs as a batch, and flushes if a flush is due. Accepted jobs are
    flushed within the interval: half of it passes between flushes, a quarter is for the jobs in
    the queue when a flush is due, and the last quarter for the flush itself.

    Args:
      flush_interval: The maximum number of seconds from queueing a job to its flush; None for no
        limit.
      max_bytes: The maximum number of bytes in the queue.
      clock: Returns the time in seconds.

    Attributes:
      max_bytes: The maximum number of bytes in the queue and the running batch.
      max_jobs: The maximum number of jobs in the queue and the running batch.
      wake_bytes: The number of queued bytes that wakes the thread.
      wake_jobs: The number of queued jobs above which the thread is woken.
    """

    def __init__(
        self,
        flush_interval: float | None,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_bytes = max_bytes
        self.max_jobs = math.inf if flush_interval is None else _INITIAL_MAX_JOBS
        self.wake_bytes = min(_WAKE_BYTES, max_bytes // 4)
        self.wake_jobs = self.max_jobs / 2
        self._clock = clock
        self._flush_period = math.inf if flush_interval is None else flush_interval / 2
        self._idle_budget_s = -_MAX_IDLE_S
        self._batch_start = self._batch_end = clock()  # The times of the last batch.
        self._next_flush = self._batch_end + self._flush_period
        self._flush_start: float | None = None  # The start of the flush after the batch.
        self._busy_s, self._num_jobs = 0.0, 0  # The sums since the last flush.
        self._seconds_per_job = 1e-9  # The mean of all jobs before the last flush ended.

    def seconds_to_flush(self) -> float:
        """Returns the seconds until the next flush; 0 or less if it is due."""
        return min(self._next_flush - self._clock(), threading.TIMEOUT_MAX)

    def is_idle(self, num_new_jobs: int, num_bytes: int) -> bool:
        """Returns True if the thread idles a third of the time, with its queue less than half full.

        Args:
          num_new_jobs: The number of jobs in the queue.
          num_bytes: The number of bytes in the queue and the running batch.
        """
        return (
            self._idle_budget_s > 0
            and num_bytes <= self.max_bytes / 2
            and num_new_jobs <= self.wake_jobs / 2
        )

    def begin_batch(self) -> None:
        """Updates the idle time; call it at the start of a batch, after the thread has waited."""
        self._batch_start = self._clock()
        idle_s = self._batch_start - self._batch_end
        self._idle_budget_s = min(self._idle_budget_s + 2 * idle_s, _MAX_IDLE_S)

    def is_flush_due(self) -> bool:
        """Returns whether this batch ends with a flush; call it after the jobs."""
        now = self._clock()
        self._flush_start = now if now >= self._next_flush else None
        return self._flush_start is not None

    def end_batch(self, num_jobs: int) -> None:
        """Updates the limits; call it at the end of a batch, after its flush."""
        self._batch_end = self._clock()
        seconds = self._batch_end - self._batch_start
        self._idle_budget_s = max(self._idle_budget_s - seconds, -_MAX_IDLE_S)
        self._busy_s += seconds
        self._num_jobs += num_jobs
        if self._num_jobs:
            # Accepted jobs must run within the flush period.
            seconds_per_job = self._busy_s / self._num_jobs
            max_jobs = self._flush_period / 2 / max(seconds_per_job, self._seconds_per_job)
            self.max_jobs = max(1, min(max_jobs, 2 * self.max_jobs))
            self.wake_jobs = self.max_jobs / 2
            if self._flush_start is not None:
                self._seconds_per_job = seconds_per_job
                self._busy_s, self._num_jobs = 0.0, 0
        if self._flush_start is not None:
            # After a long flush, the next flush begins earlier, so that it ends in time.
            self._next_flush = 2 * self._flush_start + self._flush_period - self._batch_end
