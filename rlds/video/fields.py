"""The fields that an episode has for the video of a camera."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlds.video import CLIP, FIRST, FRAMES, VIDEO
from rlds.video.container import Clip
from rlds_ecosystem.fields import Field

__all__ = ["cameras_of", "clip_fields", "clip_values"]


def clip_fields(*, has_frames: bool = False) -> dict[str, Field]:
    """Returns the fields of a camera.

    Args:
      has_frames: Whether frames and steps do not match one to one.
    """
    return {
        CLIP: Field(bytes, doc="A video file that plays alone."),
        FIRST: Field(np.int64, doc="How many of its frames come before that of step 0."),
        **(
            {FRAMES: Field(np.int64, (None,), doc="Which of its frames each step has.")}
            if has_frames
            else {}
        ),
    }


def clip_values(clip: Clip, frames: np.ndarray | None = None) -> dict[str, Any]:
    """Returns the values of `clip_fields`.

    Args:
      clip: The frames of the episode.
      frames: Which of them each step has, if they do not match one to one: 0 is `clip.first`, and
        -1 stands for none.
    """
    values: dict[str, Any] = {CLIP: clip.data, FIRST: np.int64(clip.first)}
    if frames is not None:
        frames = np.asarray(frames, np.int64)
        values[FRAMES] = np.where(frames < 0, -1, frames + clip.first)
    return values


def cameras_of(episode_fields: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the step fields whose frames are in clips of the episode."""

    def found(fields: Mapping[str, Any], path: str) -> Iterator[str]:
        if isinstance(fields.get(CLIP), Field) and isinstance(fields.get(FIRST), Field):
            yield path
            return
        for name, field in fields.items():
            if isinstance(field, Mapping):
                yield from found(field, f"{path}/{name}" if path else name)

    fields = episode_fields.get(VIDEO)
    return list(found(fields, "")) if isinstance(fields, Mapping) else []
