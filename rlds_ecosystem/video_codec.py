"""Encoding and decoding of video by single frames.

Each frame becomes one packet, in order, and without delay unless `Video.delays`. Each group of
pictures decodes independently from its key packet on, so records can hold one packet per step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from rlds_ecosystem import import_extra
from rlds_ecosystem.model.errors import DamagedDataError

__all__ = ["FrameDecoder", "FrameEncoder", "Video", "restore_scheduling"]

# The encoder, the decoder, and the default quality and preset of each codec. The faster presets of
# AV1 cause visible block artifacts in fast motion.
_CODECS: Mapping[str, tuple[str, str, int, str]] = {
    "h264": ("libx264", "h264", 23, "superfast"),
    "av1": ("libsvtav1", "libdav1d", 30, "8"),
}
_DELAYED_PRESETS = {"h264": "superfast", "av1": "12"}
_LOSSLESS_PRESET, _FASTEST_PRESETS = "ultrafast", {"h264": "ultrafast", "av1": "10"}
_QUALITY_STEP = 8  # The increase of the rate factor for lower quality.


@dataclasses.dataclass(frozen=True)
class Video:
    """Video encoding of the frames of a camera: codec, quality, frame rate and keyframes.

    Attributes:
      codec: "h264" or "av1".
      quality: The constant rate factor of the encoder: lower values are better and larger. Default:
        23 for H.264, 30 for AV1.
      lossless: True for lossless H.264 of RGB, with about half of the bytes of the pixels.
      fps: The frame rate, which players of the video use.
      gop: The keyframe interval in frames. Decoding a frame begins at the keyframe before it.
      preset: The speed preset of the encoder. By default "superfast" for H.264, "8" for AV1,
        or "12" with `delays`.
      delays: True if the encoder may hold back frames and look ahead, which saves space (AV1: a
        quarter, in short groups), but is unsuitable for recording.

    Raises:
      ValueError: The codec is unknown, or a value is out of range.
    """

    codec: Literal["h264", "av1"] = "h264"
    quality: int | None = None
    lossless: bool = False
    fps: float = 30
    gop: int = 30
    preset: str | None = None
    delays: bool = False

    def __post_init__(self) -> None:
        if self.codec not in _CODECS:
            raise ValueError(f"codec: got {self.codec!r}, expected one of {', '.join(_CODECS)}")
        if self.lossless and (self.codec != "h264" or self.quality is not None):
            raise ValueError("lossless: expected the codec h264, and no quality")
        for name, low, high in (("quality", 0, 63), ("fps", 0.01, 1000), ("gop", 1, 10_000)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name}: got {value}, expected {low} to {high}")

    @classmethod
    def from_name(cls, name: str, fps: float = 30) -> Video:
        """Returns the encoding of the name "h264", "av1" or "lossless", as in commands and studies.

        Raises:
          ValueError: The name is unknown.
        """
        is_lossless = name == "lossless"
        codec: Any = "h264" if is_lossless else name
        return cls(codec, lossless=is_lossless, fps=fps)

    def with_lower_quality(self) -> Video:
        """Returns a faster encoding of lower quality; a lossless encoding stays unchanged."""
        if self.lossless:
            return self
        quality = min(self.factor + _QUALITY_STEP, 63 if self.codec == "av1" else 51)
        return dataclasses.replace(self, quality=quality, preset=_FASTEST_PRESETS[self.codec])

    @property
    def factor(self) -> int:
        """The constant rate factor: `quality`, or the default of the codec."""
        return _CODECS[self.codec][2] if self.quality is None else self.quality

    def encoder(self, shape: tuple[int, ...]) -> tuple[str, str, dict[str, str]]:
        """Returns the name of the encoder, the format of its pixels, and its options.

        Args:
          shape: The shape of a frame: `(height, width, 3)`, RGB.
        """
        name, _, _, preset = _CODECS[self.codec]
        preset = self.preset or (_DELAYED_PRESETS[self.codec] if self.delays else preset)
        if self.lossless:
            options = {"preset": self.preset or _LOSSLESS_PRESET, "qp": "0", "tune": "zerolatency"}
            return "libx264rgb", "rgb24", options
        options = {"preset": preset, "crf": str(self.factor)}
        if self.codec == "av1":
            # Without `rtc`, it may repeat the previous frame if little changes.
            undelayed = f"pred-struct=1:lp=1:rtc=1:keyint={self.gop}"
            options["svtav1-params"] = "fast-decode=0" if self.delays else undelayed
            return name, "yuv420p", options
        is_odd = shape[0] % 2 or shape[1] % 2
        if not self.delays:
            options["tune"] = "zerolatency"
        return name, "yuv444p" if is_odd else "yuv420p", options

    def describe(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Returns the settings of the video, in the types of JSON."""
        name, pix_fmt, options = self.encoder(shape)
        return {
            "codec": self.codec,
            "shape": list(shape),
            "pix_fmt": "gbrp" if self.lossless else pix_fmt,
            "fps": self.fps,
            "gop": self.gop,
            "lossless": self.lossless,
            "encoder": f"{name} {import_extra('av').__version__}",
            "options": options,
        }


