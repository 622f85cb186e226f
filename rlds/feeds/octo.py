"""The files and batches of Octo, for its training code.

Facts about Octo are those of its repository `octo-models/octo`, July 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlds.feeds.roles import ACTION, STATE
from rlds.feeds.statistics_files import PROPRIO, filed, plain_field, read_filed
from rlds.statistics import Statistics

__all__ = ["statistics_from_json", "statistics_to_json"]


def statistics_to_json(statistics: Statistics | Mapping[str, Statistics]) -> str:
    """Writes statistics as Octo does, to be its argument `dataset_statistics`.

    Octo counts all steps of the splits "all", also the last of each episode: so does
    `compute_statistics(..., include_last_action=True)`.

    Args:
      statistics: Those of the action and the state, see `Roles.join`; of several datasets by their
        names, as checkpoints of Octo have them.

    Raises:
      ValueError: There are no quantiles 0.01 and 0.99.

    >>> import json
    >>> import numpy as np
    >>> from rlds.feeds.roles import Roles
    >>> from rlds.statistics import compute_statistics
    >>> steps = {"action": np.eye(2), "is_last": np.array([False, True])}
    >>> statistics = compute_statistics([{"steps": steps}], include_last_action=True)
    >>> json.loads(statistics_to_json(Roles().join(statistics)))["action"]["mean"]
    [0.5, 0.5]
    """
    return filed(statistics, _plain)


def statistics_from_json(text: str, *, dataset_name: str | None = None) -> Statistics:
    """Reads the statistics of the "action" and the "state" that Octo wrote.

    Args:
      text: The content of the file.
      dataset_name: Of which dataset, if there are several.

    Raises:
      ValueError: There are no such statistics in it.
    """
    return read_filed(text, dataset_name)


def _plain(statistics: Statistics) -> dict[str, Any]:
    names = {ACTION: ACTION, STATE: PROPRIO}
    return {
        **{
            name: plain_field(statistics[role], "p", role)
            for role, name in names.items()
            if role in statistics
        },
        "num_transitions": statistics.num_transitions,
        "num_trajectories": statistics.num_trajectories,
    }
