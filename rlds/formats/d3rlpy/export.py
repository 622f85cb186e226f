"""Writes datasets of d3rlpy 2, from d3rlpy or any other source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.d3rlpy.source import FIELDS, LAST, SUFFIXES, TERMINATED, VERSION
from rlds.formats.hdf5_export import StagedFiles, copy_row
from rlds.formats.hdf5_sidecar import hdf5_sidecar_writer
from rlds.raw_files.hdf5_writing import new_file
from rlds.sources.episodes import Episodes
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import Location, SourceEpisode
from rlds.sources.writing import (
    Export,
    Placement,
    check_arrays,
    is_array,
    sidecar_placements,
    unchanged_placements,
)
from rlds_ecosystem.model.nests import is_below, leaves_at, lookup, root_of

__all__ = ["D3rlpyExport"]

# The columns that all datasets have.
OBSERVATIONS, ACTIONS, REWARDS = FIELDS


class D3rlpyExport(Export):
    """Writes an HDF5 file that `ReplayBuffer.load` of d3rlpy 2 reads.

    Episodes from d3rlpy become the same arrays again. In other episodes, the numeric fields of the
    observation become its arrays, several as a tuple; the action is one array, and the reward a
    number. d3rlpy keeps the final observation of truncated episodes only. All other values are in
    the group `rlds`.

    Args:
      episodes: The episodes.
      observation: The path of the observation, if only one field is exported.
      action: The path of the action, if there are several.

    Raises:
      ValueError: There is no such field, or it is not an array of numbers of one shape.
    """

    format = "d3rlpy"
    suffixes = SUFFIXES
    copies_parts = True

    def __init__(
        self, episodes: Episodes, *, observation: str = rlds.OBSERVATION, action: str = rlds.ACTION
    ) -> None:
        super().__init__(episodes)
        steps = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        self._sidecar: Sidecar | None = None
        # The fields of steps by the names of columns, `<column>/<index>` for elements of tuples;
        # empty if zeros are written.
        self._paths: dict[str, str] = {}
        columns = self.recorded_metadata().get("columns", {})
        if columns and any(is_below(path, LAST) for path, _ in leaves_at(episodes.spec, None)):
            self.unchecked = {"key"}  # The index of an episode in the file.
            for column, count in columns.items():
                field, suffixes = FIELDS.get(column, column), [f"/{i}" for i in range(count)]
                self._paths |= {column + suffix: field + suffix for suffix in suffixes or [""]}
            del self._paths[TERMINATED]
            return
        arrays = [p for p, field in steps.items() if is_array(field) and p not in rlds.STEP_FLAGS]
        observations = [path for path in arrays if is_below(path, observation)]
        chosen = (observations[0] if observations else observation, action)
        check_arrays(steps, chosen, "d3rlpy needs observations and one action")
        for index, path in enumerate(observations):
            is_alone = len(observations) == 1
            self._paths[OBSERVATIONS if is_alone else f"{OBSERVATIONS}/{index}"] = path
        self._paths |= {ACTIONS: action, REWARDS: rlds.REWARD if rlds.REWARD in arrays else ""}
        field_paths = {
            path: FIELDS[root_of(name)] + name.removeprefix(root_of(name))
            for name, path in self._paths.items()
            if path
        }
        self._sidecar = Sidecar.create(episodes, field_paths, drops_final_row=True)

    @override
    def placements(self) -> Sequence[Placement]:
        if self._sidecar is None:
            return unchanged_placements(self.episodes)
        placements = sidecar_placements(self._sidecar)
        if rlds.REWARD not in self._sidecar.paths:
            why = "no reward is a number; d3rlpy gets zeros"
            placements.append(Placement(f"{rlds.STEPS}/{rlds.REWARD}", "rewards", "sidecar", why))
        return placements

    @override
    def files_order(self) -> Sequence[int] | None:
        return self.order_of_origin() if self._sidecar is None else None

    @override
    def write(self, path: Path) -> None:
        with new_file(path) as (file, check), StagedFiles() as staged:
            file["columns"] = [*dict.fromkeys(map(root_of, self._paths)), TERMINATED]
            layout = self._sidecar or Sidecar.metadata_only(self.episodes, self.format)
            sidecar = hdf5_sidecar_writer(file, layout)
            count = 0
            for item in self.iter_items():
                if isinstance(item, Location):
                    columns = [*self._paths, TERMINATED]
                    names = {
                        _array_name(name, item.index): _array_name(name, count) for name in columns
                    }
                    staged.copy(item.source, names, file)
                else:
                    for name, column in self._columns_of(item):
                        file[_array_name(name, count)] = column
                if self._sidecar is None:
                    pass
                elif isinstance(item, Location):
                    copy_row(item, sidecar)
                else:
                    sidecar.add(item)
                count += 1
                check()
            sidecar.close()
            file["num_episodes"] = count
            file["version"] = VERSION

    def _columns_of(self, episode: SourceEpisode) -> Iterator[tuple[str, Any]]:
        """Yields the columns of an episode; elements of tuples as `<column>/<index>`."""
        terminated = bool(episode.steps[rlds.IS_TERMINAL][-1])
        # d3rlpy stores transitions only, so the row of a terminal state is left out.
        end = episode.num_steps - (terminated and episode.final_observation_known)
        for name, path in self._paths.items():
            zeros = np.zeros(episode.num_steps, np.float32)
            values = np.asarray(lookup(episode.steps, path) if path else zeros)[:end]
            has_final_row = self._sidecar is None and not terminated
            if has_final_row and not is_below(path, rlds.OBSERVATION):
                last_row = np.asarray(lookup(episode.metadata[LAST], path), values.dtype)
                values = np.concatenate([values[:-1], last_row[np.newaxis]])
            # Actions and rewards are vectors in each step.
            is_number = values.ndim == 1 and name in (ACTIONS, REWARDS)
            yield name, values[:, np.newaxis] if is_number else values
        yield TERMINATED, np.bool_(terminated)


def _array_name(name: str, index: int) -> str:
    """Returns the name of the array of a column, or of an element of a tuple, for an episode."""
    column, *element = name.split("/")
    return "_".join([column, str(index), *element])
