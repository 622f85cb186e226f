"""Video files beside the HDF5 file of an episode, a file for each camera."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from etils import epath

from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import SourceError
from rlds.video import VIDEO
from rlds.video.container import VideoFile
from rlds.video.fields import clip_fields, clip_values
from rlds_ecosystem.fields import Field

__all__ = ["read_videos", "video_fields"]


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


def read_videos(
    files: Mapping[str, epath.Path], num_steps: int, wanted: Collection[str]
) -> dict[str, Any]:
    """Returns the values of `video_fields`, of the wanted cameras.

    A frame belongs to each step; where there are fewer, the last steps have none.

    Args:
      files: The files of the cameras; they may be missing.
      num_steps: How many steps the episode has.
      wanted: The paths of the fields that are wanted.

    Raises:
      SourceError: A file is missing or damaged.
    """
    found: dict[str, Any] = {}
    for camera, file in files.items():
        path = f"{VIDEO}/{camera}"
        if not any(field.startswith(f"{path}/") for field in wanted):
            continue
        if not file.exists():
            raise SourceError("the video is missing", file=file, field=path)
        with source_errors(file, field=path):
            video = VideoFile(file)
            if video.fault:
                raise SourceError(video.fault, file=file, field=path)
            number = video.info.num_frames
            clip = video.clip(0, number)
        steps = np.arange(num_steps)
        values = clip_values(clip, np.where(steps < number, steps, -1))
        found.update({f"{path}/{name}": value for name, value in values.items()})
    return found
