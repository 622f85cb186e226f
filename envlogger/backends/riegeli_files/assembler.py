"""Assembles a log from unchanged episodes of other logs and from new episodes.

Chunks whose steps are all used are copied as bytes; records of other chunks are written again. The
indices are new. The log can be read when it is complete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dm_env
import numpy as np

import riegeli
from envlogger.backends.riegeli_files import layout
from envlogger.backends.riegeli_files.episode_rule import parse_kind
from envlogger.backends.riegeli_files.shard_writer import add_mark
from envlogger.converters import codec
from envlogger.errors import DamagedDataError
from envlogger.proto.storage_pb2 import Data

__all__ = ["EpisodePositions", "LogAssembler"]

# The fixed name of the shard, so that equal episodes result in equal files.
_SHARD_NAME = "20000101T000000000000"


class EpisodePositions(NamedTuple):
    """The file and the record positions of an episode.

    Attributes:
      file: The file of the steps.
      first_step: The index of the first step in the file.
      positions: The numeric positions of the steps, int64 [num_steps].
      metadata: The record of the metadata, or None.
    """

    file: str
    first_step: int
    positions: np.ndarray
    metadata: bytes | None


class LogAssembler:
    """Writes a log with one shard.

    Args:
      directory: The directory of the log, which must not exist.
      metadata: The metadata of the dataset.
      options: The Riegeli options of the files, see `riegeli.RecordWriter`.
    """

    def __init__(self, directory: Path, metadata: dict[str, Any], options: str) -> None:
        self._shard = directory / _SHARD_NAME
        self._shard.mkdir(parents=True)
        self._options = options
        with self._open(directory / layout.METADATA_FILE) as writer:
            writer.write_record(codec.encode_to_bytes(metadata, name="metadata"))
        self._files = contextlib.ExitStack()
        self._steps = self._files.enter_context(self._open(self._shard / layout.STEPS_FILE))
        self._metadata = self._files.enter_context(
            self._open(self._shard / layout.EPISODE_METADATA_FILE)
        )
        self._positions: list[np.ndarray] = []
        self._num_steps = 0
        self._episodes: list[tuple[int, riegeli.RecordPosition | None]] = []
        self._queued: list[EpisodePositions] = []

    def _open(self, path: Path) -> riegeli.RecordWriter:
        return riegeli.RecordWriter(path, options=self._options)

    def add(self, steps: Sequence[bytes], metadata: bytes | None) -> None:
        """Adds a new episode, whose steps are encoded by `StepEncoder`."""
        self._copy_queued()
        self._begin_episode(len(steps), metadata)
        self._write([_mark_first(steps[0]), *steps[1:]])

    def copy(self, episode: EpisodePositions) -> None:
        """Adds an episode of another log; consecutive episodes of a file are copied together."""
        last_episode = self._queued[-1] if self._queued else episode
        if episode.file != last_episode.file or episode.positions[0] < last_episode.positions[-1]:
            self._copy_queued()
        self._queued.append(episode)

    def close(self) -> None:
        """Writes the queued episodes and the indices.

        Raises:
          DamagedDataError: A copied record is damaged.
        """
        with self._files:
            self._copy_queued()
        rows = [
            (start, layout.NO_METADATA if position is None else position.numeric)
            for start, position in self._episodes
        ]
        with self._open(self._shard / layout.EPISODE_INDEX_FILE) as writer:
            writer.write_message(layout.encode_positions(rows))
        offsets = layout.encode_positions(np.concatenate(self._positions))
        offsets.num_episodes = len(rows)
        with self._open(self._shard / layout.STEP_OFFSETS_FILE) as writer:
            writer.write_message(offsets)

    def abandon(self) -> None:
        """Closes the files of an incomplete log."""
        with contextlib.suppress(Exception):
            self._files.close()

    def _begin_episode(self, num_steps: int, metadata: bytes | None) -> None:
        position = None
        if metadata is not None:
            self._metadata.write_record(metadata)
            position = self._metadata.last_pos
        self._episodes.append((self._num_steps, position))
        self._num_steps += num_steps

    def _write(self, steps: Sequence[bytes]) -> None:
        write, positions = self._steps.write_record, []
        for step in steps:
            write(step)
            positions.append(self._steps.last_pos)
        self._positions.append(np.array([position.numeric for position in positions], np.int64))

    def _copy_queued(self) -> None:
        episodes, self._queued = self._queued, []
        if not episodes:
            return
        for episode in episodes:
            self._begin_episode(len(episode.positions), episode.metadata)
        positions = np.concatenate([episode.positions for episode in episodes])
        first_steps = _find_breaks(episodes)
        num_copied, file = 0, episodes[0].file
        try:
            with riegeli.RecordReader(file) as reader:
                while num_copied < len(positions):
                    remaining = positions[num_copied:]
                    num_copied += self._copy_chunk(reader, remaining, first_steps - num_copied)
        except riegeli.InvalidArgumentError as e:
            raise DamagedDataError(f"{file} is damaged: {e}") from e

    def _copy_chunk(
        self, reader: riegeli.RecordReader, positions: np.ndarray, first_steps: np.ndarray
    ) -> int:
        """Copies records of one chunk.

        Args:
          reader: The file.
          positions: The positions of the remaining records.
          first_steps: The indices of the steps to mark as the first step of an episode.

        Returns:
          The number of copied records.
        """
        chunk = reader.read_chunk(int(positions[0]))
        end = 0 if chunk is None else chunk.begin + chunk.num_records
        count = int(np.searchsorted(positions, end))
        if chunk is None or not count or chunk.begin > positions[0]:
            raise riegeli.InvalidArgumentError(f"no record begins at {positions[0]}")
        first_steps = first_steps[(first_steps >= 0) & (first_steps < count)]
        indices = positions[:count] - chunk.begin
        is_complete = count == chunk.num_records
        if is_complete and not len(first_steps):
            self._copy_stored_chunk(chunk)
            return count
        reader.seek(riegeli.RecordPosition(chunk.begin, 0))
        records = reader.read_batch()
        steps = [records[index] for index in indices.tolist()]
        marks = {step: _mark_first(steps[step]) for step in first_steps.tolist()}
        if is_complete and all(steps[step] == mark for step, mark in marks.items()):
            self._copy_stored_chunk(chunk)
            return count
        for step, mark in marks.items():
            steps[step] = mark
        self._write(steps)
        return count

    def _copy_stored_chunk(self, chunk: riegeli.StoredChunk) -> None:
        self._steps.write_chunk(chunk)
        position = self._steps.last_pos.chunk_begin
        self._positions.append(np.arange(position, position + chunk.num_records))


def _find_breaks(episodes: Sequence[EpisodePositions]) -> np.ndarray:
    """Returns the indices of the steps that do not follow the previous step in the source file."""
    breaks, step_index, end = [], 0, -1
    for episode in episodes:
        if episode.first_step != end:
            breaks.append(step_index)
        step_index += len(episode.positions)
        end = episode.first_step + len(episode.positions)
    return np.array(breaks, np.int64)


def _mark_first(step: bytes) -> bytes:
    """Marks a step as the begin of an episode."""
    kind = parse_kind(step)
    is_marked = kind.mark == Data.BEGINS or kind.step_type == dm_env.StepType.FIRST
    return step if is_marked else add_mark(step, Data.BEGINS)
