"""Clips of video files: cutting and joining mp4 packets without decoding.

    video = VideoFile("episodes.mp4")
    clips = [video.clip(0, 120), video.clip(120, 300)]
    join_clips(clips, "again.mp4")

A clip is a separate mp4 file with unchanged packets. A clip begins with a keyframe and ends with
the last required packet. A clip may have further frames before and after the requested frames.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import google_crc32c
import numpy as np

from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.video.packets import Packets, VideoInfo, info_of, open_video, read_packets, video_errors
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.stores import PathLike, open_binary

__all__ = [
    "Clip",
    "Span",
    "UnlikeClipError",
    "VideoFile",
    "VideoWriter",
    "cut_clip",
    "join_clips",
    "mux_options",
    "packets_of",
    "span_of",
    "split_clip",
    "whole_clip",
]

# Muxes the packets of a span into a file: takes the shift of times and the last decoding time so
# far; returns the new last decoding time.
_Mux: TypeAlias = "Callable[[Span, int, int], int]"
_LEAST_DTS = -(1 << 62)


class UnlikeClipError(SourceError):
    """A clip cannot be joined with the clips before it; see `VideoInfo.can_follow`."""


@dataclasses.dataclass(frozen=True)
class Clip:
    """Consecutive frames of a video, as an mp4 file.

    Attributes:
      data: The bytes of the file.
      first: The number of frames before the requested frames.
      num_frames: The number of requested frames; None for all frames from the first.
      name: The name of the clip in errors.
    """

    data: bytes = dataclasses.field(repr=False)
    first: int = 0
    num_frames: int | None = None
    name: str = dataclasses.field(default="clip", compare=False)

    @functools.cached_property
    def video(self) -> VideoFile:
        """The mp4 file of the clip, whose index is cached."""
        return VideoFile(self.data, self.name)

    @property
    def span(self) -> Span:
        """The packets that the frames of the clip need.

        Raises:
          SourceError: The clip is damaged, or has too few frames.
        """
        span = self.video.span(self.first, self.first + _check_frames(self))
        return span._replace(is_file=True)


class Span(NamedTuple):
    """Consecutive frames of a video file, by the range of their packets; see `VideoFile.span`.

    Attributes:
      video: The file.
      packets: The range of packets of the frames, in the order of the file.
      first: The packet of the first frame.
      is_file: True if the file is a clip of these frames only.
    """

    video: VideoFile
    packets: range
    first: int
    is_file: bool = False

    @property
    def rows(self) -> slice:
        """The packets, as rows of `VideoFile.index`."""
        return slice(self.packets.start, self.packets.stop)

    @property
    def size(self) -> int:
        """The size of the packets, in bytes."""
        return int(self.video.index()[1].size[self.rows].sum())

    @property
    def seconds(self) -> float:
        """The duration of the packets, in seconds."""
        info, packets = self.video.index()
        end_times = packets.pts[self.rows] + packets.duration[self.rows]
        return float(int(end_times.max() - packets.pts[self.rows].min()) * info.time_base)

    @property
    def is_complete(self) -> bool:
        """True if the packets are all packets of the file."""
        _, all_packets = self.video.index()
        return len(self.packets) == len(all_packets) and not all_packets.fault

    def copy_file(self, path: str | os.PathLike[str]) -> float:
        """Copies the video file; returns the time of the first frame, in seconds."""
        with open(path, "wb") as file:
            self.video.copy_to(file)
        info, packets = self.video.index()
        return float(int(packets.pts[self.first]) * info.time_base)

    def digest(self) -> int:
        """Returns a CRC-32C of the packets and their display times relative to the first frame.

        It does not depend on the file.

        Raises:
          SourceError: The file cannot be read.
        """
        _, packets = self.video.index()
        rows = self.rows
        times = (packets.pts[rows] - packets.pts[self.first]) * float(self.video.info.time_base)
        crc = google_crc32c.value(np.round(times * 1e6).astype("<i8").tobytes())
        crc = google_crc32c.extend(crc, packets.size[rows].astype("<i8").tobytes())
        for data, _ in self.video.runs(self.packets):
            crc = google_crc32c.extend(crc, data)
        return int(crc)


class VideoFile:
    """A video file: mp4 or mov. The first video stream is read, packet by packet.

    Memory: one clip, and about 50 bytes for each packet of the file. Files do not stay open. The
    complete frames of a truncated file can be read.

    Args:
      video: The path, local or in an object store; or the bytes.
      name: The name of the file in errors.

    Attributes:
      name: See above.

    Raises:
      SourceError: The file is not an mp4 or mov file, or is damaged; all methods may raise this.
    """

    def __init__(self, video: PathLike | bytes, name: str | None = None) -> None:
        self._video: str | bytes = video if isinstance(video, bytes) else os.fspath(video)
        self.name: str = name or ("video" if isinstance(video, bytes) else os.fspath(video))
        self._index: tuple[VideoInfo, Packets] | None = None

    @property
    def info(self) -> VideoInfo:
        """The properties of the video."""
        return self.index()[0]

    @functools.cached_property
    def times(self) -> np.ndarray:
        """The time of each frame, in seconds: float64."""
        info, packets = self.index()
        times: np.ndarray = packets.pts[packets.frames] * float(info.time_base)
        return times

    @property
    def fault(self) -> str:
        """The reason why frames are missing at the end; empty if the file is complete."""
        return self.index()[1].fault

    def clip(self, begin: int, end: int) -> Clip:
        """Returns the frames from `begin` to before `end`.

        If they take all packets, the clip is a copy of the file, including its audio.

        Raises:
          SourceError: There are no such frames.
        """
        _, packets = self.index()
        span = self.span(begin, end)
        if span.is_complete:
            with self._open() as file:
                return Clip(file.read(), begin, end - begin)
        output = io.BytesIO()
        with _new_file(output, self) as mux:
            mux(span, -int(packets.pts[span.rows].min()), _LEAST_DTS)
        is_before = packets.pts[span.rows] < packets.pts[span.first]
        return Clip(output.getvalue(), int(is_before.sum()), end - begin)

    def span(self, begin: int, end: int) -> Span:
        """Returns the packets of the frames from `begin` to before `end`.

        Raises:
          SourceError: There are no such frames.
        """
        _, packets = self.index()
        total = len(packets.frames)
        if not 0 <= begin < end <= total:
            why = f" ({packets.fault})" if packets.fault else ""
            raise SourceError(
                f"needs frames {begin} to {end}, but the video has {total}{why}", file=self.name
            )
        with source_errors(self.name):
            return Span(self, range(*packets.range_of(begin, end)), int(packets.frames[begin]))

    def packets(self, begin: int, end: int) -> list[bytes]:
        """Returns the packets of the frames from `begin` to before `end`.

        Raises:
          SourceError: There are no such frames.
        """
        return list(self.payloads(self.span(begin, end).packets))

    def payloads(self, packets: range) -> Iterator[bytes]:
        """Yields the bytes of consecutive packets, by index; see `runs`."""
        for data, sizes in self.runs(packets):
            begin = 0
            for size in sizes:
                yield data[begin : begin + size]
                begin += size

    def runs(self, packets: range) -> Iterator[tuple[bytes, list[int]]]:
        """Yields consecutive packets: contiguous bytes in the file, and the size of each.

        Raises:
          SourceError: Packets are missing, as the file has changed.
        """
        _, all_packets = self.index()
        rows = slice(packets.start, packets.stop)
        pos, size = all_packets.pos[rows], all_packets.size[rows]
        run_starts = np.flatnonzero(np.append(True, pos[1:] != pos[:-1] + size[:-1])).tolist()
        with source_errors(self.name), self._open() as file:
            for begin, end in zip(run_starts, [*run_starts[1:], len(pos)]):
                sizes = size[begin:end].tolist()
                file.seek(int(pos[begin]))
                data = file.read(sum(sizes))
                if len(data) < sum(sizes):
                    raise SourceError(
                        "packets are missing: the file has changed; open it again", file=self.name
                    )
                yield data, sizes

    @property
    def size(self) -> int:
        """The number of bytes of all packets."""
        return int(self.index()[1].size.sum())

    def copy_to(self, target: BinaryIO) -> None:
        """Writes the bytes of the video file."""
        with source_errors(self.name), self._open() as file:
            shutil.copyfileobj(file, target)

    def _open(self) -> BinaryIO:
        video = self._video
        return io.BytesIO(video) if isinstance(video, bytes) else open_binary(video)

    def index(self) -> tuple[VideoInfo, Packets]:
        """Returns the properties and the packets of the video; read once."""
        if self._index is None:
            with open_video(self._video, self.name) as (container, stream, size, tables):
                packets = read_packets(container, stream, size, tables)
                self._index = info_of(container, stream, len(packets.frames)), packets
        return self._index

    @contextlib.contextmanager
    def stream(self) -> Iterator[Any]:
        """Yields the video stream of PyAV."""
        with open_video(self._video, self.name) as (_, stream, *_):
            yield stream


def cut_clip(clip: Clip, begin: int, end: int) -> Clip:
    """Cuts a clip to some of its frames, without decoding.

    The result begins with the keyframe of the first frame, so `first` may be more than 0.

    Args:
      clip: The clip.
      begin: The first frame to keep, counted from the first requested frame (step 0).
      end: The frame after the last one to keep.

    Raises:
      SourceError: The clip is damaged, or has no such frames.
      ValueError: `begin` and `end` are not a range of the requested frames.
    """
    num_frames = _check_frames(clip)
    if not 0 <= begin < end <= num_frames:
        raise ValueError(f"begin, end: got {begin}, {end}, expected a range of {num_frames} frames")
    return clip.video.clip(clip.first + begin, clip.first + end)


def split_clip(clip: Clip, num_frames: int) -> tuple[Clip, Clip | None]:
    """Splits a clip into its first requested frames and all later frames, without decoding.

    The second clip begins with the keyframe of its first frame. If there is no later frame, if the
    first frames depend on later ones, or if the clip has audio, returns the clip and None.

    Args:
      clip: The clip.
      num_frames: The number of frames of the first clip.

    Raises:
      SourceError: The clip is damaged, or has fewer frames.
    """
    video, middle = clip.video, clip.first + num_frames
    if video.info.num_frames <= middle or video.info.has_audio:
        return clip, None
    head = dataclasses.replace(video.clip(clip.first, middle), name=clip.name)
    if head.video.info.num_frames > head.first + num_frames:
        return clip, None
    return head, video.clip(middle, video.info.num_frames)


def whole_clip(head: bytes, tail: Clip) -> bytes:
    """Joins the two clips of `split_clip`; returns the bytes of the file.

    Raises:
      SourceError: A clip is damaged, or the clips do not belong together.
    """
    video, file = VideoFile(head, "clip"), io.BytesIO()
    num_frames = video.info.num_frames - tail.first  # The tail repeats frames from its keyframe on.
    with VideoWriter(file) as writer:
        if num_frames:
            writer.add(video.span(0, num_frames))
        writer.add(tail)
    return file.getvalue()


def packets_of(clip: Clip) -> list[bytes]:
    """Returns the packets of the requested frames of a clip, in the order of the file.

    Cutting and joining do not change them.

    Raises:
      SourceError: The clip is damaged, or has too few frames.
    """
    return [*clip.video.payloads(clip.span.packets)]


def join_clips(clips: Sequence[Clip], path: str | os.PathLike[str]) -> list[float]:
    """Joins clips to one mp4 file, see `VideoWriter`. A single clip is copied unchanged.

    Args:
      clips: The clips, in order.
      path: The local file to write.

    Returns:
      The time of the first requested frame of each clip, in seconds.

    Raises:
      SourceError: See `VideoWriter.add`.
    """
    if len(clips) == 1:
        return [span_of(clips[0]).copy_file(path)]
    with VideoWriter(path) as writer:
        named = (dataclasses.replace(clip, name=f"clip {n}") for n, clip in enumerate(clips))
        return [writer.add(clip) for clip in named]


class VideoWriter:
    """Joins clips to one mp4 file without decoding; a context manager.

    The packets do not change, and the clips follow each other in time. If the clips are one
    complete file, it is copied.

    Args:
      path: The local file to write; or a buffer.
    """

    def __init__(self, path: str | os.PathLike[str] | io.BytesIO) -> None:
        self._stack = contextlib.ExitStack()
        self._file: BinaryIO
        if isinstance(path, io.BytesIO):
            self._file = path
        else:
            self._file = self._stack.enter_context(open(path, "wb"))  # noqa: SIM115
        self._first_info: VideoInfo | None = None
        self._mux: _Mux | None = None
        self._end_time, self._last_dts = 0, _LEAST_DTS  # Times in units of the time base.
        self._pending: Span | None = None  # Unwritten packets from the start of a file.

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Completes the file."""
        with self._stack:
            if self._pending is not None and self._pending.is_complete:
                self._pending.video.copy_to(self._file)
            else:
                self._write_pending()

    def add(self, frames: Clip | Span) -> float:
        """Adds a clip, or frames of a file; returns the time of its first frame in seconds.

        Raises:
          UnlikeClipError: The clip has another codec, size, time base or decoder configuration
            than the first one. The writer does not change.
          SourceError: The clip is damaged.
        """
        span = span_of(frames)
        info, packets = span.video.index()
        if self._first_info is None:
            self._first_info = info
        elif not info.can_follow(self._first_info):
            raise UnlikeClipError(
                f"{info}, expected {self._first_info}, as in the first clip: one file cannot hold "
                "both, or their decoders are configured differently",
                file=span.video.name,
            )
        pts, duration = packets.pts[span.rows], packets.duration[span.rows]
        shift = self._end_time - int(pts.min())
        pending = self._pending or span._replace(packets=range(0))
        is_next = pending.video is span.video and pending.packets.stop == span.packets.start
        if is_next and not shift and self._mux is None:
            self._pending = pending._replace(packets=range(span.packets.stop))
        else:
            self._write_pending()
            self._write(span, shift)
        self._end_time = int((pts + duration).max()) + shift
        return float((int(packets.pts[span.first]) + shift) * info.time_base)

    def _write_pending(self) -> None:
        span, self._pending = self._pending, None
        if span is not None:
            self._write(span, 0)

    def _write(self, span: Span, shift: int) -> None:
        if self._mux is None:
            self._mux = self._stack.enter_context(_new_file(self._file, span.video))
        self._last_dts = self._mux(span, shift, self._last_dts)


