"""The trajectories of imitation (https://imitation.readthedocs.io), read without imitation.

`imitation.data.serialize.save` writes a folder of the library `datasets`: a table in Arrow files,
with a row for each trajectory. A trajectory has `T + 1` observations (`obs`), `T` actions (`acts`)
and infos, optional `T` rewards (`rews`), and the flag of a terminal state (`terminal`).
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.rows_source import EpisodeRows, RowsSource, RowsTable
from rlds.raw_files.arrow_columns import as_rows
from rlds.raw_files.input_files import changed
from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import Origin, SourceError, SourceInfo, require_files
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field

__all__ = ["ImitationSource"]

OBS, ACTS, INFOS, TERMINAL, REWS = "obs", "acts", "infos", "terminal", "rews"
# The fields of a step that columns become. `infos` keeps its name.
FIELDS: Mapping[str, str] = {
    OBS: rlds.OBSERVATION,
    ACTS: rlds.ACTION,
    INFOS: INFOS,
    REWS: rlds.REWARD,
}
INFO_FILE, STATE_FILE = "dataset_info.json", "state.json"
METADATA_KEY = "imitation"


class ImitationSource(RowsSource):
    """The trajectories that imitation saved in a folder.

    Episodes have a final observation, and are truncated unless `terminal`. `infos` are step
    metadata: the text that imitation stored, in JSON. The text is not decoded to Python objects,
    because decoding may run any code.

    Args:
      path: The folder.

    Raises:
      FileNotFoundError: There is no such folder, or a file of it is missing.
      SourceError: The table has another format, or is damaged.
    """

    table = RowsTable(FIELDS, other_fields="transitions")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._directory = stores.as_path(path)
        metadata_files = require_files(self._directory / INFO_FILE, self._directory / STATE_FILE)
        with source_errors(metadata_files[0]):
            self._info = json.loads(metadata_files[0].read_text())
            self._features = list(self._info["features"])
        with source_errors(metadata_files[1]):
            self._state = json.loads(metadata_files[1].read_text())
            names = [str(file["filename"]) for file in self._state["_data_files"]]
            for name in names:
                if name != os.path.basename(name) or name.startswith("."):
                    raise SourceError(
                        f"the file name {name!r}, expected a name in this folder",
                        file=metadata_files[1],
                    )
        if not {OBS, ACTS, TERMINAL} <= {*self._features} <= {*FIELDS, TERMINAL}:
            fault = f"columns {self._features}, expected {OBS}, {ACTS}, {INFOS}, {TERMINAL}, {REWS}"
            raise SourceError(fault, file=metadata_files[0])
        self._files = require_files(*(self._directory / name for name in names))
        self._versions = [stores.version_of(file) for file in self._files]
        self._tables: list[Any] | None = None
        self._inputs = [*metadata_files, *self._files]
        self._sizes = [len(table) for table in self._read_tables()]
        if not sum(self._sizes):
            raise SourceError("there is no trajectory", file=self._directory)
        self.step_fields = {
            FIELDS[name]: self._field(name) for name in self._features if name != TERMINAL
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": None}

    def _read_tables(self) -> list[Any]:
        """Returns the tables, memory-mapped from their files."""
        if self._tables is None:
            arrow, ipc = import_extra("pyarrow"), import_extra("pyarrow.ipc")
            tables = []
            for file, version in zip(self._files, self._versions):
                if stores.version_of(file) != version:
                    raise changed(os.fspath(file))
                with source_errors(file):
                    content = (
                        arrow.memory_map(os.fspath(file))
                        if stores.is_local(file)
                        else arrow.py_buffer(file.read_bytes())
                    )
                    table = ipc.open_stream(content).read_all()
                    if missing := {*self._features} - {*table.column_names}:
                        raise SourceError("no such column", file=file, field=min(missing))
                tables.append(table)
            self._tables = tables
        return self._tables

    def _location(self, index: int) -> tuple[int, int]:
        """Returns the index of the file of a trajectory, and its row there."""
        for file_index, count in enumerate(self._sizes):
            if index < count:
                return file_index, index
            index -= count
        raise IndexError(f"there are {sum(self._sizes)} trajectories")

    def _array(self, name: str, index: int) -> Any:
        """Returns the validated Arrow array of a column for a trajectory."""
        file_index, row = self._location(index)
        array = self._read_tables()[file_index][name].slice(row, 1).combine_chunks()
        array.validate(full=True)
        if array.null_count:
            raise SourceError("no value", file=self._files[file_index], row=row, field=name)
        return array

    def _column(self, name: str, index: int) -> np.ndarray:
        """Returns a column of the steps of a trajectory."""
        file_index, row = self._location(index)
        with source_errors(self._files[file_index], row=row, field=name):
            return as_rows(self._array(name, index).flatten())

    def _field(self, name: str) -> Field:
        column = self._column(name, 0)
        return Field(str if column.dtype == object else column.dtype, column.shape[1:])

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        return SourceInfo(
            description="Trajectories of imitation.",
            homepage="https://imitation.readthedocs.io",
            metadata={METADATA_KEY: {"info": self._info, "state": self._state}},
        )

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return self._inputs

    @override
    def num_episodes(self, split: str) -> int:
        return sum(self._sizes)

    def key(self, split: str, index: int) -> str:
        """Returns a key from the index of the trajectory."""
        return f"trajectory_{index}"

    @override
    def _find_rows(self, split: str, index: int) -> EpisodeRows:
        file_index, row = self._location(index)
        file = self._files[file_index]
        with source_errors(file, row=row):
            observations, actions = (len(self._array(n, index).flatten()) for n in (OBS, ACTS))
            terminal = bool(self._array(TERMINAL, index)[0].as_py())
        if observations != actions + 1 or not actions:
            problem = f"{observations} observations and {actions} actions"
            raise SourceError(problem, file=file, row=row)
        origin = Origin(file.name, row, row + 1)
        return EpisodeRows(origin, actions, terminal, "extra", handle=index)

    @override
    def _read_rows(self, episode: EpisodeRows, paths: Collection[str]) -> dict[str, np.ndarray]:
        columns, index = {}, episode.handle
        for name, path in FIELDS.items():
            if path in paths:
                columns[path] = column = self._column(name, index)
                shape, field = column.shape[1:], self.step_fields[path]
                if (column.dtype, shape) != (field.column_dtype, field.shape):
                    file_index, row = self._location(index)
                    problem = f"{column.dtype} of shape {shape}, but the first one has {field}"
                    raise SourceError(problem, file=self._files[file_index], row=row, field=name)
        return columns
