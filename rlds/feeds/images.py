"""Decoding of JPEG and PNG files into the rows of a batch.

`tfds_files.decode_image` is the reference for valid files and their pixels. Faster libraries decode
the kinds of files for which they give the same pixels. `decode_image` decodes all other files, and
raises the errors of damaged files.
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
from tfds_files.images import is_plausible
from tfds_files.png import HEADER_SIZE as PNG_HEADER_SIZE
from tfds_files.png import read_header

__all__ = ["ImageDecoder", "ImageError"]

_Data: TypeAlias = bytes | memoryview
_Size: TypeAlias = tuple[int, int]
_Header: TypeAlias = tuple[int, int, int]  # Height, width and channels.
# Decoding a smaller image takes less time than starting threads.
_MIN_THREADED_BYTES = 1 << 14


class ImageError(ValueError):
    """The image file of a row is damaged or not supported.

    Attributes:
      row: The row of the batch.
      problem: The problem, as text. The error of `tfds_files` is the `__cause__`.
    """

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(row, problem)
        self.row, self.problem = row, problem

    def __str__(self) -> str:
        return f"row {self.row}: {self.problem}"


class ImageDecoder:
    """Decodes image files into the rows of a batch.

    PNG files give the same pixels as in TFDS. For JPEG files, TensorFlow uses an approximate
    transform by default, with errors of up to 16 of 255; all other libraries agree.

    >>> from tfds_files.png import encode_png
    >>> files = [encode_png(np.full((2, 2, 3), value, np.uint8)) for value in (0, 255)]
    >>> decoder = ImageDecoder((2, 2, 3), np.uint8)
    >>> decoder.decode(files)[:, 0, 0]
    array([[  0,   0,   0],
           [255, 255, 255]], dtype=uint8)

    Args:
      shape: Height, width and channels of the images; None for a size that differs between images.
      dtype: uint8, uint16, or float32 for depths, whose bytes are stored as four channels.
      encoding: "jpeg" or "png", the expected kind of file. As in TFDS, other kinds are decoded too.
      jpeg: The decoder of JPEG files: "accurate" for the pixels of most libraries (and of
        `tf.io.decode_jpeg` with `dct_method="INTEGER_ACCURATE"`), or "tf" for the exact pixels of
        TensorFlow's default, which needs simplejpeg and undamaged files.
      threads: The number of decoding threads, shared by all decoders; 0 for the calling thread. If
        None, the number of processors, if there are several.

    Raises:
      ImportError: simplejpeg is needed, but not installed.
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
        if encoding not in _FILE_KINDS:
            raise ValueError(f"encoding: got {encoding!r}, expected one of {list(_FILE_KINDS)}")
        if jpeg not in ("accurate", "tf"):
            raise ValueError(f"jpeg: got {jpeg!r}, expected 'accurate' or 'tf'")
        if len(shape) != 3 or (threads or 0) < 0:
            raise ValueError(
                f"expected a shape of 3 axes and threads >= 0, got {tuple(shape)} and {threads}"
            )
        self._feature = Image(shape=tuple(shape), dtype=np.dtype(dtype), encoding_format=encoding)
        self._is_tf, self._threads = jpeg == "tf", threads
        if self._is_tf:
            _ = _TF_JPEG.decode

    def decode(self, files: Sequence[bytes | memoryview | np.ndarray]) -> np.ndarray:
        """Returns the images, of shape `[rows, height, width, channels]`.

        Args:
          files: The file of each row.

        Returns:
          The images; if their sizes differ, an array of arrays as from `tfds_files.stack`.

        Raises:
          ImageError: A file is not an image of this shape and dtype; the error names the first row.
          ImportError: No library for these files is installed; the message names the extra.
        """
        buffers = [file.data if isinstance(file, np.ndarray) else file for file in files]
        feature, kinds = self._feature, self._list_kinds()
        size = _find_common_size(buffers, feature, kinds)
        if size is None:
            return self._decode_unequal(buffers, kinds)
        images = arrays.empty((len(buffers), *size, feature.shape[-1] or 3), feature.dtype)
        rows = _as_bytes(images)
        feature = dataclasses.replace(feature, shape=images.shape[1:])

        def decode(chunk: range) -> None:
            for row in chunk:
                if not _decode_fast(buffers[row], rows[row], kinds):
                    images[row] = self._decode_exactly(buffers[row], feature, row)

        is_small = self._threads is None and math.prod(images.shape[1:]) < _MIN_THREADED_BYTES
        for_all_rows(decode, len(buffers), 0 if is_small else self._threads)
        return images

    def _decode_unequal(self, buffers: list[_Data], kinds: list[_FileKind]) -> np.ndarray:
        feature = self._feature
        images: list[Any] = [None] * len(buffers)

        def decode(chunk: range) -> None:
            for row in chunk:
                size = _read_header_size(buffers[row], kinds)
                if size is not None and fits(size, feature.shape[:2]):
                    image = np.empty((*size, feature.shape[-1] or 3), feature.dtype)
                    if _decode_fast(buffers[row], _as_bytes(image), kinds):
                        images[row] = image
                        continue
                images[row] = self._decode_exactly(buffers[row], feature, row)

        for_all_rows(decode, len(buffers), self._threads)
        return tfds_files.stack(images)

    def _list_kinds(self) -> list[_FileKind]:
        kinds = _FILE_KINDS[self._feature.encoding_format]
        kinds = [kind for kind in kinds if self._feature.dtype in kind.dtypes]
        return [_TF_JPEG if kind is _JPEG and self._is_tf else kind for kind in kinds]

    def _decode_exactly(self, data: _Data, feature: Image, row: int) -> np.ndarray:
        try:
            image = tfds_files.decode_image(bytes(data), feature)
            if self._is_tf and data[:2] == b"\xff\xd8":
                raise tfds_files.UnsupportedFileError(
                    "simplejpeg does not decode this JPEG file, which is damaged or of a rare "
                    "kind, so TensorFlow's pixels are unknown; jpeg='accurate' decodes it"
                )
        except tfds_files.TfdsFilesError as e:
            raise ImageError(row, str(e)) from e
        return image


