"""BGR images, for readers that expect RGB."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources.encoded_frames import ChangedImages
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.source import Source
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import BGR, Field, as_fields
from rlds_ecosystem.model.nests import leaves_at
from tfds_files.png import encode_png

__all__ = ["RED_FIRST", "RgbSource", "as_rgb", "channel_note", "is_bgr", "with_rgb"]

RED_FIRST = "red first, which was last"
"""The reason in the placement of a field whose channels were exchanged."""


def is_bgr(field: Any) -> bool:
    """Whether a field has BGR images."""
    return isinstance(field, Field) and field.names == BGR and len(field.shape) == 3


def as_rgb(images: np.ndarray, field: Field) -> np.ndarray:
    """Returns images in RGB order; reverses the channels of a BGR field."""
    return np.ascontiguousarray(images[..., ::-1]) if is_bgr(field) else images


def channel_note(field: Any) -> str:
    """Returns the note in the placement of a field whose copy is RGB; see `as_rgb`."""
    return f", {RED_FIRST}" if is_bgr(field) else ""


def with_rgb(episodes: Episodes, skipped: Collection[str] = ()) -> Episodes:
    """Returns the same episodes with RGB images; see `RgbSource`.

    Streams are not changed: the placements of fields state their channel order.

    Args:
      episodes: The episodes.
      skipped: Fields of steps that are not changed.
    """
    source, steps = episodes.source, leaves_at(episodes.spec[rlds.STEPS], None)
    paths = [path for path, field in steps if is_bgr(field) and path not in skipped]
    if not paths or not isinstance(source, Source):
        return episodes
    return episodes.through(RgbSource, paths)


class RgbSource(ChangedImages):
    """A source with RGB images instead of the BGR images of another source.

    Image files become PNG files, as encoding JPEG again would change the pixels.

    Args:
      source: The source.
      paths: The fields of steps whose channels are reversed.
    """

    def __init__(self, source: Source, paths: Sequence[str]) -> None:
        steps = dict(leaves_at(as_fields(source.fields.steps), None))
        self._fields = {path: steps[path] for path in paths}
        images = {
            path: dataclasses.replace(field, names=None, encoding=field.encoding and "png")
            for path, field in self._fields.items()
        }
        super().__init__(source, images)

    @override
    def _convert(self, column: Any, path: str) -> np.ndarray:
        field = self._fields[path]
        images = as_values(column, field)
        if not field.encoding:
            return as_rgb(images, field)
        return objects(encode_png(as_rgb(image, field)) for image in images)
