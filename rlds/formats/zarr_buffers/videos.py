"""The videos of a replay buffer of a real robot: `videos/<episode>/<camera>.mp4`.

The times of their frames and of the rows of the buffer both count from the first row.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any

import numpy as np
from etils import epath

import rlds
from rlds.raw_files.input_files import present
from rlds.raw_files.untrusted import folders_in, is_there
from rlds.sources.source import SourceError
from rlds.video.fields import read_video
from rlds_ecosystem.files import stores

__all__ = ["BufferVideos"]

_FILE = re.compile(r"([0-9]+)\.mp4")
# The maximum number of steps that repeat the last frame, because recorders stop videos early.
_MAX_REPEATED_STEPS = 10
# The tolerance of time differences, as a fraction of a step.
_TIME_TOLERANCE_STEPS = 1e-5


class BufferVideos:
    """The videos next to a buffer.

    Args:
      buffer: The folder of the buffer.
      num_episodes: The number of episodes.

    Attributes:
      cameras: The names of the video files, by the paths of their fields.
    """

    def __init__(self, buffer: epath.Path, num_episodes: int) -> None:
        self._directory = buffer.parent / "videos"
        self._num_episodes = num_episodes
        self.cameras: dict[str, str] = {}
        if num_episodes and is_there(self._directory):
            folders = filter(str.isdecimal, folders_in(self._directory))
            folder = self._directory / min(folders, key=int, default="")
            matches = filter(None, (_FILE.fullmatch(e.name) for e in stores.list_directory(folder)))
            self.cameras = {
                f"{rlds.OBSERVATION}/camera_{match[1]}": match[0]
                for match in sorted(matches, key=lambda match: int(match[1]))
            }

    def _file(self, index: int, name: str) -> epath.Path:
        return self._directory / str(index) / name

    def read(self, index: int, times: np.ndarray) -> dict[str, Any]:
        """Returns the values of the `video_fields` of an episode, by path.

        Args:
          index: The episode.
          times: The time of each row, in seconds.

        Raises:
          SourceError: A video is missing or damaged.
        """
        values: dict[str, Any] = {}
        for path, name in self.cameras.items():
            file = self._file(index, name)
            if not file.exists():
                raise SourceError("no such file", file=file, episode=index)
            values |= read_video(file, path, functools.partial(_frames, times - times[0]))
        return values

    def inputs(self) -> list[str | os.PathLike[str]]:
        """Returns the files."""
        files = (
            self._file(index, name)
            for index in range(self._num_episodes)
            for name in self.cameras.values()
        )
        return present(files)


def _frames(times: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Returns the first frame at or after each time, as Diffusion Policy does.

    The last frame is repeated for a few steps after it; later steps get -1.
    """
    step = times[1] if len(times) > 1 else 0.0
    frames = np.searchsorted(shown, times - _TIME_TOLERANCE_STEPS * step, "left")
    late = np.cumsum(frames >= len(shown))
    frames = np.minimum(frames, len(shown) - 1)
    return np.where(late > _MAX_REPEATED_STEPS, -1, frames)
