"""The builder of trajectories of imitation."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.imitation.source import ImitationSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsImitation"]


class RldsImitation(SourceBuilder):
    """Any trajectories that imitation saved. The `path` is the folder."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = ImitationSource
