"""Files of d4rl-pybullet as RLDS episodes.

They have the keys of D4RL but another order of the rows (RSA, see `rlds.alignment`): a row
has the reward and the terminal flag that arrived with its observation, and the action that was
taken on it. `T` transitions take `T + 1` rows; the last has the final observation, an action of
zeros, the last reward and the flag. Read as a file of D4RL, every reward would belong to the wrong
action.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import rlds
from rlds.alignment import from_rsa
from rlds.formats.d4rl.hdf5 import describe_file, ranks_of
from rlds.formats.d4rl.layout import ACTIONS, OBSERVATIONS, REWARDS, TERMINALS
from rlds.formats.d4rl.rows import RowsSource, no_values
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.sources.source import Origin, SourceEpisode
from rlds_ecosystem.fields import Field

__all__ = ["D4rlPybulletSource"]

_RANKS = {OBSERVATIONS: "(N, O)", ACTIONS: "(N, A)", REWARDS: "(N, 1)", TERMINALS: "(N, 1)"}
# What an episode has that no step has: see `D4rlPybulletSource`.
FIRST_REWARD, LAST_ACTION = "first_reward", "last_action"
_IS_AMBIGUOUS = "terminal_is_ambiguous"


class D4rlPybulletSource(RowsSource):
    """A file of d4rl-pybullet.

    An episode ends with a row whose terminal flag is set, or at the end of the file, where it is
    not `complete`. The flag is also set when the time limit of the environment cuts an episode. So
    an episode of `time_limit` transitions counts as truncated, and says `terminal_is_ambiguous`: it
    may have ended in its last step by itself.

    The steps have `terminals` as they are. Two values of the raw rows belong to no transition, and
    are fields of the episode: `first_reward`, of the first row (0 in all published files), and
    `last_action`, of the last (zeros, but in an episode that is not complete).

    Args:
      path: The HDF5 file.
      time_limit: After how many transitions the environment cuts an episode.
      follow_links: Whether to read what the file has in other files, see `D4rlSource`.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: An array is missing, has the wrong rank or length, or a flag is neither 0 nor 1;
        the file is no HDF5 file, or cut short.
      ValueError: The time limit is not positive.
    """

    description = (
        "A dataset of d4rl-pybullet: transitions of policies that were trained in locomotion "
        "tasks of PyBullet, for offline reinforcement learning."
    )
    homepage = "https://github.com/takuseno/d4rl-pybullet"
    finite_fields = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD)

    def __init__(
        self, path: str | os.PathLike[str], *, time_limit: int = 1000, follow_links: bool = False
    ) -> None:
        if time_limit < 1:
            raise ValueError(f"time_limit: got {time_limit}, expected 1 or more")
        super().__init__(path, follow_links=follow_links)
        self._time_limit = time_limit
        with self._file:
            self._hdf5 = _describe(self._file)
            self._terminals = self._reader.flags(TERMINALS)
        self._ends = np.union1d(np.flatnonzero(self._terminals) + 1, [self._num_rows])

    @classmethod
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        """See `Source`."""
        return ranks_of(path) == (2, 2)

    def step_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        return {
            rlds.OBSERVATION: self._field(OBSERVATIONS),
            rlds.ACTION: self._field(ACTIONS),
            rlds.REWARD: self._field(REWARDS),
            rlds.DISCOUNT: Field(np.float32),
            TERMINALS: self._field(TERMINALS),
        }

    def episode_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        return {
            _IS_AMBIGUOUS: np.bool_,
            FIRST_REWARD: self._field(REWARDS),
            LAST_ACTION: self._field(ACTIONS),
        }

    def _field(self, name: str) -> Field:
        facts = self._hdf5["arrays"][name]
        shape = () if name in (REWARDS, TERMINALS) else facts["shape"][1:]
        return Field(np.dtype(facts["dtype"]).newbyteorder("="), shape)

    def metadata(self) -> Mapping[str, Any]:
        """Returns the description of the file; see `rlds.formats.d4rl.hdf5`."""
        about = {"file": self._path.name, "time_limit": self._time_limit}
        return {"d4rl_pybullet": about, "hdf5": self._hdf5}

    def options(self) -> Mapping[str, Any]:
        """Returns the options."""
        return {"time_limit": self._time_limit, "follow_links": self._follow_links}

    def totals(self, split: str) -> Mapping[str, int]:
        """Returns the number of rows and of terminals."""
        del split
        return {
            "rows": self._num_rows,
            "terminals": int(np.count_nonzero(self._terminals)),
        }

    def read(self, split: str, index: int) -> SourceEpisode:
        """Reads an episode; see `RandomAccessSource.read`."""
        key = self.key(split, index)
        begin, end = self._bounds(index)
        columns = self._columns(index, key)
        is_terminal = self._is_terminal(index)
        is_done = bool(self._terminals[end - 1])
        return SourceEpisode(
            key=key,
            steps=self._aligned(index, columns),
            origin=Origin(self._path.name, begin, end),
            truncated=not is_terminal,
            complete=is_done,
            metadata={
                FIRST_REWARD: columns[rlds.REWARD][0],
                LAST_ACTION: columns[rlds.ACTION][-1],
                _IS_AMBIGUOUS: np.bool_(is_done and not is_terminal),
            },
            counts={
                "rows": end - begin,
                "terminals": int(np.count_nonzero(columns[TERMINALS])),
            },
        )

    def _is_terminal(self, index: int) -> bool:
        """Whether the flag at the end of an episode is set, and means no time limit."""
        begin, end = self._bounds(index)
        return bool(self._terminals[end - 1]) and end - begin - 1 != self._time_limit

    def _array_names(self) -> Iterable[str]:
        return _RANKS

    def _aligned(self, index: int, columns: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        begin, end = self._bounds(index)
        nothing = no_values(end - begin)
        return from_rsa(
            observation=columns.get(rlds.OBSERVATION, nothing),
            action=columns.get(rlds.ACTION, nothing),
            reward=columns.get(rlds.REWARD, nothing),
            discount=None,
            terminal=self._is_terminal(index),
            action_led_here=False,
            observation_metadata={
                name: rows for name, rows in columns.items() if name == TERMINALS
            },
        )


def _describe(hdf5: Hdf5File) -> dict[str, Any]:
    """Returns the description of a file, after checking which arrays it has, and their shapes."""
    with hdf5.read() as file:
        for name, expected in _RANKS.items():
            if not hdf5.has(file, name):
                raise hdf5.error(f"missing; the file has {sorted(file)}", name)
            shape = hdf5.array(file, name).shape
            if shape is None or len(shape) != 2 or (expected == "(N, 1)" and shape[1] != 1):
                raise hdf5.error(f"shape {shape}, expected {expected}", name)
        num_rows = len(file[OBSERVATIONS])
        if not num_rows:
            raise hdf5.error("there are no rows", OBSERVATIONS)
        description = describe_file(hdf5, file, num_rows)
    for name in _RANKS:
        if name in description["constants"]:
            raise hdf5.error(
                f"{description['constants'][name]['shape'][0]} rows, but there are {num_rows} of "
                "observations",
                name,
            )
    unknown = sorted(description["arrays"].keys() - _RANKS)
    if unknown:
        raise hdf5.error(
            f"the file has the arrays {unknown} too; d4rl-pybullet has only {list(_RANKS)}. For a "
            "file of D4RL use D4rlSource"
        )
    return description
