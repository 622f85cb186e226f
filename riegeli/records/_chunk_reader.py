"""Reads whole chunks from a file, checks their hashes, and finds chunks by position."""

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from riegeli._core import highway_hash64
from riegeli._files import Source
from riegeli._format import blocks
from riegeli._format.blocks import BLOCK_HEADER_SIZE, BLOCK_SIZE
from riegeli._format.chunk import CHUNK_HEADER_SIZE, Chunk, ChunkHeader, ChunkType
from riegeli.base.riegeli_error import InvalidArgumentError, RiegeliError

_FIRST_CHUNK_HINT = "; is it a Riegeli/records file?"


class Find(enum.Enum):
    """Which chunk to find for a position in the file."""

    CONTAINING = enum.auto()  # The one with the record of that numeric position, or the next.
    BEFORE = enum.auto()  # The last one that begins at or before it.


class ChunkReader:
    """Reads chunks in the order of the file.

    Attributes:
      pos: Where the next chunk begins.
      truncated: How the file ended in the middle of a chunk, when it was last read; else None.
    """

    def __init__(self, source: Source, pos: int) -> None:
        self.pos = pos
        self.truncated: str | None = None
        self._source = source
        with self.annotated(pos):
            if not blocks.is_possible_chunk_boundary(pos):
                raise InvalidArgumentError("no chunk can begin here")

    @contextmanager
    def annotated(self, pos: int) -> Iterator[None]:
        """Adds to errors of this package which file and chunk was read."""
        try:
            yield
        except RiegeliError as e:
            hint = _FIRST_CHUNK_HINT if pos == 0 and isinstance(e, InvalidArgumentError) else ""
            message = f"{e}; reading the chunk at byte {pos} of {self._source.name}{hint}"
            raise type(e)(message) from e

    def read_header(self) -> ChunkHeader | None:
        """The header of the next chunk, which stays the next one; None at the end of the file."""
        with self.annotated(self.pos):
            found = self._read_header(self.pos)
        return found[0] if found else None

    def read_chunk(self) -> Chunk | None:
        """Reads the next chunk; None at the end of the file, and where a chunk is cut off by it.

        Raises:
          InvalidArgumentError: the chunk is damaged.
        """
        begin = self.pos
        with self.annotated(begin):
            found = self._read_header(begin)
            if found is None:
                return None
            header, claimed_ends = found
            chunk = self._read_data(begin, header, claimed_ends)
        if chunk is not None:
            self.pos = header.end(begin)
            self._source.release(self.pos)
        return chunk

    def seek(self, pos: int) -> None:
        """Makes the chunk that begins at `pos` the next one; whether there is one shows on reading.

        Raises:
          InvalidArgumentError: `pos` is behind the end of the file, or no chunk can begin there.
        """
        self._check_within_file(pos)
        with self.annotated(pos):
            if not blocks.is_possible_chunk_boundary(pos):
                raise InvalidArgumentError("no chunk can begin here")
        self.pos = pos
        self.truncated = None

    def seek_to_chunk(self, pos: int, find: Find) -> None:
        """Makes the chunk that `find` names for `pos` the next one.

        Raises:
          InvalidArgumentError: `pos` is behind the end of the file, or it is damaged there.
        """
        self._check_within_file(pos)
        begin = self._chunk_from_block_header(pos)
        while begin < pos:
            self.seek(begin)
            header = self.read_header()
            if header is None:
                break
            end = header.end(begin)
            last = begin + header.num_records if find is Find.CONTAINING else end
            if pos < last:
                break
            begin = end
        self.seek(begin)

    def _check_within_file(self, pos: int) -> None:
        size = self._source.size()
        if pos > size:
            raise InvalidArgumentError(
                f"position {pos} exceeds the file size {size} of {self._source.name}"
            )

    def _chunk_from_block_header(self, pos: int) -> int:
        """Where a chunk begins that is, or comes before, the one to find for `pos`."""
        block = pos - pos % BLOCK_SIZE
        with self.annotated(block):
            data = self._source.read_at(block, BLOCK_HEADER_SIZE)
            if len(data) < BLOCK_HEADER_SIZE:
                return block  # The file ends here, at or right before `pos`.
            to_begin, to_end = blocks.decode_block_header(data, block)
        if to_begin == 0:
            return block
        # The chunk that the header interrupts, unless it ends before `pos`.
        return block + to_end if block + to_end <= pos else block - to_begin

    def _read_header(self, begin: int) -> tuple[ChunkHeader, list[tuple[int, int]]] | None:
        self.truncated = None
        end = blocks.advance(begin, CHUNK_HEADER_SIZE)
        data = self._source.read_at(begin, end - begin)
        if len(data) < end - begin:
            if data:
                self._note_truncated(begin, len(data), "its header is cut off")
            return None
        content, claimed_ends = _strip_block_headers(data, begin, begin)
        header = ChunkHeader.decode(content, begin)
        _check_ends(claimed_ends, header.end(begin))
        _check_rules(header, begin)
        return header, claimed_ends

    def _read_data(
        self, begin: int, header: ChunkHeader, claimed_ends: list[tuple[int, int]]
    ) -> Chunk | None:
        data_begin = blocks.advance(begin, CHUNK_HEADER_SIZE)
        end = header.end(begin)
        stored = self._source.read_at(data_begin, end - data_begin)
        if len(stored) < end - data_begin:
            available = data_begin - begin + len(stored)
            self._note_truncated(begin, available, f"it should have {end - begin}")
            return None
        content, claimed_ends = _strip_block_headers(stored, data_begin, begin)
        _check_ends(claimed_ends, end)
        data = content[: header.data_size]
        computed = highway_hash64(data)
        if computed != header.data_hash:
            raise InvalidArgumentError(
                f"data is damaged: its hash is {computed:016x}, "
                f"but {header.data_hash:016x} is stored"
            )
        return Chunk(header.chunk_type, data, header.num_records, header.decoded_data_size)

    def _note_truncated(self, begin: int, available: int, what: str) -> None:
        self.truncated = (
            f"{self._source.name} ends in the middle of a chunk, which has {available} bytes from "
            f"byte {begin} on; {what}. The records before it were read; the file is still being "
            "written, or its writer was interrupted"
        )


