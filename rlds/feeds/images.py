"""Image files, decoded into the rows of a batch.

`tfds_files.decode_image` says which files are images of a feature, and what their pixels are. The
libraries here are faster. They decode the files for which they give the same pixels; all others,
damaged ones among them, go to `decode_image`, whose errors you see.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

import tfds_files
from rlds.sources import arrays
from rlds.sources.row_threads import for_all_rows
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import fits
from tfds_files.features import Image
from tfds_files.images import may_hold
from tfds_files.png import HEADER_SIZE as PNG_HEADER_SIZE
from tfds_files.png import read_header

__all__ = ["ImageDecoder", "ImageError"]

_Data: TypeAlias = bytes | memoryview
_Size: TypeAlias = tuple[int, int]
_Header: TypeAlias = tuple[int, int, int]  # Height, width and channels.
# Smaller images are decoded before a thread has got them.
_LEAST_BYTES = 1 << 14


class ImageError(ValueError):
    """The file of a row is damaged, or not an image that is read here.

    Attributes:
      row: The row of the batch.
      what: The fault. The error of `tfds_files` is the `__cause__`.
    """

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row, self.what = row, what

    def __str__(self) -> str:
        return f"row {self.row}: {self.what}"


class ImageDecoder:
    """Decodes image files into the rows of a batch.

    PNG files give the same pixels as in TFDS. Of JPEG files, TensorFlow takes a shortcut by
    default, and is off by up to 16 of 255; all other libraries agree.

    >>> from tfds_files.png import encode_png
    >>> files = [encode_png(np.full((2, 2, 3), value, np.uint8)) for value in (0, 255)]
    >>> decoder = ImageDecoder((2, 2, 3), np.uint8)
    >>> decoder.decode(files)[:, 0, 0]
    array([[  0,   0,   0],
           [255, 255, 255]], dtype=uint8)

    Args:
      shape: Height, width and channels of the images; None for a size that differs.
      dtype: uint8, uint16, or float32 for depths, whose bytes are stored as four channels.
      encoding: "jpeg" or "png" for the kind of file to expect. As in TFDS, a file of another kind
        is decoded too.
      jpeg: The decoder of JPEG files: "accurate" for the pixels of all libraries but TensorFlow
        (`tf.io.decode_jpeg` with `dct_method="INTEGER_ACCURATE"`), or "tf" for those of its
        default, bit by bit. For these you need simplejpeg, and files without any damage.
      threads: The number of decoding threads; 0 for the calling thread. All decoders share them. If
        None, as many as this process has processors, if there are several.

    Raises:
      ImportError: simplejpeg is needed, and not installed.
    """

    def __init__(
        self,
        shape: Sequence[int | None],
        dtype: np.typing.DTypeLike,
        encoding: str = "",
        *,
        jpeg: Literal["accurate", "tf"] = "accurate",
        threads: int | None = 0,
    ) -> None:
        if encoding not in _KINDS:
            raise ValueError(f"encoding: got {encoding!r}, expected one of {list(_KINDS)}")
        if jpeg not in ("accurate", "tf"):
            raise ValueError(f"jpeg: got {jpeg!r}, expected 'accurate' or 'tf'")
        if len(shape) != 3 or (threads or 0) < 0:
            raise ValueError(
                f"expected a shape of 3 axes and threads >= 0, got {tuple(shape)} and {threads}"
            )
        self._feature = Image(shape=tuple(shape), dtype=np.dtype(dtype), encoding_format=encoding)
        self._of_tf, self._threads = jpeg == "tf", threads
        if self._of_tf:
            _ = _JPEG_OF_TF.decode

    def decode(self, files: Sequence[bytes | memoryview | np.ndarray]) -> np.ndarray:
        """Returns the images, of shape `[rows, height, width, channels]`.

        Args:
          files: The file of each row.

        Returns:
          The images; as an array of arrays, as of `tfds_files.stack`, if their sizes differ.

        Raises:
          ImageError: A file is no image of this shape and dtype. It is the first such row.
          ImportError: No library for these files is installed; names the extra that brings one.
        """
        buffers = [file.data if isinstance(file, np.ndarray) else file for file in files]
        feature, kinds = self._feature, self._kinds()
        size = _common_size(buffers, feature, kinds)
        if size is None:
            return self._decode_unequal(buffers, kinds)
        images = arrays.empty((len(buffers), *size, feature.shape[-1] or 3), feature.dtype)
        rows = _pixels(images)
        feature = dataclasses.replace(feature, shape=images.shape[1:])

        def decode(chunk: range) -> None:
            for row in chunk:
                if not _decode_fast(buffers[row], rows[row], kinds):
                    images[row] = self._decode_exactly(buffers[row], feature, row)

        is_small = self._threads is None and math.prod(images.shape[1:]) < _LEAST_BYTES
        for_all_rows(decode, len(buffers), 0 if is_small else self._threads)
        return images

    def _decode_unequal(self, buffers: list[_Data], kinds: list[_Kind]) -> np.ndarray:
        feature = self._feature
        images: list[Any] = [None] * len(buffers)

        def decode(chunk: range) -> None:
            for row in chunk:
                size = _size(buffers[row], kinds)
                if size is not None and fits(size, feature.shape[:2]):
                    image = np.empty((*size, feature.shape[-1] or 3), feature.dtype)
                    if _decode_fast(buffers[row], _pixels(image), kinds):
                        images[row] = image
                        continue
                images[row] = self._decode_exactly(buffers[row], feature, row)

        for_all_rows(decode, len(buffers), self._threads)
        return tfds_files.stack(images)

    def _kinds(self) -> list[_Kind]:
        kinds = _KINDS[self._feature.encoding_format]
        kinds = [kind for kind in kinds if self._feature.dtype in kind.dtypes]
        return [_JPEG_OF_TF if kind is _JPEG and self._of_tf else kind for kind in kinds]

    def _decode_exactly(self, data: _Data, feature: Image, row: int) -> np.ndarray:
        try:
            image = tfds_files.decode_image(bytes(data), feature)
            if self._of_tf and data[:2] == b"\xff\xd8":
                raise tfds_files.UnsupportedFileError(
                    "simplejpeg does not decode this JPEG file, which is damaged or of a rare "
                    "kind, so TensorFlow's pixels are unknown; jpeg='accurate' decodes it"
                )
        except tfds_files.TfdsFilesError as e:
            raise ImageError(row, str(e)) from e
        return image


# Decodes a file with a header into a row; returns False, with anything in the row, if that is left
# to `decode_image`.
_Decode: TypeAlias = Callable[[_Data, _Header, np.ndarray], bool]


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A kind of file.

    Attributes:
      read_header: Returns height, width and channels of a file, if it is of this kind, and of a
        form that the libraries decode as `decode_image` does.
      dtypes: The dtypes of pixels that it can hold.
      libraries: Functions that import the libraries that decode it, the fastest first.
    """

    read_header: Callable[[_Data], _Header | None]
    dtypes: tuple[type[np.generic], ...]
    libraries: tuple[Callable[[], _Decode], ...]

    @functools.cached_property
    def decode(self) -> _Decode:
        """The decoder of the first installed library."""
        for load in self.libraries[:-1]:
            with contextlib.suppress(ImportError):
                return load()
        return self.libraries[-1]()


