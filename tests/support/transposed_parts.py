"""Transposed chunks put together by hand, piece by piece: sound ones, and ones that are not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from riegeli_internals import (
    UNCOMPRESSED,
    Chunk,
    ChunkType,
    Compressor,
    decode_transposed_chunk,
    encode_transposed_chunk,
    has_buffer,
    has_subtype,
    read_varint,
    read_varints,
)

from riegeli.varints import encode_varints


def compressed(data: bytes, compressor: Compressor) -> bytes:
    """A compressed buffer."""
    return b"".join(compressor.compress([data]))


@dataclass(frozen=True)
class Parts:
    """The parts of a transposed chunk, as stored; see `transposed_chunk`.

    `nexts` are the bases, with the number of states added for implicit states. `bucket_sizes`
    are None where they are what the stored buckets take.
    """

    tags: Sequence[int]
    nexts: Sequence[int]
    subtypes: bytes = b""
    indices: Sequence[int] = ()
    first: int = 0
    buckets: Sequence[bytes] = ()
    buffer_sizes: Sequence[int] = ()
    transitions: bytes = b""
    behind_header: bytes = b""
    bucket_sizes: Sequence[int] | None = None

    def data(self, compressor: Compressor = UNCOMPRESSED) -> bytes:
        """The data of the chunk."""
        stored = [compressed(bucket, compressor) for bucket in self.buckets]
        sizes = list(map(len, stored)) if self.bucket_sizes is None else self.bucket_sizes
        header = compressed(
            encode_varints([len(sizes), len(self.buffer_sizes), *sizes, *self.buffer_sizes])
            + encode_varints([len(self.tags), *self.tags, *self.nexts])
            + self.subtypes
            + encode_varints([*self.indices, self.first])
            + self.behind_header,
            compressor,
        )
        return b"".join(
            [
                bytes([compressor.compression_type]),
                encode_varints([len(header)]),
                header,
                *stored,
                compressed(self.transitions, compressor),
            ]
        )

    def chunk(self, num_records: int, size: int, compressor: Compressor = UNCOMPRESSED) -> Chunk:
        """The chunk."""
        return Chunk(ChunkType.TRANSPOSED, self.data(compressor), num_records, size)

    def read(self, num_records: int, size: int) -> list[bytes]:
        """The records of the chunk."""
        return decode_transposed_chunk(self.chunk(num_records, size), num_records)

    def but(self, **changes: object) -> "Parts":
        """The same with changes."""
        return replace(self, **changes)


def parts_of(records: Sequence[bytes], bucket_size: int | None = None) -> Parts:
    """The parts of a sound chunk that holds `records`."""
    data = bytes(encode_transposed_chunk(records, UNCOMPRESSED, bucket_size).data)
    header_size, at = read_varint(data, 1)
    bucket_begin = at + header_size
    (num_buckets, num_buffers), at = read_varints(data, at, 2)
    bucket_sizes, at = read_varints(data, at, num_buckets)
    buffer_sizes, at = read_varints(data, at, num_buffers)
    num_states, at = read_varint(data, at)
    tags, at = read_varints(data, at, num_states)
    nexts, at = read_varints(data, at, num_states)
    num_subtypes = sum(map(has_subtype, tags))
    subtypes, at = data[at : at + num_subtypes], at + num_subtypes
    given = iter(subtypes)
    num_indices = sum(has_buffer(tag, next(given) if has_subtype(tag) else 0) for tag in tags)
    indices, at = read_varints(data, at, num_indices)
    first, at = read_varint(data, at)
    buckets = []
    for size in bucket_sizes:
        buckets.append(data[bucket_begin : bucket_begin + size])
        bucket_begin += size
    return Parts(tags, nexts, subtypes, indices, first, buckets, buffer_sizes, data[bucket_begin:])
