"""Episodes written to parts, by several processes; and read from there for the whole dataset."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from rlds.conversion.beam import run_in_pipeline, tried
from rlds.conversion.parts import (
    NotComparable,
    PartEpisode,
    WrittenPart,
    cut,
    files_read_by,
    identity_of,
    read_part,
    sizes_of,
)
from rlds.conversion.watching import Digests, Notes
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources.episodes import Episodes
from rlds.sources.opening import open as open_episodes
from rlds.sources.source import Origin, Place, Source, SourceError, files_of
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

__all__ = ["StagedParts", "Staging"]

# What the parts are of; a file that is there when the dataset is complete; one that is locked.
_JOB, _JOINED, _LOCK = "job.json", "joined", "lock"
# What one process writes in the time that another takes to start, in bytes.
_SMALL = 64 << 20
# How many parts are open at a time, of which episodes are read.
_OPEN = 2


class Staging:
    """Writes a dataset: its episodes to parts first, if there are several, and then as a whole.

    Args:
      export: What writes it.
      path: Where it gets to be. Its parts are beside that.
      digests: What makes digests of episodes; None if none are needed.
      skip_damaged: Whether episodes that cannot be read are left out.
      in_parts: Whether episodes are written to parts first, if that is possible and there are many.
      draft: The folder in which that of the parts is; None for that of the dataset.

    Attributes:
      parts: The episodes of each part; none if all are written at once.
      folder: Their folder.
      format: The format.
      is_small: Whether one process is as fast as several, which have to start.
    """

    def __init__(
        self,
        export: Export,
        path: str | os.PathLike[str],
        digests: Digests | None,
        *,
        skip_damaged: bool,
        in_parts: bool = True,
        draft: str | os.PathLike[str] | None = None,
    ) -> None:
        self.format = export.format
        self._export, self._digests, self._skip_damaged = export, digests, skip_damaged
        place, self._is_local = draft_of(path, draft), stores.is_local(path)
        self._name = place.name
        self.folder = place.with_name(f".{place.name}.parts")
        self._order = export.files_order()
        self.parts: Sequence[Sequence[int]] = []
        self.is_small = True
        self._job, self._has_begun = "", False
        self._lock: int | None = None
        self._files: Sequence[str] = ()
        if in_parts and export.in_parts and export.episodes.has_random_access:
            sizes = sizes_of(export.episodes)
            self.parts = cut([i for i in self._every if not export.is_in_format(i)], sizes)
            if len(self.parts) == 1:
                self.parts = []
            self.is_small = not self.parts or (sizes is not None and int(sizes.sum()) < _SMALL)

    @property
    def _every(self) -> Sequence[int]:
        """All episodes, in the order in which they are written."""
        return range(len(self._export.episodes)) if self._order is None else self._order

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        is_damage = issubclass(kind, SourceError) and not issubclass(kind, SourceChangedError)
        is_of_use = is_damage or not issubclass(kind, ValueError)  # Not to other options.
        if not (is_of_use and self._job):
            self.remove()

    def _hold(self, *, is_alone: bool) -> bool:
        """Locks the folder, unless others have: one process that joins, or several with shares.

        The lock is a file, as on NFS other machines do not see that of a folder.
        """
        if self._lock is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT)
            is_locked = lock(self._lock, wait=False, shared=not is_alone)
            if not (is_locked and is_open(self.folder / _LOCK, self._lock)):
                self.close()
        return self._lock is not None

    def close(self) -> None:
        """Lets others have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def num_episodes(self) -> int:
        """How many episodes the parts have."""
        return sum(map(len, self.parts))

    def share(self, part: tuple[int, int]) -> Sequence[int]:
        """Returns the parts that one of several jobs writes; all together write all.

        Args:
          part: Which of how many, such as `(3, 64)`, counted from 1.
        """
        number, of = part
        if not 1 <= number <= of:
            raise ValueError(f"part: got {number} of {of}, expected 1 of {of} to {of} of {of}")
        if not self.parts:
            raise ValueError(
                "part: these episodes are too few for several parts, are read in order only, or "
                "their fields change; write them at once, without it"
            )
        return range(number - 1, len(self.parts), of)

    def run(
        self,
        workers: Workers,
        on_advance: Callable[[float], None],
        *,
        numbers: Sequence[int] | None = None,
        pipeline: tuple[Any, Any] | None = None,
    ) -> None:
        """Writes the parts, or takes those that an earlier run has written.

        Args:
          workers: Who writes them.
          on_advance: Called with how many more episodes are done.
          numbers: Which parts; all if None. Others may write the rest at the same time.
          pipeline: A runner of Apache Beam and its options, which writes what it can before.

        Raises:
          SourceError: An episode cannot be read: the first of these.
          ValueError: There are parts of another dataset, or the format cannot hold an episode.
          WorkerDied: A worker was killed twice, or ran out of memory.
        """
        self._begin(is_alone=numbers is None)
        work = _PartWriter(
            self._export, self.folder, self._name, self.parts, self._digests, self._skip_damaged
        )
        numbers = range(len(self.parts)) if numbers is None else numbers
        try:
            collections.deque(_in_pipeline(workers, pipeline, work, numbers, on_advance), 0)
        except WorkerDied as error:
            part = self.parts[error.task]
            error.add_note(
                f"It died twice at the episodes {part[0]} to {part[-1]}. If memory is short, pass "
                "fewer jobs (--jobs). What is done is kept for the next run."
            )
            raise
        self._check_files()

    def _identity(self) -> str:
        """A digest of all that decides about the parts; empty if that cannot be known."""
        export, is_noted = self._export, self._digests is not None
        given = export.made_from, export.lineage, self.parts, is_noted
        try:
            return identity_of(export.format, *given)
        except NotComparable:
            return ""

    def _begin(self, *, is_alone: bool) -> None:
        """Makes the folder of the parts, unless a run can go on with those that are there."""
        noted, self._job = self.folder / _JOB, self._identity()
        self._files = files_read_by(self._export.episodes.source)
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
        before = json.loads(noted.read_bytes()) if noted.exists() else ""
        is_stale = not before or (joined.exists() and before != self._job)
        if is_stale and is_alone:  # Others may have begun the same.
            for path in self.folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name != _LOCK:
                    path.unlink()
        elif before not in ("", self._job):
            raise ValueError(
                f"{self.folder} has parts of a dataset that was begun, not finished, and made of "
                f"other data or with other options. Go on with those, or rm -r {self.folder}"
            )
        self._has_begun = True
        joined.unlink(missing_ok=True)
        write_at_once(noted, json.dumps(self._job).encode())
        for draft in self.folder.glob("?????.?*"):  # Of workers that were killed.
            if is_alone and draft.suffix != ".json":
                shutil.rmtree(draft, ignore_errors=True)

    def _check_files(self) -> None:
        """Checks that all parts are of the same files: each process knows only when it read."""
        source = self._export.episodes.source
        if not source.may_grow and self._files != files_read_by(source):
            raise SourceChangedError(
                "changed while it was read; start again", file=files_of(source)
            )

    def join(
        self,
        draft: Path,
        workers: Workers,
        on_advance: Callable[[float], None],
        *,
        pipeline: tuple[Any, Any] | None = None,
    ) -> Notes:
        """Writes the whole dataset to a draft of it, from the parts if there are some.

        Args:
          draft: The draft.
          workers: Who writes the files that the format has made of parts.
          on_advance: Called with how many more episodes are done.
          pipeline: See `run`.
        """
        export, parts = self._export, self.parts
        left_out: Sequence[SourceError] = []
        export.order, skips = self._order, self._skip_damaged
        if parts:
            export.workers = functools.partial(_in_pipeline, workers, pipeline)
            export.staged = staged = StagedParts(self.folder, self._name, len(parts), export)
            every = self._every
            lost = {*itertools.chain.from_iterable(parts)} - staged.indices
            export.order = [index for index in every if index not in lost]
            left_out = staged.left_out
            if not export.order:
                raise left_out[0]
            # What is in parts was sound: their damage leaves nothing out.
            skips = skips and self.num_episodes < len(every)
        notes = Notes(export, self._digests, skip_damaged=skips, on_episode=lambda: on_advance(1))
        export.watch = notes
        try:
            export.write(draft)
        finally:
            export.staged = None
        notes.left_out = [*left_out, *notes.left_out]
        return notes

    def finish(self) -> None:
        """Notes that the dataset is complete, and the parts of no more use: it will be renamed.

        An upload may take long, and needs them if it is interrupted.
        """
        if self.parts and self._is_local:
            (self.folder / _JOINED).touch()

    def remove(self) -> None:
        """Removes the parts of this run."""
        self.close()
        if self._has_begun:
            shutil.rmtree(self.folder, ignore_errors=True)

    def remove_joined(self) -> None:
        """Removes the parts of a run that was killed when the dataset was complete."""
        if (self.folder / _JOINED).exists() and self._hold(is_alone=True):
            self._has_begun = True
            self.remove()


