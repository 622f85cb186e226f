"""A chunk as it is stored: what is copied from file to file without decoding its records."""

from typing import NamedTuple

from riegeli._format.chunk import Chunk

__all__ = ["StoredChunk"]


class StoredChunk(NamedTuple):
    """A chunk of records as it is stored, for `RecordWriter.write_chunk`.

    Google's Python API has none; its C++ API has `Chunk`.

    Attributes:
      begin: Its position in the file.
      num_records: The number of its records.
      content: Its content.
    """

    begin: int
    num_records: int
    content: Chunk
