"""The interface of the writers of all storage backends."""

from __future__ import annotations

import abc
import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

from envlogger.backends import lifetime
from envlogger.backends.riegeli_files.disk_reserve import DiskReserve
from envlogger.backends.schedulers import Scheduler
from envlogger.closing import Closing
from envlogger.errors import UsageError
from envlogger.step_data import StepData

__all__ = ["BackendWriter", "QueueingBackendWriter"]


class BackendWriter(Closing, abc.ABC):
    """Records steps, episode by episode.

    Subclasses implement `_record_step`, `_set_episode_metadata`, `_discard_episode` and `close`,
    and set `_closed` when closed. An open backend is closed when it is garbage collected, or when
    the process ends, see `lifetime`. In a forked process, an inherited backend is closed.

    Args:
      metadata: The metadata of the dataset.
      scheduler: Chooses the steps to record; None records all. If it drops the first steps of an
        episode, the episode begins at its first recorded step; if it drops all steps, neither the
        episode nor its metadata are recorded.
    """

    # Whether `metadata()["environment_specs"]` of readers are the specs of the environment.
    stores_specs = True

    # The destructor also runs if the constructor failed.
    _closed = True

    def __init__(
        self, metadata: dict[str, Any] | None = None, scheduler: Scheduler | None = None
    ) -> None:
        self._metadata = metadata
        self._scheduler = scheduler
        self._in_episode = False
        self._first_step_pending = False
        self._pending_episode_metadata: Any = None
        self._is_inherited = False
        self._closed = False
        lifetime.close_at_exit(self)

    def record_step(self, data: StepData, is_new_episode: bool) -> None:
        """Records a step if the scheduler chooses it.

        Args:
          data: The step, which is copied: the caller may change its arrays afterwards.
          is_new_episode: Whether this is the first step of an episode.

        Raises:
          UsageError: The backend is closed, or no episode has begun.
        """
        if self._closed:
            self._check_open()
        if is_new_episode:
            self._in_episode = True
            self._first_step_pending = True
            self._pending_episode_metadata = None
        elif not self._in_episode:
            raise UsageError("the first step must be recorded with is_new_episode=True")
        if self._scheduler is not None and not self._scheduler(data):
            return
        if not self._first_step_pending:
            self._record_step(data, False)
            return
        self._record_step(data, True)
        self._first_step_pending = False
        if self._pending_episode_metadata is not None:
            self._set_episode_metadata(self._pending_episode_metadata)

    @contextlib.contextmanager
    def episode(self, metadata: Any = None) -> Iterator[Callable[[StepData], None]]:
        """Records an episode without an environment.

            with writer.episode(metadata={"operator": "Ada"}) as record_step:
                record_step(StepData(dm_env.restart(observation), action=None))
                record_step(StepData(dm_env.transition(reward, observation), action))

        If the block raises, the recorded steps are kept; call `discard_episode` to discard them.

        Args:
          metadata: The metadata of the episode, or None.

        Yields:
          A function that records the next step of the episode.
        """
        is_first = True

        def record_step(data: StepData) -> None:
            nonlocal is_first
            self.record_step(data, is_new_episode=is_first)
            if is_first and metadata is not None:
                self.set_episode_metadata(metadata)
            is_first = False

        yield record_step

    def set_episode_metadata(self, data: Any) -> None:
        """Sets the metadata of the episode of the last step; replaces earlier metadata.

        Raises:
          UsageError: The backend is closed, or no episode has begun.
        """
        self._check_open()
        if not self._in_episode:
            raise UsageError("no episode has begun, so it has no metadata to set")
        if self._first_step_pending:
            self._pending_episode_metadata = copy.deepcopy(data)
        else:
            self._set_episode_metadata(data)

    def discard_episode(self) -> None:
        """Discards the running episode and its metadata; the next step must begin a new episode.

        Raises:
          UsageError: The backend is closed, or no episode has begun.
        """
        self._check_open()
        if not self._in_episode:
            raise UsageError("there is no episode to discard")
        self._in_episode = False
        if not self._first_step_pending:
            self._discard_episode()

    @abc.abstractmethod
    def _record_step(self, data: StepData, is_new_episode: bool) -> None:
        """Records a step that the scheduler has chosen."""

    def _set_episode_metadata(self, data: Any) -> None:
        """Sets the metadata of the episode of the last recorded step."""
        raise NotImplementedError(f"{type(self).__name__} does not store metadata of episodes")

    def _discard_episode(self) -> None:
        """Deletes the episode of the last recorded step."""
        raise NotImplementedError(f"{type(self).__name__} cannot discard episodes")

    def flush(self) -> None:
        """Writes recorded steps to storage, and makes finished episodes visible.

        By default, this does nothing, for backends without pending steps.
        """
        self._check_open()

    def push(self) -> None:
        """Passes all steps to the operating system, so that they survive a killed process.

        By default, this does nothing, so that steps survive only after a flush.
        """
        self._check_open()

    @abc.abstractmethod
    def close(self) -> None:
        """Stores pending steps and ends the recording; further calls do nothing."""

    def metadata(self) -> dict[str, Any] | None:
        """Returns the metadata of the dataset."""
        return self._metadata

    def _check_open(self) -> None:
        if self._is_inherited:
            raise UsageError(
                f"this {type(self).__name__} belongs to the process that forked this one; make a "
                "new one here"
            )
        if self._closed:
            raise UsageError(f"this {type(self).__name__} is closed; make a new one to record more")

    def disown(self) -> None:
        """Disables the backend in a forked process, which must not write to its parent's files."""
        self._closed = self._is_inherited = True

    def __del__(self) -> None:
        if not self._closed:
            self.close()


class QueueingBackendWriter(BackendWriter):
    """A backend that writes steps after it has accepted them.

    Attributes:
      reserve: The reserved disk space for accepted steps.
      keeps_ended_episodes: Whether an episode survives a crash of the process after its last step
        is recorded.
    """

    reserve: DiskReserve
    keeps_ended_episodes: bool
