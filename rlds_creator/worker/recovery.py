"""Crash recovery: the episode of a killed worker."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import envlogger
from rlds_creator.recorded import TIME
from rlds_creator.worker.recording import as_finite, sum_reward

__all__ = ["RecoveredEpisode", "recover_episode"]


@dataclasses.dataclass(frozen=True)
class RecoveredEpisode:
    """The facts of an episode, recovered from its log after a crash.

    Attributes:
      num_steps: The number of steps, including the reset.
      total_reward: The sum of the rewards.
      metadata: The metadata of the episode; empty if there is none.
      start_time: The time of the first step, in seconds since 1970.
      end_time: The time of the last step.
    """

    num_steps: int
    total_reward: float
    metadata: dict[str, Any]
    start_time: float
    end_time: float


def recover_episode(directory: str | os.PathLike[str]) -> RecoveredEpisode | None:
    """Makes the log of an episode readable after its worker was killed.

    The log gets all steps whose picture was sent, and possibly one more. A complete log stays.

    Args:
      directory: The directory of the log. No worker may write to it.

    Returns:
      The facts of the episode; None if the log has no step.

    Raises:
      envlogger.errors.StorageError: The log does not exist, or cannot be read.
    """
    envlogger.recover(directory, in_place=True)
    with envlogger.Reader(directory) as reader:
        if not len(reader.episodes):
            return None
        fields = [("reward",), ("custom_data", TIME)]
        rewards, times = zip(*reader.pick(0, range(len(reader.episodes[0])), fields))
        metadata = reader.episode_metadata()[0]
    total_reward = as_finite(sum(map(sum_reward, rewards)))
    metadata = metadata if isinstance(metadata, dict) else {}
    return RecoveredEpisode(len(times), total_reward, metadata, float(times[0]), float(times[-1]))
