"""The builder of Minari datasets."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.minari.source import MinariSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsMinari"]


class RldsMinari(SourceBuilder):
    """Any Minari dataset, in any of its formats, with all that it has.

    The `path` is the directory of the dataset, or the identifier by which Minari finds it:
    `tfds.load("rlds_minari", builder_kwargs={"path": "mujoco/hopper/medium-v0"})`. To have several
    in one `data_dir`, give each a config of its own: `RldsMinari(path="mujoco/hopper/medium-v0",
    config=tfds.core.BuilderConfig(name="hopper-medium"))`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = MinariSource
