"""Reading of the videos of LeRobot datasets: frames and clips of episodes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from etils import epath

from rlds.formats.lerobot.episode_table import EpisodeRow, VideoSpan
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.video.container import Span, VideoFile
from rlds.video.fields import clip_values

__all__ = ["Videos"]


class Videos:
    """A reader of videos.

    Args:
      root: The folder of the dataset.
      fps: The rows per second.
      by_time: True to match rows with the frame nearest in time, False to match them in order.
    """

    def __init__(self, root: epath.Path, fps: float, *, by_time: bool) -> None:
        self._folder, self._fps, self._by_time = os.fspath(root), fps, by_time
        # The last file of each feature, with the index of its packets.
        self._last_files: dict[str, VideoFile] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_files": {}}

    def read(
        self, row: EpisodeRow, name: str, timestamps: Callable[[], np.ndarray]
    ) -> dict[str, Any]:
        """Reads the video fields of an episode for a feature, see `rlds.video`.

        Args:
          row: The episode.
          name: The feature.
          timestamps: Reads the `timestamp` of each row. This function is called only if frames are
            matched by time, or if the numbers of frames and rows differ.

        Raises:
          SourceError: The frames are damaged, or do not match the rows.
        """
        span = row.videos[name]
        with source_errors(self._path(span), episode=row.key, field=name):
            video, frames = self._frames(row, name, timestamps)
            first_frame, last_frame = int(frames.min()), int(frames.max())
            if span.is_whole_file and not video.fault:
                file_clip = video.clip(0, video.info.num_frames)
                clip = dataclasses.replace(file_clip, first=first_frame)  # Keeps the complete file.
            else:
                # In older exports, a frame between episodes belongs to the final observation.
                between = video.times[last_frame + 1 : last_frame + 2] < span.next - 0.5 / self._fps
                clip = video.clip(first_frame, last_frame + 1 + bool(between.any()))
            return clip_values(clip, frames - first_frame if self._by_time else None)

    def span(self, row: EpisodeRow, name: str, timestamps: Callable[[], np.ndarray]) -> Span:
        """Returns the location of the frames of an episode, for copies; see `read`."""
        with source_errors(self._path(row.videos[name]), episode=row.key, field=name):
            video, frames = self._frames(row, name, timestamps)
            span = video.span(int(frames.min()), int(frames.max()) + 1)
            return span._replace(is_file=row.videos[name].is_whole_file and not video.fault)

    def _frames(
        self, row: EpisodeRow, name: str, timestamps: Callable[[], np.ndarray]
    ) -> tuple[VideoFile, np.ndarray]:
        """Finds the video file of an episode, and the frame of each row."""
        span = row.videos[name]
        video = self._file(name, self._path(span))
        times, half = video.times, 0.5 / self._fps
        start = int(np.searchsorted(times, span.start - half))
        end = len(times) if span.end is None else int(np.searchsorted(times, span.end - half))
        frames = start + np.arange(row.length)
        if self._by_time or not self._has_regular_times(times[start:end], row.length):
            expected_times = span.start + timestamps().astype(float)
            nearest = np.searchsorted(times + half, expected_times)
            distances = np.abs(times[np.minimum(nearest, len(times) - 1)] - expected_times)
            frames = nearest if self._by_time else frames
            invalid = np.flatnonzero((nearest != frames) | (nearest >= end) | (distances > half))
            if len(invalid):
                step = invalid[0]
                advice = "" if self._by_time else ". Pass match='timestamp' to match frames by time"
                raise SourceError(
                    f"{end - start} frames for {row.length} rows, and frame {step} is not at "
                    f"{expected_times[step] - span.start} s, the time of row {step}{advice}",
                    file=video.name,
                )
        return video, frames

    def _has_regular_times(self, times: np.ndarray, num_rows: int) -> bool:
        """Returns True if each row has a frame, at the rate of the rows."""
        if len(times) != num_rows:
            return False
        distances = times - times[:1] - np.arange(num_rows) / self._fps
        return bool((abs(distances) < 0.5 / self._fps).all())

    def _path(self, span: VideoSpan) -> str:
        return f"{self._folder}/{span.file}"

    def _file(self, name: str, path: str) -> VideoFile:
        video = self._last_files.get(name)
        if video is None or video.name != path:
            self._last_files[name] = video = VideoFile(path)
        return video
