"""The fields of an episode for the video clip of a camera."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from etils import epath

import rlds
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.video import CLIP, FIRST, FRAMES, VIDEO
from rlds.video.container import Clip, VideoFile
from rlds_ecosystem.model.fields import DepthCodes, Field

__all__ = [
    "DEPTH_CODES_DOC",
    "PER_METRE",
    "camera_path",
    "cameras_of",
    "clip_fields",
    "clip_values",
    "depths_of_codes",
    "read_video",
    "video_fields",
]

PER_METRE = {"m": 1.0, "mm": 1000.0}
"""Units of depth per metre, by the name of the unit."""

DEPTH_CODES_DOC = "Depths of the codes of a video."
"""The `doc` of depth fields that were decoded from quantised video."""


def clip_fields(
    *, has_frames: bool = False, unit: str | None = None, codes: DepthCodes | None = None
) -> dict[str, Field]:
    """Returns the fields of the video clip of a camera.

    Args:
      has_frames: True if frames and steps do not match one to one.
      unit: The unit of depth, for depth video.
      codes: The quantisation of depth, if the pixels are codes.
    """
    fields = {
        CLIP: Field(bytes, unit=unit, doc="A video file that plays alone.", codes=codes),
        FIRST: Field(np.int64, doc="How many of its frames come before that of step 0."),
    }
    if has_frames:
        fields[FRAMES] = Field(np.int64, (None,), doc="Which of its frames each step has.")
    return fields


def video_fields(cameras: Iterable[str]) -> dict[str, Field]:
    """Returns the fields of an episode for the clips of cameras.

    Args:
      cameras: The paths of the image fields of a step.
    """
    return {
        f"{VIDEO}/{camera}/{name}": field
        for camera in cameras
        for name, field in clip_fields(has_frames=True).items()
    }


def read_video(
    file: epath.Path, camera: str, frames_of: Callable[[np.ndarray], np.ndarray]
) -> dict[str, Any]:
    """Returns the values of the `video_fields` of a camera.

    Args:
      file: The video file.
      camera: The path of the image field of a step.
      frames_of: Takes the times of the frames. Returns the frame of each step; -1 for none.

    Raises:
      SourceError: The file is damaged.
    """
    path = f"{VIDEO}/{camera}"
    with source_errors(file, field=path):
        video = VideoFile(file)
        if video.fault:
            raise SourceError(video.fault, file=file, field=path)
        times = video.times
        values = clip_values(video.clip(0, len(times)), frames_of(times))
    return {f"{path}/{name}": value for name, value in values.items()}


def depths_of_codes(codes: DepthCodes | None, unit: str | None) -> np.ndarray | None:
    """Returns the lookup table of depths by code, float32; None without a quantisation.

    Args:
      codes: The quantisation.
      unit: The unit of the depths.
    """
    if codes is None:
        return None
    depths = codes.decode(np.arange(codes.levels + 1)) * PER_METRE[unit or "m"]
    return depths.astype(np.float32)


def clip_values(clip: Clip, frames: np.ndarray | None = None) -> dict[str, Any]:
    """Returns the values of `clip_fields`.

    Args:
      clip: The frames of the episode.
      frames: The frame of each step, counted from `clip.first`; -1 for none. None if frames and
        steps match one to one.
    """
    values: dict[str, Any] = {CLIP: clip.data, FIRST: np.int64(clip.first)}
    if frames is not None:
        frames = np.asarray(frames, np.int64)
        values[FRAMES] = np.where(frames < 0, -1, frames + clip.first)
    return values


def camera_path(path: str) -> str:
    """Returns the path of a field; the path of the image field for the fields of a clip.

    >>> camera_path("video/observation/top/clip"), camera_path("success")
    ('steps/observation/top', 'success')
    """
    camera, _, key = path.removeprefix(f"{VIDEO}/").rpartition("/")
    is_clip = path.startswith(f"{VIDEO}/") and camera and key in (CLIP, FIRST, FRAMES)
    return f"{rlds.STEPS}/{camera}" if is_clip else path


def cameras_of(episode_fields: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the step fields whose frames are in clips of the episode."""

    def paths_below(fields: Mapping[str, Any], path: str) -> Iterator[str]:
        if isinstance(fields.get(CLIP), Field) and isinstance(fields.get(FIRST), Field):
            yield path
            return
        for name, field in fields.items():
            if isinstance(field, Mapping):
                yield from paths_below(field, f"{path}/{name}" if path else name)

    fields = episode_fields.get(VIDEO)
    return list(paths_below(fields, "")) if isinstance(fields, Mapping) else []
