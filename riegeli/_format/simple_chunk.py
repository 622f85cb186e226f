"""Simple chunks: record lengths in one buffer, record bytes in another.

1 byte   compression type
varint   size of the stored lengths buffer
buffer   the record lengths, as varints
buffer   the records, concatenated
"""

from collections.abc import Sequence
from typing import NamedTuple

from riegeli._core import encode_varints, join, read_varint, read_varints, split_records
from riegeli._format.chunk import Chunk, ChunkType
from riegeli._format.compression import Buffer, Compressor, decompress
from riegeli._pure.varints import MAX_VARINT_BYTES
from riegeli.base.riegeli_error import InvalidArgumentError


class JoinedRecords(NamedTuple):
    """Records joined in one buffer, with their sizes.

    >>> JoinedRecords([3, 0, 2], b"antbe").cut()
    [b'ant', b'', b'be']

    Attributes:
      sizes: The number of bytes of each record.
      values: The bytes of all records.
    """

    sizes: list[int]
    values: bytes | memoryview

    def cut(self) -> list[bytes]:
        """Splits the buffer; returns a copy of each record."""
        return split_records(encode_varints(self.sizes), len(self.sizes), self.values)


def encode_simple_chunk(records: Sequence[bytes], compressor: Compressor) -> Chunk:
    """Encodes records as a simple chunk."""
    sizes = list(map(len, records))
    stored_sizes = compressor.compress([encode_varints(sizes)])
    data = join(
        [
            bytes((compressor.compression_type,)),
            encode_varints((sum(map(len, stored_sizes)),)),
            *stored_sizes,
            *compressor.compress(records),
        ]
    )
    return Chunk(ChunkType.SIMPLE, data, len(records), sum(sizes))


def decode_simple_chunk(chunk: Chunk) -> list[bytes]:
    """Decodes the records of a simple chunk.

    Raises:
      InvalidArgumentError: the data is damaged.
      UnimplementedError: the compression algorithm is unknown.
    """
    sizes, values = _decompress_buffers(chunk)
    try:
        return split_records(sizes, chunk.num_records, values)
    except ValueError as e:
        raise InvalidArgumentError(f"record sizes are damaged: {e}") from e


def decode_joined(
    chunk: Chunk, into: memoryview | None = None, record_size: int = 0
) -> JoinedRecords:
    """Decodes a simple chunk to joined records.

    Args:
      chunk: The chunk.
      into: The output buffer, used if it is large enough and all records have `record_size` bytes.
      record_size: The expected size of each record.

    Raises:
      InvalidArgumentError, UnimplementedError: see `decode_simple_chunk`.
    """
    encoded_sizes, values = _decompress_buffers(chunk, into, record_size)
    try:
        if chunk.num_records > len(encoded_sizes):
            raise ValueError(
                f"{chunk.num_records} record sizes cannot fit in {len(encoded_sizes)} bytes"
            )
        sizes, end = read_varints(encoded_sizes, 0, chunk.num_records)
        if end != len(encoded_sizes):
            raise ValueError(
                f"{len(encoded_sizes) - end} bytes follow the {len(sizes)} record sizes"
            )
        if sum(sizes) != len(values):
            raise ValueError(f"records take {sum(sizes)} of {len(values)} bytes of values")
    except ValueError as e:
        raise InvalidArgumentError(f"record sizes are damaged: {e}") from e
    return JoinedRecords(sizes, values)


def _decompress_buffers(
    chunk: Chunk, into: memoryview | None = None, record_size: int = 0
) -> tuple[Buffer, Buffer]:
    """Returns the record lengths as varints, and the concatenated records."""
    data = memoryview(chunk.data)  # Slices of a view are not copied.
    if not data:
        raise InvalidArgumentError("simple chunk without data")
    compression_type = data[0]
    try:
        sizes_size, begin = read_varint(data, 1)
        end = begin + sizes_size
        if end > len(data):
            raise InvalidArgumentError(
                f"record sizes take {sizes_size} bytes, but {len(data) - begin} are there"
            )
        sizes = decompress(
            compression_type, data[begin:end], max_size=chunk.num_records * MAX_VARINT_BYTES
        )
        if into is not None and not (
            chunk.num_records * record_size == chunk.decoded_data_size <= len(into)
            and sizes == encode_varints([record_size]) * chunk.num_records
        ):
            into = None
        values = decompress(compression_type, data[end:], chunk.decoded_data_size, into)
        if len(values) != chunk.decoded_data_size:
            raise InvalidArgumentError(
                f"records take {len(values)} bytes, but {chunk.decoded_data_size} are declared"
            )
        return sizes, values
    except ValueError as e:
        raise InvalidArgumentError(f"record sizes are damaged: {e}") from e
