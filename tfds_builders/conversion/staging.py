"""Episodes on their way into a dataset, kept so that an interrupted conversion can go on.

    staging directory/
      conversion.json         what is being converted; another source begins anew
      train-00000.records     the examples of the first part of the split, one after the other
      train-00000.journal     a checksum and JSON for each of them, or for a group of small ones
      shards/                 the files of the dataset, as they are finished

Examples are on disk before their line is. So whatever moment a process dies at, the lines that are
complete tell how much of the records is, and after which episode the source has to go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import stat
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

from etils import epath

from rlds.sources.source import SourceError
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.stores import is_local
from rlds_ecosystem.files.whole_files import can_lock, is_open, lock
from rlds_ecosystem.model.errors import StorageError, storage_errors
from tfds_files import index_files

__all__ = [
    "LeftOut",
    "PartWriter",
    "StagedExample",
    "StagedPart",
    "read_part",
    "remove_leftovers",
    "remove_staged",
    "staging_area",
    "staging_directory",
]

_CONVERSION = "conversion.json"
# How files are opened: not through a link, and without waiting for the other end of a pipe.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class StagedExample(NamedTuple):  # There may be a million of them.
    """An episode that is encoded.

    Attributes:
      key: The key of the episode.
      offset: Where its bytes begin in the records of the part.
      size: How many bytes it has.
      checksum: Their crc32.
    """

    key: str
    offset: int
    size: int
    checksum: int


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """An episode that could not be read and was left out.

    Attributes:
      key: The key that it has, or would have.
      why: What is wrong with it.
    """

    key: str
    why: str


@dataclasses.dataclass(frozen=True)
class StagedPart:
    """What is staged of a part of the source.

    Attributes:
      records: The file with the examples.
      examples: Those that are there, in the order of the source.
      left_out: The episodes that could not be read.
      counts: What was counted in the episodes, summed up.
      last_key: The last episode of either kind; None if there is none.
      is_complete: Whether this is all of the part.
      journal_size: How many bytes of the journal tell of this.
    """

    records: epath.Path
    examples: tuple[StagedExample, ...]
    left_out: tuple[LeftOut, ...]
    counts: Counter[str]
    last_key: str | None
    is_complete: bool
    journal_size: int

    @property
    def records_size(self) -> int:
        """How many bytes of the records are examples."""
        return sum(example.size for example in self.examples)

    def read(self, example: StagedExample, file: BinaryIO) -> bytes:
        """Returns the bytes of an example.

        Args:
          example: One of `examples`.
          file: The file `records`, opened for reading.

        Raises:
          StorageError: They are damaged.
        """
        file.seek(example.offset)
        content = file.read(example.size)
        if zlib.crc32(content) != example.checksum:
            raise StorageError(
                f"{self.records}: the episode {example.key!r} was damaged since it was written; "
                "remove the directory, and convert again"
            )
        return content


@contextlib.contextmanager
def staging_area(directory: epath.Path, conversion: Mapping[str, Any]) -> Iterator[None]:
    """Holds the directory that a conversion is staged in: no other process converts to that place.

    Args:
      directory: The directory; made if it is missing.
      conversion: What is converted, in the types of JSON. If the directory holds another
        conversion, that is removed.

    Raises:
      StorageError: Another process is converting to the same place, or it cannot be written.
    """
    with contextlib.ExitStack() as held:
        with storage_errors(directory):
            held.enter_context(_lock(directory))
            _check_entries(directory)
            if not _is_of(directory, conversion):
                _empty(directory)
                draft = directory / f"{_CONVERSION}.draft"
                draft.write_bytes(_content(conversion))
                draft.replace(directory / _CONVERSION)
            (directory / "shards").mkdir(exist_ok=True)
        yield


def _content(conversion: Mapping[str, Any]) -> bytes:
    return json.dumps(conversion, sort_keys=True).encode()


def _is_of(directory: epath.Path, conversion: Mapping[str, Any]) -> bool:
    file = directory / _CONVERSION
    return bool(file.exists()) and file.read_bytes() == _content(conversion)


def remove_leftovers(directory: epath.Path, conversion: Mapping[str, Any]) -> bool:
    """Removes a staging directory whose dataset is where it belongs: its process died too early.

    Args:
      directory: The directory.
      conversion: See `staging_area`.

    Returns:
      Whether there was this conversion in it, or nothing any more.

    Raises:
      StorageError: The process is alive.
    """
    with storage_errors(directory), _lock(directory):
        _check_entries(directory)
        is_same = _is_of(directory, conversion) or not (directory / _CONVERSION).exists()
        remove_staged(directory)
    return is_same


def part_files(directory: epath.Path, split: str, index: int) -> tuple[epath.Path, epath.Path]:
    """Returns the files with the records and with the journal of a part."""
    name = f"{split}-{index:05d}"
    return directory / f"{name}.records", directory / f"{name}.journal"


def read_part(directory: epath.Path, split: str, index: int) -> StagedPart:
    """Returns what is staged of a part."""
    records, journal = part_files(directory, split, index)
    size = records.stat().length if records.exists() else 0
    examples: list[StagedExample] = []
    left_out: list[LeftOut] = []
    counts: Counter[str] = Counter()
    last_key, is_complete, end, journal_size = None, False, 0, 0
    for line, line_size in _complete_lines(journal):
        if "why" in line:
            left_out.append(LeftOut(line["key"], line["why"]))
            last_key = line["key"]
        elif "keys" in line:
            if end + sum(line["sizes"]) > size:  # The machine went down before they were written.
                break
            offsets = itertools.accumulate(line["sizes"], initial=end)
            examples += map(StagedExample, line["keys"], offsets, line["sizes"], line["checksums"])
            end += sum(line["sizes"])
            counts.update(line["counts"])
            last_key = line["keys"][-1]
        journal_size += line_size
        if line.get("end"):
            is_complete = True
            break
    return StagedPart(
        records, tuple(examples), tuple(left_out), counts, last_key, is_complete, journal_size
    )


def _complete_lines(journal: epath.Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yields the lines, and how many bytes each has."""
    if not journal.exists():
        return
    with storage_errors(journal), _open(journal, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    for line in lines:
        if not line.endswith(b"\n"):
            return
        checksum, _, content = line.partition(b" ")
        if checksum != _checksum(content):
            return
        yield json.loads(content), len(line)


def _checksum(content: bytes) -> bytes:
    """What a line of a journal begins with, so that it is either as it was written or the end."""
    return b"%08x" % zlib.crc32(content)


class PartWriter:
    """Adds episodes to a part.

    A context manager, in which no other process adds to the same part: it waits for one that does,
    such as the worker of a pipeline that was killed, which may live a little longer.

    Args:
      directory: The staging directory.
      split: The split.
      index: The index of the part in the split.

    Attributes:
      staged: What was there before.

    Raises:
      StorageError: Nothing can be written there. What was added before is kept.
    """

    staged: StagedPart

    def __init__(self, directory: epath.Path, split: str, index: int) -> None:
        self._target, self._split, self._index = directory, split, index
        self._files = contextlib.ExitStack()

    def __enter__(self) -> PartWriter:
        with contextlib.ExitStack() as files, storage_errors(self._target):
            self._local = self._target
            if not is_local(self._target):  # Such as gs://, where files cannot be appended to.
                temporary = files.enter_context(tempfile.TemporaryDirectory())
                self._local = epath.Path(temporary)
            records, journal = part_files(self._local, self._split, self._index)
            self._records: BinaryIO = files.enter_context(_open(records, "ab"))
            self._journal: BinaryIO = files.enter_context(_open(journal, "ab"))
            lock(self._records.fileno())
            self.staged = read_part(self._local, self._split, self._index)
            self._records.truncate(self.staged.records_size)
            self._journal.truncate(self.staged.journal_size)
            self._files = files.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # All that was added is flushed; the rest is of no use.
            self._files.close()

    def add(
        self, keys: Sequence[str], examples: Sequence[bytes], counts: Mapping[str, int]
    ) -> None:
        """Adds episodes, which survive the death of the process from now on: all, or none of them.

        Args:
          keys: Their keys, at least one.
          examples: Their bytes.
          counts: What was counted in them.
        """
        with storage_errors(self.staged.records):
            self._records.write(b"".join(examples))
            self._records.flush()
        sizes, checksums = list(map(len, examples)), list(map(zlib.crc32, examples))
        self._note(keys=list(keys), sizes=sizes, checksums=checksums, counts=dict(counts))

    def leave_out(self, key: str, error: SourceError, *, ends_part: bool) -> None:
        """Notes that an episode could not be read, and whether it was the last one."""
        self._note(key=key, why=str(error), **({"end": True} if ends_part else {}))

    def finish(self) -> None:
        """Notes that there are no more episodes."""
        self._note(end=True)

    def publish(self) -> None:
        """Copies what is complete to where it belongs, if it was written elsewhere."""
        if self._local is self._target:
            return
        for here, there in zip(
            part_files(self._local, self._split, self._index),
            part_files(self._target, self._split, self._index),
        ):
            with storage_errors(there):
                stores.copy_file(here, there)

    def _note(self, **line: Any) -> None:
        with storage_errors(self._target):
            content = json.dumps(line).encode() + b"\n"
            self._journal.write(_checksum(content) + b" " + content)
            self._journal.flush()


def staging_directory(target: epath.Path, *, is_shared: bool) -> epath.Path:
    """Returns where a dataset is staged: the same every time, so that a later process finds it.

    That is beside the dataset. If it is in an object store, where files cannot be appended to, and
    no other machine has to see what is staged, it is a directory of this machine.

    Args:
      target: The directory of the dataset.
      is_shared: Whether other machines may have to see what is staged.
    """
    if is_shared or is_local(target):
        return target.parent / f".staging-{target.name}"
    digest = hashlib.sha256(os.fspath(target).encode()).hexdigest()[:16]
    return epath.Path(tempfile.gettempdir()) / f"rlds-staging-{digest}"


def remove_staged(directory: epath.Path) -> None:
    """Removes all that is staged, after the dataset is where it belongs."""
    _empty(directory)
    directory.rmtree()


def _empty(directory: epath.Path) -> None:
    # The description of the conversion goes last: the process may die here.
    for path in sorted(directory.iterdir(), key=lambda path: path.name == _CONVERSION):
        is_directory = path.is_dir() and not os.path.islink(path)
        path.rmtree() if is_directory else path.unlink()


def _open(path: epath.Path, mode: str) -> BinaryIO:
    """Opens a staged file, for reading or for appending, but nothing that it leads to."""
    if not is_local(path):
        return cast(BinaryIO, path.open(mode))

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | _NO_FOLLOW, 0o666)

    file = open(path, mode, opener=opener)  # noqa: SIM115
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        file.close()
        raise _not_ours(path)
    return cast(BinaryIO, file)


