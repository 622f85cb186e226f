"""Writer of the shards of an EnvLogger dataset, one after the other."""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
from collections.abc import Sequence

from etils import epath

import riegeli
from envlogger.backends.riegeli_files import layout
from envlogger.backends.riegeli_files.chunk_compression import ChunkCompression
from envlogger.backends.riegeli_files.disk_reserve import DiskReserve
from envlogger.backends.riegeli_files.shard_writer import ShardWriter
from envlogger.errors import UnsupportedValueError, storage_errors
from envlogger.proto.storage_pb2 import Data
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.whole_files import SharedLock, write_atomically

__all__ = ["ShardSequence", "store_metadata"]


def store_metadata(directory: epath.Path, metadata: Data, options: str) -> bool:
    """Writes the metadata file of a dataset atomically, unless it exists.

    Args:
      directory: The directory of the dataset.
      metadata: The metadata of the dataset.
      options: The Riegeli options of files, see `riegeli.RecordWriter`; always checked.

    Returns:
      Whether the file was written.

    Raises:
      StorageError: The file cannot be written.
      UnsupportedValueError: The options are invalid.
    """
    content = io.BytesIO()
    try:
        with riegeli.RecordWriter(content, owns_dest=False, options=options) as writer:
            writer.write_record(metadata.SerializeToString())
    except riegeli.RiegeliError as e:
        raise UnsupportedValueError(
            f"cannot write with writer_options {options!r}: {e}; leave them out for the default"
        ) from e
    path = directory / layout.METADATA_FILE
    with storage_errors(path):
        if path.exists():
            return False
        write_atomically(path, content.getvalue())
    return True


class ShardSequence:
    """Appends serialized steps to new shards of a directory, next to existing shards.

    Args:
      directory: The directory of the dataset.
      max_episodes_per_file: The maximum number of episodes per shard; no limit if not positive.
      options: The Riegeli options of the files, see `riegeli.RecordWriter`.
      sync: Whether flushed steps survive a power failure (`fsync`).
      reserve: The disk space to release when the disk is full.
      compression: Chooses the compression of each chunk of steps, instead of the options.

    Attributes:
      pending_error: The error that ends the recording after accepted steps are written: the disk is
        full except for the reserve, or a new shard could not be created.
      is_over: Whether the recording accepts no more steps.
      ends_on_error: Whether a pending error ends the recording; False if a wrapper checks the
        reserve.

    The methods raise `OSError` if a file cannot be written; then only `salvage` may be called.
    """

    def __init__(
        self,
        directory: epath.Path,
        max_episodes_per_file: int,
        options: str,
        *,
        sync: bool = True,
        reserve: DiskReserve | None = None,
        compression: ChunkCompression | None = None,
    ) -> None:
        self._directory, self._shared_lock = directory, SharedLock(directory)
        self._max_episodes_per_file = max_episodes_per_file
        # In a store, each sync uploads a whole file. A shard ends with the first episode after a
        # flush, so that few bytes are uploaded again.
        self._is_local = stores.is_local(directory)
        self._open_shard = functools.partial(
            ShardWriter,
            options=options,
            reserve=reserve,
            compression=compression,
            sync=sync or not self._is_local,
        )
        self._reserve, self.ends_on_error = reserve, True
        self._shard: ShardWriter | None = None
        self._last_shard_time = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def begin_episode(self, step: bytes) -> None:
        """Begins an episode with its first step, in a new shard if the current one is full."""
        if self._shard is None:
            self._shard = self._create_shard()
        elif 0 < self._max_episodes_per_file <= self._shard.num_episodes or (
            self._shard.was_flushed and not self._is_local
        ):
            self._rotate(self._shard)
        self.current.begin_episode(step)

    def _rotate(self, old: ShardWriter) -> None:
        try:
            new = self._create_shard()
        except OSError as e:
            if self._reserve is not None:
                self._reserve.cause = self._reserve.cause or e
            return
        try:
            old.close()
        except BaseException:
            new.salvage()
            raise
        self._shard = new

    def add_steps(self, steps: Sequence[bytes]) -> None:
        """Appends steps to the running episode."""
        self.current.add_steps(steps)

    def flush(self) -> None:
        """Writes all steps to the files, and makes all episodes but the running one visible."""
        if self._shard is not None:
            self._shard.flush()

    def push(self) -> None:
        """Passes all steps to the operating system."""
        if self._shard is not None:
            self._shard.push()

    def close(self) -> None:
        """Ends the running episode, makes it visible, and closes the files."""
        if self._shard is not None:
            self._shard.close()
            self._shard = None
        self._shared_lock.close()

    def salvage(self) -> int:
        """Closes the files after a failure, and makes the written steps visible.

        Returns:
          The number of accepted steps that are lost.
        """
        shard, self._shard = self._shard, None
        self._shared_lock.close()
        return shard.salvage() if shard is not None else 0

    @property
    def pending_error(self) -> BaseException | None:
        """The error that ends the recording after accepted steps are written."""
        return self._reserve.cause if self._reserve is not None else None

    @property
    def is_over(self) -> bool:
        """Whether the recording accepts no more steps."""
        is_last_error = self._reserve is not None and self._reserve.ends_recording
        return self.ends_on_error and is_last_error and self.pending_error is not None

    @property
    def current(self) -> ShardWriter:
        """The shard of the running episode."""
        assert self._shard is not None  # The first recorded step begins an episode, hence a shard.
        return self._shard

    def _create_shard(self) -> ShardWriter:
        path = self._create_directory()
        try:
            return self._open_shard(path)
        except BaseException:
            with contextlib.suppress(Exception):  # An empty directory may stay.
                path.rmtree()
            raise

    def _create_directory(self) -> epath.Path:
        while True:
            # Later shards sort after earlier shards even if the clock is set back.
            self._last_shard_time = max(
                datetime.datetime.now(datetime.UTC),
                self._last_shard_time + datetime.timedelta(microseconds=1),
            )
            path = self._directory / self._last_shard_time.strftime(layout.SHARD_NAME_FORMAT)
            if not self._is_local:
                return path
            try:
                path.mkdir()
            except FileExistsError:  # Another writer was faster.
                continue
            return path
