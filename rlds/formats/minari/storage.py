"""Storage of Minari episodes, in any of its file formats.

All formats are read into, and written from, the same: the columns of an episode by their paths
(such as `observations/camera`, `rewards`, `infos/state/qpos`), and its attributes. Nothing is said
here of what columns there have to be.

Minari itself is not used for that. Its reader decodes JPEG images and its writer encodes them, with
loss; its attributes go through a conversion each; and both need all of Gymnasium.
"""

from __future__ import annotations

import abc
import contextlib
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlds.formats.minari.spaces import Spaces
from rlds.sources.source import Place, SourceError
from rlds_ecosystem.model.fields import Field

__all__ = [
    "ACTIONS",
    "FORMATS",
    "INFOS",
    "OBSERVATIONS",
    "REWARDS",
    "SCALARS",
    "SPACES",
    "TERMINATIONS",
    "TRUNCATIONS",
    "EpisodeStorage",
    "RawEpisode",
    "StoredColumn",
    "Structure",
    "Writer",
]

# The formats of files: see `hdf5_files` and `tables`.
FORMATS = ("hdf5", "arrow", "parquet")

# The columns of an episode. OBSERVATIONS and INFOS have a row more than the others.
OBSERVATIONS, ACTIONS, REWARDS, INFOS = "observations", "actions", "rewards", "infos"
TERMINATIONS, TRUNCATIONS = "terminations", "truncations"
# Columns with a number for each transition: the length and the end of the episode.
SCALARS = (REWARDS, TERMINATIONS, TRUNCATIONS)
# The keys of the spaces in metadata.json.
SPACES = {OBSERVATIONS: "observation_space", ACTIONS: "action_space"}


class StoredColumn(NamedTuple):
    """The values of a field, one for each row.

    Attributes:
      field: The type of one of them: numbers, text, bytes or a JPEG file.
      values: The values. Files and bytes are `bytes` in an array of objects, text is `str`.
    """

    field: Field
    values: np.ndarray


class RawEpisode(NamedTuple):
    """A stored episode of Minari, before conversion.

    Attributes:
      columns: The columns by their paths; maybe only some.
      attributes: The attributes of the episode. Options are nested, as they were given.
    """

    columns: Mapping[str, StoredColumn]
    attributes: Mapping[str, Any]


# The contents of an episode: the fields of its columns by their paths, and its attributes.
Structure: TypeAlias = tuple[Mapping[str, Field], Mapping[str, Any]]

# Writes the episode of an index, or copies one of a part; raises ValueError if the format cannot
# hold it.
Writer: TypeAlias = Callable[[int, RawEpisode | Place], None]


class EpisodeStorage(abc.ABC):
    """Reads the episodes of a directory. Can be pickled.

    Args:
      directory: The directory `data` of a dataset.
      spaces: The spaces below "observations" and "actions".
    """

    def __init__(self, directory: pathlib.Path, spaces: Spaces) -> None:
        self._directory = directory
        self._spaces = spaces

    def opened(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which files stay open."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def files(self) -> list[pathlib.Path]:
        """Returns all files with episodes."""

    @abc.abstractmethod
    def indices(self) -> list[int]:
        """Returns the indices of the stored episodes, in order.

        Raises:
          SourceError: The file that has all of them is damaged.
        """

    @abc.abstractmethod
    def path(self, index: int) -> str:
        """Returns the path of an episode below the dataset."""

    @abc.abstractmethod
    def structure(self, index: int) -> Structure:
        """Returns the structure of an episode.

        Raises:
          SourceError: It cannot be read.
        """

    @abc.abstractmethod
    def read(self, index: int, paths: Collection[str] | None, rows: slice) -> RawEpisode:
        """Reads an episode.

        Args:
          index: The number of the episode.
          paths: The paths of the columns that are needed; all if None.
          rows: The rows to read. Of the columns in `SCALARS`, all are read.

        Raises:
          SourceError: It cannot be read.
        """

    def error(
        self, fault: str, index: int, field: str | None = None, row: int | None = None
    ) -> SourceError:
        """Returns the error of an episode."""
        file = self._directory.parent / self.path(index)
        return SourceError(fault, file=file, episode=index, row=row, field=field)
