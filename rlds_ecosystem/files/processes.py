"""Worker processes: their default number, and a pool that runs tasks in them.

A worker is started as `python -m rlds_ecosystem.files.worker`: neither forked, since libraries have
threads that a fork breaks, nor by `multiprocessing`, which runs the script of the caller again. So
a script needs no `if __name__ == "__main__"`.
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
    "in_processes",
    "read_frame",
    "write_frame",
]

# The kinds of frames, by their first byte.
_WORK, _TASK = b"w", b"t"

T = TypeVar("T")
R = TypeVar("R")

_SIZE = struct.Struct("<Q")
# What a worker should have to itself.
_BYTES_OF_WORKER = 1 << 30
# Each worker has one thread in native libraries: their number is that of the cores.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_on_advance: Callable[[float], None] = lambda number: None  # noqa: E731


class WorkerDied(RuntimeError):
    """A worker ended in the middle of a task: it was killed, or ran out of memory.

    Attributes:
      task: The task.
    """

    task: Any = None


def default_jobs() -> int:
    """Returns the number of workers that processors and free memory allow, at least one."""
    processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, StopIteration):  # Linux only.
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        processors = min(processors, int(available.split()[1]) * 1024 // _BYTES_OF_WORKER)
    return max(processors, 1)


def advance(number: float = 1) -> None:
    """Tells who called `in_processes` that so much more of its work is done."""
    _on_advance(number)


class _Remote(Exception):
    """The traceback of an error, as it was in the worker."""

    def __str__(self) -> str:
        return f"in a worker process:\n\n{self.args[0]}"


def in_processes(
    work: Callable[[T], R],
    tasks: Iterable[T],
    jobs: int,
    *,
    after: float | None = None,
    on_advance: Callable[[float], None] = lambda number: None,
) -> Iterator[tuple[T, R]]:
    """Does tasks as `Workers` do, with workers of its own."""
    with Workers(jobs) as workers:
        yield from workers.do(work, tasks, after=after, on_advance=on_advance)


class Workers:
    """Processes that do tasks. They start when they are needed, and end with this context manager.

    Args:
      jobs: The number of workers. With 1, this process does all tasks itself.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._crew: _Crew | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._crew is not None:
            self._crew.dismiss()
            self._crew = None

    def do(
        self,
        work: Callable[[T], R],
        tasks: Iterable[T],
        *,
        after: float | None = None,
        on_advance: Callable[[float], None] = lambda number: None,
    ) -> Iterator[tuple[T, R]]:
        """Yields each task with its result, in their order.

        The error of the first task that fails is raised, whichever fails first in time. A task
        whose worker dies is tried once more, with no other beside it.

        Args:
          work: Computes the result of a task. It is pickled once for each process. This process
            does what others cannot have, as it is of a class that a script defines.
          tasks: The tasks. A few more are taken than processes can begin. This process does a
            single one.
          after: For how many seconds this process does tasks before others help; None for not at
            all.
          on_advance: Called with what a task says by `advance`, in any thread.

        Raises:
          WorkerDied: A worker died of a task twice.
        """
        remaining, begin = iter(tasks), time.monotonic()
        ahead = [*itertools.islice(remaining, 2 if self._jobs > 1 else 0)]
        remaining, is_shared = itertools.chain(ahead, remaining), len(ahead) > 1
        if not is_shared or after is not None:
            for task in remaining:
                yield task, _done_here(work, task, on_advance)
                if is_shared and after is not None and time.monotonic() - begin > after:
                    break
            else:
                return
        if (packed := _packed(work)) is None:
            for task in remaining:
                yield task, _done_here(work, task, on_advance)
            return
        crew = self._crew = self._crew or _Crew(self._jobs)
        crew.work, crew.on_advance = packed, on_advance
        waiting: collections.deque[tuple[T, concurrent.futures.Future[R]]] = collections.deque()
        try:
            while True:
                for task in itertools.islice(remaining, 2 * self._jobs - len(waiting)):
                    waiting.append((task, crew.pool.submit(crew.do, task)))
                if not waiting:
                    return
                task, future = waiting.popleft()
                try:
                    result = future.result()
                except WorkerDied:
                    concurrent.futures.wait([future for _, future in waiting])
                    result = crew.pool.submit(crew.do_again, task).result()
                yield task, result
        except BaseException:
            self.__exit__()  # Workers may run tasks whose results are not needed any more.
            raise


