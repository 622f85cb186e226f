"""A robot with video clips, and with images in its steps."""

import numpy as np
import raw_lerobot as raw
from robot_source import RobotSource, with_fields

from rlds.video.container import VideoFile
from rlds_ecosystem.model.fields import Field


class FilmedSource(RobotSource):
    """Robots with clips, cut out of one video without keyframes in between."""

    fields = with_fields(
        RobotSource.fields,
        {},
        {"video/observation/front/clip": Field(bytes), "video/observation/front/first": np.int64},
    )

    def __init__(self, path, codec="unaligned"):
        super().__init__((5, 4, 6), fps=raw.FPS)
        self.film = path / "film.mp4"
        # The first and the third have a final observation.
        self.episode_frames = [raw.frames(raw.TOP, index, n) for index, n in enumerate((6, 4, 7))]
        raw.write_video(self.film, self.episode_frames, codec)

    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        begin = sum(map(len, self.episode_frames[:index]))
        clip = VideoFile(self.film).clip(begin, begin + len(self.episode_frames[index]))
        clip_fields = {"clip": clip.data, "first": np.int64(clip.first)}
        episode.metadata["video"] = {"observation": {"front": clip_fields}}
        return episode
