"""What every storage backend offers to read with."""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from envlogger.backends.python.episode_info import EpisodeInfo
from envlogger.converters import codec
from envlogger.step_data import StepData

__all__ = ["BackendReader"]

T = TypeVar("T")


class _SequenceAdapter(Sequence[T]):
    """A read-only sequence whose items are made when they are asked for.

    Keeps the backend alive that it reads from. Every iteration has its own position.
    """

    def __init__(self, count: int, get_nth_item: Callable[[int], T]) -> None:
        self._count = count
        self._get_nth_item = get_nth_item

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._get_nth_item(i) for i in range(*index.indices(self._count))]
        i = operator.index(index)
        if not -self._count <= i < self._count:
            raise IndexError(f"index {i} is out of range for {self._count} items")
        return self._get_nth_item(i % self._count)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return map(self._get_nth_item, range(self._count))


class BackendReader(abc.ABC):
    """Reads what was recorded: step by step, or episode by episode.

    The sequences are views: they read, and make a new object, whenever an item is asked for.
    Subclasses implement the methods that are abstract here.
    """

    @property
    def steps(self) -> Sequence[StepData]:
        """All steps, in the order in which they were recorded."""
        return _SequenceAdapter(self._get_num_steps(), self._get_nth_step)

    @property
    def episodes(self) -> Sequence[Sequence[StepData]]:
        """All episodes, each a sequence of its steps."""
        return _SequenceAdapter(self._get_num_episodes(), self._get_nth_episode)

    def episode_metadata(self) -> Sequence[Any]:
        """The metadata of each episode; None for those that have none."""
        return _SequenceAdapter(self._get_num_episodes(), self._get_nth_episode_metadata)

    @abc.abstractmethod
    def metadata(self) -> dict[str, Any]:
        """What was stored about the whole dataset."""

    def copy(self) -> Self:
        """Another reader of the same data, which other threads can use at full speed."""
        return self._copy()

    @abc.abstractmethod
    def close(self) -> None:
        """Frees what the reader holds: items cannot be read any more. Further calls do nothing."""

    @abc.abstractmethod
    def _copy(self) -> Self:
        """See `copy`."""

    @abc.abstractmethod
    def _get_num_steps(self) -> int:
        """The number of steps in all episodes."""

    @abc.abstractmethod
    def _get_nth_step(self, i: int) -> StepData:
        """Step `i` of all steps."""

    @abc.abstractmethod
    def _get_num_episodes(self) -> int:
        """The number of episodes."""

    @abc.abstractmethod
    def _get_nth_episode_info(self, i: int, include_metadata: bool = False) -> EpisodeInfo:
        """Where episode `i` lies, and its metadata if that is asked for."""

    def _get_nth_episode(self, i: int) -> Sequence[StepData]:
        episode = self._get_nth_episode_info(i)
        return _SequenceAdapter(episode.num_steps, lambda j: self._get_nth_step(episode.start + j))

    def _get_nth_episode_metadata(self, i: int) -> Any:
        return codec.decode(self._get_nth_episode_info(i, include_metadata=True).metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
