"""The packet index of a video file: offsets, time stamps and properties."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np

from rlds.raw_files.untrusted import SourceError, check_is_file, source_errors
from rlds.video.boxes import PacketTables, read_tables
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.stores import as_path, open_binary

__all__ = ["Packets", "VideoInfo", "info_of", "open_video", "read_packets", "video_errors"]

_MAX_PIXELS = 1 << 26
# Flags of the entries of FFmpeg's packet index.
_KEY_FLAG, _DISCARD_FLAG = 1, 2
_GRAY_BIT_DEPTHS = {"gray10le": 10, "gray12le": 12, "gray14le": 14, "gray16le": 16}


@dataclasses.dataclass(frozen=True)
class VideoInfo:
    """The properties of the first video stream of a file.

    Attributes:
      codec: The codec, by FFmpeg's name: "h264", "hevc", "av1".
      width: The width in pixels.
      height: The height in pixels.
      fps: The frames per second.
      pix_fmt: The format of the pixels, by FFmpeg's name.
      num_frames: The number of displayed frames.
      time_base: The unit of time stamps, in seconds.
      has_audio: True if the file has audio.
      profile: The profile of the codec, if it has one.
      decoder: The name of the decoder.
      extradata: The configuration of the decoder.
    """

    codec: str
    width: int
    height: int
    fps: Fraction
    pix_fmt: str
    num_frames: int
    time_base: Fraction
    has_audio: bool
    profile: str | None
    decoder: str
    extradata: bytes = dataclasses.field(repr=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a decoded frame; see `ClipReader`."""
        return self.height, self.width, 1 if self.pix_fmt in _GRAY_BIT_DEPTHS else 3

    @property
    def dtype(self) -> np.dtype:
        """The dtype of a decoded frame: uint16 for gray of more than 8 bits, else uint8."""
        return np.dtype(np.uint16 if self.pix_fmt in _GRAY_BIT_DEPTHS else np.uint8)

    def can_follow(self, other: VideoInfo) -> bool:
        """Returns True if one stream can hold the packets of both videos, with exact times."""
        ours, theirs = (
            (info.codec, info.width, info.height, info.pix_fmt, info.extradata, info.time_base)
            for info in (self, other)
        )
        return ours == theirs


@dataclasses.dataclass(frozen=True)
class Packets:
    """The packets of a video stream, in file order, which is decoding order.

    Attributes:
      pts: The presentation time of each packet, in units of `VideoInfo.time_base`.
      dts: The decoding time of each packet, in the same unit.
      pos: The offset of each packet in the file, in bytes.
      size: The size of each packet, in bytes.
      duration: The duration of each packet, in units of `VideoInfo.time_base`.
      is_key: True for keyframes, at which decoding can begin.
      frames: The packet of each frame, in the order of presentation.
      fault: The reason why packets are missing; empty if the file is complete.
    """

    pts: np.ndarray
    dts: np.ndarray
    pos: np.ndarray
    size: np.ndarray
    duration: np.ndarray
    is_key: np.ndarray
    frames: np.ndarray
    fault: str = ""

    def __len__(self) -> int:
        return len(self.pts)

    def range_of(self, begin: int, end: int) -> tuple[int, int]:
        """Returns the range of packets of consecutive frames.

        The range begins with a keyframe that is displayed before the first frame, so that no frame
        depends on earlier packets. The range ends with the last packet of the frames in decoding
        order; other packets of the range may be displayed later.
        """
        rows, keys = self.frames[begin:end], self._keys
        before = keys[: np.searchsorted(keys, rows.min(), "right")]
        shown = self.pts[self.frames[begin]]
        keyframe = next((key for key in before[::-1] if self.pts[key] <= shown), None)
        if keyframe is None:
            raise ValueError(f"no keyframe before frame {begin}")
        return int(keyframe), int(rows.max()) + 1

    @functools.cached_property
    def _keys(self) -> np.ndarray:
        return np.flatnonzero(self.is_key)


@contextlib.contextmanager
def video_errors(name: str) -> Iterator[None]:
    """Converts any error of a video to a `SourceError`, see `source_errors`.

    FFmpeg uses error codes of the operating system for damaged files, too. Errors of reading the
    file are raised as Python errors.
    """
    av = import_extra("av")
    with source_errors(name):
        try:
            yield
        except av.FFmpegError as error:
            fault = f"cannot be read: {type(error).__name__}: {error}"
            raise SourceError(fault, file=name) from error


@contextlib.contextmanager
def open_video(
    video: str | os.PathLike[str] | bytes, name: str
) -> Iterator[tuple[Any, Any, int, PacketTables]]:
    """Opens a video file.

    Args:
      video: The path or the bytes of the file.
      name: The name of the file in errors.

    Yields:
      PyAV's container and first video stream; the number of bytes; and the properties of the
      tables.

    Raises:
      SourceError: The file is not an mp4 or mov video, or is damaged.
    """
    av = import_extra("av")
    with contextlib.ExitStack() as stack:
        if isinstance(video, bytes):
            file: BinaryIO = io.BytesIO(video)
            size = len(video)
        else:
            check_is_file(video)
            file = stack.enter_context(open_binary(video))
            size = int(as_path(video).stat().length)
        stack.enter_context(video_errors(name))
        tables = read_tables(file, size, name)
        if tables.have_several_descriptions and not hasattr(av.Packet, "has_sidedata"):
            fault = "the video may switch streams, which needs PyAV 16: pip install -U av"
            raise SourceError(fault, file=name)
        file.seek(0)
        # The format is fixed: files of other formats could make FFmpeg open further files.
        container = stack.enter_context(av.open(file, format="mp4"))
        if not container.streams.video:
            raise SourceError("the file has no video", file=name)
        stream = container.streams.video[0]
        context = stream.codec_context
        if not 0 < context.width * context.height <= _MAX_PIXELS:
            raise SourceError(
                f"frames of {context.width} x {context.height} pixels, expected 1 to "
                f"{_MAX_PIXELS:,}",
                file=name,
            )
        yield container, stream, size, tables


