"""RL Unplugged, DeepMind Locomotion: whole episodes (`dm_locomotion_episodes`).

As the Control Suite (`tfds_builders.rlu.control_suite`), with one more kind of field: cameras are
raw RGB values, and become PNG images, which lose nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tfds_builders.rlu.control_suite import RluControlSuiteSource
from tfds_builders.rlu.source import Alignment, RluBuilder, RluConfig, published

__all__ = ["TASKS", "RldsRluLocomotion", "RluLocomotionSource"]

TASKS = (
    "humanoid_corridor",
    "humanoid_gaps",
    "humanoid_walls",
    "rodent_bowl_escape",
    "rodent_gaps",
    "rodent_mazes",
    "rodent_two_touch",
)
_NUM_FILES = 100


class RluLocomotionSource(RluControlSuiteSource):
    """Episodes of DeepMind Locomotion; see the module, and `RluSource` for the other arguments.

    Args:
      camera_shape: The shape of the images of cameras. The files do not say it.
    """

    description = "Episodes of DeepMind Locomotion of RL Unplugged."

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        prefix: str | None = None,
        alignment: Alignment | None = None,
        require_unique_ids: bool = False,
        camera_shape: tuple[int, int, int] = (64, 64, 3),
    ) -> None:
        self.camera_shape = camera_shape
        super().__init__(
            path, prefix=prefix, alignment=alignment, require_unique_ids=require_unique_ids
        )

    def raw_image_shape(self, name: str) -> tuple[int, int, int] | None:
        """Returns the shape of the images of cameras."""
        return self.camera_shape if name.endswith("camera") else None

    def options(self) -> Mapping[str, Any]:
        """Returns what `RluSource` does, and the shape of the images."""
        return {**super().options(), "camera_shape": list(self.camera_shape)}


class RldsRluLocomotion(RluBuilder):
    """Episodes of DeepMind Locomotion of RL Unplugged; see `tfds_builders.rlu.locomotion`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = published(
        RluConfig(
            name=task,
            directory=f"dm_locomotion_episodes/{task}",
            prefix="train",
            num_files=_NUM_FILES,
        )
        for task in TASKS
    )
    source_class = RluLocomotionSource
