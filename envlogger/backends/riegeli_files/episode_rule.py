"""Episode boundaries of steps without an index, from their step types.

A step of type FIRST begins an episode, and so does the step after a step of type LAST. An episode
mark takes precedence over the types; see `Data.EpisodeMark` in storage.proto.
"""

from __future__ import annotations

from typing import NamedTuple

import dm_env
from google.protobuf.message import DecodeError

from envlogger.proto.storage_pb2 import Data

__all__ = ["StepKind", "parse_kind"]


class StepKind(NamedTuple):
    """The step type and the episode mark of a record.

    Attributes:
      step_type: The type of the step; None if the record is not a step of this package.
      mark: The episode mark of the record.
    """

    step_type: int | None
    mark: int

    @property
    def is_step(self) -> bool:
        """Whether the record is a step, not a discard mark or episode metadata."""
        return self.mark not in (Data.DISCARDED, Data.METADATA)

    @property
    def is_last(self) -> bool:
        """Whether the type of the step is LAST."""
        return bool(self.step_type == dm_env.StepType.LAST)

    def begins_episode(self, is_after_last: bool) -> bool:
        """Returns whether the step begins an episode.

        Args:
          is_after_last: Whether the previous step of the shard has the type LAST.
        """
        if self.mark == Data.BEGINS:
            return True
        if self.mark == Data.CONTINUES:
            return False
        return is_after_last or bool(self.step_type == dm_env.StepType.FIRST)


def parse_kind(record: bytes) -> StepKind:
    """Parses the step type and the episode mark of a record."""
    try:
        data = Data.FromString(record)
    except DecodeError:  # EnvLogger's bindings store messages of any type.
        return StepKind(None, Data.NONE)
    # A step is a tuple (timestep, action, custom data), and the timestep a tuple that begins with
    # the step type, an integer. `codec.decode` would take most of the time.
    step = data.tuple.values
    timestep = step[0].tuple.values if step else ()
    integers = timestep[0].datum.values.bigint_values if timestep else ()
    step_type = int.from_bytes(integers[0], "big", signed=True) if integers else None
    return StepKind(step_type, data.episode_mark)