@contextlib.contextmanager
def restore_scheduling() -> Iterator[None]:
    """Restores the scheduling policy of threads at the end of the context.

    If permitted, SVT-AV1 gives real-time priority to its threads and the one that opens it, which
    may block other threads of the machine.
    """
    if not os.path.isdir(tasks := "/proc/self/task"):
        yield
        return
    old_threads, policy, priority = (
        os.listdir(tasks),
        os.sched_getscheduler(0),
        os.sched_getparam(0),
    )
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, priority)
        for thread in {*os.listdir(tasks)} - {*old_threads}:
            with contextlib.suppress(OSError):  # The thread may have ended.
                os.sched_setscheduler(int(thread), policy, priority)


class FrameEncoder:
    """Encodes the frames of one camera; every `gop`th frame, from the first on, begins a group.

    Args:
      video: The video encoding.
      shape: The shape of a frame: `(height, width, 3)`, uint8, RGB.

    Raises:
      ImportError: PyAV is not installed.
      ValueError: The encoder does not support the shape.

    >>> encoder = FrameEncoder(Video(lossless=True), (16, 16, 3))
    >>> frame = np.full((16, 16, 3), 7, np.uint8)
    >>> packets = [encoder.encode(frame)[0] for _ in range(2)]
    >>> [bool((image == 7).all()) for image in FrameDecoder("h264").decode(packets)]
    [True, True]
    """

    def __init__(self, video: Video, shape: tuple[int, ...]) -> None:
        if len(shape) != 3 or shape[2] != 3:
            raise ValueError(f"frames of shape {shape}, expected (height, width, 3)")
        os.environ.setdefault("SVT_LOG", "1")  # The default level fills standard error.
        self._av = import_extra("av")
        self._shape, self._index = tuple(shape), 0
        name, pix_fmt, options = video.encoder(shape)
        context = self._av.CodecContext.create(name, "w")
        context.height, context.width, context.pix_fmt = shape[0], shape[1], pix_fmt
        context.framerate = Fraction(video.fps).limit_denominator(1000)
        context.time_base = 1 / context.framerate
        # More threads would delay frames.
        context.gop_size, context.max_b_frames, context.thread_count = video.gop, 0, 1
        context.options = options
        with restore_scheduling():
            context.open()
        self._context = context

    def encode(self, frame: np.ndarray) -> tuple[bytes, bool]:
        """Encodes the next frame.

        Returns:
          The packet, and True if decoding can begin with it.

        Raises:
          RuntimeError: The encoder fails.
        """
        packets = self.put(frame)
        if len(packets) != 1:
            raise RuntimeError(
                f"the encoder returned {len(packets)} packets for a frame, expected 1"
            )
        return packets[0]

    def put(self, frame: np.ndarray) -> list[tuple[bytes, bool]]:
        """Encodes the next frame; returns the finished packets, see `encode`."""
        image = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), "rgb24")
        image.pts = self._index
        self._index += 1
        return _as_bytes(self._context.encode(image))

    def close(self) -> list[tuple[bytes, bool]]:
        """Ends the encoder; returns the remaining packets."""
        return _as_bytes(self._context.encode(None))


def _as_bytes(packets: Any) -> list[tuple[bytes, bool]]:
    return [(bytes(packet), bool(packet.is_keyframe)) for packet in packets]


class FrameDecoder:
    """Decodes packets of `FrameEncoder`, from the first one of a group on.

    Args:
      codec: "h264" or "av1".
    """

    def __init__(self, codec: str) -> None:
        if codec not in _CODECS:
            raise DamagedDataError(f"video in {codec!r}, expected one of {', '.join(_CODECS)}")
        self._av = import_extra("av")
        self._context = self._av.CodecContext.create(_CODECS[codec][1], "r")
        self._context.thread_count = 1

    def decode(self, packets: Any) -> Iterator[np.ndarray]:
        """Yields a frame for each packet: uint8 of shape `(height, width, 3)`, RGB.

        Raises:
          DamagedDataError: A packet cannot be decoded.
        """
        for packet in packets:
            try:
                [frame] = self._context.decode(self._av.Packet(packet))
            except (self._av.FFmpegError, ValueError) as error:
                raise DamagedDataError(f"a packet of video cannot be decoded: {error}") from error
            yield frame.to_ndarray(format="rgb24")
