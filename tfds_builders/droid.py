"""The builder of raw DROID."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.droid.source import DroidSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsDroid"]


class RldsDroid(SourceBuilder):
    """Raw episodes of DROID.

    The `path` is a folder with folders of episodes below it.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = DroidSource
