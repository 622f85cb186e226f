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
from rlds.video.fields import cameras_of as video_cameras
from rlds_ecosystem.model.fields import as_fields
from rlds_ecosystem.model.nests import leaves_at

__all__ = ["MAX_FILMED", "PAIRS", "CameraSample", "Pictures"]

MAX_FILMED = 200
"""The largest number of episodes whose pictures are assessed."""

PAIRS = 16
"""The number of pairs of frames of an episode."""

# The number of rows between the frames of a pair, as for displacements (`rlds.auditing.measures`).
_PAIR_STRIDE = 4
_MAX_CAMERAS = 8
# The side of thumbnails, and the largest number of compared lines of a frame.
_THUMBNAIL_SIDE, _MAX_COMPARED_LINES = 8, 64
# Strides of second differences, in pixels: blur reduces fine differences more.
_FINE_STRIDE, _COARSE_STRIDE = 2, 4


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Measures of evenly spaced frames; cameras are the first axis.

    Attributes:
      rows: The first row of each pair of frames.
      changes: The mean difference of each pair, in grey levels; NaN if nothing moves.
      contrast: The deviation of the pixels of the first frame of each pair.
      sharpness: The logarithm of fine second differences over coarse ones, in the median frame.
      thumbnails: The mean frame, of shape `[cameras, side, side, 3]`.
    """

    rows: np.ndarray
    changes: np.ndarray
    contrast: np.ndarray
    sharpness: np.ndarray
    thumbnails: np.ndarray


class CameraSample:
    """The cameras of a dataset, images and video; it can be pickled.

    Args:
      source: The source.

    Attributes:
      names: The paths of the cameras.
      why_not: The reasons why cameras are not assessed, in sentences.
    """

    def __init__(self, source: Source) -> None:
        self._images, self._video = reading.with_image_files(source), None
        self.why_not: list[str] = []
        try:
            self._video = frames_of(source)
            if self._video is None and (videos := video_cameras(source.fields.episode)):
                self.why_not.append(f"{', '.join(videos)}: install PyAV (rlds[video])")
        except SourceError as error:
            self.why_not.append(f"the video of cameras: {error}")
        steps = dict(leaves_at(as_fields(self._images.fields.steps), None))
        cameras = {**cameras_of(steps), **(self._video.cameras if self._video else {})}
        self._fields = {p: field for p, field in cameras.items() if field.column_dtype == np.uint8}
        if len(self._fields) < len(cameras):
            self.why_not.append(f"depths: {', '.join(sorted({*cameras} - {*self._fields}))}")
        if len(self._fields) > _MAX_CAMERAS:
            self.why_not.append(f"cameras: {_MAX_CAMERAS} of {len(self._fields)} were assessed")
        self.names = list(self._fields)[:_MAX_CAMERAS]

    def measure(self, split: str, index: int, moves: np.ndarray) -> Pictures | None:
        """Measures the frames of an episode; None without frames, or with damaged ones.

        Args:
          split: The split of the episode.
          index: The index of the episode in the split.
          moves: The result of `find_motion`.
        """
        if not len(moves) or not self.names:
            return None
        first_rows = np.resize(evenly(len(moves), PAIRS), PAIRS)  # Short episodes repeat pairs.
        rows = np.unique([first_rows, first_rows + _PAIR_STRIDE])
        try:
            frames = [self._read(split, index, name, rows.tolist()) for name in self.names]
        except (SourceError, tfds_files.TfdsFilesError):  # `rlds validate` reports it.
            return None
        positions = np.searchsorted(rows, [first_rows, first_rows + _PAIR_STRIDE])
        by_camera = (_measure(camera_frames, positions) for camera_frames in frames)
        changes, *other_measures = (np.stack(arrays) for arrays in zip(*by_camera))
        return Pictures(first_rows, np.where(moves[first_rows], changes, np.nan), *other_measures)

    def _read(self, split: str, index: int, camera: str, rows: Sequence[int]) -> list[np.ndarray]:
        field, path = self._fields[camera], f"{rlds.STEPS}/{camera}"
        if self._video is not None and camera in self._video.cameras:
            return VideoFrames(self._video, split, index, camera, rows[-1] + 1).take(rows)

        def frames(rows: slice) -> Frames:
            steps = reading.read(self._images, split, index, [path], rows).steps
            return Frames(dict(leaves_at(steps, None))[camera], field)

        if field.encoding or not self._images.capabilities.reads_rows:
            return frames(slice(None)).take(rows)
        return [frames(slice(row, row + 1))[0] for row in rows]


def _measure(frames: Sequence[np.ndarray], positions: np.ndarray) -> tuple[np.ndarray, ...]:
    small = [_average_lines(frame) for frame in frames]
    greys = np.stack([frame.mean(2) for frame in small])
    first, second = positions
    return (
        np.abs(greys[first] - greys[second]).mean((1, 2)),
        greys[first].std((1, 2)),
        np.median([_measure_sharpness(grey) for grey in greys]),
        np.mean([_average_colours(frame) for frame in small], axis=0),
    )


def _average_lines(frame: np.ndarray) -> np.ndarray:
    """Returns lines of a frame, each the mean of two lines to reduce noise."""
    frame = frame[..., None] if frame.ndim == 2 else frame[..., :3]
    stride = max(2, -(-len(frame) // _MAX_COMPARED_LINES))
    lines = frame[: len(frame) // stride * stride].astype(np.float32)
    return (lines[::stride] + lines[1::stride]) / 2


def _measure_sharpness(grey: np.ndarray) -> float:
    energies = [
        ((grey[:, 2 * width :] - 2 * grey[:, width:-width] + grey[:, : -2 * width]) ** 2).mean()
        for width in (_FINE_STRIDE, _COARSE_STRIDE)
        if grey.shape[1] > 2 * width
    ]
    return float(np.log((energies[0] + 1) / (energies[-1] + 1))) if energies else 0.0


def _average_colours(frame: np.ndarray) -> np.ndarray:
    """Returns the mean colours of a grid of cells; small frames repeat pixels."""
    axis_edges = [np.linspace(0, size, _THUMBNAIL_SIDE + 1).astype(int) for size in frame.shape[:2]]
    for axis, edges in enumerate(axis_edges):
        cell_ends = np.maximum(edges[1:], edges[:-1] + 1)
        cells = [frame.take(range(*pair), axis).mean(axis) for pair in zip(edges[:-1], cell_ends)]
        frame = np.stack(cells, axis)
    return np.broadcast_to(frame, (_THUMBNAIL_SIDE, _THUMBNAIL_SIDE, 3))