_JPEG_COLOURS = {(1, 1): "GRAY", (1, 3): "RGB", (1, 4): "RGBA", (3, 3): "RGB", (3, 4): "RGBA"}


def _simplejpeg(*, fast_transform: bool = False) -> _Decode:
    decode_jpeg = import_extra("simplejpeg").decode_jpeg

    def decode(data: _Data, header: _Header, row: np.ndarray) -> bool:
        shape = row.shape
        colours = _JPEG_COLOURS.get((header[2], shape[2]))
        if colours is None:
            return False
        try:
            image = decode_jpeg(data, colours, fast_transform, buffer=row)
        except ValueError:  # Also where the file is only slightly damaged.
            return False
        return bool(image.shape == shape)

    return decode


def _opencv() -> _Decode:
    library = importlib.import_module("cv2")
    # These neither turn images as their Exif data says, nor start threads, as `cvtColor` does.
    as_it_is = library.IMREAD_IGNORE_ORIENTATION | library.IMREAD_ANYDEPTH
    flags = {1: as_it_is, 3: as_it_is, 4: library.IMREAD_UNCHANGED}
    order = {4: [0, 2, 1, 1, 2, 0, 3, 3]}  # From BGRA.
    if hasattr(library, "IMREAD_COLOR_RGB"):
        flags[3] |= library.IMREAD_COLOR_RGB
    else:
        flags[3] |= library.IMREAD_COLOR
        order[3] = [0, 2, 1, 1, 2, 0]

    def decode(data: _Data, header: _Header, row: np.ndarray) -> bool:
        if header != row.shape:
            return False
        channels = header[2]
        try:
            image = library.imdecode(np.frombuffer(data, np.uint8), flags[channels])
        except library.error:
            return False
        if image is None or image.dtype != row.dtype or image.size != row.size:
            return False
        image = image.reshape(row.shape)
        if channels in order:
            library.mixChannels([image], [row], order[channels])
        else:
            row[:] = image
        return True

    return decode


