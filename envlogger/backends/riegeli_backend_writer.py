"""Records steps to a directory of Riegeli files."""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Callable
from typing import Any, Literal

import dm_env
import numpy as np
from etils import epath

from envlogger.backends.backend_writer import QueueingBackendWriter
from envlogger.backends.directories import directory_to_write
from envlogger.backends.riegeli_files import layout
from envlogger.backends.riegeli_files.background import BackgroundWriter, ShardTask, WritingError
from envlogger.backends.riegeli_files.chunk_compression import FAST, ChunkCompression
from envlogger.backends.riegeli_files.disk_reserve import DiskReserve
from envlogger.backends.riegeli_files.shard_reader import read_metadata
from envlogger.backends.riegeli_files.shard_sequence import ShardSequence, store_metadata
from envlogger.backends.riegeli_files.shard_writer import marked
from envlogger.backends.schedulers import EpisodeScheduler, Scheduler
from envlogger.converters import codec
from envlogger.converters.step_encoder import StepEncoder
from envlogger.converters.video_fields import VideoFields
from envlogger.errors import StorageError
from envlogger.proto.storage_pb2 import Data
from envlogger.step_data import StepData
from rlds_ecosystem.files import stores

__all__ = ["DEFAULT_WRITER_OPTIONS", "RiegeliBackendWriter"]

DEFAULT_WRITER_OPTIONS = f"{FAST},chunk_size:1M"

_DEFAULT_MAX_PENDING_BYTES = 1 << 24

# In seconds. A store gets four objects for each flush.
_FLUSH_INTERVAL = 5.0
_FLUSH_INTERVAL_IN_STORE = 300.0

_FLUSH = ShardTask(lambda shards: shards.flush())


