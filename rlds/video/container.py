"""Video files cut into clips and joined again, without decoding.

    with VideoFile("episodes.mp4") as video:
        clips = [video.clip(0, 120), video.clip(120, 300)]
    join_clips(clips, "again.mp4")

A clip is an mp4 file of its own, with untouched packets. It begins with a keyframe, so there may be
frames before the first one that was asked for; and it ends with the last packet that is needed, so
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
    video_errors,
)
from rlds_ecosystem import import_extra
from rlds_ecosystem.stores import PathLike

__all__ = ["Clip", "JoinedClip", "VideoFile", "join_clips"]


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


class JoinedClip(NamedTuple):
    """Where the frames of a clip are in a file of several.

    Attributes:
      begin: The index of the first wanted frame.
      end: The index after the last one.
      begin_time: When the first one is shown, in seconds.
    """

    begin: int
    end: int
    begin_time: float


class VideoFile:
    """A video file: mp4 or mov. Its first video stream is read, packet by packet.

    As a context manager it keeps the file open; otherwise each call opens it. What is in memory at
    a time is one clip, and some 50 bytes for each packet of the file.

    If the file was cut, its frames up to there can be read.

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
        self._stack = contextlib.ExitStack()
        self._opened: tuple[Any, Any, BinaryIO] | None = None
        self._index: tuple[VideoInfo, Packets] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stack": contextlib.ExitStack(), "_opened": None}

    def __enter__(self) -> VideoFile:
        self._opened = self._stack.enter_context(open_video(self._video, self.name))
        return self

    def __exit__(self, *error: object) -> None:
        self._opened = None
        self._stack.close()

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[Any, Any, BinaryIO]]:
        with video_errors(self.name):
            if self._opened is not None:
                yield self._opened
                return
            with open_video(self._video, self.name) as opened:
                yield opened

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return len(self._video) if isinstance(self._video, bytes) else size_of(self._video)

    @property
    def info(self) -> VideoInfo:
        """What the file says of the video."""
        return self._indexed()[0]

    @property
    def times(self) -> np.ndarray:
        """When each frame is shown, in seconds: float64."""
        info, packets = self._indexed()
        times: np.ndarray = packets.pts[packets.frames] * float(info.time_base)
        return times

    @property
    def fault(self) -> str:
        """Why the frames end before the file says; empty if they do not."""
        return self._indexed()[1].fault

    def clip(self, begin: int, end: int) -> Clip:
        """Returns the frames from `begin` to before `end`.

        If that takes all packets, it is the whole file as it is: with its sound, for example.

        Raises:
          SourceError: There are no such frames.
        """
        _, packets = self._indexed()
        start, stop = self._range_of(begin, end)
        with self._open() as (container, stream, file):
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

    def _range_of(self, begin: int, end: int) -> tuple[int, int]:
        _, packets = self._indexed()
        number = len(packets.frames)
        if not 0 <= begin < end <= number:
            why = f" ({packets.fault})" if packets.fault else ""
            raise SourceError(
                f"frames {begin} to {end} are wanted, but there are {number}{why}", file=self.name
            )
        with source_errors(self.name):
            return packets.range_of(begin, end)

    def _indexed(self) -> tuple[VideoInfo, Packets]:
        if self._index is None:
            with self._open() as (container, stream, _):
                if self._opened is not None:
                    container.seek(0)
                packets = read_packets(container, stream, self.size)
                self._index = info_of(container, stream, len(packets.frames)), packets
        return self._index

    def _packets(self, container: Any, stream: Any, start: int, stop: int) -> Iterator[Any]:
        """Yields consecutive packets."""
        _, packets = self._indexed()
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


def join_clips(clips: Sequence[Clip | bytes], path: str | os.PathLike[str]) -> list[JoinedClip]:
    """Makes one mp4 file of clips, without decoding.

    The packets are the same, and the clips follow each other in time. A single clip stays the file
    that it is.

    Args:
      clips: The clips, in order. They are read one at a time.
      path: The file to write, on this machine.

    Returns:
      Where the frames of each clip are.

    Raises:
      SourceError: A clip is damaged, or has another codec, size or configuration of the decoder
        than the first one: one file cannot hold both, see `VideoInfo.can_follow`.
    """
    places = _copy(clips[0], path) if len(clips) == 1 else _append(clips, path)
    joined = VideoFile(path)
    info, packets = joined._indexed()
    frame_of = {int(packet): frame for frame, packet in enumerate(packets.frames)}
    return [
        JoinedClip(
            frame_of[begin], frame_of[last] + 1, float(int(packets.pts[begin]) * info.time_base)
        )
        for begin, last in places
    ]


def _copy(clip: Clip | bytes, path: str | os.PathLike[str]) -> list[tuple[int, int]]:
    [(found, video, _)] = _each([clip])
    with open(path, "wb") as file:
        file.write(found.data)
    return [_place(found, video, 0)]


def _append(clips: Sequence[Clip | bytes], path: str | os.PathLike[str]) -> list[tuple[int, int]]:
    """Makes a new file; returns the packets with the first and the last frame of each clip."""
    places: list[tuple[int, int]] = []
    number, now, last = 0, Fraction(0), None
    first: VideoInfo | None = None
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "wb"))
        for clip, video, (container, stream, _) in _each(clips):
            info, packets = video._indexed()
            if first is None:
                first, mux = info, stack.enter_context(_new_file(file, stream))
            elif not info.can_follow(first):
                raise SourceError(
                    f"{info}, expected {first}, as in the first clip: one file cannot hold both, "
                    "or their decoders are configured differently",
                    file=video.name,
                )
            places.append(_place(clip, video, number))
            base, origin = info.time_base, int(packets.pts.min())
            shift = round(now / base) - origin
            for packet in demuxed(container, stream):
                packet.pts += shift
                packet.dts += shift
                if last is not None and packet.dts * base <= last:  # It had less to reorder.
                    packet.dts = int(last // base) + 1
                last = packet.dts * base
                mux(packet)
            number += len(packets)
            now += (int((packets.pts + packets.duration).max()) - origin) * base
    return places


def _each(
    clips: Sequence[Clip | bytes],
) -> Iterator[tuple[Clip, VideoFile, tuple[Any, Any, BinaryIO]]]:
    """Yields the clips, opened and checked."""
    for number, clip in enumerate(clips):
        clip = clip if isinstance(clip, Clip) else Clip(clip)
        with VideoFile(clip.data, f"clip {number}") as video, video._open() as opened:
            if video.fault:
                raise SourceError(video.fault, file=video.name)
            opened[0].seek(0)
            yield clip, video, opened


def _place(clip: Clip, video: VideoFile, number: int) -> tuple[int, int]:
    """The packets of the first and the last wanted frame, if those of the clip begin at a number.

    Raises:
      SourceError: There are no such frames.
    """
    _, packets = video._indexed()
    end = len(packets.frames) if clip.num_frames is None else clip.first + clip.num_frames
    if not 0 <= clip.first < end <= len(packets.frames):
        raise SourceError(
            f"frames {clip.first} to {end} are wanted, but there are {len(packets.frames)}",
            file=video.name,
        )
    return number + int(packets.frames[clip.first]), number + int(packets.frames[end - 1])


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
