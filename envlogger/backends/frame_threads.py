"""Threads that encode the frames of cameras, and the queue of frames to encode."""

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

__all__ = ["FrameThread", "Packet", "WaitingFrames"]

Packet: TypeAlias = tuple[bytes, int]
"""A packet, and how many frames come between it and the one that decoding begins with."""

# The largest ratio of a packet to its frame: that of lossless noise is 1.6.
_MOST_ENCODED = 2


class FrameThread:
    """Encodes the frames of a camera in a thread, in their order.

    Args:
      video: The video encoding.
      shape: Of a frame.
      waiting: Takes the frames that wait; cameras may share it.
      name: The name of the thread.
    """

    def __init__(
        self, video: Video, shape: tuple[int, ...], waiting: WaitingFrames, name: str
    ) -> None:
        self._video, self.shape, self._waiting = video, shape, waiting
        self._encoder = FrameEncoder(video, shape)
        self._since_key, self._is_worse = 0, False
        self._frames: queue.SimpleQueue[tuple[Future[Packet], int | np.ndarray, bool] | None]
        self._frames = queue.SimpleQueue()
        self._putting, self._is_closed = threading.Lock(), False
        # A daemon lives until the recorder is closed at the end of the process.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def keep(self, frame: np.ndarray) -> int | np.ndarray:
        """Copies a frame, for `encode`."""
        return self._waiting.put(frame)

    def encode(self, stored: int | np.ndarray, *, begins: bool) -> Future[Packet]:
        """Has a frame encoded.

        Args:
          stored: The result of `keep`.
          begins: Whether decoding has to begin with it.

        Raises:
          UsageError: The thread was ended.
        """
        packet: Future[Packet] = Future()
        with self._putting:
            if self._is_closed:
                raise UsageError("no frame can be recorded while the recorder is being closed")
            self._frames.put((packet, stored, begins))
        return packet

    def _run(self) -> None:
        for packet, stored, begins in iter(self._frames.get, None):
            try:
                packet.set_result(self._encoded(stored, begins))
            except BaseException as error:
                packet.set_exception(error)

    def _encoded(self, stored: int | np.ndarray, begins: bool) -> Packet:
        frame = self._waiting.take(stored, self.shape)
        try:
            at_key = self._since_key + 1 >= self._video.gop
            is_worse = self._waiting.is_behind if at_key else self._is_worse
            if begins or is_worse is not self._is_worse:
                self._encoder.close()
                video = self._video.worse() if is_worse else self._video
                self._encoder, self._is_worse = FrameEncoder(video, self.shape), is_worse
            packet, is_key = self._encoder.encode(frame)
        finally:
            self._waiting.done(frame.nbytes)
        self._since_key = 0 if is_key else self._since_key + 1
        return packet, self._since_key

    def close(self) -> None:
        """Encodes the waiting frames, and ends the thread."""
        with self._putting:
            self._is_closed = True
            self._frames.put(None)
        self._thread.join()
        self._encoder.close()


class WaitingFrames:
    """The frames that wait for their encoders: in memory, then on the disk or outside.

    Args:
      max_bytes: The maximum size of the queue in memory.
      may_spill: Whether more go to a temporary file; if not, `put` waits, and quality has to fall.

    Attributes:
      reserve: Keeps the space on the disk that they may take once they are encoded, or more.

    Raises:
      ValueError: `max_bytes` is not positive.
    """

    def __init__(self, max_bytes: int, may_spill: bool) -> None:
        if not max_bytes > 0:
            raise ValueError(f"max_pending_bytes must be positive, got {max_bytes}")
        self._max_bytes, self._may_spill = max_bytes, may_spill
        self._bytes, self._is_over = 0, False
        self._has_room = threading.Condition()
        self.reserve: DiskReserve | None = None
        self._num_admitted_bytes = 0
        self._file: BinaryIO | None = None
        self._end = self._num_spilled = 0

    @property
    def is_behind(self) -> bool:
        """Whether quality has to fall."""
        return not self._may_spill and self._bytes * 2 > self._max_bytes

    def admit(self, num_bytes: int) -> bool:
        """Waits until the disk has space for new frames; returns whether it has.

        Args:
          num_bytes: Of what is recorded at once, before it is encoded. Call `written` with it.
        """
        with self._has_room:
            while not self._is_over and self.reserve is not None:
                if self.reserve.hold(_MOST_ENCODED * (self._num_admitted_bytes + num_bytes)):
                    break
                if not self._num_admitted_bytes:
                    return False
                self._has_room.wait(0.1)
            self._num_admitted_bytes += num_bytes
        return True

    def written(self, num_bytes: int) -> None:
        """Releases disk space that was reserved for admitted frames, after writing them."""
        with self._has_room:
            self._num_admitted_bytes -= num_bytes
            self._has_room.notify_all()

    def put(self, frame: np.ndarray) -> int | np.ndarray:
        """Copies a frame; returns the copy, or its offset in the spill file."""
        with self._has_room:
            while self._bytes + frame.nbytes > self._max_bytes and self._bytes:
                if self._may_spill:
                    with contextlib.suppress(OSError):  # The disk is full: the frame must wait.
                        return self._spilled(frame)
                if self._is_over:
                    break
                self._has_room.wait(0.1)
            self._bytes += frame.nbytes
        return frame.copy()

    def _spilled(self, frame: np.ndarray) -> int:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        offset, content = self._end, np.ascontiguousarray(frame).tobytes()
        if os.pwrite(self._file.fileno(), content, offset) < frame.nbytes:
            raise OSError("the disk is full")
        self._end += frame.nbytes
        self._num_spilled += 1
        return offset

    def take(self, stored: int | np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Returns a frame, which counts as one in memory from now on."""
        if isinstance(stored, np.ndarray):
            return stored
        assert self._file is not None
        size = int(np.prod(shape))
        content = os.pread(self._file.fileno(), size, stored)
        with self._has_room:
            self._bytes += size
            self._num_spilled -= 1
            if not self._num_spilled:
                self._file.truncate(0)
                self._end = 0
        return np.frombuffer(content, np.uint8).reshape(shape)

    def done(self, num_bytes: int) -> None:
        """Makes room for another frame."""
        with self._has_room:
            self._bytes -= num_bytes
            self._has_room.notify_all()

    def give_up(self) -> None:
        """Wakes waiting threads after a failure of the recording."""
        with self._has_room:
            self._is_over = True
            self._has_room.notify_all()

    def close(self) -> None:
        """Deletes the file."""
        if self._file is not None:
            self._file.close()
