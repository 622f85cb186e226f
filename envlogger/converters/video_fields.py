"""Fields of observations that are kept as packets of video.

In the place of the frame, a step has the packet and how many steps come between it and the one that
decoding begins with: `{"packet": bytes, "since_key": int}`. The metadata of the log says under
`video`, by the paths of the fields, what the video is.
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
    "replaced",
    "value_at",
    "without",
]

KEY = "video"
"""The name in the metadata of a log."""

OBSERVATION = "observation"
PACKET, SINCE_KEY = "packet", "since_key"


def value_at(value: Any, path: Sequence[str]) -> Any:
    """Returns the value at a path of nested dicts; None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def replaced(value: Any, path: Sequence[str], new: Any) -> Any:
    """Returns nested dicts with another value at a path.

    >>> replaced({"a": {"b": 1, "c": 2}}, ["a", "b"], 3)
    {'a': {'b': 3, 'c': 2}}
    """
    if not path:
        return new
    return {**value, path[0]: replaced(value[path[0]], path[1:], new)}


def without(value: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Returns nested dicts without the value at a path, and without dicts that become empty.

    >>> without({"a": {"b": 1}, "c": 2}, ["a", "b"])
    {'c': 2}
    """
    name, *inner = path
    remaining = {key: item for key, item in value.items() if key != name}
    if inner and (left := without(value[name], inner)):
        return {**value, name: left}
    return remaining


class VideoFields:
    """Decodes the fields of a log that are video.

    Args:
      metadata: The metadata of the log.

    Attributes:
      cameras: The paths of the fields in the observation, with what their video is.

    Raises:
      DamagedDataError: The metadata says something else than a recorder writes.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.cameras: dict[tuple[str, ...], Mapping[str, Any]] = {}
        stored = metadata.get(KEY)
        for name, video in stored.items() if isinstance(stored, Mapping) else ():
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
          read: Gives steps as they are stored, from one on to before another.
          begin: The first step.
          end: The step after the last one.

        Raises:
          DamagedDataError: A frame cannot be decoded; says of which step.
        """
        if begin >= end:
            return
        [first] = read(begin, begin + 1)
        lead = max(self._since_key(first, path, begin) for path in self.cameras)
        decoders: dict[tuple[str, ...], FrameDecoder] = {}
        for step_index, step in enumerate(read(begin - lead, end), begin - lead):
            observation = step.timestep.observation
            for path in self.cameras:
                if not self._since_key(step, path, step_index):
                    decoders[path] = FrameDecoder(str(self.cameras[path]["codec"]))
                if path not in decoders:  # Another camera needs this step.
                    continue
                stored = value_at(step.timestep.observation, path)
                frame = self._frame(decoders[path], stored[PACKET], path, step_index)
                observation = replaced(observation, path, frame)
            if step_index >= begin:
                yield step._replace(timestep=step.timestep._replace(observation=observation))

    def columns(self, observation: Any, name: str) -> Any:
        """Returns the column of observations with decoded frames, for complete episodes.

        Args:
          observation: The column, with packets.
          name: Their name in errors.

        Raises:
          DamagedDataError: A frame cannot be decoded.
        """
        for path, video in self.cameras.items():
            stored = value_at(observation, path)
            decoder: FrameDecoder | None = None
            frames: np.ndarray | None = None
            for row, (packet, since) in enumerate(zip(stored[PACKET], stored[SINCE_KEY])):
                if not since:
                    decoder = FrameDecoder(str(video["codec"]))
                if decoder is None:
                    raise DamagedDataError(f"{name}: {'/'.join(path)} does not begin with a key")
                frame = self._frame(decoder, packet, path, row)
                if frames is None:
                    frames = np.empty((len(stored[PACKET]), *frame.shape), frame.dtype)
                if frame.shape != frames.shape[1:]:
                    raise DamagedDataError(f"{name}: frames of {'/'.join(path)} differ in size")
                frames[row] = frame
            observation = replaced(observation, path, frames)
        return observation

    def _since_key(self, step: StepData, path: Sequence[str], step_index: int) -> int:
        stored = value_at(step.timestep.observation, path)
        since = stored.get(SINCE_KEY) if isinstance(stored, Mapping) else None
        if not isinstance(since, int | np.integer) or not 0 <= since <= step_index:
            raise DamagedDataError(f"step {step_index}: no packet of video at {'/'.join(path)}")
        return int(since)

    @staticmethod
    def _frame(
        decoder: FrameDecoder, packet: bytes, path: Sequence[str], step_index: int
    ) -> np.ndarray:
        try:
            return next(decoder.decode([packet]))
        except DamagedDataError as error:
            raise DamagedDataError(f"step {step_index}, {'/'.join(path)}: {error}") from error
