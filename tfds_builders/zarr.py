"""The builder of replay buffers in Zarr."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.zarr_buffers.source import ZarrSource
from tfds_builders.builder import SourceBuilder

__all__ = ["RldsZarr"]


class RldsZarr(SourceBuilder):
    """Any replay buffer in Zarr v2, of Diffusion Policy or UMI, with all that it has.

    The `path` is the folder or the `.zarr.zip` archive. To have several in one `data_dir`, give
    each a config of its own: `RldsZarr(path="pusht.zarr", config=tfds.core.BuilderConfig(
    name="pusht"))`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = ZarrSource