def span_of(frames: Clip | Span) -> Span:
    """Returns the span of all packets of a clip.

    Raises:
      SourceError: The clip is damaged, or has too few frames.
    """
    if isinstance(frames, Span):
        return frames
    _check_frames(frames)
    _, packets = frames.video.index()
    return Span(frames.video, range(len(packets)), int(packets.frames[frames.first]), is_file=True)


def _check_frames(clip: Clip) -> int:
    """Checks that the file of a clip has its frames; returns their number.

    Raises:
      SourceError: The clip is damaged, or has too few frames.
    """
    video, num_frames = clip.video, clip.video.info.num_frames
    end = num_frames if clip.num_frames is None else clip.first + clip.num_frames
    if video.fault:
        raise SourceError(video.fault, file=video.name)
    if not 0 <= clip.first < end <= num_frames:
        raise SourceError(
            f"needs frames {clip.first} to {end}, but the video has {num_frames}", file=video.name
        )
    return end - clip.first


def mux_options(time_base: Fraction) -> dict[str, str]:
    """Returns FFmpeg options for reproducible mp4 files, which depend on packets only.

    Args:
      time_base: The unit of time stamps, in seconds.
    """
    # A bit rate (btrt) would be copied from the file of the first packets.
    scale = str(time_base.denominator)
    return {"fflags": "+bitexact", "video_track_timescale": scale, "write_btrt": "0"}


