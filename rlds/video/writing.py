"""Frames as a video."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import IO

import numpy as np

from rlds.video.encoding import StreamWriter
from rlds_ecosystem.video_codec import FrameEncoder, Video

__all__ = ["BrowserVideoWriter"]

_FASTEST, _GOP = 1000, 60


class BrowserVideoWriter(contextlib.AbstractContextManager["BrowserVideoWriter"]):
    """Writes an MP4 file that every browser plays: H.264, in even sizes.

    Args:
      target: The file, or its path.
      frames_per_second: How fast it plays.
      crf: How coarse it is: 18 looks as the frames do, 40 is small.

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
        fps = min(frames_per_second, _FASTEST)
        self._video = Video("h264", crf, fps=fps, gop=_GOP, preset="medium", delays=True)
        # To have its head in front, the file is opened again.
        movflags = "+faststart" if isinstance(target, str | os.PathLike) else ""
        self._file = StreamWriter(target, "h264", fps, movflags)
        self._encoder: FrameEncoder | None = None

    def add(self, frame: np.ndarray) -> None:
        """Adds a frame, uint8 `[height, width, 3]`; all are of the same shape."""
        height, width = frame.shape[:2]
        padded = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if self._encoder is None:
            self._encoder = FrameEncoder(self._video, padded.shape)
        self._write(self._encoder.put(padded))

    def _write(self, packets: Iterable[tuple[bytes, bool]]) -> None:
        for packet, is_key in packets:
            self._file.add(packet, is_key)

    def close(self) -> None:
        """Finishes the file; further calls do no harm."""
        if self._encoder is not None:
            self._write(self._encoder.close())
            self._encoder = None
        self._file.close()

    def __exit__(self, *error: object) -> None:
        self.close()
