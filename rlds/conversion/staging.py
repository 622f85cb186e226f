"""Staging: several processes write the parts of a dataset, one process joins them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from rlds.conversion.beam import check_is_seen, run_in_pipeline, tried
from rlds.conversion.parts import (
    NotComparable,
    PartEpisode,
    StreamPart,
    WrittenPart,
    cut,
    cut_stream,
    decoded_size,
    identity_of,
    read_part,
    sizes_of,
)
from rlds.conversion.watching import Digests, Notes
from rlds.raw_files.input_files import FileState, check_unchanged, state_of
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources.episodes import Episodes
from rlds.sources.opening import open as open_episodes
from rlds.sources.source import AnySource, Origin, Place, Source, SourceError
from rlds.sources.writing import Export
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.processes import WorkerDied, Workers, advance
from rlds_ecosystem.files.whole_files import (
    draft_of,
    holder_of,
    is_open,
    lock,
    sync_all,
    write_at_once,
)
from rlds_ecosystem.model.errors import StorageError

__all__ = ["StagedParts", "Staging", "remove_finished"]

# Files of the folder: the key of the parts, the mark of a complete dataset, the lock.
_JOB, _JOINED, _LOCK = "job.json", "joined", "lock"
# The decoded bytes that a process writes in the time that another one takes to start.
_SMALL = 64 << 20
# The number of parts that are open for reading at a time.
_OPEN = 2


class Staging:
    """Writes a dataset: first the parts, if there are several, and then the whole dataset.

    Args:
      export: The export that writes it.
      path: The path of the dataset. The folder of the parts is next to it.
      digests: The digests of the episodes; None if the dataset needs none.
      skip_damaged: Whether episodes that cannot be read are left out.
      in_parts: Whether many episodes are written to parts first, if the format allows it.
      even_small: True to write parts also if one process is fast enough.
      draft: The parent of the folder of the parts; None for the parent of the dataset.

    Attributes:
      parts: The episodes of each part, by their numbers or by their range in a stream; empty if all
        episodes are written at once.
      folder: The folder of the parts.
      format: The format of the dataset.
      is_small: Whether one process is about as fast as several, which take time to start.
    """

    def __init__(
        self,
        export: Export,
        path: str | os.PathLike[str],
        digests: Digests | None,
        *,
        skip_damaged: bool,
        in_parts: bool = True,
        even_small: bool = True,
        draft: str | os.PathLike[str] | None = None,
    ) -> None:
        self.format = export.format
        self._export, self._digests, self._skip_damaged = export, digests, skip_damaged
        target_draft, self._is_local = draft_of(path, draft), stores.is_local(path)
        self._name = target_draft.name
        self.folder = _folder_of(target_draft)
        self._order = export.files_order()
        self.parts: Sequence[Sequence[int] | StreamPart] = []
        self.is_small = True
        self._job, self._has_begun = "", False
        self._lock: int | None = None
        self._is_in_new_folder = not target_draft.parent.exists()
        self._files: Sequence[FileState] = ()
        if in_parts and export.in_parts:
            if export.episodes.has_random_access:
                sizes = sizes_of(export.episodes)
                self.parts = cut([i for i in self._every if not export.is_in_format(i)], sizes)
                size = 0 if sizes is None else int(sizes.sum())
            else:
                self.parts = cut_stream(export.episodes)
                size = decoded_size(export.episodes.source)
            is_one = len(self.parts) <= 1
            self.is_small = is_one or 0 < size < _SMALL
            if (is_one or (self.is_small and not even_small)) and not export.from_parts:
                self.parts = []

    @property
    def _every(self) -> Sequence[int]:
        """All episodes, in the order in which they are written."""
        return range(len(self._export.episodes)) if self._order is None else self._order

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if kind is None:
            return
        is_damage = issubclass(kind, SourceError) and not issubclass(kind, SourceChangedError)
        is_of_use = is_damage or not issubclass(kind, ValueError)  # Wrong options need other parts.
        has_some = any(self.folder.glob("?????.json"))
        if not (is_of_use and self._job and has_some):
            self.remove()
        elif error is not None and self._has_begun:
            error.add_note(
                f"{self.folder} keeps the finished parts: the same call resumes there. Remove it "
                "to start again."
            )

    def _hold(self, *, is_alone: bool) -> bool:
        """Tries to lock the folder: alone to join parts, or shared with other jobs that write.

        The lock is a file, as on NFS the lock of a folder is invisible to other machines.
        """
        if self._lock is None:
            _check_own(self.folder)
            while self._lock is None:  # Another process may remove the folder meanwhile.
                self.folder.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT)
            is_locked = lock(self._lock, wait=False, shared=not is_alone)
            if not (is_locked and is_open(self.folder / _LOCK, self._lock)):
                self.close()
        return self._lock is not None

    def close(self) -> None:
        """Releases the lock of the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def num_episodes(self) -> int | None:
        """The number of episodes of the parts; None if they would have to be read."""
        return self.count(range(len(self.parts)))

    def count(self, numbers: Sequence[int]) -> int | None:
        """Returns the number of episodes of parts; None if they would have to be read."""
        parts = [self.parts[number] for number in numbers]
        return None if any(isinstance(it, StreamPart) for it in parts) else sum(map(len, parts))

    def num_written(self, numbers: Sequence[int]) -> int:
        """Returns the number of episodes of written parts."""
        parts = [read_part(self.folder / f"{number:05d}.json") for number in numbers]
        return sum(len(part.episodes) for part in parts if part is not None)

    def share(self, part: tuple[int, int]) -> Sequence[int]:
        """Returns the parts that one of several jobs writes; all together write all.

        Args:
          part: The share of the work, such as `(3, 64)`, counted from 1.
        """
        share, of = part
        if not 1 <= share <= of:
            raise ValueError(f"part: got {share} of {of}, expected 1 of {of} to {of} of {of}")
        if not self.parts:
            raise ValueError(
                "part: these episodes are too few for several parts, or their fields change; write "
                "them at once, without it"
            )
        return range(share - 1, len(self.parts), of)

    def run(
        self,
        workers: Workers,
        on_advance: Callable[[float], None],
        *,
        numbers: Sequence[int] | None = None,
        pipeline: tuple[Any, Any] | None = None,
    ) -> None:
        """Writes the parts, or reuses those of an earlier run (resume).

        Args:
          workers: The workers that write them.
          on_advance: Called with the number of further written episodes.
          numbers: The parts to write; all if None. Other processes may write other parts meanwhile.
          pipeline: A runner of Apache Beam and its options; the workers write the other parts.

        Raises:
          SourceError: An episode cannot be read; the first such error.
          ValueError: There are parts of another dataset, or the format cannot hold an episode.
          WorkerDied: A worker was killed twice, or ran out of memory.
        """
        self._begin(is_alone=numbers is None)
        export = self._export
        work = _PartWriter(
            *(export, self.folder, self._name, self.parts, export.episodes),
            *(self._digests, self._skip_damaged),
        )
        numbers = range(len(self.parts)) if numbers is None else numbers
        try:
            collections.deque(_in_pipeline(workers, pipeline, work, numbers, on_advance), 0)
        except WorkerDied as error:
            part = self.parts[error.task]
            where = f"the episodes {part[0]} to {part[-1]}"
            if isinstance(part, StreamPart):
                where = part.name
            error.add_note(
                f"It died twice at {where}. If memory is short, pass "
                "fewer jobs (--jobs). What is done is kept for the next run."
            )
            raise
        source = self._export.episodes.source
        check_unchanged(self._files, may_grow=source.may_grow)

    def _identity(self) -> str:
        """A digest of all inputs of the parts; empty if an input cannot be compared."""
        export, is_noted = self._export, self._digests is not None
        inputs = export.made_from, export.lineage, self.parts, is_noted
        try:
            return identity_of(export.format, *inputs)
        except NotComparable:
            return ""

    def _begin(self, *, is_alone: bool) -> None:
        """Creates the folder of the parts, unless a run can resume with the existing ones."""
        key_file, self._job = self.folder / _JOB, self._identity()
        if is_alone:  # With several jobs, each checks the files that it reads.
            with contextlib.suppress(FileNotFoundError):  # A source without files cannot change.
                inputs = self._export.episodes.source.inputs()
                self._files = [state_of(path) for path in inputs if not os.path.isdir(path)]
        if not self._job and not is_alone:
            raise ValueError(
                "part: a function makes these episodes, or a source without files: nobody can know "
                "whether another job has the same. Write them at once, without it"
            )
        if not self._hold(is_alone=is_alone):
            raise FileExistsError(
                f"{self.folder}: {holder_of(self.folder / _LOCK)} is writing parts there. Wait for "
                "its end"
            )
        joined = self.folder / _JOINED
        before = json.loads(key_file.read_bytes()) if key_file.exists() else ""
        is_stale = not before or (joined.exists() and before != self._job)
        if is_stale and is_alone:  # Another job may have begun the same dataset.
            _clear(self.folder)
        elif before not in ("", self._job):
            raise ValueError(
                f"{self.folder} has parts of a dataset that was begun, not finished, and made of "
                f"other data or with other options. Go on with those, or rm -r {self.folder}"
            )
        self._has_begun = True
        joined.unlink(missing_ok=True)
        write_at_once(key_file, json.dumps(self._job).encode())
        for draft in self.folder.glob("?????.?*"):  # Killed workers leave drafts.
            if is_alone and draft.suffix != ".json":
                shutil.rmtree(draft, ignore_errors=True)

    def join(
        self,
        draft: Path,
        workers: Workers,
        on_advance: Callable[[float], None],
        *,
        pipeline: tuple[Any, Any] | None = None,
    ) -> Notes:
        """Writes the whole dataset to its draft, from the parts if there are any.

        Args:
          draft: The draft.
          workers: The workers that write files of the dataset from parts.
          on_advance: Called with the number of further written episodes.
          pipeline: See `run`.
        """
        export, parts = self._export, self.parts
        left_out: Mapping[int, SourceError] = {}
        export.order, skips = self._order, self._skip_damaged
        if parts or export.from_parts:
            export.workers = functools.partial(_in_pipeline, workers, pipeline)
            export.staged = staged = StagedParts(self.folder, self._name, parts, export)
            every, left_out = self._every, staged.left_out
            export.order = [index for index in every if index not in left_out]
            if left_out and not export.order:
                raise next(iter(left_out.values()))
            # Parts have only sound episodes, so that damage of a part is always an error.
            skips = skips and len(staged.indices) + len(left_out) < len(every)
        notes = Notes(export, self._digests, skip_damaged=skips, on_episode=lambda: on_advance(1))
        export.watch = notes
        try:
            export.write(draft)
        finally:
            export.staged = None
        notes.left_out = {**left_out, **notes.left_out}
        return notes

    def finish(self) -> None:
        """Marks the dataset as complete and ready to be renamed, so that the parts can be removed.

        An interrupted upload, which may take long, still needs the parts.
        """
        if self.parts and self._is_local:
            (self.folder / _JOINED).touch()

    def remove(self) -> None:
        """Removes the parts of this run."""
        if self._has_begun and self.folder.exists():
            with contextlib.suppress(OSError):  # Another process may use the folder by now.
                _remove(self.folder)
            self.close()
            with contextlib.suppress(OSError):  # NFS keeps an open lock file until it is closed.
                self.folder.rmdir()
            if self._is_in_new_folder:
                with contextlib.suppress(OSError):  # The folder may have other files by now.
                    self.folder.parent.rmdir()

    def remove_joined(self) -> bool:
        """Removes the parts of a run that was killed when the dataset was complete.

        Returns:
          Whether the parts are those of this dataset.
        """
        with contextlib.suppress(OSError):  # Succeeds only if a kill left it empty.
            self.folder.rmdir()
        if not ((self.folder / _JOINED).exists() and self._hold(is_alone=True)):
            return False
        key_file = self.folder / _JOB
        job = json.loads(key_file.read_bytes()) if key_file.exists() else ""
        self._has_begun = True
        self.remove()
        return bool(job) and bool(job == self._identity())


