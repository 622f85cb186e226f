"""Copies of objects on this machine that have those blocks of them which were requested.

A copy is a sparse file of the size of the object, so that it can be mapped. Beside it, `.blocks`
says when each block was fetched, and when somebody began to. All processes of a machine share both
until it is restarted. The folder is named after the machine, and the version of the object.
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
from rlds_ecosystem.model.columns import numbered

try:
    import fcntl
except ImportError:  # On Windows, where nothing is dropped.
    fcntl = None  # type: ignore[assignment]

__all__ = ["ChangedObjectError", "CopiedObjects"]

T = TypeVar("T")

# How much a request fetches at least, and at most.
_BLOCK, _MOST_BYTES = 1 << 15, 1 << 22
_MOST_GAP = 4
# In a range of at most this factor times the numbers, marking them is faster than sorting.
_CLOSE = 64
_NUM_THREADS = 32
# The pauses in seconds before a failed request is repeated, after the retries of the library.
_PAUSES = (0.5,)
# The seconds that a request may take, and the least bytes per second.
_PATIENCE, _SLOWEST = 20.0, 1 << 17
# The nanoseconds after which another process that fetches a block counts as dead.
_GIVEN_UP = 10_000_000_000


class CopiedObjects:
    """Local copies of objects, with a limit of their total size.

    Several threads may use them at a time.

    Args:
      urls: The objects.
      max_bytes: The maximum size of all copies. A single request may exceed it.

    Raises:
      OSError: An object cannot be found, or there is no place for copies.
    """

    def __init__(self, urls: Iterable[str], max_bytes: int) -> None:
        self.urls, self.max_bytes = list(urls), max_bytes
        self._reset()
        reset_in_forks(self)
        futures = [self._threads.submit(_stat, url) for url in self.urls]
        infos = [future.result() for future in futures]
        self.objects = [CopiedObject(url, each) for url, each in zip(self.urls, infos)]
        self._sizes = np.array([each.size for each in self.objects], np.int64)
        blocks = [len(each.fetched) for each in self.objects]
        self._firsts = np.cumsum([0, *blocks])
        self._objects_of = np.repeat(np.arange(len(blocks)), blocks)
        self._space = self._count_space()

    def _reset(self) -> None:
        self._threads = DaemonThreads(_NUM_THREADS, "rlds-fetch")
        self._lock = threading.Lock()
        self._fetching: dict[int, Future[None]] = {}
        # What is being read, which is not dropped.
        self._held: list[np.ndarray] = []

    def blocks_of(self, numbers: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Returns the blocks that ranges of bytes are in, each once.

        Args:
          numbers: The number of the object of each range.
          begins: The begin of each range.
          ends: The end of each range.
        """
        sizes = self._sizes[numbers]
        begins, ends = np.clip(begins, 0, sizes), np.clip(ends, 0, sizes)
        some = ends > begins
        offsets = self._firsts[numbers[some]]
        firsts, lasts = begins[some] // _BLOCK + offsets, (ends[some] - 1) // _BLOCK + offsets
        counts = lasts - firsts + 1
        if (counts <= 2).all():  # As for rows.
            return _distinct(np.concatenate([firsts, lasts]))
        return _distinct(np.repeat(firsts, counts) + numbered(counts))

    def blocks_of_object(self, number: int) -> np.ndarray:
        """Returns all blocks of an object."""
        return np.arange(self._firsts[number], self._firsts[number + 1])

    def all_blocks(self, max_blocks: int) -> np.ndarray | None:
        """Returns the blocks of all objects, if they are at most `max_blocks` and all stored."""
        blocks = np.arange(self._firsts[-1]) if self._firsts[-1] <= max_blocks else None
        return None if blocks is None or not self.times(blocks).all() else blocks

    def times(self, blocks: np.ndarray) -> np.ndarray:
        """Returns when blocks were fetched; 0 for those that are not there."""
        if len(blocks) == self._firsts[-1]:  # All there are.
            return np.concatenate([copied.fetched for copied in self.objects])
        times = np.empty(len(blocks), np.int64)
        for copied, there, first in self._by_object(blocks):
            times[there] = copied.fetched[blocks[there] - first]
        return times

    def read(self, blocks: np.ndarray, function: Callable[[], T]) -> T:
        """Fetches blocks that are not there, and reads them.

        Args:
          blocks: The numbers of the blocks. This process drops none of them meanwhile.
          function: Reads them. It is called again if another process has dropped some.

        Raises:
          OSError: They cannot be fetched; the message names the object.
        """
        with self._lock:
            self._held.append(blocks)
        try:
            while True:
                times = self.times(blocks)
                if not times.all():
                    self.fetch(blocks)
                    continue
                try:
                    result = function()
                except Exception:
                    if self._are_those(blocks, times):
                        raise
                else:
                    if self._are_those(blocks, times):
                        return result
        finally:
            with self._lock:
                self._held = [each for each in self._held if each is not blocks]

    def _are_those(self, blocks: np.ndarray, times: np.ndarray) -> bool:
        """True if blocks are stored, with the given times of fetching."""
        return bool(times.all() and (times == self.times(blocks)).all())

    def fetch(self, blocks: np.ndarray, *, wait: bool = True) -> None:
        """Fetches missing blocks.

        Args:
          blocks: The numbers of the blocks.
          wait: True to return when the blocks are stored; False to return at once. Without
            waiting, blocks of other processes are not fetched, and errors appear at the next wait.

        Raises:
          OSError: They cannot be fetched; the message names the object.
        """
        if not wait:
            blocks = self._with_gaps(blocks)
        is_forced = False
        while len(missing := blocks[self.times(blocks) == 0]):
            own, earlier = self._begin(missing, is_forced)
            if not wait:
                return
            for future in own:
                future.result()
            concurrent.futures.wait(earlier)  # Failed blocks are fetched again.
            is_forced = not self._are_coming(missing)
            if not own and not earlier and not is_forced:
                time.sleep(0.002)

    def _with_gaps(self, blocks: np.ndarray) -> np.ndarray:
        """Adds a few blocks that are between others: one request for all takes less than two."""
        gaps = np.diff(blocks, append=blocks[-1:] + 1)
        is_near = (gaps <= _MOST_GAP) & np.append(np.diff(self._objects_of[blocks]) == 0, False)
        counts = np.where(is_near, gaps, 1)
        return np.repeat(blocks, counts) + numbered(counts)

    def _are_coming(self, blocks: np.ndarray) -> bool:
        """True if processes are fetching all of the blocks."""
        return all(
            copied.are_coming(blocks[there] - first).all()
            for copied, there, first in self._by_object(blocks)
        )

    def _by_object(self, blocks: np.ndarray) -> Iterator[tuple[CopiedObject, slice, int]]:
        """Yields each object, the slice of its blocks, and the number of its first block."""
        numbers = self._objects_of[blocks]
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for begin, end in itertools.pairwise(cuts) if len(numbers) else ():
            number = int(numbers[begin])
            yield self.objects[number], slice(begin, end), int(self._firsts[number])

    def _begin(
        self, missing: np.ndarray, is_forced: bool
    ) -> tuple[list[Future[None]], set[Future[None]]]:
        """Begins to fetch the blocks that no thread is fetching.

        Returns:
          The new futures, and the earlier futures of the other blocks.
        """
        own = []
        with self._lock:
            earlier = {
                self._fetching[block] for block in missing.tolist() if block in self._fetching
            }
            new = np.array([b for b in missing.tolist() if b not in self._fetching], np.int64)
            for copied, there, first in self._by_object(new):
                for run in _runs(copied.claimed(new[there] - first, is_forced)):
                    own.append(self._threads.submit(self._fetched, copied, run[0], run[-1] + 1))
                    blocks = (run + first).tolist()
                    self._fetching |= dict.fromkeys(blocks, own[-1])
                    own[-1].add_done_callback(functools.partial(self._forget, blocks))
        return own, earlier

    def _forget(self, blocks: list[int], _: Future[None]) -> None:
        for block in blocks:
            self._fetching.pop(block, None)

    def _fetched(self, copied: CopiedObject, begin: int, end: int) -> None:
        try:
            copied.fetch(begin, end)
        except BaseException:
            copied.begun[begin:end] = 0  # Others need not wait for it.
            raise
        with self._lock:
            self._space += (end - begin) * _BLOCK
            if self._space > self.max_bytes:
                self._space = self._count_space()  # Others fetch and drop, too.
            if self._space > self.max_bytes and fcntl is not None:
                self._drop()

    def _count_space(self) -> int:
        return sum(int(np.count_nonzero(each.fetched)) for each in self.objects) * _BLOCK

    def _drop(self) -> None:
        """Drops an eighth of the blocks: the oldest ones."""
        times = self.times(np.arange(len(self._objects_of)))
        times[np.concatenate([np.zeros(0, np.int64), *self._held])] = 0
        stored_blocks = np.flatnonzero(times)
        max_blocks = max(self.max_bytes * 7 // 8 // _BLOCK, 1)
        in_time = stored_blocks[np.argsort(times[stored_blocks], kind="stable")]
        oldest = np.sort(in_time[: max(len(stored_blocks) - max_blocks, 0)])
        for copied, there, first in self._by_object(oldest):
            for run in _runs(oldest[there] - first):
                copied.drop(run[0], run[-1] + 1)
        self._space -= len(oldest) * _BLOCK


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Returns `np.unique`, many times as fast for numbers in a small range."""
    if not len(numbers) or np.ptp(numbers) > _CLOSE * len(numbers):
        return np.unique(numbers)
    is_there = np.zeros(np.ptp(numbers) + 1, bool)
    is_there[numbers - numbers.min()] = True
    return np.flatnonzero(is_there) + numbers.min()


def _runs(blocks: np.ndarray) -> list[np.ndarray]:
    """Splits ascending blocks of an object into runs, one for each request."""
    max_blocks = _MOST_BYTES // _BLOCK
    runs = np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1) if len(blocks) else []
    return [run[i : i + max_blocks] for run in runs for i in range(0, len(run), max_blocks)]


class ChangedObjectError(OSError):
    """An object was replaced since it was copied."""


class CopiedObject:
    """A copy of an object.

    Attributes:
      path: The copy.
      fetched: When each block was fetched, in nanoseconds; 0 if it is not there.
      begun: When somebody began to fetch it.
    """

    def __init__(self, url: str, info: clients.ObjectInfo) -> None:
        self.url, self._version, self.size = url, info.version, info.size
        folder = cache_folder("copies", url)
        if folder is None:
            raise OSError(
                f"{url}: no folder for a local copy; set RLDS_CACHE_DIR to a writable folder"
            )
        # After a crash of the machine, blocks that are marked as stored may be missing.
        version = hashlib.sha256(f"{info.version}{_boot()}".encode()).hexdigest()[:16]
        machine = hashlib.sha256(platform.node().encode()).hexdigest()[:16]
        here = folder / f"{machine}-{version}"
        here.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            for other in folder.glob(f"{machine}-*"):  # Of versions that do not exist any more.
                if other != here:
                    _remove(other)
        self.path = str(here / url.rpartition("/")[2])
        count = -(-self.size // _BLOCK)
        self._blocks = f"{self.path}.blocks"
        _make(self.path, self.size)
        _make(self._blocks, 16 * count, reserve=True)
        memory, _ = map_file(self._blocks, writable=True)
        self.fetched, self.begun = np.frombuffer(memory, np.int64).reshape(2, count)
        self._reset()
        reset_in_forks(self)

    def _reset(self) -> None:
        self._checking, self._checked = threading.Lock(), -1.0

    def are_coming(self, blocks: np.ndarray) -> np.ndarray:
        """Returns a mask of the blocks that a process is fetching."""
        ages = time.time_ns() - self.begun[blocks]
        return (ages >= 0) & (ages < _GIVEN_UP)

    def claimed(self, blocks: np.ndarray, is_forced: bool) -> np.ndarray:
        """Claims missing blocks for this process, and returns them.

        Args:
          blocks: The numbers of the blocks.
          is_forced: True to claim blocks that another process is fetching, too.
        """
        with self._locked():
            is_missing = self.fetched[blocks] == 0
            if not is_forced:
                is_missing &= ~self.are_coming(blocks)
            self.begun[blocks[is_missing]] = time.time_ns()
        return blocks[is_missing]

    def fetch(self, begin: int, end: int) -> None:
        """Fetches a range of blocks, and checks that they are of this version.

        Raises:
          OSError: The operation failed; the message names the object.
        """
        first, after = begin * _BLOCK, min(end * _BLOCK, self.size)
        client = _client_of(self.url)
        try:
            data = self._tried(
                lambda: client.fetcher(self.url, self._version, _patience())(first, after)
            )
        except FileNotFoundError:
            self.check()  # The object may have another version.
            raise
        if not client.keeps_versions:
            self._check_since(time.monotonic())
        if len(data) != after - first:
            raise ConnectionError(
                f"{self.url}: got {len(data)} of the {after - first} bytes from {first} on"
            )
        with self._locked(), _opened(self.path, os.O_RDWR) as file:
            try:
                if os.pwrite(file, data, first) < len(data):
                    raise OSError("the disk is full")
            except OSError as error:
                problem = f"its local copy {self.path} cannot be written: {error}"
                raise OSError(
                    f"{self.url}: {problem}; set RLDS_CACHE_DIR to another folder"
                ) from error
            self.fetched[begin:end] = time.time_ns()

    def _check_since(self, fetched: float) -> None:
        """Checks the version of blocks fetched at a time; one check covers all earlier ones."""
        with self._checking:
            if self._checked < fetched:
                checked = time.monotonic()
                self.check()
                self._checked = checked

    def check(self) -> None:
        """Raises an error if the object was replaced.

        Raises:
          ChangedObjectError: It was written anew.
          OSError: The store does not answer.
        """
        info = self._tried(lambda: clients.within(_patience(), lambda: _stat(self.url)))
        if info.version != self._version:
            raise ChangedObjectError(f"{self.url}: the object was replaced. Open the dataset again")

    def _tried(self, action: Callable[[], T]) -> T:
        """Retries an action with pauses."""
        for pause in (*_PAUSES, None):
            try:
                return action()
            except (FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                if pause is None:
                    problem = f"{error} (tried {len(_PAUSES) + 1} times)"
                    raise type(error)(
                        problem if self.url in problem else f"{self.url}: {problem}"
                    ) from error
            time.sleep(pause)
        raise AssertionError

    def drop(self, begin: int, end: int) -> None:
        """Frees the space of a range of blocks."""
        with self._locked(), _opened(self.path, os.O_RDWR) as file:
            # First, so that concurrent readers notice it.
            self.fetched[begin:end] = self.begun[begin:end] = 0
            first, after = begin * _BLOCK, min(end * _BLOCK, self.size)
            _punch(file, first, after - first)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the copy, so that no block is dropped between its write and its mark."""
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(_opened(self._blocks, os.O_RDONLY))
            except FileNotFoundError as error:
                cause = "its local copy was removed; the object may have been replaced"
                raise ChangedObjectError(f"{self.url}: {cause}. Open the dataset again") from error
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    """Opens a file descriptor, without the slow wrapper of a file object."""
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make(path: str, size: int, *, reserve: bool = False) -> None:
    """Makes a file of zeros, unless it is there."""
    with open(path, "ab") as file:
        if os.fstat(file.fileno()).st_size != size:
            os.truncate(path, size)
            # Whoever writes to mapped memory for which the disk has no space dies of a signal.
            if reserve and size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)


def _boot() -> str:
    """Another text after the machine was started again."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    return ""


def _remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def _punch(descriptor: int, begin: int, size: int) -> None:
    """Makes a hole in a file; where the system cannot do that, it keeps the space."""
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "fallocate"):
        keep_size_and_punch = 3
        library.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
        library.fallocate(descriptor, keep_size_and_punch, begin, size)


def _patience() -> float:
    """Returns the timeout of a request, in seconds."""
    return _PATIENCE + _MOST_BYTES / _SLOWEST


def _stat(url: str) -> clients.ObjectInfo:
    return _client_of(url).stat(url)


def _client_of(url: str) -> clients.StoreClient:
    """The client of a store; `gcsfs` before TensorFlow, which fetches 64 MB at a time."""
    if clients.scheme_of(url) == "gs" and importlib.util.find_spec(clients.LIBRARIES["gs"]):
        return clients.FsspecStore("gs")
    return clients.client_of(url)
