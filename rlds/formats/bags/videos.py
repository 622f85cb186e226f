"""Packets of video in messages, as clips that play alone; nothing is decoded."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from fractions import Fraction

from rlds_ecosystem import import_extra

__all__ = ["clip_of", "is_keyframe"]

_START = re.compile(rb"\x00\x00\x01(.)", re.DOTALL)
_FORMATS = {"h264": "h264", "hevc": "hevc"}


def is_keyframe(packet: bytes, codec: str) -> bool:
    """Whether decoding can begin with a packet in Annex B.

    Raises:
      ValueError: The codec is none of those whose packets are known.
    """
    if codec not in _FORMATS:
        raise ValueError(f"packets of {codec} are not cut here; use the path 'data' to have them")
    for found in _START.finditer(packet):
        header = found[1][0]
        if header & 31 == 5 if codec == "h264" else 16 <= header >> 1 & 63 <= 21:
            return True
    return False


def clip_of(packets: Sequence[bytes], codec: str) -> bytes:
    """Returns an mp4 file of packets, each of which is a frame, in the order of time.

    Raises:
      ValueError: They are not as many frames.
    """
    av = import_extra("av")
    file = io.BytesIO()
    number = 0
    with (
        av.open(io.BytesIO(b"".join(packets)), format=_FORMATS[codec]) as found,
        av.open(file, "w", format="mp4") as made,
    ):
        stream = made.add_stream_from_template(found.streams.video[0])
        for packet in found.demux(found.streams.video[0]):
            if packet.size:
                packet.stream = stream
                packet.pts = packet.dts = number * 512
                packet.duration = 512
                packet.time_base = Fraction(1, 15360)
                made.mux(packet)
                number += 1
    if number != len(packets):
        raise ValueError(f"{len(packets)} messages hold {number} frames of video")
    return file.getvalue()
