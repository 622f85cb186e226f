"""The layers of the file format: records are in chunks, and chunks are in blocks.

    records
       |  simple_chunk, or transposed_encoder to write and transposed_chunk to read
       v
    data of a chunk: a few streams, each compressed on its own                   (compression)
       |  chunk: a header with the sizes and hashes
       v
    chunks, one after the other
       |  blocks: a block header every 64 KiB
       v
    bytes of a file

Reading goes the same way upwards. `options` parses the text that chooses the kind, the size and the
compression of chunks. The loops over bytes are in `riegeli._core`, and files in `riegeli._files`;
positions and threads are in `riegeli.records`.
"""
