"""The builders of recordings of robots."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.bags.source import McapSource, RosbagSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsMcap", "RldsRosbag"]


class RldsMcap(SourceBuilder):
    """MCAP files, whose messages become steps as a configuration says.

    The `path` is a file or a folder of files: `RldsMcap(path="runs", bag_config="arm.toml")`.
    Without a `bag_config`, a usual one is proposed.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = McapSource


class RldsRosbag(SourceBuilder):
    """Bags of ROS 1 and ROS 2, as `RldsMcap`."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = RosbagSource
