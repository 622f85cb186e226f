"""Records sensor streams of any rates to MCAP bags: cameras, joints, forces."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from envlogger.backends import lifetime
from envlogger.backends.frame_threads import FrameQueue, FrameThread, Packet
from envlogger.backends.riegeli_files.disk_reserve import DiskReserve
from envlogger.closing import Closing
from envlogger.errors import StorageError, UnsupportedTypeError, UnsupportedValueError, UsageError
from rlds_ecosystem.files.whole_files import SharedLock, write_atomically
from rlds_ecosystem.video_codec import Video

__all__ = ["EPISODE_TOPIC", "StreamRecorder"]

EPISODE_TOPIC = "/episode"
"""The topic of episode marks: true at the begin, false at the end."""

_MAX_PENDING_BYTES = 64 << 20
_METADATA = """\
rosbag2_bagfile_information:
  version: 5
  storage_identifier: mcap
  relative_file_paths: []
  duration: {nanoseconds: 0}
  starting_time: {nanoseconds_since_epoch: 0}
  message_count: 0
  topics_with_message_count: []
  compression_format: ""
  compression_mode: ""
"""

# --- The records of MCAP (https://mcap.dev/spec), and messages of ROS 2 in CDR.

_MAGIC = b"\x89MCAP0\r\n"
_HEADER, _FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _DATA_END = 1, 2, 3, 4, 5, 6, 15
_MESSAGE_HEADER = struct.Struct("<BQHIQQ")
_CDR = b"\0\1\0\0"  # Little endian.
_LAYOUT = """\
MultiArrayLayout layout
{type}[] data
================================================================================
MSG: std_msgs/MultiArrayLayout
MultiArrayDimension[] dim
uint32 data_offset
================================================================================
MSG: std_msgs/MultiArrayDimension
string label
uint32 size
uint32 stride
"""
_TIME = """\
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
_IMAGE = f"""\
std_msgs/Header header
uint32 height
uint32 width
string encoding
uint8 is_bigendian
uint32 step
uint8[] data
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
{_TIME}"""
_VIDEO = f"""\
builtin_interfaces/Time timestamp
string frame_id
uint8[] data
string format
{_TIME}"""
_ROS_NUMBER_TYPES = {
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
    **{"bool": "Bool", "float32": "Float32", "float64": "Float64"},
}


def _record(code: int, content: bytes) -> bytes:
    return struct.pack("<BQ", code, len(content)) + content


