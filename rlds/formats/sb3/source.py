"""Replay buffers of Stable-Baselines3 (https://stable-baselines3.readthedocs.io), read without it.

`save_replay_buffer` writes a pickle. Of that, the attributes of the buffer are read, and no object
is made. The buffer is a ring with a row for each time, for several environments side by side:

    observations, next_observations   the latter not with `optimize_memory_usage`
    actions, rewards                  of the transition from one to the other
    dones, timeouts                   a done is a terminal state unless it is a timeout
    pos, full                         the next row to be written, and whether the ring is full
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.alignment import append_row, from_sars
from rlds.raw_files.input_files import changed
from rlds.raw_files.restricted_pickle import Record, loads
from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import (
    ALL_ROWS,
    Origin,
    Outline,
    RandomAccessSource,
    SourceEpisode,
    SourceError,
    require_files,
)
from rlds_ecosystem import stores
from rlds_ecosystem.fields import Field

__all__ = ["METADATA_KEY", "Sb3Source"]

METADATA_KEY = "sb3"
_BUFFERS = tuple(
    f"stable_baselines3.common.buffers.{name}" for name in ("ReplayBuffer", "DictReplayBuffer")
)


def _record_of(name: str, *arguments: Any) -> Record:
    return Record(name, arguments)


# What is named in it. Nothing is made of them.
_RECORDS = {
    name: functools.partial(_record_of, name)
    for name in (
        *_BUFFERS,
        *(
            f"gymnasium.spaces.{place}"
            for place in (
                *("box.Box", "discrete.Discrete", "multi_discrete.MultiDiscrete"),
                *("multi_binary.MultiBinary", "dict.Dict"),
            )
        ),
        *("numpy.random._pickle.__generator_ctor", "numpy.random._pickle.__bit_generator_ctor"),
        *("numpy.random._pcg64.PCG64", "numpy.random.bit_generator.SeedSequence"),
        "numpy.random.bit_generator.__pyx_unpickle_SeedSequence",
        "torch.device",
    )
}
_ARRAYS = ("actions", "rewards", "dones", "timeouts")


class _Episode(NamedTuple):
    """Where an episode is.

    Attributes:
      env: The environment.
      rows: The rows of its transitions.
      is_cut: Whether it began before the first row.
      is_done: Whether it ended.
    """

    env: int
    rows: np.ndarray
    is_cut: bool
    is_done: bool


class Sb3Source(RandomAccessSource):
    """The episodes in a replay buffer of Stable-Baselines3, a pickle.

    The transitions of each environment are put in the order of time, and cut where an episode ended
    or where an observation does not follow from the one before. What the buffer lost at both ends
    is said by `complete`. Beside the fields of RLDS, steps have `dones` and `timeouts`, and an
    episode the number of its `env`. Statistics of `VecNormalize` are in another file.

    The buffer is in memory as a whole, as it is for Stable-Baselines3.

    Args:
      path: The file.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: It is no replay buffer, or damaged.
    """

    description = "Episodes in a replay buffer of Stable-Baselines3."
    homepage = "https://stable-baselines3.readthedocs.io"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        (self._file,) = require_files(path)
        self._version = stores.version_of(self._file)
        self._buffer: Mapping[str, Any] | None = None
        with source_errors(self._file):
            self._episodes = self._find_episodes()
            if not self._episodes:
                raise self._error("there is no transition")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_buffer": None}

    @classmethod
    @override
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        if not os.fspath(path).endswith(".pkl"):
            return False
        with stores.open_binary(path) as file:
            return b"stable_baselines3.common.buffers" in file.read(200)

    def _error(self, what: str, field: str | None = None, row: int | None = None) -> SourceError:
        return SourceError(what, file=self._file, field=field, row=row)

    def _read(self) -> Mapping[str, Any]:
        """The attributes of the buffer."""
        if self._buffer is None:
            if stores.version_of(self._file) != self._version:
                raise changed(os.fspath(self._file))
            found = loads(self._file.read_bytes(), _RECORDS)
            if not isinstance(found, Record) or found.name not in _BUFFERS:
                raise self._error("no replay buffer")
            self._buffer = self._checked(found.state)
        return self._buffer

    def _checked(self, state: Any) -> Mapping[str, Any]:
        size, envs, pos = (state[name] for name in ("buffer_size", "n_envs", "pos"))
        if not all(type(number) is int and number >= 0 for number in (size, envs, pos)):
            raise self._error(f"buffer_size {size!r}, n_envs {envs!r}, pos {pos!r}")
        if pos > size:
            raise self._error(f"row {pos} of {size} is the next one", "pos")
        for name, array in self._all_arrays(state).items():
            if not isinstance(array, np.ndarray) or array.shape[:2] != (size, envs):
                found = array.shape if isinstance(array, np.ndarray) else type(array).__name__
                raise self._error(f"{found}, expected {size} rows for {envs} environments", name)
        checked: Mapping[str, Any] = state
        return checked

    def _all_arrays(self, state: Mapping[str, Any]) -> dict[str, Any]:
        arrays = {name: state[name] for name in _ARRAYS}
        for name in ("observations", "next_observations"):
            value = state.get(name)
            if isinstance(value, Mapping):
                arrays |= {f"{name}/{key}": part for key, part in value.items()}
            elif value is not None:
                arrays[name] = value
        return arrays

    def _find_episodes(self) -> list[_Episode]:
        state = self._read()
        size, pos = state["buffer_size"], state["pos"]
        rows = np.concatenate([np.arange(pos, size), np.arange(pos)]) if state["full"] else None
        rows = np.arange(pos) if rows is None else rows
        if state["full"] and not self._knows_next:
            rows = rows[1:]  # The observation of the oldest row is the final one of the newest.
        found = []
        for env in range(state["n_envs"]):
            ends = state["dones"][rows, env] != 0
            ends[:-1] |= self._breaks(rows, env)
            ends[-1:] = True
            begin = 0
            for end in (np.flatnonzero(ends) + 1).tolist():
                is_done = bool(state["dones"][rows[end - 1], env])
                is_cut = begin == 0 and bool(state["full"])
                found.append(_Episode(env, rows[begin:end], is_cut, is_done))
                begin = end
        return found

    @property
    def _knows_next(self) -> bool:
        return self._read().get("next_observations") is not None

    def _breaks(self, rows: np.ndarray, env: int) -> np.ndarray:
        """Whether the observation of a row does not follow from the row before, bit by bit."""
        state = self._read()
        differ = np.zeros(max(len(rows) - 1, 0), bool)
        if self._knows_next:
            observations = _parts(state["observations"])
            for name, following in _parts(state["next_observations"]).items():
                for index, (row, after) in enumerate(itertools.pairwise(rows)):
                    one, other = following[row, env], observations[name][after, env]
                    differ[index] |= one.tobytes() != other.tobytes()
        return differ

    @override
    def step_fields(self) -> Mapping[str, Any]:
        state = self._read()
        observation = state["observations"]
        fields = {name: _field(part) for name, part in _parts(observation).items()}
        return {
            rlds.OBSERVATION: fields if isinstance(observation, Mapping) else fields[""],
            rlds.ACTION: _field(state["actions"]),
            rlds.REWARD: _field(state["rewards"]),
            rlds.DISCOUNT: Field(np.float32),
            "dones": _field(state["dones"]),
            "timeouts": _field(state["timeouts"]),
        }

    def episode_fields(self) -> Mapping[str, Any]:
        """Returns `env`, the number of the environment."""
        return {"env": np.int64}

    def metadata(self) -> Mapping[str, Any]:
        """Returns what the buffer says of itself beside its rows."""
        return {
            METADATA_KEY: {
                name: value
                for name, value in self._read().items()
                if isinstance(value, bool | int | float | str | None)
            }
        }

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return [self._file]

    @override
    def num_episodes(self, split: str) -> int:
        del split
        return len(self._episodes)

    def totals(self, split: str) -> Mapping[str, int]:
        """Returns the number of transitions."""
        del split
        return {"transitions": sum(len(episode.rows) for episode in self._episodes)}

    def key(self, split: str, index: int) -> str:
        """Returns the environment and the first row."""
        del split
        episode = self._episodes[index]
        return f"env_{episode.env}-row_{episode.rows[0]}"

    def outline(self, split: str, index: int) -> Outline:
        """Reads nothing; see `RandomAccessSource`."""
        transitions = len(self._episodes[index].rows)
        known = self._is_final_known(self._episodes[index])
        if known:
            return Outline(transitions + 1, transitions, True)
        return self.read(split, index).outline

    def _is_final_known(self, episode: _Episode) -> bool:
        """Without next observations, that of a done was overwritten by the one after the reset."""
        return self._knows_next or not episode.is_done

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        state, episode = self._read(), self._episodes[index]
        numbers, env = episode.rows, episode.env
        timeout = bool(state["timeouts"][numbers[-1], env])
        terminal = episode.is_done and not timeout
        columns = {name: state[name][numbers, env] for name in _ARRAYS}
        known = self._is_final_known(episode)
        parts = {name: part[numbers, env] for name, part in _parts(state["observations"]).items()}
        if known:
            final = self._final(episode)
            parts = {name: append_row(part, final[name]) for name, part in parts.items()}
        is_nested = isinstance(state["observations"], Mapping)
        steps = from_sars(
            observation=parts if is_nested else parts[""],
            action=columns["actions"],
            reward=columns["rewards"],
            terminal=terminal,
            transition_metadata={name: columns[name] for name in ("dones", "timeouts")},
        )
        return SourceEpisode(
            key=self.key(split, index),
            steps=steps,
            origin=Origin(self._file.name, int(numbers[0]), int(numbers[0]) + len(numbers)),
            truncated=not terminal,
            final_observation_known=known,
            complete=episode.is_done and not episode.is_cut,
            metadata={"env": np.int64(env)},
            counts={"transitions": len(numbers)},
        )

    def _final(self, episode: _Episode) -> dict[str, np.ndarray]:
        """The observation after the last transition."""
        state, row = self._read(), int(episode.rows[-1])
        if self._knows_next:
            return {
                name: p[row, episode.env] for name, p in _parts(state["next_observations"]).items()
            }
        following = (row + 1) % state["buffer_size"]
        parts = _parts(state["observations"])
        return {name: part[following, episode.env] for name, part in parts.items()}


def _parts(observation: Any) -> dict[str, np.ndarray]:
    """The arrays of an observation, by name; one that is alone has none."""
    return dict(observation) if isinstance(observation, Mapping) else {"": observation}


def _field(array: np.ndarray) -> Field:
    return Field(array.dtype, array.shape[2:])