@contextlib.contextmanager
def _new_file(file: BinaryIO, template_file: VideoFile) -> Iterator[_Mux]:
    """Yields the muxer of a new mp4 file.

    Args:
      file: The file.
      template_file: A video file with the stream parameters of the new file.
    """
    av = import_extra("av")
    with contextlib.ExitStack() as stack:
        with template_file.stream() as template:
            base = Fraction(template.time_base)
            options = mux_options(base)
            container = stack.enter_context(av.open(file, "w", format="mp4", options=options))
            stream = container.add_stream_from_template(template, opaque=True)
        container.start_encoding()
        assert stream.time_base == base  # Setting the time base on each packet is slow.

        def mux(span: Span, shift: int, last_dts: int) -> int:
            _, packets = span.video.index()
            times = (packets.pts[span.rows] + shift, packets.dts[span.rows] + shift)
            flags = (packets.duration[span.rows], packets.is_key[span.rows])
            columns = [column.tolist() for column in (*times, *flags)]
            with video_errors(span.video.name):
                for data, pts, dts, duration, is_key in zip(
                    span.video.payloads(span.packets), *columns
                ):
                    packet = av.Packet(data)
                    packet.stream = stream
                    last_dts = max(dts, last_dts + 1)  # Clips may reorder fewer frames.
                    packet.pts, packet.dts = pts, last_dts
                    packet.duration, packet.is_keyframe = duration, is_key
                    container.mux(packet)
            return last_dts

        yield mux
