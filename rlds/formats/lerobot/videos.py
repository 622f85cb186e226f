"""The videos of LeRobot datasets: the frames of an episode, and its clip."""

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
    """Reads the videos.

    Args:
      root: The folder of the dataset.
      fps: The rows per second.
      by_time: Whether a row has the frame that is next to its time, rather than one after the
        other.
    """

    def __init__(self, root: epath.Path, fps: float, *, by_time: bool) -> None:
        self._folder, self._fps, self._by_time = os.fspath(root), fps, by_time
        # The file that each feature was read from last: its packets have been counted.
        self._last: dict[str, VideoFile] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}

    def read(
        self, row: EpisodeRow, name: str, timestamps: Callable[[], np.ndarray]
    ) -> dict[str, Any]:
        """Reads the fields that an episode has for a camera, see `rlds.video`.

        Args:
          row: The episode.
          name: The feature.
          timestamps: Reads the `timestamp` of each row. Without frames that are taken by time, it
            is called only if there are other frames than rows.

        Raises:
          SourceError: They are damaged, or do not fit the rows.
        """
        span = row.videos[name]
        with source_errors(self._path(span), episode=row.key, field=name):
            video, frames = self._frames(row, name, timestamps)
            first, last = int(frames.min()), int(frames.max())
            if span.is_whole_file and not video.fault:
                file_clip = video.clip(0, video.info.num_frames)
                clip = dataclasses.replace(file_clip, first=first)  # The complete file.
            else:
                # In older exports, a frame between episodes is that of the final observation.
                between = video.times[last + 1 : last + 2] < span.next - 0.5 / self._fps
                clip = video.clip(first, last + 1 + bool(between.any()))
            return clip_values(clip, frames - first if self._by_time else None)

    def span(self, row: EpisodeRow, name: str, timestamps: Callable[[], np.ndarray]) -> Span:
        """Returns the location of the frames of an episode, to be copied; see `read`."""
        with source_errors(self._path(row.videos[name]), episode=row.key, field=name):
            video, frames = self._frames(row, name, timestamps)
            span = video.span(int(frames.min()), int(frames.max()) + 1)
            return span._replace(is_file=row.videos[name].is_whole_file and not video.fault)

    def _frames(
        self, row: EpisodeRow, name: str, timestamps: Callable[[], np.ndarray]
    ) -> tuple[VideoFile, np.ndarray]:
        """Finds the frames of the rows of an episode: the video file, and the frame of each row."""
        span = row.videos[name]
        video = self._file(name, self._path(span))
        times, half = video.times, 0.5 / self._fps
        begin = int(np.searchsorted(times, span.begin - half))
        end = len(times) if span.end is None else int(np.searchsorted(times, span.end - half))
        frames = begin + np.arange(row.length)
        if self._by_time or not self._fits(times[begin:end], row.length):
            expected_times = span.begin + timestamps().astype(float)
            shown = np.searchsorted(times + half, expected_times)
            off = np.abs(times[np.minimum(shown, len(times) - 1)] - expected_times)
            frames = shown if self._by_time else frames
            wrong = np.flatnonzero((shown != frames) | (shown >= end) | (off > half))
            if len(wrong):
                step = wrong[0]
                advice = (
                    "" if self._by_time else ". Pass match='timestamp' to find frames by their time"
                )
                raise SourceError(
                    f"{end - begin} frames for {row.length} rows, and frame {step} is not at "
                    f"{expected_times[step] - span.begin} s, the time of row {step}{advice}",
                    file=video.name,
                )
        return video, frames

    def _fits(self, times: np.ndarray, num_rows: int) -> bool:
        """Whether there are as many frames as rows, at the rate of the rows."""
        if len(times) != num_rows:
            return False
        off = times - times[:1] - np.arange(num_rows) / self._fps
        return bool((abs(off) < 0.5 / self._fps).all())

    def _path(self, span: VideoSpan) -> str:
        return f"{self._folder}/{span.file}"

    def _file(self, name: str, path: str) -> VideoFile:
        video = self._last.get(name)
        if video is None or video.name != path:
            self._last[name] = video = VideoFile(path)
        return video
