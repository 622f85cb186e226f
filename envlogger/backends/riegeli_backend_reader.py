"""Reads steps from a directory of Riegeli files."""

from __future__ import annotations

import bisect
import copy
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, Self, TypeVar

import numpy as np
from typing_extensions import override

import riegeli
from envlogger.backends.backend_reader import BackendReader, check_index
from envlogger.backends.directories import directory_to_read
from envlogger.backends.python.episode_info import EpisodeInfo
from envlogger.backends.riegeli_files import layout
from envlogger.backends.riegeli_files.assembler import EpisodePositions
from envlogger.backends.riegeli_files.random_access_file import RandomAccessFile
from envlogger.backends.riegeli_files.shard_reader import Shard, load_shards, parse, read_metadata
from envlogger.backends.riegeli_files.shard_rebuilder import find_damage
from envlogger.converters import codec
from envlogger.converters.columns import StoredRecords, as_fields, recorded_columns, rlds_columns
from envlogger.converters.step_decoder import StepDecoder
from envlogger.converters.video_fields import OBSERVATION, VideoFields
from envlogger.damage import Damage
from envlogger.errors import DamagedDataError, StorageError, UsageError
from envlogger.proto.storage_pb2 import Data
from envlogger.step_data import StepData
from rlds_ecosystem.files import stores

__all__ = ["RiegeliBackendReader"]

T = TypeVar("T")

# The maximum number of steps in a read.
_MAX_READ_STEPS = 1 << 16


