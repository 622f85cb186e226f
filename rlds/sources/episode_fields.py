"""Fields of episodes in every source, such as key and origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import rlds
from rlds.sources.source import Origin, SourceEpisode
from rlds_ecosystem.model.fields import Field, Fields

__all__ = [
    "ACTION_REMAINDER",
    "COMPLETE",
    "EPISODE_FIELDS",
    "IMAGE_FILE",
    "ORIGIN",
    "RESERVED",
    "TRUNCATED",
    "as_converted",
    "fields_of",
]

TRUNCATED = "truncated"
COMPLETE = "complete"
ORIGIN = "source"
# The group of step fields with the names of image files.
IMAGE_FILE = "image_file"
# The rounding remainder of actions converted between deltas and targets, a field of steps.
ACTION_REMAINDER = "action_rest"

EPISODE_FIELDS: Mapping[str, Field | Fields] = {
    rlds.metadata.EPISODE_ID: Field(str),
    rlds.FINAL_OBSERVATION_KNOWN: Field(np.bool_),
    TRUNCATED: Field(np.bool_),
    COMPLETE: Field(np.bool_),
    ORIGIN: {"file": Field(str), "begin": Field(np.int64), "end": Field(np.int64)},
}
# The names of an episode's fields that a source cannot use.
RESERVED = (rlds.STEPS, *EPISODE_FIELDS)


def fields_of(episode: SourceEpisode) -> dict[str, Any]:
    """Returns the fields of an episode other than its steps."""
    return {
        rlds.metadata.EPISODE_ID: episode.key,
        rlds.FINAL_OBSERVATION_KNOWN: np.bool_(episode.final_observation_known),
        TRUNCATED: np.bool_(episode.truncated),
        COMPLETE: np.bool_(episode.complete),
        ORIGIN: {
            "file": episode.origin.file,
            "begin": np.int64(episode.origin.begin),
            "end": np.int64(episode.origin.end),
        },
        **episode.metadata,
    }


def as_converted(episode: SourceEpisode) -> SourceEpisode:
    """Returns an episode of a converted dataset with its key and origin in the raw data."""
    fields = dict(episode.metadata)
    key, origin = fields.pop(rlds.metadata.EPISODE_ID, None), fields.pop(ORIGIN, None)
    changes: dict[str, Any] = {}
    if key is not None:
        changes["key"] = key.decode() if isinstance(key, bytes) else str(key)
    if origin is not None:
        file = origin["file"].decode()
        changes["origin"] = Origin(file, int(origin["begin"]), int(origin["end"]))
    return dataclasses.replace(episode, metadata=fields, **changes) if changes else episode
