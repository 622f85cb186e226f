"""The datasets of OGBench (https://github.com/seohongpark/ogbench), read without OGBench.

A file `<name>.npz` has the concatenated rows of all episodes, and `<name>-val.npz` those for
validation. An episode of `T` transitions has `T + 1` rows: the last row, with `terminals` 1, holds
the final observation, and an action without meaning. There are no rewards: tasks compute them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.rows_source import EpisodeRows, RowsSource, RowsTable, bounds
from rlds.raw_files.npz_files import NpzRows
from rlds.raw_files.untrusted import is_there, source_errors
from rlds.sources.source import Capabilities, Origin, SourceError, SourceInfo
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field

__all__ = ["OGBenchSource", "recognizes"]

_OBSERVATIONS, _ACTIONS, _TERMINALS = "observations", "actions", "terminals"
_SUFFIX, _VALIDATION = ".npz", "-val"
_REQUIRED_ARRAYS = (_OBSERVATIONS, _ACTIONS, _TERMINALS)


class OGBenchSource(RowsSource):
    """The episodes of an OGBench dataset: `<name>.npz` and the optional `<name>-val.npz`.

    All episodes were cut after a number of steps: they are truncated, with a final observation.
    Steps also have arrays such as `qpos` and `qvel`, and an episode has `last_action`, the action
    in the row of the final observation.

    Args:
      path: The file of the split `train`, or of the split `val`, or a folder with both.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is not a dataset of OGBench, or is damaged.
    """

    # Other arrays (qpos, qvel, button_states) keep their names.
    table = RowsTable(
        {_OBSERVATIONS: rlds.OBSERVATION, _ACTIONS: rlds.ACTION},
        leftovers={rlds.ACTION: "last_action"},
    )

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files = {split: NpzRows(file) for split, file in _find_files(path).items()}
        self._end_rows: dict[str, np.ndarray] = {}
        for split, file in self._files.items():
            with source_errors(file.path):
                self._check(file)
                self._end_rows[split] = _find_end_rows(file)
        arrays, path_of = self._arrays.items(), self.table.field_path
        fields = {path_of(name): _field_of(array) for name, array in arrays if name != _TERMINALS}
        self.step_fields = fields

    def _check(self, file: NpzRows) -> None:
        first, arrays = self._arrays, file.arrays
        for name in _REQUIRED_ARRAYS:
            if name not in arrays:
                raise SourceError(
                    f"no such array; the file has {[*arrays]}", file=file.path, field=name
                )
        rows = arrays[_TERMINALS].shape[0]
        for name, array in arrays.items():
            if array.shape[0] != rows:
                problem = f"{array.shape[0]} rows, but {_TERMINALS} has {rows}"
                raise SourceError(problem, file=file.path, field=name)
            if name not in first or _field_of(first[name]) != _field_of(array):
                problem = f"{_field_of(array)}, unlike in the file of the other split"
                raise SourceError(problem, file=file.path, field=name)
        if first.keys() != arrays.keys():
            raise SourceError(
                f"the arrays {[*arrays]}, but the other split has {[*first]}", file=file.path
            )

    @property
    def splits(self) -> Sequence[str]:  # type: ignore[override]
        """The names of the existing splits: `train`, `val`."""
        return [*self._files]

    @property
    def _arrays(self) -> Mapping[str, Any]:
        return next(iter(self._files.values())).arrays

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        arrays = {name: array.dtype.str for name, array in self._arrays.items()}
        return SourceInfo(
            description="Episodes of an OGBench dataset.",
            homepage="https://github.com/seohongpark/ogbench",
            metadata={"ogbench": {"arrays": arrays}},
        )

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(lengths=self._lengths, totals=self._totals)

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return [file.path for file in self._files.values()]

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._end_rows[split])

    def _totals(self, split: str) -> Mapping[str, int]:
        return {"rows": self._files[split].arrays[_TERMINALS].shape[0]}

    def key(self, split: str, index: int) -> str:
        """Returns a key from the split and the index of the episode."""
        return f"{split}-{index:07d}"

    @override
    def _find_rows(self, split: str, index: int) -> EpisodeRows:
        file, (start, end) = self._files[split], bounds(self._end_rows[split], index)
        origin = Origin(file.path.name, start, end)
        return EpisodeRows(origin, end - start, False, "row", handle=file)

    @override
    def _counts(self, episode: EpisodeRows, rows: Mapping[str, np.ndarray]) -> Mapping[str, int]:
        return {"rows": episode.num_rows}

    @override
    def _read_rows(self, episode: EpisodeRows, paths: Collection[str]) -> dict[str, np.ndarray]:
        return {
            path: episode.handle.rows(name, episode.origin.begin, episode.origin.end)
            for name in self._arrays
            if (path := self.table.field_path(name)) in paths
        }


def _field_of(array: Any) -> Field:
    return Field(array.dtype, array.shape[1:])


def _find_end_rows(file: NpzRows) -> np.ndarray:
    """Returns the end rows of the episodes (exclusive)."""
    terminals = file.read(_TERMINALS) != 0
    if terminals.ndim != 1:
        raise SourceError("expected a number for each row", file=file.path, field=_TERMINALS)
    # Compact files mark the last two rows of an episode.
    end_rows = np.flatnonzero(terminals & ~np.append(terminals[1:], False)) + 1
    if not len(end_rows) or end_rows[-1] != len(terminals):
        fault = "the last row is not a final observation: the file is cut"
        raise SourceError(fault, file=file.path, row=len(terminals) - 1, field=_TERMINALS)
    short = np.flatnonzero(np.diff(end_rows, prepend=0) < 2)
    if len(short):
        fault = "an episode without a transition"
        raise SourceError(fault, file=file.path, row=int(end_rows[short[0]]) - 1, field=_TERMINALS)
    return end_rows


def _find_files(path: str | os.PathLike[str]) -> dict[str, epath.Path]:
    """Returns the files of the splits."""
    location = stores.as_path(path)
    if location.is_dir():
        names = [
            entry.name for entry in stores.list_directory(location) if entry.name.endswith(_SUFFIX)
        ]
        train_names = [name for name in names if not name.endswith(_VALIDATION + _SUFFIX)]
        if len(train_names) > 1 or not names:
            raise FileNotFoundError(f"{os.fspath(path)!r} has {len(names)} .npz files; name one.")
        location = location / (train_names or names)[0]
    if not location.exists():
        raise FileNotFoundError(f"{os.fspath(path)!r} does not exist.")
    if location.name.endswith(_VALIDATION + _SUFFIX):
        return {"val": location}
    validation = location.parent / (location.name.removesuffix(_SUFFIX) + _VALIDATION + _SUFFIX)
    return {"train": location, **({"val": validation} if is_there(validation) else {})}


def recognizes(path: str | os.PathLike[str]) -> bool:
    """Whether a path has this format, judged by the names and shapes of its arrays."""
    arrays = NpzRows(next(iter(_find_files(path).values()))).arrays
    rows = {array.shape[0] for array in arrays.values()}
    return {*_REQUIRED_ARRAYS} <= arrays.keys() and "rewards" not in arrays and len(rows) == 1
