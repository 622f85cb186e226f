"""Storage of Minari episodes, in any of its file formats.

All file formats share one form in memory: the columns of an episode by path (such as
`observations/camera`, `rewards`, `infos/state/qpos`), and its attributes. This module does not
check which columns exist.

Minari itself is not used: its reader decodes JPEG images, and its writer encodes them again with
loss; it converts attributes; and it needs all of Gymnasium.
"""

from __future__ import annotations

import abc
import contextlib
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlds.formats.minari.spaces import Spaces
from rlds.sources.source import Location, SourceError
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

# The columns of an episode. OBSERVATIONS and INFOS have one more row than the other columns.
OBSERVATIONS, ACTIONS, REWARDS, INFOS = "observations", "actions", "rewards", "infos"
TERMINATIONS, TRUNCATIONS = "terminations", "truncations"
# Columns with a number for each transition: the length and the end of the episode.
SCALARS = (REWARDS, TERMINATIONS, TRUNCATIONS)
# The keys of the spaces in metadata.json.
SPACES = {OBSERVATIONS: "observation_space", ACTIONS: "action_space"}


class StoredColumn(NamedTuple):
    """The values of a field, one for each row.

    Attributes:
      field: The type of a value: numbers, text, bytes or a JPEG file.
      values: The values. Files and bytes are `bytes` in an array of objects, text is `str`.
    """

    field: Field
    values: np.ndarray


class RawEpisode(NamedTuple):
    """A stored episode of Minari, before conversion.

    Attributes:
      columns: All columns or some of them, by path.
      attributes: The attributes of the episode. Options are nested.
    """

    columns: Mapping[str, StoredColumn]
    attributes: Mapping[str, Any]


# The contents of an episode: the fields of its columns by path, and its attributes.
Structure: TypeAlias = tuple[Mapping[str, Field], Mapping[str, Any]]

# Writes an episode with a new index, or copies a staged episode. Raises a ValueError if the format
# cannot hold it.
Writer: TypeAlias = Callable[[int, RawEpisode | Location], None]


class EpisodeStorage(abc.ABC):
    """A reader of the episodes of a directory; can be pickled.

    Args:
      directory: The directory `data` of a dataset.
      spaces: The spaces below "observations" and "actions".
    """

    def __init__(self, directory: pathlib.Path, spaces: Spaces) -> None:
        self._directory = directory
        self._spaces = spaces

    def hold_open(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which files stay open."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def files(self) -> list[pathlib.Path]:
        """Returns all files with episodes."""

    @abc.abstractmethod
    def indices(self) -> list[int]:
        """Returns the indices of the stored episodes, in order.

        Raises:
          SourceError: The common file of all episodes is damaged.
        """

    @abc.abstractmethod
    def path(self, index: int) -> str:
        """Returns the path of an episode below the dataset."""

    @abc.abstractmethod
    def structure(self, index: int) -> Structure:
        """Returns the structure of an episode.

        Raises:
          SourceError: The episode cannot be read.
        """

    @abc.abstractmethod
    def read(self, index: int, paths: Collection[str] | None, rows: slice) -> RawEpisode:
        """Reads an episode.

        Args:
          index: The index of the episode.
          paths: The paths of the requested columns; None for all columns.
          rows: The rows to read. Columns in `SCALARS` are read completely.

        Raises:
          SourceError: The episode cannot be read.
        """

    def error(
        self, problem: str, index: int, field: str | None = None, row: int | None = None
    ) -> SourceError:
        """Returns an error with the location of an episode."""
        file = self._directory.parent / self.path(index)
        return SourceError(problem, file=file, episode=index, row=row, field=field)
