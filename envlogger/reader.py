"""Reads the recordings of `EnvLogger`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from envlogger.backends.backend_reader import BackendReader, check_index
from envlogger.backends.backend_type import BackendType
from envlogger.backends.in_memory_backend import InMemoryBackendReader
from envlogger.backends.riegeli_backend_reader import RiegeliBackendReader
from envlogger.closing import Closing
from envlogger.converters import spec_codec
from envlogger.damage import Damage
from envlogger.step_data import StepData

__all__ = ["Reader"]

_BACKENDS: dict[BackendType, type[BackendReader]] = {
    BackendType.RIEGELI: RiegeliBackendReader,
    BackendType.IN_MEMORY: InMemoryBackendReader,
}


class Reader(Closing):
    """Reads recorded data by step or by episode.

        with envlogger.Reader(data_directory) as reader:
            for episode in reader.episodes:
                for step in episode:
                    step.timestep.observation, step.action

    A reader sees the steps that were stored at its construction. Each access to an item of a
    sequence reads the item and returns a new object; slices are lists.

    Args:
      *backend_args: Passed to the backend: for `BackendType.RIEGELI` the `data_directory`, for
        `BackendType.IN_MEMORY` the `in_memory_backend_writer`.
      backend: A type of backend, or a backend. With a backend, all other arguments are ignored,
        with a warning.
      **backend_kwargs: Passed to the backend.

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
                    f"{', '.join(names)} ignored, because the backend exists already", stacklevel=2
                )
            self._backend = backend
        elif isinstance(backend, BackendType):
            self._backend = _BACKENDS[backend](*backend_args, **backend_kwargs)
        else:
            raise TypeError(f"backend must be a BackendType or a BackendReader, got {backend!r}")
        encoded_specs = self.metadata().get("environment_specs")
        self._specs = spec_codec.decode_environment_specs(encoded_specs)

    @property
    def steps(self) -> Sequence[StepData]:
        """All steps, in the order in which they were recorded."""
        return self._backend.steps

    @property
    def episodes(self) -> Sequence[Sequence[StepData]]:
        """All episodes, each a sequence of its steps."""
        return self._backend.episodes

    def episode_metadata(self) -> Sequence[Any]:
        """The metadata of each episode, or None."""
        return self._backend.episode_metadata()

    def columns(self, i: int, *, rlds: bool = False) -> dict[str, Any]:
        """Reads a whole episode as columns: arrays `[number of steps, ...]`.

        This is many times as fast as reading its steps one by one.

        Args:
          i: The index of the episode; negative indices count from the end.
          rlds: Whether to return the steps in RLDS order, in which the action, reward and discount
            of a step follow its observation.

        Returns:
          With `rlds`, the columns of `to_rlds_episode`: `observation`, `action`, `reward`,
          `discount`, `is_first`, `is_last`, `is_terminal`, and custom data. Otherwise columns in
          the order in which the steps were recorded: `step_type`, `reward`, `discount`,
          `observation`, `action` and `custom_data`. The first step has zeros for a missing reward,
          discount and action. Nested values are nested columns. The arrays are writable. Rows of
          images may have gaps between them; `numpy.ascontiguousarray` removes the gaps.

        Raises:
          IndexError: There is no such episode.
          ValueError: The steps differ in structure, so they cannot be stacked; names the field.
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
        names = ("action_spec", "reward_spec", "discount_spec")
        return self._backend.columns(i, rlds=True, **{name: self._specs[name] for name in names})

    def recorded_columns(self, begin: int, end: int) -> dict[str, Any]:
        """Reads the steps of several successive episodes at once, as columns.

        For short episodes this is faster than `columns`, which reads a single episode.

        Args:
          begin: The index of the first episode.
          end: The index after the last episode.

        Returns:
          The columns in the order in which the steps were recorded, as `columns` returns them.

        Raises:
          IndexError: There is no such episode.
          ValueError: The range is empty, or the steps differ in structure.
          EnvLoggerError: The steps cannot be read.
        """
        if not 0 <= begin <= end <= len(self.episodes):
            raise IndexError(
                f"episodes {begin} to {end} are out of range for {len(self.episodes)} episodes"
            )
        return self._backend.recorded_columns(begin, end)

    def pick(
        self, i: int, steps: Iterable[int], fields: Sequence[tuple[Any, ...]]
    ) -> Iterator[list[Any]]:
        """Reads some values of some steps of an episode.

        Args:
          i: The index of the episode; negative indices count from the end.
          steps: The steps, in any order.
          fields: For each value the keys that lead to it, such as `("reward",)` or
            `("custom_data", "time")`. The first is the name of a field, as in `columns`; in a list
            or a tuple, a key is an index.

        Yields:
          For each step the values, in the order of the fields; None for missing values.

        Raises:
          IndexError: There is no such episode, or no such step.
          EnvLoggerError: A step cannot be read.

        >>> import tempfile
        >>> import envlogger
        >>> from envlogger.testing.catch_env import Catch
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
        ...         timestep = env.reset()
        ...         while not timestep.last():
        ...             timestep = env.step(1)
        ...     with envlogger.Reader(directory) as reader:
        ...         actions = list(reader.pick(0, [9, 0], [("action",)]))
        >>> actions
        [[1], [None]]
        """
        index = check_index(i, len(self.episodes), "episodes")
        return self._backend.pick(index, steps, fields)

    @property
    def backend(self) -> BackendReader:
        """The storage backend of the recording."""
        return self._backend

    def metadata(self) -> dict[str, Any]:
        """The metadata of the whole dataset; all calls return the same dict."""
        return self._backend.metadata()

    def damage(self) -> list[Damage]:
        """Lists damaged, lost and unindexed data, which this reader leaves out.

        `envlogger.recover` brings most of it back. This call checks more than opening does: it
        reads all unindexed data, which may take long.
        """
        return self._backend.damage()

    def observation_spec(self) -> Any:
        """The spec of the observations, with their structure; None if it was not recorded."""
        return self._specs["observation_spec"]

    def action_spec(self) -> Any:
        """The spec of the actions; None if it was not recorded."""
        return self._specs["action_spec"]

    def reward_spec(self) -> Any:
        """The spec of the rewards; None if it was not recorded."""
        return self._specs["reward_spec"]

    def discount_spec(self) -> Any:
        """The spec of the discounts; None if it was not recorded."""
        return self._specs["discount_spec"]

    def copy(self) -> Self:
        """Returns another reader of the same data, for another thread. Close each of them."""
        other = copy.copy(self)
        other._backend = self._backend.copy()
        return other

    def close(self) -> None:
        """Closes the files; then steps and metadata of episodes cannot be read."""
        self._backend.close()

    def __repr__(self) -> str:
        return f"<Reader of {len(self.episodes)} episodes, {len(self.steps)} steps>"
