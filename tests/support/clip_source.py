"""A source with two cameras, and the expected pixels of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from videos import decoded, encoded

from rlds.alignment import from_sars
from rlds.sources.source import Fields, Origin, Source, SourceEpisode
from rlds.video import VIDEO
from rlds.video.container import Clip, VideoFile
from rlds.video.fields import clip_fields, clip_values
from rlds_ecosystem.model.fields import Field

TOP, WRIST = "observation/images/top", "wrist"
# First frame and end of each episode in a file of 40 frames.
EPISODES = [(0, 7), (7, 21), (21, 40)]


class ClipSource(Source):
    """Three episodes of one file; their other camera has a file each, with every second frame.

    Args:
      path: Any path; it is not read.
      num_episodes: The number of episodes.
      clips: Replacements of the clips of the first camera, by episode.
      missing: The step without a frame of the other camera; None if every step has one.
    """

    fields = Fields(
        {
            "observation": {"joints": Field(np.float32, (2,))},
            "action": np.int64,
            "discount": np.float32,
        },
        {
            "seed": np.int64,
            VIDEO: {
                "observation": {"images": {"top": clip_fields()}},
                WRIST: clip_fields(has_frames=True),
            },
        },
    )

    def __init__(
        self,
        path: Any = "robot",
        *,
        num_episodes: int = 3,
        clips: Any = None,
        missing: int | None = 3,
    ) -> None:
        self._path, self._num_episodes, self._clips = path, num_episodes, clips or {}
        self._missing = missing

    def inputs(self) -> list[Any]:
        return []

    def num_episodes(self, split: str) -> int:
        return self._num_episodes

    def key(self, split: str, index: int) -> str:
        return f"episode_{index}"

    def read(
        self, split: str, index: int, fields: Any = None, rows: slice = slice(None)
    ) -> SourceEpisode:
        begin, end = EPISODES[index % 3]
        length = end - begin
        clip = self._clips.get(index) or VideoFile(encoded("h264")).clip(begin, end)
        wrist = Clip(encoded("av1", 20, seed=index % 3), 0)
        steps = from_sars(
            observation={"joints": np.arange(length * 2, dtype=np.float32).reshape(-1, 2)},
            action=np.arange(length) + 100 * index,
            reward=None,
            terminal=False,
        )
        return SourceEpisode(
            key=self.key(split, index),
            steps=steps,
            origin=Origin("robot", 0, length),
            final_observation_known=False,
            truncated=True,
            metadata={
                "seed": index,
                VIDEO: {
                    "observation": {"images": {"top": clip_values(clip)}},
                    WRIST: clip_values(wrist, self._wrist_frames(length)),
                },
            },
        )

    def _wrist_frames(self, length: int) -> np.ndarray:
        """The frame of each step: two steps share one."""
        steps = np.arange(length)
        return np.where(steps == self._missing, -1, steps // 2)


def pixels(index: int, missing: int | None = 3) -> dict[str, np.ndarray]:
    """The pixels of an episode, from files decoded from their begin to their end."""
    begin, end = EPISODES[index % 3]
    wrist = decoded(encoded("av1", 20, seed=index % 3))[np.arange(end - begin) // 2]
    if missing is not None:
        wrist[missing] = 0
    return {TOP: decoded(encoded("h264"))[begin:end], WRIST: wrist}
