"""Writes to the shards of a dataset in a thread, so that the environment does not wait for it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from envlogger.backends.riegeli_shard_sequence import ShardSequence
from envlogger.errors import UsageError

__all__ = ["BackgroundWriter", "WritingFailed"]

# How many bytes gather before the thread is woken: often enough to keep it busy, seldom enough that
# not one step in a hundred pays for it.
_WAKE_BYTES = 1 << 22

Job = tuple[Callable[[bytes], None], bytes]


class WritingFailed(Exception):
    """What was handed over could not all be written, or no more can be.

    Attributes:
      num_lost_steps: How many steps are lost that were accepted.
    """

    def __init__(self, cause: BaseException, num_lost_steps: int) -> None:
        super().__init__(cause)
        self.cause = cause
        self.num_lost_steps = num_lost_steps


class BackgroundWriter:
    """Hands steps over to a thread that writes them, and flushes them in intervals.

    The thread ends with `close`; until then it keeps this object alive. Errors of the thread are
    raised by the next call, as `WritingFailed`, and by all calls after it.

    Args:
      shards: Where to write; used by the thread alone from now on.
      flush_interval: After how many seconds at the latest a step is flushed; None for never.
      max_pending_bytes: How much may wait to be written; `put` waits when it is more.
    """

    def __init__(
        self, shards: ShardSequence, flush_interval: float | None, max_pending_bytes: int
    ) -> None:
        self._shards = shards
        self._step_jobs = (shards.begin_episode, shards.add_step)
        # Half of the time is for the flush itself.
        self._flush_period = None if flush_interval is None else flush_interval / 2
        self._max_pending_bytes = max_pending_bytes
        self._wake_bytes = min(_WAKE_BYTES, max_pending_bytes // 4)

        # What is below is shared, and used under the lock. A recorder may be garbage collected, and
        # closed, by whichever thread allocates something, even by one that holds the lock.
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self._jobs: list[Job] = []
        self._num_new_bytes = 0
        self._num_taken_bytes = 0
        self._num_requests = 0
        self._num_served = 0
        self._ending = False
        self._ended = False
        self._failure: WritingFailed | None = None

        # A thread that is no daemon would be waited for before recorders are closed at exit.
        self._thread = threading.Thread(target=self._run, name="envlogger", daemon=True)
        self._thread.start()

    def put(self, function: Callable[[bytes], None], argument: bytes) -> None:
        """Has a method of the shards called; waits while too much is pending.

        Raises:
          WritingFailed: This job will not be done.
        """
        with self._lock:
            if self._ending:
                self._raise_failure()
            self._jobs.append((function, argument))
            self._num_new_bytes += len(argument)
            if self._num_new_bytes >= self._wake_bytes:
                self._work.notify()
                while self._num_new_bytes + self._num_taken_bytes > self._max_pending_bytes:
                    self._progress.wait()

    def finish(self, *, flush: bool) -> None:
        """Waits until all jobs are done, and flushed if that is asked for.

        Raises:
          WritingFailed: Not all could be written.
        """
        with self._lock:
            if self._ending:
                self._raise_failure()
            if flush:
                self._jobs.append((lambda _: self._shards.flush(), b""))
            self._num_requests += 1
            request = self._num_requests
            self._work.notify()
            while self._num_served < request:
                self._progress.wait()
            if self._ending:
                self._raise_failure()

    def close(self) -> None:
        """Writes all, closes the shards and ends the thread; further calls do nothing.

        Raises:
          WritingFailed: Not all could be written.
        """
        with self._lock:
            self._ending = True
            self._work.notify()
        if threading.current_thread() is self._thread:
            return  # The garbage collector called, and the thread goes on to its end.
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _raise_failure(self) -> NoReturn:
        """Waits for the end of the thread, which knows what was lost."""
        while not self._ended:
            self._progress.wait()
        raise self._failure or UsageError("the recorder is closed")

    # What follows runs in the thread.

    def _run(self) -> None:
        self._taken: Iterator[Job] = iter(())
        self._current: Job | None = None
        failure = None
        try:
            self._work_until_the_end()
            self._shards.close()
            if self._shards.trouble is not None:
                failure = WritingFailed(self._shards.trouble, 0)
        except BaseException as e:
            failure = WritingFailed(e, self._count_lost_steps())
        with self._lock:
            self._ending = self._ended = True
            self._failure = failure
            self._jobs = []
            self._num_new_bytes = self._num_taken_bytes = 0
            self._num_served = self._num_requests
            self._progress.notify_all()

    def _work_until_the_end(self) -> None:
        next_flush = self._next_flush()
        is_dirty = False
        ending = False
        while not ending:
            self._taken, request, ending = self._take_jobs(next_flush)
            for job in self._taken:
                is_dirty = True
                self._current = job
                function, argument = job
                function(argument)
            self._current = None
            if time.monotonic() >= next_flush:
                if is_dirty:
                    self._shards.flush()
                is_dirty = False
                next_flush = self._next_flush()
            with self._lock:
                self._num_taken_bytes = 0
                self._num_served = request
                if self._shards.trouble is not None:
                    self._ending = True
                self._progress.notify_all()

    def _next_flush(self) -> float:
        return math.inf if self._flush_period is None else time.monotonic() + self._flush_period

    def _take_jobs(self, next_flush: float) -> tuple[Iterator[Job], int, bool]:
        with self._lock:
            while not (
                self._ending
                or self._num_new_bytes >= self._wake_bytes
                or self._num_requests > self._num_served
            ):
                remaining = next_flush - time.monotonic()
                if remaining <= 0:
                    break
                self._work.wait(None if remaining == math.inf else remaining)
            jobs, self._jobs = self._jobs, []
            self._num_taken_bytes, self._num_new_bytes = self._num_new_bytes, 0
            return iter(jobs), self._num_requests, self._ending

    def _count_lost_steps(self) -> int:
        """Saves what can be saved after a failure."""
        with self._lock:
            self._ending = True
            jobs, self._jobs = self._jobs, []
        num_lost = self._shards.salvage()
        if self._current is not None:
            jobs.append(self._current)
        jobs += self._taken
        return num_lost + sum(function in self._step_jobs for function, _ in jobs)
