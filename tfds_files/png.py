"""PNG images: encoding, and decoding of 16-bit images that Pillow would round to 8 bits.

See the specification of PNG: section 5.3 for chunks, and 9 for filters.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np

from tfds_files.errors import DamagedFileError, UnsupportedFileError

__all__ = ["HEADER_SIZE", "PngHeader", "check_level", "decode_png", "encode_png", "read_header"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# The signature, and the first chunk with its checksum.
_HEADER = struct.Struct(">8sI4sIIBBBBB4x")
HEADER_SIZE: int = _HEADER.size
"""The number of bytes before the second chunk of a file."""
_CHANNELS_OF_COLOUR = {0: 1, 2: 3, 4: 2, 6: 4}
# For camera frames, level 1 takes a fifth of the time of level 6. Frames of games and simulations
# shrink at least 16 times: they take little time at any level, and half the bytes at level 6.
_FAST_LEVEL, _SMALL_LEVEL, _HIGH_COMPRESSION_RATIO = 1, 6, 16
# The bytes of a line that choose its filter: every seventh byte visits all of up to 4 channels.
_SAMPLED_BYTES = slice(1, None, 7)


class PngHeader(NamedTuple):
    """The header of a PNG file: size, bit depth and colour type of the image.

    Attributes:
      width: The number of columns.
      height: The number of rows.
      depth: The number of bits of a value.
      colour_type: 0 for grey, 2 for RGB, 3 for a palette, 4 for grey and alpha, 6 for RGBA.
      interlaced: Whether the image is interlaced (Adam7).
    """

    width: int
    height: int
    depth: int
    colour_type: int
    interlaced: bool

    @property
    def channels(self) -> int | None:
        """The number of values of a pixel; None for palette images."""
        return _CHANNELS_OF_COLOUR.get(self.colour_type)


def read_header(data: bytes | memoryview) -> PngHeader | None:
    """Returns the header of a PNG file; None for other files.

    >>> read_header(encode_png(np.zeros((2, 3, 1), np.uint8)))
    PngHeader(width=3, height=2, depth=8, colour_type=0, interlaced=False)
    """
    if len(data) < _HEADER.size:
        return None
    fields = _HEADER.unpack_from(data)
    signature, length, kind, width, height, depth, colour_type, _, _, interlaced = fields
    if signature != _SIGNATURE or length != 13 or kind != b"IHDR":
        return None
    return PngHeader(width, height, depth, colour_type, bool(interlaced))


def decode_png(data: bytes) -> np.ndarray:
    """Returns a PNG image of 16 bits: uint16 of shape `[height, width, channels]`.

    Raises:
      DamagedFileError: The file is not a PNG file, or is damaged.
      UnsupportedFileError: The image does not have 16 bits, or is interlaced.
    """
    if not data.startswith(_SIGNATURE):
        raise DamagedFileError(f"not a PNG file: it begins with {data[:8]!r}")
    chunks = list(_read_chunks(data))
    header = read_header(data)
    if header is None:
        raise DamagedFileError("a PNG file without a header")
    width, height, depth, colour_type, interlaced = header
    if depth != 16 or interlaced or header.channels is None:
        raise UnsupportedFileError(
            f"a PNG file of {depth} bits, colour type {colour_type}{', interlaced' * interlaced}"
        )
    size = 2 * header.channels
    expected = height * (1 + width * size)
    compressed = b"".join(content for kind, content in chunks if kind == b"IDAT")
    decompressor = zlib.decompressobj()
    try:
        lines = decompressor.decompress(compressed, expected)
    except zlib.error as e:
        raise DamagedFileError(f"the compressed image is damaged: {e}") from e
    if len(lines) != expected or not expected:
        raise DamagedFileError(f"{len(lines)} bytes of {width} x {height} pixels")
    image = np.empty((height, width * size), np.uint8)
    above = np.zeros(width * size, np.uint8)
    for row, line in enumerate(np.frombuffer(lines, np.uint8).reshape(height, -1)):
        above = image[row] = _unfilter(int(line[0]), line[1:], above, size)
    return image.view(">u2").astype(np.uint16).reshape(height, width, -1)


def check_level(level: int | None) -> None:
    """Checks the compression level of PNG files.

    Raises:
      ValueError: There is no such level.
    """
    if level is not None and level not in range(10):
        raise ValueError(f"png_level: got {level!r}, expected None or 0 to 9")


def encode_png(image: np.ndarray, level: int | None = None, *, filters: bool = True) -> bytes:
    r"""Returns the PNG file of an image: uint8 or uint16 of shape `[height, width, channels]`.

    Args:
      image: The image.
      level: The level of `zlib.compress`, 0 to 9. If None, 1, which is fast, or 6 for images that
        become small, such as frames of games. The pixels are the same at every level.
      filters: Whether to store differences of pixels if they are smaller. Frames of games are as
        small without filters.

    Raises:
      ValueError: The image has another dtype, or no pixels.

    >>> encode_png(np.zeros((2, 2, 3), np.uint8))[:4]
    b'\x89PNG'
    """
    if image.dtype not in (np.uint8, np.uint16) or 0 in image.shape:
        raise ValueError(f"no PNG file has {image.dtype} of shape {image.shape}")
    height, width, channels = image.shape
    colour_type = {1: 0, 3: 2, 4: 6}.get(channels)
    if colour_type is None:
        raise ValueError(f"no PNG file has {channels} channels that TensorFlow reads")
    big_endian = np.ascontiguousarray(image, image.dtype.newbyteorder(">"))
    lines = big_endian.reshape(height, -1).view(np.uint8)
    if filters:
        filtered_lines = _filter(lines, channels * image.itemsize).tobytes()
    else:
        filtered_lines = np.column_stack([np.zeros(height, np.uint8), lines]).tobytes()
    pixels = zlib.compress(filtered_lines, _FAST_LEVEL if level is None else level)
    if level is None and _HIGH_COMPRESSION_RATIO * len(pixels) < len(filtered_lines):
        pixels = zlib.compress(filtered_lines, _SMALL_LEVEL)
    header = struct.pack(">IIBBBBB", width, height, 8 * image.itemsize, colour_type, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _filter(lines: np.ndarray, size: int) -> np.ndarray:
    """Filters each line by the filter with the smallest values: none, left or above."""
    height, width = lines.shape
    candidates = np.empty((3, height, 1 + width), np.uint8)
    candidates[:, :, 0] = np.arange(3)[:, np.newaxis]
    candidates[:2, :, 1 : 1 + size] = lines[:, :size]
    candidates[0, :, 1 + size :] = lines[:, size:]
    np.subtract(lines[:, size:], lines[:, :-size], out=candidates[1, :, 1 + size :])
    candidates[2, 0, 1:] = lines[0]
    np.subtract(lines[1:], lines[:-1], out=candidates[2, 1:, 1:])
    sampled_bytes = candidates[:, :, _SAMPLED_BYTES]
    costs = np.minimum(sampled_bytes, -sampled_bytes).sum(axis=2, dtype=np.uint64)
    return candidates[costs.argmin(axis=0), np.arange(height)]


def _read_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    chunks, position = [], len(_SIGNATURE)
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        content = data[position + 8 : position + 8 + length]
        end = position + 8 + length
        if len(data) < end + 4 or zlib.crc32(kind + content) != int.from_bytes(data[end : end + 4]):
            raise DamagedFileError("a chunk of the PNG file is damaged")
        chunks.append((kind, content))
        position = end + 4
    return chunks


def _unfilter(filter_type: int, line: np.ndarray, above: np.ndarray, size: int) -> np.ndarray:
    """Restores a line from its differences to the pixels left, above, or both."""
    if filter_type == 0:
        return line
    if filter_type == 1:
        sums: np.ndarray = np.cumsum(line.reshape(-1, size), axis=0, dtype=np.uint8)
        return sums.reshape(-1)
    if filter_type == 2:
        return np.asarray(line + above)
    if filter_type not in (3, 4):
        raise DamagedFileError(f"the filter {filter_type} of a PNG file")
    predict = _average if filter_type == 3 else _paeth
    values, up = line.tolist(), [0] * size + above.tolist()
    restored = [0] * size
    for index, value in enumerate(values):
        left, upper, corner = restored[index], up[index + size], up[index]
        restored.append((value + predict(left, upper, corner)) & 255)
    return np.array(restored[size:], np.uint8)


def _average(left: int, upper: int, _: int) -> int:
    return (left + upper) // 2


def _paeth(left: int, upper: int, corner: int) -> int:
    prediction = left + upper - corner
    return min((left, upper, corner), key=lambda value: abs(prediction - value))
