"""Records steps to a directory of Riegeli files."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import tempfile
import threading
import uuid
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from etils import epath

import riegeli
from envlogger.backends import riegeli_layout as layout
from envlogger.backends.backend_writer import BackendWriter
from envlogger.backends.riegeli_shard_reader import read_metadata
from envlogger.backends.riegeli_shard_writer import ShardWriter
from envlogger.backends.schedulers import EpisodeScheduler, Scheduler, TimeScheduler
from envlogger.converters import codec
from envlogger.errors import StorageError, UnsupportedValueError
from envlogger.proto.storage_pb2 import Data
from envlogger.step_data import StepData

__all__ = ["DEFAULT_WRITER_OPTIONS", "RiegeliBackendWriter"]

DEFAULT_WRITER_OPTIONS = "zstd:3,chunk_size:1M"

# What a killed process or a power failure can cost, at the price of four `fsync`s each time.
_DEFAULT_FLUSH_INTERVAL = datetime.timedelta(seconds=5)


class RiegeliBackendWriter(BackendWriter):
    """Records to a directory of Riegeli files, to be read by `envlogger.Reader`.

    Each writer begins a shard of its own, so several may record to one directory, at once or in
    turn. Episodes become visible to readers once they are finished and flushed; `close` does both.

    Args:
      data_directory: An existing directory.
      max_episodes_per_file: How many episodes a shard takes; if it is not positive, all.
      writer_options: How the files are compressed and cut into chunks, see `riegeli.RecordWriter`.
      flush_scheduler: Says after which recorded steps data is flushed to the disk. None means about
        every 5 seconds. An episode scheduler flushes once for each chosen episode, at its first
        step.
      metadata: What is stored about the whole dataset. Where the directory has a dataset already,
        its metadata is kept, with a warning if this is different.
      scheduler: Says which steps are recorded; None records all. See `BackendWriter`.

    Raises:
      StorageError: The directory is missing, is none, or cannot be written to; says what to do.
      UnsupportedTypeError: `metadata` holds something that cannot be stored; says where.
      UnsupportedValueError: Likewise; or `writer_options` are wrong.
      DamagedDataError: The metadata that is in the directory cannot be read.

    Once a step cannot be written, `record_step` raises `StorageError`, and so does every later
    call; what was written before stays readable. A step that is refused, because it holds something
    that cannot be stored, leaves no trace.
    """

    def __init__(
        self,
        data_directory: str | os.PathLike[str],
        max_episodes_per_file: int = 10000,
        writer_options: str = DEFAULT_WRITER_OPTIONS,
        flush_scheduler: Scheduler | None = None,
        metadata: dict[str, Any] | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        super().__init__(metadata=metadata, scheduler=scheduler)
        self._lock = threading.Lock()
        self._shard: ShardWriter | None = None
        self._last_shard_time = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self._failure: StorageError | None = None
        self._max_episodes_per_file = max_episodes_per_file
        self._writer_options = writer_options
        self._flush_scheduler = flush_scheduler or TimeScheduler(_DEFAULT_FLUSH_INTERVAL)
        self._directory = layout.existing_directory(data_directory)
        _check_writable(self._directory)
        _store_metadata(self._directory, metadata, writer_options)

    def _record_step(self, data: StepData, is_new_episode: bool) -> None:
        step = codec.encode(data, name="step").SerializeToString()
        flush_is_due = self._flush_is_due(data, is_new_episode)
        with self._lock, self._stopping_on_failure():
            if is_new_episode:
                self._rotate()
            self._current_shard.add_step(step, is_new_episode)
            if flush_is_due:
                self._current_shard.flush()

    def _set_episode_metadata(self, data: Any) -> None:
        metadata = codec.encode(data, name="episode_metadata").SerializeToString()
        with self._lock, self._stopping_on_failure():
            self._current_shard.set_episode_metadata(metadata)

    def close(self) -> None:
        """Ends the running episode and brings everything to the disk; further calls do nothing.

        Raises:
          StorageError: The rest cannot be written.
        """
        if self._closed:
            return
        self._closed = True
        if self._shard is not None and self._failure is None:
            with self._lock, self._stopping_on_failure():
                self._shard.close()

    @property
    def _current_shard(self) -> ShardWriter:
        assert self._shard is not None  # The first recorded step begins an episode, hence a shard.
        return self._shard

    def _flush_is_due(self, data: StepData, is_new_episode: bool) -> bool:
        due = self._flush_scheduler(data)
        if isinstance(self._flush_scheduler, EpisodeScheduler):
            return due and is_new_episode
        return due

    def _rotate(self) -> None:
        """Begins a shard, if there is none or if it has its fill of episodes."""
        if self._shard is not None:
            if not 0 < self._max_episodes_per_file <= self._shard.num_episodes:
                return
            self._shard.close()
        self._shard = ShardWriter(self._make_shard_directory(), self._writer_options)

    def _make_shard_directory(self) -> epath.Path:
        while True:
            # Later shards sort behind earlier ones even when the clock is set back.
            self._last_shard_time = max(
                datetime.datetime.now(datetime.UTC),
                self._last_shard_time + datetime.timedelta(microseconds=1),
            )
            path = self._directory / self._last_shard_time.strftime(layout.SHARD_NAME_FORMAT)
            try:
                path.mkdir()
            except FileExistsError:  # Another writer was faster.
                continue
            return path

    @contextlib.contextmanager
    def _stopping_on_failure(self) -> Iterator[None]:
        if self._failure is not None:
            raise StorageError(
                f"recording to {self._directory} has stopped after an earlier failure; what was "
                "written before it is readable, make a new recorder to go on"
            ) from self._failure
        try:
            yield
        except BaseException as e:
            self._failure = StorageError(
                f"cannot write to {self._directory}, recording stops here: {e}; what was written "
                "before is readable, see to the cause and make a new recorder to go on"
            )
            if self._shard is not None:
                self._shard.abandon()
            if isinstance(e, OSError | riegeli.RiegeliError):
                raise self._failure from e
            raise


def _check_writable(directory: epath.Path) -> None:
    if not layout.is_local(directory):
        return
    try:
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as e:
        raise StorageError(
            f"cannot write to data_directory {directory}: {e}; check its permissions and the space "
            "left"
        ) from e


def _store_metadata(
    directory: epath.Path, metadata: dict[str, Any] | None, writer_options: str
) -> None:
    """Writes the metadata of the dataset, unless there is some; checks the options in any case."""
    encoded = codec.encode(metadata or {}, name="metadata")
    content = io.BytesIO()
    try:
        with riegeli.RecordWriter(content, owns_dest=False, options=writer_options) as writer:
            writer.write_record(encoded.SerializeToString())
    except riegeli.RiegeliError as e:
        raise UnsupportedValueError(
            f"cannot write with writer_options {writer_options!r}: {e}; the default is "
            f"{DEFAULT_WRITER_OPTIONS!r}"
        ) from e
    path = directory / layout.METADATA_FILE
    if not path.exists():
        _write_at_once(path, content.getvalue())
    elif metadata is not None and _comparable(read_metadata(directory)) != _comparable(encoded):
        warnings.warn(
            f"{path} is kept as it is, although the metadata given now is different; record to "
            "another directory to store it",
            stacklevel=3,
        )


def _comparable(metadata: Data) -> bytes:
    """The same bytes for the same metadata, whichever version of EnvLogger stored it."""
    value = _without_empties(codec.decode(metadata))
    return codec.encode(value).SerializeToString(deterministic=True)


def _without_empties(value: Any) -> Any:
    """EnvLogger up to 1.3 stores None in place of containers and arrays without elements."""
    if isinstance(value, dict) and value:
        return {key: _without_empties(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and value:
        return tuple(_without_empties(item) for item in value)
    is_container = isinstance(value, dict | list | tuple)  # And empty, or it would not get here.
    is_empty_array = isinstance(value, np.ndarray) and value.size == 0
    return None if is_container or is_empty_array else value


def _write_at_once(path: epath.Path, content: bytes) -> None:
    """Writes a file that others see either completely or not at all."""
    if not layout.is_local(path):
        path.write_bytes(content)  # Object stores show a file when it is complete.
        return
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(draft, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as e:
        draft.unlink(missing_ok=True)
        raise StorageError(f"cannot write {path}: {e}; check the space left") from e
