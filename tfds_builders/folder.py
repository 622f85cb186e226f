"""The builder of copies of datasets."""

from __future__ import annotations

import tensorflow_datasets as tfds

from rlds.formats.tfds.source import FolderSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsFolder"]


class RldsFolder(SourceBuilder):
    """An RLDS dataset that TFDS stored, in other files.

    The `path` is its directory.
    """

    VERSION = tfds.core.Version("1.0.0")
    SHUFFLE = False
    source_class = FolderSource
