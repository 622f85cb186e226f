"""Episodes in HDF5 files that have video files beside them, a file for each camera."""

from __future__ import annotations

import abc
from collections.abc import Collection
from typing import Any

import numpy as np
from etils import epath

from rlds.formats.hdf5_source import Hdf5EpisodesSource
from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import SourceError
from rlds.video import VIDEO
from rlds.video.container import VideoFile
from rlds.video.fields import clip_fields, clip_values
from rlds_ecosystem.fields import Field

__all__ = ["Hdf5VideosSource"]


class Hdf5VideosSource(Hdf5EpisodesSource):
    """Episodes with videos, a frame for each step; where there are fewer, the last steps have none.

    Derived classes add `_clip_fields` to their `_other_fields`, and `_clips` to their `_others`.
    """

    @abc.abstractmethod
    def _cameras_seen(self) -> Collection[str]:
        """Returns the paths of the step fields of which there are videos."""

    @abc.abstractmethod
    def _video_file(self, index: int, camera: str) -> epath.Path:
        """Returns the file of a camera, which may be missing; cameras are as in `_cameras_seen`."""

    def _clip_fields(self) -> dict[str, Field]:
        return {
            f"{VIDEO}/{camera}/{name}": field
            for camera in self._cameras_seen()
            for name, field in clip_fields(has_frames=True).items()
        }

    def _clips(self, split: str, index: int, wanted: Collection[str]) -> dict[str, Any]:
        """Returns the values of the fields of the wanted cameras."""
        found: dict[str, Any] = {}
        for camera in self._cameras_seen():
            file, path = self._video_file(index, camera), f"{VIDEO}/{camera}"
            if not any(field.startswith(f"{path}/") for field in wanted):
                continue
            if not file.exists():
                raise SourceError("the video is missing", file=file, field=path)
            with source_errors(file, field=path), VideoFile(file) as video:
                if video.fault:
                    raise SourceError(video.fault, file=file, field=path)
                number = video.info.num_frames
                clip = video.clip(0, number)
            steps = np.arange(self.outline(split, index).num_steps)
            values = clip_values(clip, np.where(steps < number, steps, -1))
            found.update({f"{path}/{name}": value for name, value in values.items()})
        return found
