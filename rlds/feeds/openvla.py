"""The files and batches of OpenVLA, for its training code.

Facts about OpenVLA are those of its repository `openvla/openvla`, March 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlds.feeds.roles import ACTION, STATE, constant
from rlds.feeds.statistics_files import PROPRIO, filed, plain_field, read_filed
from rlds.statistics import Statistics

__all__ = ["statistics_from_json", "statistics_to_json"]


def statistics_to_json(statistics: Statistics | Mapping[str, Statistics]) -> str:
    """Writes statistics as OpenVLA does.

    Its argument `dataset_statistics` takes those of one dataset. The `dataset_statistics.json`
    beside a checkpoint has those of several datasets, by their names. Without a state OpenVLA
    demands zeros in its place, which are written.

    OpenVLA counts all steps of the splits "all", also the last of each episode: so does
    `compute_statistics(..., include_last_action=True)`.

    Args:
      statistics: Those of the action and the state, see `Roles.join`.

    Raises:
      ValueError: There are no quantiles 0.01 and 0.99.
    """
    return filed(statistics, _plain)


def statistics_from_json(text: str, *, dataset_name: str | None = None) -> Statistics:
    """Reads the statistics of the "action" and the "state" that OpenVLA wrote.

    Args:
      text: The content of the file.
      dataset_name: Of which dataset, if there are several.

    Raises:
      ValueError: There are no such statistics in it.
    """
    return read_filed(text, dataset_name)


def _plain(statistics: Statistics) -> dict[str, Any]:
    action = statistics[ACTION]
    none = constant(0.0, action.mean.size, count=statistics.num_transitions)
    state = statistics.fields.get(STATE, none)
    return {
        ACTION: plain_field(action, "q", ACTION),
        PROPRIO: plain_field(state, "q", STATE),
        "num_transitions": statistics.num_transitions,
        "num_trajectories": statistics.num_trajectories,
    }