def _text(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


class _Cdr(io.BytesIO):
    """Values in CDR; numbers are aligned by their size, counted after the first four bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.write(_CDR)

    def align(self, size: int) -> _Cdr:
        self.write(b"\0" * (-(self.tell() - len(_CDR)) % size))
        return self

    def number(self, number: int) -> _Cdr:
        self.align(4).write(struct.pack("<I", number))
        return self

    def text(self, text: str) -> _Cdr:
        content = text.encode() + b"\0"
        self.number(len(content)).write(content)
        return self


class _Stream:
    """The channel of a stream: its message schema, and the encoding of its values.

    Args:
      name: The name.
      value: The first value: an array of numbers, a number, a flag or a text.
      is_video: Whether the values are packets of video.

    Attributes:
      records: The records that come before its first message.

    Raises:
      UnsupportedTypeError: There is no type of messages for it.
    """

    def __init__(self, name: str, value: Any, number: int, *, is_video: bool) -> None:
        self.name, self.number, self._is_video = name, number, is_video
        self._is_text = isinstance(value, str)
        self._shape, self._dtype = np.shape(value), np.asarray(value).dtype
        self._is_image = len(self._shape) == 3 and self._dtype == np.uint8 and not is_video
        kind = _ROS_NUMBER_TYPES.get(self._dtype.name, "")
        if is_video:
            schema = "foxglove_msgs/msg/CompressedVideo", _VIDEO
        elif self._is_image:
            schema = "sensor_msgs/msg/Image", _IMAGE
        elif self._is_text:
            schema = "std_msgs/msg/String", "string data\n"
        elif kind and not self._shape:
            schema = f"std_msgs/msg/{kind}", f"{self._dtype.name} data\n"
        elif kind and kind != "Bool":
            name_of_type = f"std_msgs/msg/{kind}MultiArray"
            schema = name_of_type, _LAYOUT.replace("{type}", self._dtype.name)
        else:
            raise UnsupportedTypeError(
                f"stream {name!r}: got {self._dtype} of shape {self._shape}, expected numbers, a "
                "flag, a text, or a frame of uint8"
            )
        self._prefix = self._new_prefix()
        identifier = struct.pack("<H", number)
        definition = schema[1].encode()
        self.records = _record(
            _SCHEMA,
            identifier
            + _text(schema[0])
            + _text("ros2msg")
            + struct.pack("<I", len(definition))
            + definition,
        ) + _record(
            _CHANNEL, 2 * identifier + _text(f"/{name}") + _text("cdr") + struct.pack("<I", 0)
        )

    def _new_prefix(self) -> bytes:
        """Returns the constant CDR bytes at the start of a message: header and array layout."""
        prefix = _Cdr()
        if self._is_text or not self._shape or self._is_video or self._is_image:
            return prefix.getvalue()
        prefix.number(len(self._shape))
        for axis, size in enumerate(self._shape):
            prefix.text("").number(size).number(int(np.prod(self._shape[axis:])))
        prefix.number(0).number(int(np.prod(self._shape)))
        return prefix.align(self._dtype.itemsize).getvalue()

    def check(self, value: Any) -> Any:
        """Converts a value to its written form.

        Raises:
          UnsupportedValueError: It is not like the first one.
        """
        if self._is_text and isinstance(value, str):
            return value
        array = np.asarray(value)
        if array.shape != self._shape or array.dtype != self._dtype:
            raise UnsupportedValueError(
                f"stream {self.name!r}: got {array.dtype} of shape {array.shape}, expected "
                f"{self._dtype} of shape {self._shape}, as in the first value"
            )
        return array

    def message(self, value: Any, at: int) -> bytes:
        """Returns the bytes of a message."""
        if self._is_text:
            return _Cdr().text(value).getvalue()
        if not (self._is_video or self._is_image):
            return self._prefix + value.tobytes()
        message = _Cdr().number(at // 10**9 % 2**31).number(at % 10**9).text(self.name)
        if self._is_image:
            height, width, channels = self._shape
            encoding = {1: "mono8", 3: "rgb8", 4: "rgba8"}.get(channels, f"8UC{channels}")
            message.number(height).number(width).text(encoding).write(b"\0")
            message.number(width * channels)
            value = value.tobytes()
        message.number(len(value)).write(value)
        if self._is_video:
            message.text("h264")
        return message.getvalue()


class StreamRecorder(Closing):
    """Records streams of values, each at its own rate, from any threads and processes.

        with envlogger.StreamRecorder("runs/7", video={"wrist": envlogger.Video()}) as recorder:
            recorder.push("wrist", time.time_ns(), frame)       # In the thread of the camera.
            recorder.push("joints", time.time_ns(), positions)  # In that of the arm.

    The folder is a bag of ROS 2 in MCAP files, one for each recorder: Foxglove and ROS read them,
    and `rlds.sources.open(folder, rate=30)` makes steps of them. A stream has values of one dtype
    and shape. What was pushed is in the file after `flush_interval`, and survives that the process
    is killed then. When the disk is full, what was pushed is written to space that was kept for it,
    and the next `push` raises.

    Args:
      directory: The folder of the recording; several recorders, in several processes, may share it.
      video: The video encoding of streams of frames, by name; H.264 only. Needs the extra `video`.
      flush_interval: After how many seconds values reach the file.
      max_pending_bytes: The size of the queue; if it is full, `push` waits. As much space is kept
        on the disk, and twice that of the frames that wait for an encoder.

    Raises:
      StorageError: The folder or the file cannot be made.
      ValueError: An argument is wrong.
    """

    _closed = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        video: Mapping[str, Video] | None = None,
        flush_interval: float = 0.05,
        max_pending_bytes: int = _MAX_PENDING_BYTES,
    ) -> None:
        if not flush_interval > 0:
            raise ValueError(f"flush_interval must be positive, got {flush_interval}")
        for name, settings in (video or {}).items():
            if settings.codec != "h264":
                raise ValueError(f"video of {name!r}: got {settings.codec}, expected h264")
        self._video, self._queue = dict(video or {}), FrameQueue(max_pending_bytes, True)
        self._cameras: dict[str, FrameThread] = {}
        self._streams: dict[str, _Stream] = {}
        self._counts: dict[str, int] = {}
        self._max_bytes, self._interval = max_pending_bytes, flush_interval
        self._pending: list[bytes] = []
        self._num_bytes, self._first, self._last = 0, 1 << 63, 0
        # The error of writing, and counts of the values that it affects.
        self._failure: BaseException | None = None
        self._num_pending = self._num_encoding = self._num_lost = 0
        self._in_episode = False
        self.path = Path(directory, f"{time.time_ns()}-{os.getpid()}.mcap")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            metadata_file = self.path.parent / "metadata.yaml"
            if not metadata_file.exists():
                write_atomically(metadata_file, _METADATA.encode())
            self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115
            self._file.write(_MAGIC + _record(_HEADER, _text("ros2") + _text("rlds streams")))
        except OSError as error:
            raise StorageError(f"cannot record to {os.fspath(directory)!r}: {error}") from error
        self._end, self._shared_lock = self._file.tell(), SharedLock(self.path.parent)
        try:
            self._queue.reserve = self._reserve = DiskReserve(self.path.parent, max_pending_bytes)
        except StorageError:
            self._file.close()
            self._shared_lock.close()
            os.unlink(self.path)
            raise
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._is_inherited, self._closed = False, False
        self._thread = threading.Thread(target=self._run, name="envlogger-streams", daemon=True)
        self._thread.start()
        lifetime.close_at_exit(self)

    def __repr__(self) -> str:
        return f"<StreamRecorder of {', '.join(self._streams) or 'no streams yet'} in {self.path}>"

    def push(self, stream: str, at: int | None, value: Any) -> None:
        """Records a value of a stream; the first value sets dtype and shape.

        Args:
          stream: The name; one that begins with `action` becomes an action.
          at: When it was measured, in nanoseconds since the epoch, as `time.time_ns` says; None for
            now. Values of a stream may come late.
          value: A number, a flag, a text, or an array of numbers. It is copied.

        Raises:
          StorageError: Earlier values cannot be written.
          UnsupportedTypeError: There is no place for such a value.
          UnsupportedValueError: It is not like the first one, or the time is none.
          UsageError: The recorder is closed.
        """
        now = time.time_ns()
        at = now if at is None else at
        if not isinstance(at, int | np.integer) or not 0 <= at < 1 << 63:
            raise UnsupportedValueError(
                f"stream {stream!r}: got the time {at!r}, expected nanoseconds"
            )
        recorded = self._streams.get(stream) or self._new(stream, value)
        value = recorded.check(value)
        if stream not in self._cameras:
            if not self._add(recorded, int(at), now, value):
                self._check()
            return
        self._check()
        camera = self._cameras[stream]
        if not self._queue.admit(value.nbytes):
            self._check()
            raise StorageError(f"stream {stream!r}: the disk is full; this value is not recorded")
        packet = camera.encode(camera.keep(value), is_start=stream not in self._counts)
        with self._lock:
            self._num_encoding += 1
        self._counts.setdefault(stream, 0)
        packet.add_done_callback(
            lambda done: self._add_packet(recorded, int(at), now, done, value.nbytes)
        )

    def _new(self, name: str, value: Any) -> _Stream:
        self._check()
        with self._lock:
            if name in self._streams:
                return self._streams[name]
            is_video = name in self._video
            stream = _Stream(name, value, len(self._streams) + 1, is_video=is_video)
            if is_video:
                shape = np.shape(value)
                camera = FrameThread(self._video[name], shape, self._queue, f"envlogger-{name}")
                self._cameras[name] = camera
            self._streams[name] = stream
            self._pending.append(stream.records)
        return stream

    def _add_packet(
        self, stream: _Stream, at: int, now: int, packet: Future[Packet], num_bytes: int
    ) -> None:
        error = packet.exception()
        is_added = error is None and self._add(stream, at, now, packet.result()[0], is_pushed=True)
        self._queue.written(num_bytes)
        with self._lock:
            self._num_encoding -= 1
            self._num_lost += not is_added
            self._failure = self._failure or error  # The next push raises the error.
            self._has_room.notify_all()

    def _add(
        self, stream: _Stream, at: int, now: int, value: Any, *, is_pushed: bool = False
    ) -> bool:
        """Queues a value to be written; returns whether it was accepted.

        Args:
          stream: Its stream.
          at: When it was measured.
          now: When it was pushed.
          value: The value.
          is_pushed: Whether `push` has accepted it before.
        """
        content = stream.message(value, at)
        with self._lock:
            while self._num_bytes + len(content) > self._max_bytes and self._num_bytes:
                if self._failure is not None:
                    break
                self._wake.set()
                self._has_room.wait(0.1)
            is_refused = self._reserve.cause is not None or self._closed
            if self._failure is not None or (is_refused and not is_pushed):
                return False
            sequence = self._counts[stream.name] = self._counts.get(stream.name, 0) + 1
            size = _MESSAGE_HEADER.size - 9 + len(content)
            header = _MESSAGE_HEADER.pack(_MESSAGE, size, stream.number, sequence, at, now)
            self._pending += (header, content)
            self._num_bytes += len(header) + len(content)
            self._num_pending += 1
            self._first, self._last = min(self._first, at), max(self._last, at)
        return True

    @contextlib.contextmanager
    def episode(self) -> Iterator[None]:
        """Marks the recordings of a block as an episode; without blocks, all is one episode."""
        self.begin_episode()
        try:
            yield
        except BaseException:
            self._in_episode = False  # Without an end, readers treat the episode as incomplete.
            raise
        self.end_episode()

    def begin_episode(self, at: int | None = None) -> None:
        """Begins an episode, at a time or now; see `push`."""
        self.push(EPISODE_TOPIC.strip("/"), at, True)
        self._in_episode = True

    def end_episode(self, at: int | None = None) -> None:
        """Ends the episode.

        Raises:
          UsageError: There is none.
        """
        if not self._in_episode:
            raise UsageError("there is no episode to end")
        self._in_episode = False
        self.push(EPISODE_TOPIC.strip("/"), at, False)

    def flush(self) -> None:
        """Writes pushed values, except frames that are being encoded.

        Raises:
          StorageError: It cannot be written.
        """
        self._check()
        self._write()
        self._check()

    def close(self) -> None:
        """Encodes and writes pending values, and closes the file; further calls do nothing.

        Raises:
          StorageError: Not all could be written.
        """
        if self._closed:
            return
        for camera in self._cameras.values():
            camera.close()
        self._closed = True
        self._wake.set()
        self._thread.join()
        self._write()
        with contextlib.suppress(OSError):  # Readers need no footer.
            self._append(_record(_DATA_END, b"\0" * 4) + _record(_FOOTER, b"\0" * 20) + _MAGIC)
            os.fsync(self._file.fileno())
        self._file.close()
        self._shared_lock.close()
        self._reserve.close()
        self._queue.close()
        if self._failure or self._reserve.cause:
            self._raise()

    def disown(self) -> None:
        """Called in a forked process, which must not write to the file of its parent."""
        self._closed = self._is_inherited = True

    def _check(self) -> None:
        if self._reserve.cause is not None:
            with self._has_room:
                self._has_room.wait_for(lambda: not self._num_encoding or self._failure)
            self._write()
        if self._failure or self._reserve.cause:
            self._raise()
        if self._is_inherited:
            raise UsageError("this recorder belongs to the process that forked this one")
        if self._closed:
            raise UsageError("this recorder is closed; make a new one to record more")

    def _raise(self) -> None:
        error = self._failure or self._reserve.cause
        outcome = "all values that were pushed are readable"
        if num_lost := self._num_lost + self._num_encoding:
            outcome = f"the last {num_lost} values are lost, those before are readable"
        raise StorageError(
            f"cannot write to {self.path}, recording stops here: {error}; {outcome}"
        ) from error

    def _append(self, chunk: bytes) -> None:
        """Appends a chunk to the file, completely or not at all."""
        try:
            if self._file.write(chunk) < len(chunk):
                raise OSError(errno.ENOSPC, "the disk is full")
            self._end += len(chunk)
        except OSError:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            raise

    def _run(self) -> None:
        while not self._closed and self._failure is None:
            self._wake.wait(self._interval)
            self._wake.clear()
            try:
                self._write()
            except BaseException as error:
                self._fail(error)

    def _write(self) -> None:
        """Writes all pending values as a chunk, or nothing."""
        with self._lock:
            if not self._pending or self._failure is not None:
                return
            content = b"".join(self._pending)
            first, last = min(self._first, self._last), self._last
            compressed = zstandard.ZstdCompressor(1).compress(content)
            sizes = struct.pack("<QQQI", first, last, len(content), zlib.crc32(content))
            header = sizes + _text("zstd") + struct.pack("<Q", len(compressed))
            chunk = _record(_CHUNK, header + compressed)
            try:
                try:
                    self._append(chunk)
                except OSError as error:
                    if not self._reserve.release_after(error):
                        raise
                    self._append(chunk)
                if not os.fstat(self._file.fileno()).st_nlink:
                    self._num_lost = sum(self._counts.values()) - self._num_pending
                    raise FileNotFoundError(f"{self.path} was deleted while it was recorded")
            except OSError as error:
                self._fail(error)
            self._pending.clear()
            self._num_bytes, self._first, self._last = 0, 1 << 63, 0
            self._num_pending = 0
            self._has_room.notify_all()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._num_lost += self._num_pending
        self._num_pending = 0
        self._queue.fail()
