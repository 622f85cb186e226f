"""Local disk cache of the requested blocks of objects in a store (GCS, S3, Hub).

A copy is a sparse file of the size of the object, so that it can be mapped. The file `.blocks` next
to it has the times at which each block was fetched and claimed. All processes of a machine share
both until a restart. The folder is named after the machine and the version of the object.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import itertools
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import numpy as np

from rlds_ecosystem.files.caches import cache_folder
from rlds_ecosystem.files.daemon_threads import DaemonThreads
from rlds_ecosystem.files.forking import reset_in_forks
from rlds_ecosystem.files.mapping import map_file
from rlds_ecosystem.files.stores import _clients as clients
from rlds_ecosystem.model.columns import concat_ranges

try:
    import fcntl
except ImportError:  # Windows evicts no blocks.
    fcntl = None  # type: ignore[assignment]

__all__ = ["ChangedObjectError", "CopiedObjects"]

T = TypeVar("T")

# The minimum and the maximum number of bytes that a request fetches.
_BLOCK_SIZE, _MAX_REQUEST_BYTES = 1 << 15, 1 << 22
_MAX_GAP_BLOCKS = 4
# Up to this ratio of range to count, a mask deduplicates indices faster than sorting.
_MAX_SPREAD_FOR_MASK = 64
_NUM_THREADS = 32
# The delays before retries of a failed request, after the retries of the library.
_RETRY_DELAYS_S = (0.5,)
# The timeout of a request, without the time of its bytes at the minimum rate.
_REQUEST_TIMEOUT_S, _MIN_BYTES_PER_S = 20.0, 1 << 17
# The time after which the claim of another process on a block expires.
_CLAIM_TIMEOUT_NS = 10_000_000_000


class CopiedObjects:
    """Thread-safe local copies of objects, with a limit of their total size.

    Args:
      urls: The objects.
      max_bytes: The maximum size of all copies. A single request may exceed it.

    Raises:
      OSError: An object is missing, or there is no folder for copies.
    """

    def __init__(self, urls: Iterable[str], max_bytes: int) -> None:
        self.urls, self.max_bytes = list(urls), max_bytes
        self._reset()
        reset_in_forks(self)
        futures = [self._threads.submit(_stat, url) for url in self.urls]
        infos = [future.result() for future in futures]
        self.objects = [CopiedObject(url, info) for url, info in zip(self.urls, infos)]
        self._sizes = np.array([copied.size for copied in self.objects], np.int64)
        blocks = [len(copied.fetch_times) for copied in self.objects]
        self._first_blocks = np.cumsum([0, *blocks])
        self._objects_of = np.repeat(np.arange(len(blocks)), blocks)
        self._num_bytes = self._count_bytes()

    def _reset(self) -> None:
        self._threads = DaemonThreads(_NUM_THREADS, "rlds-fetch")
        self._lock = threading.Lock()
        self._futures: dict[int, Future[None]] = {}
        # Blocks that are being read are not evicted.
        self._blocks_in_use: list[np.ndarray] = []

    def blocks_of(self, indices: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Returns the distinct blocks of byte ranges.

        Args:
          indices: The index of the object of each range.
          begins: The begin of each range.
          ends: The end of each range.
        """
        sizes = self._sizes[indices]
        begins, ends = np.clip(begins, 0, sizes), np.clip(ends, 0, sizes)
        is_nonempty = ends > begins
        offsets = self._first_blocks[indices[is_nonempty]]
        first_blocks = begins[is_nonempty] // _BLOCK_SIZE + offsets
        last_blocks = (ends[is_nonempty] - 1) // _BLOCK_SIZE + offsets
        counts = last_blocks - first_blocks + 1
        if (counts <= 2).all():  # Rows usually span few blocks.
            return _unique(np.concatenate([first_blocks, last_blocks]))
        return _unique(np.repeat(first_blocks, counts) + concat_ranges(counts))

    def blocks_of_object(self, index: int) -> np.ndarray:
        """Returns all blocks of an object."""
        return np.arange(self._first_blocks[index], self._first_blocks[index + 1])

    def all_blocks(self, max_blocks: int) -> np.ndarray | None:
        """Returns the blocks of all objects; None if over `max_blocks`, or if one is missing."""
        blocks = np.arange(self._first_blocks[-1]) if self._first_blocks[-1] <= max_blocks else None
        return None if blocks is None or not self.times(blocks).all() else blocks

    def times(self, blocks: np.ndarray) -> np.ndarray:
        """Returns the times at which blocks were fetched; 0 for missing blocks."""
        if len(blocks) == self._first_blocks[-1]:  # The blocks are all blocks.
            return np.concatenate([copied.fetch_times for copied in self.objects])
        times = np.empty(len(blocks), np.int64)
        for copied, rows, first_block in self._by_object(blocks):
            times[rows] = copied.fetch_times[blocks[rows] - first_block]
        return times

    def read(self, blocks: np.ndarray, function: Callable[[], T]) -> T:
        """Fetches missing blocks, and reads all of them.

        Args:
          blocks: The indices of the blocks, which this process does not evict meanwhile.
          function: Reads the blocks. It is called again if another process evicts some of them.

        Raises:
          OSError: A block cannot be fetched; the message names the object.
        """
        with self._lock:
            self._blocks_in_use.append(blocks)
        try:
            while True:
                times = self.times(blocks)
                if not times.all():
                    self.fetch(blocks)
                    continue
                try:
                    result = function()
                except Exception:
                    if self._are_unchanged(blocks, times):
                        raise
                else:
                    if self._are_unchanged(blocks, times):
                        return result
        finally:
            with self._lock:
                self._blocks_in_use = [used for used in self._blocks_in_use if used is not blocks]

    def _are_unchanged(self, blocks: np.ndarray, times: np.ndarray) -> bool:
        """True if blocks are stored, and were not fetched again since some times."""
        return bool(times.all() and (times == self.times(blocks)).all())

    def fetch(self, blocks: np.ndarray, *, wait: bool = True) -> None:
        """Fetches missing blocks.

        Args:
          blocks: The indices of the blocks.
          wait: True to return when the blocks are stored; False to return at once. Without
            waiting, blocks of other processes are not fetched, and errors appear at the next wait.

        Raises:
          OSError: A block cannot be fetched; the message names the object.
        """
        if not wait:
            blocks = self._fill_small_gaps(blocks)
        is_forced = False
        while len(missing := blocks[self.times(blocks) == 0]):
            futures, earlier_futures = self._start_requests(missing, is_forced)
            if not wait:
                return
            for future in futures:
                future.result()
            concurrent.futures.wait(earlier_futures)  # Failed blocks are fetched again.
            is_forced = not self._are_being_fetched(missing)
            if not futures and not earlier_futures and not is_forced:
                time.sleep(0.002)

    def _fill_small_gaps(self, blocks: np.ndarray) -> np.ndarray:
        """Adds the blocks of small gaps: one longer request is faster than two."""
        gaps = np.diff(blocks, append=blocks[-1:] + 1)
        is_small_gap = (gaps <= _MAX_GAP_BLOCKS) & np.append(
            np.diff(self._objects_of[blocks]) == 0, False
        )
        counts = np.where(is_small_gap, gaps, 1)
        return np.repeat(blocks, counts) + concat_ranges(counts)

    def _are_being_fetched(self, blocks: np.ndarray) -> bool:
        """True if processes are fetching all of the blocks."""
        return all(
            copied.are_being_fetched(blocks[rows] - first_block).all()
            for copied, rows, first_block in self._by_object(blocks)
        )

    def _by_object(self, blocks: np.ndarray) -> Iterator[tuple[CopiedObject, slice, int]]:
        """Yields each object, the slice of its blocks, and the index of its first block."""
        indices = self._objects_of[blocks]
        boundaries = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(indices)]
        for begin, end in itertools.pairwise(boundaries) if len(indices) else ():
            index = int(indices[begin])
            yield self.objects[index], slice(begin, end), int(self._first_blocks[index])

    def _start_requests(
        self, missing: np.ndarray, is_forced: bool
    ) -> tuple[list[Future[None]], set[Future[None]]]:
        """Begins to fetch the blocks that no thread is fetching.

        Returns:
          The new futures, and the earlier futures of the other blocks.
        """
        futures = []
        with self._lock:
            earlier = {self._futures[block] for block in missing.tolist() if block in self._futures}
            is_new = np.array([block not in self._futures for block in missing.tolist()], bool)
            new_blocks = missing[is_new]
            for copied, rows, first_block in self._by_object(new_blocks):
                for run in _split_runs(copied.claim(new_blocks[rows] - first_block, is_forced)):
                    future = self._threads.submit(self._fetch_run, copied, run[0], run[-1] + 1)
                    futures.append(future)
                    blocks = (run + first_block).tolist()
                    self._futures |= dict.fromkeys(blocks, future)
                    future.add_done_callback(functools.partial(self._forget, blocks))
        return futures, earlier

    def _forget(self, blocks: list[int], _: Future[None]) -> None:
        for block in blocks:
            self._futures.pop(block, None)

    def _fetch_run(self, copied: CopiedObject, begin: int, end: int) -> None:
        try:
            copied.fetch(begin, end)
        except BaseException:
            copied.claim_times[begin:end] = 0  # Other processes do not wait for this process.
            raise
        with self._lock:
            self._num_bytes += (end - begin) * _BLOCK_SIZE
            if self._num_bytes > self.max_bytes:
                self._num_bytes = self._count_bytes()  # Other processes fetch and evict, too.
            if self._num_bytes > self.max_bytes and fcntl is not None:
                self._evict()

    def _count_bytes(self) -> int:
        counts = (np.count_nonzero(copied.fetch_times) for copied in self.objects)
        return int(sum(counts)) * _BLOCK_SIZE

    def _evict(self) -> None:
        """Evicts the oldest blocks, down to 7/8 of the limit."""
        times = self.times(np.arange(len(self._objects_of)))
        times[np.concatenate([np.zeros(0, np.int64), *self._blocks_in_use])] = 0
        stored_blocks = np.flatnonzero(times)
        max_blocks = max(self.max_bytes * 7 // 8 // _BLOCK_SIZE, 1)
        blocks_by_age = stored_blocks[np.argsort(times[stored_blocks], kind="stable")]
        oldest = np.sort(blocks_by_age[: max(len(stored_blocks) - max_blocks, 0)])
        for copied, rows, first_block in self._by_object(oldest):
            for run in _split_runs(oldest[rows] - first_block):
                copied.evict(run[0], run[-1] + 1)
        self._num_bytes -= len(oldest) * _BLOCK_SIZE


def _unique(indices: np.ndarray) -> np.ndarray:
    """Returns `np.unique`, many times as fast for indices in a small range."""
    if not len(indices) or np.ptp(indices) > _MAX_SPREAD_FOR_MASK * len(indices):
        return np.unique(indices)
    is_present = np.zeros(np.ptp(indices) + 1, bool)
    is_present[indices - indices.min()] = True
    return np.flatnonzero(is_present) + indices.min()


def _split_runs(blocks: np.ndarray) -> list[np.ndarray]:
    """Splits ascending blocks of an object into runs, one for each request."""
    max_blocks = _MAX_REQUEST_BYTES // _BLOCK_SIZE
    runs = np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1) if len(blocks) else []
    return [run[i : i + max_blocks] for run in runs for i in range(0, len(run), max_blocks)]


