"""Access of tests to internals of Riegeli: if these move, only this file changes."""

import io
import os
from collections.abc import Iterator
from typing import Any

from riegeli import _core, _pure
from riegeli._files import SeekableSource
from riegeli._format import (
    blocks,
    chunk,
    compression,
    options,
    simple_chunk,
    transposed_chunk,
    transposed_encoder,
)
from riegeli.records import _chunk_reader, _field_projection

core, pure, machine = _core, _pure, _pure.machine
BLOCK_SIZE, BLOCK_HEADER_SIZE = blocks.BLOCK_SIZE, blocks.BLOCK_HEADER_SIZE
encode_block_header = _pure.blocks.encode_block_header
remaining_in_block = blocks.remaining_in_block
SIGNATURE, CHUNK_HEADER_SIZE = chunk.SIGNATURE, chunk.CHUNK_HEADER_SIZE
Chunk, ChunkHeader, ChunkType = chunk.Chunk, chunk.ChunkHeader, chunk.ChunkType
padding_chunk = chunk.padding_chunk
Compressor, CompressionType = compression.Compressor, compression.CompressionType
MAX_DECOMPRESSED_SIZE, decompress = compression.MAX_DECOMPRESSED_SIZE, compression.decompress
parse_options = options.parse_options
encode_simple_chunk = simple_chunk.encode_simple_chunk
decode_simple_chunk, decode_joined = simple_chunk.decode_simple_chunk, simple_chunk.decode_joined
encode_transposed_chunk = transposed_encoder.encode_transposed_chunk
decode_transposed_chunk = transposed_chunk.decode_transposed_chunk
MAX_NESTING, has_buffer, has_subtype = machine.MAX_NESTING, machine.has_buffer, machine.has_subtype
highway_hash64, read_varint, read_varints = core.highway_hash64, pure.read_varint, pure.read_varints
ChunkReader, to_scope = _chunk_reader.ChunkReader, _field_projection.to_scope
UNCOMPRESSED = Compressor(CompressionType.NONE)


def compiled_core() -> Any:
    """The compiled twins of `pure`."""
    from riegeli import _compiled

    return _compiled


def file_with(*chunks: Chunk) -> io.BytesIO:
    """A file of some chunks."""
    data = b""
    for each in chunks:
        data += each.encode(len(data))
    return io.BytesIO(data)


def chunks_in(path: str | os.PathLike[str]) -> Iterator[Chunk]:
    """The chunks of a file."""
    with open(path, "rb") as file:
        reader = ChunkReader(SeekableSource(file), 0)
        while (chunk := reader.read_chunk()) is not None:
            yield chunk
