"""Reads chunks of a Riegeli/records file: checks hashes, locates chunks, skips damage."""

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from riegeli._core import highway_hash64, join, strip_block_headers
from riegeli._files import Buffer, ByteSource
from riegeli._format import blocks
from riegeli._format.blocks import BLOCK_HEADER_SIZE, BLOCK_SIZE
from riegeli._format.chunk import CHUNK_HEADER_SIZE, Chunk, ChunkHeader
from riegeli.base.riegeli_error import InvalidArgumentError, RiegeliError
from riegeli.records.skipped_region import SkippedRegion

_FIRST_CHUNK_HINT = "; is it a Riegeli/records file?"
_MAX_POS = (1 << 64) - 1

# The number of bytes of a read, a multiple of blocks: a block header that contradicts the declared
# size of a chunk is detected before the complete chunk is read.
_READ_BYTES = 64 * BLOCK_SIZE


class Find(enum.Enum):
    """The chunk to search for, relative to a position in the file."""

    CONTAINING = enum.auto()  # The chunk of the record at the numeric position, or the next chunk.
    BEFORE = enum.auto()  # The last chunk that begins at or before the position.


@dataclass(frozen=True, slots=True)
class _Damage:
    """A damaged region, and the position to resume at.

    Attributes:
      begin: The position of the first damaged byte.
      resume: The probable begin of the next chunk, or the begin of the search for it.
      is_chunk: Whether `resume` is a chunk.
    """

    begin: int
    resume: int
    is_chunk: bool


