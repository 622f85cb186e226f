"""Writes one shard of a dataset in Riegeli format; see `riegeli_layout` for its files."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import numpy as np
from etils import epath

import riegeli
from envlogger.backends import riegeli_layout as layout
from envlogger.converters import codec

__all__ = ["ShardWriter"]


@dataclasses.dataclass
class _Episode:
    start: int
    metadata: bytes | None = None


class ShardWriter:
    """Appends serialized steps to a new shard.

    Steps are written as they come, but the index that makes them visible covers complete episodes
    only: readers take all steps at the end of a shard for its last episode, so steps of the running
    episode would be added to the one before it.

    Args:
      directory: The empty directory of the shard.
      options: How the files are written, see `riegeli.RecordWriter`.

    Raises:
      OSError: A file cannot be made.
      riegeli.RiegeliError: The options are wrong.
    """

    def __init__(self, directory: epath.Path, options: str) -> None:
        self._local = layout.is_local(directory)
        with contextlib.ExitStack() as on_error:

            def open_file(name: str) -> riegeli.RecordWriter:
                # Unbuffered, because the writer hands over whole chunks: what it wrote is with the
                # system.
                dest: Any = directory / name
                if self._local:
                    dest = on_error.enter_context(open(dest, "xb", buffering=0))
                return on_error.enter_context(riegeli.RecordWriter(dest, options=options))

            self._steps = open_file(layout.STEPS_FILE)
            self._step_offsets = open_file(layout.STEP_OFFSETS_FILE)
            self._episode_metadata = open_file(layout.EPISODE_METADATA_FILE)
            self._episode_index = open_file(layout.EPISODE_INDEX_FILE)
            self._files = on_error.pop_all()
        self.num_episodes = 0
        self._num_indexed_steps = 0
        # What the index does not cover yet. The last episode is the running one.
        self._pending_positions: list[riegeli.RecordPosition] = []
        self._pending_episodes: list[_Episode] = []
        self._is_indexing = False

    def add_step(self, step: bytes, is_new_episode: bool) -> None:
        """Appends a step; the first one must begin an episode."""
        self._steps.write_record(step)
        if is_new_episode:
            start = self._num_indexed_steps + len(self._pending_positions)
            self._pending_episodes.append(_Episode(start))
            self.num_episodes += 1
        # Where it will be is known when chunks before it are encoded, perhaps in other threads.
        self._pending_positions.append(self._steps.last_pos)

    def set_episode_metadata(self, metadata: bytes) -> None:
        """Sets the metadata of the running episode."""
        self._pending_episodes[-1].metadata = metadata

    def flush(self) -> None:
        """Brings all steps to the disk, and makes all episodes but the running one visible."""
        self._steps.flush(riegeli.FlushType.FROM_MACHINE)
        *finished, running = self._pending_episodes
        self._index(finished, running.start - self._num_indexed_steps)

    def close(self) -> None:
        """Ends the running episode, makes it visible, and closes the files."""
        self._steps.flush(riegeli.FlushType.FROM_MACHINE)
        self._index(list(self._pending_episodes), len(self._pending_positions))
        self._files.close()

    def abandon(self) -> None:
        """Closes the files after a failure, and makes visible what did reach the file of steps.

        Does what is possible: where the index cannot be written, what it covers already remains.
        """
        # Files that have failed raise their error again, be it the interrupt of a user.
        with contextlib.suppress(BaseException), self._files:
            if not self._is_indexing:
                self._index_written_steps()

    def _index_written_steps(self) -> None:
        with contextlib.suppress(BaseException):
            self._steps.flush(riegeli.FlushType.FROM_MACHINE)
        end = self._steps.estimated_size()  # Where the torn chunk begins, if there is one.
        if self._local:
            self._steps.dest.truncate(end)  # Makes room for the index on a full disk.
        num_steps = sum(_is_before(end, position) for position in self._pending_positions)
        end_step = self._num_indexed_steps + num_steps
        self._index([e for e in self._pending_episodes if e.start < end_step], num_steps)

    def _index(self, episodes: list[_Episode], num_steps: int) -> None:
        """Makes the first pending episodes, which have the first `num_steps` steps, visible."""
        if not episodes:
            return
        self._is_indexing = True
        rows = []
        for episode in episodes:
            position = layout.NO_METADATA
            if episode.metadata is not None:
                self._episode_metadata.write_record(episode.metadata)
                position = self._episode_metadata.last_pos.numeric
            rows.append((episode.start, position))
        self._episode_metadata.flush(riegeli.FlushType.FROM_MACHINE)
        # The offsets come last: readers ignore episodes without steps, but not steps without
        # episodes.
        _write_array(self._episode_index, rows)
        positions = self._pending_positions[:num_steps]
        _write_array(self._step_offsets, [position.numeric for position in positions])
        del self._pending_episodes[: len(episodes)]
        del self._pending_positions[:num_steps]
        self._num_indexed_steps += num_steps
        self._is_indexing = False


def _is_before(end: int, position: riegeli.RecordPosition) -> bool:
    try:
        return position.numeric < end
    except riegeli.FailedPreconditionError:  # Its chunk was given up before it was encoded.
        return False


def _write_array(writer: riegeli.RecordWriter, values: list[int] | list[tuple[int, int]]) -> None:
    datum = codec.encode(np.array(values, dtype=np.int64)).datum
    writer.write_record(datum.SerializeToString())
    writer.flush(riegeli.FlushType.FROM_MACHINE)
