"""The builder of datasets of d3rlpy."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.d3rlpy.source import D3rlpySource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsD3rlpy"]


class RldsD3rlpy(SourceBuilder):
    """Any dataset that d3rlpy 2 dumped. The `path` is its file."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = D3rlpySource
