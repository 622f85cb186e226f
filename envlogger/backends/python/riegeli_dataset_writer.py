"""Writes serialized messages as steps of a dataset in Riegeli format."""

from __future__ import annotations

import os
from typing import NoReturn

from google.protobuf.message import Message

from envlogger.backends.directories import directory_to_write
from envlogger.backends.riegeli_files.shard_sequence import ShardSequence, store_metadata
from envlogger.errors import UsageError, storage_errors
from envlogger.proto.storage_pb2 import Data

__all__ = ["RiegeliDatasetWriter"]

_DEFAULT_WRITER_OPTIONS = "transpose,brotli:6,chunk_size:1M"


class RiegeliDatasetWriter:
    """Writes messages of any type as the steps of a dataset, in the calling thread.

    This is the interface of the compiled extension of EnvLogger, for code that stores its own
    messages; for steps of an environment, use `RiegeliBackendWriter`.

    >>> import tempfile
    >>> from envlogger.backends.python.riegeli_dataset_reader import RiegeliDatasetReader
    >>> from envlogger.converters import codec
    >>> writer, reader = RiegeliDatasetWriter(), RiegeliDatasetReader()
    >>> with tempfile.TemporaryDirectory() as data_dir:
    ...     writer.init(data_dir)
    ...     _ = writer.add_step(codec.encode("hello"), is_new_episode=True)
    ...     writer.close()
    ...     reader.init(data_dir)
    ...     codec.decode(reader.step(0))
    ...     reader.close()
    'hello'
    """

    def __init__(self) -> None:
        self._shards: _Shards | None = None
        self._data_dir = ""
        self._max_episodes_per_shard = 0
        self._writer_options = ""
        self._episode_counter = 0

    def init(
        self,
        data_dir: str | os.PathLike[str],
        metadata: Data | None = None,
        max_episodes_per_shard: int = 0,
        writer_options: str = _DEFAULT_WRITER_OPTIONS,
    ) -> None:
        """Opens a directory; call this once, before all other methods.

        Args:
          data_dir: A directory; created if missing.
          metadata: The metadata of the dataset; ignored if the directory has metadata.
          max_episodes_per_shard: The maximum number of episodes per shard; no limit if not
            positive.
          writer_options: The Riegeli options of the files, see `riegeli.RecordWriter`.

        Raises:
          StorageError: The directory cannot be created or written to.
          UnsupportedValueError: The options are invalid.
          UsageError: The writer is initialized already.
        """
        if self._shards is not None or self._data_dir:
            raise UsageError("this RiegeliDatasetWriter is initialized already; make a new one")
        directory = directory_to_write(data_dir)
        store_metadata(directory, metadata or Data(), writer_options)
        with storage_errors(directory):
            shards = _Shards(directory, max_episodes_per_shard, writer_options)
            if max_episodes_per_shard <= 0:
                shards.begin()
        self._shards = shards
        self._data_dir = os.fspath(data_dir)
        self._max_episodes_per_shard = max_episodes_per_shard
        self._writer_options = writer_options

    def add_step(self, data: Message, is_new_episode: bool = False) -> bool:
        """Appends a message; always returns True.

        Steps before the first episode belong to no episode; read them by their index.

        Raises:
          StorageError: The step cannot be written.
          UsageError: The writer is not initialized, or closed.
        """
        shards = self._open_shards()
        step = data.SerializeToString()
        with storage_errors(self._data_dir):
            if is_new_episode:
                shards.begin_episode(step)
                self._episode_counter += 1
            else:
                shards.begin()
                shards.add_steps([step])
        return True

    def set_episode_metadata(self, data: Data) -> None:
        """Sets the metadata of the running episode; does nothing before the first episode."""
        if self._episode_counter:
            self._open_shards().current.set_episode_metadata(data.SerializeToString())

    def flush(self) -> None:
        """Writes all steps to disk, and makes all episodes but the running one visible.

        Raises:
          StorageError: A step cannot be written.
          UsageError: The writer is not initialized, or closed.
        """
        shards = self._open_shards()
        with storage_errors(self._data_dir):
            shards.flush()

    def close(self) -> None:
        """Ends the running episode and closes the files; further calls do nothing.

        Raises:
          StorageError: Pending steps cannot be written.
        """
        shards, self._shards = self._shards, None
        if shards is not None:
            with storage_errors(self._data_dir):
                shards.close()

    def data_dir(self) -> str:
        """Returns the directory, as passed to `init`."""
        return self._data_dir

    def max_episodes_per_shard(self) -> int:
        """Returns the maximum number of episodes per shard, as passed to `init`."""
        return self._max_episodes_per_shard

    def writer_options(self) -> str:
        """Returns the Riegeli options of the files, as passed to `init`."""
        return self._writer_options

    def episode_counter(self) -> int:
        """Returns the number of episodes that have begun."""
        return self._episode_counter

    def _open_shards(self) -> _Shards:
        if self._shards is None:
            state = "closed" if self._data_dir else "not initialized; call init"
            raise UsageError(f"this RiegeliDatasetWriter is {state}")
        return self._shards

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a RiegeliDatasetWriter cannot be copied or pickled, because two writers would write "
            "the same files; make a new one"
        )


class _Shards(ShardSequence):
    """Shards that may begin with steps outside of episodes."""

    def begin(self) -> None:
        """Begins the first shard, if there is none."""
        if self._shard is None:
            self._shard = self._create_shard()
