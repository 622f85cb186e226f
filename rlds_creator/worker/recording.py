"""Records an episode while it is played."""

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

__all__ = ["EpisodeLog", "as_json", "finite", "total"]

# What may wait to be written: the worker waits for each step anyway.
_MAX_PENDING_BYTES = 1 << 20

# Steps that were recorded more than these seconds ago survive a power failure.
_SYNC_INTERVAL = 1.0


class EpisodeLog:
    """An EnvLogger log of one episode.

    Each step is with the system when `add` returns: it survives the death of the process. A thread
    brings them to the disk about once a second, for failures of power.

    Args:
      directory: The directory of all logs; this episode gets a directory of its own in it.
      specs: See `envlogger.converters.spec_codec.encode_environment_specs`.
      metadata: The metadata of the episode, as far as known at its begin.
      video: The video encoding of fields of the observation.
      observation_spec: The spec of the observation, for them.

    Attributes:
      id: The identifier of the episode, and the name of its directory.
      num_steps: The number of added steps.
      total_reward: The sum of their rewards.

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
        make = functools.partial(
            RiegeliBackendWriter,
            os.path.join(directory, self.id),
            flush_interval=_SYNC_INTERVAL,
            max_pending_bytes=_MAX_PENDING_BYTES,
        )
        of_log = {"environment_specs": specs}
        self._writer: BackendWriter = (
            VideoBackendWriter(make, video, observation_spec, metadata=of_log)
            if video
            else make(metadata=of_log)
        )

    def add(self, timestep: dm_env.TimeStep, action: Any, custom_data: Mapping[str, Any]) -> None:
        """Adds a step; the first one comes from the reset, and has no action.

        Raises:
          envlogger.errors.EnvLoggerError: It cannot be recorded; what was before stays.
        """
        is_first = self.num_steps == 0
        self._writer.record_step(StepData(timestep, action, dict(custom_data)), is_first)
        if is_first:
            self._writer.set_episode_metadata(self._metadata)
        self._writer.push()
        self.num_steps += 1
        self.total_reward += total(timestep.reward)

    def close(self, **metadata: Any) -> None:
        """Ends the log; further calls do nothing.

        Args:
          **metadata: The metadata of the episode that is known at its end.

        Raises:
          envlogger.errors.StorageError: Not all could be written.
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


def total(reward: Any) -> float:
    """Returns what a reward adds to the sum: it may be none, or have several parts.

    >>> total(None), total({"left": 1, "right": (np.array([2.0, 3.0]), None)})
    (0.0, 6.0)
    """
    if isinstance(reward, float):
        return reward
    if isinstance(reward, Mapping):
        return sum(map(total, reward.values()))
    if isinstance(reward, list | tuple):
        return sum(map(total, reward))
    return 0.0 if reward is None else float(np.sum(reward, dtype=np.float64))


def finite(number: float) -> float:
    """Returns a number that JSON can represent."""
    return float(np.nan_to_num(number))


def as_json(value: Any) -> str:
    """Returns a value in JSON types; other types as text."""
    if not value:
        return "{}"
    return json.dumps(value, default=_plain, skipkeys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)[:1000]
