"""Random access to the frames of video files: decodes from the nearest keyframe."""

from __future__ import annotations

import collections
import functools
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rlds.raw_files.untrusted import SourceError
from rlds.video.container import VideoFile
from rlds.video.packets import Packets, VideoInfo, video_errors
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.stores import PathLike, open_binary

__all__ = ["ClipIndex", "ClipReader"]

# Decoders that can skip frames that no other frame depends on.
_SKIPPING_DECODERS = ("h264", "hevc")

_local = threading.local()


class ClipIndex(NamedTuple):
    """The index of a video file: its packets, and the keyframe for each frame.

    Attributes:
      info: The properties of the video.
      packets: The packets, with their offsets.
      keys: The packet at which decoding begins for each frame.
    """

    info: VideoInfo
    packets: Packets
    keys: np.ndarray

    @classmethod
    def build(cls, video: VideoFile) -> ClipIndex:
        """Builds the index of a video file.

        Raises:
          SourceError: The video is damaged.
        """
        info, packets = video.index()
        if (packets.pos < 0).any():
            raise SourceError("packets lie outside the file", file=video.name)
        times = packets.pts[packets.frames]
        if (np.diff(times) == 0).any():
            raise SourceError("two frames have the same time stamp", file=video.name)
        keys = np.flatnonzero(packets.is_key)
        # The last keyframe that is displayed before each frame.
        rows = np.searchsorted(packets.pts[keys], times, side="right") - 1
        first_packets = np.where(rows < 0, len(packets), keys[rows]) if len(keys) else rows
        return cls(info, packets, first_packets)

    @property
    def nbytes(self) -> int:
        """The approximate memory of the index, in bytes."""
        return 50 * len(self.packets) + len(self.info.extradata)


