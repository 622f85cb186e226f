"""Writes to the shards of a dataset in a thread, so that the environment does not wait for it."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn, cast

from envlogger.backends.riegeli_files.shard_sequence import ShardSequence
from envlogger.errors import UsageError

__all__ = ["BackgroundWriter", "WritingFailed"]

# How many bytes gather before the thread is woken: often enough to keep it busy, seldom enough that
# not one step in a hundred pays for it.
_WAKE_BYTES = 1 << 22

# How many jobs may wait before it is known how long they take.
_FIRST_JOBS = 64

# To rest a third of the time shows that the thread keeps up: how much more or less counts.
_SLACK_SECONDS = 0.1

# A step of the running episode, or a method of the shards to be called with something.
_Call = tuple[Callable[[bytes], None], bytes]
_Job = bytes | _Call


class WritingFailed(Exception):
    """What was handed over could not all be written, or no more can be.

    Attributes:
      num_lost_steps: How many steps are lost that were accepted; None if it is not known.
    """

    def __init__(self, cause: BaseException, num_lost_steps: int | None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.num_lost_steps = num_lost_steps


class BackgroundWriter:
    """Hands steps over to a thread that writes them, and flushes them in intervals.

    Those who hand over more than the thread can write and flush in time have to wait for it.

    The thread ends with `close`; until then it keeps this object alive. Errors of the thread are
    raised by the next call, as `WritingFailed`, and by all calls after it.

    Attributes:
      lock: To be held while `put` and `finish` are called.

    Args:
      shards: Where to write; used by the thread alone from now on.
      flush_interval: After how many seconds at the latest a step is flushed; None for never.
      max_pending_bytes: How much may wait to be written; `put` waits when it is more.
    """

    def __init__(
        self, shards: ShardSequence, flush_interval: float | None, max_pending_bytes: int
    ) -> None:
        self._shards = shards
        # A quarter of the time is for the jobs that are taken when a flush is due, and the last one
        # for the flush itself.
        self._flush_period = math.inf if flush_interval is None else flush_interval / 2
        self._max_seconds_of_jobs = self._flush_period / 2
        self._max_pending_bytes = max_pending_bytes
        self._wake_bytes = min(_WAKE_BYTES, max_pending_bytes // 4)

        # What is below is shared, and used under the lock. A recorder may be garbage collected, and
        # closed, by whichever thread allocates something, even by one that holds the lock.
        self.lock = threading.RLock()
        self._work = threading.Condition(self.lock)
        self._progress = threading.Condition(self.lock)
        self._jobs: list[_Job] = []
        self._num_new_bytes = 0
        self._num_taken_bytes = 0
        self._num_taken_jobs = 0
        self._max_jobs = math.inf if flush_interval is None else _FIRST_JOBS
        self._wake_jobs = self._max_jobs / 2
        self._num_requests = 0
        self._num_served = 0
        self._slack = -_SLACK_SECONDS
        self._ending = False
        self._ended = False
        self._failure: WritingFailed | None = None

        # A thread that is no daemon would be waited for before recorders are closed at exit.
        self._thread = threading.Thread(target=self._run, name="envlogger", daemon=True)
        self._thread.start()

    def add_step(self, step: bytes) -> None:
        """Has a step of the running episode written; waits while too much is pending.

        Raises:
          WritingFailed: It will not be written.
        """
        self._put(step, len(step))

    def put(self, function: Callable[[bytes], None], argument: bytes = b"") -> None:
        """Has a method of the shards called, after all that was put before.

        Raises:
          WritingFailed: It will not be called.
        """
        self._put((function, argument), len(argument))

    def _put(self, job: _Job, num_bytes: int) -> None:
        if self._ending:
            self._raise_failure()
        jobs = self._jobs
        jobs.append(job)
        self._num_new_bytes += num_bytes
        if self._num_new_bytes >= self._wake_bytes or len(jobs) > self._wake_jobs:
            self._work.notify()
            while (
                self._num_new_bytes + self._num_taken_bytes > self._max_pending_bytes
                or len(self._jobs) + self._num_taken_jobs > self._max_jobs
            ):
                self._progress.wait()

    def finish(self, *, flush: bool) -> None:
        """Waits until all jobs are done, and flushed if that is asked for.

        Raises:
          WritingFailed: Not all could be written.
        """
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

    def has_time(self) -> bool:
        """Whether the thread may take longer: it rests a third of the time, nobody waits for it.

        Nor will anybody soon, as not half of what may wait does.
        """
        return self._slack > 0 and not (
            self._ending
            or self._num_requests > self._num_served
            or self._num_new_bytes + self._num_taken_bytes > self._max_pending_bytes / 2
            or len(self._jobs) > self._wake_jobs / 2
        )

    def close(self) -> None:
        """Writes all, closes the shards and ends the thread; further calls do nothing.

        Raises:
          WritingFailed: Not all could be written.
        """
        with self.lock:
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
        self._taken: list[_Job] = []
        failure = None
        try:
            self._work_until_the_end()
            self._shards.close()
            if self._shards.trouble is not None:
                failure = WritingFailed(self._shards.trouble, 0)
        except BaseException as e:
            failure = WritingFailed(e, None)
            failure.num_lost_steps = self._count_lost_steps()
        finally:
            # Whatever else went wrong, nobody waits for a thread that is no more.
            with self.lock:
                self._ending = self._ended = True
                self._failure = failure
                self._jobs = []
                self._num_new_bytes = self._num_taken_bytes = self._num_taken_jobs = 0
                self._num_served = self._num_requests
                self._progress.notify_all()

    def _work_until_the_end(self) -> None:
        next_flush = time.monotonic() + self._flush_period
        done = time.monotonic()
        busy, num_jobs = 0.0, 0  # Since the last flush.
        seconds_per_job = 1e-9  # Before the last flush, and in it.
        is_dirty = False
        ending = False
        while not ending:
            self._taken, request, ending = self._take_jobs(next_flush)
            is_dirty = is_dirty or bool(self._taken)
            num_jobs += len(self._taken)
            begin = time.monotonic()
            self._slack = min(self._slack + 2 * (begin - done), _SLACK_SECONDS)
            self._do_jobs()
            end = time.monotonic()
            is_due = end >= next_flush
            if is_due:
                if is_dirty:
                    self._shards.flush()
                is_dirty = False
                # The longer it took, the sooner begins the next one, so that it is over in time.
                next_flush = end + self._flush_period - (time.monotonic() - end)
            done = time.monotonic()
            self._slack = max(self._slack - (done - begin), -_SLACK_SECONDS)
            busy += done - begin
            with self.lock:
                self._num_taken_bytes = self._num_taken_jobs = 0
                if num_jobs:
                    # What is accepted must not have to wait until it is too late for it.
                    possible = self._max_seconds_of_jobs / max(busy / num_jobs, seconds_per_job)
                    self._max_jobs = max(1, min(possible, 2 * self._max_jobs))
                    self._wake_jobs = self._max_jobs / 2
                    if is_due:
                        seconds_per_job = busy / num_jobs
                        busy, num_jobs = 0.0, 0
                self._num_served = request
                if self._shards.trouble is not None:
                    self._ending = True
                self._progress.notify_all()

    def _do_jobs(self) -> None:
        """Does what was taken; after an error `_taken` is what was not done."""
        num_done = 0
        try:
            for kind, run in itertools.groupby(self._taken, type):
                if kind is bytes:
                    steps = list(cast(Iterator[bytes], run))
                    self._shards.add_steps(steps)
                    num_done += len(steps)
                else:
                    for function, argument in cast(Iterator[_Call], run):
                        function(argument)
                        num_done += 1
        finally:
            del self._taken[:num_done]

    def _take_jobs(self, next_flush: float) -> tuple[list[_Job], int, bool]:
        with self.lock:
            while not (
                self._ending
                or self._num_new_bytes >= self._wake_bytes
                or len(self._jobs) > self._wake_jobs
                or self._num_requests > self._num_served
            ):
                remaining = next_flush - time.monotonic()
                if remaining <= 0:
                    break
                self._work.wait(None if remaining == math.inf else remaining)
            jobs, self._jobs = self._jobs, []
            self._num_taken_bytes, self._num_new_bytes = self._num_new_bytes, 0
            self._num_taken_jobs = len(jobs)
            return jobs, self._num_requests, self._ending

    def _count_lost_steps(self) -> int | None:
        """Saves what can be saved after a failure; None if that fails too."""
        with self.lock:
            self._ending = True
            jobs, self._jobs = self._jobs, []
        try:
            num_lost = self._shards.salvage()
        except Exception:  # The first failure says more.
            return None
        begin_episode = self._shards.begin_episode
        lost = [*self._taken, *jobs]
        return num_lost + sum(type(job) is bytes or job[0] == begin_episode for job in lost)
