"""A thread pool for the rows of a batch, such as for decoding images without the GIL."""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import multiprocessing
import os
from collections.abc import Callable

__all__ = ["for_all_rows"]

_MAX_THREADS = 8
# Each thread gets several chunks of rows, because decoding times differ.
_CHUNKS_PER_THREAD = 8


def _default_threads() -> int:
    """Returns the default number of threads: one for each processor of this process.

    Ranks of one launcher (`LOCAL_WORLD_SIZE`) share the processors. Worker processes start no
    threads: the workers already use all processors.
    """
    if multiprocessing.parent_process() is not None:
        return 0
    num_processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    threads = min(num_processors // int(os.environ.get("LOCAL_WORLD_SIZE") or 1), _MAX_THREADS)
    return threads if threads > 1 else 0


def for_all_rows(work: Callable[[range], None], rows: int, threads: int | None) -> None:
    """Calls `work` for chunks of all rows in threads; raises the error of the first failed row."""
    threads = _default_threads() if threads is None else threads
    if not threads or rows < 2:
        work(range(rows))
        return
    size = -(-rows // (threads * _CHUNKS_PER_THREAD))
    chunks = collections.deque(range(rows)[start : start + size] for start in range(0, rows, size))

    def run() -> None:
        try:
            while True:
                try:
                    chunk = chunks.popleft()
                except IndexError:
                    return
                work(chunk)
        except BaseException:
            chunks.clear()
            raise

    pool = _pool(os.getpid(), threads)
    futures: list[concurrent.futures.Future[None]] = []
    try:
        for _ in range(min(threads, len(chunks))):
            futures.append(pool.submit(run))
        concurrent.futures.wait(futures)
    finally:  # No thread may write to the rows after an interrupt.
        chunks.clear()
        concurrent.futures.wait(futures)
    errors = [error for future in futures if (error := future.exception())]
    if errors:  # Chunks start in order, so `errors` includes the first damaged row.
        raise min(errors, key=lambda error: getattr(error, "row", -1))


@functools.cache
def _pool(process: int, threads: int) -> concurrent.futures.ThreadPoolExecutor:
    """Returns the thread pool of this process; a forked process gets its own."""
    return concurrent.futures.ThreadPoolExecutor(threads, "rlds-images")
