"""Raw video packets of encoders: muxed into clips, extracted from clips, or encoded."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import IO, Any

import numpy as np

from rlds.raw_files.untrusted import SourceError
from rlds.video.container import Clip, mux_options
from rlds.video.decoding import ClipReader
from rlds.video.packets import video_errors
from rlds_ecosystem import import_extra
from rlds_ecosystem.video_codec import FrameEncoder, Video

__all__ = [
    "BrowserVideoWriter",
    "StreamWriter",
    "clip_of",
    "encoded",
    "packets_for_steps",
    "stream_packets",
]

# FFmpeg's formats of raw packets, and the bitstream filters from mp4, by codec.
_RAW_FORMATS = {"h264": "h264", "hevc": "hevc", "av1": "obu"}
_BITSTREAM_FILTERS = {"h264": "h264_mp4toannexb"}
_TICKS_PER_FRAME = 512  # The time base of FFmpeg's muxer.
# The largest frame rate and the keyframe interval of videos for browsers.
_MAX_BROWSER_FPS, _BROWSER_GOP = 1000, 60


def clip_of(packets: Sequence[bytes], is_key: np.ndarray, codec: str, fps: float) -> Clip:
    """Muxes raw packets of an encoder into a clip: one for each frame, in order.

    Args:
      packets: The packets of a raw stream (Annex B of H.264, OBUs of AV1), in which each group of
        pictures begins with the decoder configuration.
      is_key: True for the packets of keyframes.
      codec: "h264" or "av1".
      fps: The frame rate, in frames per second.

    Raises:
      SourceError: The packets are not valid.
    """
    output = io.BytesIO()
    with StreamWriter(output, codec, fps) as writer:
        for index, packet in enumerate(packets):
            writer.add(packet, bool(is_key[index]))
    return Clip(output.getvalue(), 0, len(packets))


class StreamWriter(contextlib.AbstractContextManager["StreamWriter"]):
    """Muxes raw packets of an encoder into an mp4 file, see `clip_of`; a context manager.

    Args:
      target: The file, or its path.
      codec: "h264", "hevc" or "av1".
      fps: The frame rate, in frames per second.
      movflags: The FFmpeg option for the structure of the file.
    """

    def __init__(
        self, target: str | os.PathLike[str] | IO[bytes], codec: str, fps: float, movflags: str = ""
    ) -> None:
        self._av, self._codec = import_extra("av"), codec
        self._base = 1 / (Fraction(fps).limit_denominator(1000) * _TICKS_PER_FRAME)
        options = mux_options(self._base) | ({"movflags": movflags} if movflags else {})
        target = os.fspath(target) if isinstance(target, os.PathLike) else target
        self._file = self._av.open(target, "w", format="mp4", options=options)
        self._track: Any = None
        self._index = 0

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, content: bytes, is_key: bool) -> None:
        """Adds the packet of the next frame; the first one must be a keyframe.

        Raises:
          SourceError: The packet is not valid.
        """
        with video_errors("video"):
            if self._track is None:  # The keyframe holds the decoder configuration.
                with self._av.open(io.BytesIO(content), format=_RAW_FORMATS[self._codec]) as stream:
                    [template] = stream.streams.video
                    self._track = self._file.add_stream_from_template(template, opaque=True)
            packet = self._av.Packet(content)
            packet.stream, packet.time_base, packet.duration = (
                self._track,
                self._base,
                _TICKS_PER_FRAME,
            )
            packet.pts = packet.dts = self._index * _TICKS_PER_FRAME
            packet.is_keyframe = is_key
            self._file.mux(packet)
        self._index += 1

    def close(self) -> None:
        """Completes the file; may be called again."""
        self._file.close()


class BrowserVideoWriter(contextlib.AbstractContextManager["BrowserVideoWriter"]):
    """Writes an MP4 file that every browser plays: H.264, in even sizes.

    Args:
      target: The file, or its path.
      frames_per_second: The frame rate.
      crf: The quantisation: 18 is visually lossless, 40 is small.

    Raises:
      ImportError: The extra `video` is not installed.
      OSError: The file cannot be written.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        frames_per_second: float = 30,
        crf: int = 23,
    ) -> None:
        fps = min(frames_per_second, _MAX_BROWSER_FPS)
        self._video = Video("h264", crf, fps=fps, gop=_BROWSER_GOP, preset="medium", delays=True)
        # Moving the header to the front requires opening the file again.
        movflags = "+faststart" if isinstance(target, str | os.PathLike) else ""
        self._file = StreamWriter(target, "h264", fps, movflags)
        self._encoder: FrameEncoder | None = None

    def add(self, frame: np.ndarray) -> None:
        """Adds a frame, uint8 `[height, width, 3]`; all frames have the same shape."""
        height, width = frame.shape[:2]
        padded = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if self._encoder is None:
            self._encoder = FrameEncoder(self._video, padded.shape)
        self._write(self._encoder.put(padded))

    def _write(self, packets: Iterable[tuple[bytes, bool]]) -> None:
        for packet, is_key in packets:
            self._file.add(packet, is_key)

    def close(self) -> None:
        """Completes the file; may be called again."""
        if self._encoder is not None:
            self._write(self._encoder.close())
            self._encoder = None
        self._file.close()

    def __exit__(self, *error: object) -> None:
        self.close()


