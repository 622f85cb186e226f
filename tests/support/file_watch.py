"""A watch of opened files, also of those opened by C libraries (inotify of Linux)."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_OPEN, _IN_ACCESS = 0x20, 0x1
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """A watch of files."""

    def __init__(self, *paths: Path) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for path in paths:
            watched = _libc.inotify_add_watch(
                self._descriptor, os.fsencode(path), _IN_OPEN | _IN_ACCESS
            )
            if watched < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))

    def was_opened(self) -> bool:
        """Whether a file was opened since the last call."""
        try:
            return bool(os.read(self._descriptor, 1 << 16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def not_opened(*paths: Path) -> Iterator[None]:
    """Checks that files stay closed in the context."""
    watch = Watch(*paths)
    try:
        yield
        assert not watch.was_opened(), f"one of {[str(path) for path in paths]} was opened"
    finally:
        watch.close()
