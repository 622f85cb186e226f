"""Files of d4rl-pybullet as RLDS episodes.

They have the keys of D4RL but another order of the rows (RSA, see `rlds.alignment`): a row
has the reward and the terminal flag that arrived with its observation, and the action that was
taken on it. `T` transitions take `T + 1` rows; the last row has the final observation, an
action of zeros, the last reward and the flag. Read as a file of D4RL, every reward would belong to
the wrong action.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.d4rl.rows import (
    ACTIONS,
    FIELDS,
    OBSERVATIONS,
    REWARDS,
    TERMINALS,
    FileContents,
    Hdf5RowsSource,
    read_contents,
)
from rlds.formats.rows_source import EpisodeRows, RowsTable, bounds
from rlds.sources.conventions import check_time_limit, warn_of_convention
from rlds.sources.source import Origin, SourceInfo

__all__ = ["D4rlPybulletSource"]

_ARRAYS = (OBSERVATIONS, ACTIONS, REWARDS, TERMINALS)
_IS_AMBIGUOUS = "terminal_is_ambiguous"


class D4rlPybulletSource(Hdf5RowsSource):
    """A file of d4rl-pybullet.

    An episode ends with a row whose terminal flag is set. At the end of the file, an episode
    without the flag is not `complete`. The flag is also set when the time limit of the environment
    cuts an episode. An episode of `time_limit` transitions therefore counts as truncated, with the
    field `terminal_is_ambiguous`: its last state may be terminal.

    The steps keep `terminals` unchanged. Two values of the raw rows belong to no transition, and
    are fields of the episode: `first_reward`, of the first row (0 in all published files), and
    `last_action`, of the last row (zeros in complete episodes). If the first reward of the file is
    not 0, there is a warning: D4RL has the same arrays, in the order SARS.

    Args:
      path: The HDF5 file.
      time_limit: The number of transitions after which the environment cuts an episode.
      follow_links: Whether to read data in other files that the file refers to, see `D4rlSource`.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: An array is missing, has the wrong rank or length, or a flag is neither 0 nor 1;
        the file is not an HDF5 file, or cut short.
      ValueError: The time limit is not positive.
    """

    table = RowsTable(
        FIELDS, "dm_env", leftovers={rlds.REWARD: "first_reward", rlds.ACTION: "last_action"}
    )
    value_fields: Mapping[str, Any] = {_IS_AMBIGUOUS: np.bool_}

    def __init__(
        self, path: str | os.PathLike[str], *, time_limit: int = 1000, follow_links: bool = False
    ) -> None:
        check_time_limit(time_limit, minimum=1)
        super().__init__(path, follow_links=follow_links)
        self._time_limit = time_limit
        with self._file:
            self._contents = self._read_contents()
            self._terminals = self._reader.flags(TERMINALS)
        arrays = self._contents.arrays
        self.step_fields = {self.table.field_path(name): arrays[name] for name in _ARRAYS}
        if not self._take_exported_ends():
            end_rows = np.flatnonzero(self._terminals) + 1
            self._end_rows = np.union1d(end_rows, [self._contents.num_rows])
            if self._reader.rows(REWARDS, 0, 1).any():
                warn_of_convention(
                    self._path,
                    "read as d4rl-pybullet, where a reward arrives with the observation of its "
                    "row; but the first reward is not 0. If rewards follow the action of their "
                    'row, as in D4RL, pass format="d4rl"',
                )

    def _read_contents(self) -> FileContents:
        """Reads and checks the contents of the file."""
        with self._file.read() as file:
            contents = read_contents(self._file, file)
            for name in _ARRAYS:
                shape = file[name].shape
                if len(shape) != 2 or (name in (REWARDS, TERMINALS) and shape[1] != 1):
                    raise self._file.error(f"shape {shape}, expected a vector for each row", name)
        if unknown := sorted(contents.arrays.keys() - {*_ARRAYS}):
            raise self._file.error(
                f"the file also has the arrays {unknown}; d4rl-pybullet has only {list(_ARRAYS)}. "
                'To read a file of D4RL, pass format="d4rl"'
            )
        return contents

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        metadata = {"file": self._path.name, "time_limit": self._time_limit}
        return SourceInfo(
            description="A dataset of d4rl-pybullet: transitions of policies that were trained in "
            "locomotion tasks of PyBullet, for offline reinforcement learning.",
            homepage="https://github.com/takuseno/d4rl-pybullet",
            metadata={"d4rl_pybullet": metadata, **self._contents.metadata()},
            options={"time_limit": self._time_limit, "follow_links": self._follow_links},
            finite_fields=(rlds.OBSERVATION, rlds.ACTION, rlds.REWARD),
        )

    @override
    def _find_rows(self, split: str, index: int) -> EpisodeRows:
        start, end = bounds(self._end_rows, index)
        is_done = bool(self._terminals[end - 1])
        terminal = is_done and end - start - 1 != self._time_limit
        origin = Origin(self._path.name, start, end)
        return EpisodeRows(origin, end - start, terminal, "row", is_done, index)

    @override
    def _values(self, episode: EpisodeRows, paths: Collection[str]) -> Mapping[str, Any]:
        return {_IS_AMBIGUOUS: np.bool_(episode.complete and not episode.terminal)}

    @override
    def _counts(self, episode: EpisodeRows, rows: Mapping[str, np.ndarray]) -> Mapping[str, int]:
        flags = rows.get(TERMINALS, self._terminals[episode.origin.begin : episode.origin.end])
        return {"rows": episode.num_rows, "terminals": int(np.count_nonzero(flags))}
