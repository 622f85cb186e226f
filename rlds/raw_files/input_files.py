"""The files that a source reads: whether they still are what they were."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from etils import epath

from rlds.raw_files.untrusted import SourceChangedError
from rlds_ecosystem import stores

__all__ = ["FileState", "changed", "check_unchanged", "natural_order", "present", "state_of"]

# Of a file as large as them or smaller, all is looked at.
_NUM_SAMPLES, _SAMPLE_BYTES = 16, 1 << 14


class FileState(NamedTuple):
    """What shows that a file is another one, in the types of JSON.

    Attributes:
      path: The file.
      size: How many bytes it has.
      version: What is another when it was written anew, see `rlds_ecosystem.stores.version_of`.
      samples: A digest of 16 pieces, spread evenly, of 16 KiB each, of a file of this machine. It
        finds other contents where all else is the same, as times can be set. Of stores, the version
        is enough.
    """

    path: str
    size: int
    version: list[Any]
    samples: str


def state_of(path: str | os.PathLike[str]) -> FileState:
    """Returns what a file is like now."""
    version = stores.version_of(path)
    size = int(stores.as_path(path).stat().length)
    samples = _samples(path, size) if stores.is_local(path) else ""
    return FileState(os.fspath(path), size, version, samples)


def check_unchanged(before: Sequence[FileState], *, may_grow: bool = False) -> None:
    """Checks that files are what they were.

    Args:
      before: What they were.
      may_grow: Whether they may have become longer.

    Raises:
      SourceChangedError: One is something else.
    """
    for state in before:
        try:
            now = state_of(state.path)
            if now == state:
                continue
            has_grown = may_grow and now.size >= state.size and stores.is_local(state.path)
            if not has_grown or _samples(state.path, state.size) != state.samples:
                raise changed(state.path)
        except FileNotFoundError as error:
            what = "it was removed while it was read"
            raise SourceChangedError(what, file=state.path) from error


def changed(path: str | os.PathLike[str]) -> SourceChangedError:
    """Returns the error for a file that is not what it was."""
    return SourceChangedError(
        "it was changed or replaced while it was read, so that what was read does not belong "
        "together; convert again when nothing writes to it any more",
        file=path,
    )


def present(files: Iterable[epath.Path]) -> list[epath.Path]:
    """Returns the files that there are; of one that is missing, the episode says so."""
    return [file for file in files if file.exists()]


def natural_order(name: str) -> tuple[list[int | str], str]:
    """The key by which numbers in names count as numbers.

    >>> sorted(["ep10.npz", "ep2.npz"], key=natural_order)
    ['ep2.npz', 'ep10.npz']
    """
    pieces = re.split("([0-9]+)", name)  # Text and digits take turns.
    return [int(piece) if index % 2 else piece for index, piece in enumerate(pieces)], name


def _samples(path: str | os.PathLike[str], size: int) -> str:
    """A digest of pieces of the first bytes of a file."""
    digest = hashlib.blake2b(digest_size=8)
    with open(path, "rb") as file:
        if size <= _NUM_SAMPLES * _SAMPLE_BYTES:
            digest.update(file.read(size))
        else:
            for index in range(_NUM_SAMPLES):
                file.seek((size - _SAMPLE_BYTES) * index // (_NUM_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
