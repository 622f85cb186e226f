"""Common names of optional episode metadata."""

from typing import Final

__all__ = ["AGENT_ID", "ENVIRONMENT_CONFIG", "EPISODE_ID", "EXPERIMENT_ID", "INVALID"]

EPISODE_ID: Final = "episode_id"
"""Identifier of the episode (string), unique in its dataset and usually also elsewhere."""

AGENT_ID: Final = "agent_id"
"""The agent: a string, or for N agents an [N, 2] tensor of (name in the environment, agent)."""

ENVIRONMENT_CONFIG: Final = "environment_config"
"""The configuration of the environment (string), such as a JSON of module, factory and config."""

EXPERIMENT_ID: Final = "experiment_id"
"""Identifier of the experiment of the episode (string)."""

INVALID: Final = "invalid"
"""Whether to skip the episode (bool), for instance after an interrupted recording."""
