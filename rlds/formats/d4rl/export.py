"""Writes episodes of any source as files of D4RL."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.d4rl.rows import (
    ACTIONS,
    EPISODE_ENDS,
    FIELDS,
    INFOS,
    METADATA_KEY,
    NEXT_OBSERVATION,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    REWARDS,
    TERMINALS,
    TIMEOUTS,
    VECTORS,
)
from rlds.formats.hdf5_export import StagedFiles, copy_row
from rlds.formats.hdf5_sidecar import hdf5_sidecar_writer, write_array
from rlds.raw_files.hdf5_values import decode_value, write_attributes
from rlds.raw_files.hdf5_writing import new_file
from rlds.sources.episodes import Episodes
from rlds.sources.restored_source import RestoredSource
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import EpisodeSummary, Location, SourceEpisode
from rlds.sources.writing import (
    Export,
    Placement,
    check_arrays,
    is_array,
    sidecar_placements,
    transition_needed,
)
from rlds_ecosystem.model.nests import conflicts, is_below, leaves_at

__all__ = ["D4rlExport"]

# Optional arrays of a file.
_OPTIONAL_ARRAYS = (REWARDS, TERMINALS, TIMEOUTS, NEXT_OBSERVATIONS)
_CHUNK_BYTES, _COPY_BYTES = 1 << 18, 1 << 24


class D4rlExport(Export):
    """Writes a D4RL file: arrays with the concatenated rows of all episodes.

    The observation and the action are one array each; other numeric fields of steps become arrays
    in `infos`, or the arrays of D4RL for them. `terminals` and `timeouts` mark the last rows; in
    files from D4RL, also other rows. `next_observations` are written if every episode has a
    final observation. All other values are in attributes of the group `rlds`, because D4RL
    reads every array of a file.

    Episodes from D4RL are written in the order of their file, with its attributes and constants,
    such as the weights of the policy.

    Args:
      episodes: The episodes.
      observation: The path of the observation, if there are several.
      action: The path of the action, if there are several.

    Raises:
      ValueError: There is no such field, or it is not an array of numbers of one shape.
    """

    format: ClassVar[str] = "d4rl"
    suffixes = (".hdf5", ".h5")
    copies_parts = True

    def __init__(
        self, episodes: Episodes, *, observation: str = rlds.OBSERVATION, action: str = rlds.ACTION
    ) -> None:
        super().__init__(episodes)
        fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        check_arrays(fields, (observation, action), "d4rl needs one observation and one action")
        self._arrays = {OBSERVATIONS: observation, ACTIONS: action}
        if is_array(fields.get(rlds.REWARD)) and fields[rlds.REWARD].shape == ():
            self._arrays[REWARDS] = rlds.REWARD
        # The other contents of the original file.
        self._is_recorded = self.format in episodes.metadata
        old_metadata = episodes.metadata.get(METADATA_KEY, {}) if self._is_recorded else {}
        self._old_metadata: Mapping[str, Any] = old_metadata
        used_names = {*self._arrays.values(), *rlds.STEP_FLAGS, rlds.DISCOUNT, rlds.REWARD}
        for path, field in fields.items():
            name = self._name_of(path)
            is_free = name and name not in self._arrays and not conflicts(self._arrays, name)
            if is_free and path not in used_names and is_array(field) and 0 not in field.shape:
                self._arrays[name] = path
        field_paths = {path: FIELDS.get(name, name) for name, path in self._arrays.items()}
        self._sidecar = Sidecar.create(episodes, field_paths, ())

    def _name_of(self, path: str) -> str:
        """Returns the name of the array of a field; empty if there is none."""
        if path == NEXT_OBSERVATION:
            return NEXT_OBSERVATIONS
        if self._is_recorded or is_below(path, INFOS):
            return path
        return "" if path in (TERMINALS, TIMEOUTS) else f"{INFOS}/{path}"

    @override
    def placements(self) -> Sequence[Placement]:
        return sidecar_placements(self._sidecar)

    @override
    def why_unsupported(self, summary: EpisodeSummary) -> str:
        num_transitions = summary.num_steps - summary.final_observation_known
        return transition_needed(num_transitions, self.format)

    @override
    def files_order(self) -> Sequence[int] | None:
        return self.order_of_origin() if self._is_recorded else None

    @override
    def write(self, path: Path) -> None:
        bounds = [0]
        all_known = True
        with new_file(path) as (file, check), StagedFiles() as staged:
            sidecar = hdf5_sidecar_writer(file, self._sidecar)
            # Consecutive episodes of a part are contiguous in it.
            for _, run in itertools.groupby(self.iter_items(), _part_of):
                start, first_location = bounds[-1], None
                for item in run:
                    if isinstance(item, Location):
                        first_location = first_location or item
                        episode = copy_row(item, sidecar)
                    else:
                        is_changed = not self.is_stored(self.index)
                        episode = self._with_end(item) if is_changed else item
                        for name, rows in self._rows_of(episode):
                            _append(file, name, rows)
                        sidecar.add(episode)
                    check()
                    bounds.append(bounds[-1] + episode.num_steps - episode.final_observation_known)
                    all_known &= episode.final_observation_known
                if first_location is not None:
                    self._copy_rows(first_location, bounds[-1] - start, staged, file)
                    check()
            write_array(file, EPISODE_ENDS, np.array(bounds[1:], np.int64))
            sidecar.close()
            if not all_known and NEXT_OBSERVATIONS not in self._arrays:
                file.pop(NEXT_OBSERVATIONS, None)
            self._write_other_arrays(file)

    @override
    def compared(self, episode: SourceEpisode) -> SourceEpisode:
        return self._with_end(episode)

    def _with_end(self, episode: SourceEpisode) -> SourceEpisode:
        """Marks the end of an episode that an edit has cut, for other readers of D4RL."""
        last_row = episode.num_steps - episode.final_observation_known - 1
        marks = [episode.steps[name] for name in {TERMINALS, TIMEOUTS} & self._arrays.keys()]
        if TIMEOUTS not in self._arrays or any(np.any(column[last_row]) for column in marks):
            return episode
        column = np.array(episode.steps[TIMEOUTS])
        column[last_row] = True
        return dataclasses.replace(episode, steps={**episode.steps, TIMEOUTS: column})

    def _copy_rows(self, location: Location, num_rows: int, staged: StagedFiles, file: Any) -> None:
        """Copies `num_rows` rows of a staged part, beginning with an episode."""
        assert isinstance(location.source, RestoredSource)
        lengths = location.source.stored_sidecar.summaries(location.split)
        rows = lengths.num_steps - lengths.final_observation_known
        start = int(rows[: location.index].sum())
        with staged.open(location.source).read() as source_file:
            for name in dict.fromkeys([*self._arrays, *_OPTIONAL_ARRAYS]):
                if name in source_file:
                    size = max(1, _COPY_BYTES // max(1, source_file[name][:1].nbytes))
                    for row in range(start, start + num_rows, size):
                        _append(
                            file, name, source_file[name][row : min(row + size, start + num_rows)]
                        )

    def _write_other_arrays(self, file: Any) -> None:
        """Writes the other contents of a file of D4RL."""
        for name, value in self._old_metadata.get("constants", {}).items():
            file[name] = decode_value(value)
        for name, attributes in self._old_metadata.get("attributes", {}).items():
            write_attributes(file[name] if name in file else file.create_group(name), attributes)

    def _rows_of(self, episode: SourceEpisode) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the rows of an episode, by the names of their arrays."""
        columns = self._sidecar.rows(episode)
        num_rows = episode.num_steps - episode.final_observation_known
        for name, path in self._arrays.items():
            # Observations have a second axis.
            is_vector = name == OBSERVATIONS or name in self._old_metadata.get(VECTORS, ())
            is_vector &= columns[path].ndim == 1
            yield name, _as_vectors(columns[path]) if is_vector else columns[path]
        if REWARDS not in self._arrays:
            yield REWARDS, np.zeros(num_rows, np.float32)
        is_terminal = bool(episode.steps[rlds.IS_TERMINAL][-1])
        for name, is_end in ((TERMINALS, is_terminal), (TIMEOUTS, not is_terminal)):
            # Files of D4RL without timeouts mark the ends of episodes in another way.
            if name not in self._arrays and not self._is_recorded:
                yield name, np.arange(num_rows) == (num_rows - 1 if is_end else num_rows)
        if NEXT_OBSERVATIONS not in self._arrays and episode.final_observation_known:
            path = self._arrays[OBSERVATIONS]
            column = self._sidecar.columns(episode)[path][1:]
            yield NEXT_OBSERVATIONS, _as_vectors(column) if column.ndim == 1 else column


def _part_of(episode: SourceEpisode | Location) -> Any:
    """Returns the staged part of an episode; None for an episode to encode."""
    return episode.source if isinstance(episode, Location) else None


def _as_vectors(column: np.ndarray) -> np.ndarray:
    return column.reshape(len(column), -1)


def _append(file: Any, name: str, rows: np.ndarray) -> None:
    """Appends rows to an array, with the compression of D4RL."""
    if name not in file:
        shape = rows.shape[1:]
        length = max(1, _CHUNK_BYTES // max(1, rows[:1].nbytes))
        file.create_dataset(
            name,
            (0, *shape),
            rows.dtype,
            maxshape=(None, *shape),
            chunks=(length, *shape),
            compression="gzip",
        )
    if len(rows):
        array = file[name]
        array.resize(len(array) + len(rows), axis=0)
        array[-len(rows) :] = rows
