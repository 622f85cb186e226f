"""Samples and statistics files of Octo, for its training code.

The reference is the repository `octo-models/octo`, July 2024.
"""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from rlds.feeds.permutation import key_of, uniform_of
from rlds.feeds.policy_samples import NormalizedPolicySamples
from rlds.feeds.roles import ACTION, STATE, pad_vector
from rlds.feeds.samples import Columns, SampleRows
from rlds.feeds.statistics_files import PROPRIO, from_policy_json, plain_statistics, to_policy_json
from rlds.statistics import Statistics

__all__ = ["OctoSamples", "statistics_from_json", "statistics_to_json"]


def statistics_to_json(statistics: Statistics | Mapping[str, Statistics]) -> str:
    """Writes statistics in the form of Octo, for its argument `dataset_statistics`.

    Args:
      statistics: Statistics of the "action" and the "state", see `Roles.statistics_of`; for several
        datasets by their names, as in checkpoints of Octo.

    Raises:
      ValueError: There are no quantiles 0.01 and 0.99.

    >>> import json
    >>> import numpy as np
    >>> from rlds.statistics import compute_statistics
    >>> steps = {"action": np.eye(2), "is_last": np.array([False, True])}
    >>> statistics = compute_statistics([{"steps": steps}], include_last_action=True)
    >>> json.loads(statistics_to_json(statistics))["action"]["mean"]
    [0.5, 0.5]
    """
    return to_policy_json(statistics, functools.partial(plain_statistics, prefix="p"))


def statistics_from_json(text: str, *, dataset_name: str | None = None) -> Statistics:
    """Reads the statistics of the "action" and the "state" from a file of Octo.

    Args:
      text: The content of the file.
      dataset_name: The name of the dataset, if there are several.

    Raises:
      ValueError: The text has no such statistics.
    """
    return from_policy_json(text, dataset_name)


@dataclasses.dataclass(eq=False, repr=False)
class OctoSamples(NormalizedPolicySamples):
    """Samples for Octo: one for each step, as in `octo.data.dataset`.

    A batch has `observation` (`image_*`, `proprio`, `timestep`, `timestep_pad_mask`,
    `task_completed`, `pad_mask_dict`), `task` (`language_instruction`, `pad_mask_dict`; with goals,
    also their `image_*`, `proprio` and `timestep`), `action` and `action_pad_mask`, both of shape
    `[n, window_size, action_horizon, action]`, and `dataset_name`.

    As in Octo, `action_pad_mask` is true for the first action beyond the end of the episode, or
    beyond the goal.

    Args:
      table: The steps.
      roles: The fields of the policy's inputs and outputs.
      dataset_name: The name of the dataset in the samples.
      window_size: The number of observations in a sample.
      action_horizon: The number of actions for each observation.
      statistics: Statistics that normalize the action and the state, see `Roles.statistics_of`;
        None for no normalization.
      kind: "normal", or "bounds_q99", which Octo calls "bounds".
      goal_seed: The seed of goals, which are drawn from the step and the following steps; None for
        no goals.
      max_goal_distance: The number of steps from which the goal is drawn, with the step itself.
      keep_image_prob: The probability of goal images. A sample has either goal images or an
        instruction; a sample without an instruction has goal images. None for both.
      max_action_dim: The number of elements of the action, padded with zeros.
      max_proprio_dim: The number of elements of the state, padded with zeros.
      image_size: The new height and width of images, for all cameras or by camera. Missing cameras
        have black images of this size.
      include_last_action: Whether to include the last step of each episode, as Octo does. If False,
        final observations are excluded.

    Raises:
      KeyError: There is no such field, or there are no statistics of the action or the state.
      ValueError: An argument is out of range, or a vector is too long.
    """

    _: dataclasses.KW_ONLY
    action_horizon: int = 1
    max_goal_distance: int | None = None
    keep_image_prob: float | None = None
    max_action_dim: int | None = None
    max_proprio_dim: int | None = None

    @override
    def columns(self, batch: SampleRows) -> Columns:
        _, episodes, steps, epoch = batch
        lengths = self._counts[episodes]
        times = steps[:, np.newaxis] + np.arange(1 - self.window_size, 1)
        goal_ends = lengths if self.max_goal_distance is None else steps + self.max_goal_distance
        goals = self._sample_goals(batch, steps, np.minimum(goal_ends, lengths))
        task = self._task(batch, goals)
        if goals is not None and self.keep_image_prob is not None:
            uniform = uniform_of(batch.indices, key_of("task", self.goal_seed or 0, epoch))
            goals = _drop_goal_or_text(task, uniform < self.keep_image_prob, goals, lengths - 1)
        # Reads each action of a sample once, because the chunks of its observations overlap.
        action_steps = steps[:, np.newaxis] + np.arange(1 - self.window_size, self.action_horizon)
        actions = self._actions(episodes, np.clip(action_steps, 0, lengths[:, np.newaxis] - 1))
        is_padded = np.arange(self.max_action_dim or actions.shape[-1]) >= actions.shape[-1]
        actions = pad_vector(actions, self.max_action_dim, ACTION)
        offsets = np.maximum(times, 0) - action_steps[:, :1]
        chunks = offsets[:, :, np.newaxis] + np.arange(self.action_horizon)
        actions = actions[np.arange(len(steps))[:, np.newaxis, np.newaxis], chunks]
        goal = (lengths - 1 if goals is None else goals)[:, np.newaxis, np.newaxis]
        is_completed = goal + 2 <= times[:, :, np.newaxis] + np.arange(self.action_horizon)
        return {
            **self._observation(batch._replace(steps=np.maximum(times, 0)), "observation"),
            "observation/timestep_pad_mask": times >= 0,
            "observation/task_completed": is_completed,
            **task,
            "action": actions,
            "dataset_name": self._names(len(steps)),
            "action_pad_mask": ~(is_completed[..., np.newaxis] | is_padded),
        }

    def _observation(self, batch: SampleRows, prefix: str) -> Columns:
        columns = super()._observation(batch, prefix)
        name = f"{prefix}/{PROPRIO}"
        if name in columns:
            columns[name] = pad_vector(columns[name], self.max_proprio_dim, STATE)
        return columns


def _drop_goal_or_text(
    task: Columns, has_images: np.ndarray, goals: np.ndarray, last_steps: np.ndarray
) -> np.ndarray:
    """Drops either the goal images or the instruction of each sample; returns the goals."""
    texts, masks = "task/language_instruction", "task/pad_mask_dict/"
    images = [path for path in task if path.startswith("task/image_")]
    if texts not in task or not images:
        return goals
    has_images = has_images | ~task[f"{masks}language_instruction"]
    for path in [*images, texts]:
        is_kept = ~has_images if path == texts else has_images
        task[path][~is_kept] = b"" if path == texts else 0
        task[f"{masks}{path.removeprefix('task/')}"] &= is_kept
    goals = np.where(has_images, goals, last_steps)
    task["task/timestep"] = goals.astype(np.int32)
    return goals