class RiegeliBackendWriter(QueueingBackendWriter):
    """Records to a directory of Riegeli files, to be read by `envlogger.Reader`.

    Steps are serialized at once, and compressed and written by a thread. Each writer begins a shard
    of its own, so several may record to one directory, at once or in turn. Episodes become visible
    to readers once they are finished and flushed; `close` does both.

    Args:
      data_directory: A directory, made if it is missing, or a URL such as `gs://bucket/logs`.
      max_episodes_per_file: The maximum number of episodes per shard; no limit if not positive.
      writer_options: The compression and chunk size of the files, see `riegeli.RecordWriter`.
        None chooses for each chunk of steps: `zstd:3`, or `brotli:6` where that is at least 5 %
        smaller and the thread has time for it. Which bytes are written then depends on timing.
      flush_scheduler: Says after which recorded steps to call `flush`, and wait for it. An episode
        scheduler flushes once for each chosen episode, at its first step. None leaves it to
        `flush_interval`.
      metadata: The metadata of the dataset. If the directory has a dataset already,
        its metadata is kept, with a warning if this is different.
      scheduler: Says which steps are recorded; None records all. See `BackendWriter`.
      flush_interval: After what time at the latest, in seconds or as `datetime.timedelta`, the
        thread flushes a step, with and without a `flush_scheduler`; None for never. "auto" is 5
        seconds on a disk, and 5 minutes in an object store, where the first episode after a flush
        begins another shard.
      sync: Whether flushing brings the data to the disk (`fsync`), so that it survives a failure of
        power too; otherwise it goes to the system, and survives only the death of the process. In
        an object store it always does.
      max_pending_bytes: The size of the write queue; when it is full, recording waits.
        About this much space is kept free on the disk while recording: when the disk is full, all
        steps that were accepted can still be written.
      reserve: Space on the disk that is kept elsewhere, in place of its own; stays open. Its keeper
        looks at its `cause`, and closes this: until then, all is accepted.

    Raises:
      StorageError: The directory cannot be made, is none, or cannot be written to; says what to
        do.
      UnsupportedTypeError: `metadata` holds something that cannot be stored; says where.
      UnsupportedValueError: Likewise; or `writer_options` are wrong.
      DamagedDataError: The metadata that is in the directory cannot be read.
      ValueError: `flush_interval` or `max_pending_bytes` is not positive.

    Once steps cannot be written, the next call raises `StorageError`, which says whether any that
    were accepted are lost, and so does every later call; what was written before stays readable.
    A step that is refused, because it holds something that cannot be stored, leaves no trace.
    """

    keeps_ended_episodes = False

    def __init__(
        self,
        data_directory: str | os.PathLike[str],
        max_episodes_per_file: int = 10000,
        writer_options: str | None = None,
        flush_scheduler: Scheduler | None = None,
        metadata: dict[str, Any] | None = None,
        scheduler: Scheduler | None = None,
        *,
        flush_interval: datetime.timedelta | float | Literal["auto"] | None = "auto",
        sync: bool = True,
        max_pending_bytes: int = _DEFAULT_MAX_PENDING_BYTES,
        reserve: DiskReserve | None = None,
    ) -> None:
        if flush_interval == "auto":
            flush_interval = (
                _FLUSH_INTERVAL if stores.is_local(data_directory) else _FLUSH_INTERVAL_IN_STORE
            )
        if isinstance(flush_interval, datetime.timedelta):
            flush_interval = flush_interval.total_seconds()
        if flush_interval is not None and not flush_interval > 0:
            raise ValueError(f"flush_interval must be positive, got {flush_interval}")
        if not max_pending_bytes > 0:
            raise ValueError(f"max_pending_bytes must be positive, got {max_pending_bytes}")
        self._failure_was_reported = False
        self._encode_step = StepEncoder().encode
        self._has_shard = False
        self._is_after_last = False
        self._flush_scheduler = flush_scheduler
        compression = ChunkCompression() if writer_options is None else None
        writer_options = DEFAULT_WRITER_OPTIONS if writer_options is None else writer_options
        self._directory = directory_to_write(data_directory)
        self.reserve = reserve or DiskReserve(self._directory, max_pending_bytes)
        self._owns_reserve = reserve is None
        try:
            _store_metadata(self._directory, metadata, writer_options)
        except BaseException:
            self._free_reserve()
            raise
        self._shards = ShardSequence(
            self._directory,
            max_episodes_per_file,
            writer_options,
            sync=sync,
            reserve=self.reserve,
            compression=compression,
        )
        self._shards.ends_on_error = self._owns_reserve
        self._background = BackgroundWriter(self._shards, flush_interval, max_pending_bytes)
        if compression is not None:
            compression.is_idle = self._background.is_idle
        super().__init__(metadata=metadata, scheduler=scheduler)

    def _record_step(self, data: StepData, is_new_episode: bool) -> None:
        step = self._encode_step(data)
        step_type = data.timestep.step_type
        try:
            with self._background.lock:
                seems_new = self._is_after_last or step_type is dm_env.StepType.FIRST
                self._is_after_last = step_type is dm_env.StepType.LAST
                if is_new_episode is not seems_new:
                    step = marked(step, Data.BEGINS if is_new_episode else Data.CONTINUES)
                if is_new_episode:
                    self._begin_episode(step)
                else:
                    self._background.add_step(step)
                scheduler = self._flush_scheduler
                if (
                    scheduler is not None
                    and scheduler(data)
                    and (is_new_episode or not isinstance(scheduler, EpisodeScheduler))
                ):
                    self._background.finish(_FLUSH)
        except WritingError as e:
            raise self._failure_of(e) from e.cause

    def _begin_episode(self, step: bytes) -> None:
        job = ShardTask(lambda shards: shards.begin_episode(step), len(step), num_steps=1)
        self._background.put(job)
        if not self._has_shard:  # Most errors occur now: report them at once.
            self._background.finish()
            self._has_shard = True

    def _set_episode_metadata(self, data: Any) -> None:
        metadata = codec.encode_to_bytes(data, name="episode_metadata")
        job = ShardTask(lambda shards: shards.current.set_episode_metadata(metadata), len(metadata))
        self._in_turn(self._background.put, job)

    def _discard_episode(self) -> None:
        self._in_turn(
            self._background.put, ShardTask(lambda shards: shards.current.discard_episode())
        )
        self._is_after_last = False

    def _in_turn(self, method: Callable[..., None], *jobs: ShardTask) -> None:
        """Calls a method of the background writer, which needs its lock."""
        try:
            with self._background.lock:
                method(*jobs)
        except WritingError as e:
            raise self._failure_of(e) from e.cause

    def flush(self) -> None:
        """Brings all steps to the disk, and makes all episodes but the running one visible.

        Returns when that is done.

        Raises:
          StorageError: Not all could be written.
          UsageError: The writer is closed.
        """
        super().flush()
        self._in_turn(self._background.finish, _FLUSH)

    def push(self) -> None:
        """Hands all steps to the system, without waiting for the disk.

        They survive the death of the process then: `envlogger.recover` finds them. Not so in an
        object store. This costs little enough to call it after each step, because it happens here,
        not in the thread; readers see nothing of it before the next flush. An exception that comes
        from outside, such as `KeyboardInterrupt`, ends the recording if it interrupts this.

        Raises:
          StorageError: Not all could be written.
          UsageError: The writer is closed.
        """
        self._check_open()
        self._in_turn(self._background.push)

    def close(self) -> None:
        """Ends the running episode and writes everything to disk; further calls do nothing.

        Raises:
          StorageError: The rest cannot be written, and no call has reported it yet.
        """
        if self._is_inherited:
            return
        self._closed = True
        try:
            self._background.close()
        except WritingError as e:
            if not self._failure_was_reported:
                raise self._failure_of(e) from e.cause
        finally:
            self._free_reserve()

    def _free_reserve(self) -> None:
        if self._owns_reserve:
            self.reserve.close()

    def _failure_of(self, failed: WritingError) -> StorageError:
        """Returns the error to raise for a failed write, with the data loss reported once."""
        if self._failure_was_reported:
            return StorageError(
                f"recording to {self._directory} has stopped after an earlier failure; data from "
                "before it is readable. Make a new recorder to continue"
            )
        self._failure_was_reported = True
        outcome = "all steps that were recorded are readable"
        if failed.num_lost_steps is None:
            outcome = "an unknown number of the last steps is lost"
        elif failed.num_lost_steps:
            outcome = f"the last {failed.num_lost_steps} steps are lost, those before are readable"
        return StorageError(
            f"cannot write to {self._directory}, recording stops here: {failed.cause}; {outcome}. "
            "Remove the cause, and make a new recorder to continue"
        )


