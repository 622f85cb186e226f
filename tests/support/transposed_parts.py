"""Valid and invalid transposed chunks, assembled section by section."""

import dataclasses
from collections.abc import Sequence

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


@dataclasses.dataclass(frozen=True)
class Sections:
    """The stored sections of a transposed chunk; see `transposed_chunk`.

    `nexts` are the bases, with the number of states added for implicit states. `bucket_sizes`
    are those of the stored buckets if None.
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

    def replace(self, **changes: object) -> "Sections":
        """Returns a copy with changes."""
        return dataclasses.replace(self, **changes)


def sections_of(records: Sequence[bytes], bucket_size: int | None = None) -> Sections:
    """Returns the sections of a valid chunk with `records`."""
    data = bytes(encode_transposed_chunk(records, UNCOMPRESSED, bucket_size).data)
    header_size, pos = read_varint(data, 1)
    begin = pos + header_size
    (num_buckets, num_buffers), pos = read_varints(data, pos, 2)
    bucket_sizes, pos = read_varints(data, pos, num_buckets)
    buffer_sizes, pos = read_varints(data, pos, num_buffers)
    num_states, pos = read_varint(data, pos)
    tags, pos = read_varints(data, pos, num_states)
    nexts, pos = read_varints(data, pos, num_states)
    num_subtypes = sum(map(has_subtype, tags))
    subtypes, pos = data[pos : pos + num_subtypes], pos + num_subtypes
    iterator = iter(subtypes)
    num_indices = sum(has_buffer(tag, next(iterator) if has_subtype(tag) else 0) for tag in tags)
    indices, pos = read_varints(data, pos, num_indices)
    first, pos = read_varint(data, pos)
    buckets = []
    for size in bucket_sizes:
        buckets.append(data[begin : begin + size])
        begin += size
    return Sections(tags, nexts, subtypes, indices, first, buckets, buffer_sizes, data[begin:])
