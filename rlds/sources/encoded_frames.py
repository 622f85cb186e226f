"""The frames of clips as image files of steps, as loaders of RLDS datasets expect them."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from typing_extensions import override

from rlds.sources import reading
from rlds.sources.source import ALL_ROWS, SourceEpisode
from rlds.sources.wrapped import WrappedSource
from rlds_ecosystem import import_extra
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import leaves_at, nest
from tfds_files.png import encode_png

if TYPE_CHECKING:
    from rlds.sources.video_frames import FramesSource

__all__ = ["EncodedFrames"]


class EncodedFrames(WrappedSource):
    """A source whose steps have the pixels of its clips as PNG or JPEG files.

    Frames of other dtypes than uint8, which are depths, stay arrays.

    Args:
      source: The pixels.
      encoding: Which files. PNG files are exact; they are compressed fast rather than well.
      quality: The quality of JPEG files, 1 to 100.

    Raises:
      ValueError: There is no such quality.
    """

    shares_table = True

    def __init__(
        self, source: FramesSource, encoding: Literal["png", "jpeg"], quality: int
    ) -> None:
        super().__init__(source)
        if not 1 <= quality <= 100:
            raise ValueError(f"quality: got {quality}, expected 1 to 100")
        self._encoding, self._quality = encoding, quality
        self._cameras = {
            path: info for path, info in source.cameras.items() if info.dtype == np.uint8
        }

    def step_fields(self) -> Mapping[str, Any]:
        """Returns those of the source, with files in the place of pixels."""
        files = {
            path: Field(info.dtype, info.shape, encoding=self._encoding)
            for path, info in self._cameras.items()
        }
        return nest({**dict(leaves_at(self.source.step_fields(), None)), **files})

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        episode = reading.read(self.source, split, index, fields, rows)
        return dataclasses.replace(episode, steps=self._encoded(episode.steps))

    def _encoded(self, steps: Mapping[str, Any]) -> Mapping[str, Any]:
        columns = dict(leaves_at(steps, None))
        for path in self._cameras.keys() & columns.keys():
            files = np.empty(len(columns[path]), object)
            files[:] = [self._file(image) for image in columns[path]]
            columns[path] = files
        return nest(columns)

    def _file(self, image: np.ndarray) -> bytes:
        if self._encoding == "png":
            return encode_png(image, level=1)
        made = io.BytesIO()
        pixels = image[..., 0] if image.shape[-1] == 1 else image
        import_extra("PIL.Image").fromarray(pixels).save(made, "JPEG", quality=self._quality)
        return made.getvalue()