class ChunkReader:
    """Reads chunks in the order of the file.

    Attributes:
      pos: The begin of the next chunk.
      truncated: The bytes of an incomplete chunk at the end of the file; None if the last read
        chunk was complete.
    """

    def __init__(self, source: ByteSource, pos: int) -> None:
        self.pos = pos
        self.truncated: SkippedRegion | None = None
        self._source = source
        self._damage: _Damage | None = None
        self._is_beyond_end = False  # Whether a skipped region ended beyond the end of the file.
        with self.annotate_errors(pos):
            if not blocks.is_possible_chunk_boundary(pos):
                raise InvalidArgumentError("no chunk can begin here")

    @contextmanager
    def annotate_errors(self, pos: int) -> Iterator[None]:
        """Adds the name of the file and the position of the chunk to errors of this package."""
        try:
            yield
        except RiegeliError as e:
            hint = _FIRST_CHUNK_HINT if pos == 0 and isinstance(e, InvalidArgumentError) else ""
            message = f"{e}; reading the chunk at byte {pos} of {self._source.name}{hint}"
            raise type(e)(message) from e

    def read_header(self) -> ChunkHeader | None:
        """Returns the header of the next chunk without moving; None at the end of the file.

        Raises:
          InvalidArgumentError: the header is damaged.
        """
        self.truncated = self._damage = None
        with self.annotate_errors(self.pos):
            return self._read_header(self.pos)

    def read_chunk(self) -> Chunk | None:
        """Reads the next chunk; returns None at the end of the file and for a truncated chunk.

        Raises:
          InvalidArgumentError: the chunk is damaged.
        """
        self.truncated = self._damage = None
        begin = self.pos
        with self.annotate_errors(begin):
            header = self._read_header(begin)
            chunk = None if header is None else self._read_data(begin, header)
        if header is not None and chunk is not None:
            self.pos = header.end(begin)
            self._source.release(self.pos)
        return chunk

    def mark_damaged(self, begin: int) -> None:
        """Marks the last chunk as damaged, from a numeric record position on."""
        self._damage = _Damage(begin, self.pos, is_chunk=True)

    def seek(self, pos: int) -> None:
        """Moves to the chunk that begins at `pos`; the next read checks it.

        Raises:
          InvalidArgumentError: `pos` is beyond the end of the file, or no chunk can begin there.
        """
        self.truncated = self._damage = None
        self._check_within_file(pos)
        self._is_beyond_end = False
        self.pos = pos
        with self.annotate_errors(pos):
            if not blocks.is_possible_chunk_boundary(pos):
                raise self._create_error("no chunk can begin here", pos)

    def seek_to_chunk(self, pos: int, find: Find) -> list[int]:
        """Moves to the chunk that `find` selects for `pos`.

        A truncated chunk at the end of the file counts as a chunk.

        Returns:
          The begins of the previous chunks of the same block.

        Raises:
          InvalidArgumentError: `pos` is beyond the end of the file, or the file is damaged there.
        """
        self.truncated = self._damage = None
        self._check_within_file(pos)
        self.seek(self._chunk_from_block_header(pos))
        size = self._source.size()  # Calls may drop the buffer.
        chunk_begins: list[int] = []
        while self.pos < pos:
            header = self.read_header()
            if header is None:
                break
            end = header.end(self.pos)
            last_pos = self.pos + header.num_records if find is Find.CONTAINING else end
            if pos < last_pos or end > size:
                break
            chunk_begins.append(self.pos)
            self.pos = end
        return chunk_begins

    def skip_damage(self, message: str) -> SkippedRegion | None:
        """Skips the damage that caused the error of the last call.

        Args:
          message: The error message.

        Returns:
          The skipped region; None if the error was not caused by damage.
        """
        if self._damage is None:
            return None
        begin = self._damage.begin
        while True:
            damage, self._damage = self._damage, None
            try:
                end = self._resume(damage)
            except InvalidArgumentError as e:
                if self._damage is None:
                    raise
                message = str(e)
            else:
                return SkippedRegion(begin, end, message)

    def _resume(self, damage: _Damage) -> int:
        """Moves to the first chunk after damage; returns the end of the damage."""
        pos, is_chunk = damage.resume, damage.is_chunk
        while True:
            if is_chunk and blocks.is_possible_chunk_boundary(pos):
                return self._skip_to(pos)
            block = pos + blocks.remaining_in_block(pos)
            end = self._skip_to(block)
            if end < block:
                return end
            data = self._source.read_at(block, BLOCK_HEADER_SIZE)
            if len(data) < BLOCK_HEADER_SIZE:
                return block
            to_begin, to_end = self._decode_block_header(data, block)
            if to_begin == 0:
                return block
            pos, is_chunk = block + to_end, True

    def _skip_to(self, pos: int) -> int:
        self.pos = min(pos, _MAX_POS)
        reached = self._source.skip(pos)
        self._is_beyond_end = reached < pos
        return reached

    def _create_error(
        self, message: str, resume: int, is_chunk: bool = False
    ) -> InvalidArgumentError:
        self._damage = _Damage(self.pos, resume, is_chunk)
        return InvalidArgumentError(message)

    def _check_within_file(self, pos: int) -> None:
        size = self._source.size()
        if pos > size:
            raise InvalidArgumentError(
                f"position {pos} exceeds the file size {size} of {self._source.name}"
            )

    def _chunk_from_block_header(self, pos: int) -> int:
        """Returns the begin of the chunk for `pos`, or of an earlier chunk."""
        block = pos - pos % BLOCK_SIZE
        self.seek(block)
        with self.annotate_errors(block):
            data = self._source.read_at(block, BLOCK_HEADER_SIZE)
            if len(data) < BLOCK_HEADER_SIZE:
                return block  # The file ends at or right before `pos`.
            to_begin, to_end = self._decode_block_header(data, block)
            if to_begin == 0:
                return block
            # The chunk that contains the block header, or the next chunk if it begins before `pos`.
            chunk = block + to_end if block + to_end <= pos else block - to_begin
            if chunk < 0 or not blocks.is_possible_chunk_boundary(chunk):
                raise self._create_error(
                    f"block header at byte {block} says that a chunk begins at byte {chunk}, where "
                    "no chunk can begin",
                    block + BLOCK_HEADER_SIZE,
                )
        return chunk

    def _decode_block_header(self, data: Buffer, pos: int) -> tuple[int, int]:
        try:
            return blocks.decode_block_header(data, pos)
        except InvalidArgumentError as e:
            raise self._create_error(str(e), pos + BLOCK_HEADER_SIZE) from e

    def _read_header(self, begin: int) -> ChunkHeader | None:
        if self._is_beyond_end and self._source.reach(begin) < begin:
            return None
        self._is_beyond_end = False
        header_end = blocks.advance(begin, CHUNK_HEADER_SIZE)
        stored = self._source.read_at(begin, header_end - begin)
        crosses_block = begin % BLOCK_SIZE == 0 or len(stored) > CHUNK_HEADER_SIZE
        content = b"".join(self._remove_block_headers(stored, begin)) if crosses_block else stored
        if len(stored) < header_end - begin:
            if stored:
                self._set_truncated(begin + len(stored), "its header is cut off")
            return None
        try:
            header = ChunkHeader.decode(content, begin)
        except InvalidArgumentError as e:
            raise self._create_error(str(e), header_end) from e
        if crosses_block:  # The block headers must declare the end of the chunk.
            self._remove_block_headers(stored, begin, header.end(begin))
        if begin == 0 and not header.is_signature():
            raise self._create_error("the first chunk of a file must be its signature", header_end)
        return header

    def _read_data(self, begin: int, header: ChunkHeader) -> Chunk | None:
        end = header.end(begin)
        pieces: list[bytes | memoryview] = []
        pos = blocks.advance(begin, CHUNK_HEADER_SIZE)
        data_end = blocks.advance(begin, CHUNK_HEADER_SIZE + header.data_size)
        while pos < data_end:
            step_end = min(data_end, (pos + _READ_BYTES) // BLOCK_SIZE * BLOCK_SIZE)
            stored = self._source.read_at(pos, step_end - pos)
            content = strip_block_headers(stored, pos, begin, end)
            if content is None:  # The next call raises the error of the damage.
                pieces += self._remove_block_headers(stored, pos, end)
            else:
                pieces.append(content)
            pos += len(stored)
            if pos < step_end:
                break
        else:
            pos = self._source.reach(end) if data_end < end else end  # Skips the padding.
        if pos < end:
            self._set_truncated(pos, f"it should have {end - begin}")
            return None
        data = memoryview(join(pieces))  # Slices of a view copy no bytes.
        computed_hash = highway_hash64(data)
        if computed_hash != header.data_hash:
            message = (
                f"data is damaged: its hash is {computed_hash:016x}, "
                f"but {header.data_hash:016x} is stored"
            )
            raise self._create_error(message, end, is_chunk=True)
        return Chunk(header.chunk_type, data, header.num_records, header.decoded_data_size)

    def _set_truncated(self, end: int, problem: str) -> None:
        self.truncated = SkippedRegion(
            self.pos,
            end,
            f"{self._source.name} ends in the middle of a chunk, which has {end - self.pos} bytes "
            f"from byte {self.pos} on; {problem}. The records before it were read; the file is "
            "still being written, or its writer was interrupted",
        )

    def _remove_block_headers(
        self, stored: Buffer, begin: int, chunk_end: int | None = None
    ) -> list[memoryview]:
        """Removes and checks the block headers in file bytes of the next chunk.

        Args:
          stored: The bytes; a partial block header at their end is removed, too.
          begin: The position of the first byte.
          chunk_end: The end of the chunk that the block headers must declare; None if unknown.

        Raises:
          InvalidArgumentError: a block header is damaged, or declares another chunk.
        """
        pieces = []
        view = memoryview(stored)
        pos, stop = begin, begin + len(view)
        while pos < stop:
            if pos % BLOCK_SIZE == 0:
                if stop - pos < BLOCK_HEADER_SIZE:
                    break
                offset = pos - begin
                self._check_block_header(view[offset : offset + BLOCK_HEADER_SIZE], pos, chunk_end)
                pos += BLOCK_HEADER_SIZE
            piece_end = min(stop, pos + blocks.remaining_in_block(pos))
            pieces.append(view[pos - begin : piece_end - begin])
            pos = piece_end
        return pieces

    def _check_block_header(self, data: memoryview, pos: int, chunk_end: int | None) -> None:
        to_begin, to_end = self._decode_block_header(data, pos)
        after_header = pos + BLOCK_HEADER_SIZE
        if pos - to_begin != self.pos:
            # The position of the next chunk in a header is trusted if the next chunk is near.
            is_near = to_end <= BLOCK_SIZE
            raise self._create_error(
                f"block header at byte {pos} says that the chunk begins at byte "
                f"{pos - to_begin}, not at byte {self.pos}",
                pos + to_end if is_near else after_header,
                is_chunk=is_near,
            )
        if chunk_end is not None and pos + to_end != chunk_end:
            raise self._create_error(
                f"block header at byte {pos} says that the chunk ends at byte {pos + to_end}, "
                f"not at byte {chunk_end}",
                after_header,
            )
