"""Worker processes: their default number, and a pool that runs tasks in them.

A worker is started as `python -m rlds_ecosystem.files.worker`. A fork would break the threads of
libraries, and `multiprocessing` would run the script of the caller again. So a script needs no
`if __name__ == "__main__"`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import os
import pickle
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

__all__ = [
    "WorkerDied",
    "Workers",
    "advance",
    "default_jobs",
    "read_frame",
    "run_tasks",
    "write_frame",
]

# The kinds of frames, by their first byte.
_WORK_FRAME, _TASK_FRAME = b"w", b"t"

T = TypeVar("T")
R = TypeVar("R")

_LENGTH = struct.Struct("<Q")
# The free memory that each worker needs.
_MIN_BYTES_PER_WORKER = 1 << 30
# Native libraries use one thread per worker, because each core has a worker.
_THREAD_COUNT_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

_on_advance: Callable[[float], None] = lambda progress: None  # noqa: E731


class WorkerDied(RuntimeError):
    """A worker died in the middle of a task: it was killed, or ran out of memory.

    Attributes:
      task: The task.
    """

    task: Any = None


def default_jobs() -> int:
    """Returns the number of workers that processors and free memory allow, at least one."""
    processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, StopIteration):  # Only Linux has the file.
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        processors = min(processors, int(available.split()[1]) * 1024 // _MIN_BYTES_PER_WORKER)
    return max(processors, 1)


def advance(progress: float = 1) -> None:
    """Reports progress from a task to the `on_advance` of `run_tasks`."""
    _on_advance(progress)


class _WorkerTraceback(Exception):
    """The traceback of an error in a worker process."""

    def __str__(self) -> str:
        return f"in a worker process:\n\n{self.args[0]}"


def run_tasks(
    work: Callable[[T], R],
    tasks: Iterable[T],
    jobs: int,
    *,
    delay: float | None = None,
    on_advance: Callable[[float], None] = lambda progress: None,
) -> Iterator[tuple[T, R]]:
    """Runs tasks in new worker processes; see `Workers.run`."""
    with Workers(jobs) as workers:
        yield from workers.run(work, tasks, delay=delay, on_advance=on_advance)


class Workers:
    """A pool of worker processes, which start on demand and end with this context manager.

    Args:
      jobs: The number of workers. With 1, this process runs all tasks itself.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool: _WorkerPool | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.kill()
            self._pool = None

    def run(
        self,
        work: Callable[[T], R],
        tasks: Iterable[T],
        *,
        delay: float | None = None,
        on_advance: Callable[[float], None] = lambda progress: None,
    ) -> Iterator[tuple[T, R]]:
        """Yields each task with its result, in the order of the tasks.

        The error of the first failed task in this order is raised. A task whose worker dies is
        retried once, while no other task runs.

        Args:
          work: The function that computes the result of a task, pickled once for each worker. If it
            cannot be pickled, or is defined in a script, this process runs all tasks.
          tasks: The tasks; a few are drawn ahead. This process runs a single task itself.
          delay: The seconds for which this process runs tasks before workers start; None to start
            them at once.
          on_advance: The callback for the progress that tasks report by `advance`, in any thread.

        Raises:
          WorkerDied: A worker died twice in the same task.
        """
        remaining, start_time = iter(tasks), time.monotonic()
        first_tasks = [*itertools.islice(remaining, 2 if self._jobs > 1 else 0)]
        remaining, is_shared = itertools.chain(first_tasks, remaining), len(first_tasks) > 1
        if not is_shared or delay is not None:
            for task in remaining:
                yield task, _run_in_this_process(work, task, on_advance)
                if is_shared and delay is not None and time.monotonic() - start_time > delay:
                    break
            else:
                return
        if (pickled_work := _pickle_for_workers(work)) is None:
            for task in remaining:
                yield task, _run_in_this_process(work, task, on_advance)
            return
        pool = self._pool = self._pool or _WorkerPool(self._jobs)
        pool.work, pool.on_advance = pickled_work, on_advance
        pending: collections.deque[tuple[T, concurrent.futures.Future[R]]] = collections.deque()
        try:
            while True:
                for task in itertools.islice(remaining, 2 * self._jobs - len(pending)):
                    pending.append((task, pool.threads.submit(pool.run, task)))
                if not pending:
                    return
                task, future = pending.popleft()
                try:
                    result = future.result()
                except WorkerDied:
                    concurrent.futures.wait([future for _, future in pending])
                    result = pool.threads.submit(pool.retry, task).result()
                yield task, result
        except BaseException:
            self.__exit__()  # Workers may run tasks whose results are not needed any more.
            raise


