"""A stored chunk, which is copied from file to file without decoding its records."""

from typing import NamedTuple

from riegeli._format.chunk import Chunk

__all__ = ["StoredChunk"]


class StoredChunk(NamedTuple):
    """A stored chunk of records, for `RecordWriter.write_chunk`.

    Google's Python API lacks this class; its C++ API has `Chunk`.

    Attributes:
      begin: The position of the chunk in the file.
      num_records: The number of records.
      content: The type and the data of the chunk.
    """

    begin: int
    num_records: int
    content: Chunk
