"""Staging folder of a conversion: workers write parts of a dataset, one process joins them."""

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

from rlds.conversion.beam import check_shared_folder, run_in_pipeline, suppress_errors
from rlds.conversion.parts import (
    NotComparable,
    PartEpisode,
    StreamPart,
    WrittenPart,
    decoded_size,
    decoded_sizes,
    fingerprint,
    read_part,
    split_into_parts,
    stream_parts,
)
from rlds.conversion.watching import Digests, Notes
from rlds.raw_files.input_files import FileState, check_unchanged, state_of
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources.episodes import Episodes
from rlds.sources.opening import open as open_episodes
from rlds.sources.source import AnySource, Location, Origin, Source, SourceError
from rlds.sources.writing import Export
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.processes import WorkerDied, Workers, advance
from rlds_ecosystem.files.whole_files import (
    holder_of,
    is_open,
    local_target,
    lock,
    sync_all,
    write_atomically,
)
from rlds_ecosystem.model.errors import StorageError

__all__ = ["StagedParts", "Staging", "remove_finished"]

# Files of the staging folder: the fingerprint of the job, the mark of a complete dataset, the lock.
_JOB_FILE, _JOINED_FILE, _LOCK_FILE = "job.json", "joined", "lock"
# Decoded bytes that one process writes in the time that another one needs to start.
_MAX_SERIAL_BYTES = 64 << 20
# The number of parts that are open for reading at the same time.
_MAX_OPEN_PARTS = 2


