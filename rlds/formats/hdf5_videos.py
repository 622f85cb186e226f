"""Video files beside the HDF5 file of an episode, a file for each camera."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from etils import epath

from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import SourceError
from rlds.video import VIDEO
from rlds.video.container import VideoFile
from rlds.video.fields import clip_fields, clip_values
from rlds_ecosystem.model.fields import Field

__all__ = ["read_video", "video_fields"]


def video_fields(cameras: Iterable[str]) -> dict[str, Field]:
    """Returns the fields of an episode that hold its videos.

    Args:
      cameras: The paths of the fields of a step that they show.
    """
    return {
        f"{VIDEO}/{camera}/{name}": field
        for camera in cameras
        for name, field in clip_fields(has_frames=True).items()
    }


def read_video(file: epath.Path, camera: str, num_steps: int) -> dict[str, Any]:
    """Returns the values of the `video_fields` of a camera.

    A frame belongs to each step; where there are fewer, the last steps have none.

    Args:
      file: The video.
      camera: The path of the field of a step that it shows.
      num_steps: How many steps the episode has.

    Raises:
      SourceError: The file is damaged.
    """
    path = f"{VIDEO}/{camera}"
    with source_errors(file, field=path):
        video = VideoFile(file)
        if video.fault:
            raise SourceError(video.fault, file=file, field=path)
        number = video.info.num_frames
        clip = video.clip(0, number)
    steps = np.arange(num_steps)
    values = clip_values(clip, np.where(steps < number, steps, -1))
    return {f"{path}/{name}": value for name, value in values.items()}
