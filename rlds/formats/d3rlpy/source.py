"""The datasets of d3rlpy 2 (https://d3rlpy.readthedocs.io), read without d3rlpy.

An HDF5 file has `<column>_<i>` for each episode, and `<column>_<i>_<j>` for the parts of tuples.
All columns have as many rows as the episode has observations; `terminated` is one bool. In an
episode that did not end in a terminal state, the last row is no transition: its observation is the
final one, and its action and reward mean nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.alignment import from_sars
from rlds.formats.hdf5_sidecar import read_hdf5_sidecar
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.sources.sidecar import StoredSidecar
from rlds.sources.source import (
    ALL_ROWS,
    Origin,
    Outline,
    RandomAccessSource,
    SourceEpisode,
    SourceError,
    require_files,
)
from rlds.sources.texts import as_text
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import nest

__all__ = ["FIELDS", "LAST", "METADATA_KEY", "SUFFIXES", "TERMINATED", "VERSION", "D3rlpySource"]

OBSERVATIONS, ACTIONS, REWARDS, TERMINATED = "observations", "actions", "rewards", "terminated"
# The fields of a step that columns become. Others keep their names.
FIELDS: Mapping[str, str] = {
    OBSERVATIONS: rlds.OBSERVATION,
    ACTIONS: rlds.ACTION,
    REWARDS: rlds.REWARD,
}
# What the last row has of transitions if it is none: fields of the episode, below this name.
LAST = "last_row"
METADATA_KEY = "d3rlpy"
SUFFIXES = (".h5", ".hdf5")
VERSION = "2.1"
_COLUMNS, _NUM_EPISODES, _VERSION = "columns", "num_episodes", "version"


class D3rlpySource(RandomAccessSource):
    """The episodes of a dataset that d3rlpy 2 dumped, an HDF5 file.

    An episode that did not end in a terminal state is truncated, and its final observation is
    known; of one that did, it is not. The parts of tuples are called `0`, `1`, .... What the last
    row has beside a final observation is in `last_row`, zeros for other episodes.

    Args:
      path: The file.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: It is damaged, or none of d3rlpy 2.
    """

    description = "Episodes of a d3rlpy dataset."
    homepage = "https://d3rlpy.readthedocs.io"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        (file,) = require_files(path)
        self._file = Hdf5File(file)
        with self._file.read() as opened:
            version = as_text(self._value(opened, _VERSION))
            if version != VERSION:
                what = (
                    f"version {version!r}, expected {VERSION!r}: load it with d3rlpy, and dump it"
                )
                raise self._file.error(what, _VERSION)
            self._columns = [as_text(name) for name in self._value(opened, _COLUMNS)]
            self._count = int(self._value(opened, _NUM_EPISODES))
            if self._count < 1 or self._count > len(opened):
                what = f"{self._count} episodes, but {len(opened)} arrays"
                raise self._file.error(what, _NUM_EPISODES)
            self._parts = self._parts_of(opened, 0)
            missing = {OBSERVATIONS, ACTIONS, REWARDS, TERMINATED} - {*self._columns}
            if missing:
                raise self._file.error(f"no column {min(missing)!r}", _COLUMNS)
            self._fields = {
                place: self._field(opened, name) for place, name in self._names(0).items()
            }

    @classmethod
    @override
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        if not os.fspath(path).endswith(SUFFIXES):
            return False
        (file,) = require_files(path)
        with Hdf5File(file).read() as opened:
            return all(name in opened for name in (_COLUMNS, _NUM_EPISODES, _VERSION))

    def _value(self, opened: Any, name: str) -> Any:
        return self._file.array(opened, name)[()]

    def _parts_of(self, opened: Any, index: int) -> dict[str, int]:
        """How many parts each column has; 0 if it is not made of parts."""
        parts = {}
        for column in self._columns:
            parts[column] = 0
            if f"{column}_{index}" not in opened:
                while f"{column}_{index}_{parts[column]}" in opened:
                    parts[column] += 1
                if not parts[column]:
                    raise self._file.error("no such array", f"{column}_{index}")
        return parts

    def _names(self, index: int) -> dict[str, str]:
        """The arrays of the steps of an episode, by the path of the field."""
        names = {}
        for column, parts in self._parts.items():
            field = FIELDS.get(column, column)
            if column == TERMINATED:
                continue
            if not parts:
                names[field] = f"{column}_{index}"
            for part in range(parts):
                names[f"{field}/{part}"] = f"{column}_{index}_{part}"
        return names

    def _field(self, opened: Any, name: str) -> Field:
        array = self._file.array(opened, name)
        if array.dtype.kind not in "biufc" or not array.shape:
            raise self._file.error(f"{array.dtype} of shape {array.shape}, expected rows", name)
        shape = array.shape[1:]
        is_reward = name.startswith(f"{REWARDS}_") and shape == (1,)
        return Field(array.dtype, () if is_reward else shape)

    @override
    def step_fields(self) -> Mapping[str, Any]:
        return nest({**self._fields, rlds.DISCOUNT: Field(np.float32)})

    def episode_fields(self) -> Mapping[str, Any]:
        """Returns `last_row`, see the class."""
        return nest({f"{LAST}/{path}": field for path, field in self._of_transitions().items()})

    def _of_transitions(self) -> dict[str, Field]:
        prefix = rlds.OBSERVATION
        return {
            path: field
            for path, field in self._fields.items()
            if path != prefix and not path.startswith(f"{prefix}/")
        }

    def metadata(self) -> Mapping[str, Any]:
        """Returns the columns in their order, with how many parts each has, and the version."""
        return {METADATA_KEY: {"columns": self._parts, "version": VERSION}}

    @override
    def stored_sidecar(self) -> StoredSidecar | None:
        kept = read_hdf5_sidecar(self._file)
        return None if kept is None else kept.if_of(self._count)

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return self._file.inputs()

    @override
    def num_episodes(self, split: str) -> int:
        del split
        return self._count

    def key(self, split: str, index: int) -> str:
        """Returns the number of the episode."""
        del split
        return f"episode_{index}"

    def outline(self, split: str, index: int) -> Outline:
        """Reads no rows; see `RandomAccessSource`."""
        with self._file.read(episode=self.key(split, index)) as opened:
            rows = self._file.array(opened, next(iter(self._names(index).values()))).shape[0]
            terminated = self._terminated(opened, index)
        return Outline(rows, rows if terminated else rows - 1, not terminated)

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        paths = self.step_paths(fields)
        wanted = [path for path in self._fields if path in paths]
        steps, last, terminated = self._read(split, index, wanted)
        return SourceEpisode(
            key=self.key(split, index),
            steps=steps,
            origin=Origin(epath.Path(self._file.path).name, index, index + 1),
            final_observation_known=not terminated,
            truncated=not terminated,
            metadata=nest({f"{LAST}/{path}": row for path, row in last.items()}),
        )

    def _terminated(self, opened: Any, index: int) -> bool:
        return bool(np.asarray(self._value(opened, f"{TERMINATED}_{index}")).reshape(-1)[-1])

    def _read(
        self, split: str, index: int, wanted: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, Any], bool]:
        """Returns the steps, what the last row has of transitions, and how the episode ended."""
        with self._file.read(episode=self.key(split, index)) as opened:
            terminated = self._terminated(opened, index)
            columns = {}
            lengths = {}
            for path, name in self._names(index).items():
                array = self._file.array(opened, name)
                if self._field(opened, name) != self._fields[path]:
                    what = f"{self._field(opened, name)}, but the first episode has"
                    raise self._file.error(f"{what} {self._fields[path]}", name)
                lengths[name] = array.shape[0]
                columns[path] = array[()] if path in wanted else np.empty((array.shape[0], 0))
                if path in wanted:
                    shape = cast(tuple[int, ...], self._fields[path].shape)
                    columns[path] = columns[path].reshape(-1, *shape)
        if len({*lengths.values()}) != 1 or min(lengths.values()) < 1:
            raise SourceError(f"columns of different lengths: {lengths}", file=self._file.path)
        others = self._of_transitions()
        transitions = {path: columns[path] for path in others}
        last: dict[str, Any] = {
            path: np.zeros(cast(tuple[int, ...], field.shape), field.dtype)
            for path, field in others.items()
        }
        if not terminated:
            last |= {path: transitions[path][-1] for path in others if path in wanted}
            transitions = {path: column[:-1] for path, column in transitions.items()}
        nested = nest(transitions)
        steps = from_sars(
            observation=nest({p: c for p, c in columns.items() if p not in others})[
                rlds.OBSERVATION
            ],
            action=nested.pop(rlds.ACTION),
            reward=nested.pop(rlds.REWARD),
            terminal=terminated,
            transition_metadata=nested,
        )
        return steps, last, terminated
