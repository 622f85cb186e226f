"""The builder of replay buffers of Stable-Baselines3."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.sb3.source import Sb3Source
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsSb3"]


class RldsSb3(SourceBuilder):
    """The episodes in a replay buffer that `save_replay_buffer` wrote: the `path` is its file."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = Sb3Source
