"""Block headers: inserted between the bytes of a chunk in the file, and removed by readers."""

from collections.abc import Sequence
from struct import Struct

from riegeli._pure.highway_hash import highway_hash64

BLOCK_SIZE = 1 << 16
BLOCK_HEADER_SIZE = 24

_BLOCK_HEADER = Struct("<QQQ")  # hash, distance to the chunk's begin, distance to the chunk's end


def encode_block_header(to_chunk_begin: int, to_chunk_end: int) -> bytes:
    """Returns the 24 bytes of a block header."""
    body = _BLOCK_HEADER.pack(0, to_chunk_begin, to_chunk_end)[8:]
    return highway_hash64(body).to_bytes(8, "little") + body


def interleave_block_headers(
    pieces: Sequence[bytes | memoryview], begin: int, end: int, /
) -> bytes:
    """Returns the bytes of a chunk in the file, with block headers and padding.

    Args:
      pieces: The header and the data of the chunk, in pieces.
      begin: The begin of the chunk in the file.
      end: The end of the chunk.

    Raises:
      ValueError: the pieces do not fit between `begin` and `end`.
    """
    chunk = b"".join(pieces)
    out = bytearray()
    pos, num_used = begin, 0
    while pos < end:
        if pos % BLOCK_SIZE == 0:
            out += encode_block_header(pos - begin, end - pos)
            pos += BLOCK_HEADER_SIZE
        size = max(0, min(end - pos, -pos % BLOCK_SIZE or BLOCK_SIZE))
        out += chunk[num_used : num_used + size].ljust(size, b"\0")
        pos, num_used = pos + size, num_used + size
    if num_used < len(chunk) or pos > end:
        raise ValueError(f"{len(chunk)} bytes do not fit between bytes {begin} and {end}")
    return bytes(out)


def strip_block_headers(
    stored: bytes | bytearray | memoryview, pos: int, begin: int, end: int, /
) -> bytes | memoryview | None:
    """Removes the block headers from file bytes of a chunk.

    Args:
      stored: The bytes; a partial block header at their end is removed, too.
      pos: The position of the bytes in the file.
      begin: The begin of the chunk.
      end: The end of the chunk.

    Returns:
      The bytes of the chunk; None if a block header is damaged or declares another chunk.
    """
    view = memoryview(stored)
    pieces = []
    offset = 0
    while offset < len(view):
        if (pos + offset) % BLOCK_SIZE == 0:
            block_header = view[offset : offset + BLOCK_HEADER_SIZE]
            if len(block_header) < BLOCK_HEADER_SIZE:
                break
            stored_hash, to_begin, to_end = _BLOCK_HEADER.unpack(block_header)
            if (to_begin, to_end) != (pos + offset - begin, end - pos - offset):
                return None
            if stored_hash != highway_hash64(block_header[8:]):
                return None
            offset += BLOCK_HEADER_SIZE
        piece_end = min(len(view), offset + (-(pos + offset) % BLOCK_SIZE or BLOCK_SIZE))
        pieces.append(view[offset:piece_end])
        offset = piece_end
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
