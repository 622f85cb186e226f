"""Packets as encoders give them: put into clips, taken out of them, or made of frames."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from rlds.raw_files.untrusted import SourceError
from rlds.video.container import Clip, VideoFile
from rlds.video.decoding import ClipReader
from rlds.video.packets import video_errors
from rlds_ecosystem import import_extra
from rlds_ecosystem.video_codec import FrameEncoder, Video

__all__ = ["clip_of", "encoded", "packets_for_steps", "stream_packets"]

# By codec: what FFmpeg calls its packets without a container, and what makes them of those of mp4.
_STREAMS = {"h264": "h264", "av1": "obu"}
_FILTERS = {"h264": "h264_mp4toannexb"}
_TICKS = 512  # Units of time in a frame, as FFmpeg has them.


def clip_of(packets: Sequence[bytes], is_key: np.ndarray, codec: str, fps: float) -> Clip:
    """Returns a clip of packets as encoders give them, one for each frame, in their order.

    Args:
      packets: In the form of a stream (Annex B of H.264, OBUs of AV1), in which each group of
        pictures begins with what the decoder needs.
      is_key: Whether a group begins with a packet.
      codec: "h264" or "av1".
      fps: How many frames a second has.

    Raises:
      SourceError: They are no such packets.
    """
    av = import_extra("av")
    output, base = io.BytesIO(), 1 / (Fraction(fps).limit_denominator(1000) * _TICKS)
    options = {"fflags": "+bitexact", "video_track_timescale": str(base.denominator)}
    group = packets[: int(np.flatnonzero([*is_key[1:], True])[0]) + 1]
    with (
        video_errors("video"),
        av.open(io.BytesIO(b"".join(group)), format=_STREAMS[codec]) as stream,
        av.open(output, "w", format="mp4", options=options) as container,
    ):
        track = container.add_stream_from_template(stream.streams.video[0], opaque=True)
        for number, content in enumerate(packets):
            packet = av.Packet(content)
            packet.stream, packet.time_base, packet.duration = track, base, _TICKS
            packet.pts = packet.dts = number * _TICKS
            packet.is_keyframe = bool(is_key[number])
            container.mux(packet)
    return Clip(output.getvalue(), 0, len(packets))


def stream_packets(clip: Clip) -> tuple[list[bytes], np.ndarray]:
    """Returns the packets of the wanted frames of a clip as encoders give them, see `clip_of`.

    Returns:
      The packets, and whether a group of pictures begins with each.

    Raises:
      SourceError: It is damaged, does not begin with a key, or has frames in another order.
    """
    av = import_extra("av")
    video = VideoFile(clip.data, "clip")
    info, known = video.index()
    if (np.diff(known.pts) <= 0).any() or not known.is_key[clip.first]:
        raise SourceError("the frames do not begin with a key, or are reordered", file="clip")
    number = len(known) - clip.first if clip.num_frames is None else clip.num_frames
    found = video.packets(0, len(known))
    if info.codec in _FILTERS:
        with video_errors("clip"), video.stream() as stream:
            convert = av.BitStreamFilterContext(_FILTERS[info.codec], stream)
            found = [bytes(each) for data in found for each in convert.filter(av.Packet(data))]
    chosen = slice(clip.first, clip.first + number)
    return found[chosen], known.is_key[chosen]


def encoded(frames: Iterable[np.ndarray], video: Video, shape: tuple[int, ...]) -> Clip:
    """Encodes frames to a clip.

    Args:
      frames: One after the other, uint8 of the shape.
      video: How.
      shape: `(height, width, 3)`.
    """
    packets, is_key = _encode(frames, video, shape)
    return clip_of(packets, is_key, video.codec, video.fps)


def _encode(
    frames: Iterable[np.ndarray], video: Video, shape: tuple[int, ...]
) -> tuple[list[bytes], np.ndarray]:
    encoder = FrameEncoder(video, shape)
    found = [packet for frame in frames for packet in encoder.put(frame)] + encoder.close()
    return [packet for packet, _ in found], np.array([is_key for _, is_key in found], np.bool_)


def packets_for_steps(clip: Clip, described: Mapping[str, Any]) -> tuple[list[bytes], np.ndarray]:
    """Returns a packet for each wanted frame of a clip, and whether a group begins with it.

    They are the packets of the clip if its first wanted frame is a key; otherwise the frames are
    encoded again.

    Args:
      clip: The clip, with the number of its frames.
      described: How it was encoded, see `Video.described`.

    Raises:
      SourceError: It is damaged, or has fewer frames.
    """
    try:
        packets, is_key = stream_packets(clip)
    except SourceError:
        reader = ClipReader(clip.data, "clip")
        numbers = range(clip.first, clip.first + (clip.num_frames or 0))
        shape = tuple(int(size) for size in described["shape"])
        packets, is_key = _encode(_decoded(reader, numbers, shape), _video(described), shape)
    if len(packets) != clip.num_frames:
        raise SourceError(f"{len(packets)} frames, expected {clip.num_frames}", file="clip")
    return packets, is_key


def _decoded(
    reader: ClipReader, numbers: Iterable[int], shape: tuple[int, ...]
) -> Iterator[np.ndarray]:
    for number in numbers:
        image = np.empty(shape, np.uint8)
        reader.read_into([number], [image])
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