def stream_packets(clip: Clip) -> tuple[list[bytes], np.ndarray]:
    """Returns the raw packets of the requested frames of a clip, the inverse of `clip_of`.

    Returns:
      The packets, and a mask of keyframes.

    Raises:
      SourceError: The clip is damaged, does not begin with a keyframe, or has reordered frames.
    """
    av = import_extra("av")
    video = clip.video
    info, all_packets = video.index()
    if (np.diff(all_packets.pts) <= 0).any() or not all_packets.is_key[clip.first]:
        raise SourceError("the frames do not begin with a keyframe, or are reordered", file="clip")
    num_frames = len(all_packets) - clip.first if clip.num_frames is None else clip.num_frames
    packets = video.packets(0, len(all_packets))
    if info.codec in _BITSTREAM_FILTERS:
        with video_errors("clip"), video.stream() as stream:
            convert = av.BitStreamFilterContext(_BITSTREAM_FILTERS[info.codec], stream)
            filtered = (convert.filter(av.Packet(packet)) for packet in packets)
            packets = [bytes(packet) for packet in itertools.chain.from_iterable(filtered)]
    requested = slice(clip.first, clip.first + num_frames)
    return packets[requested], all_packets.is_key[requested]


def encoded(frames: Iterable[np.ndarray], video: Video, shape: tuple[int, ...]) -> Clip:
    """Encodes frames to a clip.

    Args:
      frames: The frames in order, uint8 of the shape.
      video: The encoding.
      shape: `(height, width, 3)`.
    """
    packets, is_key = _encode(frames, video, shape)
    return clip_of(packets, is_key, video.codec, video.fps)


def _encode(
    frames: Iterable[np.ndarray], video: Video, shape: tuple[int, ...]
) -> tuple[list[bytes], np.ndarray]:
    encoder = FrameEncoder(video, shape)
    packets = [packet for frame in frames for packet in encoder.put(frame)] + encoder.close()
    return [packet for packet, _ in packets], np.array([is_key for _, is_key in packets], np.bool_)


def packets_for_steps(clip: Clip, described: Mapping[str, Any]) -> tuple[list[bytes], np.ndarray]:
    """Returns a raw packet for each requested frame of a clip, and a mask of keyframes.

    If the first requested frame is not a keyframe, the frames are encoded again.

    Args:
      clip: The clip, with the number of its frames.
      described: The description of the encoding, see `Video.describe`.

    Raises:
      SourceError: The clip is damaged, or has fewer frames.
    """
    try:
        packets, is_key = stream_packets(clip)
    except SourceError:
        reader = ClipReader(clip.data, "clip")
        indices = range(clip.first, clip.first + (clip.num_frames or 0))
        shape = tuple(int(size) for size in described["shape"])
        packets, is_key = _encode(_decode(reader, indices, shape), _video(described), shape)
    if len(packets) != clip.num_frames:
        raise SourceError(f"{len(packets)} frames, expected {clip.num_frames}", file="clip")
    return packets, is_key


def _decode(
    reader: ClipReader, indices: Iterable[int], shape: tuple[int, ...]
) -> Iterator[np.ndarray]:
    for frame in indices:
        image = np.empty(shape, np.uint8)
        reader.read_into([frame], [image])
        yield image


def _video(described: Mapping[str, Any]) -> Video:
    options = described["options"]
    return Video(
        codec=described["codec"],
        quality=None if described["lossless"] else int(options["crf"]),
        lossless=bool(described["lossless"]),
        fps=described["fps"],
        gop=int(described["gop"]),
        preset=str(options["preset"]),
    )
