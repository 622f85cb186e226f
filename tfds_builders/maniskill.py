"""The builder of ManiSkill."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.maniskill.source import ManiSkillSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsManiskill"]


class RldsManiskill(SourceBuilder):
    """The trajectories of a ManiSkill 2 or 3 file, with all that it and its JSON file have.

    The `path` is the HDF5 file, beside which is the JSON file.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = ManiSkillSource
