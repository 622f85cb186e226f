"""Measures of the pictures of an episode: a few pairs of frames of each camera."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

import rlds
import tfds_files
from rlds.sources import reading
from rlds.sources.cameras import Frames, VideoFrames, cameras_of, evenly
from rlds.sources.source import Source, SourceError
from rlds.sources.video_frames import frames_of
from rlds.video.fields import cameras_of as videos_of
from rlds_ecosystem.model.fields import as_fields
from rlds_ecosystem.model.nests import leaves_at

__all__ = ["MOST_FILMED", "PAIRS", "Pictures", "SampledCameras"]

MOST_FILMED = 200
"""The number of episodes whose pictures are looked at."""

PAIRS = 16
"""The number of pairs of frames of an episode."""

# Rows between the frames of a pair: those of a displacement, see `rlds.auditing.measures`.
_APART = 4
_MOST_CAMERAS = 8
# The side of thumbnails, and the largest number of compared rows of a frame.
_SIDE, _LINES = 8, 64
# Distances of second differences, in pixels: blur weakens the short distance more.
_FINE, _COARSE = 2, 4


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Measures of frames at even distances; cameras are the first axis.

    Attributes:
      rows: The first row of each pair of frames.
      changes: The mean difference of each pair, in grey levels; NaN where nothing moves.
      contrast: The deviation of the pixels of the first frame of each pair.
      sharpness: The logarithm of fine second differences over coarse ones; the median frame.
      thumbnails: The mean frame, of shape `[cameras, side, side, 3]`.
    """

    rows: np.ndarray
    changes: np.ndarray
    contrast: np.ndarray
    sharpness: np.ndarray
    thumbnails: np.ndarray


class SampledCameras:
    """The cameras of a dataset, images and video; it can be pickled.

    Args:
      source: The source.

    Attributes:
      names: The paths of the cameras.
      why_not: The reasons why cameras are not assessed, in sentences.
    """

    def __init__(self, source: Source) -> None:
        self._stills, self._video = reading.with_image_files(source), None
        self.why_not: list[str] = []
        try:
            self._video = frames_of(source)
            if self._video is None and (videos := videos_of(source.fields.episode)):
                self.why_not.append(f"{', '.join(videos)}: install PyAV (rlds[video])")
        except SourceError as error:
            self.why_not.append(f"the video of cameras: {error}")
        steps = dict(leaves_at(as_fields(self._stills.fields.steps), None))
        cameras = {**cameras_of(steps), **(self._video.cameras if self._video else {})}
        self._fields = {path: it for path, it in cameras.items() if it.column_dtype == np.uint8}
        if len(self._fields) < len(cameras):
            self.why_not.append(f"depths: {', '.join(sorted({*cameras} - {*self._fields}))}")
        if len(self._fields) > _MOST_CAMERAS:
            self.why_not.append(f"cameras: {_MOST_CAMERAS} of {len(self._fields)} were looked at")
        self.names = list(self._fields)[:_MOST_CAMERAS]

    def measure(self, split: str, index: int, moves: np.ndarray) -> Pictures | None:
        """Measures the frames of an episode; None if there are none, or one is damaged.

        Args:
          split: The split of the episode.
          index: The number of the episode in the split.
          moves: Whether there is motion from each row to the fourth one after it.
        """
        if not len(moves) or not self.names:
            return None
        first = np.resize(evenly(len(moves), PAIRS), PAIRS)  # All have the same shape.
        rows = np.unique([first, first + _APART])
        try:
            frames = [self._frames(split, index, name, rows.tolist()) for name in self.names]
        except (SourceError, tfds_files.TfdsFilesError):  # Validation reports damage.
            return None
        positions = np.searchsorted(rows, [first, first + _APART])
        by_camera = (_measured(each, positions) for each in frames)
        changes, *other_measures = (np.stack(each) for each in zip(*by_camera))
        return Pictures(first, np.where(moves[first], changes, np.nan), *other_measures)

    def _frames(self, split: str, index: int, camera: str, rows: Sequence[int]) -> list[np.ndarray]:
        field, path = self._fields[camera], f"{rlds.STEPS}/{camera}"
        if self._video is not None and camera in self._video.cameras:
            return VideoFrames(self._video, split, index, camera, rows[-1] + 1).take(rows)

        def frames(part: slice) -> Frames:
            steps = reading.read(self._stills, split, index, [path], part).steps
            return Frames(dict(leaves_at(steps, None))[camera], field)

        if field.encoding or not self._stills.can.reads_rows:
            return frames(slice(None)).take(rows)
        return [frames(slice(row, row + 1))[0] for row in rows]


def _measured(frames: Sequence[np.ndarray], positions: np.ndarray) -> tuple[np.ndarray, ...]:
    small = [_lines(frame) for frame in frames]
    greys = np.stack([frame.mean(2) for frame in small])
    firsts, seconds = positions
    return (
        np.abs(greys[firsts] - greys[seconds]).mean((1, 2)),
        greys[firsts].std((1, 2)),
        np.median([_sharpness(grey) for grey in greys]),
        np.mean([_thumbnail(frame) for frame in small], axis=0),
    )


def _lines(frame: np.ndarray) -> np.ndarray:
    """Some lines of a frame, each the mean of two, so that there is less noise."""
    frame = frame[..., None] if frame.ndim == 2 else frame[..., :3]
    stride = max(2, -(-len(frame) // _LINES))
    lines = frame[: len(frame) // stride * stride].astype(np.float32)
    return (lines[::stride] + lines[1::stride]) / 2


def _sharpness(grey: np.ndarray) -> float:
    energies = [
        ((grey[:, 2 * width :] - 2 * grey[:, width:-width] + grey[:, : -2 * width]) ** 2).mean()
        for width in (_FINE, _COARSE)
        if grey.shape[1] > 2 * width
    ]
    return float(np.log((energies[0] + 1) / (energies[-1] + 1))) if energies else 0.0


def _thumbnail(frame: np.ndarray) -> np.ndarray:
    """The mean colours of a grid; of few pixels, some are there several times."""
    edges = [np.linspace(0, size, _SIDE + 1).astype(int) for size in frame.shape[:2]]
    for axis, edge in enumerate(edges):
        ends = np.maximum(edge[1:], edge[:-1] + 1)
        parts = [frame.take(range(*pair), axis).mean(axis) for pair in zip(edge[:-1], ends)]
        frame = np.stack(parts, axis)
    return np.broadcast_to(frame, (_SIDE, _SIDE, 3))
