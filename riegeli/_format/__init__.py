"""The layers of the file format: records are in chunks, and chunks are in blocks.

    records
       |  simple_chunk, or transposed_encoder to write and transposed_chunk to read
       v
    data of a chunk: a few separately compressed streams                         (compression)
       |  chunk: a header with the sizes and hashes
       v
    a sequence of chunks
       |  blocks: a block header every 64 KiB
       v
    bytes of a file

Readers use the same layers from bottom to top. `options` parses the options that choose the type,
the size and the compression of chunks. `riegeli._core` has the loops over bytes, `riegeli._files`
the files, and `riegeli.records` positions and threads.
"""