def _packed(work: Any) -> bytes | None:
    """Work as bytes; None if other processes cannot have it."""
    try:
        packed = pickle.dumps(work)
    except (AttributeError, TypeError, pickle.PicklingError):  # Of a function in a function.
        return None
    return None if b"__main__" in packed else packed


def _done_here(work: Callable[[T], R], task: T, on_advance: Callable[[float], None]) -> R:
    global _on_advance
    before, _on_advance = _on_advance, on_advance
    try:
        return work(task)
    finally:
        _on_advance = before


class _Crew:
    """Workers, one for each thread that waits for it.

    Attributes:
      pool: The threads.
      work: The function of the workers, pickled.
      on_advance: The callback for their progress.
    """

    work: bytes
    on_advance: Callable[[float], None]

    def __init__(self, jobs: int) -> None:
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._of_thread = threading.local()
        self._is_dismissed = False

    def do(self, task: Any) -> Any:
        """Has the worker of this thread do a task."""
        worker = getattr(self._of_thread, "worker", None) or self._started()
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            if self._of_thread.work is not self.work:
                write_frame(worker.stdin, _WORK + self.work)
                self._of_thread.work = self.work
            write_frame(worker.stdin, _TASK + pickle.dumps(task))
            while True:
                kind, content, messages = pickle.loads(read_frame(worker.stdout))
                if kind != "advance":
                    break
                self.on_advance(content)
        except (EOFError, OSError) as error:
            del self._of_thread.worker
            raise WorkerDied(
                f"a worker process ended with {_ending(worker.wait())} in the middle of its work"
            ) from error
        for message in messages:
            warnings.warn(message, stacklevel=4)
        if kind == "error":
            errors, text = content
            for each, cause in itertools.pairwise([*errors, _Remote(text)]):
                each.__cause__ = cause
            raise errors[0]
        return content

    def do_again(self, task: Any) -> Any:
        """Like `do`, for a task whose worker died; a second death raises with the task."""
        try:
            return self.do(task)
        except WorkerDied as error:
            error.task = task
            raise

    def _started(self) -> subprocess.Popen[bytes]:
        paths = [os.path.abspath(path) for path in sys.path]
        one = {name: os.environ.get(name, "1") for name in _ONE_THREAD}
        worker = subprocess.Popen(
            [sys.executable, "-m", "rlds_ecosystem.files.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **one, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._workers.append(worker)
        self._of_thread.worker, self._of_thread.work = worker, b""
        if self._is_dismissed:
            worker.kill()
        return worker

    def dismiss(self) -> None:
        """Ends all workers, whatever they do."""
        self._is_dismissed = True
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()
            for stream in (worker.stdin, worker.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        self.pool.shutdown(cancel_futures=True)


def _ending(code: int) -> str:
    return f"the signal {-code}" if code < 0 else f"the exit status {code}"


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Writes a frame of bytes to a pipe, for `read_frame` at its other end."""
    stream.write(_SIZE.pack(len(content)) + content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """Reads what `write_frame` has written.

    Raises:
      EOFError: The other end is closed.
    """
    head = stream.read(_SIZE.size)
    content = stream.read(_SIZE.unpack(head)[0]) if len(head) == _SIZE.size else b""
    if len(head) < _SIZE.size or len(content) < _SIZE.unpack(head)[0]:
        raise EOFError("the other end of the pipe is closed")
    return content
