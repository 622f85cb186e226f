"""The layers of the file format, lowest first: blocks, chunks, and what is inside a chunk."""
