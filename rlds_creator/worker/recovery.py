"""Episodes whose worker was killed."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import envlogger
from rlds_creator.recorded import TIME
from rlds_creator.worker.recording import finite, total

__all__ = ["RecoveredEpisode", "recover_episode"]


@dataclasses.dataclass(frozen=True)
class RecoveredEpisode:
    """An episode that is recovered from its log after a crash.

    Attributes:
      num_steps: The number of steps, with the one of the reset.
      total_reward: The sum of the rewards.
      metadata: The metadata of the episode; empty if there is none.
      started: When the first step was recorded, in seconds since 1970.
      ended: When the last one was.
    """

    num_steps: int
    total_reward: float
    metadata: dict[str, Any]
    started: float
    ended: float


def recover_episode(directory: str | os.PathLike[str]) -> RecoveredEpisode | None:
    """Makes the log of an episode readable after its worker was killed.

    All steps whose picture was sent are in it, and maybe one more. Recovering one that is whole
    changes nothing.

    Args:
      directory: The directory of the log. Nobody records to it any more.

    Returns:
      What is in it; None if there is no step.

    Raises:
      envlogger.errors.StorageError: There is no log, or it cannot be read.
    """
    envlogger.recover(directory, in_place=True)
    with envlogger.Reader(directory) as reader:
        if not len(reader.episodes):
            return None
        fields = [("reward",), ("custom_data", TIME)]
        rewards, times = zip(*reader.pick(0, range(len(reader.episodes[0])), fields))
        metadata = reader.episode_metadata()[0]
    total_reward = finite(sum(map(total, rewards)))
    metadata = metadata if isinstance(metadata, dict) else {}
    return RecoveredEpisode(len(times), total_reward, metadata, float(times[0]), float(times[-1]))
