"""Files as the reader and the writer use them: opened from paths, or given as file objects."""

import io
import os
from typing import Any, BinaryIO, Protocol, cast

from riegeli.base.riegeli_error import InternalError, UnimplementedError

PathType = str | os.PathLike[str]

# Reading goes in steps of this many bytes, so that a size that a file merely claims is never
# allocated.
_READ_STEP = 1 << 22


def as_file(target: PathType | BinaryIO, mode: str) -> tuple[BinaryIO, bool]:
    """A file object for a path, a URL like `gs://bucket/file`, or a file object.

    Returns:
      The file object, and whether it was opened here.
    """
    if not isinstance(target, str | os.PathLike):
        return target, False
    name = os.fspath(target)
    if "://" in name:
        from etils import epath

        return epath.Path(name).open(mode), True
    return cast(BinaryIO, open(name, mode)), True


def name_of(file: Any) -> str:
    """What to call a file in messages: its path where it has one."""
    name = getattr(file, "name", None)
    if isinstance(name, bytes):
        return os.fsdecode(name)
    return name if isinstance(name, str) else f"<{type(file).__name__}>"


def is_seekable(file: Any) -> bool:
    """Whether the file object says that it can seek."""
    seekable = getattr(file, "seekable", None)
    return bool(seekable and seekable())


def write_all(file: BinaryIO, data: bytes) -> None:
    """Writes all of `data`, however much the file takes at a time."""
    view = memoryview(data)
    while view:
        written = file.write(view)
        if written is None:  # What some file-like objects return for "all of it".
            return
        view = view[written:]


def sync(file: BinaryIO) -> None:
    """Asks the operating system to bring a flushed file to its medium, where it is a real file."""
    try:
        descriptor = file.fileno()
    except (AttributeError, OSError):  # `io.UnsupportedOperation` is an `OSError`.
        return
    os.fsync(descriptor)


class Source(Protocol):
    """Bytes that can be read by their position."""

    name: str
    supports_random_access: bool

    def read_at(self, pos: int, size: int) -> bytes:
        """The bytes from `pos`: `size` of them, or fewer where the source ends."""
        ...

    def release(self, pos: int) -> None:
        """Says that nothing before `pos` will be asked for again."""
        ...

    def size(self) -> int:
        """The number of bytes in the source, now."""
        ...


def _read_up_to(file: BinaryIO, size: int) -> bytes:
    pieces = []
    while size > 0:
        step = min(size, _READ_STEP)
        piece = file.read(step)
        if piece is None or len(piece) > step:
            got = "None" if piece is None else f"{len(piece)} bytes"
            raise InternalError(f"read({step}) of {name_of(file)} returned {got}")
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class RandomAccessSource:
    """A seekable file object."""

    supports_random_access = True

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.name = name_of(file)

    def read_at(self, pos: int, size: int) -> bytes:
        """See `Source`."""
        self._file.seek(pos)
        return _read_up_to(self._file, size)

    def release(self, pos: int) -> None:
        """See `Source`."""

    def size(self) -> int:
        """See `Source`."""
        return self._file.seek(0, io.SEEK_END)


class SequentialSource:
    """A file object that is only read forwards; keeps what was read until it is released."""

    supports_random_access = False

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file = file
        self._begin = begin
        self._kept = b""
        self.name = name_of(file)

    def read_at(self, pos: int, size: int) -> bytes:
        """See `Source`."""
        begin = pos - self._begin
        missing = begin + size - len(self._kept)
        if missing > 0:
            self._kept += _read_up_to(self._file, missing)
        return self._kept[begin : begin + size]

    def release(self, pos: int) -> None:
        """See `Source`."""
        self._kept = self._kept[pos - self._begin :]
        self._begin = pos

    def size(self) -> int:
        """Not known for such a source."""
        raise UnimplementedError(f"{self.name} does not support random access, so its size is open")
