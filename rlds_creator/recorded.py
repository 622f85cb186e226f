"""Names of the fields that RLDS Creator records in addition to the data of the environment.

Readers of recordings depend on these names: never change them. `docs/creator.md` describes them.
"""

from __future__ import annotations

__all__ = [
    "CAMERA",
    "ENVIRONMENT",
    "ENVIRONMENT_ID",
    "FPS",
    "IMAGE",
    "INFO",
    "INPUTS",
    "KEYS",
    "QUALITY",
    "STEP_FIELDS",
    "STUDY_ID",
    "TIME",
]

# Fields of the custom data of steps.
IMAGE = "image"
KEYS = "keys"
INFO = "info"
INPUTS = "inputs"
TIME = "time"
FPS = "fps"
CAMERA = "camera"
QUALITY = "quality"
STEP_FIELDS = (IMAGE, KEYS, INFO, INPUTS, TIME, FPS, CAMERA, QUALITY)

# Fields of the metadata of episodes.
STUDY_ID = "rlds_creator:study_id"
ENVIRONMENT_ID = "rlds_creator:env_id"
ENVIRONMENT = "rlds_creator:environment"
