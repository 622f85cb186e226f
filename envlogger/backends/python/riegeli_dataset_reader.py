"""Reads serialized messages from the steps of a dataset in Riegeli format."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Self

from envlogger.backends.directories import directory_to_read
from envlogger.backends.python.episode_info import EpisodeInfo
from envlogger.backends.riegeli_backend_reader import RiegeliBackendReader, _locate
from envlogger.backends.riegeli_files import layout
from envlogger.backends.riegeli_files.shard_reader import read_metadata
from envlogger.errors import UsageError
from envlogger.proto.storage_pb2 import Data

__all__ = ["RiegeliDatasetReader"]


class RiegeliDatasetReader:
    """Reads messages of a dataset by step index, in its state at the call of `init`.

    This is the interface of the compiled extension of EnvLogger, for code that stores its own
    messages; for steps of an environment, use `envlogger.Reader`. An unpickled reader opens the
    directory again. Threads that share a reader block each other; threads with a `clone` each read
    in parallel.
    """

    def __init__(self) -> None:
        self._data_dir = ""
        self._metadata = Data()
        self._backend: RiegeliBackendReader | None = None
        self._closed = True

    def init(self, data_dir: str | os.PathLike[str]) -> None:
        """Opens a directory; call this before all other methods.

        Raises:
          StorageError: The directory is missing, or holds no recording.
          DamagedDataError: A file is damaged.
        """
        self._metadata = read_metadata(directory_to_read(data_dir))
        self._backend = RiegeliBackendReader(data_dir)
        self._data_dir = os.fspath(data_dir)
        self._closed = False

    def metadata(self) -> Data:
        """Returns the metadata of the dataset."""
        metadata = Data()
        metadata.CopyFrom(self._metadata)
        return metadata

    def data_dir(self) -> str:
        """Returns the directory, as passed to `init`."""
        return self._data_dir

    @property
    def num_steps(self) -> int:
        """The number of steps, including steps outside of episodes."""
        return self._backend._get_num_steps() if self._backend is not None else 0

    @property
    def num_episodes(self) -> int:
        """The number of episodes."""
        return self._backend._get_num_episodes() if self._backend is not None else 0

    def serialized_step(self, index: int) -> bytes | None:
        """Returns the bytes of a step; None if the index is out of range.

        Raises:
          DamagedDataError: The step is damaged.
          StorageError: The file cannot be read.
          UsageError: The reader is closed, or not initialized.
        """
        backend = self._open_backend()
        if not 0 <= index < self.num_steps:
            return None
        shard_index, i = _locate(backend._step_ends, index)
        shard = backend._shards[shard_index]
        return backend._read_record(shard, layout.STEPS_FILE, int(shard.step_offsets[i]))

    def step(self, index: int, message: Any = Data) -> Any:
        """Returns a step as a message; None if the index is out of range.

        Args:
          index: The index of the step.
          message: The type of the message, or a message of this type; it needs `FromString`.

        Raises:
          DamagedDataError: The step is damaged.
          StorageError: The file cannot be read.
          UsageError: The reader is closed, or not initialized.
        """
        step = self.serialized_step(index)
        return None if step is None else message.FromString(step)

    def episode(self, index: int, include_metadata: bool = False) -> EpisodeInfo | None:
        """Returns the step range of an episode; None if the index is out of range.

        Args:
          index: The index of the episode.
          include_metadata: Whether to read the metadata of the episode.

        Raises:
          DamagedDataError: The metadata is damaged.
          StorageError: The file cannot be read.
          UsageError: The reader is closed, or not initialized.
        """
        backend = self._open_backend()
        if not 0 <= index < self.num_episodes:
            return None
        return backend._get_nth_episode_info(index, include_metadata)

    def clone(self) -> Self:
        """Returns another reader of the same data, with its own files; it may outlive this one."""
        backend = self._open_backend()
        other = type(self)()
        other._data_dir, other._metadata = self._data_dir, self._metadata
        other._backend = backend.copy()
        other._closed = False
        return other

    def close(self) -> None:
        """Closes the files; then nothing can be read. Further calls do nothing."""
        self._closed = True
        if self._backend is not None:
            self._backend.close()

    def _open_backend(self) -> RiegeliBackendReader:
        if self._backend is None:
            raise UsageError("this RiegeliDatasetReader is not initialized; call init")
        if self._closed:
            raise UsageError("this RiegeliDatasetReader is closed; make a new one to read more")
        return self._backend

    def __del__(self, _is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _is_finalizing():  # At exit, the system closes files.
            self.close()

    def __getstate__(self) -> dict[str, str | bool]:
        return {"data_dir": self._data_dir, "closed": self._closed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        if state["data_dir"]:
            self.init(state["data_dir"])
        if state["closed"]:
            self.close()
