"""Video clips of episodes: cut, joined and decoded.

An episode with video has, for each camera, an episode field `video/<path of the step field>`, such
as `video/observation/images/top`, which is a dict of

    clip    bytes of a complete video file, with the packets of the source
    first   int64: the number of frames of the clip before the frame of step 0
    frames  int64: the frame of each step; only if frames and steps do not match one to one

Frames are counted in the order of their time stamps.
"""

from typing import Final

__all__ = ["CLIP", "FIRST", "FRAMES", "VIDEO"]

VIDEO: Final = "video"
"""The episode field with the clips of all cameras."""

CLIP: Final = "clip"
"""The field of a camera with the video file."""

FIRST: Final = "first"
"""The field of a camera with the number of frames before the frame of step 0."""

FRAMES: Final = "frames"
"""The field of a camera with the frame of each step."""
