"""Copies data in any format to a dataset whose single steps feeds can read in place."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable
from typing import Any, Literal

import numpy as np
from typing_extensions import override

import rlds
import tfds_files
from rlds.conversion.exporting import prepare, write_export
from rlds.feeds.images import ImageDecoder, ImageError
from rlds.feeds.resizing import resize
from rlds.sources import reading
from rlds.sources.encoded_frames import ChangedImages
from rlds.sources.episodes import Episodes
from rlds.sources.opening import open as open_episodes
from rlds.sources.source import Fields, SourceError, SourceInfo, files_of
from rlds.sources.view import RowContext
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.whole_files import atomic_target
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at, nest, root_of

__all__ = ["Materialised", "materialise"]


def materialise(
    source: str | os.PathLike[str] | Episodes,
    directory: str | os.PathLike[str],
    *,
    split: str | None = None,
    fields: Iterable[str] | None = None,
    name: str | None = None,
    images: Literal["stored", "png", "raw"] = "stored",
    png_level: int | None = None,
    image_size: tuple[int, int] | None = None,
    jpeg: Literal["accurate", "tf"] = "accurate",
    max_episodes_per_shard: int = 1000,
    progress: bool | None = False,
    jobs: int | None = None,
    **options: Any,
) -> str:
    """Copies episodes to a TFDS dataset that feeds read in place.

    Numbers are stored uncompressed, with the same size in every step. Images stay files or pixels,
    unless `images` is set. Metadata of episodes is kept, as by `tfds_builders.convert`.

    The directory appears when the dataset is complete. The next call removes the unfinished files
    of a killed process.

    Args:
      source: An argument of `rlds.sources.open`, or the episodes that it returns.
      directory: The new local folder of the dataset; it must be empty, or not exist.
      split: The split, or a slice such as `train[:90%]`; all splits by default.
      fields: Paths of the step fields to copy, in addition to the flags; all by default.
      name: The name of the dataset; by default its current name, or "materialised".
      images: The storage of images. "stored" keeps it unchanged. "raw" stores pixels, which feeds
        copy without decoding: much faster, for several times the space. "png" stores uint8 arrays
        of shape `(height, width, 1 | 3 | 4)` as PNG files, which are smaller, and slower to write
        and to read; not for TFDS datasets.
      png_level: The compression level of PNG files, 0 to 9 as for `zlib.compress`. If None, 1,
        which is fast, or 6 for images that compress well. All levels are lossless.
      image_size: With "raw", the new height and width of uint8 images, see
        `rlds.feeds.resizing.resize`; unchanged by default.
      jpeg: With "raw", the decoder of JPEG files, see `rlds.feeds.open`.
      max_episodes_per_shard: The largest number of episodes in a file.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: The number of processes that write, see `rlds.sources.export`.
      **options: Options of the format of the source.

    Returns:
      The directory.

    Raises:
      FileExistsError: The directory is not empty, or another process writes to it.
      FileNotFoundError: The path of the source does not exist.
      KeyError: There is no such split, or no such field.
      SourceError: An episode is damaged, or breaks a rule of RLDS; the message has the location.
      ValueError: The directory is not on this machine, a field cannot be stored, or images have no
        fixed size.
      OSError: The dataset cannot be written.

    >>> import tempfile
    >>> import envlogger
    >>> from envlogger.testing.catch_env import Catch
    >>> log = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=log) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> directory = materialise(log, f"{tempfile.mkdtemp()}/catch")
    >>> tfds_files.open_folder(directory)["train"][0]["steps"]["action"][:3]
    array([1, 1, 1])
    """
    if images not in ("stored", "png", "raw"):
        raise ValueError(f"images must be 'stored', 'png' or 'raw', got {images!r}")
    if image_size is not None and images != "raw":
        raise ValueError(f"image_size needs images='raw', got images={images!r}")
    if not stores.is_local(directory):
        raise ValueError(f"{os.fspath(directory)}: feeds read local files; pass a local folder")
    if not isinstance(source, Episodes):
        source = open_episodes(source, split or "all", **options)
    elif options:
        raise TypeError(f"option {min(options)!r}: pass it to rlds.sources.open with the path")
    image_source: Any = reading.with_image_files(source.source)
    as_png = image_source.source_info.images_as_png and image_source.capabilities.examples is None
    if fields is not None or images == "raw" or as_png != (images == "png"):
        image_source = Materialised(image_source, fields, images, image_size, jpeg)
    writer = prepare(
        Episodes(image_source, split or source.split, format=source.format),
        "tfds",
        name=name or (None if source.source.capabilities.examples else "materialised"),
        file_format="tfrecord",
        layout="direct",
        shard_episodes=max_episodes_per_shard,
        png_level=png_level,
    )
    with atomic_target(directory) as draft:
        drafts = draft.parent  # Unfinished files are removed with this folder.
        write_export(
            writer, draft, final_path=directory, progress=progress, jobs=jobs, drafts=drafts
        )
        for written_split in tfds_files.open_folder(draft).values():
            tfds_files.open_indexes(written_split)
    return os.fspath(directory)


class Materialised(ChangedImages):
    """A view of episodes with selected step fields, and images in the form of `materialise`.

    Args:
      source: The episodes, with encoded image files.
      fields: Paths of the fields; all if None.
      images: See `materialise`.
      size: The height and width of the images, see `materialise`.
      jpeg: The decoder of JPEG files, see `materialise`.
    """

    def __init__(
        self,
        source: Any,
        fields: Iterable[str] | None,
        images: str,
        size: tuple[int, int] | None,
        jpeg: Literal["accurate", "tf"],
    ) -> None:
        steps = dict(leaves_at(source.fields.steps, None if fields is None else [*fields]))
        self._as_png, self._size, self._paths = images == "png", size, {*steps}
        self._decoders: dict[str, ImageDecoder | None] = {}
        pixels = {}
        for path, field in steps.items() if images == "raw" else ():
            if not isinstance(field, Field):
                continue
            shape, dtype = field.shape, field.column_dtype
            is_resized = size is not None and dtype == np.uint8
            if len(shape) != 3 or not (field.encoding or (is_resized and shape[2] in (1, 3, 4))):
                continue
            height, width = size if size is not None and is_resized else shape[:2]
            if height is None or width is None:
                raise ValueError(f"{path}: the images have several sizes; pass image_size")
            self._decoders[path] = None
            if field.encoding:
                decoder = ImageDecoder(shape, dtype, field.encoding, jpeg=jpeg, threads=None)
                self._decoders[path] = decoder
            shape = height, width, shape[2] or 3
            pixels[path] = dataclasses.replace(field, dtype=dtype, shape=shape, encoding="")
        super().__init__(source, pixels)

    @property
    @override
    def source_info(self) -> SourceInfo:
        finite = [path for path in super().source_info.finite_fields if path in self._paths]
        return super().source_info.replace(images_as_png=self._as_png, finite_fields=tuple(finite))

    @property
    @override
    def fields(self) -> Fields:
        fields = super().fields
        steps = leaves_at(fields.steps, None)
        return fields.replace(steps=nest({p: field for p, field in steps if p in self._paths}))

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        kept_paths = {f"{rlds.STEPS}/{path}" for path in (*self._paths, *rlds.STEP_FLAGS)}
        values = {p: values[p] for p in values if p in kept_paths or root_of(p) != rlds.STEPS}
        return super().make(values, rows, fields)

    @override
    def _convert(self, column: Any, path: str) -> np.ndarray:
        decoder, size = self._decoders[path], self._size
        try:
            images = column if decoder is None else decoder.decode(list(column))
        except ImageError as error:
            problem, file = error.problem, files_of(self)
            raise SourceError(problem, file=file, row=error.row, field=path) from error
        if size is None or images.dtype != np.uint8:
            return np.asarray(images)
        resized = np.empty((len(images), *size, images[0].shape[-1]), np.uint8)
        for row, image in enumerate(images):
            resized[row] = resize(image, size)
        return resized
