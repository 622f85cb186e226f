"""A source with two cameras, and the pixels that its steps have to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from videos import decoded, encoded

from rlds.alignment import from_sars
from rlds.sources.source import Origin, RandomAccessSource, SourceEpisode
from rlds.video import VIDEO
from rlds.video.container import Clip, VideoFile
from rlds.video.fields import clip_fields, clip_values
from rlds_ecosystem.model.fields import Field

TOP, WRIST = "observation/images/top", "wrist"
# Where the episodes begin and end in a file of 40 frames.
EPISODES = [(0, 7), (7, 21), (21, 40)]


class ClipSource(RandomAccessSource):
    """Three episodes of one file; their other camera has a file each, with every second frame.

    Args:
      path: Nothing is there.
      number: How many episodes there are.
      clips: Replace that of the first camera, by episode.
      missing: The step of which the other camera has no frame; None if it has all.
    """

    def __init__(
        self,
        path: Any = "robot",
        *,
        number: int = 3,
        clips: Any = None,
        missing: int | None = 3,
    ) -> None:
        self._path, self._number, self._clips = path, number, clips or {}
        self._missing = missing

    def inputs(self) -> list[Any]:
        return []

    def num_episodes(self, split: str) -> int:
        return self._number

    def key(self, split: str, index: int) -> str:
        return f"episode_{index}"

    def step_fields(self) -> Mapping[str, Any]:
        return {
            "observation": {"joints": Field(np.float32, (2,))},
            "action": np.int64,
            "discount": np.float32,
        }

    def episode_fields(self) -> Mapping[str, Any]:
        return {
            "seed": np.int64,
            VIDEO: {
                "observation": {"images": {"top": clip_fields()}},
                WRIST: clip_fields(has_frames=True),
            },
        }

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
        """Every second step has the frame of that before it."""
        steps = np.arange(length)
        return np.where(steps == self._missing, -1, steps // 2)


def pixels(index: int, missing: int | None = 3) -> dict[str, np.ndarray]:
    """The pixels of an episode, of files that are decoded as a whole."""
    begin, end = EPISODES[index % 3]
    wrist = decoded(encoded("av1", 20, seed=index % 3))[np.arange(end - begin) // 2]
    if missing is not None:
        wrist[missing] = 0
    return {TOP: decoded(encoded("h264"))[begin:end], WRIST: wrist}