class Staging:
    """A conversion in two phases: workers write parts to a staging folder; then parts are joined.

    Args:
      export: The export that writes the dataset.
      path: The path of the dataset, next to the staging folder.
      digests: The checksums of the episodes; None if not needed.
      skip_damaged: True to leave out unreadable episodes.
      in_parts: True to write parts of large data, if the format supports it.
      even_small: True to write parts also of small data.
      draft: The parent of the staging folder; None for the parent of the dataset.

    Attributes:
      parts: The indices of the episodes of each part, or the part of a stream; empty if the dataset
        is written directly.
      folder: The staging folder.
      format: The format of the dataset.
      is_small: True if starting processes would take longer than writing in this process.
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
        target_draft, self._is_local = local_target(path, draft), stores.is_local(path)
        self._name = target_draft.name
        self.folder = _find_folder(target_draft)
        self._order = export.files_order()
        self.parts: Sequence[Sequence[int] | StreamPart] = []
        self.is_small = True
        self._job, self._has_begun = "", False
        self._lock: int | None = None
        self._is_in_new_folder = not target_draft.parent.exists()
        self._files: Sequence[FileState] = ()
        if in_parts and export.in_parts:
            if export.episodes.has_random_access:
                sizes = decoded_sizes(export.episodes)
                self.parts = split_into_parts(
                    [i for i in self._episode_order if not export.is_in_format(i)], sizes
                )
                size = 0 if sizes is None else int(sizes.sum())
            else:
                self.parts = stream_parts(export.episodes)
                size = decoded_size(export.episodes.source)
            is_single = len(self.parts) <= 1
            self.is_small = is_single or 0 < size < _MAX_SERIAL_BYTES
            if (is_single or (self.is_small and not even_small)) and not export.from_parts:
                self.parts = []

    @property
    def _episode_order(self) -> Sequence[int]:
        """The indices of all episodes, in the order of writing."""
        return range(len(self._export.episodes)) if self._order is None else self._order

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if kind is None:
            return
        is_damage = issubclass(kind, SourceError) and not issubclass(kind, SourceChangedError)
        can_resume = is_damage or not issubclass(kind, ValueError)  # Wrong options fail again.
        has_parts = any(self.folder.glob("?????.json"))
        if not (can_resume and self._job and has_parts):
            self.remove()
        elif error is not None and self._has_begun:
            error.add_note(
                f"{self.folder} keeps the finished parts: the same call resumes there. Remove it "
                "to start again."
            )

    def _acquire_lock(self, *, is_exclusive: bool) -> bool:
        """Locks the staging folder, exclusively or shared with other jobs; False if it is locked.

        The lock is on a file: on NFS, other machines do not see the lock of a folder.
        """
        if self._lock is None:
            _check_ownership(self.folder)
            while self._lock is None:  # Another process may remove the folder meanwhile.
                self.folder.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    self._lock = os.open(self.folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT)
            is_locked = lock(self._lock, wait=False, shared=not is_exclusive)
            if not (is_locked and is_open(self.folder / _LOCK_FILE, self._lock)):
                self.close()
        return self._lock is not None

    def close(self) -> None:
        """Releases the lock of the staging folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def num_episodes(self) -> int | None:
        """The number of episodes of all parts; None if unknown before reading."""
        return self.count(range(len(self.parts)))

    def count(self, indices: Sequence[int]) -> int | None:
        """Returns the number of episodes of some parts; None if unknown before reading."""
        parts = [self.parts[index] for index in indices]
        return None if any(isinstance(part, StreamPart) for part in parts) else sum(map(len, parts))

    def num_written(self, indices: Sequence[int]) -> int:
        """Returns the number of episodes in the records of written parts."""
        parts = [read_part(self.folder / f"{index:05d}.json") for index in indices]
        return sum(len(part.episodes) for part in parts if part is not None)

    def share(self, part: tuple[int, int]) -> Sequence[int]:
        """Returns the indices of the parts that one of several cluster jobs writes.

        Args:
          part: The share of the work, such as `(3, 64)`, counted from 1.
        """
        job, jobs = part
        if not 1 <= job <= jobs:
            raise ValueError(f"part: got {job} of {jobs}, expected 1 of {jobs} to {jobs} of {jobs}")
        if not self.parts:
            raise ValueError(
                "part: these episodes are too few for several parts, or their fields change; write "
                "the dataset without part"
            )
        return range(job - 1, len(self.parts), jobs)

    def run(
        self,
        workers: Workers,
        on_advance: Callable[[float], None],
        *,
        indices: Sequence[int] | None = None,
        pipeline: tuple[Any, Any] | None = None,
    ) -> None:
        """Writes the parts; reuses the parts of an earlier run (resume).

        Args:
          workers: The workers that write the parts.
          on_advance: Called with the number of episodes written since the last call.
          indices: The parts; all if None. Other processes may write further parts at the same time.
          pipeline: A runner of Apache Beam and its options; it writes parts before the workers do.

        Raises:
          SourceError: An episode cannot be read.
          ValueError: The folder has parts of another dataset, or the format cannot hold an episode.
          WorkerDied: A worker was killed twice, or ran out of memory.
        """
        self._prepare_folder(is_exclusive=indices is None)
        export = self._export
        work = _PartWriter(
            *(export, self.folder, self._name, self.parts, export.episodes),
            *(self._digests, self._skip_damaged),
        )
        indices = range(len(self.parts)) if indices is None else indices
        try:
            collections.deque(_run_tasks(workers, pipeline, work, indices, on_advance), 0)
        except WorkerDied as error:
            part = self.parts[error.task]
            is_stream = isinstance(part, StreamPart)
            location = part.name if is_stream else f"the episodes {part[0]} to {part[-1]}"
            error.add_note(
                f"It died twice at {location}. If memory is short, pass "
                "fewer jobs (--jobs). The next run resumes from the finished parts."
            )
            raise
        source = self._export.episodes.source
        check_unchanged(self._files, may_grow=source.may_grow)

    def _compute_fingerprint(self) -> str:
        """Returns a digest of all inputs of the job; empty if an input is not comparable."""
        export, has_digests = self._export, self._digests is not None
        try:
            return fingerprint(
                export.format, export.arguments, export.lineage, self.parts, has_digests
            )
        except NotComparable:
            return ""

    def _prepare_folder(self, *, is_exclusive: bool) -> None:
        """Creates and locks the staging folder; keeps the parts of an earlier run of the job."""
        job_file, self._job = self.folder / _JOB_FILE, self._compute_fingerprint()
        if is_exclusive:  # If several jobs share the folder, each job checks its inputs.
            with contextlib.suppress(FileNotFoundError):  # Data without files cannot change.
                inputs = self._export.episodes.source.inputs()
                self._files = [state_of(path) for path in inputs if not os.path.isdir(path)]
        if not self._job and not is_exclusive:
            raise ValueError(
                "part: the episodes come from a function or a source without files, so jobs cannot "
                "check that they have the same episodes. Write the dataset without part"
            )
        if not self._acquire_lock(is_exclusive=is_exclusive):
            raise FileExistsError(
                f"{self.folder}: {holder_of(self.folder / _LOCK_FILE)} is writing parts here. "
                "Wait until it ends"
            )
        joined_file = self.folder / _JOINED_FILE
        earlier_job = json.loads(job_file.read_bytes()) if job_file.exists() else ""
        is_stale = not earlier_job or (joined_file.exists() and earlier_job != self._job)
        if is_stale and is_exclusive:  # Another job may have begun the same dataset.
            _clear(self.folder)
        elif earlier_job not in ("", self._job):
            raise ValueError(
                f"{self.folder} has parts of an unfinished dataset, from other data or with other "
                f"options. Use the same data and options, or run rm -r {self.folder}"
            )
        self._has_begun = True
        joined_file.unlink(missing_ok=True)
        write_atomically(job_file, json.dumps(self._job).encode())
        for draft in self.folder.glob("?????.?*"):  # Killed workers leave drafts.
            if is_exclusive and draft.suffix != ".json":
                shutil.rmtree(draft, ignore_errors=True)

    def join(
        self,
        draft: Path,
        workers: Workers,
        on_advance: Callable[[float], None],
        *,
        pipeline: tuple[Any, Any] | None = None,
    ) -> Notes:
        """Joins the parts to the complete dataset; without parts, writes it directly.

        Args:
          draft: The path of the draft of the dataset.
          workers: The workers that write files of formats that join parts in parallel.
          on_advance: Called with the number of episodes written since the last call.
          pipeline: See `run`.
        """
        export, parts = self._export, self.parts
        left_out: Mapping[int, SourceError] = {}
        export.order, skips = self._order, self._skip_damaged
        if parts or export.from_parts:
            export.workers = functools.partial(_run_tasks, workers, pipeline)
            export.staged = staged = StagedParts(self.folder, self._name, parts, export)
            order, left_out = self._episode_order, staged.left_out
            export.order = [index for index in order if index not in left_out]
            if left_out and not export.order:
                raise next(iter(left_out.values()))
            # Parts hold only readable episodes: an unreadable episode in a part is an error.
            skips = skips and len(staged.indices) + len(left_out) < len(order)
        notes = Notes(export, self._digests, skip_damaged=skips, on_episode=lambda: on_advance(1))
        export.watch = notes
        try:
            export.write(draft)
        finally:
            export.staged = None
        notes.left_out = {**left_out, **notes.left_out}
        return notes

    def finish(self) -> None:
        """Marks a local dataset as complete before renaming, so its parts may be removed.

        An interrupted upload to an object store still needs the parts.
        """
        if self.parts and self._is_local:
            (self.folder / _JOINED_FILE).touch()

    def remove(self) -> None:
        """Removes the staging folder of this run."""
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
        """Removes the staging folder of a run that was killed after the dataset was complete.

        Returns:
          True if the folder had parts of the same dataset.
        """
        with contextlib.suppress(OSError):  # The folder is missing, or not empty.
            self.folder.rmdir()
        if not ((self.folder / _JOINED_FILE).exists() and self._acquire_lock(is_exclusive=True)):
            return False
        job_file = self.folder / _JOB_FILE
        job = json.loads(job_file.read_bytes()) if job_file.exists() else ""
        self._has_begun = True
        self.remove()
        return bool(job) and bool(job == self._compute_fingerprint())


