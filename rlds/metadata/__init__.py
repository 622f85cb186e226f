"""Names of common metadata fields of RLDS datasets."""

from rlds.metadata.metadata_types import (
    AGENT_ID,
    ENVIRONMENT_CONFIG,
    EPISODE_ID,
    EXPERIMENT_ID,
    INVALID,
)

__all__ = ["AGENT_ID", "ENVIRONMENT_CONFIG", "EPISODE_ID", "EXPERIMENT_ID", "INVALID"]
