"""The videos of LeRobot datasets: which frames are those of an episode, and its clip."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from rlds.formats.lerobot.dataset_tables import EpisodeTable, named_by_tables
from rlds.formats.lerobot.layout import EpisodeRow, Info, episode_key
from rlds.raw_files.untrusted import check_is_file
from rlds.sources.source import SourceError
from rlds.video.container import VideoFile

__all__ = ["EpisodeVideo", "Videos"]


class EpisodeVideo(NamedTuple):
    """The frames of a video feature in an episode.

    Attributes:
      clip: A video file of its own.
      first: How many frames of it come before that of the first step.
      frames: For each step, which frame is its, if they are not one after the other.
    """

    clip: bytes
    first: int
    frames: np.ndarray | None


class Videos:
    """Reads the videos.

    Args:
      root: The folder of the dataset.
      info: What info.json says.
      table: The episodes.
    """

    def __init__(self, root: epath.Path, info: Info, table: EpisodeTable) -> None:
        self._root, self._info, self._table = root, info, table
        # The file that each feature was read from last: its packets have been counted.
        self._last: dict[str, tuple[str, VideoFile]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}

    def has_one_for_each(self, row: EpisodeRow, name: str) -> bool:
        """Whether there are as many frames as rows, at the rate of the rows."""
        begin, end = self._range(row, name)
        if end - begin != row.length:
            return False
        fps, times = self._info.fps, self._file(row, name).times[begin:end]
        off = times - times[:1] - np.arange(row.length) / fps
        return bool((abs(off) < 0.5 / fps).all())

    def read(
        self, row: EpisodeRow, name: str, times: np.ndarray | None, *, by_time: bool
    ) -> EpisodeVideo:
        """Reads the frames of an episode.

        Args:
          row: The episode.
          name: The feature.
          times: The `timestamp` of each row; needed by time, or if there are more frames than rows.
          by_time: Whether a row has the frame that is next to its time, rather than one after the
            other.

        Raises:
          SourceError: They are damaged, or do not fit the rows.
        """
        file = self._file(row, name)
        begin, end = self._range(row, name)
        number = len(file.times)
        if times is not None:
            shown, half = file.times, 0.5 / self._info.fps
            wanted = np.searchsorted(shown + half, row.videos[name].begin + times.astype(float))
            off = np.abs(shown[np.minimum(wanted, number - 1)] - row.videos[name].begin - times)
            expected = wanted if by_time else begin + np.arange(row.length)
            wrong = np.flatnonzero((wanted != expected) | (wanted >= end) | (off > half))
            if len(wrong):
                step = int(wrong[0])
                advice = "" if by_time else "; match='timestamp' takes frames by their time"
                raise SourceError(
                    f"{end - begin} frames for {row.length} rows, and the frame of row {step} at "
                    f"{times[step]} s is not where it is expected{advice}",
                    file=file.name,
                    episode=episode_key(row.index),
                    field=name,
                )
        elif begin + row.length > number:
            raise SourceError(
                f"frames {begin} to {begin + row.length} are wanted, but there are {number}",
                file=file.name,
                episode=episode_key(row.index),
                field=name,
            )
        if by_time:
            assert times is not None
            begin, end = int(wanted.min()), int(wanted.max()) + 1
        elif times is not None:
            end = begin + row.length
        if self._table.is_alone(row, name) and not file.fault:
            clip = file.clip(0, number)  # The file as it is.
            first = begin
        else:
            clip = file.clip(begin, end)
            first = clip.first
        frames = wanted - begin + first if by_time else None
        return EpisodeVideo(clip.data, first, frames)

    def _range(self, row: EpisodeRow, name: str) -> tuple[int, int]:
        """The frames from when the episode begins to when it ends."""
        span, times = row.videos[name], self._file(row, name).times
        half = 0.5 / self._info.fps
        begin = int(np.searchsorted(times, span.begin - half))
        end = len(times) if span.end is None else int(np.searchsorted(times, span.end - half))
        return begin, end

    def _file(self, row: EpisodeRow, name: str) -> VideoFile:
        path = self._info.video_file(row, name)
        last = self._last.get(name)
        if last is None or last[0] != path:
            file = self._root / path
            with named_by_tables(file):
                check_is_file(file)
                last = path, VideoFile(os.fspath(file))
            self._last[name] = last
        return last[1]
