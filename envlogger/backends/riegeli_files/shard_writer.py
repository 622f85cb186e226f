"""Writer of one shard of an EnvLogger dataset; see `layout` for its files."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from etils import epath

from envlogger.backends.riegeli_files import layout
from envlogger.backends.riegeli_files.chunk_compression import ChunkCompression
from envlogger.backends.riegeli_files.disk_reserve import DiskReserve
from envlogger.backends.riegeli_files.growing_file import GrowingFile
from envlogger.proto.storage_pb2 import Data

__all__ = ["ShardWriter", "add_mark"]


def add_mark(step: bytes, mark: Data.EpisodeMark) -> bytes:
    """Adds an episode mark, such as `BEGINS`, to a serialized step."""
    return step + Data(episode_mark=mark).SerializeToString()


@dataclasses.dataclass
class _Episode:
    start: int
    metadata: bytes | None = None
    is_metadata_written: bool = True


class ShardWriter:
    """Appends serialized steps to a new shard.

    Steps are written continuously, but only complete episodes are indexed and thus visible: readers
    assign all steps at the end of a shard to its last episode, so steps of the running episode
    would be assigned to the previous episode.

    Args:
      directory: The empty directory of the shard.
      options: The Riegeli options of the files, see `riegeli.RecordWriter`.
      reserve: The disk space to release when the disk is full.
      compression: Chooses the compression of each chunk of steps, instead of the options.
      sync: Whether flushed steps survive a power failure as well as a crash of the process.

    Attributes:
      num_episodes: The number of episodes that have begun in the shard.
      was_flushed: Whether the shard was flushed at least once.

    Raises:
      OSError: A file cannot be created.
      riegeli.RiegeliError: The options are invalid.
    """

    def __init__(
        self,
        directory: epath.Path,
        options: str,
        reserve: DiskReserve | None = None,
        compression: ChunkCompression | None = None,
        *,
        sync: bool = True,
    ) -> None:
        with contextlib.ExitStack() as on_error:

            def open_file(name: str, compression: ChunkCompression | None = None) -> GrowingFile:
                file = GrowingFile(directory / name, options, reserve, compression)
                return on_error.enter_context(contextlib.closing(file))

            # Files are closed in reverse order, and then appear in a store: indexes must be last.
            self._step_offsets = open_file(layout.STEP_OFFSETS_FILE)
            self._episode_index = open_file(layout.EPISODE_INDEX_FILE)
            self._episode_metadata = open_file(layout.EPISODE_METADATA_FILE)
            self._steps = open_file(layout.STEPS_FILE, compression)
            self._files = on_error.pop_all()
        self._sync = sync
        self.num_episodes = 0
        self.was_flushed = False
        self._num_steps = 0
        self._num_indexed_steps = 0
        # Episodes that are not in the index yet; the last of them is running. The record positions
        # of their steps are `self._steps.positions`.
        self._pending_episodes: list[_Episode] = []
        self._is_indexing = False

    def add_steps(self, steps: Sequence[bytes]) -> None:
        """Appends steps to the running episode."""
        self._steps.write(steps)
        self._num_steps += len(steps)

    def begin_episode(self, step: bytes) -> None:
        """Begins an episode with its first step."""
        start = self._num_steps
        self.add_steps([step])
        self._pending_episodes.append(_Episode(start))
        self.num_episodes += 1

    def set_episode_metadata(self, metadata: bytes) -> None:
        """Sets the metadata of the running episode."""
        episode = self._pending_episodes[-1]
        episode.metadata = metadata
        episode.is_metadata_written = False

    def discard_episode(self) -> None:
        """Discards the running episode; its written steps stay invisible."""
        # After `push`, positions may be deleted.
        self._steps.push()
        episode = self._pending_episodes.pop()
        self.num_episodes -= 1
        del self._steps.positions[episode.start - self._num_indexed_steps :]
        self._num_steps = episode.start
        self._write_recovery_record(add_mark(b"", Data.DISCARDED))

    def push(self) -> None:
        """Passes all steps to the operating system, with the metadata of the running episode."""
        self._steps.push()
        if self._pending_episodes:
            self._write_running_metadata(self._pending_episodes[-1])

    def flush(self) -> None:
        """Writes all steps to the files, and makes all episodes but the running one visible."""
        self.was_flushed = True
        self._steps.push()
        finished: list[_Episode] = []
        num_steps = 0
        if self._pending_episodes:
            *finished, running = self._pending_episodes
            num_steps = running.start - self._num_indexed_steps
            self._write_running_metadata(running)
        self._sync_if_enabled(self._steps)
        self._index(finished, num_steps)

    def close(self) -> None:
        """Ends the running episode, makes it visible, and closes the files."""
        self._steps.push()
        self._sync_if_enabled(self._steps)
        self._index(list(self._pending_episodes), len(self._steps.positions))
        self._files.close()

    def salvage(self) -> int:
        """Closes the files after a failure, and makes the written episodes visible.

        If the index cannot be written, its earlier entries stay valid.

        Returns:
          The number of accepted steps that are lost.
        """
        num_steps = self._steps.salvage()
        index_files = (self._episode_metadata, self._episode_index, self._step_offsets)
        if self._steps.has_failed_upload:  # Uploads of the index would fail, too.
            for file in index_files:
                file.discard()
            return self._num_steps - self._num_indexed_steps
        with contextlib.suppress(Exception):  # The caller knows the failure.
            if not self._is_indexing:
                end_step = self._num_indexed_steps + num_steps
                episodes = [e for e in self._pending_episodes if e.start < end_step]
                self._index(episodes, num_steps)
        for file in index_files:
            file.salvage()
        return self._num_steps - self._num_indexed_steps

    def _write_running_metadata(self, running: _Episode) -> None:
        """Writes the metadata of the running episode before the index can refer to it."""
        if running.metadata is not None and not running.is_metadata_written:
            self._write_recovery_record(add_mark(running.metadata, Data.METADATA))
            running.is_metadata_written = True

    def _write_recovery_record(self, record: bytes) -> None:
        """Appends a record that is not a step, for crash recovery."""
        self._steps.write([record])
        self._steps.push()
        self._steps.positions.pop()

    def _index(self, episodes: list[_Episode], num_steps: int) -> None:
        """Indexes the first pending episodes, which have `num_steps` steps together."""
        if not num_steps:
            return
        self._is_indexing = True
        metadata_offsets = self._write_metadata(episodes)
        # This slow call comes first: a crash between the index and the offsets leaves episodes
        # without steps, which the published EnvLogger cannot read.
        self._sync_if_enabled(self._episode_metadata)
        if episodes:
            starts = [episode.start for episode in episodes]
            rows = layout.encode_positions(list(zip(starts, metadata_offsets)))
            self._episode_index.write([rows.SerializeToString()])
            self._episode_index.push()
        del self._pending_episodes[: len(episodes)]
        self._sync_if_enabled(self._episode_index)
        # The offsets come last: readers ignore episodes without steps, but not steps without
        # episodes.
        positions = self._steps.positions[:num_steps]
        offsets = layout.encode_positions([position.numeric for position in positions])
        offsets.num_episodes = self.num_episodes - len(self._pending_episodes)
        self._step_offsets.write([offsets.SerializeToString()])
        self._step_offsets.push()
        del self._steps.positions[:num_steps]
        self._num_indexed_steps += num_steps
        self._sync_if_enabled(self._step_offsets)
        self._is_indexing = False

    def _sync_if_enabled(self, file: GrowingFile) -> None:
        if self._sync:
            file.sync()

    def _write_metadata(self, episodes: list[_Episode]) -> list[int]:
        file = self._episode_metadata
        file.write([e.metadata for e in episodes if e.metadata is not None])
        file.push()
        offsets = iter([position.numeric for position in file.positions])
        file.positions.clear()
        return [layout.NO_METADATA if e.metadata is None else next(offsets) for e in episodes]