def read_packets(container: Any, stream: Any, size: int, tables: PacketTables) -> Packets:
    """Returns the offsets, sizes and times of all packets.

    Args:
      container: The container.
      stream: The stream.
      size: The size of the file, in bytes.
      tables: The properties of the tables: if packets are in order, they are not read.

    Raises:
      ValueError: There are no packets, or a packet has no time stamp or offset.
    """
    result = _read_index(stream, size) if tables.are_in_order else None
    if result is None:
        result = _read_by_demuxing(container, stream, size, tables.have_several_descriptions)
    rows, fault = result
    if not len(rows):
        raise ValueError(fault or "no packets of video")
    if not fault and len(rows) < stream.frames:
        fault = f"the video was cut: {len(rows)} of {stream.frames} declared frames exist"
    pts, dts, pos, sizes, is_key, is_discard, duration = rows.T.copy()
    shown = np.flatnonzero(is_discard == 0)
    if fault:  # Missing packets may be displayed before existing ones.
        shown = shown[pts[shown] < dts[-1] + max(duration[-1], 1)]
    frames = shown[np.argsort(pts[shown], kind="stable")]
    return Packets(pts, dts, pos, sizes, duration, is_key.astype(bool), frames, fault)


def _read_index(stream: Any, size: int) -> tuple[np.ndarray, str] | None:
    """Reads packet rows from FFmpeg's index, and the fault at their end.

    Returns None without an index.
    """
    entries = [
        (entry.timestamp, entry.pos, entry.size, entry.flags)
        for entry in getattr(stream, "index_entries", ())
    ]
    if not entries or not stream.duration:
        return None
    times, offsets, sizes, flags = np.array(entries, np.int64).T
    durations = np.diff(np.append(times, times[0] + stream.duration)).clip(0)
    is_key, is_discard = flags & _KEY_FLAG, (flags & _DISCARD_FLAG) > 0
    rows = np.column_stack([times, times, offsets, sizes, is_key, is_discard, durations])
    is_inside = (offsets >= 0) & (offsets <= size) & (sizes > 0) & (sizes <= size - offsets)
    num_complete = len(rows) if is_inside.all() else int(np.argmin(is_inside))
    fault = _describe_incomplete(num_complete) if num_complete < len(rows) else ""
    return rows[:num_complete], fault


def _describe_incomplete(index: int) -> str:
    return f"the video was cut: packet {index} is incomplete"


def _read_by_demuxing(
    container: Any, stream: Any, size: int, has_several_descriptions: bool
) -> tuple[np.ndarray, str]:
    """Reads packet rows by demuxing the file, and the fault at their end."""
    av = import_extra("av")
    rows: list[tuple[int, ...]] = []
    fault = ""
    try:
        for packet in container.demux(stream):
            if not packet.size:  # The last packet is an empty flush packet.
                continue
            if packet.is_corrupt or (packet.pos or 0) + packet.size > size:
                fault = _describe_incomplete(len(rows))
                break
            if packet.pts is None or packet.dts is None or packet.pos is None:
                raise ValueError(f"packet {len(rows)} has no time stamp or no position in the file")
            # The check is slow, so it runs only for files with several descriptions.
            if has_several_descriptions and rows and packet.has_sidedata("new_extradata"):
                raise ValueError(f"packet {len(rows)} begins another stream, which cannot be cut")
            rows.append(
                (
                    *(packet.pts, packet.dts, packet.pos, packet.size),
                    *(packet.is_keyframe, packet.is_discard, packet.duration or 0),
                )
            )
    except av.FFmpegError as error:
        fault = f"cannot be read after packet {len(rows)}: {error}"
    return np.array(rows, np.int64), fault


def info_of(container: Any, stream: Any, num_frames: int) -> VideoInfo:
    """Returns the properties of a stream."""
    context = stream.codec_context
    rate = stream.average_rate or stream.guessed_rate or stream.base_rate or 0
    return VideoInfo(
        # The context has the name of the decoder, not of the codec.
        codec=import_extra("av").Codec(context.name, "r").canonical_name,
        width=context.width,
        height=context.height,
        fps=Fraction(rate),
        # PyAV 17 crashes on `context.pix_fmt` of an unknown format.
        pix_fmt=context.format.name if context.format else "",
        num_frames=num_frames,
        time_base=Fraction(stream.time_base),
        has_audio=bool(container.streams.audio),
        profile=context.profile,
        decoder=context.name,
        extradata=bytes(context.extradata or b""),
    )
