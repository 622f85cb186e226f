"""The builder of AgiBot World."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.agibot.source import AgiBotSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsAgibot"]


class RldsAgibot(SourceBuilder):
    """Episodes of AgiBot World.

    The `path` is the folder with `task_info`, `observations` and `proprio_stats`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = AgiBotSource
