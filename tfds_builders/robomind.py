"""The builder of RoboMIND."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.robomind.source import RoboMindSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsRobomind"]


class RldsRobomind(SourceBuilder):
    """Episodes of RoboMIND, of one embodiment.

    The `path` is the folder of the embodiment, or of a task.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = RoboMindSource
