"""The builder of ACT and ALOHA."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.aloha.source import AlohaSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsAloha"]


class RldsAloha(SourceBuilder):
    """A folder of `episode_0.hdf5`, ..., as ACT, ALOHA and Mobile ALOHA record them.

    The `path` is the folder: `tfds.load("rlds_aloha", builder_kwargs={"path": "data/open_lid"})`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = AlohaSource
