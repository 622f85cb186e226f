"""Simple chunks: record lengths in one buffer, record bytes in another.

1 byte   compression type
varint   size of the lengths buffer, as stored
buffer   the record lengths, as varints
buffer   the records, one after the other
"""

from collections.abc import Sequence

from riegeli._core import encode_varints, join, read_varint, split_records
from riegeli._format.chunk import Chunk, ChunkType
from riegeli._format.compression import Compressor, decompress
from riegeli._pure import MAX_VARINT_BYTES
from riegeli.base.riegeli_error import InvalidArgumentError


def encode_simple_chunk(records: Sequence[bytes], compressor: Compressor) -> Chunk:
    """A simple chunk that holds `records`."""
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
    """The records of a simple chunk.

    Raises:
      InvalidArgumentError: the data is damaged.
      UnimplementedError: an unknown algorithm.
    """
    data = memoryview(chunk.data)  # So that cutting it copies nothing.
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
        values = decompress(compression_type, data[end:], max_size=chunk.decoded_data_size)
        if len(values) != chunk.decoded_data_size:
            raise InvalidArgumentError(
                f"records take {len(values)} bytes, but {chunk.decoded_data_size} are announced"
            )
        return split_records(sizes, chunk.num_records, values)
    except ValueError as e:
        raise InvalidArgumentError(f"record sizes are damaged: {e}") from e
