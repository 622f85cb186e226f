"""Video as packets: cut, joined and decoded.

An episode with video has, for each camera, an episode field `video/<path of the step field>`, such
as `video/observation/images/top`, which is a dict of

    clip    bytes of a video file that plays alone; its packets are those of the source
    first   int64: how many of its frames come before that of step 0
    frames  int64 for each step: which frame; only where frames and steps do not match one to one

Frames are counted in the order of their time stamps.
"""

from typing import Final

__all__ = ["CLIP", "FIRST", "FRAMES", "VIDEO"]

VIDEO: Final = "video"
"""The episode field that has the clips of all cameras."""

CLIP: Final = "clip"
"""The field of a camera that has the video file."""

FIRST: Final = "first"
"""The field of a camera that says how many frames come before that of step 0."""

FRAMES: Final = "frames"
"""The field of a camera that says which frame each step has."""