def _check_entries(directory: epath.Path) -> None:
    """Checks that a staging directory holds files, and the directories of the shards: no links.

    Whoever can write to it could have files anywhere emptied, or overwritten.
    """
    if not is_local(directory):
        return
    directories = [directory, directory / "shards", directory / "shards" / index_files.FOLDER]
    for parent in directories:
        for path in parent.iterdir() if parent.exists() else ():
            mode = os.lstat(path).st_mode
            if not stat.S_ISREG(mode) and not (path in directories and stat.S_ISDIR(mode)):
                raise _not_ours(path)


def _not_ours(path: str | os.PathLike[str]) -> StorageError:
    return StorageError(
        f"{os.fspath(path)!r} is a link or a special file, which no conversion writes; check its "
        "origin, and remove it"
    )


@contextlib.contextmanager
def _lock(directory: epath.Path) -> Iterator[None]:
    """Makes the directory, and keeps other processes away from it."""
    if is_local(directory) and os.path.islink(directory):
        raise _not_ours(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if not can_lock(directory):
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY | _NO_FOLLOW)
    try:
        is_public = os.fspath(directory.parent) == tempfile.gettempdir()  # All users write there.
        if is_public and os.fstat(descriptor).st_uid != os.geteuid():
            raise _not_ours(directory)
        # The other process may have finished, and removed the directory, a moment ago.
        if not lock(descriptor, wait=False) or not is_open(directory, descriptor):
            raise StorageError(
                f"{directory} is locked: another process is converting to the same dataset; wait "
                "for it, or convert to another place"
            )
        yield
    finally:
        os.close(descriptor)
