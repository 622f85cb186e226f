"""The datasets of d3rlpy (https://d3rlpy.readthedocs.io), read without d3rlpy.

An HDF5 file of d3rlpy 2 has `<column>_<i>` for each episode, and `<column>_<i>_<j>` for the
elements of tuples. All columns have a row for each observation; `terminated` is one bool.
In an episode that did not end in a terminal state, the last row is not a transition: it holds the
final observation, and an action and reward without meaning.

A file of d3rlpy 1 has the rows of all episodes, one after the other, in `observations`, `actions`,
`rewards` and `terminals`. An episode ends where `terminals` or `episode_terminals` is set; rows
have the same meaning.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.hdf5_sidecar import read_hdf5_sidecar
from rlds.formats.rows_source import EpisodeRows, RowsSource, RowsTable, bounds
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_values import read_constant
from rlds.raw_files.untrusted import SourceError
from rlds.sources.source import ALL_ROWS, Capabilities, Origin, SourceInfo, require_files
from rlds.sources.texts import as_text
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below

__all__ = ["FIELDS", "LAST", "METADATA_KEY", "SUFFIXES", "TERMINATED", "VERSION", "D3rlpySource"]

OBSERVATIONS, ACTIONS, REWARDS, TERMINATED = "observations", "actions", "rewards", "terminated"
# The fields of a step that columns become. Other columns keep their names.
FIELDS: Mapping[str, str] = {
    OBSERVATIONS: rlds.OBSERVATION,
    ACTIONS: rlds.ACTION,
    REWARDS: rlds.REWARD,
}
# The prefix of fields of the episode for the action and reward in the row of a final observation.
LAST = "last_row"
METADATA_KEY = "d3rlpy"
SUFFIXES = (".h5", ".hdf5")
VERSION = "2.1"
_COLUMNS, _NUM_EPISODES, _VERSION_ARRAY = "columns", "num_episodes", "version"
# The flags of d3rlpy 1.
_TERMINALS, _EPISODE_TERMINALS = "terminals", "episode_terminals"
_V1_ARRAYS = (OBSERVATIONS, ACTIONS, REWARDS, _TERMINALS, _EPISODE_TERMINALS)


class D3rlpySource(RowsSource):
    """The episodes of a dataset that d3rlpy 1 or 2 dumped, an HDF5 file.

    An episode that did not end in a terminal state is truncated, and has a final observation; other
    episodes have none. The elements of tuples are `0`, `1`, .... The action and reward of a final
    observation are in `last_row`, zeros for other episodes. An episode is `complete`, except the
    last one of a file of d3rlpy 1 that lacks its end; d3rlpy leaves it out.

    Args:
      path: The file.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is damaged, or not a file of d3rlpy.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        (file,) = require_files(path)
        self._file = Hdf5File(file)
        with self._file.read() as h5_file:
            self._is_first = _EPISODE_TERMINALS in h5_file
            self._constants: dict[str, Any] = {}
            if self._is_first:
                self._find_episodes(h5_file)
            else:
                self._read_index(h5_file)
            missing = {OBSERVATIONS, ACTIONS, REWARDS, TERMINATED} - {*self._columns}
            if missing:
                raise self._file.error(f"no column {min(missing)!r}", _COLUMNS)
            self.step_fields = {
                field: self._field(h5_file, name) for field, name in self._names(0).items()
            }
        of_transitions = (path for path in self.step_fields if not is_below(path, rlds.OBSERVATION))
        self.table = RowsTable(
            FIELDS,
            other_fields="transitions",
            leftovers={path: f"{LAST}/{path}" for path in of_transitions},
        )

    def _read_index(self, h5_file: Any) -> None:
        """Reads the columns and the number of episodes."""
        version = as_text(self._value(h5_file, _VERSION_ARRAY))
        if version != VERSION:
            problem = (
                f"version {version!r}, expected {VERSION!r}: load it with d3rlpy, and dump it again"
            )
            raise self._file.error(problem, _VERSION_ARRAY)
        self._columns = [as_text(name) for name in self._value(h5_file, _COLUMNS)]
        self._count = int(self._value(h5_file, _NUM_EPISODES))
        if self._count < 1 or self._count > len(h5_file):
            problem = f"{self._count} episodes, but {len(h5_file)} arrays"
            raise self._file.error(problem, _NUM_EPISODES)
        self._tuple_sizes = self._find_tuple_sizes(h5_file, 0)

    def _find_episodes(self, h5_file: Any) -> None:
        """Finds the columns and the episodes in a file of d3rlpy 1."""
        self._terminals, self._is_end = (
            np.asarray(self._value(h5_file, name)).reshape(-1) != 0
            for name in (_TERMINALS, _EPISODE_TERMINALS)
        )
        num_rows = len(self._terminals)
        if len(self._is_end) != num_rows or not num_rows:
            problem = f"{len(self._is_end)} rows, but there are {num_rows} terminals"
            raise self._file.error(problem, _EPISODE_TERMINALS)
        self._is_end |= self._terminals
        self._end_rows = np.union1d(np.flatnonzero(self._is_end) + 1, [num_rows])
        self._count = len(self._end_rows)
        other_arrays = {
            name: self._file.array(h5_file, name) for name in h5_file if name not in _V1_ARRAYS
        }
        rows = [name for name, array in other_arrays.items() if array.shape[:1] == (num_rows,)]
        self._constants = {
            name: read_constant(self._file, array, name)
            for name, array in other_arrays.items()
            if name not in rows
        }
        self._columns = [OBSERVATIONS, ACTIONS, REWARDS, *rows, TERMINATED]
        self._tuple_sizes = dict.fromkeys(self._columns, 0)

    def _value(self, h5_file: Any, name: str) -> Any:
        return self._file.array(h5_file, name)[()]

    def _find_tuple_sizes(self, h5_file: Any, index: int) -> dict[str, int]:
        """Returns the number of arrays of each column that is a tuple; 0 for a single array."""
        sizes = {}
        for column in self._columns:
            sizes[column] = 0
            if f"{column}_{index}" not in h5_file:
                while f"{column}_{index}_{sizes[column]}" in h5_file:
                    sizes[column] += 1
                if not sizes[column]:
                    raise self._file.error("no such array", f"{column}_{index}")
        return sizes

    def _names(self, index: int) -> dict[str, str]:
        """Returns the arrays of the steps of an episode, by the path of the field."""
        names = {}
        for column, size in self._tuple_sizes.items():
            field = FIELDS.get(column, column)
            if column == TERMINATED:
                continue
            if not size:
                names[field] = column if self._is_first else f"{column}_{index}"
            for element in range(size):
                names[f"{field}/{element}"] = f"{column}_{index}_{element}"
        return names

    def _bounds(self, index: int) -> tuple[int, int]:
        """Returns the row range of an episode (d3rlpy 1), or its index range (d3rlpy 2)."""
        return bounds(self._end_rows, index) if self._is_first else (index, index + 1)

    def _slice(self, index: int) -> slice:
        """Returns the rows of an episode in its arrays."""
        return slice(*self._bounds(index)) if self._is_first else ALL_ROWS

    def _field(self, h5_file: Any, name: str) -> Field:
        array = self._file.array(h5_file, name)
        if array.dtype.kind not in "biufc" or not array.shape:
            raise self._file.error(f"{array.dtype} of shape {array.shape}, expected rows", name)
        shape = array.shape[1:] or ((1,) if name == ACTIONS else ())
        is_reward = name.partition("_")[0] == REWARDS and shape == (1,)
        return Field(array.dtype, () if is_reward else shape)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        # The number of elements of each tuple; for d3rlpy 1, also the constants of the file.
        variant = {"constants": self._constants} if self._is_first else {"version": VERSION}
        return SourceInfo(
            description="Episodes of a d3rlpy dataset.",
            homepage="https://d3rlpy.readthedocs.io",
            metadata={METADATA_KEY: {"columns": self._tuple_sizes, **variant}},
        )

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(
            hold_open=lambda: self._file,  # The file stays open.
            sidecar=lambda: read_hdf5_sidecar(self._file),
        )

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return self._file.inputs()

    @override
    def num_episodes(self, split: str) -> int:
        return self._count

    def key(self, split: str, index: int) -> str:
        """Returns a key from the index of the episode."""
        return f"episode_{index}"

    def _is_terminated(self, h5_file: Any, index: int) -> bool:
        if self._is_first:
            return bool(self._terminals[self._end_rows[index] - 1])
        return bool(np.asarray(self._value(h5_file, f"{TERMINATED}_{index}")).reshape(-1)[-1])

    @override
    def _find_rows(self, split: str, index: int) -> EpisodeRows:
        with self._file.read(episode=self.key(split, index)) as h5_file:
            terminated, lengths = self._is_terminated(h5_file, index), {}
            for path, name in self._names(index).items():
                if (field := self._field(h5_file, name)) != self.step_fields[path]:
                    problem = f"{field}, but the first episode has {self.step_fields[path]}"
                    raise self._file.error(problem, name)
                num_rows = self._file.array(h5_file, name).shape[0]
                lengths[name] = len(range(num_rows)[self._slice(index)])
        if len({*lengths.values()}) != 1 or min(lengths.values()) < 1:
            raise SourceError(f"columns of different lengths: {lengths}", file=self._file.path)
        return EpisodeRows(
            Origin(epath.Path(self._file.path).name, *self._bounds(index)),
            lengths[name],
            terminated,
            "" if terminated else "row",
            not self._is_first or bool(self._is_end[self._end_rows[index] - 1]),
            index,
        )

    @override
    def _read_rows(self, episode: EpisodeRows, paths: Collection[str]) -> dict[str, np.ndarray]:
        index = episode.handle
        with self._file.read(episode=self.key("", index)) as h5_file:
            columns = {
                path: self._file.array(h5_file, name)[self._slice(index)]
                for path, name in self._names(index).items()
                if path in paths
            }
        shapes = {path: cast(tuple[int, ...], self.step_fields[path].shape) for path in columns}
        return {path: rows.reshape(-1, *shapes[path]) for path, rows in columns.items()}
