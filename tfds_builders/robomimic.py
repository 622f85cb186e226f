"""The builder of demonstrations in robomimic's format."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.robomimic.source import RobomimicSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsRobomimic"]


class RldsRobomimic(SourceBuilder):
    """Demonstrations of robosuite, robomimic, MimicGen, LIBERO, RoboCasa or Isaac Lab.

    The `path` is an HDF5 file, or a folder of them, which make one dataset: `tfds.load(
    "rlds_robomimic", builder_kwargs={"path": "lift/ph/low_dim.hdf5"})`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = RobomimicSource
