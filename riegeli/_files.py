"""Files of Riegeli readers and writers, opened from paths or passed as file objects."""

import io
import os
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, Protocol, Self, cast

from riegeli.base.riegeli_error import InternalError, UnimplementedError

PathType = str | os.PathLike[str]
Buffer = bytes | bytearray | memoryview

# The maximum number of bytes of a read: a damaged size in a file must not exhaust the memory.
_MAX_READ_BYTES = 1 << 22


class ClosedOnExit:
    """A context manager that closes itself on exit; an error of the block hides its own error."""

    def close(self) -> None:
        """Releases the file."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise


def check_sizes(*sizes: int | None) -> None:
    """Raises an OverflowError if a size or a position is negative."""
    for size in sizes:
        if size is not None and size < 0:
            raise OverflowError(f"sizes and positions cannot be negative, got {size}")


def as_file(target: PathType | BinaryIO, mode: str) -> tuple[BinaryIO, bool]:
    """Opens a path or a URL like `gs://bucket/file`; keeps a file object.

    Returns:
      The file object, and whether it was opened by this function.
    """
    if not isinstance(target, str | os.PathLike):
        return target, False
    name = os.fspath(target)
    if "://" in name:
        from rlds_ecosystem.files import stores

        return stores.open_binary(name, mode), True
    return cast(BinaryIO, open(name, mode)), True


def name_of(file: Any) -> str:
    """Returns the path of a file for error messages, if the file has a path."""
    name = getattr(file, "name", None)
    if isinstance(name, bytes):
        return os.fsdecode(name)
    return name if isinstance(name, str) else f"<{type(file).__name__}>"


def is_seekable(file: Any) -> bool:
    """Returns whether the file object declares that it can seek."""
    seekable = getattr(file, "seekable", None)
    return bool(seekable and seekable())


def write_all(file: BinaryIO, data: bytes) -> None:
    """Writes all of `data`, in as many calls as the file needs.

    Raises:
      InternalError: the file object returns an impossible number of written bytes.
    """
    view = memoryview(data)
    while view:
        try:
            size = file.write(view)
        except TypeError:  # Some file-like objects accept only bytes.
            size = file.write(view.tobytes())
        if size is None:  # Some file-like objects return None after writing all bytes.
            return
        if not 0 < size <= len(view):
            raise InternalError(f"write() of {len(view)} bytes to {name_of(file)} returned {size}")
        view = view[size:]


def sync(file: BinaryIO) -> None:
    """Syncs a flushed file to disk, if it is a real file."""
    try:
        descriptor = file.fileno()
    except (AttributeError, OSError):  # `io.UnsupportedOperation` is an `OSError`.
        return
    os.fsync(descriptor)


class ByteSource(Protocol):
    """Bytes that can be read by position."""

    name: str
    supports_random_access: bool

    def read_at(self, pos: int, size: int) -> Buffer:
        """Returns `size` bytes from `pos`, or fewer bytes at the end of the source."""
        ...

    def reach(self, pos: int) -> int:
        """Returns `pos`, or the end of the source if it is smaller."""
        ...

    def skip(self, pos: int) -> int:
        """Releases the bytes before `pos`, and returns the same as `reach`."""
        ...

    def release(self, pos: int) -> None:
        """Releases the bytes before `pos`, which are not requested again."""
        ...

    def size(self) -> int:
        """Returns the current number of bytes in the source."""
        ...


def _choose_read_function(file: Any) -> Callable[[int], Buffer]:
    """Returns a function that reads up to n bytes with the best of four read methods."""
    for name in ("readinto1", "readinto"):
        readinto = getattr(file, name, None)
        if readinto is not None:
            return partial(_read_into, file, readinto)
    for name in ("read1", "read"):
        read = getattr(file, name, None)
        if read is not None:
            return partial(_read, file, read)
    raise TypeError(f"{name_of(file)} is neither a path nor a file object that can be read")


def _read_into(file: Any, readinto: Callable[[Any], Any], size: int) -> Buffer:
    piece = bytearray(size)
    length = readinto(piece)
    if not isinstance(length, int) or not 0 <= length <= size:
        raise InternalError(f"reading {size} bytes from {name_of(file)} returned {length}")
    return memoryview(piece)[:length]


def _read(file: Any, read: Callable[[int], Any], size: int) -> Buffer:
    piece = read(size)
    if piece is None or len(piece) > size:
        got = "None" if piece is None else f"{len(piece)} bytes"
        raise InternalError(f"reading {size} bytes from {name_of(file)} returned {got}")
    return memoryview(piece)


def _read_up_to(read: Callable[[int], Buffer], size: int) -> Buffer:
    pieces = []
    while size > 0:
        piece = read(min(size, _MAX_READ_BYTES))
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class SeekableSource:
    """A seekable file object."""

    supports_random_access = True

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._read = _choose_read_function(file)
        self.name = name_of(file)

    def read_at(self, pos: int, size: int) -> Buffer:
        """See `ByteSource`."""
        self._file.seek(pos)
        return _read_up_to(self._read, size)

    def reach(self, pos: int) -> int:
        """See `ByteSource`."""
        return min(pos, self.size())

    def skip(self, pos: int) -> int:
        """See `ByteSource`."""
        return self.reach(pos)

    def release(self, pos: int) -> None:
        """See `ByteSource`."""

    def size(self) -> int:
        """See `ByteSource`."""
        return self._file.seek(0, io.SEEK_END)


class SequentialSource:
    """A file object that is only read forwards; buffers bytes until they are released."""

    supports_random_access = False

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._buffer_pos = begin
        self._buffer = bytearray()
        self._read = _choose_read_function(file)
        self.name = name_of(file)

    def read_at(self, pos: int, size: int) -> Buffer:
        """See `ByteSource`."""
        if pos > self._buffer_end() and self.skip(pos) < pos:
            return b""
        self.reach(pos + size)
        begin = pos - self._buffer_pos
        return self._buffer[begin : begin + size]

    def reach(self, pos: int) -> int:
        """See `ByteSource`."""
        self._buffer += _read_up_to(self._read, pos - self._buffer_end())
        return min(pos, self._buffer_end())

    def skip(self, pos: int) -> int:
        """See `ByteSource`."""
        while pos > self._buffer_end():
            self.release(self._buffer_end())
            self._buffer += self._read(min(pos - self._buffer_pos, _MAX_READ_BYTES))
            if not self._buffer:
                return self._buffer_pos
        self.release(pos)
        return pos

    def release(self, pos: int) -> None:
        """See `ByteSource`."""
        del self._buffer[: pos - self._buffer_pos]
        self._buffer_pos = pos

    def size(self) -> int:
        """Raises an error, because a stream has no size."""
        raise UnimplementedError(f"{self.name} does not support random access, so its size is open")

    def _buffer_end(self) -> int:
        return self._buffer_pos + len(self._buffer)
