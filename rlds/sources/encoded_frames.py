"""The frames of clips as image files of steps, as loaders of RLDS datasets expect them."""

from __future__ import annotations

import abc
import dataclasses
import io
from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from rlds.sources import reading
from rlds.sources.source import ALL_ROWS, RandomAccessSource, Source, SourceEpisode
from rlds.sources.video_frames import FramesSource
from rlds.sources.wrapped import WrappedSource
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at, nest
from tfds_files.png import encode_png

__all__ = ["ChangedImages", "EncodedFrames", "with_video"]


def with_video(source: Source) -> Source:
    """Returns a source, with pixels or files of images if its option `video` asks for them."""
    if source.video == "packets" or not isinstance(source, RandomAccessSource):
        return source
    frames = FramesSource(source)
    if source.video == "frames":
        return frames
    return EncodedFrames(frames, source.video, source.quality)


class ChangedImages(WrappedSource):
    """A source whose steps have other images than those of another source.

    Args:
      source: The other source.
      images: The fields that images become, by the path in a step.

    Attributes:
      images: See above.
    """

    shares_table = True

    def __init__(self, source: RandomAccessSource, images: Mapping[str, Field]) -> None:
        super().__init__(source)
        self.images = images

    @override
    def step_fields(self) -> Mapping[str, Any]:
        return nest({**dict(leaves_at(self.source.step_fields(), None)), **self.images})

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        episode = reading.read(self.source, split, index, fields, rows)
        columns = dict(leaves_at(episode.steps, None))
        for path in self.images.keys() & columns.keys():
            columns[path] = self._changed(columns[path], path)
        return dataclasses.replace(episode, steps=nest(columns))

    @abc.abstractmethod
    def _changed(self, column: Any, path: str) -> np.ndarray:
        """Returns the images that the images of a column become."""


class EncodedFrames(ChangedImages):
    """A source whose steps have the pixels of its clips as PNG or JPEG files.

    Frames of other dtypes than uint8, which are depths, stay arrays.

    Args:
      source: The pixels.
      encoding: Which files. PNG files are exact; they are compressed fast rather than well.
      quality: The quality of JPEG files, 1 to 100.

    Raises:
      ValueError: There is no such quality.
    """

    def __init__(
        self, source: FramesSource, encoding: Literal["png", "jpeg"], quality: int
    ) -> None:
        cameras = source.cameras.items()
        files = {
            p: dataclasses.replace(f, encoding=encoding) for p, f in cameras if f.dtype == np.uint8
        }
        super().__init__(source, files)
        if not 1 <= quality <= 100:
            raise ValueError(f"quality: got {quality}, expected 1 to 100")
        self._encoding, self._quality = encoding, quality

    @override
    def _changed(self, column: Any, path: str) -> np.ndarray:
        files = np.empty(len(column), object)
        files[:] = [self._file(image) for image in column]
        return files

    def _file(self, image: np.ndarray) -> bytes:
        if self._encoding == "png":
            return encode_png(image)
        made = io.BytesIO()
        pixels = image[..., 0] if image.shape[-1] == 1 else image
        import_extra("PIL.Image").fromarray(pixels).save(made, "JPEG", quality=self._quality)
        return made.getvalue()