def _strip_block_headers(
    data: bytes, begin: int, chunk_begin: int
) -> tuple[bytes, list[tuple[int, int]]]:
    """Takes the block headers out of file bytes that lie in one chunk.

    Returns:
      The bytes of the chunk; where each block header is and where it says the chunk ends.
    """
    pieces = []
    claimed_ends = []
    view = memoryview(data)
    pos, stop = begin, begin + len(data)
    while pos < stop:
        if pos % BLOCK_SIZE == 0:
            at = pos - begin
            to_begin, to_end = blocks.decode_block_header(view[at : at + BLOCK_HEADER_SIZE], pos)
            if pos - to_begin != chunk_begin:
                raise InvalidArgumentError(
                    f"block header at byte {pos} says that the chunk begins at byte "
                    f"{pos - to_begin}, not at byte {chunk_begin}"
                )
            claimed_ends.append((pos, pos + to_end))
            pos += BLOCK_HEADER_SIZE
        piece_end = min(stop, pos + blocks.remaining_in_block(pos))
        pieces.append(view[pos - begin : piece_end - begin])
        pos = piece_end
    return b"".join(pieces), claimed_ends


def _check_ends(claimed_ends: list[tuple[int, int]], chunk_end: int) -> None:
    for pos, claimed in claimed_ends:
        if claimed != chunk_end:
            raise InvalidArgumentError(
                f"block header at byte {pos} says that the chunk ends at byte {claimed}, "
                f"not at byte {chunk_end}"
            )


def _check_rules(header: ChunkHeader, begin: int) -> None:
    """What the format says about chunks of a type, beyond their bytes being undamaged."""
    is_signature = header.chunk_type == ChunkType.SIGNATURE
    if begin == 0 and not is_signature:
        raise InvalidArgumentError("the first chunk of a file must be its signature")
    if is_signature and (header.data_size or header.num_records or header.decoded_data_size):
        raise InvalidArgumentError("a file signature must be empty")
    if header.chunk_type == ChunkType.PADDING and (header.num_records or header.decoded_data_size):
        raise InvalidArgumentError("a padding chunk cannot hold records")
    if header.chunk_type == ChunkType.METADATA and header.num_records:
        raise InvalidArgumentError("a metadata chunk cannot hold records")
