"""Streams of raw files, read once from front to end, with or without gzip."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from typing import IO

from etils import epath

from rlds.raw_files.untrusted import SourceError, check_declared, check_is_file

__all__ = ["GZIP_MAGIC", "ByteStream"]

GZIP_MAGIC = b"\x1f\x8b"

# The size of a read, as a damaged file may declare a wrong length.
_MAX_READ_BYTES = 1 << 24


class ByteStream(contextlib.AbstractContextManager["ByteStream"]):
    """The bytes of a file.

    Args:
      file: The file.
      name: The name of the file in errors.
      compressed: True for gzip. The checksums and the end mark are checked, so that a truncated
        file is an error (TensorFlow's reader takes the cut for the end of the file).
    """

    def __init__(self, file: epath.Path, name: str, *, compressed: bool) -> None:
        check_is_file(file)
        self.name = name
        self._size = file.stat().length
        # A file of an object store may be usable as a context manager only.
        self._opened = contextlib.ExitStack()
        self._raw: IO[bytes] = self._opened.enter_context(file.open("rb"))
        self._stream: IO[bytes] = self._raw
        if compressed:
            self._stream = gzip.GzipFile(fileobj=self._raw, mode="rb")  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()
        self._opened.close()

    @property
    def fraction(self) -> float:
        """The share of the file that has been read, in stored bytes."""
        return min(self._raw.tell() / self._size, 1.0) if self._size else 1.0

    def read(self, size: int) -> bytes:
        """Returns the next bytes: fewer than `size` only at the end of the file.

        Raises:
          SourceError: The compressed data is damaged, or ends too early; or the size exceeds
            the capacity of the file.
        """
        check_declared(size, self._size, file=self.name)
        pieces: list[bytes] = []
        while size > 0:
            try:
                piece = self._stream.read(min(size, _MAX_READ_BYTES))
            except EOFError as error:
                raise SourceError(
                    "the gzip data ends too early: download the file again", file=self.name
                ) from error
            except (gzip.BadGzipFile, zlib.error) as error:
                raise SourceError(
                    f"the gzip data is damaged ({error}); download the file again", file=self.name
                ) from error
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def tell(self) -> int:
        """Returns the number of bytes that have been read or skipped."""
        return self._stream.tell()

    def skip(self, size: int) -> None:
        """Skips the next bytes, at most to the end of the file.

        Raises:
          SourceError: See `read`.
        """
        while size > 0 and (piece := self.read(min(size, _MAX_READ_BYTES))):
            size -= len(piece)
