"""How much of the machine this process may use, and work that other processes do for it.

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

__all__ = ["WorkerDied", "advance", "default_jobs", "in_processes", "read_frame", "write_frame"]

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
    """Returns how many workers this machine has processors and free memory for, at least one."""
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
    """Does tasks in processes of their own; yields each task with its result, in their order.

    The error of the first task that fails is raised, whichever fails first in time. A task whose
    worker dies is tried once more, with no other beside it.

    Args:
      work: What makes a result of a task. It is pickled once for each process.
      tasks: The tasks. A few more are taken than processes can begin.
      jobs: How many processes there are. With 1, this process does it all; so it does where other
        processes cannot have the work, as it is of a class that a script defines.
      after: For how many seconds this process does tasks before it starts others; None for not at
        all.
      on_advance: Called with what a task says by `advance`, in any thread.

    Raises:
      WorkerDied: A worker died of a task twice.
    """
    remaining, begin = iter(tasks), time.monotonic()
    packed = _packed(work) if jobs > 1 else None
    if packed is None or after is not None:
        for task in remaining:
            yield task, _done_here(work, task, on_advance)
            if packed is not None and after is not None and time.monotonic() - begin > after:
                break
    if packed is None:
        return
    crew = _Crew(packed, on_advance)
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    waiting: collections.deque[tuple[T, concurrent.futures.Future[R]]] = collections.deque()
    try:
        while True:
            for task in itertools.islice(remaining, 2 * jobs - len(waiting)):
                waiting.append((task, pool.submit(crew.do, task)))
            if not waiting:
                return
            task, future = waiting.popleft()
            try:
                result = future.result()
            except WorkerDied:
                concurrent.futures.wait([future for _, future in waiting])
                result = pool.submit(crew.do_again, task).result()
            yield task, result
    finally:
        crew.dismiss()
        pool.shutdown(cancel_futures=True)


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
    """The workers of one call, one for each thread that waits for it."""

    def __init__(self, work: bytes, on_advance: Callable[[float], None]) -> None:
        self._work, self._on_advance = work, on_advance
        self._workers: list[subprocess.Popen[bytes]] = []
        self._of_thread = threading.local()
        self._is_dismissed = False

    def do(self, task: Any) -> Any:
        """Has the worker of this thread do a task."""
        worker = getattr(self._of_thread, "worker", None) or self._started()
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            write_frame(worker.stdin, pickle.dumps(task))
            while True:
                kind, content, messages = pickle.loads(read_frame(worker.stdout))
                if kind != "advance":
                    break
                self._on_advance(content)
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
        """Likewise, for a task of which a worker died."""
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
        self._of_thread.worker = worker
        if self._is_dismissed:
            worker.kill()
        assert worker.stdin is not None
        write_frame(worker.stdin, self._work)
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


def _ending(code: int) -> str:
    return f"the signal {-code}" if code < 0 else f"the exit status {code}"


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Writes bytes that `read_frame` gives at the other end of a pipe."""
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
