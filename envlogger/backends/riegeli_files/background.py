"""Background thread that writes the shards of an EnvLogger dataset, with a bounded queue."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn, cast

from envlogger.backends.riegeli_files.backpressure import Backpressure
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
    """A job of the writing thread.

    Attributes:
      do: Runs the job; raises `OSError` if it fails.
      num_bytes: The number of bytes to write.
      num_steps: The number of steps that are lost if the job fails.
    """

    do: Callable[[ShardSequence], None]
    num_bytes: int = 0
    num_steps: int = 0


_PUSH_TASK = ShardTask(lambda shards: shards.push())


class _Batch:
    """A batch of jobs that the thread runs together.

    Attributes:
      jobs: The jobs in order; bytes are a step to add to the running episode.
      num_bytes: The number of bytes to write.
      num_done: The number of finished jobs.
      is_awaited: Whether a thread waits for the end of the batch.
      is_finished: Whether the jobs have run, or will never run.
    """

    def __init__(self) -> None:
        self.jobs: list[bytes | ShardTask] = []
        self.num_bytes = 0
        self.num_done = 0
        self.is_awaited = False
        self.is_finished = False

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

    def count_pending_steps(self) -> int:
        return sum(
            1 if isinstance(job, bytes) else job.num_steps for job in self.jobs[self.num_done :]
        )


class BackgroundWriter:
    """Runs jobs in a thread, in order, and flushes in intervals.

    If the queue is full, callers wait (backpressure). The thread ends with `close`; until then the
    thread keeps this object alive. After an error of the thread, all calls raise `WritingError`.

    Attributes:
      lock: A lock that callers of `add_step`, `put`, `finish` and `push` must hold.

    Args:
      shards: The shards to write to; afterwards only the thread may use them.
      flush_interval: The maximum number of seconds until a step is flushed; None for no flushes.
      max_pending_bytes: The size of the write queue; if it is full, `put` waits.
    """

    def __init__(
        self, shards: ShardSequence, flush_interval: float | None, max_pending_bytes: int
    ) -> None:
        self._shards = shards
        # Only the thread changes these attributes, between batches.
        self._backpressure = Backpressure(flush_interval, max_pending_bytes)

        # The lock guards the attributes below. It is reentrant, because garbage collection may
        # close a recorder in any thread, even in a thread that holds the lock.
        self.lock = threading.RLock()
        self._has_work = threading.Condition(self.lock)
        self._has_progress = threading.Condition(self.lock)
        self._queued = _Batch()
        self._current = _Batch()
        self._is_closing = False
        self._is_closed = False
        self._is_waiting = False
        self._is_dirty = False
        self._error: BaseException | None = None  # The error of a failed `push`.
        self._failure: WritingError | None = None

        # Python would wait for a non-daemon thread before it closes recorders at exit.
        self._thread = threading.Thread(target=self._run, name="envlogger", daemon=True)
        self._thread.start()

    def add_step(self, step: bytes) -> None:
        """Queues a step of the running episode; waits while the queue is full.

        Raises:
          WritingError: The step cannot be written.
        """
        self._put(step, len(step))

    def put(self, job: ShardTask) -> None:
        """Queues a job; waits while the queue is full.

        Raises:
          WritingError: The job cannot run.
        """
        self._put(job, job.num_bytes)

    def _put(self, job: bytes | ShardTask, num_bytes: int) -> None:
        if self._is_closing:
            self._raise_failure()
        queued, backpressure = self._queued, self._backpressure
        queued.jobs.append(job)
        queued.num_bytes += num_bytes
        if queued.num_bytes >= backpressure.wake_bytes or len(queued.jobs) > backpressure.wake_jobs:
            self._has_work.notify()
            while (
                self._queued.num_bytes + self._current.num_bytes > backpressure.max_bytes
                or len(self._queued.jobs) + len(self._current.jobs) > backpressure.max_jobs
            ):
                self._has_progress.wait()

    def finish(self, *jobs: ShardTask) -> None:
        """Queues final jobs, and waits until all jobs have run.

        Raises:
          WritingError: A job failed.
        """
        if self._is_closing:
            self._raise_failure()
        batch = self._queued
        batch.jobs += jobs
        batch.is_awaited = True
        self._has_work.notify()
        while not batch.is_finished:
            self._has_progress.wait()
        if self._is_closing:
            self._raise_failure()

    def push(self) -> None:
        """Waits until all jobs have run, and their data are passed to the operating system.

        If the thread is idle, the jobs run in the calling thread, which is faster.

        Raises:
          WritingError: A job failed.
        """
        if not self._is_waiting or self._is_closing:
            self.finish(_PUSH_TASK)
            return
        batch = self._current = self._queued
        batch.jobs.append(_PUSH_TASK)
        batch.is_awaited = True
        self._queued = _Batch()
        self._is_dirty = True
        try:
            batch.do(self._shards)
        except BaseException as e:
            self._error = e  # The thread ends with the error.
            self._is_closing = True
            self._has_work.notify()
            self._raise_failure()
        self._current = _Batch()
        if self._shards.is_over:
            self.finish()

    def is_idle(self) -> bool:
        """Returns whether the thread has time for better compression: no caller waits or will."""
        queued, current = self._queued, self._current
        is_awaited = self._is_closing or queued.is_awaited or current.is_awaited
        return not is_awaited and self._backpressure.is_idle(
            len(queued.jobs), queued.num_bytes + current.num_bytes
        )

    def close(self) -> None:
        """Runs all jobs, closes the shards and ends the thread; further calls do nothing.

        Raises:
          WritingError: A job failed.
        """
        with self.lock:
            self._is_closing = True
            self._has_work.notify()
        if threading.current_thread() is self._thread:
            return  # The garbage collector runs in the thread.
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _raise_failure(self) -> NoReturn:
        """Waits for the end of the thread, and raises its failure."""
        while not self._is_closed:
            self._has_progress.wait()
        raise self._failure or UsageError("the recorder is closed")

    # The methods below run in the thread.

    def _run(self) -> None:
        failure = None
        try:
            self._run_batches()
            self._shards.close()
            if self._shards.pending_error is not None:
                failure = WritingError(self._shards.pending_error, 0)
        except BaseException as e:
            failure = WritingError(e, None)
            failure.num_lost_steps = self._count_lost_steps()
        finally:
            # Callers must not wait for a thread that has ended.
            with self.lock:
                self._is_closing = self._is_closed = True
                self._failure = failure
                self._queued.is_finished = self._current.is_finished = True
                self._queued, self._current = _Batch(), _Batch()
                self._has_progress.notify_all()

    def _run_batches(self) -> None:
        backpressure = self._backpressure
        is_closing = False
        while not is_closing:
            is_closing = self._next_batch()
            backpressure.begin_batch()
            self._current.do(self._shards)
            if backpressure.is_flush_due():
                if self._is_dirty:
                    self._shards.flush()
                self._is_dirty = False
            backpressure.end_batch(len(self._current.jobs))
            with self.lock:
                self._current.is_finished = True
                self._current = _Batch()
                if self._shards.is_over:
                    self._is_closing = True
                self._has_progress.notify_all()

    def _next_batch(self) -> bool:
        """Waits for a batch of jobs; returns True if it is the last one."""
        backpressure = self._backpressure
        with self.lock:
            while not (
                self._is_closing
                or self._queued.num_bytes >= backpressure.wake_bytes
                or len(self._queued.jobs) > backpressure.wake_jobs
                or self._queued.is_awaited
            ):
                seconds = backpressure.seconds_to_flush()
                if seconds <= 0:
                    break
                self._is_waiting = True
                self._has_work.wait(seconds)
                self._is_waiting = False
            if self._error is not None:
                raise self._error
            self._current, self._queued = self._queued, _Batch()
            self._is_dirty = self._is_dirty or bool(self._current.jobs)
            return self._is_closing

    def _count_lost_steps(self) -> int | None:
        """Closes the shards after a failure; returns the number of lost steps, None if unknown."""
        with self.lock:
            self._is_closing = True
            batches = self._current, self._queued
        try:
            num_lost = self._shards.salvage()
        except BaseException:  # The first failure is more informative.
            return None
        return num_lost + sum(batch.count_pending_steps() for batch in batches)