def remove_finished(path: str | os.PathLike[str]) -> None:
    """Removes the parts of a complete dataset that a killed process has left behind."""
    folder = _folder_of(draft_of(path))
    if (folder / _JOINED).exists():
        _remove(folder)


def _folder_of(target_draft: Path) -> Path:
    """Returns the folder of the parts of a dataset, next to its draft."""
    return target_draft.with_name(f".{target_draft.name}.parts")


def _clear(folder: Path) -> None:
    """Removes parts, each note before its part: a kill leaves no note of an incomplete part."""
    for note_file in folder.glob("[0-9]*.json"):
        note_file.unlink()
    for path in filter(Path.is_dir, folder.iterdir()):
        shutil.rmtree(path, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Removes a folder of parts, the mark of a complete dataset last, in case of a kill."""
    _clear(folder)
    last = folder / _LOCK, folder / _JOINED
    for path in (*({*folder.iterdir()} - {*last}), *last):
        path.unlink(missing_ok=True)
    folder.rmdir()


def _check_own(folder: Path) -> None:
    """Checks that a folder of parts has no links, and in a shared folder no other owner.

    Otherwise another user could redirect writes to files anywhere.
    """
    if not os.path.lexists(folder):
        return
    is_public = os.fspath(folder.parent) == tempfile.gettempdir()
    entries = (
        os.path.join(parent, name)
        for parent, folders, files in os.walk(folder)
        for name in (*folders, *files)
    )
    for path in (os.fspath(folder), *entries):
        status = os.lstat(path)
        is_usual = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if not is_usual or (is_public and status.st_uid != os.geteuid()):
            raise StorageError(
                f"{path!r} is a link, a special file or somebody else's, which no conversion "
                "writes; check its origin, and remove it"
            )


def _in_pipeline(
    workers: Workers,
    pipeline: tuple[Any, Any] | None,
    work: Callable[[Any], Any],
    tasks: Sequence[Any],
    on_advance: Callable[[float], None] = lambda number: None,
) -> Iterator[tuple[Any, Any]]:
    """Runs tasks in a pipeline, if there is one; the workers skip finished tasks."""
    if pipeline is not None:
        each = [(task,) for task in tasks]
        run_in_pipeline(functools.partial(tried, work), each, *pipeline, type(work).__name__)
    return workers.do(work, tasks, on_advance=on_advance)


@dataclasses.dataclass(frozen=True)
class _PartWriter:
    """Writes parts, each as a separate dataset; every worker gets a copy."""

    export: Export
    folder: Path
    name: str
    parts: Sequence[Sequence[int] | StreamPart]
    episodes: Episodes
    digests: Digests | None
    skip_damaged: bool

    def __call__(self, number: int) -> None:
        """Writes a part of the dataset, unless it is complete."""
        check_is_seen(self.folder, "parts", instead=", or have the target in one")
        note_file = self.folder / f"{number:05d}.json"
        if (written_part := read_part(note_file)) is not None:
            advance(len(written_part.episodes) + len(written_part.left_out))
            return
        folder = self.folder / f"{number:05d}"
        draft = self.folder / f"{number:05d}.{uuid.uuid4().hex}"
        draft.mkdir()
        notes = Notes(self.export, self.digests, skip_damaged=self.skip_damaged)
        self.export.watch, part = notes, self.parts[number]
        try:
            if isinstance(part, StreamPart):
                self.export.episodes = part.episodes_of(self.episodes)
            else:
                self.export.order = part
            if self.export.episodes.has(0):
                self._write(draft / self.name, notes)
            sync_all(draft)
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(draft, folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        finally:
            self.export.episodes = self.episodes
        nowhere = Origin("", 0, 0)
        episodes = [
            PartEpisode(index, digest, notes.origins[index] or nowhere)
            for index, digest in notes.written.items()
        ]
        WrittenPart(episodes, notes.left_out).write(note_file)

    def _write(self, path: Path, notes: Notes) -> None:
        """Writes a dataset, or nothing if all episodes are left out."""
        try:
            self.export.write(path)
        except SourceError as error:
            if notes.written or error not in notes.left_out.values():  # Not all are left out.
                raise


class StagedParts:
    """The written parts of a dataset, which are joined to the whole dataset.

    Args:
      folder: The folder of the parts.
      name: The file name of each part in its folder.
      parts: The episodes of each part.
      export: The export that has written the parts.

    Attributes:
      left_out: The errors of episodes that could not be read, by their numbers.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        parts: Sequence[Sequence[int] | StreamPart],
        export: Export,
    ) -> None:
        self._made_from = folder, name, parts, export
        self._folder, self._name, self._format = folder, name, export.format
        self._options = dict(export.read_options())
        self._noted: dict[int, PartEpisode] = {}
        self._locations: dict[int, tuple[int, str, int]] = {}
        self.left_out: dict[int, SourceError] = {}
        counts: Counter[str] = Counter()
        for n, numbers in enumerate(parts):
            part = read_part(folder / f"{n:05d}.json")
            assert part is not None
            before = 0
            if isinstance(numbers, StreamPart) and numbers.split:  # Its numbers start from zero.
                before = counts.total()
                counts[numbers.split] += len(part.episodes) + len(part.left_out)
                export.episodes.set_counts(counts)
            self.left_out |= {before + index: error for index, error in part.left_out.items()}
            counted: Counter[str] = Counter()
            for episode in part.episodes:
                index = before + episode.index
                split = export.episodes.place(index)[0] if export.keeps_splits else ""
                self._noted[index], self._locations[index] = (episode, (n, split, counted[split]))
                counted[split] += 1
        # If a writer reads parts in another order, all stay open, so that each is opened once.
        self._open = functools.lru_cache(None if export.from_parts else _OPEN)(self._opened)

    def __reduce__(self) -> Any:
        return type(self), self._made_from

    @property
    def indices(self) -> Set[int]:
        """The episodes of the parts, by their numbers in the whole dataset."""
        return self._noted.keys()

    def noted(self, index: int) -> tuple[int, Origin | None]:
        """Returns the digest of an episode in its source, and its origin there."""
        noted = self._noted[index]
        return noted.digest, noted.origin if noted.origin.file else None

    def place(self, index: int) -> Place:
        """Returns the location of an episode in the parts."""
        part_index, split, at = self._locations[index]
        episodes = self._open(part_index)
        assert isinstance(episodes.source, Source)
        if split:
            return Place(episodes.source, split, at)
        return Place(episodes.source, *episodes.place(at))

    def sources(self) -> Iterator[AnySource]:
        """Yields the parts that have episodes, as sources."""
        for number in sorted({number for number, *_ in self._locations.values()}):
            yield self._open(number).source

    def _opened(self, number: int) -> Episodes:
        path = self._folder / f"{number:05d}" / self._name
        return open_episodes(path, "all", format=self._format, **self._options)
