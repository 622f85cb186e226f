"""The camera fields of a dataset, and their frames as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tfds_files
from rlds.sources.video_frames import FramesSource
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field

__all__ = ["Frames", "VideoFrames", "cameras_of", "evenly", "fault_of"]

# The smallest sides of images: of uint8 arrays with channels, and of other arrays. Smaller arrays
# are matrices.
_MIN_SIDE, _MIN_ARRAY_SIDE = 8, 32
_CHANNEL_COUNTS = (1, 3, 4)
# The largest value of a black pixel: JPEG is not exact.
_MAX_BLACK_VALUE = 3


def cameras_of(leaves: Mapping[str, Any]) -> dict[str, Field]:
    """Returns the fields of steps with images: uint8 with 1, 3 or 4 channels, or depths.

    Args:
      leaves: The fields of a step, by path.

    >>> list(cameras_of({"a": Field(np.uint8, (64, 64, 3)), "b": Field(np.float32, (7,))}))
    ['a']
    """
    return {
        path: field
        for path, field in leaves.items()
        if isinstance(field, Field) and _is_camera(field)
    }


def _is_camera(field: Field) -> bool:
    shape, dtype = field.shape, field.column_dtype
    if field.encoding:
        return True
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in _CHANNEL_COUNTS):
        return False
    min_side = _MIN_SIDE if dtype == np.uint8 and len(shape) == 3 else _MIN_ARRAY_SIDE
    is_depth = dtype.kind in "fu" and (len(shape) == 2 or shape[2] == 1)
    is_large = all(side is None or side >= min_side for side in shape[:2])
    return is_large and (dtype == np.uint8 or is_depth)


class Frames(Sequence[np.ndarray]):
    """The camera frames of an episode, decoded on access.

    Args:
      column: The column of the steps: arrays, or the bytes of image files.
      field: The field.
    """

    def __init__(self, column: Any, field: Field) -> None:
        self.column = column
        self._feature = tfds_files.Image(shape=field.shape, dtype=field.column_dtype)

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, index: Any) -> Any:
        """Returns a frame.

        Raises:
          TfdsFilesError: The frame is damaged.
        """
        frame = self.column[index]
        if isinstance(frame, bytes):
            return tfds_files.decode_image(frame, self._feature)
        return np.asarray(frame)

    def take(self, indices: Sequence[int]) -> list[np.ndarray]:
        """Returns the frames of ascending indices.

        Raises:
          TfdsFilesError: A frame is damaged.
        """
        return [self[index] for index in indices]


class VideoFrames:
    """`Frames` of an episode with a video clip.

    Args:
      source: The source that decodes the clip.
      split: The split.
      index: The episode.
      camera: The field.
      num_steps: The number of steps.
    """

    def __init__(
        self, source: FramesSource, split: str, index: int, camera: str, num_steps: int
    ) -> None:
        self._source, self._camera, self._num_steps = source, camera, num_steps
        self._episode = split, index

    def __len__(self) -> int:
        return self._num_steps

    def take(self, indices: Sequence[int]) -> list[np.ndarray]:
        """Returns the frames of ascending indices.

        A step without a frame gets the next frame; after the last frame, the last frame.

        Raises:
          SourceError: A frame cannot be decoded.
        """
        mark = known_field(self._camera)
        if mark in self._source.marks:
            steps = range(self._num_steps)
            with_frame = np.flatnonzero(self._source.rows(*self._episode, mark, steps))
            if count := len(with_frame):
                indices = with_frame[np.searchsorted(with_frame, indices).clip(max=count - 1)]
        return list(self._source.rows(*self._episode, self._camera, indices))


def evenly(size: int, max_indices: int) -> list[int]:
    """Returns evenly spread indices of a sequence, including the first and the last.

    >>> evenly(10, 4), evenly(2, 4)
    ([0, 3, 6, 9], [0, 1])
    """
    if size <= max_indices:
        return list(range(size))
    return [round(i * (size - 1) / max(max_indices - 1, 1)) for i in range(max_indices)]


def fault_of(frames: Frames, *, decode_all: bool = False) -> str:
    """Describes the fault of the frames of an episode; empty without a fault.

    The search ends at a frame of several colors, usually the first one.

    Args:
      frames: The frames.
      decode_all: Whether to decode all frames, which detects all damaged frames.

    Raises:
      TfdsFilesError: A frame is damaged.
    """
    if decode_all:
        for frame in frames:
            del frame
    if not len(frames):
        return ""
    first_frame = frames[0]
    # The frames most likely to show a fault come first.
    for index in dict.fromkeys([*evenly(len(frames), 5), *range(len(frames))]):
        if np.ptp(frames[index]):
            return "is frozen" if _is_frozen(frames) else ""
    return "is black" if first_frame.max() <= _MAX_BLACK_VALUE else "shows a single color"


def _is_frozen(frames: Frames) -> bool:
    """Whether there are at least three frames and all are equal."""
    if len(frames) < 3:
        return False
    column = frames.column
    if isinstance(column, np.ndarray) and column.dtype != object:
        return bool((column[1] == column[0]).all()) and bool((column == column[:1]).all())
    return len({_digest(frame) for frame in column}) == 1


def _digest(frame: Any) -> bytes:
    data = frame if isinstance(frame, bytes) else np.ascontiguousarray(frame).tobytes()
    return hashlib.blake2b(data, digest_size=16).digest()
