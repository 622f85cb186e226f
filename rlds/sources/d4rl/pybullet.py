"""Files of d4rl-pybullet as RLDS episodes.

They have the keys of D4RL but another order of the rows (RSA, see `rlds.alignment`): a row
has the reward and the terminal flag that arrived with its observation, and the action that was
taken on it. `T` transitions take `T + 1` rows; the last has the final observation, an action of
zeros, the last reward and the flag. Read as a file of D4RL, every reward would belong to the wrong
action.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

import rlds
from envlogger.converters.fields import Field
from rlds.alignment import from_rsa
from rlds.sources.d4rl.hdf5 import RowReader, describe_file, rank_of_rewards
from rlds.sources.files.hdf5_access import Hdf5File
from rlds.sources.source import (
    DamagedEpisode,
    Origin,
    RandomAccessSource,
    SourceEpisode,
    require_files,
)

__all__ = ["D4rlPybulletSource"]

_OBSERVATIONS, _ACTIONS, _REWARDS = "observations", "actions", "rewards"
_TERMINALS = "terminals"
_RANKS = {_OBSERVATIONS: "(N, O)", _ACTIONS: "(N, A)", _REWARDS: "(N, 1)", _TERMINALS: "(N, 1)"}
# What an episode has that no step has: see `D4rlPybulletSource`.
FIRST_REWARD, LAST_ACTION = "first_reward", "last_action"
_IS_AMBIGUOUS = "terminal_is_ambiguous"


class D4rlPybulletSource(RandomAccessSource):
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
        self._path = require_files(path)[0]
        self._time_limit = time_limit
        self._follow_links = follow_links
        self._file = Hdf5File(self._path, follow_links=follow_links)
        self._reader = RowReader(self._file)
        with self._file:
            self._hdf5 = _describe(self._file)
            terminals = self._reader.flags(_TERMINALS)
        self._num_terminals = int(np.count_nonzero(terminals))
        self._ends = np.union1d(np.flatnonzero(terminals) + 1, [len(terminals)])

    @classmethod
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        """See `Source`."""
        return rank_of_rewards(path) == 2

    def step_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        return {
            rlds.OBSERVATION: self._field(_OBSERVATIONS),
            rlds.ACTION: self._field(_ACTIONS),
            rlds.REWARD: self._field(_REWARDS),
            rlds.DISCOUNT: Field(np.float32),
            _TERMINALS: self._field(_TERMINALS),
        }

    def episode_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        return {
            _IS_AMBIGUOUS: np.bool_,
            FIRST_REWARD: self._field(_REWARDS),
            LAST_ACTION: self._field(_ACTIONS),
        }

    def _field(self, name: str) -> Field:
        facts = self._hdf5["arrays"][name]
        shape = () if name in (_REWARDS, _TERMINALS) else facts["shape"][1:]
        return Field(np.dtype(facts["dtype"]).newbyteorder("="), shape)

    def metadata(self) -> Mapping[str, Any]:
        """Returns the description of the file; see `rlds.sources.d4rl.hdf5`."""
        about = {"file": self._path.name, "time_limit": self._time_limit}
        return {"d4rl_pybullet": about, "hdf5": self._hdf5}

    def inputs(self) -> Sequence[epath.Path]:
        """Returns the file, and those that it leads to."""
        return self._file.inputs()

    def options(self) -> Mapping[str, Any]:
        """Returns the options."""
        return {"time_limit": self._time_limit, "follow_links": self._follow_links}

    def totals(self, split: str) -> Mapping[str, int]:
        """Returns the number of rows and of terminals."""
        del split
        return {"rows": int(self._hdf5["rows"]), "terminals": self._num_terminals}

    def num_episodes(self, split: str) -> int:
        """Returns how many episodes there are."""
        del split
        return len(self._ends)

    def key(self, split: str, index: int) -> str:
        """Returns the name of the file and the index of the episode in it."""
        del split
        return f"{self._path.stem}-{index:07d}"

    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of a range, all of the file that is open; see `Source.episodes`."""
        with self._file:
            yield from super().episodes(split, part, after)

    def read(self, split: str, index: int) -> SourceEpisode:
        """Reads an episode; see `RandomAccessSource.read`."""
        key = self.key(split, index)
        begin = int(self._ends[index - 1]) if index else 0
        end = int(self._ends[index])
        rows = {name: self._reader.rows(name, begin, end, key) for name in _RANKS}
        reward, terminals = rows[_REWARDS].reshape(-1), rows[_TERMINALS].reshape(-1)
        is_done = bool(terminals[-1])
        is_ambiguous = is_done and end - begin - 1 == self._time_limit
        terminal = is_done and not is_ambiguous
        return SourceEpisode(
            key=key,
            steps=from_rsa(
                observation=rows[_OBSERVATIONS],
                action=rows[_ACTIONS],
                reward=reward,
                discount=None,
                terminal=terminal,
                action_led_here=False,
                observation_metadata={_TERMINALS: terminals},
            ),
            origin=Origin(self._path.name, begin, end),
            truncated=not terminal,
            complete=is_done,
            metadata={
                FIRST_REWARD: reward[0],
                LAST_ACTION: rows[_ACTIONS][-1],
                _IS_AMBIGUOUS: np.bool_(is_ambiguous),
            },
            counts={"rows": end - begin, "terminals": int(np.count_nonzero(terminals))},
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
        num_rows = len(file[_OBSERVATIONS])
        if not num_rows:
            raise hdf5.error("there are no rows", _OBSERVATIONS)
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
