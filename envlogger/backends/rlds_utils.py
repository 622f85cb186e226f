"""RLDS steps from recorded steps, and the recovery of TFDS datasets whose recorder died."""

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
      prev_step: The recorded step with the observation, and with the custom data: if that is a
        dict, its entries stand beside the other fields.
      step: The one after it, with the action and what it brought; None if there is none: then
        action, reward and discount are zeros like those of `prev_step`.

    Returns:
      The step. The flags are those of `prev_step` alone: `is_last` is not set if the episode was
      cut by a reset.

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
    """Recovers the episodes of killed recorders that had not finished their shard.

    Nothing is lost of it: where a file ends amid an episode, that end is kept beside it as a file
    whose name ends with `.torn`. A `TFDSBackendWriter` does the same when it opens a directory.

    Args:
      builder: A builder of the dataset, as `tfds.builder_from_directory` makes it.

    Returns:
      The builder, with the splits that the dataset has now.

    Raises:
      StorageError: A file cannot be read or written.
    """
    recover(builder.info)
    return builder