class RiegeliBackendReader(BackendReader):
    """Reads a directory of `RiegeliBackendWriter`, in its state at opening.

    Damaged data are skipped; `damage` reports them.

    Threads that share a reader block each other; threads with a `copy` each read in parallel. A
    reader opens the two files of one shard at a time; in an object store, it may open all shards.

    Args:
      data_directory: The directory.
      video: The form of fields that were recorded as video: decoded "frames", or the stored
        "packets", see `envlogger.converters.video_fields`.

    Attributes:
      video: The fields that were recorded as video.
      gives_packets: Whether these fields are packets in the steps.

    Raises:
      StorageError: The directory is missing, or holds no recording.
      DamagedDataError: The metadata are damaged and there are no steps.
      riegeli.UnimplementedError: A file uses an unsupported feature of Riegeli.
    """

    # The destructor also runs if the constructor failed.
    _closed = True

    def __init__(
        self,
        data_directory: str | os.PathLike[str],
        *,
        video: Literal["frames", "packets"] = "frames",
    ) -> None:
        if video not in ("frames", "packets"):
            raise ValueError(f"video: got {video!r}, expected 'frames' or 'packets'")
        directory = directory_to_read(data_directory)
        self._shards = load_shards(directory)
        self._metadata_damage: list[Damage] = []
        metadata = None
        path = directory / layout.METADATA_FILE
        try:
            metadata = codec.decode(read_metadata(directory))
        except (DamagedDataError, StorageError) as e:
            if not self._shards or (isinstance(e, StorageError) and path.exists()):
                raise
            self._metadata_damage.append(Damage(os.fspath(path), "cannot be read", advice=str(e)))
        self._decoder = StepDecoder()
        self._metadata: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
        self.video = VideoFields(self._metadata)
        self.gives_packets = bool(self.video) and video == "packets"
        self._decodes = bool(self.video) and video == "frames"
        # For each shard, the number of steps and of episodes up to its end.
        self._step_ends = _accumulate(len(shard.step_offsets) for shard in self._shards)
        self._episode_ends = _accumulate(len(shard.episode_starts) for shard in self._shards)
        self._begin_reading()

    def _begin_reading(self) -> None:
        """Initializes state that is not shared with copies and other processes."""
        self._lock = threading.Lock()
        self._open_shard: Shard | None = None
        self._open_files: dict[tuple[Shard, str], RandomAccessFile] = {}
        self._closed = False
        _readers.add(self)

    @override
    def copy(self) -> Self:
        other = copy.copy(self)
        other._metadata = copy.deepcopy(self._metadata)
        other._begin_reading()
        return other

    def __getstate__(self) -> dict[str, Any]:
        omitted_names = ("_lock", "_open_shard", "_open_files")
        return {name: value for name, value in self.__dict__.items() if name not in omitted_names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        is_closed = self._closed
        self._begin_reading()
        self._closed = is_closed

    def close(self) -> None:
        """Closes the files; then steps and metadata of episodes cannot be read."""
        if self._closed:
            return
        with self._lock:
            self._closed = True
            self._close_files()

    def __del__(self, _is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _is_finalizing():  # At exit, the system closes files.
            self.close()

    @override
    def metadata(self) -> dict[str, Any]:
        return self._metadata

    def damage(self) -> list[Damage]:
        """Returns the damage of all shards; reads all unindexed steps."""
        lists = [self._metadata_damage, *map(find_damage, self._shards)]
        return list(itertools.chain.from_iterable(lists))

    def _get_num_steps(self) -> int:
        return self._step_ends[-1] if self._step_ends else 0

    def _get_num_episodes(self) -> int:
        return self._episode_ends[-1] if self._episode_ends else 0

    def _get_nth_step(self, i: int) -> StepData:
        return next(self._get_steps(i, i + 1)) if self._decodes else self._read_stored_step(i)

    def _read_stored_step(self, i: int) -> StepData:
        shard_index, j = _locate(self._step_ends, i)
        shard = self._shards[shard_index]
        position = int(shard.step_offsets[j])
        try:
            return self._decoder.decode(self._read_record(shard, layout.STEPS_FILE, position))
        except DamagedDataError as e:
            path = shard.directory / layout.STEPS_FILE
            raise DamagedDataError(
                f"{self._describe_step(i)} is damaged, at position {position} of {path}: {e}. "
                "Steps in other chunks can be read; for this one, restore the file from a copy"
            ) from e

    def _get_steps(self, begin: int, end: int) -> Iterator[StepData]:
        if self._decodes:
            return self.video.steps(self._read_stored_steps, begin, end)
        return self._read_stored_steps(begin, end)

    def _read_stored_steps(self, begin: int, end: int) -> Iterator[StepData]:
        decode = self._decoder.decode
        for records in self._read_steps(begin, end, RandomAccessFile.read_run):
            for i, record in enumerate(records, begin):
                try:
                    step = decode(record)
                except DamagedDataError:
                    step = self._read_stored_step(i)  # The error has the position.
                yield step
            begin += len(records)

    def _read_steps(
        self, begin: int, end: int, read: Callable[[RandomAccessFile, int, int], T]
    ) -> Iterator[T]:
        """Yields the results of `read` for steps `begin` to `end`, one chunk at a time."""
        while begin < end:
            shard_index, j = _locate(self._step_ends, begin)
            shard = self._shards[shard_index]
            positions = shard.step_offsets[j : j + min(end - begin, _MAX_READ_STEPS)]
            for position, count in _split_runs(positions):
                try:
                    records = self._read(shard, layout.STEPS_FILE, position, count, read)
                except DamagedDataError:
                    for i in range(begin, begin + count):
                        self._read_stored_step(i)  # The error has the position.
                    raise
                yield records
                del records
                begin += count

    @override
    def columns(self, i: int, *, rlds: bool = False, **specs: Any) -> dict[str, Any]:
        i = check_index(i, self._get_num_episodes(), "episodes")
        name = f"episode {i}"
        records = self._join_records([self._get_nth_episode_info(i)], name)
        if rlds:
            return self._decode_frames(rlds_columns(records, self._decoder, **specs), name)
        return self._decode_frames(as_fields(recorded_columns(records, self._decoder)), name)

    def _decode_frames(self, columns: dict[str, Any], name: str) -> dict[str, Any]:
        if not self._decodes:
            return columns
        return {**columns, OBSERVATION: self.video.columns(columns[OBSERVATION], name)}

    @override
    def recorded_columns(self, begin: int, end: int) -> dict[str, Any]:
        episodes = [self._get_nth_episode_info(i) for i in range(begin, end)]
        name = f"episodes {begin} to {end}"
        records = self._join_records(episodes, name)
        return self._decode_frames(as_fields(recorded_columns(records, self._decoder)), name)

    def stored_episode(self, i: int) -> EpisodePositions:
        """Returns the location of a stored episode, for `LogAssembler.copy`.

        Raises:
          DamagedDataError: The metadata of the episode is damaged.
        """
        i = check_index(i, self._get_num_episodes(), "episodes")
        shard_index, k = _locate(self._episode_ends, i)
        shard, metadata = self._shards[shard_index], None
        begin = int(shard.episode_starts[k])
        positions = shard.step_offsets[begin : begin + self._get_nth_episode_info(i).num_steps]
        if (position := int(shard.metadata_offsets[k])) != layout.NO_METADATA:
            metadata = self._read_record(shard, layout.EPISODE_METADATA_FILE, position)
        file = os.fspath(shard.directory / layout.STEPS_FILE)
        return EpisodePositions(file, begin, positions, metadata)

    def stored_steps(self, i: int) -> Iterator[list[bytes]]:
        """Yields the step records of an episode, chunk by chunk."""
        info = self._get_nth_episode_info(check_index(i, self._get_num_episodes(), "episodes"))
        return self._read_steps(info.start, info.start + info.num_steps, RandomAccessFile.read_run)

    def has_custom_data(self, i: int) -> bool:
        """Returns whether any step of an episode has custom data, without decoding values."""
        records = itertools.chain.from_iterable(self.stored_steps(i))
        steps = (parse(Data, record).tuple.values for record in records)
        return any(field.WhichOneof("value") for step in steps for field in step[2:])

    def episode_lengths(self) -> np.ndarray:
        """Returns the number of steps of each episode."""
        shards = [(shard.episode_starts, shard.episodes_end) for shard in self._shards]
        lengths = [np.diff(starts, append=end) for starts, end in shards if len(starts)]
        return np.concatenate([np.empty(0, np.int64), *lengths])

    def _join_records(self, episodes: list[EpisodeInfo], name: str) -> StoredRecords:
        spans: list[tuple[int, int]] = []
        for episode in episodes:
            start = episode.start
            begin = spans.pop()[0] if spans and spans[-1][1] == start else start
            spans.append((begin, start + episode.num_steps))

        def read(records: StoredRecords) -> Iterator[riegeli.JoinedRecords]:
            def read_run(
                file: RandomAccessFile, position: int, count: int
            ) -> list[riegeli.JoinedRecords]:
                return file.read_joined_run(
                    position, count, into=records.remaining(), record_size=records.record_size
                )

            for begin, end in spans:
                for batches in self._read_steps(begin, end, read_run):
                    while batches:  # Records are released before the next chunk is read.
                        yield batches.pop(0)

        return StoredRecords(sum(end - begin for begin, end in spans), read, name=name)

    def _describe_step(self, i: int) -> str:
        shard_index, j = _locate(self._step_ends, i)
        starts = self._shards[shard_index].episode_starts
        k = bisect.bisect_right(starts, j) - 1
        if k < 0:
            return f"step {i}, which belongs to no episode,"
        episode = self._episode_ends[shard_index] - len(starts) + k
        return f"step {i} (step {j - starts[k]} of episode {episode})"

    def _get_nth_episode_info(self, i: int, include_metadata: bool = False) -> EpisodeInfo:
        shard_index, k = _locate(self._episode_ends, i)
        shard = self._shards[shard_index]
        steps_before = self._step_ends[shard_index] - len(shard.step_offsets)
        start = int(shard.episode_starts[k])
        is_last = k + 1 == len(shard.episode_starts)
        end = shard.episodes_end if is_last else int(shard.episode_starts[k + 1])
        info = EpisodeInfo(start=steps_before + start, num_steps=end - start)
        position = int(shard.metadata_offsets[k])
        if include_metadata and position != layout.NO_METADATA:
            try:
                record = self._read_record(shard, layout.EPISODE_METADATA_FILE, position)
                info.metadata = parse(Data, record)
            except DamagedDataError as e:
                path = shard.directory / layout.EPISODE_METADATA_FILE
                raise DamagedDataError(
                    f"the metadata of episode {i} is damaged, at position {position} of {path}: {e}"
                ) from e
        return info

    def _read_record(self, shard: Shard, name: str, position: int) -> bytes:
        return self._read(shard, name, position, 1, RandomAccessFile.read_run)[0]

    def _read(
        self,
        shard: Shard,
        name: str,
        position: int,
        count: int,
        read: Callable[[RandomAccessFile, int, int], T],
    ) -> T:
        with self._lock:
            if self._closed:
                raise UsageError("this reader is closed; make a new one to read more")
            if shard is not self._open_shard:
                if stores.is_local(shard.directory):  # Object stores open files slowly.
                    self._close_files()
                self._open_shard = shard
            try:
                file = self._open_files.get((shard, name))
                if file is None:
                    file = self._open_files[shard, name] = RandomAccessFile(shard.directory / name)
                return read(file, position, count)
            except OSError as e:
                raise StorageError(f"cannot read {shard.directory / name}: {e}") from e

    def _close_files(self) -> None:
        for file in self._open_files.values():
            file.close()
        self._open_files = {}
        self._open_shard = None


# A forked process shares the positions in open files with its parent, and a thread of the parent
# may hold the lock.
_readers: weakref.WeakSet[RiegeliBackendReader] = weakref.WeakSet()


def _reopen_files() -> None:
    for reader in list(_readers):
        if not reader._closed:
            reader._begin_reading()


if hasattr(os, "register_at_fork"):  # Windows does not fork.
    os.register_at_fork(after_in_child=_reopen_files)


def _accumulate(counts: Iterable[int]) -> list[int]:
    return list(itertools.accumulate(counts))


def _locate(end_offsets: list[int], i: int) -> tuple[int, int]:
    """Returns the index of the shard of item `i`, and the index of the item in the shard."""
    shard_index = bisect.bisect_right(end_offsets, i)
    return shard_index, i - (end_offsets[shard_index - 1] if shard_index else 0)


def _split_runs(positions: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields the first position and the length of each run of consecutive positions in a chunk."""
    run_starts = np.flatnonzero(np.diff(positions, prepend=-2) != 1)
    counts = np.diff(run_starts, append=len(positions))
    return zip(positions[run_starts].tolist(), counts.tolist(), strict=True)
