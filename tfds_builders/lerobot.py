"""The builder of LeRobot datasets."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.lerobot.source import LeRobotSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsLerobot"]


class RldsLerobot(SourceBuilder):
    """Any LeRobot dataset of version 2.0, 2.1 or 3.0, with all that it has.

    The `path` is the folder of the dataset. To have several in one `data_dir`, give each a config
    of its own: `RldsLerobot(path="pusht", config=tfds.core.BuilderConfig(name="pusht"))`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = LeRobotSource
