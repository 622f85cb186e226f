"""Reads what `EnvLogger` has recorded."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from envlogger.backends.backend_reader import BackendReader
from envlogger.backends.backend_type import BackendType
from envlogger.backends.in_memory_backend import InMemoryBackendReader
from envlogger.backends.riegeli_backend_reader import RiegeliBackendReader
from envlogger.converters import spec_codec
from envlogger.step_data import StepData

__all__ = ["Reader"]

_BACKENDS: dict[BackendType, type[BackendReader]] = {
    BackendType.RIEGELI: RiegeliBackendReader,
    BackendType.IN_MEMORY: InMemoryBackendReader,
}


class Reader:
    """Reads what was recorded: step by step, or episode by episode.

        with envlogger.Reader(data_directory) as reader:
            for episode in reader.episodes:
                for step in episode:
                    step.timestep.observation, step.action

    What was recorded is fixed when the reader is made. The sequences read, and make a new object,
    whenever an item is asked for; slices of them are lists.

    Args:
      *backend_args: Passed to the backend: for `BackendType.RIEGELI` the `data_directory`, for
        `BackendType.IN_MEMORY` the `in_memory_backend_writer`.
      backend: What to read from: a type of backend, or a backend.
      **backend_kwargs: Likewise passed to the backend.

    Raises:
      TypeError: The arguments do not fit the backend.
      EnvLoggerError: The data cannot be read, see `RiegeliBackendReader`.
    """

    def __init__(
        self,
        *backend_args: Any,
        backend: BackendReader | BackendType = BackendType.RIEGELI,
        **backend_kwargs: Any,
    ) -> None:
        if isinstance(backend, BackendReader):
            if backend_args or backend_kwargs:
                raise TypeError("a backend that is made already takes no arguments")
            self._backend = backend
        elif isinstance(backend, BackendType):
            self._backend = _BACKENDS[backend](*backend_args, **backend_kwargs)
        else:
            raise TypeError(f"backend must be a BackendType or a BackendReader, got {backend!r}")
        specs = spec_codec.decode_environment_specs(self.metadata().get("environment_specs"))
        self._observation_spec = specs["observation_spec"]
        self._action_spec = specs["action_spec"]
        self._reward_spec = specs["reward_spec"]
        self._discount_spec = specs["discount_spec"]

    @property
    def steps(self) -> Sequence[StepData]:
        """All steps, in the order in which they were recorded."""
        return self._backend.steps

    @property
    def episodes(self) -> Sequence[Sequence[StepData]]:
        """All episodes, each a sequence of its steps."""
        return self._backend.episodes

    def episode_metadata(self) -> Sequence[Any]:
        """The metadata of each episode; None for those that have none."""
        return self._backend.episode_metadata()

    def metadata(self) -> dict[str, Any]:
        """What was stored about the whole dataset; always the same dict."""
        return self._backend.metadata()

    def observation_spec(self) -> Any:
        """The spec of the observations, nested as they are; None if it was not recorded."""
        return self._observation_spec

    def action_spec(self) -> Any:
        """The spec of the actions; None if it was not recorded."""
        return self._action_spec

    def reward_spec(self) -> Any:
        """The spec of the rewards; None if it was not recorded."""
        return self._reward_spec

    def discount_spec(self) -> Any:
        """The spec of the discounts; None if it was not recorded."""
        return self._discount_spec

    def copy(self) -> Self:
        """Another reader of the same data, for another thread; to be closed on its own."""
        other = copy.copy(self)
        other._backend = self._backend.copy()
        return other

    def close(self) -> None:
        """Closes the files; steps and metadata of episodes cannot be read any more."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
