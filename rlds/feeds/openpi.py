"""Samples and statistics files of openpi, for its training code.

The reference is the repository `Physical-Intelligence/openpi`, June 2026.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.feeds.policy_samples import PolicySamples
from rlds.feeds.roles import ACTION, STATE, Roles, as_vector
from rlds.feeds.samples import Batch, Columns, SampleRows
from rlds.feeds.statistics_files import quantile_bounds
from rlds.statistics import FieldStatistics, Statistics, StatisticsPass

__all__ = ["OpenpiSamples", "compute_statistics", "statistics_from_json", "statistics_to_json"]

_NORM_STATS_KEY = "norm_stats"
_ACTIONS_KEY = "actions"


def statistics_to_json(statistics: Statistics) -> str:
    """Writes statistics as the `norm_stats.json` of openpi.

    `compute_statistics` counts actions as openpi does; `Roles.statistics_of` counts an action once.

    Args:
      statistics: Statistics of the "action" and the "state", see `Roles.statistics_of`.

    Raises:
      ValueError: There are no quantiles 0.01 and 0.99.
    """
    names = {STATE: STATE, ACTION: _ACTIONS_KEY}
    fields = {
        name: _as_norm_stats(statistics[role], role)
        for role, name in names.items()
        if role in statistics
    }
    return json.dumps({_NORM_STATS_KEY: fields}, indent=2)


def statistics_from_json(text: str, *, dims: Mapping[str, int] | None = None) -> Statistics:
    """Reads the statistics of the "action" and the "state" from a file of openpi.

    The file has no counts, minima and maxima. The statistics therefore cannot be merged, and
    `normalize` supports only the kinds "normal" and "bounds_q99".

    Args:
      text: The content of a `norm_stats.json`.
      dims: The lengths of the vectors of your data, such as `{"state": 8, "action": 7}`. The files
        of some checkpoints are padded with zeros.

    Raises:
      ValueError: The text has no such statistics, or they have fewer elements.
    """
    statistics = Statistics.from_json(text)
    names = {STATE: STATE, _ACTIONS_KEY: ACTION}
    fields = {
        role: _first_elements(statistics[name], (dims or {}).get(role), role)
        for name, role in names.items()
        if name in statistics
    }
    return dataclasses.replace(statistics, fields=fields)


def _as_norm_stats(field: FieldStatistics, role: str) -> dict[str, Any]:
    low, high = quantile_bounds(field, role)
    arrays = {"mean": field.mean, "std": field.std, "q01": low, "q99": high}
    return {name: array.tolist() for name, array in arrays.items()}


def _first_elements(field: FieldStatistics, dim: int | None, role: str) -> FieldStatistics:
    size = field.mean.size
    if dim is not None and dim > size:
        raise ValueError(f"The statistics of the {role} have {size} elements, expected {dim}.")

    arrays = ("count", "mean", "squares", "min", "max", "mask")
    return dataclasses.replace(
        field,
        **{name: getattr(field, name)[:dim] for name in arrays},
        quantiles={q: values[:dim] for q, values in field.quantiles.items()},
    )


@dataclasses.dataclass(eq=False, repr=False)
class OpenpiSamples(PolicySamples):
    """Samples for openpi: one for each step, as in its DROID loader.

    A batch has `observation` (the images by camera, and the fields of the state by name), `actions`
    of shape `[n, action_horizon, action]`, and `prompt`. Beyond the last step of an episode the
    last action is repeated; there are no masks. Values are not normalized; openpi does that later.

    Args:
      table: The steps.
      roles: The fields of the policy's inputs and outputs.
      action_horizon: The number of actions in a sample.
      image_size: The new height and width of images, for all cameras or by camera.
      include_last_action: Whether to include the last step of each episode, as openpi does. If
        False, final observations are excluded.

    Raises:
      KeyError: There is no such field.
      ValueError: The horizon is not positive, or fields have the same name.
    """

    _: dataclasses.KW_ONLY
    action_horizon: int = 16

    @override
    def columns(self, batch: SampleRows) -> Columns:
        _, episodes, steps, _ = batch
        last_steps = self._counts[episodes][:, np.newaxis] - 1
        action_steps = np.minimum(steps[:, np.newaxis] + np.arange(self.action_horizon), last_steps)
        state = [path for path in self.roles.state if path is not None]
        images = [path for path in self.roles.images.values() if path is not None]
        values = self._choose_fields(batch, [*images, *state])
        actions = self._take(episodes, action_steps, self.roles.action)
        columns = {"actions": as_vector(self.roles.action, actions, action_steps.shape)}
        for camera, image in self._images(values, steps):
            columns[f"observation/{camera}"] = image
        for path in state:
            name = f"observation/{path.rpartition('/')[2]}"
            if name in columns:
                raise ValueError(f"two fields of the state would have the name {name!r}")
            columns[name] = values[path]
        for texts in self._instructions(batch):
            columns["prompt"] = texts
        return columns


def compute_statistics(batches: Iterable[Batch], roles: Roles) -> Statistics:
    """Computes statistics as openpi does: an action counts once for each chunk that includes it.

    Args:
      batches: A finite iterable of batches of `OpenpiSamples`.
      roles: The roles of the samples.

    Returns:
      The statistics of the "action" and, if there is a state, of the "state". Quantiles are exact
      up to 8191 values; openpi computes quantiles from a histogram.

    Raises:
      ValueError: There are no batches.
    """
    statistics: StatisticsPass | None = None
    for batch in batches:
        actions = batch["actions"]
        data = {ACTION: actions.reshape(-1, actions.shape[-1])}
        if state := [path for path in roles.state if path is not None]:
            values = {path: batch["observation"][path.rpartition("/")[2]] for path in state}
            data[STATE] = as_vector(state, values, actions.shape[:1])
        if statistics is None:
            shapes = {role: column.shape[1:] for role, column in data.items()}
            statistics = StatisticsPass(shapes, quantiles=(0.01, 0.99), ddof=0, masks=None)
        no_mask = np.zeros(len(actions), np.bool_)
        statistics.add(data, {}, no_mask, no_mask, 0)
    if statistics is None:
        raise ValueError("compute_statistics: there are no batches.")
    return statistics.result()