class ClipReader:
    """Reads any frames of a video file.

    The reader seeks to the keyframe before a frame and decodes from there; sequential reads do not
    seek. Close the reader, or use it as a context manager.

    Args:
      video: The bytes or the path of the file.
      name: The name of the file in errors.
      index: The index of the file, if available.

    Attributes:
      index: The index of the file.

    Raises:
      SourceError: The video is damaged.
    """

    def __init__(
        self, video: bytes | PathLike, name: str = "clip", index: ClipIndex | None = None
    ) -> None:
        self.index = ClipIndex.build(VideoFile(video, name)) if index is None else index
        self._name = name
        self._file: BinaryIO = io.BytesIO(video) if isinstance(video, bytes) else open_binary(video)
        self._times = self.index.packets.pts[self.index.packets.frames]
        self._decoder: Any = None
        # The next packet to feed, the index of the next decoded frame, the decoded frames, and
        # True if the decoder is drained and has to restart.
        self._next_packet, self._next_frame = 0, len(self._times)
        self._decoded_frames: collections.deque[Any] = collections.deque()
        self._is_drained = True

    def __enter__(self) -> ClipReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        self._decoder = None

    def __len__(self) -> int:
        return len(self._times)

    @property
    def info(self) -> VideoInfo:
        """The properties of the video: `info.num_frames`, `info.shape`, `info.dtype`."""
        return self.index.info

    def frames(self, start: int, stop: int) -> np.ndarray:
        """Returns the frames from `start` to before `stop`.

        Returns:
          An array of shape `[stop - start, height, width, 3]`, uint8: RGB in FFmpeg's default
          conversion. Gray of more than 8 bits is unconverted uint16, with one channel.

        Raises:
          IndexError: There are no such frames.
          SourceError: A frame is damaged.
        """
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"frames {start} to {stop}, but {self._name} has {len(self)}")
        result = np.empty((stop - start, *self.info.shape), self.info.dtype)
        self.read_into(range(start, stop), list(result))
        return result

    def read_into(
        self, indices: Sequence[int], images: Sequence[np.ndarray], values: np.ndarray | None = None
    ) -> None:
        """Reads some frames into arrays.

        Args:
          indices: The indices of the frames, ascending.
          images: An array for each frame, with the shape and the dtype of `info`, or with the dtype
            of `values`.
          values: A lookup table of the values of pixels that are codes. Larger codes have the last
            value.

        Raises:
          IndexError: There are no such frames.
          SourceError: A frame is damaged.
        """
        if not len(indices):
            return
        if indices[0] < 0 or indices[-1] >= len(self):
            raise IndexError(f"frames {indices}, but {self._name} has {len(self)}")
        with video_errors(self._name):
            for frame, image in zip(self._decode(indices), images, strict=True):
                _convert(frame, image, self.info.dtype, values)

    def _decode(self, indices: Sequence[int]) -> Iterator[Any]:
        """Yields decoded frames by index."""
        frames, key_packets = self.index.packets.frames, self.index.keys
        # Only sequential reads let the decoder run ahead.
        is_in_order = indices[0] in (0, self._next_frame)
        for position, frame in enumerate(indices):
            key_packet = key_packets[frame]
            is_ahead = key_packet < self._next_packet and self._next_frame <= frame
            if self._is_drained or not is_ahead:
                self._seek(key_packet, frame)
            next_indices = indices[position + 1 :][:1]
            is_continued = is_in_order or any(
                next_index == frame + 1 or key_packets[next_index] <= frames[frame]
                for next_index in next_indices
            )
            yield self._decode_until(frame, is_continued)

    def _decode_until(self, index: int, is_continued: bool) -> Any:
        """Decodes up to a frame; drains the decoder if no later frame is requested."""
        frame_packet = self.index.packets.frames[index]
        while self._next_frame <= index:
            while not self._decoded_frames:
                self._feed(index, drain=not is_continued and self._next_packet > frame_packet)
            frame = self._decoded_frames.popleft()
            frame_index = int(np.searchsorted(self._times, frame.pts))
            if frame_index < self._next_frame:  # The frame precedes the keyframe.
                continue
            self._next_frame = frame_index + 1
            is_intact = (frame.height, frame.width) == self.info.shape[:2] and not frame.is_corrupt
            if frame_index == index and is_intact:
                return frame
            if frame_index >= index:
                break
        raise SourceError("the frame is damaged", file=self._name, row=index)

    def _feed(self, frame: int, *, drain: bool) -> None:
        """Feeds a packet to the decoder, and takes its decoded frames."""
        packets = self.index.packets
        data = None
        if not drain and self._next_packet < len(packets):
            data = self._read_packet(self._next_packet)
            if self.info.decoder in _SKIPPING_DECODERS:
                is_before = packets.pts[self._next_packet] < self._times[frame]
                self._decoder.skip_frame = "NONREF" if is_before else "DEFAULT"
        elif self._is_drained:
            raise SourceError("the frame cannot be decoded", file=self._name, row=frame)
        self._is_drained = data is None
        self._next_packet += 1
        self._decoded_frames.extend(self._decoder.decode(data))

    def _read_packet(self, index: int) -> Any:
        packets = self.index.packets
        self._file.seek(int(packets.pos[index]))
        size = int(packets.size[index])
        data = self._file.read(size)
        if len(data) < size:
            raise SourceError(
                "the file is shorter than before: it was changed; open it again", file=self._name
            )
        packet = import_extra("av").Packet(data)
        packet.pts, packet.dts = int(packets.pts[index]), int(packets.dts[index])
        return packet

    def _seek(self, key: int, frame: int) -> None:
        """Restarts the decoder at a keyframe."""
        if key > self.index.packets.frames[frame]:
            raise SourceError("no keyframe comes before it", file=self._name, row=frame)
        if self._decoder is None:
            av = import_extra("av")
            self._decoder = av.CodecContext.create(self.info.decoder, "r")
            self._decoder.extradata = self.info.extradata or None
            # Several threads would decode unrequested frames ahead.
            self._decoder.thread_count = 1
        else:
            self._decoder.flush_buffers()
        self._decoded_frames.clear()
        self._next_packet, self._is_drained = key, False
        self._next_frame = int(np.searchsorted(self._times, self.index.packets.pts[key]))


def _convert(frame: Any, image: np.ndarray, dtype: np.dtype, values: np.ndarray | None) -> None:
    """Writes the pixels of a frame, or the values of its codes, into an array."""
    height, width, channels = image.shape
    if channels == 3:
        frame = _to_rgb()(frame)
    rows = np.frombuffer(frame.planes[0], dtype).reshape(height, -1)
    pixels = rows[:, : width * channels].reshape(image.shape)
    image[...] = pixels if values is None else values.take(pixels, mode="clip")


def _to_rgb() -> Callable[[Any], Any]:
    """Returns the RGB converter of this thread, which is reused for all frames."""
    if not hasattr(_local, "to_rgb"):
        module = import_extra("av").video.reformatter
        reformat = module.VideoReformatter().reformat
        # Threads are slower here, and would hang in a forked process.
        options = {"threads": 1} if "threads" in (reformat.__doc__ or "") else {}
        _local.to_rgb = functools.partial(reformat, format="rgb24", **options)
    to_rgb: Callable[[Any], Any] = _local.to_rgb
    return to_rgb
