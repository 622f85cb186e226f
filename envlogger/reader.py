"""Reads what `EnvLogger` has recorded."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from envlogger.backends.backend_reader import BackendReader
from envlogger.backends.backend_type import BackendType
from envlogger.backends.in_memory_backend import InMemoryBackendReader
from envlogger.backends.riegeli_backend_reader import RiegeliBackendReader
from envlogger.converters import spec_codec
from envlogger.damage import Damage
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
      backend: What to read from: a type of backend, or a backend, for which all other arguments are
        ignored, with a warning.
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
                names = [*map(repr, backend_args), *backend_kwargs]
                warnings.warn(
                    f"{', '.join(names)} ignored, because the backend is made already",
                    stacklevel=2,
                )
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

    def columns(self, i: int, *, rlds: bool = False) -> dict[str, Any]:
        """Reads a whole episode as columns: arrays `[number of steps, ...]`.

        This is many times as fast as reading its steps one by one.

        Args:
          i: The number of the episode; negative ones count from the end.
          rlds: Whether to give the steps the form of an RLDS episode, in which the action, reward
            and discount of a step are those that follow its observation.

        Returns:
          With `rlds`, what `to_rlds_episode` returns: `observation`, `action`, `reward`,
          `discount`, `is_first`, `is_last`, `is_terminal`, and custom data. Otherwise columns in
          the order in which the steps were recorded: `step_type`, `reward`, `discount`,
          `observation`, `action` and `custom_data`; where the first step has no reward, discount
          and action, they have zeros. Nested values are nests of columns. The arrays are writable;
          rows of images may have gaps between them, which `numpy.ascontiguousarray` closes.

        Raises:
          IndexError: There is no such episode.
          ValueError: The steps are not built alike, so they cannot be stacked; says which field.
          EnvLoggerError: The steps cannot be read.

        >>> import tempfile
        >>> import envlogger
        >>> from envlogger.testing.catch_env import Catch
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
        ...         timestep = env.reset()
        ...         while not timestep.last():
        ...             timestep = env.step(1)
        ...     with envlogger.Reader(directory) as reader:
        ...         columns = reader.columns(0)
        >>> columns["observation"].shape, columns["action"]
        ((10, 10, 5), array([0, 1, 1, 1, 1, 1, 1, 1, 1, 1]))
        """
        if not rlds:
            return self._backend.columns(i)
        return self._backend.columns(
            i,
            rlds=True,
            action_spec=self._action_spec,
            reward_spec=self._reward_spec,
            discount_spec=self._discount_spec,
        )

    def recorded_columns(self, begin: int, end: int) -> dict[str, Any]:
        """Reads several episodes at once: the steps of all, one after the other.

        If episodes are short, this is faster than `columns`, which gives the same for a single one.

        Args:
          begin: The number of the first episode.
          end: The number of the one after the last.

        Returns:
          The columns in the order in which the steps were recorded, as `columns` returns them.

        Raises:
          IndexError: There is no such episode.
          ValueError: There are none between the two. Or the steps are not built alike.
          EnvLoggerError: The steps cannot be read.
        """
        if not 0 <= begin <= end <= len(self.episodes):
            raise IndexError(
                f"episodes {begin} to {end} are out of range for {len(self.episodes)} episodes"
            )
        return self._backend.recorded_columns(begin, end)

    def metadata(self) -> dict[str, Any]:
        """What was stored about the whole dataset; always the same dict."""
        return self._backend.metadata()

    def damage(self) -> list[Damage]:
        """What is damaged, lost or not indexed, and was left out here; empty if all is sound.

        Most of it comes back with `envlogger.recover`. Looks at more than was read on opening, and
        may take as long as reading what is not indexed.
        """
        return self._backend.damage()

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
