"""Encodes Riegeli chunks, optionally in background threads, and writes them in order."""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import BinaryIO

from riegeli import _files
from riegeli._format.chunk import Chunk, ChunkHeader
from riegeli.base.riegeli_error import FailedPreconditionError

Encode = Callable[[list[bytes]], Chunk]


class _EncodingJob:
    """The encoding of a chunk; the job keeps the chunk, the future only its header.

    Record positions refer to the future, so that they need little memory.
    """

    def __init__(self, encode: Encode, records: list[bytes]) -> None:
        self._encode = encode
        self._records = records
        self.chunk: Chunk

    def run(self) -> ChunkHeader:
        self.chunk = self._encode(self._records)
        self._records = []  # The memory is released before the chunk is written.
        return self.chunk.header()


class PendingBegin:
    """A function that waits for the encoding of all earlier chunks, and returns a chunk's begin."""

    __slots__ = ("_previous_begin", "_previous_header")

    def __init__(
        self, previous_begin: "int | PendingBegin", previous_header: Future[ChunkHeader]
    ) -> None:
        self._previous_begin = previous_begin
        self._previous_header = previous_header

    def __call__(self) -> int:
        pending = []
        begin: int | PendingBegin = self
        while not isinstance(begin, int):
            pending.append(begin)
            begin = begin._previous_begin
        for pending_begin in reversed(pending):
            pending_begin._previous_begin = begin
            try:
                begin = pending_begin._previous_header.result().end(begin)
            except CancelledError:
                message = "the record was not written, so it has no position"
                raise FailedPreconditionError(message) from None
        return begin


class ChunkWriter:
    """Writes chunks to a file object.

    Background threads encode, and the calling thread writes. After an error, only `stop` may be
    called.

    Args:
      dest: The file object.
      pos: The current position in the file.
      encode: A function that encodes records as a chunk.
      parallelism: The maximum number of pending chunks; 0 to encode in the calling thread.

    Attributes:
      pos: The end of the written data.
      next_begin: The begin of the next chunk: a position, or a function that waits for it.
    """

    def __init__(self, dest: BinaryIO, pos: int, encode: Encode, parallelism: int) -> None:
        self.pos = pos
        self.next_begin: int | PendingBegin = pos
        self._dest = dest
        self._encode = encode
        self._parallelism = parallelism
        self._pending: deque[tuple[_EncodingJob, Future[ChunkHeader]]] = deque()
        self._threads: ThreadPoolExecutor | None = None

    def write_bytes(self, data: bytes) -> None:
        """Writes raw bytes; call it without pending chunks."""
        _files.write_all(self._dest, data)
        self.next_begin = self.pos = self.pos + len(data)

    def write(self, chunk: Chunk) -> None:
        """Writes all pending chunks, and then a chunk."""
        self._write_pending(0)
        self.write_bytes(chunk.encode(self.pos))

    def add(self, records: list[bytes]) -> None:
        """Encodes and writes records, in the background if enabled.

        This method waits only if too many chunks are pending.
        """
        if self._parallelism == 0:
            self.write(self._encode(records))
            return
        self._write_pending(self._parallelism - 1)
        if self._threads is None:
            workers = min(self._parallelism, os.cpu_count() or 1)
            self._threads = ThreadPoolExecutor(workers, thread_name_prefix="riegeli")
        job = _EncodingJob(self._encode, records)
        future = self._threads.submit(job.run)
        self._pending.append((job, future))
        self.next_begin = PendingBegin(self.next_begin, future)

    def finish(self, records: list[bytes]) -> None:
        """Encodes and writes records, if any, and all pending chunks."""
        # This thread is idle, so it encodes as well.
        if records:
            self.write(self._encode(records))
        else:
            self._write_pending(0)

    def stop(self, *, wait: bool) -> None:
        """Drops pending chunks and ends the threads."""
        self._pending.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=wait, cancel_futures=True)

    def _write_pending(self, max_pending: int) -> None:
        """Writes encoded chunks, and waits while more than `max_pending` chunks are pending."""
        while self._pending and (len(self._pending) > max_pending or self._pending[0][1].done()):
            job, future = self._pending.popleft()
            header = future.result()
            data = job.chunk.encode(self.pos, header)
            _files.write_all(self._dest, data)
            self.pos += len(data)
        if not self._pending:
            self.next_begin = self.pos
