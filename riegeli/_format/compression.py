"""Compressed buffers: one algorithm byte a chunk, and a size before each compressed stream."""

from dataclasses import dataclass
from enum import IntEnum

import brotli
import zstandard

from riegeli._core import encode_varints, read_varint
from riegeli.base.riegeli_error import InvalidArgumentError, UnimplementedError

# The window log from which Brotli streams are "large window" streams, which `brotli` cannot handle.
_BROTLI_MAX_WINDOW_LOG = 24
_BROTLI_DEFAULT_WINDOW_LOG = 22
_ZSTD_MAX_WINDOW_SIZE = 1 << 31

# The most that one block of a Zstd frame can decompress to, and the fewest bytes that it can take.
_ZSTD_MAX_BLOCK_SIZE = 1 << 17
_ZSTD_MIN_COMPRESSED_BLOCK_SIZE = 4


class CompressionType(IntEnum):
    """The byte that names the compression of all buffers of a chunk."""

    NONE = 0
    BROTLI = ord("b")
    ZSTD = ord("z")
    SNAPPY = ord("s")


@dataclass(frozen=True, slots=True)
class Compressor:
    """An algorithm with its settings.

    Attributes:
      compression_type: The algorithm.
      level: Brotli 0 to 11, Zstd -131072 to 22; ignored for no compression.
      window_log: Base-2 logarithm of the window in bytes; None leaves it to the algorithm.
    """

    compression_type: CompressionType = CompressionType.BROTLI
    level: int = 6
    window_log: int | None = None

    def __post_init__(self) -> None:
        """Refuses what cannot be written here."""
        if self.compression_type == CompressionType.SNAPPY:
            raise UnimplementedError("snappy compression is not supported yet; use zstd or brotli")
        if (
            self.compression_type == CompressionType.BROTLI
            and (self.window_log or 0) > _BROTLI_MAX_WINDOW_LOG
        ):
            raise UnimplementedError(
                f"brotli with window_log:{self.window_log} is not supported yet; "
                f"the largest is {_BROTLI_MAX_WINDOW_LOG}"
            )

    def compress(self, data: bytes) -> bytes:
        """`data` as a compressed buffer, its size in front unless nothing is compressed."""
        if self.compression_type == CompressionType.NONE:
            return data
        if self.compression_type == CompressionType.BROTLI:
            window_log = self.window_log or _BROTLI_DEFAULT_WINDOW_LOG
            stream: bytes = brotli.compress(data, quality=self.level, lgwin=window_log)
        else:
            stream = self._zstd_compressor(len(data)).compress(data)
        return encode_varints([len(data)]) + stream

    def _zstd_compressor(self, size: int) -> zstandard.ZstdCompressor:
        if self.window_log is None:
            return zstandard.ZstdCompressor(level=self.level)
        parameters = zstandard.ZstdCompressionParameters.from_level(
            self.level, source_size=size, window_log=self.window_log
        )
        return zstandard.ZstdCompressor(compression_params=parameters)


def decompress(compression_type: int, buffer: bytes, max_size: int) -> bytes:
    """Undoes `Compressor.compress`.

    Memory is bounded by what comes out, never by what the buffer says of itself.

    Args:
      compression_type: The algorithm byte of the chunk.
      buffer: A whole compressed buffer.
      max_size: The largest size that makes sense.

    Raises:
      InvalidArgumentError: the stream is damaged, too long, cut off, or followed by other bytes.
      UnimplementedError: an algorithm that is unknown or not supported yet.
    """
    if compression_type == CompressionType.NONE:
        if len(buffer) > max_size:
            raise InvalidArgumentError(f"{len(buffer)} bytes where at most {max_size} can be")
        return buffer
    try:
        size, begin = read_varint(buffer, 0)
    except ValueError as e:
        raise InvalidArgumentError(f"size of a compressed buffer is damaged: {e}") from e
    if size > max_size:
        raise InvalidArgumentError(f"compressed buffer claims {size} bytes of at most {max_size}")
    stream = buffer[begin:]
    if compression_type == CompressionType.BROTLI:
        data = _decompress_brotli(stream, size)
    elif compression_type == CompressionType.ZSTD:
        data = _decompress_zstd(stream, size)
    elif compression_type == CompressionType.SNAPPY:
        raise UnimplementedError("snappy compression is not supported yet")
    else:
        raise UnimplementedError(f"unknown compression type 0x{compression_type:02x}")
    if len(data) != size:
        raise InvalidArgumentError(f"compressed buffer has {len(data)} bytes, but claims {size}")
    return data


def _decompress_brotli(stream: bytes, size: int) -> bytes:
    decompressor = brotli.Decompressor()
    try:
        data: bytes = decompressor.process(stream, output_buffer_limit=size + 1)
    except brotli.error as e:
        raise InvalidArgumentError("brotli stream is damaged") from e
    if len(data) <= size and not decompressor.is_finished():
        raise InvalidArgumentError("brotli stream is cut off")
    return data


def _decompress_zstd(stream: bytes, size: int) -> bytes:
    num_blocks = len(stream) // _ZSTD_MIN_COMPRESSED_BLOCK_SIZE + 1
    if size > num_blocks * _ZSTD_MAX_BLOCK_SIZE:
        raise InvalidArgumentError(f"{len(stream)} bytes of zstd cannot become {size} bytes")
    try:
        stated = zstandard.get_frame_parameters(stream).content_size
        if stated not in (size, zstandard.CONTENTSIZE_UNKNOWN):
            raise InvalidArgumentError(f"zstd frame has {stated} bytes, but {size} are claimed")
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_SIZE)
        return decompressor.decompress(stream, max_output_size=max(size, 1), allow_extra_data=False)
    except zstandard.ZstdError as e:
        raise InvalidArgumentError(f"zstd stream is damaged: {e}") from e
