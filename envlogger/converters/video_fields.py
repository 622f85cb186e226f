"""Camera fields of observations that are stored as packets of video.

Instead of the frame, a step holds the packet and the number of steps since the last keyframe, with
which decoding begins: `{"packet": bytes, "since_key": int}`. The entry `video` of the metadata of
the log describes the video of each field, by path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from envlogger.step_data import StepData
from rlds_ecosystem.model.errors import DamagedDataError
from rlds_ecosystem.video_codec import FrameDecoder

__all__ = [
    "KEY",
    "OBSERVATION",
    "PACKET",
    "SINCE_KEY",
    "VideoFields",
    "drop_value",
    "get_value",
    "replace_value",
]

KEY = "video"
"""The name in the metadata of a log."""

OBSERVATION = "observation"
PACKET, SINCE_KEY = "packet", "since_key"


def get_value(value: Any, path: Sequence[str]) -> Any:
    """Returns the value at a path of nested dicts; None if missing."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def replace_value(value: Any, path: Sequence[str], new: Any) -> Any:
    """Replaces the value at a path in a copy of nested dicts.

    >>> replace_value({"a": {"b": 1, "c": 2}}, ["a", "b"], 3)
    {'a': {'b': 3, 'c': 2}}
    """
    if not path:
        return new
    return {**value, path[0]: replace_value(value[path[0]], path[1:], new)}


def drop_value(value: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Removes the value at a path, and dicts that become empty, in a copy of nested dicts.

    >>> drop_value({"a": {"b": 1}, "c": 2}, ["a", "b"])
    {'c': 2}
    """
    name, *inner = path
    remaining = {key: item for key, item in value.items() if key != name}
    if inner and (child := drop_value(value[name], inner)):
        return {**value, name: child}
    return remaining


class VideoFields:
    """Decodes the video fields of a log.

    Args:
      metadata: The metadata of the log.

    Attributes:
      cameras: The descriptions of the videos, by path of the field in the observation.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.cameras: dict[tuple[str, ...], Mapping[str, Any]] = {}
        videos = metadata.get(KEY)
        for name, video in videos.items() if isinstance(videos, Mapping) else ():
            root, *path = str(name).split("/")
            if root == OBSERVATION and isinstance(video, Mapping) and "codec" in video:
                self.cameras[tuple(path)] = video

    def __bool__(self) -> bool:
        return bool(self.cameras)

    @property
    def codecs(self) -> dict[str, str]:
        """The codecs of the fields, by their paths."""
        return {"/".join(path): str(video["codec"]) for path, video in self.cameras.items()}

    def steps(
        self, read: Callable[[int, int], Iterable[StepData]], begin: int, end: int
    ) -> Iterator[StepData]:
        """Yields steps with their frames.

        Args:
          read: A function that returns the stored steps from a begin to an end.
          begin: The index of the first step.
          end: The index after the last step.

        Raises:
          DamagedDataError: A frame cannot be decoded.
        """
        if begin >= end:
            return
        [first_step] = read(begin, begin + 1)
        lead = max(self._get_since_key(first_step, path, begin) for path in self.cameras)
        decoders: dict[tuple[str, ...], FrameDecoder] = {}
        for step_index, step in enumerate(read(begin - lead, end), begin - lead):
            observation = step.timestep.observation
            for path in self.cameras:
                if not self._get_since_key(step, path, step_index):
                    decoders[path] = FrameDecoder(str(self.cameras[path]["codec"]))
                if path not in decoders:  # Another camera needs the step.
                    continue
                packet = get_value(step.timestep.observation, path)[PACKET]
                frame = self._decode_frame(decoders[path], packet, path, step_index)
                observation = replace_value(observation, path, frame)
            if step_index >= begin:
                yield step._replace(timestep=step.timestep._replace(observation=observation))

    def columns(self, observation: Any, name: str) -> Any:
        """Decodes the frames in a column of observations of complete episodes.

        Args:
          observation: The column, with packets.
          name: The name of the episodes in error messages.

        Raises:
          DamagedDataError: A frame cannot be decoded.
        """
        for path, video in self.cameras.items():
            packets = get_value(observation, path)
            decoder: FrameDecoder | None = None
            frames: np.ndarray | None = None
            for row, (packet, since_key) in enumerate(zip(packets[PACKET], packets[SINCE_KEY])):
                if not since_key:
                    decoder = FrameDecoder(str(video["codec"]))
                if decoder is None:
                    raise DamagedDataError(f"{name}: {'/'.join(path)} does not begin with a key")
                frame = self._decode_frame(decoder, packet, path, row)
                if frames is None:
                    frames = np.empty((len(packets[PACKET]), *frame.shape), frame.dtype)
                if frame.shape != frames.shape[1:]:
                    raise DamagedDataError(f"{name}: frames of {'/'.join(path)} differ in size")
                frames[row] = frame
            observation = replace_value(observation, path, frames)
        return observation

    def _get_since_key(self, step: StepData, path: Sequence[str], step_index: int) -> int:
        packet = get_value(step.timestep.observation, path)
        since_key = packet.get(SINCE_KEY) if isinstance(packet, Mapping) else None
        if not isinstance(since_key, int | np.integer) or not 0 <= since_key <= step_index:
            raise DamagedDataError(f"step {step_index}: no packet of video at {'/'.join(path)}")
        return int(since_key)

    @staticmethod
    def _decode_frame(
        decoder: FrameDecoder, packet: bytes, path: Sequence[str], step_index: int
    ) -> np.ndarray:
        try:
            return next(decoder.decode([packet]))
        except DamagedDataError as error:
            raise DamagedDataError(f"step {step_index}, {'/'.join(path)}: {error}") from error
