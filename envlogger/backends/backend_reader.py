"""The interface of the readers of all storage backends."""

from __future__ import annotations

import abc
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, overload

from envlogger.backends.python.episode_info import EpisodeInfo
from envlogger.closing import Closing
from envlogger.converters import codec
from envlogger.converters.columns import as_fields, stacked_columns
from envlogger.converters.rlds_episode import to_rlds_episode
from envlogger.damage import Damage
from envlogger.step_data import StepData

__all__ = ["BackendReader", "check_index"]

T = TypeVar("T")


def check_index(index: Any, count: int, items: str) -> int:
    """Returns an index as a non-negative int.

    Args:
      index: The index; negative indices count from the end.
      count: The number of items.
      items: The name of the items in error messages.

    Raises:
      IndexError: The index is out of range.
      TypeError: The index is not an integer.
    """
    try:
        position = operator.index(index)
    except TypeError:
        raise TypeError(f"an index of {items} must be an integer, got {index!r}") from None
    if not -count <= position < count:
        raise IndexError(f"index {position} is out of range for {count} {items}")
    return position % count


class _SequenceAdapter(Sequence[T]):
    """A read-only sequence whose items are computed on access.

    The sequence keeps its backend alive. Every iterator has its own position.
    """

    def __init__(
        self,
        count: int,
        get_nth_item: Callable[[int], T],
        get_items: Callable[[int, int], Iterator[T]] | None = None,
        items: str = "steps",
    ) -> None:
        self._items = items
        self._count = count
        self._get_nth_item = get_nth_item
        self._get_items = get_items

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            indices = range(*index.indices(self._count))
            if indices.step == 1 and self._get_items is not None:
                return list(self._get_items(indices.start, max(indices.start, indices.stop)))
            return [self._get_nth_item(i) for i in indices]
        return self._get_nth_item(check_index(index, self._count, self._items))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        if self._get_items is not None:
            return self._get_items(0, self._count)
        return map(self._get_nth_item, range(self._count))

    def __repr__(self) -> str:
        return f"<{self._count} {self._items}, computed on access>"


class BackendReader(Closing, abc.ABC):
    """Reads recorded data by step or by episode.

    The sequences are views: each access to an item reads it and returns a new object. Subclasses
    implement the abstract methods.
    """

    @property
    def steps(self) -> Sequence[StepData]:
        """All steps, in the order in which they were recorded."""
        return _SequenceAdapter(self._get_num_steps(), self._get_nth_step, self._get_steps)

    @property
    def episodes(self) -> Sequence[Sequence[StepData]]:
        """All episodes, each a sequence of its steps."""
        count = self._get_num_episodes()
        return _SequenceAdapter(count, self._get_nth_episode, items="episodes")

    def episode_metadata(self) -> Sequence[Any]:
        """The metadata of each episode; None for an episode without metadata."""
        count = self._get_num_episodes()
        return _SequenceAdapter(count, self._get_nth_episode_metadata, items="episodes")

    def columns(self, i: int, *, rlds: bool = False, **specs: Any) -> dict[str, Any]:
        """Returns episode `i` as columns; see `Reader.columns`, which passes the specs."""
        steps = list(self.episodes[i])
        if rlds:
            return to_rlds_episode(steps, **specs)
        return as_fields(stacked_columns(steps))

    def recorded_columns(self, begin: int, end: int) -> dict[str, Any]:
        """Returns the steps of episodes `begin` to `end`; see `Reader.recorded_columns`."""
        steps = itertools.chain.from_iterable(self.episodes[begin:end])
        return as_fields(stacked_columns(steps))

    def pick(
        self, i: int, steps: Iterable[int], fields: Sequence[tuple[Any, ...]]
    ) -> Iterator[list[Any]]:
        """Yields some values of some steps of episode `i`; see `Reader.pick`."""
        episode = self.episodes[i]
        for step in steps:
            step_fields = as_fields(episode[step])
            yield [_get_value(step_fields, keys) for keys in fields]

    @abc.abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Returns the metadata of the dataset."""

    def damage(self) -> list[Damage]:
        """Returns the corrupt, lost and unindexed records; empty if the backend detects none."""
        return []

    @abc.abstractmethod
    def copy(self) -> Self:
        """Returns another reader of the same data, for use in another thread."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the reader; then items cannot be read. Further calls do nothing."""

    @abc.abstractmethod
    def _get_num_steps(self) -> int:
        """Returns the number of steps in all episodes."""

    @abc.abstractmethod
    def _get_nth_step(self, i: int) -> StepData:
        """Returns step `i` of all steps."""

    @abc.abstractmethod
    def _get_num_episodes(self) -> int:
        """Returns the number of episodes."""

    @abc.abstractmethod
    def _get_nth_episode_info(self, i: int, include_metadata: bool = False) -> EpisodeInfo:
        """Returns the step range of episode `i`, and its metadata if requested."""

    def _get_nth_episode(self, i: int) -> Sequence[StepData]:
        episode = self._get_nth_episode_info(i)
        start = episode.start
        return _SequenceAdapter(
            episode.num_steps,
            lambda j: self._get_nth_step(start + j),
            lambda begin, end: self._get_steps(start + begin, start + end),
        )

    def _get_steps(self, begin: int, end: int) -> Iterator[StepData]:
        """Returns steps `begin` to `end`; backends may override it with a faster method."""
        return map(self._get_nth_step, range(begin, end))

    def _get_nth_episode_metadata(self, i: int) -> Any:
        return codec.decode(self._get_nth_episode_info(i, include_metadata=True).metadata)


def _get_value(value: Any, keys: Iterable[Any]) -> Any:
    """Returns the value at a path of keys in nested dicts, lists and tuples; None if absent."""
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list | tuple) and isinstance(key, int) and 0 <= key < len(value):
            value = value[key]
        else:
            return None
    return value
