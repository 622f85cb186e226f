"""Small video files, encoded on demand."""

from __future__ import annotations

import functools
import io
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import av
import numpy as np

from rlds_ecosystem.video_codec import restore_scheduling

__all__ = ["CODECS", "decoded", "encoded", "pictures"]

os.environ.setdefault("SVT_LOG", "1")  # Its encoder prints messages.

HEIGHT, WIDTH = 48, 64

# Name: codec, options, frames from one keyframe to the next. They are common in robotics: frames
# with references in both directions, also across keyframes, and long groups.
CODECS: Mapping[str, tuple[str, dict[str, str], int]] = {
    "h264": ("libx264", {}, 12),
    "h264 g=2": ("libx264", {"bf": "0"}, 2),
    "h264 open": ("libx264", {"x264-params": "open-gop=1"}, 12),
    "h264 long": ("libx264", {}, 250),
    "hevc": ("libx265", {"x265-params": "log-level=none"}, 12),
    "av1": ("libsvtav1", {"preset": "12", "svtav1-params": "lp=1"}, 12),
}


def pictures(num_frames: int, seed: int = 0) -> np.ndarray:
    """Moving noise, with the index of the frame in its brightness."""
    noise = np.random.default_rng(seed).integers(0, 200, (HEIGHT, WIDTH, 3), np.uint8)
    moved = [np.roll(noise, i, 1) // 2 + i * 100 // num_frames for i in range(num_frames)]
    return np.stack(moved).astype(np.uint8)


@functools.cache
def encoded(
    name: str = "h264",
    num_frames: int = 40,
    *,
    seed: int = 0,
    audio: bool = False,
    movflags: str | None = None,
    fps: int = 30,
) -> bytes:
    """Returns a file with a video.

    Args:
      name: One of the `CODECS`.
      num_frames: The number of frames.
      seed: The seed of `pictures`.
      audio: Whether it has sound.
      movflags: Options of FFmpeg for mp4: "faststart", "frag_keyframe+empty_moov".
      fps: The frames per second.
    """
    codec, options, group = CODECS[name]
    settings = {"movflags": movflags} if movflags else {}
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "video.mp4")  # It is read again for "faststart".
        with av.open(str(file), "w", options=settings) as container:
            _encode(container, codec, {**options, "g": str(group)}, num_frames, seed, audio, fps)
        return file.read_bytes()


@restore_scheduling()
def _encode(
    container: Any,
    codec: str,
    options: dict[str, str],
    num_frames: int,
    seed: int,
    audio: bool,
    fps: int,
) -> None:
    stream = container.add_stream(codec, rate=fps, options=options)
    stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
    stream.codec_context.thread_count = 1
    sound = container.add_stream("aac", rate=8000, layout="mono") if audio else None
    for index, picture in enumerate(pictures(num_frames, seed)):
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        if sound is not None:
            tone = np.sin(np.arange(8000 // fps) * (index + 5) / 20, dtype=np.float32)
            samples = av.AudioFrame.from_ndarray(tone[None], format="fltp", layout="mono")
            samples.sample_rate = 8000
            container.mux(sound.encode(samples))
    container.mux(stream.encode())
    if sound is not None:
        container.mux(sound.encode())


def decoded(video: bytes) -> np.ndarray:
    """Returns all frames of a video, by plain PyAV."""
    with av.open(io.BytesIO(video)) as container:
        return np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)])
