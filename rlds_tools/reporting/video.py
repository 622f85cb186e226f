"""Encodes frames of cameras for a page: as a video, or as a moving image.

With PyAV (the extra `video`), the result is H.264, which can seek and stays in step with curves;
otherwise, it is an animated WebP.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib.util
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlds.sources.cameras import Frames, VideoFrames, evenly
from rlds.video.encoding import BrowserVideoWriter
from rlds_tools.markup import Markup, tag

__all__ = ["VideoQuality", "can_seek", "clip", "still"]

FRAMES_PER_SECOND = 12
# The sides of frames in pixels: larger frames are shrunk; pixels of smaller frames are repeated,
# as H.264 stores colors for groups of four pixels.
_MAX_SIDE, _MIN_SIDE = 256, 128
_STILL_SIDE = 96


@dataclasses.dataclass(frozen=True)
class VideoQuality:
    """The quality of videos: the maximum length, and the rate factor of the encoder.

    Attributes:
      frames: The maximum number of frames.
      crf: The constant rate factor: 23 is fine, 45 is coarse.
    """

    frames: int = 100
    crf: int = 28


def can_seek() -> bool:
    """Returns True if videos can seek to a frame."""
    return importlib.util.find_spec("av") is not None


def clip(frames: Frames | VideoFrames, quality: VideoQuality, name: str) -> tuple[Markup, str]:
    """Encodes frames; returns an element of the page, and a note on the colors of depths.

    Args:
      frames: The frames.
      quality: The quality of the video, which limits its size.
      name: The name of the camera.

    Raises:
      SourceError, TfdsFilesError: A frame is damaged.
    """
    images, mapping = _as_images(frames.take(evenly(len(frames), quality.frames)))
    images = [_shrink(image, _MAX_SIDE) for image in images]
    if can_seek():
        images = [_enlarge(image) for image in images]
        source = _data_url("video/mp4", _as_mp4(images, quality.crf))
        height, width = images[0].shape[:2]
        sizes = {"width": width, "height": height}
        # The poster is shown until the video plays, and in print.
        poster = _data_url("image/webp", _as_webp(images[:1], 60))
        flags = {"muted": True, "loop": True, "playsinline": True}
        video = tag("video", src=source, poster=poster, aria_label=name, **flags, **sizes)
        return video, mapping
    source = _data_url("image/webp", _as_webp(images, max(10, 90 - 1.4 * quality.crf)))
    return tag("img", src=source, alt=f"{name}, moving"), mapping


def still(frame: np.ndarray, name: str) -> Markup:
    """Encodes a frame as a small image element."""
    ((image,), _) = _as_images([frame])
    source = _data_url("image/webp", _as_webp([_shrink(image, _STILL_SIDE)], 55))
    return tag("img", src=source, alt=name, class_="still")


def _as_images(frames: Sequence[np.ndarray]) -> tuple[list[np.ndarray], str]:
    """Converts frames to uint8 RGB; depths become greys from the 1 % to the 99 % quantile."""
    first_frame = frames[0]
    if first_frame.dtype == np.uint8:
        return [_as_rgb(frame) for frame in frames], ""
    values = np.concatenate([frame[::4, ::4].reshape(-1) for frame in frames]).astype(np.float64)
    values = values[np.isfinite(values)]
    low, high = np.quantile(values, [0.01, 0.99]) if len(values) else (0.0, 1.0)
    scale = 255 / (high - low) if high > low else 0.0
    images = [
        _as_rgb(np.clip((np.nan_to_num(frame.astype(np.float64)) - low) * scale, 0, 255))
        for frame in frames
    ]
    return images, f"{low:.4g} is black, {high:.4g} is white"


def _as_rgb(frame: np.ndarray) -> np.ndarray:
    frame = frame.astype(np.uint8) if frame.ndim == 3 else frame.astype(np.uint8)[..., np.newaxis]
    return np.repeat(frame, 3, axis=2) if frame.shape[2] == 1 else frame[..., :3]


def _shrink(image: np.ndarray, max_side: int) -> np.ndarray:
    """Shrinks an image so that no side exceeds `max_side` pixels, by averages of squares."""
    from PIL import Image

    factor = -(-max(image.shape[:2]) // max_side)
    return image if factor == 1 else np.asarray(Image.fromarray(image).reduce(factor))


def _enlarge(image: np.ndarray) -> np.ndarray:
    """Enlarges a small image by repeating its pixels."""
    factor = max(1, _MIN_SIDE // max(image.shape[:2]))
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def _as_mp4(images: Sequence[np.ndarray], crf: int) -> bytes:
    file = io.BytesIO()
    with BrowserVideoWriter(file, FRAMES_PER_SECOND, crf) as writer:
        for image in images:
            if image.shape == images[0].shape:
                writer.add(image)
    return file.getvalue()


def _as_webp(images: Sequence[np.ndarray], quality: float) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    first_image, *later_frames = map(Image.fromarray, images)
    options: dict[str, Any] = {"save_all": True, "append_images": later_frames, "loop": 0}
    options["duration"] = round(1000 / FRAMES_PER_SECOND)
    options = options if later_frames else {}
    first_image.save(file, "WEBP", quality=round(quality), method=4, **options)
    return file.getvalue()


def _data_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
