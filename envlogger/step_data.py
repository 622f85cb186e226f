"""The unit of data that is recorded: one interaction of an agent with its environment."""

from __future__ import annotations

from typing import Any, NamedTuple

import dm_env


class StepData(NamedTuple):
    """One recorded step.

    The action is the one that *led to* `timestep` (dm_env alignment), so it is `None` in the first
    step of an episode.

    Attributes:
      timestep: The time step that the environment returned.
      action: The action that led to `timestep`; `None` for the first step of an episode.
      custom_data: Anything else worth keeping about this step, or `None`.

    >>> StepData(timestep=dm_env.restart(observation=1.0), action=None).custom_data is None
    True
    """

    timestep: dm_env.TimeStep
    action: Any
    custom_data: Any = None
