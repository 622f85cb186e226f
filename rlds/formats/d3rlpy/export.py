"""Writes datasets of d3rlpy 2: those that came from it, and any others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.d3rlpy.source import FIELDS, LAST, SUFFIXES, TERMINATED, VERSION
from rlds.formats.hdf5_sidecar import hdf5_sidecar_writer
from rlds.raw_files.hdf5_writing import new_file
from rlds.sources.episodes import Episodes
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import SourceEpisode
from rlds.sources.writing import (
    Export,
    Placement,
    as_it_was,
    check_arrays,
    is_array,
    sidecar_placements,
)
from rlds_ecosystem.model.nests import at, is_in, leaves_at

__all__ = ["D3rlpyExport"]

_COLUMN_OF = {field: column for column, field in FIELDS.items()}


class D3rlpyExport(Export):
    """Writes an HDF5 file that `ReplayBuffer.load` of d3rlpy 2 reads.

    Episodes that came from d3rlpy become the same arrays again. Of others, the numbers of the
    observation become its arrays, several as a tuple; the action is one array, and the reward a
    number. d3rlpy keeps the final observation of episodes only that did not end in a terminal
    state. What it has no place for is in the group `rlds`.

    Args:
      episodes: The episodes.
      observation: The path of the field that is the observation, if others are not wanted.
      action: The path of the field that is the action, if there are several.

    Raises:
      ValueError: There is no such field, or it is no array of numbers of one shape.
    """

    format = "d3rlpy"
    suffixes = SUFFIXES

    def __init__(
        self,
        episodes: Episodes,
        *,
        observation: str = rlds.OBSERVATION,
        action: str = rlds.ACTION,
    ) -> None:
        super().__init__(episodes)
        self._fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        self._sidecar: Sidecar | None = None
        columns = self.recorded().get("columns", {})
        self._is_recorded = bool(columns) and any(is_in(path, LAST) for path in self._episode_paths)
        if self._is_recorded:
            self.unchecked = {"key"}  # Its number in the file.
            self._columns = {
                name: (FIELDS.get(name, name), parts) for name, parts in columns.items()
            }
            return
        observations = [path for path in self._arrays if is_in(path, observation)]
        chosen = (observations[0] if observations else observation, action)
        check_arrays(self._fields, chosen, "d3rlpy needs observations and one action")
        self._observations = observations
        self._action = action
        places = {action: rlds.ACTION}
        if rlds.REWARD in self._arrays:
            places[rlds.REWARD] = rlds.REWARD
        for part, path in enumerate(observations):
            is_alone = len(observations) == 1
            places[path] = rlds.OBSERVATION if is_alone else f"{rlds.OBSERVATION}/{part}"
        self._sidecar = Sidecar.of(episodes, places, drops_final_row=True)

    @property
    def _episode_paths(self) -> list[str]:
        return [path for path, _ in leaves_at(self.episodes.spec, None)]

    @property
    def _arrays(self) -> list[str]:
        found = [path for path, field in self._fields.items() if is_array(field)]
        return [path for path in found if path not in rlds.STEP_FLAGS]

    @override
    def placements(self) -> Sequence[Placement]:
        if self._sidecar is None:
            return as_it_was(self.episodes)
        found = sidecar_placements(self._sidecar)
        if rlds.REWARD not in self._sidecar.places:
            why = "no reward is a number; d3rlpy gets zeros"
            found.append(Placement(f"{rlds.STEPS}/{rlds.REWARD}", "rewards", "sidecar", why))
        return found

    @override
    def write(self, path: Path) -> None:
        with new_file(path) as (file, check):
            columns = [*(self._columns if self._is_recorded else _COLUMN_OF.values())]
            if TERMINATED not in columns:
                columns.append(TERMINATED)
            file["columns"] = columns
            said = self._sidecar or Sidecar.of_dataset(self.episodes, self.format)
            sidecar = hdf5_sidecar_writer(file, said)
            self.order = self.order_of_origin() if self._is_recorded else None
            count = 0
            for episode in self.each():
                for name, column in self._columns_of(episode):
                    number, *part = name.split("/")
                    file["_".join([number, str(count), *part])] = column
                if self._sidecar is not None:
                    sidecar.add(episode)
                count += 1
                check()
            sidecar.close()
            file["num_episodes"] = count
            file["version"] = VERSION

    def _columns_of(self, episode: SourceEpisode) -> Iterator[tuple[str, Any]]:
        """Yields the columns of an episode, those of parts as `<column>/<part>`."""
        terminated = bool(episode.steps[rlds.IS_TERMINAL][-1])
        if self._is_recorded:
            yield from self._recorded_columns(episode, terminated)
        else:
            # The row of a terminal state is no transition, and d3rlpy does not know it.
            end = episode.num_steps - (terminated and episode.final_observation_known)
            steps = episode.steps
            for part, path in enumerate(self._observations):
                name = "observations" if len(self._observations) == 1 else f"observations/{part}"
                yield name, np.asarray(at(steps, path))[:end]
            yield "actions", _as_rows(np.asarray(at(steps, self._action))[:end])
            zeros = np.zeros(episode.num_steps, np.float32)
            reward = steps[rlds.REWARD] if rlds.REWARD in self._arrays else zeros
            yield "rewards", _as_rows(np.asarray(reward)[:end])
        yield TERMINATED, np.bool_(terminated)

    def _recorded_columns(
        self, episode: SourceEpisode, terminated: bool
    ) -> Iterator[tuple[str, np.ndarray]]:
        for column, (field, parts) in self._columns.items():
            if column == TERMINATED:
                continue
            for part in range(parts) if parts else [None]:
                path = field if part is None else f"{field}/{part}"
                values = np.asarray(at(episode.steps, path))
                if not terminated and not is_in(path, rlds.OBSERVATION):
                    last = np.asarray(at(episode.metadata[LAST], path), values.dtype)
                    values = np.concatenate([values[:-1], last[np.newaxis]])
                name = column if part is None else f"{column}/{part}"
                yield name, _as_rows(values) if column == "rewards" else values


def _as_rows(column: np.ndarray) -> np.ndarray:
    """A column of numbers as one of vectors, which d3rlpy has for actions and rewards."""
    return column.reshape(-1, 1) if column.ndim == 1 else column
