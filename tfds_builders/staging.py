"""Episodes on their way into a dataset, kept so that an interrupted conversion can go on.

    staging directory/
      conversion.json         what is being converted; another source begins anew
      train-00000.records     the examples of the first part of the split, one after the other
      train-00000.journal     a line of JSON for each of them
      shards/                 the files of the dataset, as they are finished

An example is on disk before its line is. So whatever moment a process dies at, the lines that are
complete tell how much of the records is, and after which episode the source has to go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, BinaryIO

from etils import epath

from envlogger.backends.riegeli_layout import is_local
from envlogger.errors import StorageError
from tfds_builders.source import SourceError

try:
    import fcntl
except ImportError:  # Windows, which cannot lock a directory.
    fcntl = None  # type: ignore[assignment]

__all__ = ["LeftOut", "PartWriter", "StagedExample", "StagedPart", "StagingArea"]

_CONVERSION = "conversion.json"


@dataclasses.dataclass(frozen=True)
class StagedExample:
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
    """

    records: epath.Path
    examples: tuple[StagedExample, ...]
    left_out: tuple[LeftOut, ...]
    counts: Counter[str]
    last_key: str | None
    is_complete: bool

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


class StagingArea:
    """The directory that a conversion is staged in.

    A context manager, in which no other process can convert to the same place.

    Args:
      directory: The directory; made if it is missing.
      conversion: What is converted, in the types of JSON. If the directory holds another
        conversion, that is removed.

    Attributes:
      directory: The directory.
      is_continued: Whether an earlier process began with this conversion.

    Raises:
      StorageError: Another process is converting to the same place.
    """

    def __init__(self, directory: epath.Path, conversion: Mapping[str, Any]) -> None:
        self.directory = directory
        self._conversion = json.dumps(conversion, sort_keys=True)
        self._lock: int | None = None
        self.is_continued = False

    def __enter__(self) -> StagingArea:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.directory)
        file = self.directory / _CONVERSION
        self.is_continued = file.exists() and file.read_text() == self._conversion
        if not self.is_continued:
            for path in self.directory.iterdir():
                path.rmtree() if path.is_dir() else path.unlink()
            draft = self.directory / f"{_CONVERSION}.draft"
            draft.write_text(self._conversion)
            draft.replace(file)
        (self.directory / "shards").mkdir(exist_ok=True)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove(self) -> None:
        """Removes all that is staged, after the dataset is where it belongs."""
        self.directory.rmtree()


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
    last_key, is_complete, end = None, False, 0
    for line in _complete_lines(journal):
        if line.get("end"):
            is_complete = True
            break
        if "why" in line:
            left_out.append(LeftOut(line["key"], line["why"]))
        else:
            if end + line["size"] > size:  # The machine went down before the records were written.
                break
            examples.append(StagedExample(line["key"], end, line["size"], line["checksum"]))
            end += line["size"]
            counts.update(line["counts"])
        last_key = line["key"]
    return StagedPart(records, tuple(examples), tuple(left_out), counts, last_key, is_complete)


def _complete_lines(journal: epath.Path) -> Iterator[dict[str, Any]]:
    if not journal.exists():
        return
    for line in journal.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            return
        try:
            yield json.loads(line)
        except ValueError:
            return


class PartWriter:
    """Adds episodes to a part that is not complete.

    A context manager.

    Args:
      directory: The staging directory.
      split: The split.
      index: The index of the part in the split.

    Attributes:
      staged: What was there before.
    """

    def __init__(self, directory: epath.Path, split: str, index: int) -> None:
        self._target = directory
        self._split, self._index = split, index
        self._files = contextlib.ExitStack()
        self._local = directory
        if not is_local(directory):  # Such as gs://, where nothing can be appended to a file.
            temporary = self._files.enter_context(tempfile.TemporaryDirectory())
            self._local = epath.Path(temporary)
        self.staged = read_part(self._local, split, index)
        records, journal = part_files(self._local, split, index)
        self._records = self._open(records, sum(e.size for e in self.staged.examples))
        self._journal = self._open(journal, _size_of_lines(self.staged, journal))

    def _open(self, path: epath.Path, size: int) -> BinaryIO:
        """Opens a file for appending, after cutting off what is not complete."""
        file: BinaryIO = self._files.enter_context(path.open("ab"))
        file.truncate(size)
        return file

    def add(self, key: str, example: bytes, counts: Mapping[str, int]) -> None:
        """Adds an episode, which survives the death of the process from now on."""
        self._records.write(example)
        self._records.flush()
        checksum = zlib.crc32(example)
        self._note(key=key, size=len(example), checksum=checksum, counts=dict(counts))

    def leave_out(self, key: str, error: SourceError) -> None:
        """Notes that an episode could not be read."""
        self._note(key=key, why=str(error))

    def finish(self) -> None:
        """Notes that there are no more episodes."""
        self._note(end=True)
        self._files.pop_all().close() if self._local is self._target else self._upload()

    def _upload(self) -> None:
        self._records.flush()
        for here, there in zip(
            part_files(self._local, self._split, self._index),
            part_files(self._target, self._split, self._index),
        ):
            here.copy(there, overwrite=True)

    def _note(self, **line: Any) -> None:
        self._journal.write(json.dumps(line).encode() + b"\n")
        self._journal.flush()

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._files.close()


def _size_of_lines(staged: StagedPart, journal: epath.Path) -> int:
    """The size of the lines of the journal that tell of what is there."""
    number = len(staged.examples) + len(staged.left_out)
    lines = journal.read_bytes().splitlines(keepends=True) if journal.exists() else []
    return sum(len(line) for line in lines[:number])


def local_staging(target: epath.Path) -> epath.Path:
    """Returns where a dataset is staged by default: beside it, if files can be appended to there.

    It is the same directory every time, so that a later process finds it.
    """
    if is_local(target):
        return target.parent / f".staging-{target.name}"
    digest = f"{zlib.crc32(os.fspath(target).encode()):08x}"
    return epath.Path(tempfile.gettempdir()) / f"rlds-staging-{digest}"


def _lock(directory: epath.Path) -> int | None:
    if fcntl is None or not is_local(directory):
        return None
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StorageError(
            f"{directory} is locked: another process is converting to the same dataset; wait for "
            "it, or convert to another place"
        ) from None
    return descriptor
