"""The files that a source reads: whether they still are what they were."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import NamedTuple

from etils import epath

from envlogger.backends.riegeli_layout import is_local
from tfds_builders.untrusted import SourceChangedError

__all__ = ["FileState", "check_unchanged", "size_and_time", "state_of"]

# Of a file as large as them or smaller, all is looked at.
_NUM_SAMPLES, _SAMPLE_BYTES = 16, 1 << 14


class FileState(NamedTuple):
    """What shows that a file is another one, in the types of JSON.

    Attributes:
      path: The file.
      size: How many bytes it has.
      time: When it was written: in ns on this machine, in s elsewhere; 0 where that is not known.
      samples: A digest of 16 pieces, spread evenly, of 16 KiB each. It finds other contents where
        size and time are the same: a time that was set back, a store that keeps none. Elsewhere
        than on this machine it is left out ("") if there is a time, as reading pieces is slow.
    """

    path: str
    size: int
    time: int
    samples: str


def size_and_time(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Returns the size and the time of a file, as `FileState` has them."""
    if is_local(os.fspath(path)):
        local = os.stat(path)
        return local.st_size, local.st_mtime_ns
    remote = epath.Path(path).stat()
    return int(remote.length), int(remote.mtime or 0)


def state_of(path: str | os.PathLike[str]) -> FileState:
    """Returns what a file is like now."""
    size, time = size_and_time(path)
    is_needed = is_local(os.fspath(path)) or not time
    return FileState(os.fspath(path), size, time, _samples(path, size) if is_needed else "")


def check_unchanged(before: Sequence[FileState]) -> None:
    """Checks that files are what they were.

    Raises:
      SourceChangedError: One is not.
    """
    for state in before:
        try:
            now = state_of(state.path)
        except FileNotFoundError as error:
            raise SourceChangedError("it was removed while it was read", file=state.path) from error
        if now != state:
            raise changed(state.path)


def changed(path: str | os.PathLike[str]) -> SourceChangedError:
    """Returns the error for a file that is not what it was."""
    return SourceChangedError(
        "it was changed or replaced while it was read, so that what was read does not belong "
        "together; convert again when nothing writes to it any more",
        file=path,
    )


def _samples(path: str | os.PathLike[str], size: int) -> str:
    digest = hashlib.blake2b(digest_size=8)
    last = max(size - _SAMPLE_BYTES, 0)
    with epath.Path(path).open("rb") as file:
        if size <= _NUM_SAMPLES * _SAMPLE_BYTES:
            digest.update(file.read())
        else:
            for index in range(_NUM_SAMPLES):
                file.seek(last * index // (_NUM_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
