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
"""The topic of episode marks: true at the start, false at the end."""

_MAX_PENDING_BYTES = 64 << 20
_ROSBAG_METADATA = """\
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
_CDR_HEADER = b"\0\1\0\0"  # The header of little-endian data.
_ARRAY_SCHEMA = """\
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
_TIME_SCHEMA = """\
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
_IMAGE_SCHEMA = f"""\
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
{_TIME_SCHEMA}"""
_VIDEO_SCHEMA = f"""\
builtin_interfaces/Time timestamp
string frame_id
uint8[] data
string format
{_TIME_SCHEMA}"""
_ROS_NUMBER_TYPES = {
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
    **{"bool": "Bool", "float32": "Float32", "float64": "Float64"},
}


def _record(code: int, content: bytes) -> bytes:
    return struct.pack("<BQ", code, len(content)) + content


def _encode_text(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


class _Cdr(io.BytesIO):
    """Bytes in CDR (the encoding of ROS 2): values are aligned to their size after the header."""

    def __init__(self) -> None:
        super().__init__()
        self.write(_CDR_HEADER)

    def align(self, size: int) -> _Cdr:
        self.write(b"\0" * (-(self.tell() - len(_CDR_HEADER)) % size))
        return self

    def uint32(self, value: int) -> _Cdr:
        self.align(4).write(struct.pack("<I", value))
        return self

    def text(self, text: str) -> _Cdr:
        content = text.encode() + b"\0"
        self.uint32(len(content)).write(content)
        return self


class _Stream:
    """The channel of a stream: its message schema, and the encoding of its values.

    Args:
      name: The name of the stream.
      value: The first value: an array of numbers, a number, a flag or a text.
      is_video: Whether the values are packets of video.

    Attributes:
      records: The MCAP records of the schema and the channel, which precede the first message.

    Raises:
      UnsupportedTypeError: No ROS 2 message type has such values.
    """

    def __init__(self, name: str, value: Any, stream_id: int, *, is_video: bool) -> None:
        self.name, self.id, self._is_video = name, stream_id, is_video
        self._is_text = isinstance(value, str)
        self._shape, self._dtype = np.shape(value), np.asarray(value).dtype
        self._is_image = len(self._shape) == 3 and self._dtype == np.uint8 and not is_video
        kind = _ROS_NUMBER_TYPES.get(self._dtype.name, "")
        if is_video:
            schema = "foxglove_msgs/msg/CompressedVideo", _VIDEO_SCHEMA
        elif self._is_image:
            schema = "sensor_msgs/msg/Image", _IMAGE_SCHEMA
        elif self._is_text:
            schema = "std_msgs/msg/String", "string data\n"
        elif kind and not self._shape:
            schema = f"std_msgs/msg/{kind}", f"{self._dtype.name} data\n"
        elif kind and kind != "Bool":
            layout = _ARRAY_SCHEMA.replace("{type}", self._dtype.name)
            schema = f"std_msgs/msg/{kind}MultiArray", layout
        else:
            raise UnsupportedTypeError(
                f"stream {name!r}: got {self._dtype} of shape {self._shape}, expected numbers, a "
                "flag, a text, or a frame of uint8"
            )
        self._prefix = self._encode_prefix()
        identifier = struct.pack("<H", stream_id)
        definition = schema[1].encode()
        self.records = _record(
            _SCHEMA,
            identifier
            + _encode_text(schema[0])
            + _encode_text("ros2msg")
            + struct.pack("<I", len(definition))
            + definition,
        ) + _record(
            _CHANNEL,
            2 * identifier + _encode_text(f"/{name}") + _encode_text("cdr") + struct.pack("<I", 0),
        )

    def _encode_prefix(self) -> bytes:
        """Returns the constant CDR bytes at the start of a message: header and array layout."""
        prefix = _Cdr()
        if self._is_text or not self._shape or self._is_video or self._is_image:
            return prefix.getvalue()
        prefix.uint32(len(self._shape))
        for axis, size in enumerate(self._shape):
            prefix.text("").uint32(size).uint32(int(np.prod(self._shape[axis:])))
        prefix.uint32(0).uint32(int(np.prod(self._shape)))
        return prefix.align(self._dtype.itemsize).getvalue()

    def check(self, value: Any) -> Any:
        """Converts a value to its written form.

        Raises:
          UnsupportedValueError: The dtype or shape of the value differs from the first value.
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

    def encode(self, value: Any, timestamp: int) -> bytes:
        """Encodes a message."""
        if self._is_text:
            return _Cdr().text(value).getvalue()
        if not (self._is_video or self._is_image):
            return self._prefix + value.tobytes()
        seconds, nanoseconds = divmod(timestamp, 10**9)
        message = _Cdr().uint32(seconds % 2**31).uint32(nanoseconds).text(self.name)
        if self._is_image:
            height, width, channels = self._shape
            encoding = {1: "mono8", 3: "rgb8", 4: "rgba8"}.get(channels, f"8UC{channels}")
            message.uint32(height).uint32(width).text(encoding).write(b"\0")
            message.uint32(width * channels)
            value = value.tobytes()
        message.uint32(len(value)).write(value)
        if self._is_video:
            message.text("h264")
        return message.getvalue()


