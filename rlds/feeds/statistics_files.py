"""Statistics files of Octo, OpenVLA and openpi policies, in JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlds.feeds.roles import ACTION, STATE
from rlds.statistics import FieldStatistics, Statistics

__all__ = ["PROPRIO", "from_policy_json", "plain_statistics", "to_policy_json"]

PROPRIO = "proprio"
"""The name of the state in Octo and OpenVLA."""


def plain_field(field: FieldStatistics, prefix: str, role: str) -> dict[str, Any]:
    """Returns the statistics of a field in the JSON form of Octo and OpenVLA.

    Args:
      field: The statistics.
      prefix: The prefix of the names of the quantiles.
      role: The name of the field in errors.

    Raises:
      ValueError: There are no quantiles 0.01 and 0.99.
    """
    low, high = quantile_bounds(field, role)
    plain = {
        "mean": field.mean.tolist(),
        "std": field.std.tolist(),
        "max": field.max.tolist(),
        "min": field.min.tolist(),
        f"{prefix}01": low.tolist(),
        f"{prefix}99": high.tolist(),
    }
    if not np.all(field.mask):
        plain["mask"] = field.mask.tolist()
    return plain


def plain_statistics(statistics: Statistics, prefix: str) -> dict[str, Any]:
    """Returns the statistics of a dataset in the JSON form of Octo and OpenVLA."""
    names = {ACTION: ACTION, STATE: PROPRIO}
    return {
        **{
            name: plain_field(statistics[role], prefix, role)
            for role, name in names.items()
            if role in statistics
        },
        "num_transitions": statistics.num_transitions,
        "num_trajectories": statistics.num_trajectories,
    }


def quantile_bounds(field: FieldStatistics, role: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the quantiles 0.01 and 0.99, the bounds of normalization."""
    missing = {0.01, 0.99} - field.quantiles.keys()
    if missing:
        raise ValueError(
            f"The statistics of the {role} have the quantiles {sorted(field.quantiles)}, not "
            "0.01 and 0.99. Compute them with quantiles=(0.01, 0.99)."
        )
    return field.quantiles[0.01], field.quantiles[0.99]


def to_policy_json(
    statistics: Statistics | Mapping[str, Statistics], plain: Callable[[Statistics], dict[str, Any]]
) -> str:
    """Returns the statistics of a dataset, or of several by name, as JSON for a policy."""
    if isinstance(statistics, Statistics):
        return json.dumps(plain(statistics), indent=2)
    return json.dumps({name: plain(value) for name, value in statistics.items()}, indent=2)


def from_policy_json(text: str, dataset_name: str | None) -> Statistics:
    """Reads the statistics of a dataset from JSON of Octo or OpenVLA."""
    statistics = Statistics.from_json(text, dataset_name=dataset_name)
    names = {ACTION: ACTION, STATE: PROPRIO}
    fields = {role: statistics[name] for role, name in names.items() if name in statistics}
    return dataclasses.replace(statistics, fields=fields)
