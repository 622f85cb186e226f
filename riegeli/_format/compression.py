"""Compressed buffers of Riegeli chunks: Brotli, Zstandard, Snappy or none.

A byte of the chunk is the algorithm; each compressed stream follows its decompressed size. Files
may declare wrong sizes, so allocations are bounded by the largest possible output of a stream and
by `MAX_DECOMPRESSED_SIZE`. `cramjam`, which few files need, is imported on demand.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import brotli
import zstandard

from riegeli._core import encode_varints, join, read_varint
from riegeli.base.riegeli_error import (
    InvalidArgumentError,
    ResourceExhaustedError,
    UnimplementedError,
)

Buffer = bytes | memoryview

MAX_DECOMPRESSED_SIZE = 1 << 32
"""The maximum size of decompressed data, 4 GiB."""

# Streams with a larger window are "large window" streams, which `brotli` neither reads nor writes.
# Such streams begin with a mark, which is impossible in other streams.
_BROTLI_MAX_WINDOW_LOG = 24
_BROTLI_DEFAULT_WINDOW_LOG = 22
_BROTLI_LARGE_WINDOW_MARK = b"\x11"
_BROTLI_FIRST_BUFFER_SIZE = 1 << 20
_CRAMJAM_BUFFER_FULL = "failed to write whole buffer"
_ZSTD_MAX_WINDOW_SIZE = 1 << 31

# The maximum decompressed and the minimum compressed size of a block in a Zstd frame.
_ZSTD_MAX_BLOCK_SIZE = 1 << 17
_ZSTD_MIN_COMPRESSED_BLOCK_SIZE = 4

# The block type of a repeated byte (run-length encoding), in the header of a Zstd block.
_ZSTD_RUN_BLOCK = 2

# The assumed minimum of the mean decompressed size of Zstd blocks.
_ZSTD_TYPICAL_BLOCK_SIZE = 1 << 12

# The maximum decompressed size of an element of a Snappy stream, and its compressed size.
_SNAPPY_MAX_COPY_SIZE = 64
_SNAPPY_COPY_SIZE = 3


class CompressionType(IntEnum):
    """The compression of all buffers of a chunk, stored as a byte."""

    NONE = 0
    BROTLI = ord("b")
    ZSTD = ord("z")
    SNAPPY = ord("s")


@dataclass(frozen=True, slots=True)
class Compressor:
    """A compression algorithm with its settings.

    Attributes:
      compression_type: The algorithm.
      level: The compression level: Brotli 0 to 11, Zstd -131072 to 22; otherwise ignored.
      window_log: The base-2 logarithm of the window in bytes; None for the algorithm's default.
    """

    compression_type: CompressionType = CompressionType.BROTLI
    level: int = 6
    window_log: int | None = None

    def __post_init__(self) -> None:
        """Rejects unsupported compression options."""
        if (
            self.compression_type == CompressionType.BROTLI
            and (self.window_log or 0) > _BROTLI_MAX_WINDOW_LOG
        ):
            raise UnimplementedError(
                f"brotli with window_log:{self.window_log} cannot be written, as no Python package "
                f"does; the largest is {_BROTLI_MAX_WINDOW_LOG}. zstd goes up to 31"
            )

    def compress(self, pieces: Sequence[Buffer]) -> list[Buffer]:
        """Compresses a buffer; returns pieces, of which the first is the decompressed size.

        Raises:
          ResourceExhaustedError: the data exceeds `MAX_DECOMPRESSED_SIZE`.
        """
        if self.compression_type == CompressionType.NONE:
            return list(pieces)
        size = sum(map(len, pieces))
        if size > MAX_DECOMPRESSED_SIZE:
            raise ResourceExhaustedError(
                f"{size} bytes cannot be compressed together, only up to "
                f"{MAX_DECOMPRESSED_SIZE}; make chunk_size smaller, or leave larger records "
                "uncompressed"
            )
        data = join(pieces)
        if self.compression_type == CompressionType.BROTLI:
            window_log = self.window_log or _BROTLI_DEFAULT_WINDOW_LOG
            stream = [brotli.compress(data, quality=self.level, lgwin=window_log)]
        elif self.compression_type == CompressionType.ZSTD:
            stream = [self._create_zstd_compressor(size).compress(data)]
        else:
            stream = [_compress_snappy(data)]
        return [encode_varints([size]), *stream]

    def _create_zstd_compressor(self, size: int) -> zstandard.ZstdCompressor:
        if self.window_log is None:
            return zstandard.ZstdCompressor(level=self.level)
        parameters = zstandard.ZstdCompressionParameters.from_level(
            self.level, source_size=size, window_log=self.window_log
        )
        return zstandard.ZstdCompressor(compression_params=parameters)


def decompress(
    compression_type: int, buffer: Buffer, max_size: int, into: memoryview | None = None
) -> Buffer:
    """Decompresses a buffer of `Compressor.compress`.

    Args:
      compression_type: The algorithm byte of the chunk.
      buffer: A whole compressed buffer.
      max_size: The maximum decompressed size.
      into: The output buffer, used if it is large enough; then its beginning is returned. After
        an error its content is undefined.

    Raises:
      InvalidArgumentError: the stream is damaged, too long, truncated, or followed by other bytes.
      ResourceExhaustedError: the decompressed data exceed `MAX_DECOMPRESSED_SIZE`.
      UnimplementedError: the algorithm is unknown.
    """
    if compression_type == CompressionType.NONE:
        if len(buffer) > max_size:
            raise InvalidArgumentError(f"{len(buffer)} bytes where at most {max_size} can be")
        return buffer if into is None or len(buffer) > len(into) else _copy(buffer, into)
    try:
        size, begin = read_varint(buffer, 0)
    except ValueError as e:
        raise InvalidArgumentError(f"size of a compressed buffer is damaged: {e}") from e
    decompress_stream = _DECOMPRESS.get(compression_type)
    if decompress_stream is None:
        raise UnimplementedError(f"unknown compression type 0x{compression_type:02x}")
    if size > max_size:
        raise InvalidArgumentError(f"compressed buffer claims {size} bytes of at most {max_size}")
    if size > MAX_DECOMPRESSED_SIZE:
        raise ResourceExhaustedError(
            f"compressed buffer claims {size} bytes, more than the limit {MAX_DECOMPRESSED_SIZE}"
        )
    stream = memoryview(buffer)[begin:]
    if into is not None and not 0 < size <= len(into):
        into = None
    if into is not None and compression_type == CompressionType.ZSTD:
        into = into[:size]
        if _decompress_zstd_into(stream, into):
            return into
    data = decompress_stream(stream, size)
    if len(data) != size:
        raise InvalidArgumentError(f"compressed buffer has {len(data)} bytes, but claims {size}")
    return data if into is None else _copy(data, into)


def _copy(data: Buffer, into: memoryview) -> memoryview:
    into[: len(data)] = data
    return into[: len(data)]


def _decompress_brotli(stream: memoryview, size: int) -> bytes:
    if stream[:1] == _BROTLI_LARGE_WINDOW_MARK:
        return _decompress_large_window_brotli(stream, size)
    decompressor = brotli.Decompressor()
    try:
        data: bytes = decompressor.process(stream, output_buffer_limit=size + 1)
    except brotli.error as e:
        raise InvalidArgumentError("brotli stream is damaged") from e
    if len(data) <= size and not decompressor.is_finished():
        raise InvalidArgumentError("brotli stream is cut off")
    return data


def _decompress_large_window_brotli(stream: memoryview, size: int) -> bytes:
    import cramjam

    # cramjam needs an output buffer. The first buffer is small: the declared size may be wrong.
    buffer_size = min(size, max(_BROTLI_FIRST_BUFFER_SIZE, len(stream)))
    while True:
        data = bytearray(buffer_size)
        try:
            length = cramjam.brotli.decompress_into(stream, data)
            return bytes(data[:length])
        except cramjam.DecompressionError as e:
            if buffer_size == size or _CRAMJAM_BUFFER_FULL not in str(e):
                raise InvalidArgumentError(f"brotli stream is damaged: {e}") from e
        buffer_size = min(size, 4 * buffer_size)


def _decompress_zstd(stream: memoryview, size: int) -> bytes:
    num_blocks = len(stream) // _ZSTD_MIN_COMPRESSED_BLOCK_SIZE + 1
    if size > num_blocks * _ZSTD_MAX_BLOCK_SIZE:
        raise InvalidArgumentError(f"{len(stream)} bytes of zstd cannot become {size} bytes")
    try:
        content_size = zstandard.get_frame_parameters(stream).content_size
        if content_size not in (size, zstandard.CONTENTSIZE_UNKNOWN):
            raise InvalidArgumentError(
                f"zstd frame has {content_size} bytes, but {size} are claimed"
            )
        decompressor = _take_zstd_decompressor()
        data = decompressor.decompress(stream, max_output_size=max(size, 1), allow_extra_data=False)
    except zstandard.ZstdError as e:
        raise InvalidArgumentError(f"zstd stream is damaged: {e}") from e
    _free_zstd_decompressors.append(decompressor)
    return data


def _decompress_zstd_into(stream: memoryview, into: memoryview) -> bool:
    """Decompresses a frame that fills `into`; returns False for other or damaged frames."""
    try:
        if _measure_zstd_frame(stream, content_size=len(into)) != len(stream):
            return False
        decompressor = _take_zstd_decompressor()
        size = decompressor.stream_reader(stream).readinto(into)
    except zstandard.ZstdError:
        return False
    _free_zstd_decompressors.append(decompressor)
    return size == len(into)


def _measure_zstd_frame(stream: memoryview, content_size: int) -> int | None:
    """Returns the size of a Zstandard frame; None if unknown, or if its content size differs."""
    frame = zstandard.get_frame_parameters(stream)
    if frame.content_size != content_size:
        return None
    offset = zstandard.frame_header_size(stream)
    for _ in range(1 + content_size // _ZSTD_TYPICAL_BLOCK_SIZE):
        header = int.from_bytes(stream[offset : offset + 3], "little")
        offset += 3 + (1 if header & 6 == _ZSTD_RUN_BLOCK else header >> 3)
        if header & 1:
            return offset + (4 if frame.has_checksum else 0)
    return None


# Idle decompressors. Creating a decompressor takes as long as decompressing 100 kB.
_free_zstd_decompressors: list[zstandard.ZstdDecompressor] = []


def _take_zstd_decompressor() -> zstandard.ZstdDecompressor:
    try:
        return _free_zstd_decompressors.pop()
    except IndexError:
        return zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_SIZE)


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data))


def _decompress_snappy(stream: memoryview, size: int) -> bytes:
    import cramjam

    if size > (len(stream) // _SNAPPY_COPY_SIZE + 1) * _SNAPPY_MAX_COPY_SIZE:
        raise InvalidArgumentError(f"{len(stream)} bytes of snappy cannot become {size} bytes")
    try:
        content_size = cramjam.snappy.decompress_raw_len(stream)
        if content_size != size:
            raise InvalidArgumentError(
                f"snappy stream has {content_size} bytes, but {size} are claimed"
            )
        return bytes(cramjam.snappy.decompress_raw(stream))
    except cramjam.DecompressionError as e:
        raise InvalidArgumentError(f"snappy stream is damaged: {e}") from e


_DECOMPRESS: Mapping[int, Callable[[memoryview, int], bytes]] = {
    CompressionType.BROTLI: _decompress_brotli,
    CompressionType.ZSTD: _decompress_zstd,
    CompressionType.SNAPPY: _decompress_snappy,
}
