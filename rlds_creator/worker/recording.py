"""The recording of an episode while it is played."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from typing import Any

import dm_env
import numpy as np

from envlogger.backends.backend_writer import BackendWriter
from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
from envlogger.backends.video_backend_writer import VideoBackendWriter
from envlogger.step_data import StepData
from rlds_creator.identifiers import new_identifier
from rlds_ecosystem.video_codec import Video

__all__ = ["EpisodeLog", "as_finite", "as_json", "sum_reward"]

# The maximum size of unwritten data; small, because the worker waits for each step anyway.
_MAX_PENDING_BYTES = 1 << 20

# The flush interval in seconds: older steps survive a power failure.
_SYNC_INTERVAL_S = 1.0


class EpisodeLog:
    """An EnvLogger log of one episode.

    When `add` returns, the operating system has the step: it survives a crash of the process. A
    thread syncs steps to the disk about once a second; they survive a power failure.

    Args:
      directory: The directory of all logs; the episode gets a subdirectory.
      specs: See `envlogger.converters.spec_codec.encode_environment_specs`.
      metadata: The metadata of the episode at its start.
      video: The video encoding of fields of the observation.
      observation_spec: The spec of the observation, for `video`.

    Attributes:
      id: The identifier of the episode, and the name of its directory.
      num_steps: The number of steps.
      total_reward: The sum of the rewards.

    Raises:
      envlogger.errors.StorageError: The log cannot be written.
    """

    def __init__(
        self,
        directory: str,
        specs: Any,
        metadata: Mapping[str, Any],
        video: Mapping[str, Video] | None = None,
        observation_spec: Any = None,
    ) -> None:
        self.id = new_identifier()
        self.num_steps = 0
        self.total_reward = 0.0
        self._is_closed = False
        self._metadata = {**metadata, "episode_id": self.id}
        create_writer = functools.partial(
            RiegeliBackendWriter,
            os.path.join(directory, self.id),
            flush_interval=_SYNC_INTERVAL_S,
            max_pending_bytes=_MAX_PENDING_BYTES,
        )
        log_metadata = {"environment_specs": specs}
        self._writer: BackendWriter = (
            VideoBackendWriter(create_writer, video, observation_spec, metadata=log_metadata)
            if video
            else create_writer(metadata=log_metadata)
        )

    def add(self, timestep: dm_env.TimeStep, action: Any, custom_data: Mapping[str, Any]) -> None:
        """Adds a step; the first one comes from the reset, and has no action.

        Raises:
          envlogger.errors.EnvLoggerError: The step cannot be recorded; earlier steps are kept.
        """
        is_first = self.num_steps == 0
        self._writer.record_step(StepData(timestep, action, dict(custom_data)), is_first)
        if is_first:
            self._writer.set_episode_metadata(self._metadata)
        self._writer.push()
        self.num_steps += 1
        self.total_reward += sum_reward(timestep.reward)

    def close(self, **metadata: Any) -> None:
        """Ends the log; further calls do nothing.

        Args:
          **metadata: The metadata of the episode at its end.

        Raises:
          envlogger.errors.StorageError: The log could not be written completely.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self.num_steps:
                totals = {"num_steps": self.num_steps, "total_reward": self.total_reward}
                self._writer.set_episode_metadata({**self._metadata, **totals, **metadata})
        finally:
            self._writer.close()


def sum_reward(reward: Any) -> float:
    """Returns the sum of the elements of a reward, which may be None or nested.

    >>> sum_reward(None), sum_reward({"left": 1, "right": (np.array([2.0, 3.0]), None)})
    (0.0, 6.0)
    """
    if isinstance(reward, float):
        return reward
    if isinstance(reward, Mapping):
        return sum(map(sum_reward, reward.values()))
    if isinstance(reward, list | tuple):
        return sum(map(sum_reward, reward))
    return 0.0 if reward is None else float(np.sum(reward, dtype=np.float64))


def as_finite(value: float) -> float:
    """Returns a finite float, which JSON can represent."""
    return float(np.nan_to_num(value))


def as_json(value: Any) -> str:
    """Returns a value as JSON; objects of other types become text."""
    if not value:
        return "{}"
    return json.dumps(value, default=_to_plain, skipkeys=True)


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)[:1000]
