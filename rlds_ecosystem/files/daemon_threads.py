"""Daemon threads: a thread pool that does not delay the end of the process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["DaemonThreads"]

T = TypeVar("T")


class DaemonThreads:
    """A pool of daemon threads; the end of the process drops pending calls.

    Threads are started on demand.

    Args:
      count: The maximum number of threads.
      name: The name of the threads.

    >>> DaemonThreads(2, "example").submit(sum, [1, 2]).result()
    3
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._num_started = 0
        self._queue: SimpleQueue[Any] = SimpleQueue()
        weakref.finalize(self, self._queue.put, None).atexit = False

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Calls a function in a thread."""
        future: Future[T] = Future()
        self._queue.put((future, function, arguments))
        if self._num_started < self._count:
            self._num_started += 1
            threading.Thread(target=_run, args=(self._queue,), name=self._name, daemon=True).start()
        return future


def _run(queue: SimpleQueue[Any]) -> None:
    while (item := queue.get()) is not None:
        future, function, arguments = item
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
        del item, future, function, arguments  # Frees the objects while the thread waits.
    queue.put(None)  # Ends another thread.
