"""Where episodes begin, by the steps themselves, where there is no index.

A step with step type FIRST begins an episode, and so does the step after one with step type LAST,
unless its mark says otherwise; see `Data.EpisodeMark` in storage.proto.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import dm_env
from google.protobuf.message import DecodeError

from envlogger.converters import codec
from envlogger.errors import EnvLoggerError
from envlogger.proto.storage_pb2 import Data

__all__ = ["StepKind", "kind_of"]


class StepKind(NamedTuple):
    """What a record of a file of steps is.

    Attributes:
      step_type: The type of the step; None if it is no step, or not one that this package wrote.
      mark: Where it stands in its episode, if the types do not say so.
    """

    step_type: int | None
    mark: int

    @property
    def is_step(self) -> bool:
        """Whether it is a step, rather than a note about steps."""
        return self.mark not in (Data.DISCARDED, Data.METADATA)

    @property
    def is_last(self) -> bool:
        """Whether its type is LAST."""
        return bool(self.step_type == dm_env.StepType.LAST)

    def begins_episode(self, is_after_last: bool) -> bool:
        """Whether the step begins an episode.

        Args:
          is_after_last: Whether the step before it in the same shard has the type LAST.
        """
        if self.mark == Data.BEGINS:
            return True
        if self.mark == Data.CONTINUES:
            return False
        return is_after_last or bool(self.step_type == dm_env.StepType.FIRST)


# A step is a tuple (timestep, action, custom data), and the timestep a tuple that begins with the
# type. These are the tags in front of that, each followed by a length.
_TAGS = bytes((0x1A, 0x0A, 0x1A, 0x0A, 0x0A))
_MAX_SHIFT = 63  # In what is a length, all bits lie below that.
_TYPES = {codec.encode(int(t)).datum.SerializeToString(): int(t) for t in dm_env.StepType}
_TYPE_SIZE = len(next(iter(_TYPES)))
_MARK_TAG = Data(episode_mark=Data.BEGINS).SerializeToString()[:-1]


def kind_of(record: bytes) -> StepKind:
    """What a record of a file of steps is; a few bytes of it are enough."""
    try:
        return _kind_by_bytes(record) or _kind_by_parsing(record)
    except IndexError:
        return _kind_by_parsing(record)


def _kind_by_bytes(record: bytes) -> StepKind | None:
    begin = 0
    end = 0
    for depth, tag in enumerate(_TAGS):
        if record[begin] != tag:
            return None
        size = shift = 0
        while (byte := record[begin + 1]) & 0x80:
            size |= (byte & 0x7F) << shift
            shift += 7
            begin += 1
            if shift > _MAX_SHIFT:
                return None
        size |= byte << shift
        begin += 2
        if depth == 0:
            end = begin + size
    step_type = _TYPES.get(record[begin : begin + _TYPE_SIZE])
    if step_type is None:
        return None
    if end == len(record):
        return StepKind(step_type, Data.NONE)
    if end == len(record) - len(_MARK_TAG) - 1 and record.startswith(_MARK_TAG, end):
        return StepKind(step_type, record[-1])
    return None


def _kind_by_parsing(record: bytes) -> StepKind:
    try:
        data = Data.FromString(record)
    except DecodeError:  # EnvLogger's bindings store messages of any type.
        return StepKind(None, Data.NONE)
    step_type = None
    if data.tuple.values and data.tuple.values[0].tuple.values:
        with contextlib.suppress(EnvLoggerError):  # It shows when the step is read.
            value = codec.decode(data.tuple.values[0].tuple.values[0])
            step_type = value if isinstance(value, int) else None
    return StepKind(step_type, data.episode_mark)
