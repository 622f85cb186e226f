"""Files whose episodes are runs of rows, as those of D4RL and of d4rl-pybullet are."""

from __future__ import annotations

import abc
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rlds.formats.d4rl.hdf5 import RowReader
from rlds.formats.d4rl.layout import FIELDS, SCALARS
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.sources.source import (
    DamagedEpisode,
    RandomAccessSource,
    SourceEpisode,
    require_files,
)
from rlds_ecosystem.nests import leaves_at, nest

__all__ = ["RowsSource", "no_values"]


class RowsSource(RandomAccessSource):
    """An HDF5 file with an array per field, in which an episode is a run of rows.

    Derived classes set `_hdf5`, the description of the file, and `_ends`, the row after the last
    one of each episode. `_stem` begins the keys of the episodes.
    """

    _hdf5: Mapping[str, Any]
    _ends: np.ndarray

    def __init__(self, path: str | os.PathLike[str], *, follow_links: bool) -> None:
        self._path = require_files(path)[0]
        self._stem = self._path.stem
        self._follow_links = follow_links
        self._file = Hdf5File(self._path, follow_links=follow_links)
        self._reader = RowReader(self._file)

    def inputs(self) -> Sequence[epath.Path]:
        """Returns the file, and those that it leads to."""
        return self._file.inputs()

    @property
    def _num_rows(self) -> int:
        return int(self._hdf5["rows"])

    def num_episodes(self, split: str) -> int:
        """Returns how many episodes there are."""
        del split
        return len(self._ends)

    def key(self, split: str, index: int) -> str:
        """Returns the name of the file and the index of the episode in it."""
        del split
        return f"{self._stem}-{index:07d}"

    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of a range, all of the file that is open; see `Source.episodes`."""
        with self._file:
            yield from super().episodes(split, part, after)

    def read_steps(
        self, split: str, index: int, fields: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        """Reads the steps of an episode, from no arrays but those of the wanted fields."""
        wanted = self._step_paths(fields)
        steps = self._aligned(index, self._columns(index, self.key(split, index), wanted))
        return nest(dict(leaves_at(steps, wanted)))

    @abc.abstractmethod
    def _array_names(self) -> Iterable[str]:
        """Returns the paths of the arrays that become fields of a step."""

    @abc.abstractmethod
    def _aligned(self, index: int, columns: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Returns the steps of an episode, given the rows of all fields, or of some.

        `no_values` stands in for an observation, an action or a reward that is not given.
        """

    def _bounds(self, index: int) -> tuple[int, int]:
        """Returns the first row of an episode, and the one after its last."""
        return int(self._ends[index - 1]) if index else 0, int(self._ends[index])

    def _columns(
        self, index: int, key: str, wanted: Collection[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Reads the rows of an episode, by the paths of their fields."""
        begin, end = self._bounds(index)
        columns = {}
        for name in self._array_names():
            path = FIELDS.get(name, name)
            if wanted is None or path in wanted:
                rows = self._reader.rows(name, begin, end, key)
                columns[path] = rows.reshape(len(rows)) if name in SCALARS else rows
        return columns


def no_values(num_rows: int) -> np.ndarray:
    """Returns a column that stands in for one that is not wanted."""
    return np.empty((num_rows, 0))
