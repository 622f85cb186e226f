"""Block headers: laid between the bytes of a chunk for the file, and taken out again."""

from collections.abc import Sequence
from struct import Struct

from riegeli._pure.highway_hash import highway_hash64

BLOCK_SIZE = 1 << 16
BLOCK_HEADER_SIZE = 24

_BLOCK_HEADER = Struct("<QQQ")  # hash, distance to the chunk's begin, distance to the chunk's end


def encode_block_header(to_chunk_begin: int, to_chunk_end: int) -> bytes:
    """The 24 bytes of a block header."""
    body = _BLOCK_HEADER.pack(0, to_chunk_begin, to_chunk_end)[8:]
    return highway_hash64(body).to_bytes(8, "little") + body


def interleave_block_headers(
    pieces: Sequence[bytes | memoryview], begin: int, end: int, /
) -> bytes:
    """Lays a chunk out for the file: with block headers, and zeros up to its end.

    Args:
      pieces: The header and the data of the chunk, in pieces.
      begin: The begin of the chunk in the file.
      end: The end of the chunk.

    Raises:
      ValueError: the pieces do not fit.
    """
    chunk = b"".join(pieces)
    laid_out = bytearray()
    pos, taken = begin, 0
    while pos < end:
        if pos % BLOCK_SIZE == 0:
            laid_out += encode_block_header(pos - begin, end - pos)
            pos += BLOCK_HEADER_SIZE
        size = max(0, min(end - pos, -pos % BLOCK_SIZE or BLOCK_SIZE))
        laid_out += chunk[taken : taken + size].ljust(size, b"\0")
        pos, taken = pos + size, taken + size
    if taken < len(chunk) or pos > end:
        raise ValueError(f"{len(chunk)} bytes do not fit between bytes {begin} and {end}")
    return bytes(laid_out)


def take_out_block_headers(
    stored: bytes | bytearray | memoryview, pos: int, begin: int, end: int, /
) -> bytes | memoryview | None:
    """Takes the block headers out of file bytes that lie in one chunk.

    Args:
      stored: The bytes; a block header that they end in is left out too.
      pos: Their begin in the file.
      begin: The begin of the chunk.
      end: The end of the chunk.

    Returns:
      The bytes of the chunk; None if a block header is damaged, or is that of another chunk.
    """
    view = memoryview(stored)
    pieces = []
    at = 0
    while at < len(view):
        if (pos + at) % BLOCK_SIZE == 0:
            block_header = view[at : at + BLOCK_HEADER_SIZE]
            if len(block_header) < BLOCK_HEADER_SIZE:
                break
            stored_hash, to_begin, to_end = _BLOCK_HEADER.unpack(block_header)
            if (to_begin, to_end) != (pos + at - begin, end - pos - at):
                return None
            if stored_hash != highway_hash64(block_header[8:]):
                return None
            at += BLOCK_HEADER_SIZE
        stop = min(len(view), at + (-(pos + at) % BLOCK_SIZE or BLOCK_SIZE))
        pieces.append(view[at:stop])
        at = stop
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
