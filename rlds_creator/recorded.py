"""Names of what is recorded beside what the environment gives.

Others read recordings by these names, so none of them may change. `docs/creator.md` describes them.
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

# In the custom data of steps.
IMAGE = "image"
KEYS = "keys"
INFO = "info"
INPUTS = "inputs"
TIME = "time"
FPS = "fps"
CAMERA = "camera"
QUALITY = "quality"
STEP_FIELDS = (IMAGE, KEYS, INFO, INPUTS, TIME, FPS, CAMERA, QUALITY)

# In the metadata of episodes.
STUDY_ID = "rlds_creator:study_id"
ENVIRONMENT_ID = "rlds_creator:env_id"
ENVIRONMENT = "rlds_creator:environment"
