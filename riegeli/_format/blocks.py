"""Blocks: the positions of chunk bytes in a file with a block header every 64 KiB.

A file is a gap-free sequence of chunks. At every multiple of `BLOCK_SIZE`, a block header of 24
bytes is inserted, also in the middle of a chunk:

    8 bytes  hash of the following 16
    8 bytes  distance from the beginning of the chunk that the header interrupts
    8 bytes  distance to the end of that chunk

All positions in this module are byte offsets in the file; sizes of chunk contents exclude block
headers.
"""

from struct import Struct

from riegeli._core import highway_hash64
from riegeli._pure.blocks import BLOCK_HEADER_SIZE as BLOCK_HEADER_SIZE
from riegeli._pure.blocks import BLOCK_SIZE as BLOCK_SIZE
from riegeli.base.riegeli_error import InvalidArgumentError

USABLE_BLOCK_SIZE = BLOCK_SIZE - BLOCK_HEADER_SIZE

_BLOCK_HEADER = Struct("<QQQ")  # hash, distance to the chunk's begin, distance to the chunk's end


def remaining_in_block(pos: int) -> int:
    """Returns the number of bytes from `pos` to the next block boundary; 0 on a boundary."""
    return -pos % BLOCK_SIZE


def is_possible_chunk_boundary(pos: int) -> bool:
    """Returns whether a chunk can begin at `pos`, which is not in or right after a block header."""
    return remaining_in_block(pos) < USABLE_BLOCK_SIZE


def round_up_to_possible_chunk_boundary(pos: int) -> int:
    """Returns the first position at or after `pos` at which a chunk can begin."""
    return pos + max(0, remaining_in_block(pos) - (USABLE_BLOCK_SIZE - 1))


def advance(chunk_begin: int, size: int) -> int:
    """Returns the position after the first `size` bytes of the chunk at `chunk_begin`."""
    headers = (size + (chunk_begin + USABLE_BLOCK_SIZE - 1) % BLOCK_SIZE) // USABLE_BLOCK_SIZE
    return chunk_begin + size + BLOCK_HEADER_SIZE * headers


def distance(chunk_begin: int, pos: int) -> int:
    """Returns the number of bytes of the chunk at `chunk_begin` before `pos`."""
    headers = pos // BLOCK_SIZE - chunk_begin // BLOCK_SIZE
    in_header = min(pos % BLOCK_SIZE, BLOCK_HEADER_SIZE)
    in_first_header = min(chunk_begin % BLOCK_SIZE, BLOCK_HEADER_SIZE)
    return (pos - in_header) - (chunk_begin - in_first_header) - BLOCK_HEADER_SIZE * headers


def decode_block_header(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    """Decodes the block header at file offset `pos`.

    Returns:
      The distances to the beginning and to the end of the interrupted chunk.

    Raises:
      InvalidArgumentError: the hash does not match, or the end of the chunk is invalid.
    """
    stored, to_chunk_begin, to_chunk_end = _BLOCK_HEADER.unpack(data)
    computed = highway_hash64(data[8:])
    if stored != computed:
        raise InvalidArgumentError(
            f"block header at byte {pos} is damaged: its hash is {computed:016x}, "
            f"but {stored:016x} is stored"
        )
    if to_chunk_end == 0:
        raise InvalidArgumentError(f"block header at byte {pos} says that no chunk is there")
    return to_chunk_begin, to_chunk_end
