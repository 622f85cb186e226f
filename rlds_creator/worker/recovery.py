"""Episodes whose worker was killed."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import envlogger
from rlds_creator.worker.recording import finite, total

__all__ = ["RecoveredEpisode", "recover_episode"]


@dataclasses.dataclass(frozen=True)
class RecoveredEpisode:
    """What the log of an episode holds.

    Attributes:
      num_steps: How many steps, with the one of the reset.
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
        num_steps, total_reward, times = 0, 0.0, []
        for step in reader.episodes[0]:
            num_steps += 1
            total_reward += total(step.timestep.reward)
            times.append(float(step.custom_data["time"]))
        metadata = reader.episode_metadata()[0] or {}
    return RecoveredEpisode(num_steps, finite(total_reward), metadata, times[0], times[-1])
