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
from envlogger.backends.riegeli_files.shard_writer import add_mark
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

# The intervals in seconds. In a store, each flush writes four objects, so flushes are rarer.
_FLUSH_INTERVAL_S = 5.0
_STORE_FLUSH_INTERVAL_S = 300.0

_FLUSH_TASK = ShardTask(lambda shards: shards.flush())


class RiegeliBackendWriter(QueueingBackendWriter):
    """Records to a directory of Riegeli files, for `envlogger.Reader`.

    Steps are serialized immediately; a thread compresses and writes them. Each writer begins a
    shard of its own, so several writers may record to one directory, at once or in turn. Readers
    see finished and flushed episodes; `close` finishes and flushes all episodes.

    Args:
      data_directory: A directory, created if missing, or a URL such as `gs://bucket/logs`.
      max_episodes_per_file: The maximum number of episodes per shard; no limit if not positive.
      writer_options: The compression and chunk size of the files, see `riegeli.RecordWriter`.
        None chooses for each chunk of steps: `zstd:3`, or `brotli:6` if the result is at least 5 %
        smaller and the thread has enough time, so the bytes of the files depend on timing.
      flush_scheduler: Chooses the recorded steps after which to call `flush` and wait for it. An
        episode scheduler flushes once for each chosen episode, at its first step. None flushes only
        after `flush_interval`.
      metadata: The metadata of the dataset. The metadata of an existing dataset are kept, with a
        warning if they differ.
      scheduler: Chooses the steps to record; None records all. See `BackendWriter`.
      flush_interval: The maximum time from recording a step to its flush, in seconds or as
        `datetime.timedelta`, with and without a `flush_scheduler`; None for no limit. "auto" is 5
        seconds on a disk, and 5 minutes in an object store, where the first episode after a flush
        begins another shard.
      sync: Whether a flush writes the data to the disk (`fsync`), so that the data survive a power
        failure; otherwise they are passed to the operating system, and survive only a crash of the
        process. In an object store, flushed data always survive both.
      max_pending_bytes: The size of the write queue; if it is full, recording waits. About the same
        space is reserved on the disk: if the disk is full, all accepted steps can still be written.
      reserve: A disk reserve of the caller, which stays open, instead of a reserve of this writer.
        The caller checks its `cause` and closes this writer, which accepts steps until then.

    Raises:
      StorageError: The directory cannot be created or written to, or is not a directory.
      UnsupportedTypeError: `metadata` hold a value of a type that cannot be stored.
      UnsupportedValueError: `metadata` hold a value that cannot be stored, or `writer_options` are
        invalid.
      DamagedDataError: The stored metadata of the directory cannot be read.
      ValueError: `flush_interval` or `max_pending_bytes` is not positive.

    If steps cannot be written, the next call raises `StorageError`, which reports the number of
    lost steps, and so does every later call; earlier data stay readable. If a step holds a value
    that cannot be stored, the call raises and the recording does not change.
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
                _FLUSH_INTERVAL_S if stores.is_local(data_directory) else _STORE_FLUSH_INTERVAL_S
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
                    step = add_mark(step, Data.BEGINS if is_new_episode else Data.CONTINUES)
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
                    self._background.finish(_FLUSH_TASK)
        except WritingError as e:
            raise self._create_error(e) from e.cause

    def _begin_episode(self, step: bytes) -> None:
        task = ShardTask(lambda shards: shards.begin_episode(step), len(step), num_steps=1)
        self._background.put(task)
        if not self._has_shard:  # Most errors occur here; waiting raises them.
            self._background.finish()
            self._has_shard = True

    def _set_episode_metadata(self, data: Any) -> None:
        metadata = codec.encode_to_bytes(data, name="episode_metadata")
        task = ShardTask(
            lambda shards: shards.current.set_episode_metadata(metadata), len(metadata)
        )
        self._call_background(self._background.put, task)

    def _discard_episode(self) -> None:
        self._call_background(
            self._background.put, ShardTask(lambda shards: shards.current.discard_episode())
        )
        self._is_after_last = False

    def _call_background(self, method: Callable[..., None], *tasks: ShardTask) -> None:
        """Calls a method of the background writer with its lock held."""
        try:
            with self._background.lock:
                method(*tasks)
        except WritingError as e:
            raise self._create_error(e) from e.cause

    def flush(self) -> None:
        """Writes all steps to the disk, makes finished episodes visible, and waits for the end.

        Raises:
          StorageError: A step could not be written.
          UsageError: The writer is closed.
        """
        super().flush()
        self._call_background(self._background.finish, _FLUSH_TASK)

    def push(self) -> None:
        """Passes all steps to the operating system, without waiting for the disk.

        After a crash of the process, `envlogger.recover` restores these steps, except in an object
        store. The call is fast enough for each step, because it runs in the calling thread. Readers
        see the steps after the next flush. If an asynchronous exception such as `KeyboardInterrupt`
        interrupts the call, the recording ends.

        Raises:
          StorageError: A step could not be written.
          UsageError: The writer is closed.
        """
        self._check_open()
        self._call_background(self._background.push)

    def close(self) -> None:
        """Ends the running episode and writes everything to disk; further calls do nothing.

        Raises:
          StorageError: Pending steps cannot be written, and no earlier call raised the error.
        """
        if self._is_inherited:
            return
        self._closed = True
        try:
            self._background.close()
        except WritingError as e:
            if not self._failure_was_reported:
                raise self._create_error(e) from e.cause
        finally:
            self._free_reserve()

    def _free_reserve(self) -> None:
        if self._owns_reserve:
            self.reserve.close()

    def _create_error(self, failure: WritingError) -> StorageError:
        """Returns the error to raise for a failed write, with the data loss reported once."""
        if self._failure_was_reported:
            return StorageError(
                f"recording to {self._directory} has stopped after an earlier failure; data from "
                "before it is readable. Make a new recorder to continue"
            )
        self._failure_was_reported = True
        outcome = "all steps that were recorded are readable"
        if failure.num_lost_steps is None:
            outcome = "an unknown number of the last steps is lost"
        elif failure.num_lost_steps:
            outcome = f"the last {failure.num_lost_steps} steps are lost, those before are readable"
        return StorageError(
            f"cannot write to {self._directory}, recording stops here: {failure.cause}; {outcome}. "
            "Remove the cause, and make a new recorder to continue"
        )


def _store_metadata(
    directory: epath.Path, metadata: dict[str, Any] | None, writer_options: str
) -> None:
    """Writes the metadata of the dataset, or compares it with the stored metadata."""
    encoded = codec.encode(metadata or {}, name="metadata")
    if store_metadata(directory, encoded, writer_options) or metadata is None:
        return
    log_metadata = read_metadata(directory)
    value = codec.decode(log_metadata)
    video, log_video = VideoFields(metadata), VideoFields(value if isinstance(value, dict) else {})
    if video.codecs != log_video.codecs:
        raise StorageError(
            f"the log in {directory} has video of {log_video.codecs or 'no field'}, and this "
            f"recorder records {video.codecs or 'none'}: record to another directory"
        )
    if _normalize(log_metadata) != _normalize(encoded):
        warnings.warn(
            f"{directory / layout.METADATA_FILE} keeps its metadata: the new metadata differs and "
            "is not stored; record to another directory to store it",
            stacklevel=3,
        )


def _normalize(metadata: Data) -> bytes:
    """Returns bytes that are equal for equal metadata of any version of EnvLogger."""
    value = _drop_empty(codec.decode(metadata))
    return codec.encode(value).SerializeToString(deterministic=True)


def _drop_empty(value: Any) -> Any:
    """Replaces empty containers and arrays by None, as EnvLogger up to 1.3 stores them."""
    if isinstance(value, dict) and value:
        return {key: _drop_empty(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and value:
        return tuple(_drop_empty(item) for item in value)
    is_container = isinstance(value, dict | list | tuple)  # Empty containers become None.
    is_empty_array = isinstance(value, np.ndarray) and value.size == 0
    return None if is_container or is_empty_array else value
