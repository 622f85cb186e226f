"""The builder of datasets of OGBench."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.ogbench.source import OGBenchSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsOgbench"]


class RldsOgbench(SourceBuilder):
    """Any dataset of OGBench, with both its splits. The `path` is its file, or the folder."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = OGBenchSource
