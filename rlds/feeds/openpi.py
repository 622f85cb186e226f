"""The files and batches of openpi, for its training code.

Facts about openpi are those of its repository `Physical-Intelligence/openpi`, June 2026.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlds.feeds.roles import ACTION, STATE
from rlds.feeds.statistics_files import bounds_of
from rlds.statistics import FieldStatistics, Statistics

__all__ = ["statistics_from_json", "statistics_to_json"]

_NORM_STATS = "norm_stats"
_ACTIONS = "actions"


def statistics_to_json(statistics: Statistics, *, dim: int | None = None) -> str:
    """Writes statistics as the `norm_stats.json` of openpi.

    openpi counts an action as often as it is in a chunk of actions, the last one of an episode more
    often than the others; `compute_statistics` counts each once.

    Args:
      statistics: Those of the action and the state, see `Roles.join`.
      dim: How many elements the vectors have in the file: zeros are added. openpi needs none.

    Raises:
      ValueError: There are no quantiles 0.01 and 0.99, or more elements than `dim`.
    """
    names = {STATE: STATE, ACTION: _ACTIONS}
    fields = {
        name: _plain(statistics[role], dim, role)
        for role, name in names.items()
        if role in statistics
    }
    return json.dumps({_NORM_STATS: fields}, indent=2)


def statistics_from_json(text: str, *, dims: Mapping[str, int] | None = None) -> Statistics:
    """Reads the statistics of the "action" and the "state" that openpi wrote.

    The file does not say how many values there were, nor the least and the largest one. So these
    statistics cannot be merged with others, and `normalize` takes the kinds "normal" and
    "bounds_q99" only.

    Args:
      text: The content of a `norm_stats.json`.
      dims: How many elements the vectors of your data have, such as `{"state": 8, "action": 7}`.
        The files of some checkpoints have more, which are zeros.

    Raises:
      ValueError: There are no such statistics in it, or they have less elements.
    """
    read = Statistics.from_json(text)
    names = {STATE: STATE, _ACTIONS: ACTION}
    fields = {
        role: _cut(read[name], (dims or {}).get(role), role)
        for name, role in names.items()
        if name in read
    }
    return dataclasses.replace(read, fields=fields)


def _plain(field: FieldStatistics, dim: int | None, what: str) -> dict[str, Any]:
    low, high = bounds_of(field, what)
    size = field.mean.size
    if dim is not None and dim < size:
        raise ValueError(f"The {what} has {size} elements, which is more than dim={dim}.")

    def padded(values: np.ndarray) -> list[float]:
        return list(np.pad(values, (0, (dim or size) - size)).tolist())

    return {
        "mean": padded(field.mean),
        "std": padded(field.std),
        "q01": padded(low),
        "q99": padded(high),
    }


def _cut(field: FieldStatistics, dim: int | None, what: str) -> FieldStatistics:
    size = field.mean.size
    if dim is not None and dim > size:
        raise ValueError(f"There are statistics of {size} elements of the {what}, not of {dim}.")

    def cut(values: np.ndarray) -> np.ndarray:
        return values[:dim]

    return dataclasses.replace(
        field,
        count=cut(field.count),
        mean=cut(field.mean),
        squares=cut(field.squares),
        min=cut(field.min),
        max=cut(field.max),
        mask=cut(field.mask),
        quantiles={q: cut(values) for q, values in field.quantiles.items()},
    )
