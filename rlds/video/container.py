"""Video files cut into clips and joined again, without decoding.

    video = VideoFile("episodes.mp4")
    clips = [video.clip(0, 120), video.clip(120, 300)]
    join_clips(clips, "again.mp4")

A clip is an mp4 file of its own, with untouched packets. It begins with a keyframe, so there may be
frames before the first one that was requested; and it ends with the last packet that is needed, so
there may be some after the last one.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.video.packets import (
    Packets,
    VideoInfo,
    demuxed,
    info_of,
    open_video,
    read_packets,
    size_of,
)
from rlds_ecosystem import import_extra
from rlds_ecosystem.stores import PathLike

__all__ = [
    "Clip",
    "UnlikeClipError",
    "VideoFile",
    "VideoWriter",
    "cut_clip",
    "join_clips",
    "packets_of",
]


class UnlikeClipError(SourceError):
    """A clip cannot be in one file with those before it; see `VideoInfo.can_follow`."""


class Clip(NamedTuple):
    """Some consecutive frames of a video, as a file.

    Attributes:
      data: The file.
      first: How many of its frames come before the wanted ones.
      num_frames: How many frames are wanted; None for all after the first.
    """

    data: bytes
    first: int = 0
    num_frames: int | None = None


class VideoFile:
    """A video file: mp4 or mov. Its first video stream is read, packet by packet.

    What is in memory at a time is one clip, and some 50 bytes for each packet of the file. Nothing
    stays open. If the file was cut, its frames up to there can be read.

    Args:
      video: The path, here or in a store; or the bytes.
      name: What to call it in errors.

    Attributes:
      name: See above.

    Raises:
      SourceError: It is no such file, or damaged. So do all methods.
    """

    def __init__(self, video: PathLike | bytes, name: str | None = None) -> None:
        self._video: str | bytes = video if isinstance(video, bytes) else os.fspath(video)
        self.name: str = name or ("video" if isinstance(video, bytes) else os.fspath(video))
        self._index: tuple[VideoInfo, Packets] | None = None

    @property
    def info(self) -> VideoInfo:
        """What the file says of the video."""
        return self.index()[0]

    @property
    def times(self) -> np.ndarray:
        """When each frame is shown, in seconds: float64."""
        info, packets = self.index()
        times: np.ndarray = packets.pts[packets.frames] * float(info.time_base)
        return times

    @property
    def fault(self) -> str:
        """Why the frames end before the file says; empty if they do not."""
        return self.index()[1].fault

    def clip(self, begin: int, end: int) -> Clip:
        """Returns the frames from `begin` to before `end`.

        If that takes all packets, it is the whole file as it is: with its sound, for example.

        Raises:
          SourceError: There are no such frames.
        """
        _, packets = self.index()
        start, stop = self._range_of(begin, end)
        with open_video(self._video, self.name) as (container, stream, file):
            if stop - start == len(packets) and not packets.fault:
                file.seek(0)
                return Clip(file.read(), begin, end - begin)
            output = io.BytesIO()
            origin = int(packets.pts[start:stop].min())
            with _new_file(output, stream) as mux:
                for packet in self._packets(container, stream, start, stop):
                    packet.pts -= origin
                    packet.dts -= origin
                    mux(packet)
            before = packets.pts[start:stop] < packets.pts[packets.frames[begin]]
            return Clip(output.getvalue(), int(before.sum()), end - begin)

    def packets(self, begin: int, end: int) -> list[bytes]:
        """Returns the packets that the frames from `begin` to before `end` are made of.

        Raises:
          SourceError: There are no such frames.
        """
        start, stop = self._range_of(begin, end)
        _, known = self.index()
        if isinstance(self._video, bytes) and (known.pos[start:stop] >= 0).all():
            places = zip(known.pos[start:stop].tolist(), known.size[start:stop].tolist())
            return [self._video[place : place + size] for place, size in places]
        with open_video(self._video, self.name) as (container, stream, _):
            return [bytes(packet) for packet in self._packets(container, stream, start, stop)]

    def _range_of(self, begin: int, end: int) -> tuple[int, int]:
        _, packets = self.index()
        number = len(packets.frames)
        if not 0 <= begin < end <= number:
            why = f" ({packets.fault})" if packets.fault else ""
            raise SourceError(
                f"frames {begin} to {end} are wanted, but there are {number}{why}", file=self.name
            )
        with source_errors(self.name):
            return packets.range_of(begin, end)

    def index(self) -> tuple[VideoInfo, Packets]:
        """Returns what the file says of the video, and where its packets are; read once."""
        if self._index is None:
            with open_video(self._video, self.name) as (container, stream, _):
                self._index = self._read_index(container, stream)
        return self._index

    def _read_index(
        self, container: Any, stream: Any, held: list[Any] | None = None
    ) -> tuple[VideoInfo, Packets]:
        size = len(self._video) if isinstance(self._video, bytes) else size_of(self._video)
        packets = read_packets(container, stream, size, held)
        self._index = info_of(container, stream, len(packets.frames)), packets
        return self._index

    def _packets(self, container: Any, stream: Any, start: int, stop: int) -> Iterator[Any]:
        """Yields consecutive packets."""
        _, packets = self.index()
        wanted = int(packets.dts[start])
        for target in (wanted, int(packets.dts[0])):
            container.seek(target, stream=stream, backward=True)
            found = (packet for packet in demuxed(container, stream) if packet.dts >= wanted)
            packet = next(found, None)
            if packet is not None and packet.dts == wanted:
                break
        for number in range(start, stop):
            if packet is None or (packet.dts, packet.size) != (
                packets.dts[number],
                packets.size[number],
            ):
                raise SourceError(
                    f"packet {number} is not what it was: the file changed", file=self.name
                )
            yield packet
            packet = next(found, None) if number + 1 < stop else None


def cut_clip(clip: Clip, begin: int, end: int) -> Clip:
    """Returns some of the wanted frames of a clip, as a clip of their packets; none is decoded.

    It begins with the keyframe that the first of them needs, so `first` may be more than 0.

    Args:
      clip: The clip.
      begin: The first frame to keep, counted from the first wanted one: a step of the episode.
      end: The frame after the last one to keep.

    Raises:
      SourceError: The clip is damaged, or has no such frames.
      ValueError: `begin` and `end` are no range of the wanted frames.
    """
    video = VideoFile(clip.data, "clip")
    number = _check_frames(clip, video)
    if not 0 <= begin < end <= number:
        raise ValueError(f"begin, end: got {begin}, {end}, expected a range of {number} frames")
    return video.clip(clip.first + begin, clip.first + end)


def packets_of(clip: Clip) -> list[bytes]:
    """Returns the packets that the wanted frames of a clip are made of, in the order of the file.

    They are the same in whichever file the frames are, unless they were encoded again.

    Raises:
      SourceError: It is damaged, or has no such frames.
    """
    video = VideoFile(clip.data, "clip")
    number = _check_frames(clip, video)
    return video.packets(clip.first, clip.first + number)


def join_clips(clips: Sequence[Clip], path: str | os.PathLike[str]) -> list[float]:
    """Makes one mp4 file of clips, see `VideoWriter`. A single clip stays the file that it is.

    Args:
      clips: The clips, in order.
      path: The file to write, on this machine.

    Returns:
      When the first wanted frame of each clip is shown, in seconds.

    Raises:
      SourceError: See `VideoWriter.add`.
    """
    if len(clips) == 1:
        [clip] = clips
        video = VideoFile(clip.data, "clip 0")
        _check_frames(clip, video)
        with open(path, "wb") as file:
            file.write(clip.data)
        return [float(video.times[clip.first])]
    with VideoWriter(path) as writer:
        return [writer.add(clip) for clip in clips]


class VideoWriter:
    """Makes one mp4 file of clips, without decoding. It is a context manager, or closed.

    The packets are the same, and the clips follow each other in time.

    Args:
      path: The file to write, on this machine.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(open(path, "wb"))  # noqa: SIM115
        self._first: VideoInfo | None = None
        self._mux: Callable[[Any], None] = lambda packet: None
        self._num_clips = 0
        self._end, self._last = Fraction(0), Fraction(-(1 << 62))

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Completes the file."""
        self._stack.close()

    def add(self, clip: Clip) -> float:
        """Adds a clip; returns when the first of its wanted frames is shown, in seconds.

        Raises:
          UnlikeClipError: It has another codec, size, time base or configuration of the decoder
            than the first one: one file cannot hold both. The writer is as it was before.
          SourceError: It is damaged.
        """
        video = VideoFile(clip.data, f"clip {self._num_clips}")
        held: list[Any] = []
        with open_video(clip.data, video.name) as (container, stream, _):
            info, packets = video._read_index(container, stream, held)
            _check_frames(clip, video)
            base, origin = info.time_base, int(packets.pts.min())
            shift = round(self._end / base) - origin
            last = round(self._last / base)
            if self._first is None:
                self._first = info
                self._mux = self._stack.enter_context(_new_file(self._file, stream))
            elif not info.can_follow(self._first):
                raise UnlikeClipError(
                    f"{info}, expected {self._first}, as in the first clip: one file cannot hold "
                    "both, or their decoders are configured differently",
                    file=video.name,
                )
            for packet in held:
                packet.pts += shift
                packet.dts = max(packet.dts + shift, last + 1)  # It may have less to reorder.
                last = packet.dts
                self._mux(packet)
            self._last = last * base
        self._num_clips += 1
        self._end += (int((packets.pts + packets.duration).max()) - origin) * base
        return float((int(packets.pts[packets.frames[clip.first]]) + shift) * base)


def _check_frames(clip: Clip, video: VideoFile) -> int:
    """Checks that the file of a clip has the frames that are wanted; returns how many.

    Raises:
      SourceError: It has not, or is damaged.
    """
    number = video.info.num_frames
    end = number if clip.num_frames is None else clip.first + clip.num_frames
    if video.fault:
        raise SourceError(video.fault, file=video.name)
    if not 0 <= clip.first < end <= number:
        raise SourceError(
            f"frames {clip.first} to {end} are wanted, but there are {number}", file=video.name
        )
    return end - clip.first


@contextlib.contextmanager
def _new_file(file: BinaryIO, template: Any) -> Iterator[Callable[[Any], None]]:
    """Yields what puts packets into a new mp4 file.

    Args:
      file: The file.
      template: A stream of the kind that it has.
    """
    base = Fraction(template.time_base)
    options = {"fflags": "+bitexact", "video_track_timescale": str(base.denominator)}
    with import_extra("av").open(file, "w", format="mp4", options=options) as container:
        stream = container.add_stream_from_template(template, opaque=True)

        def mux(packet: Any) -> None:
            packet.stream = stream
            container.mux(packet)

        yield mux