def _store_metadata(
    directory: epath.Path, metadata: dict[str, Any] | None, writer_options: str
) -> None:
    """Writes the metadata of the dataset, or compares it with the stored metadata."""
    encoded = codec.encode(metadata or {}, name="metadata")
    if store_metadata(directory, encoded, writer_options) or metadata is None:
        return
    stored = read_metadata(directory)
    decoded = codec.decode(stored)
    ours, theirs = VideoFields(metadata), VideoFields(decoded if isinstance(decoded, dict) else {})
    if ours.codecs != theirs.codecs:
        raise StorageError(
            f"the log in {directory} has video of {theirs.codecs or 'no field'}, and this recorder "
            f"records {ours.codecs or 'none'}: record to another directory"
        )
    if _comparable(stored) != _comparable(encoded):
        warnings.warn(
            f"{directory / layout.METADATA_FILE} keeps its metadata: the new metadata differs and "
            "is not stored; record to another directory to store it",
            stacklevel=3,
        )


def _comparable(metadata: Data) -> bytes:
    """Returns bytes that are equal for equal metadata of any version of EnvLogger."""
    value = _without_empties(codec.decode(metadata))
    return codec.encode(value).SerializeToString(deterministic=True)


def _without_empties(value: Any) -> Any:
    """Replaces empty containers and arrays by None, as EnvLogger up to 1.3 stores them."""
    if isinstance(value, dict) and value:
        return {key: _without_empties(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and value:
        return tuple(_without_empties(item) for item in value)
    is_container = isinstance(value, dict | list | tuple)  # And empty, or it would not get here.
    is_empty_array = isinstance(value, np.ndarray) and value.size == 0
    return None if is_container or is_empty_array else value
