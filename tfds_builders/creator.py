"""The builder of downloads from RLDS Creator."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.creator.source import RldsCreatorSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsCreator"]


class RldsCreator(SourceBuilder):
    """Episodes that people recorded and annotated with RLDS Creator."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = RldsCreatorSource