# Decodes a file with a header into a row; returns False if the library does not support the file.
_Decode: TypeAlias = Callable[[_Data, _Header, np.ndarray], bool]


@dataclasses.dataclass(frozen=True)
class _FileKind:
    """A kind of image file, such as JPEG.

    Attributes:
      read_header: Returns height, width and channels of a file; None if it is of another kind, or
        if libraries may decode it differently than `decode_image`.
      dtypes: The supported dtypes of pixels.
      libraries: Functions that import decoding libraries, the fastest first.
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
        except ValueError:  # simplejpeg also refuses slightly damaged files.
            return False
        return bool(image.shape == shape)

    return decode


def _opencv() -> _Decode:
    library = importlib.import_module("cv2")
    # Ignore the Exif rotation. Reorder channels by `mixChannels`, as `cvtColor` starts threads.
    raw_flags = library.IMREAD_IGNORE_ORIENTATION | library.IMREAD_ANYDEPTH
    flags = {1: raw_flags, 3: raw_flags, 4: library.IMREAD_UNCHANGED}
    order = {4: [0, 2, 1, 1, 2, 0, 3, 3]}  # Converts BGRA to RGBA.
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
    importlib.import_module("PIL")  # `decode_image` uses Pillow.
    return lambda *_: False


_JPEG_START_MARKER = 0xFFD8
_read_start = struct.Struct(">HHH").unpack_from
# The segments before the frame of the image: marker, and length without the marker.
_read_segment = struct.Struct(">HH").unpack_from
_MARKERS_BEFORE_FRAME = frozenset({0xFFC4, 0xFFDB, 0xFFDD, 0xFFFE, *range(0xFFE0, 0xFFF0)})
# The depth, height, width and channels of a frame: baseline, extended, progressive.
_read_frame = struct.Struct(">4xBHHB").unpack_from
_FRAME_MARKERS = frozenset({0xFFC0, 0xFFC1, 0xFFC2})


def _read_jpeg_header(data: _Data) -> _Header | None:
    try:
        start, marker, length = _read_start(data)
        if start != _JPEG_START_MARKER:
            return None
        position = 2
        while marker in _MARKERS_BEFORE_FRAME:
            position += 2 + length
            marker, length = _read_segment(data, position)
        depth, height, width, channels = _read_frame(data, position)
    except struct.error:
        return None
    return (height, width, channels) if marker in _FRAME_MARKERS and depth == 8 else None


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
            if kind == b"acTL":  # An animated PNG file may begin with another image.
                return None
            position += 12 + length
            length, kind = _read_chunk(data, position)
    except struct.error:
        return None
    return header.height, header.width, header.channels


_BYTE_DTYPES = (np.uint8, np.float32)
_JPEG = _FileKind(_read_jpeg_header, _BYTE_DTYPES, (_simplejpeg, _opencv, _pillow))
_TF_JPEG = dataclasses.replace(
    _JPEG, libraries=(functools.partial(_simplejpeg, fast_transform=True),)
)
_PNG = _FileKind(_read_png_header, (*_BYTE_DTYPES, np.uint16), (_opencv, _pillow))
# The file kinds by the encoding of a feature.
_FILE_KINDS = {"": [_JPEG, _PNG], "jpeg": [_JPEG, _PNG], "png": [_PNG, _JPEG]}


def _decode_fast(data: _Data, row: np.ndarray, kinds: list[_FileKind]) -> bool:
    for kind in kinds:
        header = kind.read_header(data)
        if header is not None:
            return kind.decode(data, header, row)
    return False


def _read_header_size(data: _Data, kinds: list[_FileKind]) -> _Size | None:
    """Returns the height and width of an image; None if only `decode_image` supports the file."""
    for kind in kinds:
        header = kind.read_header(data)
        if header is not None:
            return header[:2] if is_plausible(data, *header[:2]) else None
    return None


def _find_common_size(buffers: list[_Data], feature: Image, kinds: list[_FileKind]) -> _Size | None:
    """Returns the common height and width of images; None if they differ or are invalid."""
    height, width, _ = feature.shape
    if height is not None and width is not None:
        return height, width
    sizes = {_read_header_size(data, kinds) for data in buffers} or {(height or 0, width or 0)}
    size = sizes.pop()
    return size if size and not sizes and fits(size, (height, width)) else None


def _as_bytes(images: np.ndarray) -> np.ndarray:
    """Returns images as stored in files: float32 depths as four bytes."""
    return images.view(np.uint8) if images.dtype == np.float32 else images
