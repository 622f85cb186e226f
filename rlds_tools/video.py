"""Frames as a video."""

from __future__ import annotations

import os
from fractions import Fraction
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from rlds_ecosystem import import_extra

__all__ = ["VideoWriter"]


class VideoWriter:
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
        self._av = import_extra("av")
        self._rate = Fraction(frames_per_second).limit_denominator(1000)
        options = {}
        if isinstance(target, str | os.PathLike):
            target = os.fspath(target)
            options = {"movflags": "+faststart"}  # Which takes opening the file again.
        self._container = self._av.open(target, "w", format="mp4", options=options)
        self._crf = crf
        self._stream: Any = None

    def add(self, frame: np.ndarray) -> None:
        """Adds a frame, uint8 `[height, width, 3]`; all are of the same shape."""
        height, width = frame.shape[:2]
        if self._stream is None:
            self._stream = self._container.add_stream("libx264", rate=self._rate)
            self._stream.width, self._stream.height = width + width % 2, height + height % 2
            self._stream.pix_fmt = "yuv420p"
            self._stream.options = {"crf": str(self._crf)}
        padding = ((0, height % 2), (0, width % 2), (0, 0))
        padded = np.ascontiguousarray(np.pad(frame, padding, mode="edge"))
        self._write(self._av.VideoFrame.from_ndarray(padded, format="rgb24"))

    def _write(self, frame: Any) -> None:
        for packet in self._stream.encode(frame):
            self._container.mux(packet)

    def close(self) -> None:
        """Finishes the file; further calls do no harm."""
        if self._stream is not None:
            self._write(None)
            self._stream = None
        self._container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
