"""Chunks: the unit that is hashed, compressed and skipped.

8 bytes  hash of the following 32
8 bytes  size of the data
8 bytes  hash of the data
1 byte   chunk type
7 bytes  number of records
8 bytes  total size of the decoded records
data, then padding: the size of a chunk is at least its number of records, so that
`chunk begin + index` is a different integer for each record of the file
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from riegeli._core import highway_hash64, interleave_block_headers
from riegeli._format import blocks
from riegeli.base.riegeli_error import InvalidArgumentError

CHUNK_HEADER_SIZE = 40

_HEADER = Struct("<QQQQQ")  # header hash, data size, data hash, type + (records << 8), decoded size


class ChunkType(IntEnum):
    """The chunk types of the format; chunks of unknown types without records are skipped."""

    SIGNATURE = ord("s")
    METADATA = ord("m")
    PADDING = ord("p")
    SIMPLE = ord("r")
    TRANSPOSED = ord("t")


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """The fields of a chunk header, without the hash of the header."""

    data_size: int
    data_hash: int
    chunk_type: int
    num_records: int
    decoded_data_size: int

    def encode(self) -> bytes:
        """Returns the 40 bytes of the header."""
        type_and_records = self.chunk_type | self.num_records << 8
        body = _HEADER.pack(
            0, self.data_size, self.data_hash, type_and_records, self.decoded_data_size
        )[8:]
        return highway_hash64(body).to_bytes(8, "little") + body

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, pos: int) -> "ChunkHeader":
        """Decodes the header of the chunk at file offset `pos`.

        Raises:
          InvalidArgumentError: the hash does not match.
        """
        stored, data_size, data_hash, type_and_records, decoded_data_size = _HEADER.unpack(data)
        computed = highway_hash64(data[8:])
        if stored != computed:
            raise InvalidArgumentError(
                f"header of the chunk at byte {pos} is damaged: its hash is {computed:016x}, "
                f"but {stored:016x} is stored"
            )
        return cls(
            data_size=data_size,
            data_hash=data_hash,
            chunk_type=type_and_records & 0xFF,
            num_records=type_and_records >> 8,
            decoded_data_size=decoded_data_size,
        )

    def is_signature(self) -> bool:
        """Returns whether this is the header of a file signature, the first chunk of each file."""
        return self.chunk_type == ChunkType.SIGNATURE and not (
            self.data_size or self.num_records or self.decoded_data_size
        )

    def end(self, begin: int) -> int:
        """Returns the file offset of the end of the chunk if it begins at `begin`."""
        return max(
            blocks.advance(begin, CHUNK_HEADER_SIZE + self.data_size),
            blocks.round_up_to_possible_chunk_boundary(begin + self.num_records),
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk: its type, its stored data, and the number and the total size of its records."""

    chunk_type: int
    data: bytes | memoryview
    num_records: int = 0
    decoded_data_size: int = 0

    def header(self) -> ChunkHeader:
        """Returns the header, with the hash of the data."""
        return ChunkHeader(
            data_size=len(self.data),
            data_hash=highway_hash64(self.data),
            chunk_type=self.chunk_type,
            num_records=self.num_records,
            decoded_data_size=self.decoded_data_size,
        )

    def encode(self, begin: int, header: ChunkHeader | None = None) -> bytes:
        """Returns the bytes of the chunk in a file, with block headers.

        Args:
          begin: The file offset of the chunk.
          header: The result of `header`, if available.
        """
        header = header or self.header()
        return interleave_block_headers([header.encode(), self.data], begin, header.end(begin))


SIGNATURE = Chunk(ChunkType.SIGNATURE, b"")


def padding_chunk(begin: int, alignment: int) -> Chunk | None:
    """Returns a chunk that fills a file from `begin` up to a multiple of `alignment`, if needed.

    The next chunk can begin at its end, and its size is at least the size of its header.
    """
    if alignment <= 1 or begin % alignment == 0:
        return None
    end = begin + alignment - begin % alignment
    while (
        not blocks.is_possible_chunk_boundary(end)
        or blocks.distance(begin, end) < CHUNK_HEADER_SIZE
    ):
        end += alignment
    return Chunk(ChunkType.PADDING, bytes(blocks.distance(begin, end) - CHUNK_HEADER_SIZE))
