"""How much of the machine this process may use, and work that others do for it."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

__all__ = ["default_jobs", "in_processes"]

T = TypeVar("T")
R = TypeVar("R")

_work: Callable[[Any], Any]


def default_jobs() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_processes(work: Callable[[T], R], tasks: Iterable[T], jobs: int) -> Iterator[tuple[T, R]]:
    """Does tasks in processes of their own; yields each task with its result, in their order.

    Args:
      work: What makes a result of a task. It is pickled once for each process.
      tasks: The tasks. A few more are taken than processes can begin.
      jobs: How many processes there are.
    """
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(jobs, context, _begin, (work,))
    waiting: collections.deque[tuple[T, concurrent.futures.Future[R]]] = collections.deque()
    remaining = iter(tasks)
    try:
        while True:
            for task in itertools.islice(remaining, 2 * jobs - len(waiting)):
                waiting.append((task, pool.submit(_do, task)))
            if not waiting:
                return
            task, future = waiting.popleft()
            yield task, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that waits for this one.


def _do(task: Any) -> Any:
    return _work(task)
