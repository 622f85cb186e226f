"""Transposed chunks, as far as the metadata chunk needs them: one record stored whole.

The payload of a metadata chunk is that of a transposed chunk with a single record. A transposed
chunk describes its records by a small state machine; a record need not be taken apart, and the
machine for one that is stored whole has a single state:

    1 byte   compression type
    varint   size of the header, as stored
    buffer   header: 1 bucket, 2 buffers, stored size of the bucket, size of each buffer,
             1 state, its tag (1: a record stored whole), its next state (0), its buffer (0),
             the first state (0)
    buffer   the bucket: the record, then its length as a varint
    buffer   transitions: none
"""

from riegeli._core import encode_varints, read_varint
from riegeli._format.chunk import Chunk
from riegeli._format.compression import Compressor, decompress
from riegeli._pure import MAX_VARINT_BYTES
from riegeli.base.riegeli_error import InvalidArgumentError, UnimplementedError

_WHOLE_RECORD_TAG = 1
# num_buckets, num_buffers; then the sizes of the bucket and of the buffers; then the states.
_COUNTS = [1, 2]
_STATES = [1, _WHOLE_RECORD_TAG, 0, 0, 0]


def encode_whole_record(record: bytes, compressor: Compressor) -> bytes:
    """The data of a transposed chunk that holds one record, stored whole."""
    length = encode_varints((len(record),))
    bucket = compressor.compress(record + length)
    header = compressor.compress(
        encode_varints([*_COUNTS, len(bucket), len(record), len(length), *_STATES])
    )
    return b"".join(
        (
            bytes((compressor.compression_type,)),
            encode_varints((len(header),)),
            header,
            bucket,
            compressor.compress(b""),
        )
    )


def decode_whole_record(chunk: Chunk) -> bytes:
    """The record in the data of a transposed chunk made like `encode_whole_record` makes it.

    Raises:
      InvalidArgumentError: the data is damaged.
      UnimplementedError: the data is that of another transposed chunk.
    """
    if not chunk.data:
        raise InvalidArgumentError("transposed chunk without data")
    compression_type = chunk.data[0]
    try:
        header_size, begin = read_varint(chunk.data, 1)
        end = begin + header_size
        if end > len(chunk.data):
            raise InvalidArgumentError(f"header takes {header_size} bytes: more than are there")
        header = decompress(compression_type, chunk.data[begin:end], max_size=1 << 20)
        numbers = _read_varints(header, len(_COUNTS) + 3 + len(_STATES))
    except ValueError as e:
        raise InvalidArgumentError(f"header of a transposed chunk is damaged: {e}") from e
    bucket_size, record_size = numbers[2], numbers[3]
    if numbers[:2] != _COUNTS or numbers[5:] != _STATES or record_size != chunk.decoded_data_size:
        raise UnimplementedError("transposed chunks are not supported yet")
    bucket = decompress(
        compression_type,
        chunk.data[end : end + bucket_size],
        max_size=record_size + MAX_VARINT_BYTES,
    )
    if len(bucket) < record_size:
        raise InvalidArgumentError(f"record takes {record_size} bytes, {len(bucket)} are there")
    return bucket[:record_size]


def _read_varints(data: bytes, count: int) -> list[int]:
    numbers: list[int] = []
    at = 0
    while len(numbers) < count and at < len(data):
        number, at = read_varint(data, at)
        numbers.append(number)
    return numbers