def remove_finished(path: str | os.PathLike[str]) -> None:
    """Removes the staging folder that a killed process has left next to a complete dataset."""
    folder = _find_folder(local_target(path))
    if (folder / _JOINED_FILE).exists():
        _remove(folder)


def _find_folder(target_draft: Path) -> Path:
    """Returns the staging folder of a dataset, next to its draft."""
    return target_draft.with_name(f".{target_draft.name}.parts")


def _clear(folder: Path) -> None:
    """Removes the records, then the parts: a killed process leaves no record of a removed part."""
    for record in folder.glob("[0-9]*.json"):
        record.unlink()
    for path in filter(Path.is_dir, folder.iterdir()):
        shutil.rmtree(path, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Removes a staging folder; finally, the lock and the mark of a complete dataset."""
    _clear(folder)
    marks = folder / _LOCK_FILE, folder / _JOINED_FILE
    for path in (*({*folder.iterdir()} - {*marks}), *marks):
        path.unlink(missing_ok=True)
    folder.rmdir()


def _check_ownership(folder: Path) -> None:
    """Checks that a staging folder has no links, and that this user owns it in a public folder.

    Otherwise another user could make a conversion overwrite any file.
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
        is_file_or_folder = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if not is_file_or_folder or (is_public and status.st_uid != os.geteuid()):
            raise StorageError(
                f"{path!r} is a link, a special file or belongs to another user; no conversion "
                "wrote it. Check its origin, and remove it"
            )


def _run_tasks(
    workers: Workers,
    pipeline: tuple[Any, Any] | None,
    work: Callable[[Any], Any],
    tasks: Sequence[Any],
    on_advance: Callable[[float], None] = lambda count: None,
) -> Iterator[tuple[Any, Any]]:
    """Runs tasks in a Beam pipeline, if requested, then in the workers, which skip done tasks."""
    if pipeline is not None:
        arguments = [(task,) for task in tasks]
        run_in_pipeline(
            functools.partial(suppress_errors, work), arguments, *pipeline, type(work).__name__
        )
    return workers.run(work, tasks, on_advance=on_advance)


@dataclasses.dataclass(frozen=True)
class _PartWriter:
    """The task of a worker: writes a part of a conversion as a separate dataset."""

    export: Export
    folder: Path
    name: str
    parts: Sequence[Sequence[int] | StreamPart]
    episodes: Episodes
    digests: Digests | None
    skip_damaged: bool

    def __call__(self, index: int) -> None:
        """Writes a part and its record; skips parts with a record."""
        check_shared_folder(self.folder, "parts", alternative=", or have the target in one")
        record = self.folder / f"{index:05d}.json"
        if (written_part := read_part(record)) is not None:
            advance(len(written_part.episodes) + len(written_part.left_out))
            return
        folder = self.folder / f"{index:05d}"
        draft = self.folder / f"{index:05d}.{uuid.uuid4().hex}"
        draft.mkdir()
        notes = Notes(self.export, self.digests, skip_damaged=self.skip_damaged)
        self.export.watch, part = notes, self.parts[index]
        try:
            if isinstance(part, StreamPart):
                self.export.episodes = part.select(self.episodes)
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
        no_origin = Origin("", 0, 0)
        episodes = [
            PartEpisode(episode, digest, notes.origins[episode] or no_origin)
            for episode, digest in notes.written.items()
        ]
        WrittenPart(episodes, notes.left_out).write(record)

    def _write(self, path: Path, notes: Notes) -> None:
        """Writes a dataset; writes no file if all episodes are left out."""
        try:
            self.export.write(path)
        except SourceError as error:
            if notes.written or error not in notes.left_out.values():  # Some episodes are readable.
                raise


class StagedParts:
    """Reads the written parts of a conversion, to join them.

    Args:
      folder: The staging folder.
      name: The file or folder name of the dataset in each part.
      parts: The episodes of each part.
      export: The export that has written the parts.

    Attributes:
      left_out: The errors of unreadable episodes, by index.
    """

    def __init__(
        self, folder: Path, name: str, parts: Sequence[Sequence[int] | StreamPart], export: Export
    ) -> None:
        self._arguments = folder, name, parts, export
        self._folder, self._name, self._format = folder, name, export.format
        self._options = dict(export.read_options())
        self._part_episodes: dict[int, PartEpisode] = {}
        self._locations: dict[int, tuple[int, str, int]] = {}
        self.left_out: dict[int, SourceError] = {}
        counts: Counter[str] = Counter()
        for part_index, episodes in enumerate(parts):
            part = read_part(folder / f"{part_index:05d}.json")
            assert part is not None
            offset = 0
            if isinstance(episodes, StreamPart) and episodes.split:  # Indices in a part start at 0.
                offset = counts.total()
                counts[episodes.split] += len(part.episodes) + len(part.left_out)
                export.episodes.set_counts(counts)
            self.left_out |= {offset + index: error for index, error in part.left_out.items()}
            split_sizes: Counter[str] = Counter()
            for episode in part.episodes:
                index = offset + episode.index
                split = export.episodes.locate(index)[0] if export.keeps_splits else ""
                self._part_episodes[index] = episode
                self._locations[index] = part_index, split, split_sizes[split]
                split_sizes[split] += 1
        # An export that reads parts in any order keeps all parts open.
        self._open_cached = functools.lru_cache(None if export.from_parts else _MAX_OPEN_PARTS)(
            self._open_part
        )

    def __reduce__(self) -> Any:
        return type(self), self._arguments

    @property
    def indices(self) -> Set[int]:
        """The indices of the staged episodes in the export."""
        return self._part_episodes.keys()

    def digest_and_origin(self, index: int) -> tuple[int, Origin | None]:
        """Returns the checksum of the values of an episode in its source, and its origin."""
        episode = self._part_episodes[index]
        return episode.digest, episode.origin if episode.origin.file else None

    def locate(self, index: int) -> Location:
        """Returns the location of an episode in the parts."""
        part_index, split, position = self._locations[index]
        episodes = self._open_cached(part_index)
        assert isinstance(episodes.source, Source)
        if split:
            return Location(episodes.source, split, position)
        return Location(episodes.source, *episodes.locate(position))

    def sources(self) -> Iterator[AnySource]:
        """Yields the sources of the parts with episodes."""
        for index in sorted({index for index, *_ in self._locations.values()}):
            yield self._open_cached(index).source

    def _open_part(self, index: int) -> Episodes:
        path = self._folder / f"{index:05d}" / self._name
        return open_episodes(path, "all", format=self._format, **self._options)