def _pickle_for_workers(work: Any) -> bytes | None:
    """Returns a pickled function; None if a worker cannot load it."""
    try:
        pickled_work = pickle.dumps(work)
    except (AttributeError, TypeError, pickle.PicklingError):  # Nested functions cannot be pickled.
        return None
    return None if b"__main__" in pickled_work else pickled_work


def _run_in_this_process(work: Callable[[T], R], task: T, on_advance: Callable[[float], None]) -> R:
    global _on_advance
    previous, _on_advance = _on_advance, on_advance
    try:
        return work(task)
    finally:
        _on_advance = previous


class _WorkerPool:
    """Worker processes, each with a thread that waits for its results.

    Attributes:
      threads: The threads.
      work: The function of the workers, pickled.
      on_advance: The callback for the progress of tasks.
    """

    work: bytes
    on_advance: Callable[[float], None]

    def __init__(self, jobs: int) -> None:
        self.threads = concurrent.futures.ThreadPoolExecutor(jobs)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._thread_state = threading.local()
        self._is_killed = False

    def run(self, task: Any) -> Any:
        """Runs a task in the worker of this thread."""
        worker = getattr(self._thread_state, "worker", None) or self._start_worker()
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            if self._thread_state.work is not self.work:
                write_frame(worker.stdin, _WORK_FRAME + self.work)
                self._thread_state.work = self.work
            write_frame(worker.stdin, _TASK_FRAME + pickle.dumps(task))
            while True:
                kind, content, messages = pickle.loads(read_frame(worker.stdout))
                if kind != "advance":
                    break
                self.on_advance(content)
        except (EOFError, OSError) as error:
            del self._thread_state.worker
            raise WorkerDied(
                f"a worker process ended with {_exit_text(worker.wait())} in the middle of its work"
            ) from error
        for message in messages:
            warnings.warn(message, stacklevel=4)
        if kind == "error":
            errors, text = content
            for effect, cause in itertools.pairwise([*errors, _WorkerTraceback(text)]):
                effect.__cause__ = cause
            raise errors[0]
        return content

    def retry(self, task: Any) -> Any:
        """Like `run`, for a task whose worker died; a second death raises with the task."""
        try:
            return self.run(task)
        except WorkerDied as error:
            error.task = task
            raise

    def _start_worker(self) -> subprocess.Popen[bytes]:
        paths = [os.path.abspath(path) for path in sys.path]
        thread_counts = {name: os.environ.get(name, "1") for name in _THREAD_COUNT_VARIABLES}
        worker = subprocess.Popen(
            [sys.executable, "-m", "rlds_ecosystem.files.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **thread_counts, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._workers.append(worker)
        self._thread_state.worker, self._thread_state.work = worker, b""
        if self._is_killed:
            worker.kill()
        return worker

    def kill(self) -> None:
        """Kills all workers."""
        self._is_killed = True
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()
            for stream in (worker.stdin, worker.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        self.threads.shutdown(cancel_futures=True)


def _exit_text(code: int) -> str:
    return f"the signal {-code}" if code < 0 else f"the exit status {code}"


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Writes a frame of bytes to a pipe, for `read_frame` at its other end."""
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """Reads a frame of `write_frame` from a pipe.

    Raises:
      EOFError: The other end is closed.
    """
    header = stream.read(_LENGTH.size)
    content = stream.read(_LENGTH.unpack(header)[0]) if len(header) == _LENGTH.size else b""
    if len(header) < _LENGTH.size or len(content) < _LENGTH.unpack(header)[0]:
        raise EOFError("the other end of the pipe is closed")
    return content
