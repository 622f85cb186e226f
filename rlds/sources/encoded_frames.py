"""Frames of video clips as PNG or JPEG files of steps, as loaders of RLDS datasets expect."""

from __future__ import annotations

import abc
import dataclasses
import io
from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources.source import AnySource, Capabilities, Fields, Source
from rlds.sources.video_frames import FramesSource
from rlds.sources.view import RowContext, View
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at, nest
from tfds_files.png import encode_png

__all__ = ["ChangedImages", "EncodedFrames", "with_video"]


def with_video(source: AnySource) -> AnySource:
    """Decodes the video of a source to pixels or image files, if its option `video` is set."""
    video, quality = source.capabilities.video, source.capabilities.quality
    if video == "packets" or not isinstance(source, Source):
        return source
    frames = FramesSource(source)
    return frames if video == "frames" else EncodedFrames(frames, video, quality)


class ChangedImages(View):
    """A view that converts the images of steps, such as to another encoding.

    Args:
      source: The source.
      images: The new fields of images, by the path in a step.

    Attributes:
      images: See above.
    """

    shares_table = True

    def __init__(self, source: Source, images: Mapping[str, Field]) -> None:
        super().__init__(source)
        self.images = images

    @property
    @override
    def fields(self) -> Fields:
        fields = super().fields
        return fields.replace(steps=nest({**dict(leaves_at(fields.steps, None)), **self.images}))

    @property
    @override
    def capabilities(self) -> Capabilities:  # Exports apply this view to a source of image files.
        return dataclasses.replace(super().capabilities, image_files=None)

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        paths = {f"{rlds.STEPS}/{path}": path for path in self.images}
        names = {path: name for path, name in paths.items() if path in values}
        return values | {path: self._convert(values[path], name) for path, name in names.items()}

    @abc.abstractmethod
    def _convert(self, column: Any, path: str) -> np.ndarray:
        """Converts a column of images."""


class EncodedFrames(ChangedImages):
    """A source whose steps have the pixels of its clips as PNG or JPEG files.

    Depth frames, whose dtype is not uint8, stay arrays.

    Args:
      source: The source of decoded frames.
      encoding: The file format. PNG is lossless, with fast compression.
      quality: The quality of JPEG files, 1 to 100.

    Raises:
      ValueError: The quality is out of range.
    """

    def __init__(
        self, source: FramesSource, encoding: Literal["png", "jpeg"], quality: int
    ) -> None:
        cameras = source.cameras.items()
        colors = {path: field for path, field in cameras if field.dtype == np.uint8}.items()
        super().__init__(source, {p: dataclasses.replace(f, encoding=encoding) for p, f in colors})
        if not 1 <= quality <= 100:
            raise ValueError(f"quality: got {quality}, expected 1 to 100")
        self._encoding, self._quality = encoding, quality

    @override
    def _convert(self, column: Any, path: str) -> np.ndarray:
        return objects(map(self._encode, column))

    def _encode(self, image: np.ndarray) -> bytes:
        if self._encoding == "png":
            return encode_png(image)
        jpeg = io.BytesIO()
        pixels = image[..., 0] if image.shape[-1] == 1 else image
        import_extra("PIL.Image").fromarray(pixels).save(jpeg, "JPEG", quality=self._quality)
        return jpeg.getvalue()
