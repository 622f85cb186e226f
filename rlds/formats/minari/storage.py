"""Episodes as Minari stores them, whatever the format of the files.

All formats are read into, and written from, the same: the columns of an episode by their paths
(such as `observations/camera`, `rewards`, `infos/state/qpos`), and its attributes. Nothing is said
here of what columns there have to be.

Minari itself is not used for that. Its reader decodes JPEG images and its writer encodes them, with
loss; its attributes go through a conversion each; and both need all of Gymnasium.
"""

from __future__ import annotations

import abc
import dataclasses
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from rlds.formats.minari.spaces import Spaces
from rlds.sources.source import SourceError

__all__ = [
    "ACTIONS",
    "INFOS",
    "OBSERVATIONS",
    "REWARDS",
    "SCALARS",
    "SPACES",
    "TERMINATIONS",
    "TRUNCATIONS",
    "Column",
    "Kind",
    "RawEpisode",
    "Storage",
    "StorageWriter",
    "objects",
]

# The columns of an episode. OBSERVATIONS and INFOS have a row more than the others.
OBSERVATIONS, ACTIONS, REWARDS, INFOS = "observations", "actions", "rewards", "infos"
TERMINATIONS, TRUNCATIONS = "terminations", "truncations"
# A number for each transition, which says how long the episode is, and how it ended.
SCALARS = (REWARDS, TERMINATIONS, TRUNCATIONS)
# Where metadata.json has the spaces of their values.
SPACES = {OBSERVATIONS: "observation_space", ACTIONS: "action_space"}

Kind: TypeAlias = Literal["numbers", "text", "bytes", "jpeg"]


@dataclasses.dataclass(frozen=True)
class Column:
    """The values of a field, one for each row.

    Attributes:
      kind: What they are. JPEG images and bytes are `bytes` in an array of objects, text is `str`.
      values: The values.
    """

    kind: Kind
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class RawEpisode:
    """An episode as it is stored.

    Attributes:
      columns: The columns by their paths; maybe only some.
      attributes: What is said of the episode as a whole. Options are nested, as they were given.
    """

    columns: Mapping[str, Column]
    attributes: Mapping[str, Any]


class Storage(abc.ABC):
    """Reads the episodes of a directory. Can be pickled. A context manager that keeps files open.

    Args:
      directory: The directory `data` of a dataset.
      spaces: The spaces below "observations" and "actions".
    """

    def __init__(self, directory: pathlib.Path, spaces: Spaces) -> None:
        self._directory = directory
        self._spaces = spaces

    def __enter__(self) -> Storage:
        return self

    def __exit__(self, *args: object) -> None:
        return None

    @abc.abstractmethod
    def files(self) -> list[pathlib.Path]:
        """Returns all files with episodes."""

    @abc.abstractmethod
    def indices(self) -> list[int]:
        """Returns which episodes there are, in order.

        Raises:
          SourceError: The files are damaged as a whole.
        """

    @abc.abstractmethod
    def place(self, index: int) -> str:
        """Returns where an episode is, as a path below the dataset."""

    @abc.abstractmethod
    def structures(self, indices: Sequence[int]) -> Iterator[RawEpisode | SourceError]:
        """Yields episodes, their columns without rows, or what is wrong with one."""

    @abc.abstractmethod
    def read(self, index: int, wanted: Collection[str] | None, rows: slice) -> RawEpisode:
        """Reads an episode.

        Args:
          index: Which one.
          wanted: The paths of the columns that are needed; all if None.
          rows: Which rows are needed of those that are not in `SCALARS`; these are read as a whole.

        Raises:
          SourceError: It cannot be read.
        """

    def error(self, what: str, index: int, field: str | None = None) -> SourceError:
        """Returns the error of an episode."""
        file = self._directory.parent / self.place(index)
        return SourceError(what, file=file, episode=index, field=field)


class StorageWriter(abc.ABC):
    """Writes episodes to a directory; a context manager."""

    @abc.abstractmethod
    def add(self, index: int, episode: RawEpisode) -> None:
        """Writes an episode.

        Raises:
          ValueError: The format cannot hold it.
        """

    def __enter__(self) -> StorageWriter:
        return self

    def __exit__(self, *args: object) -> None:
        return None


def objects(items: Sequence[Any]) -> np.ndarray:
    """An array of objects, also of those that NumPy would make a matrix of."""
    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = item
    return array