class StreamRecorder(Closing):
    """Records streams of values, each at its own rate, from any threads and processes.

        with envlogger.StreamRecorder("runs/7", video={"wrist": envlogger.Video()}) as recorder:
            recorder.push("wrist", time.time_ns(), frame)       # In the thread of the camera.
            recorder.push("joints", time.time_ns(), positions)  # In the thread of the arm.

    The folder is a bag of ROS 2 in MCAP files, one per recorder: Foxglove and ROS read them, and
    `rlds.sources.open(folder, rate=30)` converts them to steps. The values of a stream have one
    dtype and shape. Pushed values reach the file after `flush_interval`; written values survive a
    crash of the process. If the disk is full, pushed values are written to reserved space, and the
    next `push` raises.

    Args:
      directory: The folder of the recording; several recorders, in several processes, may share it.
      video: The video encoding of each stream of frames, by name; H.264 only. Needs the extra
        `video`.
      flush_interval: The number of seconds after which values are written to the file.
      max_pending_bytes: The size of the queue; if it is full, `push` waits. The recorder reserves
        the same space on the disk, and twice the size of the frames that wait for an encoder.

    Raises:
      StorageError: The folder or the file cannot be created.
      ValueError: An argument is invalid.
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
        self._encoders: dict[str, FrameThread] = {}
        self._streams: dict[str, _Stream] = {}
        self._counts: dict[str, int] = {}
        self._max_bytes, self._interval = max_pending_bytes, flush_interval
        self._pending: list[bytes] = []
        self._num_bytes, self._first_ns, self._last_ns = 0, 1 << 63, 0
        # The error of writing, and the numbers of values that it affects.
        self._failure: BaseException | None = None
        self._num_pending = self._num_encoding = self._num_lost = 0
        self._in_episode = False
        self.path = Path(directory, f"{time.time_ns()}-{os.getpid()}.mcap")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            metadata_file = self.path.parent / "metadata.yaml"
            if not metadata_file.exists():
                write_atomically(metadata_file, _ROSBAG_METADATA.encode())
            self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115
            texts = _encode_text("ros2") + _encode_text("rlds streams")
            self._file.write(_MAGIC + _record(_HEADER, texts))
        except OSError as error:
            raise StorageError(f"cannot record to {os.fspath(directory)!r}: {error}") from error
        self._end_offset, self._shared_lock = self._file.tell(), SharedLock(self.path.parent)
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

    def push(self, stream: str, timestamp: int | None, value: Any) -> None:
        """Records a value of a stream; the first value sets dtype and shape.

        Args:
          stream: The name; a stream whose name begins with `action` becomes an action.
          timestamp: The time of the measurement, in nanoseconds since the epoch, as from
            `time.time_ns`; None for now. Timestamps of a stream need not be in order.
          value: A number, a flag, a text, or an array of numbers, which is copied.

        Raises:
          StorageError: Earlier values cannot be written.
          UnsupportedTypeError: No ROS 2 message type has such values.
          UnsupportedValueError: The dtype or the shape differs from the first value, or the
            timestamp is invalid.
          UsageError: The recorder is closed.
        """
        now = time.time_ns()
        if timestamp is None:
            timestamp = now
        if not isinstance(timestamp, int | np.integer) or not 0 <= timestamp < 1 << 63:
            raise UnsupportedValueError(
                f"stream {stream!r}: got the time {timestamp!r}, expected nanoseconds"
            )
        channel = self._streams.get(stream) or self._add_stream(stream, value)
        value = channel.check(value)
        if stream not in self._encoders:
            if not self._add(channel, int(timestamp), now, value):
                self._check_failure()
            return
        self._check_failure()
        encoder = self._encoders[stream]
        if not self._queue.admit(value.nbytes):
            self._check_failure()
            raise StorageError(f"stream {stream!r}: the disk is full; this value is not recorded")
        packet = encoder.encode(encoder.keep(value), is_start=stream not in self._counts)
        with self._lock:
            self._num_encoding += 1
        self._counts.setdefault(stream, 0)
        packet.add_done_callback(
            lambda done: self._add_packet(channel, int(timestamp), now, done, value.nbytes)
        )

    def _add_stream(self, name: str, value: Any) -> _Stream:
        self._check_failure()
        with self._lock:
            if name in self._streams:
                return self._streams[name]
            is_video = name in self._video
            stream = _Stream(name, value, len(self._streams) + 1, is_video=is_video)
            if is_video:
                shape = np.shape(value)
                encoder = FrameThread(self._video[name], shape, self._queue, f"envlogger-{name}")
                self._encoders[name] = encoder
            self._streams[name] = stream
            self._pending.append(stream.records)
        return stream

    def _add_packet(
        self, stream: _Stream, time_ns: int, now: int, packet: Future[Packet], num_bytes: int
    ) -> None:
        error = packet.exception()
        is_added = error is None and self._add(
            stream, time_ns, now, packet.result()[0], is_pushed=True
        )
        self._queue.release_disk(num_bytes)
        with self._lock:
            self._num_encoding -= 1
            self._num_lost += not is_added
            self._failure = self._failure or error  # The next push raises the error.
            self._has_room.notify_all()

    def _add(
        self, stream: _Stream, time_ns: int, now: int, value: Any, *, is_pushed: bool = False
    ) -> bool:
        """Queues a value to be written; returns whether it was accepted.

        Args:
          stream: The stream of the value.
          time_ns: The time of the measurement.
          now: The time of the call of `push`.
          value: The value.
          is_pushed: Whether `push` accepted the value earlier.
        """
        content = stream.encode(value, time_ns)
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
            header = _MESSAGE_HEADER.pack(_MESSAGE, size, stream.id, sequence, time_ns, now)
            self._pending += (header, content)
            self._num_bytes += len(header) + len(content)
            self._num_pending += 1
            self._first_ns = min(self._first_ns, time_ns)
            self._last_ns = max(self._last_ns, time_ns)
        return True

    @contextlib.contextmanager
    def episode(self) -> Iterator[None]:
        """Marks the values of a `with` block as an episode; without marks, all are one episode."""
        self.begin_episode()
        try:
            yield
        except BaseException:
            self._in_episode = False  # Without an end, readers treat the episode as incomplete.
            raise
        self.end_episode()

    def begin_episode(self, timestamp: int | None = None) -> None:
        """Begins an episode, at a time or now; see `push`."""
        self.push(EPISODE_TOPIC.strip("/"), timestamp, True)
        self._in_episode = True

    def end_episode(self, timestamp: int | None = None) -> None:
        """Ends the episode.

        Raises:
          UsageError: No episode has begun.
        """
        if not self._in_episode:
            raise UsageError("there is no episode to end")
        self._in_episode = False
        self.push(EPISODE_TOPIC.strip("/"), timestamp, False)

    def flush(self) -> None:
        """Writes pushed values, except frames that are being encoded.

        Raises:
          StorageError: A value cannot be written.
        """
        self._check_failure()
        self._write()
        self._check_failure()

    def close(self) -> None:
        """Encodes and writes pending values, and closes the file; further calls do nothing.

        Raises:
          StorageError: Some values could not be written.
        """
        if self._closed:
            return
        for encoder in self._encoders.values():
            encoder.close()
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
        """Disables the recorder in a forked process, which must not write to its parent's file."""
        self._closed = self._is_inherited = True

    def _check_failure(self) -> None:
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
            self._end_offset += len(chunk)
        except OSError:
            self._file.truncate(self._end_offset)
            self._file.seek(self._end_offset)
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
            first_ns, last_ns = min(self._first_ns, self._last_ns), self._last_ns
            compressed = zstandard.ZstdCompressor(1).compress(content)
            sizes = struct.pack("<QQQI", first_ns, last_ns, len(content), zlib.crc32(content))
            header = sizes + _encode_text("zstd") + struct.pack("<Q", len(compressed))
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
            self._num_bytes, self._first_ns, self._last_ns = 0, 1 << 63, 0
            self._num_pending = 0
            self._has_room.notify_all()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._num_lost += self._num_pending
        self._num_pending = 0
        self._queue.fail()
