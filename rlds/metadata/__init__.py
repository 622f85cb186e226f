"""Names of the metadata fields that RLDS datasets share."""

from rlds.metadata.metadata_types import (
    AGENT_ID,
    ENVIRONMENT_CONFIG,
    EPISODE_ID,
    EXPERIMENT_ID,
    INVALID,
)

__all__ = ["AGENT_ID", "ENVIRONMENT_CONFIG", "EPISODE_ID", "EXPERIMENT_ID", "INVALID"]
