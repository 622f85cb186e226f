"""Objects as files: read in cached blocks, and written by one upload."""

from __future__ import annotations

import io
import tempfile
from typing import Any

from rlds_ecosystem.files.caches import LruCache
from rlds_ecosystem.files.stores import _clients as clients
from rlds_ecosystem.files.stores._clients import BLOCK_SIZE

__all__ = ["NewObject", "ReadObject"]

# The largest number of blocks of a request; sequential reads double the number.
_MAX_REQUEST_BLOCKS = 8
# The most recently used blocks of all open files.
_blocks = LruCache(1 << 28)


class ReadObject(io.RawIOBase):
    """A readable, seekable object. Fetched ranges are cached in memory."""

    def __init__(self, url: str) -> None:
        self.name = url
        client = clients.client_of(url)
        info = client.stat(url)
        if info.is_dir:
            raise IsADirectoryError(f"{url} is a folder, expected an object")
        self._size, self._block_size = info.size, client.block_size
        self._fetch = client.fetcher(url)
        # The key of the cache: files of one version of an object share blocks.
        self._object = (type(client), url, *info.version)
        self._pos = 0
        self._next_block = -1  # The next block of sequential reads.
        self._num_blocks = 1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._pos, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"{self.name}: negative position {start + offset}")
        self._pos = start + offset
        return self._pos

    def tell(self) -> int:
        return self._pos

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        end = min(self._pos + len(view), self._size)
        start = pos = self._pos
        while pos < end:
            index, offset = divmod(pos, self._block_size)
            block = _blocks.get((self._object, index))
            if block is None:
                block = self._fetch_from(index, -(-end // self._block_size))
            piece = memoryview(block)[offset : offset + end - pos]
            view[pos - start : pos - start + len(piece)] = piece
            pos += len(piece)
        self._pos = max(pos, start)
        return self._pos - start

    def _fetch_from(self, index: int, end_index: int) -> bytes:
        is_sequential = index == self._next_block and self._block_size == BLOCK_SIZE
        self._num_blocks = min(2 * self._num_blocks, _MAX_REQUEST_BLOCKS) if is_sequential else 1
        count = min(max(end_index - index, self._num_blocks), _MAX_REQUEST_BLOCKS)
        keys = ((i, (self._object, index + i)) for i in range(1, count))
        count = next((i for i, key in keys if _blocks.get(key) is not None), count)
        start = index * self._block_size
        end = min(start + count * self._block_size, self._size)
        data = self._fetch(start, end)
        if len(data) != end - start:
            raise OSError(
                f"{self.name}: got {len(data)} of the {end - start} bytes from {start} on: the "
                "object was replaced while it was read; open it again"
            )
        self._next_block = index + count
        blocks = [data[i : i + self._block_size] for i in range(0, len(data), self._block_size)]
        for block_index, block in enumerate(blocks, index):
            _blocks.put((self._object, block_index), block, len(block))
        return blocks[0]


class NewObject(io.RawIOBase):
    """A temporary file that becomes an object when it is closed, or `publish` is called."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (kept open)
        self._is_published = False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._is_published = False
        return self._file.write(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self, size: int | None = None, /) -> int:
        self._is_published = False
        return self._file.truncate(size)

    def publish(self) -> None:
        """Uploads the written bytes as the object; further calls do nothing."""
        if self._is_published:
            return
        end = self._file.tell()
        self._file.seek(0)
        try:
            clients.client_of(self.name).upload(self._file, self.name)
        finally:
            self._file.seek(end)
        self._is_published = True

    def discard(self) -> None:
        """Closes the file without uploading an object."""
        self._is_published = True
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.publish()
        finally:
            super().close()
            self._file.close()

    def __exit__(self, exc_type: object, *_: object) -> None:
        # After an error in the `with` block, the file is incomplete.
        self.close() if exc_type is None else self.discard()

    def __del__(self) -> None:
        self.discard()
