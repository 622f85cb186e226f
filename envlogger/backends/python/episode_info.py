"""The range of steps of an episode in a recording."""

from __future__ import annotations

import dataclasses

from envlogger.proto.storage_pb2 import Data

__all__ = ["EpisodeInfo"]


@dataclasses.dataclass
class EpisodeInfo:
    """The range of steps of an episode in a recording, and its metadata.

    Attributes:
      start: The index of the first step.
      num_steps: The number of steps.
      metadata: The stored metadata; None if missing or not requested.

    >>> EpisodeInfo(start=10, num_steps=5)
    EpisodeInfo(start=10, num_steps=5, metadata=None)
    """

    start: int = 0
    num_steps: int = 0
    metadata: Data | None = None
