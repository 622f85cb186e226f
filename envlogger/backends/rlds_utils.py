"""Converts recorded steps to RLDS steps, and recovers TFDS datasets after a crash."""

from __future__ import annotations

from typing import Any

import dm_env
import tensorflow_datasets as tfds
import tree

from envlogger.converters.rlds_episode import is_zero, to_rlds_episode
from envlogger.step_data import StepData
from rlds.tfds.growing import recover

__all__ = ["Step", "maybe_recover_last_shard", "to_rlds_step"]

Step = dict[str, Any]


def to_rlds_step(prev_step: StepData, step: StepData | None) -> Step:
    """Builds one RLDS step from two recorded steps; `to_rlds_episode` does so for an episode.

    Args:
      prev_step: The recorded step with the observation and the custom data. If the custom data are
        a dict, its entries become further fields of the RLDS step.
      step: The next recorded step, with the action, reward and discount; at the end of an episode
        None, for zeros of the types in `prev_step`.

    Returns:
      The RLDS step. The flags depend only on `prev_step`: if a reset truncated the episode,
      `is_last` is false.

    >>> first = StepData(dm_env.restart(observation=1), action=None)
    >>> last = StepData(dm_env.termination(reward=2.0, observation=3), action=4)
    >>> step = to_rlds_step(first, last)
    >>> [step[name].item() for name in ("observation", "action", "reward")]
    [1, 4, 2.0]
    >>> to_rlds_step(last, None)["reward"].item()
    0.0
    """
    next_step = prev_step if step is None else step
    timestep = prev_step.timestep
    custom_data = prev_step.custom_data if isinstance(prev_step.custom_data, dict) else None
    pair = [
        StepData(timestep._replace(step_type=dm_env.StepType.FIRST), None, custom_data),
        StepData(
            dm_env.TimeStep(
                dm_env.StepType.MID,
                next_step.timestep.reward,
                next_step.timestep.discount,
                timestep.observation,
            ),
            next_step.action,
            custom_data,
        ),
    ]
    row = 1 if step is None else 0
    rlds_step: Step = tree.map_structure(lambda column: column[row], to_rlds_episode(pair))
    is_terminal = timestep.last() and is_zero(timestep.discount)
    rlds_step["is_first"] = timestep.first()
    rlds_step["is_last"] = timestep.last()
    rlds_step["is_terminal"] = is_terminal
    return rlds_step


def maybe_recover_last_shard(builder: tfds.core.DatasetBuilder) -> tfds.core.DatasetBuilder:
    """Recovers the episodes in unfinished shards of killed recorders.

    No byte is lost: an incomplete episode at the end of a file is kept in a file whose name ends
    with `.torn`. A `TFDSBackendWriter` does the same when it opens a directory.

    Args:
      builder: A builder of the dataset, as from `tfds.builder_from_directory`.

    Returns:
      The builder, with updated splits.

    Raises:
      StorageError: A file cannot be read or written.
    """
    recover(builder.info)
    return builder