def _in_pipeline(
    workers: Workers,
    pipeline: tuple[Any, Any] | None,
    work: Callable[[Any], Any],
    tasks: Sequence[Any],
    on_advance: Callable[[float], None] = lambda number: None,
) -> Iterator[tuple[Any, Any]]:
    """Has a pipeline, if there is one, do tasks before workers do: these find them done."""
    if pipeline is not None:
        each = [(task,) for task in tasks]
        run_in_pipeline(functools.partial(tried, work), each, *pipeline, type(work).__name__)
    return workers.do(work, tasks, on_advance=on_advance)


@dataclasses.dataclass(frozen=True)
class _PartWriter:
    """Writes parts, each to a dataset of its own; given to each worker."""

    export: Export
    folder: Path
    name: str
    parts: Sequence[Sequence[int]]
    digests: Digests | None
    skip_damaged: bool

    def __call__(self, number: int) -> None:
        """Writes a part, unless it is there."""
        noted = self.folder / f"{number:05d}.json"
        if (known := read_part(noted)) is not None:
            advance(len(known.episodes) + len(known.left_out))
            return
        place = self.folder / f"{number:05d}"
        draft = self.folder / f"{number:05d}.{uuid.uuid4().hex}"
        draft.mkdir()
        notes = Notes(self.export, self.digests, skip_damaged=self.skip_damaged)
        self.export.watch, self.export.order = notes, self.parts[number]
        try:
            self._write(draft / self.name, notes)
            sync_all(draft)
            shutil.rmtree(place, ignore_errors=True)
            os.rename(draft, place)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        nowhere = Origin("", 0, 0)
        episodes = [
            PartEpisode(index, digest, notes.origins[index] or nowhere)
            for index, digest in notes.written.items()
        ]
        WrittenPart(episodes, notes.left_out).write(noted)

    def _write(self, path: Path, notes: Notes) -> None:
        """Writes a dataset, or nothing if all episodes are left out."""
        try:
            self.export.write(path)
        except SourceError as error:
            if notes.written or error not in notes.left_out:  # There are others.
                raise


