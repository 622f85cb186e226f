"""Threads for work that may be left undone when the process ends."""

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
    """Threads that end with this object, or with the process: an executor finishes all first.

    They are started as they are needed.

    Args:
      count: The maximum number of threads.
      name: The name of the threads.

    >>> DaemonThreads(2, "example").submit(sum, [1, 2]).result()
    3
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._started = 0
        self._work: SimpleQueue[Any] = SimpleQueue()
        weakref.finalize(self, self._work.put, None).atexit = False

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Has a thread call a function."""
        future: Future[T] = Future()
        self._work.put((future, function, arguments))
        if self._started < self._count:
            self._started += 1
            threading.Thread(target=_run, args=(self._work,), name=self._name, daemon=True).start()
        return future


def _run(work: SimpleQueue[Any]) -> None:
    while (item := work.get()) is not None:
        future, function, arguments = item
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
        del item, future, function, arguments  # So that it can end while this waits.
    work.put(None)  # The other threads end, too.
