"""RL Unplugged, DeepMind Locomotion: whole episodes (`dm_locomotion_episodes`).

Like the Control Suite (`rlds.formats.rlu.control_suite`), with one more kind of field: cameras are
raw RGB values, in a string for each row or one for all rows, and become PNG images without loss.
The other product, `dm_locomotion`, has windows of episodes: see
`rlds.formats.rlu.locomotion_windows`.
"""

from __future__ import annotations

import math

from typing_extensions import override

from rlds.formats.rlu.control_suite import RluControlSuiteSource
from rlds.formats.rlu.files import PathOrPaths
from rlds.formats.rlu.records import Alignment, FieldError, Values, num_rows
from rlds.sources.source import SourceInfo

__all__ = ["TASKS", "RluLocomotionSource"]

TASKS = (
    "humanoid_corridor",
    "humanoid_gaps",
    "humanoid_walls",
    "rodent_bowl_escape",
    "rodent_gaps",
    "rodent_mazes",
    "rodent_two_touch",
)


class RluLocomotionSource(RluControlSuiteSource):
    """Locomotion episodes of RL Unplugged. `RluSource` describes the other arguments.

    Args:
      camera_shape: The shape of camera images, which is not in the files.
    """

    _DESCRIPTION = "Episodes of DeepMind Locomotion of RL Unplugged."
    builder_name = "rlds_rlu_locomotion"

    def __init__(
        self,
        path: PathOrPaths,
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

    def prepare(self, values: dict[str, Values]) -> dict[str, Values]:
        """Splits camera fields stored as one string to one string a row."""
        rows = num_rows(values, self.row_field)
        return {name: self._split(name, column, rows) for name, column in values.items()}

    def _split(self, name: str, column: Values, rows: int) -> Values:
        shape = self.raw_image_shape(name)
        if shape is None or not isinstance(column, list) or len(column) != 1 or rows == 1:
            return column
        (images,), size = column, math.prod(shape)
        if len(images) != rows * size:
            problem = f"one string of {len(images)} bytes, expected {rows * size}"
            raise FieldError(name, f"{problem}: {rows} raw images of shape {shape}")
        return [images[i * size : (i + 1) * size] for i in range(rows)]

    @property
    @override
    def source_info(self) -> SourceInfo:
        info = super().source_info
        return info.replace(options={**info.options, "camera_shape": list(self.camera_shape)})
