"""Files of D4RL, of all its families, as RLDS episodes.

A file is flat: the `T` transitions of an episode are `T` rows of `observations`, `actions`,
`rewards` and `terminals` (the order SARS of `rlds.alignment`). Other contents vary: `timeouts`,
`next_observations`, the state of the simulator in `infos`, the weights of the policy in `metadata`.
The columns of an episode are:

    observation, action, reward   the arrays, in their dtypes; rewards of shape (N, 1) as scalars
    discount                      1, and 0 for a transition into a terminal state that ends the
                                  episode
    terminals, timeouts           the flags of the transition, unchanged
    infos                         unchanged, nested; values of the observation before the action
    next_observation              only if it differs from the observations, see `D4rlSource`

Other arrays with an axis of rows keep their names. Constants of the file go to the metadata of the
dataset.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.d4rl.boundaries import Boundary, has_index
from rlds.formats.d4rl.families import (
    DATASETS,
    D4rlDataset,
    default_boundary,
    family_of,
    find_dataset,
)
from rlds.formats.d4rl.rows import (
    FIELDS,
    METADATA,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    TERMINALS,
    TIMEOUTS,
    FileContents,
    Hdf5RowsSource,
    read_contents,
)
from rlds.formats.rows_source import EpisodeRows, RowsTable, bounds, differ
from rlds.raw_files.hdf5_values import decode_value
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources.conventions import check_time_limit, warn_of_convention
from rlds.sources.source import Origin, SourceError, SourceInfo
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import root_of

__all__ = ["D4rlSource"]

_CITATION = """@misc{fu2020d4rl,
  title={D4RL: Datasets for Deep Data-Driven Reinforcement Learning},
  author={Justin Fu and Aviral Kumar and Ofir Nachum and George Tucker and Sergey Levine},
  year={2020},
  eprint={2004.07219},
  archivePrefix={arXiv},
  primaryClass={cs.LG}
}"""
_RESERVED_FIELDS = (*FIELDS.values(), rlds.DISCOUNT, *rlds.STEP_FLAGS)
# The limit of the movement of an ant in a step, in metres; most resets exceed it.
_POSITION_JUMP_M = 1.0


class _NextObservations(NamedTuple):
    """The content of `next_observations` beyond the observations.

    Attributes:
      num_inconsistent: The number of rows within an episode that differ from the observation of
        the next row; None if damage hides it.
      final: The final observations of the episodes, if all other rows are consistent. If other rows
        are inconsistent, final observations are read with the rows.
    """

    num_inconsistent: int | None
    final: np.ndarray | None = None


class D4rlSource(Hdf5RowsSource):
    """A file of D4RL.

    An episode ends by one of the rules of `boundary`, and at the end of the file:

    * `flags`: `terminals` or `timeouts` is set.
    * `timeouts`: `timeouts` is set.
    * `infos_index`: `infos`, the index of a demonstration, changes with the next row.
    * `observation_jump`: the next row does not continue the transition. The row differs from
      `next_observations`; in files without them, its position (the first two numbers of the
      observation) is farther away than `jump`.
    * `length`: the episode has `length` rows, counted from the end of the previous episode.
    * `file`: only at the end of the file. An episode has to fit into memory, and into the 2 GB of
      an example of TFDS: divide larger files by `length`.

    If no rule is given, the family decides, see `rlds.formats.d4rl.families.default_boundary`.

    An episode is not `complete` if only the end of the file or of a window ends it: D4RL cuts its
    files at a round number of rows. The episode is `truncated` unless its last transition has
    `terminals` set. A terminal inside an episode, as in AntMaze, is only in `terminals`. In a file
    without `timeouts`, some `terminals` may be time limits: see `time_limit`.

    The last row of `next_observations` in an episode is its final observation. In files without
    `next_observations` there is none, and `T` transitions are `T` steps.

    Most often `next_observations` repeats the observation of the next row, bit for bit, in all rows
    except the last of each episode. In this case, only the final observations are stored. If a
    single row differs (after a reset without a flag), or if some rows are damaged, all steps have
    the field `next_observation`, because all episodes of a dataset have the same fields. The first
    access to fields or metadata compares the two arrays, in blocks.

    Args:
      path: The HDF5 file.
      boundary: A rule, or several; each of them ends episodes.
      length: The number of rows, for the rule `length`.
      jump: The distance, for the rule `observation_jump`; 1 in AntMaze and Maze2d.
      time_limit: For files without timeouts, the number of transitions of a truncated episode; 0 if
        no terminal is a time limit. If neither this nor `boundary` is given, a file that is divided
        by its terminals alone causes a warning.
      dataset: The name in D4RL, such as "hopper-medium-v2", if the file has another name. Only the
        URL and the reference scores in the metadata need it.
      follow_links: Whether to read data in other files: links, external storage, and virtual
        arrays. By default they are errors, as they may lead to any file of this machine. The other
        files count as `inputs`.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: An array is missing, has the wrong rank or length, or a flag is neither 0 nor 1;
        the file is not an HDF5 file, or cut short.
      ValueError: An option is wrong, or needs an array that the file does not have.
    """

    table = RowsTable(FIELDS, other_fields="transitions")

    def __init__(
        self,
        path: str | os.PathLike[str],
        boundary: str | Sequence[str] | None = None,
        *,
        length: int | None = None,
        jump: float | None = None,
        time_limit: int | None = None,
        dataset: str | None = None,
        follow_links: bool = False,
    ) -> None:
        check_time_limit(time_limit)
        super().__init__(path, follow_links=follow_links)
        self._dataset = _dataset_of(self._path.name, dataset)
        self._name = self._path.name
        if dataset is not None and self._dataset is not None:  # Downloaded files have other names.
            self._name = os.path.basename(self._dataset.file)
        self._stem = self._name.removesuffix(".hdf5")
        with self._file:
            self._contents = self._read_contents()
            self._terminals = self._reader.flags(TERMINALS)
            self._timeouts = (
                self._reader.flags(TIMEOUTS)
                if TIMEOUTS in self._contents.arrays
                else np.zeros(self._contents.num_rows, bool)
            )
        self._family = self._dataset.family if self._dataset else family_of(self._name)
        self._time_limit = time_limit
        self._is_end = np.zeros(self._contents.num_rows, bool)
        if jump is None and self._family in ("antmaze", "maze2d"):
            jump = _POSITION_JUMP_M
        self.boundary = Boundary(self._rules(boundary), length, jump)
        if boundary is not None or not self._take_exported_ends():
            self._find_episodes()
        is_alone = self.boundary.rules == ("flags",) and TIMEOUTS not in self._contents.arrays
        is_asked = boundary is None and time_limit is None and not self._is_exported
        if is_alone and is_asked and self._terminals.any():
            warn_of_convention(
                self._path,
                "there are no timeouts: episodes end where terminals is set, and each end is taken "
                "for a terminal state. If some are time limits, pass time_limit=... in steps, or "
                "time_limit=0 if none is. Pass boundary=... if episodes end elsewhere, too",
            )

    def _read_contents(self) -> FileContents:
        """Reads and checks the contents of the file."""
        with self._file.read() as file:
            contents = read_contents(self._file, file)
        arrays = contents.arrays
        for name in arrays:
            if root_of(name) in _RESERVED_FIELDS:
                raise self._file.error("another field has this name", name)
        next_observations = arrays.get(NEXT_OBSERVATIONS)
        if next_observations not in (None, arrays[OBSERVATIONS]):
            problem = f"{next_observations}, but the observations are {arrays[OBSERVATIONS]}"
            raise self._file.error(problem, NEXT_OBSERVATIONS)
        return contents

    def _rules(self, boundary: str | Sequence[str] | None) -> tuple[str, ...]:
        if isinstance(boundary, str):
            return (boundary,)
        if boundary is not None:
            return tuple(boundary)
        return default_boundary(
            self._family,
            self._name,
            has_timeouts=TIMEOUTS in self._contents.arrays,
            infos_is_index=has_index(self._contents.arrays),
        )

    def _find_episodes(self) -> None:
        """Determines the ends of episodes, and the ends that are not cuts."""
        arrays, flags = self._contents.arrays, (self._terminals, self._timeouts)
        self.boundary.check(arrays, self._name)
        with self._file:
            self._is_end = self.boundary.find_ends(self._reader, arrays, *flags)
        self._end_rows = self.boundary.cut(self._is_end)

    # --- Fields and metadata ---------------------------------------------------------------------

    @functools.cached_property
    def step_fields(self) -> Mapping[str, Field]:  # type: ignore[override]
        """The arrays, without next observations that only repeat the observations."""
        is_left_out = self._next is not None and self._next.final is not None
        return {
            self.table.field_path(name): field
            for name, field in self._contents.arrays.items()
            if not (is_left_out and name == NEXT_OBSERVATIONS)
        }

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        return SourceInfo(
            description="A dataset of D4RL, a benchmark of offline reinforcement learning: "
            "transitions of policies, planners or people in simulated tasks.",
            homepage="https://github.com/Farama-Foundation/D4RL",
            citation=_CITATION,
            metadata=self._metadata(),
            options={
                "boundary": list(self.boundary.rules),
                "length": self.boundary.length,
                "jump": self.boundary.jump,
                "time_limit": self._time_limit,
                "dataset": self._dataset.name if self._dataset else None,
                "follow_links": self._follow_links,
            },
            finite_fields=(rlds.OBSERVATION, rlds.ACTION, rlds.REWARD),
            images_as_png=False,
        )

    def _metadata(self) -> dict[str, Any]:
        """Returns the constants of the file.

        Under `d4rl`: the dataset, its family, URL and reference scores, the algorithm and the
        iteration of the policy, the rules of the boundary. Under `hdf5`: constants and attributes,
        see `rlds.raw_files.hdf5_values`.
        """
        dataset = self._dataset
        metadata: dict[str, Any] = {
            "file": self._name,
            "family": self._family,
            "boundary": list(self.boundary.rules),
        }
        if dataset is not None:
            metadata |= {"dataset": dataset.name, "url": dataset.url}
            if dataset.min_score is not None:
                metadata["reference_min_score"] = dataset.min_score
                metadata["reference_max_score"] = dataset.max_score
        for name in ("algorithm", "iteration"):
            value = decode_value(self._contents.constants.get(f"{METADATA}/{name}", {"json": None}))
            if isinstance(value, bytes):
                metadata[name] = value.decode(errors="replace")
            elif isinstance(value, np.integer | np.floating):
                metadata[name] = value.item()
        if self._next is not None:
            metadata["rows_with_other_next_observation"] = self._next.num_inconsistent
        return {"d4rl": metadata, **self._contents.metadata()}

    @override
    def _totals(self, split: str) -> dict[str, int]:
        return {**super()._totals(split), "timeouts": int(np.count_nonzero(self._timeouts))}

    @functools.cached_property
    def _next(self) -> _NextObservations | None:
        """The content of `next_observations` beyond the observations, from a pass over both."""
        if NEXT_OBSERVATIONS not in self._contents.arrays:
            return None
        is_end = np.zeros(self._contents.num_rows, bool)
        is_end[self._end_rows - 1] = True
        num_inconsistent, final = 0, []
        try:
            with self._file:
                for start, rows, next_rows in self._reader.pairs(NEXT_OBSERVATIONS, OBSERVATIONS):
                    is_final = is_end[start : start + len(rows)]
                    num_inconsistent += int(np.count_nonzero(differ(rows, next_rows) & ~is_final))
                    final.append(rows[is_final])
                last_row = self._contents.num_rows - 1
                final.append(self._reader.rows(NEXT_OBSERVATIONS, last_row, last_row + 1))
        except SourceChangedError:
            raise
        except SourceError:  # Reading the episode raises the error again, with its key.
            return _NextObservations(None)
        if num_inconsistent:
            return _NextObservations(num_inconsistent)
        return _NextObservations(0, np.concatenate(final))

    # --- Episodes --------------------------------------------------------------------------------

    @override
    def _find_rows(self, split: str, index: int) -> EpisodeRows:
        start, end = bounds(self._end_rows, index)
        is_end = any(bool(f[end - 1]) for f in (self._is_end, self._terminals, self._timeouts))
        final: Any = "next" if NEXT_OBSERVATIONS in self._contents.arrays else ""
        origin = Origin(self._name, start, end)
        return EpisodeRows(origin, end - start, self._is_terminal(index), final, is_end, index)

    @override
    def _counts(self, episode: EpisodeRows, rows: Mapping[str, np.ndarray]) -> Mapping[str, int]:
        flags = {name: rows[name] for name in (TERMINALS, TIMEOUTS) if name in rows}
        counts = {name: int(np.count_nonzero(column)) for name, column in flags.items()}
        return {"rows": episode.num_rows, **counts}

    def _is_terminal(self, index: int) -> bool:
        """True if an episode ends in a terminal state, not by a time limit."""
        start, end = bounds(self._end_rows, index)
        is_limit = TIMEOUTS not in self._contents.arrays and end - start == self._time_limit
        return bool(self._terminals[end - 1]) and not is_limit

    @override
    def _final(self, episode: EpisodeRows) -> Any:
        assert self._next is not None
        if self._next.final is not None:
            return self._next.final[episode.handle]
        end, key = episode.origin.end, self.key("", episode.handle)
        return self._reader.rows(NEXT_OBSERVATIONS, end - 1, end, key)[0]


def _dataset_of(file_name: str, name: str | None) -> D4rlDataset | None:
    if name is not None and name not in DATASETS:
        raise ValueError(f"dataset: got {name!r}, expected one of {sorted(DATASETS)}")
    return find_dataset(file_name if name is None else name)
