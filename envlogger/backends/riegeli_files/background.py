"""Writes to the shards of a dataset in a thread, so that the environment does not wait for it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn, cast

from envlogger.backends.riegeli_files.pacing import Pacing
from envlogger.backends.riegeli_files.shard_sequence import ShardSequence
from envlogger.errors import UsageError

__all__ = ["BackgroundWriter", "ShardTask", "WritingError"]


class WritingError(Exception):
    """A failure of the writing thread, which may lose the steps in its queue.

    Attributes:
      num_lost_steps: The number of accepted steps that are lost; None if unknown.
    """

    def __init__(self, cause: BaseException, num_lost_steps: int | None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.num_lost_steps = num_lost_steps


class ShardTask(NamedTuple):
    """Something to do with the shards.

    Attributes:
      do: Does it; raises `OSError` if it cannot be done.
      num_bytes: The number of bytes to write.
      num_steps: The number of steps that are lost if it fails.
    """

    do: Callable[[ShardSequence], None]
    num_bytes: int = 0
    num_steps: int = 0


_PUSH = ShardTask(lambda shards: shards.push())


class _Batch:
    """Jobs that the thread takes together.

    Attributes:
      jobs: The jobs in their order; those that add a step to the running episode are just the step,
        because there are so many.
      num_bytes: The number of bytes to write.
      num_done: The number of finished jobs.
      is_awaited: Whether somebody waits until they are done.
      is_over: Whether they are done, or will never be.
    """

    def __init__(self) -> None:
        self.jobs: list[bytes | ShardTask] = []
        self.num_bytes = 0
        self.num_done = 0
        self.is_awaited = False
        self.is_over = False

    def do(self, shards: ShardSequence) -> None:
        for kind, jobs in itertools.groupby(self.jobs, type):
            if kind is bytes:
                steps = list(cast(Iterator[bytes], jobs))
                shards.add_steps(steps)
                self.num_done += len(steps)
            else:
                for job in cast(Iterator[ShardTask], jobs):
                    job.do(shards)
                    self.num_done += 1

    def num_steps_left(self) -> int:
        return sum(
            1 if isinstance(job, bytes) else job.num_steps for job in self.jobs[self.num_done :]
        )


class BackgroundWriter:
    """Runs jobs in a thread, in order, and flushes in intervals.

    Those who hand over more than the thread can write and flush in time have to wait for it.

    The thread ends with `close`; until then it keeps this object alive. Errors of the thread are
    raised by the next call, as `WritingError`, and by all calls after it.

    Attributes:
      lock: To be held while `add_step`, `put`, `finish` and `push` are called.

    Args:
      shards: The shards to write to; nobody else may use them from now on.
      flush_interval: After how many seconds at the latest a step is flushed; None for never.
      max_pending_bytes: The size of the write queue; when it is full, `put` waits.
    """

    def __init__(
        self, shards: ShardSequence, flush_interval: float | None, max_pending_bytes: int
    ) -> None:
        self._shards = shards
        # Changed by the thread alone, between its rounds.
        self._pacing = Pacing(flush_interval, max_pending_bytes)

        # The lock guards the attributes below. A recorder may be garbage collected, and
        # closed, by whichever thread allocates something, even by one that holds the lock.
        self.lock = threading.RLock()
        self._work = threading.Condition(self.lock)
        self._progress = threading.Condition(self.lock)
        self._new = _Batch()
        self._taken = _Batch()
        self._ending = False
        self._ended = False
        self._is_resting = False
        self._is_dirty = False
        self._error: BaseException | None = None  # Of `push`.
        self._failure: WritingError | None = None

        # A thread that is no daemon would be waited for before recorders are closed at exit.
        self._thread = threading.Thread(target=self._run, name="envlogger", daemon=True)
        self._thread.start()

    def add_step(self, step: bytes) -> None:
        """Has a step of the running episode written; waits while too much is pending.

        Raises:
          WritingError: It will not be written.
        """
        self._put(step, len(step))

    def put(self, job: ShardTask) -> None:
        """Has a job done, after all that was handed over before; waits while too much is pending.

        Raises:
          WritingError: It will not be done.
        """
        self._put(job, job.num_bytes)

    def _put(self, job: bytes | ShardTask, num_bytes: int) -> None:
        if self._ending:
            self._raise_failure()
        new, pacing = self._new, self._pacing
        new.jobs.append(job)
        new.num_bytes += num_bytes
        if new.num_bytes >= pacing.wake_bytes or len(new.jobs) > pacing.wake_jobs:
            self._work.notify()
            while (
                self._new.num_bytes + self._taken.num_bytes > pacing.max_bytes
                or len(self._new.jobs) + len(self._taken.jobs) > pacing.max_jobs
            ):
                self._progress.wait()

    def finish(self, *last: ShardTask) -> None:
        """Waits until all jobs are done.

        Args:
          *last: Jobs to do after them.

        Raises:
          WritingError: Not all could be written.
        """
        if self._ending:
            self._raise_failure()
        batch = self._new
        batch.jobs += last
        batch.is_awaited = True
        self._work.notify()
        while not batch.is_over:
            self._progress.wait()
        if self._ending:
            self._raise_failure()

    def push(self) -> None:
        """Waits until all jobs are done, and handed to the system.

        While the thread rests, they are done here: to wake it would take longer than what it does.

        Raises:
          WritingError: Not all could be written.
        """
        if not self._is_resting or self._ending:
            self.finish(_PUSH)
            return
        batch = self._taken = self._new
        batch.jobs.append(_PUSH)
        batch.is_awaited = True
        self._new = _Batch()
        self._is_dirty = True
        try:
            batch.do(self._shards)
        except BaseException as e:
            self._error = e  # The thread ends with the error.
            self._ending = True
            self._work.notify()
            self._raise_failure()
        self._taken = _Batch()
        if self._shards.is_over:
            self.finish()

    def has_time(self) -> bool:
        """Whether the thread has time for better compression: it idles, and nobody waits for it.

        Nor will anybody soon, as not half of what may wait does.
        """
        new, taken = self._new, self._taken
        is_awaited = self._ending or new.is_awaited or taken.is_awaited
        return not is_awaited and self._pacing.has_time(
            len(new.jobs), new.num_bytes + taken.num_bytes
        )

    def close(self) -> None:
        """Writes all jobs, closes the shards and ends the thread; further calls do nothing.

        Raises:
          WritingError: Not all could be written.
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
        """Waits for the end of the thread, and raises its failure with the lost steps."""
        while not self._ended:
            self._progress.wait()
        raise self._failure or UsageError("the recorder is closed")

    # The methods below run in the thread.

    def _run(self) -> None:
        failure = None
        try:
            self._work_until_the_end()
            self._shards.close()
            if self._shards.trouble is not None:
                failure = WritingError(self._shards.trouble, 0)
        except BaseException as e:
            failure = WritingError(e, None)
            failure.num_lost_steps = self._count_lost_steps()
        finally:
            # Whatever else went wrong, nobody waits for a thread that is no more.
            with self.lock:
                self._ending = self._ended = True
                self._failure = failure
                self._new.is_over = self._taken.is_over = True
                self._new, self._taken = _Batch(), _Batch()
                self._progress.notify_all()

    def _work_until_the_end(self) -> None:
        pacing = self._pacing
        ending = False
        while not ending:
            ending = self._take_batch()
            pacing.begin_round()
            self._taken.do(self._shards)
            if pacing.flush_is_due():
                if self._is_dirty:
                    self._shards.flush()
                self._is_dirty = False
            pacing.end_round(len(self._taken.jobs))
            with self.lock:
                self._taken.is_over = True
                self._taken = _Batch()
                if self._shards.is_over:
                    self._ending = True
                self._progress.notify_all()

    def _take_batch(self) -> bool:
        """Waits for jobs; returns whether this is the last batch."""
        pacing = self._pacing
        with self.lock:
            while not (
                self._ending
                or self._new.num_bytes >= pacing.wake_bytes
                or len(self._new.jobs) > pacing.wake_jobs
                or self._new.is_awaited
            ):
                seconds = pacing.seconds_to_flush()
                if seconds <= 0:
                    break
                self._is_resting = True
                self._work.wait(seconds)
                self._is_resting = False
            if self._error is not None:
                raise self._error
            self._taken, self._new = self._new, _Batch()
            self._is_dirty = self._is_dirty or bool(self._taken.jobs)
            return self._ending

    def _count_lost_steps(self) -> int | None:
        """Saves what can be saved after a failure; None if that fails too."""
        with self.lock:
            self._ending = True
            batches = self._taken, self._new
        try:
            num_lost = self._shards.salvage()
        except BaseException:  # The first failure is more informative.
            return None
        return num_lost + sum(batch.num_steps_left() for batch in batches)
