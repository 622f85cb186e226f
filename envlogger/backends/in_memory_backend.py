"""Keeps recorded steps in memory, for tests and for data that are used in the same process."""

from __future__ import annotations

import copy
from typing import Any, Self

from typing_extensions import override

from envlogger.backends.backend_reader import BackendReader
from envlogger.backends.backend_writer import BackendWriter
from envlogger.backends.python.episode_info import EpisodeInfo
from envlogger.backends.schedulers import Scheduler
from envlogger.step_data import StepData

__all__ = ["InMemoryBackendReader", "InMemoryBackendWriter"]


class InMemoryBackendWriter(BackendWriter):
    """Records steps to lists; supports values of any type that `copy.deepcopy` can copy.

    Attributes:
      steps: Copies of the recorded steps.
      episode_start_indices: The index in `steps` of the first step of each episode.
      episode_metadata: Copies of the metadata of episodes, by the index of the episode.

    Args:
      metadata: The metadata of the dataset.
      scheduler: Chooses the steps to record; None records all.

    >>> import dm_env
    >>> writer = InMemoryBackendWriter()
    >>> writer.record_step(StepData(dm_env.restart(observation=1.0), None), is_new_episode=True)
    >>> InMemoryBackendReader(writer).episodes[0][0].timestep.observation
    1.0
    """

    def __init__(
        self, metadata: dict[str, Any] | None = None, scheduler: Scheduler | None = None
    ) -> None:
        super().__init__(metadata=copy.deepcopy(metadata), scheduler=scheduler)
        self.steps: list[StepData] = []
        self.episode_start_indices: list[int] = []
        self.episode_metadata: dict[int, Any] = {}

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Adds entries to the metadata of the dataset."""
        self._metadata = {**(self._metadata or {}), **copy.deepcopy(metadata)}

    def _record_step(self, data: StepData, is_new_episode: bool) -> None:
        step = copy.deepcopy(data)  # Environments reuse the arrays that they return.
        if is_new_episode:
            self.episode_start_indices.append(len(self.steps))
        self.steps.append(step)

    def _set_episode_metadata(self, data: Any) -> None:
        self.episode_metadata[len(self.episode_start_indices) - 1] = copy.deepcopy(data)

    def _discard_episode(self) -> None:
        del self.steps[self.episode_start_indices.pop() :]
        self.episode_metadata.pop(len(self.episode_start_indices), None)

    def close(self) -> None:
        """Ends the recording; recorded steps stay readable."""
        self._closed = True


class InMemoryBackendReader(BackendReader):
    """Reads a snapshot of the steps that a writer has recorded so far.

    Args:
      in_memory_backend_writer: The writer to read from, which may go on recording.
    """

    def __init__(self, in_memory_backend_writer: InMemoryBackendWriter) -> None:
        # Recorded steps never change, so a shallow copy of the lists is enough.
        self._steps = list(in_memory_backend_writer.steps)
        self._starts = list(in_memory_backend_writer.episode_start_indices)
        self._episode_metadata = dict(in_memory_backend_writer.episode_metadata)
        self._metadata = copy.deepcopy(in_memory_backend_writer.metadata() or {})

    @override
    def metadata(self) -> dict[str, Any]:
        return self._metadata

    def close(self) -> None:
        """Does nothing, as steps in memory need no files."""

    @override
    def copy(self) -> Self:
        other = copy.copy(self)
        other._metadata = copy.deepcopy(self._metadata)
        return other

    def _get_num_steps(self) -> int:
        return len(self._steps)

    def _get_nth_step(self, i: int) -> StepData:
        return copy.deepcopy(self._steps[i])

    def _get_num_episodes(self) -> int:
        return len(self._starts)

    def _get_nth_episode_info(self, i: int, include_metadata: bool = False) -> EpisodeInfo:
        end = self._starts[i + 1] if i + 1 < len(self._starts) else len(self._steps)
        return EpisodeInfo(start=self._starts[i], num_steps=end - self._starts[i])

    def _get_nth_episode_metadata(self, i: int) -> Any:
        return copy.deepcopy(self._episode_metadata.get(i))
