"""Threads that encode camera frames as video, and their queue of frames."""

from __future__ import annotations

import contextlib
import os
import queue
import tempfile
import threading
from concurrent.futures import Future
from typing import BinaryIO, TypeAlias

import numpy as np

from envlogger.backends.riegeli_files.disk_reserve import DiskReserve
from envlogger.errors import UsageError
from rlds_ecosystem.video_codec import FrameEncoder, Video

__all__ = ["FrameQueue", "FrameThread", "Packet"]

Packet: TypeAlias = tuple[bytes, int]
"""An encoded frame: the bytes, and the number of frames since the last keyframe."""

# The maximum ratio of the sizes of packet and frame; 1.6 for lossless noise.
_MAX_PACKET_RATIO = 2


class FrameThread:
    """Encodes the frames of a camera in a thread, in their order.

    Args:
      video: The video encoding.
      shape: The shape of a frame.
      frame_queue: The queue of frames; cameras may share it.
      name: The name of the thread.
    """

    def __init__(
        self, video: Video, shape: tuple[int, ...], frame_queue: FrameQueue, name: str
    ) -> None:
        self._video, self.shape, self._queue = video, shape, frame_queue
        self._encoder = FrameEncoder(video, shape)
        self._frames_since_key, self._is_degraded = 0, False
        self._frames: queue.SimpleQueue[tuple[Future[Packet], int | np.ndarray, bool] | None]
        self._frames = queue.SimpleQueue()
        self._put_lock, self._is_closed = threading.Lock(), False
        # Python would wait for a non-daemon thread before it closes recorders at exit.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def keep(self, frame: np.ndarray) -> int | np.ndarray:
        """Copies a frame to the queue, for `encode`."""
        return self._queue.put(frame)

    def encode(self, handle: int | np.ndarray, *, is_start: bool) -> Future[Packet]:
        """Queues a frame to be encoded.

        Args:
          handle: The result of `keep`.
          is_start: Whether this is the first frame of an episode, which becomes a keyframe.

        Raises:
          UsageError: The recorder was closed.
        """
        packet: Future[Packet] = Future()
        with self._put_lock:
            if self._is_closed:
                raise UsageError("no frame can be recorded while the recorder is being closed")
            self._frames.put((packet, handle, is_start))
        return packet

    def _run(self) -> None:
        for packet, handle, is_start in iter(self._frames.get, None):
            try:
                packet.set_result(self._encode(handle, is_start))
            except BaseException as error:
                packet.set_exception(error)

    def _encode(self, handle: int | np.ndarray, is_start: bool) -> Packet:
        frame = self._queue.take(handle, self.shape)
        try:
            is_key_due = self._frames_since_key + 1 >= self._video.gop
            is_degraded = self._queue.is_behind if is_key_due else self._is_degraded
            if is_start or is_degraded is not self._is_degraded:
                self._encoder.close()
                video = self._video.with_lower_quality() if is_degraded else self._video
                self._encoder, self._is_degraded = FrameEncoder(video, self.shape), is_degraded
            packet, is_key = self._encoder.encode(frame)
        finally:
            self._queue.release(frame.nbytes)
        self._frames_since_key = 0 if is_key else self._frames_since_key + 1
        return packet, self._frames_since_key

    def close(self) -> None:
        """Encodes the queued frames, and ends the thread."""
        with self._put_lock:
            self._is_closed = True
            self._frames.put(None)
        self._thread.join()
        self._encoder.close()


class FrameQueue:
    """A queue of frames to encode: in memory, then in a spill file or with backpressure.

    Args:
      max_bytes: The maximum size of the queue in memory.
      may_spill: Whether further frames go to a temporary file. Otherwise, `put` waits, and the
        quality of the video is reduced.

    Attributes:
      reserve: The reserved disk space for the encoded frames.

    Raises:
      ValueError: `max_bytes` is not positive.
    """

    def __init__(self, max_bytes: int, may_spill: bool) -> None:
        if not max_bytes > 0:
            raise ValueError(f"max_pending_bytes must be positive, got {max_bytes}")
        self._max_bytes, self._may_spill = max_bytes, may_spill
        self._bytes, self._has_failed = 0, False
        self._has_room = threading.Condition()
        self.reserve: DiskReserve | None = None
        self._num_admitted_bytes = 0
        self._file: BinaryIO | None = None
        self._end_offset = self._num_spilled = 0

    @property
    def is_behind(self) -> bool:
        """True if the queue is half full, so that the quality must be reduced."""
        return not self._may_spill and self._bytes * 2 > self._max_bytes

    def admit(self, num_bytes: int) -> bool:
        """Waits until the disk has space for new frames; returns False if it is full.

        Args:
          num_bytes: The size of the frames before encoding; pass it to `release_disk` later.
        """
        with self._has_room:
            while not self._has_failed and self.reserve is not None:
                if self.reserve.extend(_MAX_PACKET_RATIO * (self._num_admitted_bytes + num_bytes)):
                    break
                if not self._num_admitted_bytes:
                    return False
                self._has_room.wait(0.1)
            self._num_admitted_bytes += num_bytes
        return True

    def release_disk(self, num_bytes: int) -> None:
        """Releases the disk space that was reserved for admitted frames, after writing them."""
        with self._has_room:
            self._num_admitted_bytes -= num_bytes
            self._has_room.notify_all()

    def put(self, frame: np.ndarray) -> int | np.ndarray:
        """Copies a frame; returns the copy, or its offset in the spill file."""
        with self._has_room:
            while self._bytes + frame.nbytes > self._max_bytes and self._bytes:
                if self._may_spill:
                    with contextlib.suppress(OSError):  # Waits if the disk is full.
                        return self._spill(frame)
                if self._has_failed:
                    break
                self._has_room.wait(0.1)
            self._bytes += frame.nbytes
        return frame.copy()

    def _spill(self, frame: np.ndarray) -> int:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        offset, content = self._end_offset, np.ascontiguousarray(frame).tobytes()
        if os.pwrite(self._file.fileno(), content, offset) < frame.nbytes:
            raise OSError("the disk is full")
        self._end_offset += frame.nbytes
        self._num_spilled += 1
        return offset

    def take(self, handle: int | np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Returns a queued frame; reads a spilled frame into memory."""
        if isinstance(handle, np.ndarray):
            return handle
        assert self._file is not None
        size = int(np.prod(shape))
        content = os.pread(self._file.fileno(), size, handle)
        with self._has_room:
            self._bytes += size
            self._num_spilled -= 1
            if not self._num_spilled:
                self._file.truncate(0)
                self._end_offset = 0
        return np.frombuffer(content, np.uint8).reshape(shape)

    def release(self, num_bytes: int) -> None:
        """Releases the memory of an encoded frame."""
        with self._has_room:
            self._bytes -= num_bytes
            self._has_room.notify_all()

    def fail(self) -> None:
        """Wakes waiting threads after a failure of the recording."""
        with self._has_room:
            self._has_failed = True
            self._has_room.notify_all()

    def close(self) -> None:
        """Deletes the spill file."""
        if self._file is not None:
            self._file.close()
