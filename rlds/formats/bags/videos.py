"""Clips of the video packets in bag messages, without decoding."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import numpy as np

from rlds.video import encoding
from rlds_ecosystem import import_extra

__all__ = ["is_keyframe", "mux_clip"]

_NAL_START = re.compile(rb"\x00\x00\x01(.)", re.DOTALL)
_CODECS = ("h264", "hevc")
_PLACEHOLDER_FPS = 30  # The muxer needs a rate; messages have the true times.


def is_keyframe(packet: bytes, codec: str) -> bool:
    """Returns True if decoding can begin with a packet (Annex B).

    Raises:
      ValueError: The codec is not supported.
    """
    if codec not in _CODECS:
        raise ValueError(f"cannot cut packets of {codec}; use the path 'data' for their bytes")
    for start in _NAL_START.finditer(packet):
        nal_header = start[1][0]
        if nal_header & 31 == 5 if codec == "h264" else 16 <= nal_header >> 1 & 63 <= 21:
            return True
    return False


def mux_clip(packets: Sequence[bytes], codec: str) -> bytes:
    """Muxes packets, with a packet for each frame in temporal order, into an mp4 file.

    Raises:
      ValueError: The number of frames differs from the number of packets.
    """
    with import_extra("av").open(io.BytesIO(b"".join(packets)), format=codec) as container:
        num_frames = sum(packet.size > 0 for packet in container.demux(video=0))
    if num_frames != len(packets):
        raise ValueError(f"{len(packets)} messages with {num_frames} frames, expected one each")
    is_key = np.array([is_keyframe(packet, codec) for packet in packets])
    return encoding.clip_of(packets, is_key, codec, _PLACEHOLDER_FPS).data