def _pillow() -> _Decode:
    importlib.import_module("PIL")  # `decode_image` decodes by it.
    return lambda *_: False


_START_OF_JPEG = 0xFFD8
_read_start = struct.Struct(">HHH").unpack_from
# The segments before the frame, with the image: marker, and length without the marker.
_read_segment = struct.Struct(">HH").unpack_from
_BEFORE_FRAME = frozenset({0xFFC4, 0xFFDB, 0xFFDD, 0xFFFE, *range(0xFFE0, 0xFFF0)})
# The depth, height, width and channels of a frame: baseline, extended, progressive.
_read_frame = struct.Struct(">4xBHHB").unpack_from
_FRAMES = frozenset({0xFFC0, 0xFFC1, 0xFFC2})


def _read_jpeg_header(data: _Data) -> _Header | None:
    try:
        start, marker, length = _read_start(data)
        if start != _START_OF_JPEG:
            return None
        position = 2
        while marker in _BEFORE_FRAME:
            position += 2 + length
            marker, length = _read_segment(data, position)
        depth, height, width, channels = _read_frame(data, position)
    except struct.error:
        return None
    return (height, width, channels) if marker in _FRAMES and depth == 8 else None


# The length of the data of a chunk of a PNG file, and its kind.
_read_chunk = struct.Struct(">I4s").unpack_from


def _read_png_header(data: _Data) -> _Header | None:
    header = read_header(data)
    if header is None or header.depth not in (8, 16) or header.interlaced:
        return None
    if header.channels not in (1, 3, 4):
        return None
    position = PNG_HEADER_SIZE
    try:
        length, kind = _read_chunk(data, position)
        while kind != b"IDAT":
            if kind == b"acTL":  # Moving pictures, which need not begin with the image.
                return None
            position += 12 + length
            length, kind = _read_chunk(data, position)
    except struct.error:
        return None
    return header.height, header.width, header.channels


_BYTES = (np.uint8, np.float32)
_JPEG = _Kind(_read_jpeg_header, _BYTES, (_simplejpeg, _opencv, _pillow))
_JPEG_OF_TF = dataclasses.replace(
    _JPEG, libraries=(functools.partial(_simplejpeg, fast_transform=True),)
)
_PNG = _Kind(_read_png_header, (*_BYTES, np.uint16), (_opencv, _pillow))
# The file kinds by the encoding of a feature. An encoding that decodes bytes of a row to a row of
# a batch, such as frames of a video, can be added here.
_KINDS = {"": [_JPEG, _PNG], "jpeg": [_JPEG, _PNG], "png": [_PNG, _JPEG]}


def _decode_fast(data: _Data, row: np.ndarray, kinds: list[_Kind]) -> bool:
    for kind in kinds:
        header = kind.read_header(data)
        if header is not None:
            return kind.decode(data, header, row)
    return False


def _size(data: _Data, kinds: list[_Kind]) -> _Size | None:
    """The height and width of an image, None if only `decode_image` knows."""
    for kind in kinds:
        header = kind.read_header(data)
        if header is not None:
            return header[:2] if may_hold(data, *header[:2]) else None
    return None


def _common_size(buffers: list[_Data], feature: Image, kinds: list[_Kind]) -> _Size | None:
    """Returns the height and width of all images; None if they differ, or are wrong."""
    height, width, _ = feature.shape
    if height is not None and width is not None:
        return height, width
    sizes = {_size(data, kinds) for data in buffers} or {(height or 0, width or 0)}
    size = sizes.pop()
    return size if size and not sizes and fits(size, (height, width)) else None


def _pixels(images: np.ndarray) -> np.ndarray:
    """The values that are in the files of images: four bytes for a depth."""
    return images.view(np.uint8) if images.dtype == np.float32 else images
