"""The builder of CALVIN."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.calvin.source import CalvinSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsCalvin"]


class RldsCalvin(SourceBuilder):
    """A dataset of CALVIN, such as `task_D_D`, with its annotations.

    The `path` is the folder with `training` and `validation`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = CalvinSource
