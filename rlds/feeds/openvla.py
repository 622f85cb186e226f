"""Samples and statistics files of OpenVLA, for its training code.

The reference is the repository `openvla/openvla`, March 2025.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.feeds.policy_samples import NormalizedPolicySamples
from rlds.feeds.roles import ACTION
from rlds.feeds.samples import Batch, Columns, SampleRows
from rlds.feeds.statistics_files import PROPRIO, from_policy_json, plain_statistics, to_policy_json
from rlds.statistics import Statistics
from rlds_ecosystem.model.nests import named_leaves, nest

__all__ = ["OpenVLASamples", "rows_of", "statistics_from_json", "statistics_to_json"]


def statistics_to_json(statistics: Statistics | Mapping[str, Statistics]) -> str:
    """Writes statistics as OpenVLA does.

    The argument `dataset_statistics` of OpenVLA takes the statistics of one dataset. The
    `dataset_statistics.json` of a checkpoint has the statistics of several datasets, by name. For a
    dataset without a state, zeros are written, which OpenVLA requires.

    Args:
      statistics: Statistics of the "action" and the "state", see `Roles.statistics_of`.

    Raises:
      ValueError: There are no quantiles 0.01 and 0.99.
    """
    return to_policy_json(statistics, _openvla_statistics)


def statistics_from_json(text: str, *, dataset_name: str | None = None) -> Statistics:
    """Reads the statistics of the "action" and the "state" from a file of OpenVLA.

    Args:
      text: The content of the file.
      dataset_name: The name of the dataset, if there are several.

    Raises:
      ValueError: The text has no such statistics.
    """
    return from_policy_json(text, dataset_name)


def _openvla_statistics(statistics: Statistics) -> dict[str, Any]:
    plain = plain_statistics(statistics, "q")
    if PROPRIO not in plain:
        zeros = [0.0] * statistics[ACTION].mean.size
        state = dict.fromkeys((name for name in plain[ACTION] if name != "mask"), zeros)
        plain = {ACTION: plain[ACTION], PROPRIO: state, **plain}
    return plain


@dataclasses.dataclass(eq=False, repr=False)
class OpenVLASamples(NormalizedPolicySamples):
    """Samples for OpenVLA: one for each step, as in `prismatic.vla.datasets.rlds`.

    A batch has `observation` (`image_*`, `proprio`, `timestep`, `pad_mask`, `pad_mask_dict`),
    `task` (`language_instruction`, `pad_mask_dict`; with goals, also their `image_*`, `proprio` and
    `timestep`), `action` of shape `[n, window_size + future_action_window_size, action]`,
    `dataset_name`, and `absolute_action_mask` if it is set. `rows_of` splits it into rows for
    `RLDSBatchTransform`.

    Beyond the last step of the episode, or the goal, relative actions are zero, and absolute
    actions repeat the last one.

    Args:
      table: The steps.
      roles: The fields of the policy's inputs and outputs.
      dataset_name: The name of the dataset in the samples.
      window_size: The number of observations in a sample.
      future_action_window_size: The number of future actions in a sample.
      absolute_action_mask: A mask of the absolute elements of the action; all relative by default.
      only_whole: Whether to exclude the last steps without a full window of future actions, and
        to ignore goals in the padding of actions, as OpenVLA-OFT does.
      statistics: Statistics that normalize the action and the state, see `Roles.statistics_of`;
        None for no normalization.
      kind: "normal", "bounds", or "bounds_q99", which OpenVLA trains with.
      goal_seed: The seed of goals, drawn from the following steps; None for no goals.
      image_size: The new height and width of images, for all cameras or by camera. Missing cameras
        have black images of this size.
      include_last_action: Whether to include the last step of each episode, as OpenVLA does. If
        False, final observations are excluded.

    Raises:
      KeyError: There is no such field, or there are no statistics of the action or the state.
      ValueError: An argument is out of range, or a vector is too long.
    """

    _: dataclasses.KW_ONLY
    future_action_window_size: int = 0
    absolute_action_mask: Sequence[bool] | None = None
    only_whole: bool = False

    @override
    def counts(self) -> np.ndarray:
        counts = super().counts()
        num_excluded = self.future_action_window_size if self.only_whole else 0
        return np.maximum(counts - num_excluded, 0)

    @override
    def columns(self, batch: SampleRows) -> Columns:
        _, episodes, steps, _ = batch
        last_steps = super().counts()[episodes] - 1
        times = steps[:, np.newaxis] + np.arange(1 - self.window_size, 1)
        goals = self._sample_goals(batch, np.minimum(steps + 1, last_steps), last_steps + 1)
        end_steps = (last_steps if goals is None or self.only_whole else goals)[:, np.newaxis]
        action_steps = steps[:, np.newaxis] + np.arange(
            1 - self.window_size, 1 + self.future_action_window_size
        )
        actions = self._actions(episodes, np.clip(action_steps, 0, end_steps))
        mask = self.absolute_action_mask
        is_absolute = np.zeros(actions.shape[-1], np.bool_) if mask is None else np.array(mask)
        if is_absolute.shape != actions.shape[-1:]:
            raise ValueError(
                f"absolute_action_mask has {len(is_absolute)} elements, the action has "
                f"{actions.shape[-1]}"
            )
        actions[(action_steps > end_steps)[:, :, np.newaxis] & ~is_absolute] = 0.0
        columns = {
            **self._observation(batch._replace(steps=np.maximum(times, 0)), "observation"),
            "observation/pad_mask": times >= 0,
            **self._task(batch, goals),
            "action": actions,
            "dataset_name": self._names(len(steps)),
        }
        if mask is not None:
            columns["absolute_action_mask"] = np.tile(is_absolute, (len(steps), 1))
        return columns


def rows_of(batch: Batch) -> Iterator[Batch]:
    """Yields the samples of a batch one by one, as inputs of `RLDSBatchTransform`.

    >>> for row in rows_of({"action": np.eye(2), "task": {"timestep": np.arange(2)}}):
    ...     print(row["action"].tolist(), row["task"]["timestep"])
    [1.0, 0.0] 0
    [0.0, 1.0] 1
    """
    columns = dict(named_leaves(batch))
    size = min(len(column) for column in columns.values())
    for row in range(size):
        yield nest({path: column[row] for path, column in columns.items()})
