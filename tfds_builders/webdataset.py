"""The builder of shards of WebDataset."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.webdataset.source import WebdatasetSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsWebdataset"]


class RldsWebdataset(SourceBuilder):
    """Episodes in shards of WebDataset.

    The `path` is a folder with tar files, or one of them. The options `group` and `fields` say what
    a sample is, and what its fields are.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = WebdatasetSource
