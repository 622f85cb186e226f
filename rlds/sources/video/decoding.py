"""Frames out of clips: as few are decoded as the packets allow."""

from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlds.sources.untrusted import SourceError, source_errors
from rlds.sources.video.packets import (
    VideoInfo,
    demuxed,
    info_of,
    open_video,
    read_packets,
    size_of,
)
from rlds_ecosystem import import_extra
from rlds_ecosystem.stores import PathLike

__all__ = ["ClipReader"]


class ClipReader:
    """Reads any frames of a video file.

    It seeks to the keyframe before them and decodes from there on. Frames that follow those that
    were read last are decoded without seeking. Close it, or use it as a context manager.

    Args:
      video: The bytes of the file, or its path.
      name: What to call it in errors.

    Attributes:
      info: What the file says of the video: `info.num_frames`, `info.shape`, `info.dtype`.

    Raises:
      SourceError: It is damaged.
    """

    _packet: int  # The one that goes into the decoder next.
    _next: int  # The frame that is wanted next.
    _ready: collections.deque[Any]  # Frames that came out already.
    _is_drained: bool  # Whether the decoder gave all it had, and must begin anew.

    def __init__(self, video: bytes | PathLike, name: str = "clip") -> None:
        self._name, self._stack = name, contextlib.ExitStack()
        with contextlib.ExitStack() as stack, source_errors(name):
            self._container, self._stream, _ = stack.enter_context(open_video(video, name))
            size = len(video) if isinstance(video, bytes) else size_of(video)
            # Several threads decode frames ahead, which no one may ask for.
            self._stream.codec_context.thread_count = 1
            self._packets = read_packets(self._container, self._stream, size)
            self.info: VideoInfo = info_of(self._container, self._stream, len(self._packets.frames))
            self._stack = stack.pop_all()
        self._times = self._packets.pts[self._packets.frames]
        self._reformatter = import_extra("av").video.reformatter.VideoReformatter()
        self._numbers = {int(time): number for number, time in enumerate(self._times)}
        if len(self._numbers) < len(self._times):
            raise SourceError("two frames have one time stamp", file=name)
        self._source: Iterator[Any] = iter(())
        self._begin_anew(len(self._packets))

    def __enter__(self) -> ClipReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._stack.close()

    def __len__(self) -> int:
        return len(self._times)

    def frames(self, start: int, stop: int) -> np.ndarray:
        """Returns the frames from `start` to before `stop`.

        Returns:
          An array of shape `[stop - start, height, width, 3]`, uint8: RGB as FFmpeg converts it
          without further words. Gray of more than 8 bits is uint16, with one channel, as it is.

        Raises:
          IndexError: There are no such frames.
          SourceError: They are damaged.
        """
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"frames {start} to {stop}, but {self._name} has {len(self)}")
        result = np.empty((stop - start, *self.info.shape), self.info.dtype)
        if start < stop:
            with source_errors(self._name):
                for number, frame in self._decoded(start, stop):
                    self._convert(frame, result[number - start])
        return result

    def _decoded(self, start: int, stop: int) -> Iterator[tuple[int, Any]]:
        """Yields the numbers of frames, in order, and the frames."""
        first, end = self._packets.range_of(start, stop)
        goes_on = start in (0, self._next)
        if not (first < self._packet and self._next <= start and not self._is_drained):
            self._seek(first)
        while self._next < stop:
            while not self._ready:
                self._feed(drain=not goes_on and self._packet >= end)
            frame = self._ready.popleft()
            number = self._numbers.get(frame.pts, -1)
            if number < self._next:  # It is shown before the keyframe.
                continue
            if number > max(self._next, start):
                raise SourceError("cannot be decoded", file=self._name, row=max(self._next, start))
            self._next = number + 1
            if number < start:
                continue
            if frame.is_corrupt or (frame.height, frame.width) != self.info.shape[:2]:
                raise SourceError("damaged", file=self._name, row=number)
            yield number, frame

    def _feed(self, *, drain: bool) -> None:
        """Puts a packet into the decoder, and takes the frames that it has ready."""
        packet = None if drain else next(self._source, None)
        if packet is None and self._is_drained:
            raise SourceError("cannot be decoded", file=self._name, row=self._next)
        self._is_drained = packet is None
        self._packet += 1
        self._ready.extend(self._stream.decode(packet))

    def _seek(self, packet: int) -> None:
        """Goes to a keyframe."""
        wanted = self._packets.dts[packet]
        self._begin_anew(packet)
        self._stream.codec_context.flush_buffers()
        for target in (wanted, self._packets.dts[0]):
            self._container.seek(int(target), stream=self._stream, backward=True)
            self._source = demuxed(self._container, self._stream)
            for found in self._source:
                if found.dts >= wanted:
                    break
            if found.dts == wanted:
                break
        self._next = int(np.searchsorted(self._times, self._packets.pts[packet]))
        self._source = itertools.chain([found], self._source)

    def _begin_anew(self, packet: int) -> None:
        self._packet, self._next = packet, len(self._times)
        self._ready = collections.deque()
        self._is_drained = False

    def _convert(self, frame: Any, pixels: np.ndarray) -> None:
        """Writes the pixels of a frame to where they belong."""
        height, width, channels = pixels.shape
        if channels == 3:
            frame = self._reformatter.reformat(frame, format="rgb24")
        plane = frame.planes[0]
        rows = np.frombuffer(plane, pixels.dtype).reshape(height, -1)
        pixels[...] = rows[:, : width * channels].reshape(pixels.shape)
