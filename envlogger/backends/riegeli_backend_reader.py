"""Reads steps from a directory of Riegeli files."""

from __future__ import annotations

import bisect
import copy
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

import dm_env

from envlogger.backends import riegeli_layout as layout
from envlogger.backends.backend_reader import BackendReader
from envlogger.backends.python.episode_info import EpisodeInfo
from envlogger.backends.riegeli_shard_reader import (
    RecordFile,
    Shard,
    load_shards,
    parse,
    read_metadata,
)
from envlogger.converters import codec
from envlogger.errors import DamagedDataError, StorageError, UsageError
from envlogger.proto.storage_pb2 import Data
from envlogger.step_data import StepData

__all__ = ["RiegeliBackendReader"]


class RiegeliBackendReader(BackendReader):
    """Reads what `RiegeliBackendWriter` has written to a directory, as it is on opening.

    Threads may share a reader, but take turns; with a `copy` each they do not. At most one shard is
    open at a time, with two files.

    Args:
      data_directory: The directory.

    Raises:
      StorageError: There is no such directory, or no recording in it.
      DamagedDataError: A file is damaged; says which.
      riegeli.UnimplementedError: A file is written in a way that cannot be read yet; says which.
    """

    # For the destructor, until the constructor has run.
    _closed = True

    def __init__(self, data_directory: str | os.PathLike[str]) -> None:
        directory = layout.existing_directory(data_directory)
        metadata = codec.decode(read_metadata(directory))
        self._metadata: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
        self._shards = load_shards(directory)
        # For each shard, the number of steps and of episodes in it and all before it.
        self._step_ends = _running_sums(len(shard.step_offsets) for shard in self._shards)
        self._episode_ends = _running_sums(len(shard.episode_starts) for shard in self._shards)
        self._begin_reading()

    def _begin_reading(self) -> None:
        self._lock = threading.Lock()
        self._open_shard: Shard | None = None
        self._open_files: dict[str, RecordFile] = {}
        self._closed = False

    def _copy(self) -> Self:
        other = copy.copy(self)
        other._metadata = copy.deepcopy(self._metadata)
        other._begin_reading()
        return other

    def close(self) -> None:
        """Closes the files; steps and metadata of episodes cannot be read any more."""
        if self._closed:
            return
        with self._lock:
            self._closed = True
            self._close_files()

    def __del__(self, _is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _is_finalizing():  # Then modules are being taken apart, and the system closes files.
            self.close()

    def metadata(self) -> dict[str, Any]:
        """What was stored about the whole dataset."""
        return self._metadata

    def _get_num_steps(self) -> int:
        return self._step_ends[-1] if self._step_ends else 0

    def _get_num_episodes(self) -> int:
        return self._episode_ends[-1] if self._episode_ends else 0

    def _get_nth_step(self, i: int) -> StepData:
        number, j = _locate(self._step_ends, i)
        shard = self._shards[number]
        position = int(shard.step_offsets[j])
        try:
            return _to_step(codec.decode(self._read(shard, layout.STEPS_FILE, position)))
        except DamagedDataError as e:
            path = shard.directory / layout.STEPS_FILE
            raise DamagedDataError(
                f"{self._describe_step(i)} is damaged, at position {position} of {path}: {e}. "
                "Steps in other chunks can be read; for this one, restore the file from a copy"
            ) from e

    def _describe_step(self, i: int) -> str:
        number, j = _locate(self._step_ends, i)
        starts = self._shards[number].episode_starts
        k = bisect.bisect_right(starts, j) - 1
        if k < 0:
            return f"step {i}, which belongs to no episode,"
        episode = self._episode_ends[number] - len(starts) + k
        return f"step {i} (step {j - starts[k]} of episode {episode})"

    def _get_nth_episode_info(self, i: int, include_metadata: bool = False) -> EpisodeInfo:
        number, k = _locate(self._episode_ends, i)
        shard = self._shards[number]
        steps_before = self._step_ends[number] - len(shard.step_offsets)
        start = int(shard.episode_starts[k])
        is_last = k + 1 == len(shard.episode_starts)
        end = len(shard.step_offsets) if is_last else int(shard.episode_starts[k + 1])
        info = EpisodeInfo(start=steps_before + start, num_steps=end - start)
        position = int(shard.metadata_offsets[k])
        if include_metadata and position != layout.NO_METADATA:
            try:
                info.metadata = self._read(shard, layout.EPISODE_METADATA_FILE, position)
            except DamagedDataError as e:
                path = shard.directory / layout.EPISODE_METADATA_FILE
                raise DamagedDataError(
                    f"the metadata of episode {i} is damaged, at position {position} of {path}: {e}"
                ) from e
        return info

    def _read(self, shard: Shard, name: str, position: int) -> Data:
        with self._lock:
            if self._closed:
                raise UsageError("this reader is closed; make a new one to read more")
            if shard is not self._open_shard:
                self._close_files()
                self._open_shard = shard
            try:
                if name not in self._open_files:
                    self._open_files[name] = RecordFile(shard.directory / name)
                record = self._open_files[name].read(position)
            except OSError as e:
                raise StorageError(f"cannot read {shard.directory / name}: {e}") from e
        return parse(Data, record)

    def _close_files(self) -> None:
        for file in self._open_files.values():
            file.close()
        self._open_files = {}
        self._open_shard = None


def _running_sums(counts: Iterable[int]) -> list[int]:
    return list(itertools.accumulate(counts))


def _locate(ends: list[int], i: int) -> tuple[int, int]:
    """The number of the shard that has item `i` of all shards, and the number of the item in it."""
    number = bisect.bisect_right(ends, i)
    return number, i - (ends[number - 1] if number else 0)


def _to_step(value: Any) -> StepData:
    match value:
        case ((int(step_type), reward, discount, observation), action, custom_data):
            try:
                kind = dm_env.StepType(step_type)
            except ValueError as e:
                raise DamagedDataError(str(e)) from e
            timestep = dm_env.TimeStep(kind, reward, discount, observation)
            return StepData(timestep, action, custom_data)
    raise DamagedDataError("the record is not a step")