class StagedParts:
    """The parts of a dataset, from which the whole is written.

    Args:
      folder: Their folder.
      name: The name that each has there.
      number: How many there are.
      export: What has written them.

    Attributes:
      left_out: The errors of episodes that could not be read.
    """

    def __init__(self, folder: Path, name: str, number: int, export: Export) -> None:
        self._made_from = folder, name, number, export
        self._folder, self._name, self._format = folder, name, export.format
        self._options = dict(export.read_options())
        self._noted: dict[int, PartEpisode] = {}
        self._places: dict[int, tuple[int, str, int]] = {}
        self.left_out: list[SourceError] = []
        for part_number in range(number):
            part = read_part(folder / f"{part_number:05d}.json")
            assert part is not None
            self.left_out += part.left_out
            counted: Counter[str] = Counter()
            for episode in part.episodes:
                split = export.episodes.place(episode.index)[0] if export.keeps_splits else ""
                self._noted[episode.index] = episode
                self._places[episode.index] = part_number, split, counted[split]
                counted[split] += 1
        self._open = functools.lru_cache(_OPEN)(self._opened)

    def __reduce__(self) -> Any:
        return type(self), self._made_from

    @property
    def indices(self) -> Set[int]:
        """The episodes that they have, by their numbers in the whole."""
        return self._noted.keys()

    def noted(self, index: int) -> tuple[int, Origin | None]:
        """Returns the digest of an episode as it was read from its source, and where it was."""
        noted = self._noted[index]
        return noted.digest, noted.origin if noted.origin.file else None

    def place(self, index: int) -> Place:
        """Returns where the parts have an episode."""
        number, split, place = self._places[index]
        episodes = self._open(number)
        assert isinstance(episodes.source, Source)
        if split:
            return Place(episodes.source, split, place)
        return Place(episodes.source, *episodes.place(place))

    def _opened(self, number: int) -> Episodes:
        path = self._folder / f"{number:05d}" / self._name
        return open_episodes(path, "all", format=self._format, **self._options)