class ChangedObjectError(OSError):
    """An object was replaced since it was copied."""


class CopiedObject:
    """A copy of an object.

    Attributes:
      path: The copy.
      fetch_times: The time at which each block was fetched, in nanoseconds; 0 if it is missing.
      claim_times: The time at which a process began to fetch each block.
    """

    def __init__(self, url: str, info: clients.ObjectInfo) -> None:
        self.url, self._version, self.size = url, info.version, info.size
        folder = cache_folder("copies", url)
        if folder is None:
            raise OSError(
                f"{url}: no folder for a local copy; set RLDS_CACHE_DIR to a writable folder"
            )
        # After a crash of the machine, blocks that are marked as stored may be missing.
        version = hashlib.sha256(f"{info.version}{_boot_id()}".encode()).hexdigest()[:16]
        machine = hashlib.sha256(platform.node().encode()).hexdigest()[:16]
        version_folder = folder / f"{machine}-{version}"
        version_folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            for other in folder.glob(f"{machine}-*"):  # Removes earlier versions of the object.
                if other != version_folder:
                    _remove_folder(other)
        self.path = str(version_folder / url.rpartition("/")[2])
        count = -(-self.size // _BLOCK_SIZE)
        self._blocks = f"{self.path}.blocks"
        _create_file(self.path, self.size)
        _create_file(self._blocks, 16 * count, reserve=True)
        memory, _ = map_file(self._blocks, writable=True)
        self.fetch_times, self.claim_times = np.frombuffer(memory, np.int64).reshape(2, count)
        self._reset()
        reset_in_forks(self)

    def _reset(self) -> None:
        self._check_lock, self._last_check = threading.Lock(), -1.0

    def are_being_fetched(self, blocks: np.ndarray) -> np.ndarray:
        """Returns a mask of the blocks that a process is fetching."""
        ages = time.time_ns() - self.claim_times[blocks]
        return (ages >= 0) & (ages < _CLAIM_TIMEOUT_NS)

    def claim(self, blocks: np.ndarray, is_forced: bool) -> np.ndarray:
        """Claims missing blocks for this process, and returns them.

        Args:
          blocks: The indices of the blocks.
          is_forced: True to claim blocks that another process is fetching, too.
        """
        with self._lock():
            is_missing = self.fetch_times[blocks] == 0
            if not is_forced:
                is_missing &= ~self.are_being_fetched(blocks)
            self.claim_times[blocks[is_missing]] = time.time_ns()
        return blocks[is_missing]

    def fetch(self, begin: int, end: int) -> None:
        """Fetches a range of blocks, and checks their version.

        Raises:
          OSError: The operation failed; the message names the object.
        """
        start_byte, end_byte = begin * _BLOCK_SIZE, min(end * _BLOCK_SIZE, self.size)
        client = _client_of(self.url)
        try:
            fetcher = functools.partial(client.fetcher, self.url, self._version, _request_timeout())
            data = self._with_retries(lambda: fetcher()(start_byte, end_byte))
        except FileNotFoundError:
            self.check()  # The object may have another version.
            raise
        if not client.keeps_versions:
            self._check_since(time.monotonic())
        if len(data) != end_byte - start_byte:
            raise ConnectionError(
                f"{self.url}: got {len(data)} of {end_byte - start_byte} bytes from {start_byte} on"
            )
        with self._lock(), _open_file(self.path, os.O_RDWR) as file:
            try:
                if os.pwrite(file, data, start_byte) < len(data):
                    raise OSError("the disk is full")
            except OSError as error:
                problem = f"its local copy {self.path} cannot be written: {error}"
                raise OSError(
                    f"{self.url}: {problem}; set RLDS_CACHE_DIR to another folder"
                ) from error
            self.fetch_times[begin:end] = time.time_ns()

    def _check_since(self, fetched_at: float) -> None:
        """Checks the version of blocks fetched at a time; one check covers all earlier blocks."""
        with self._check_lock:
            if self._last_check < fetched_at:
                check_time = time.monotonic()
                self.check()
                self._last_check = check_time

    def check(self) -> None:
        """Raises an error if the object was replaced.

        Raises:
          ChangedObjectError: The object was replaced.
          OSError: The store does not answer.
        """
        info = self._with_retries(
            lambda: clients.run_with_timeout(_request_timeout(), lambda: _stat(self.url))
        )
        if info.version != self._version:
            raise ChangedObjectError(f"{self.url}: the object was replaced. Open the dataset again")

    def _with_retries(self, action: Callable[[], T]) -> T:
        """Retries an action with pauses."""
        for pause in (*_RETRY_DELAYS_S, None):
            try:
                return action()
            except (FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                if pause is None:
                    problem = f"{error} (tried {len(_RETRY_DELAYS_S) + 1} times)"
                    raise type(error)(
                        problem if self.url in problem else f"{self.url}: {problem}"
                    ) from error
            time.sleep(pause)
        raise AssertionError

    def evict(self, begin: int, end: int) -> None:
        """Frees the space of a range of blocks."""
        with self._lock(), _open_file(self.path, os.O_RDWR) as file:
            # The times change first, so that concurrent readers notice the eviction.
            self.fetch_times[begin:end] = self.claim_times[begin:end] = 0
            start_byte, end_byte = begin * _BLOCK_SIZE, min(end * _BLOCK_SIZE, self.size)
            _punch_hole(file, start_byte, end_byte - start_byte)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Locks the copy, so that no block is evicted between its write and its mark."""
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(_open_file(self._blocks, os.O_RDONLY))
            except FileNotFoundError as error:
                cause = "its local copy was removed; the object may have been replaced"
                raise ChangedObjectError(f"{self.url}: {cause}. Open the dataset again") from error
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextlib.contextmanager
def _open_file(path: str, flags: int) -> Iterator[int]:
    """Opens a file descriptor, without the slow wrapper of a file object."""
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _create_file(path: str, size: int, *, reserve: bool = False) -> None:
    """Creates a file of zeros, unless it exists."""
    with open(path, "ab") as file:
        if os.fstat(file.fileno()).st_size != size:
            os.truncate(path, size)
            # A write to mapped memory without space on the disk kills the process by a signal.
            if reserve and size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)


def _boot_id() -> str:
    """Returns a text that differs after each start of the machine."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    return ""


def _remove_folder(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def _punch_hole(descriptor: int, begin: int, size: int) -> None:
    """Frees the space of a range of a file, if the system can do that."""
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "fallocate"):
        keep_size_and_punch = 3
        library.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
        library.fallocate(descriptor, keep_size_and_punch, begin, size)


def _request_timeout() -> float:
    """Returns the timeout of a request, in seconds."""
    return _REQUEST_TIMEOUT_S + _MAX_REQUEST_BYTES / _MIN_BYTES_PER_S


def _stat(url: str) -> clients.ObjectInfo:
    return _client_of(url).stat(url)


def _client_of(url: str) -> clients.StoreClient:
    """Returns the client of a store; `gcsfs` before TensorFlow, which fetches 64 MB at a time."""
    if clients.scheme_of(url) == "gs" and importlib.util.find_spec(clients.LIBRARIES["gs"]):
        return clients.FsspecStore("gs")
    return clients.client_of(url)
