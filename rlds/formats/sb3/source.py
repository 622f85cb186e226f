"""Replay buffers of Stable-Baselines3 (https://stable-baselines3.readthedocs.io), read without it.

`save_replay_buffer` writes a pickle. Only the attributes of the buffer are read; no object is
created. The buffer is a ring with a row for each time, for several parallel environments:

    observations, next_observations   the latter not with `optimize_memory_usage`
    actions, rewards                  of the transition to the next observation
    dones, timeouts                   a done is a terminal state unless it is a timeout; without
                                      `handle_timeout_termination`, no timeouts are stored
    pos, full                         the next row to be written, and whether the ring is full

The algorithms of Stable-Baselines3 store actions of a `Box` scaled to [-1, 1]. Other libraries
with this class, such as CleanRL, store the actions of the environment.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.rows_source import EpisodeRows, RowsSource, RowsTable, differ
from rlds.raw_files.input_files import changed
from rlds.raw_files.restricted_pickle import Record, loads
from rlds.raw_files.untrusted import source_errors
from rlds.sources.conventions import check_option, check_time_limit, warn_of_convention
from rlds.sources.source import Capabilities, Origin, SourceError, SourceInfo, require_files
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field

__all__ = ["METADATA_KEY", "Sb3Source"]

METADATA_KEY = "sb3"
_COMMON_MODULE, _HER_MODULE = "stable_baselines3.common.buffers", "stable_baselines3.her"
_BUFFER_CLASSES = (
    *(f"{_COMMON_MODULE}.{name}ReplayBuffer" for name in ("", "Dict", "NStep")),
    f"{_HER_MODULE}.her_replay_buffer.HerReplayBuffer",
)


def _make_record(name: str, *arguments: Any) -> Record:
    return Record(name, arguments)


# Classes in the pickle, which are not constructed.
_RECORD_CLASSES = {
    name: functools.partial(_make_record, name)
    for name in (
        *_BUFFER_CLASSES,
        *(f"{_COMMON_MODULE}.{name}" for name in ("RolloutBuffer", "DictRolloutBuffer")),
        f"{_HER_MODULE}.goal_selection_strategy.GoalSelectionStrategy",
        "builtins.getattr",  # Python 3.11 pickles enums by `getattr`.
        *(
            f"{package}.spaces.{space}"
            for package in ("gym", "gymnasium")
            for space in (
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
_IS_AMBIGUOUS = "terminal_is_ambiguous"
# The tolerance of rounding for a scaled action outside [-1, 1].
_SCALE_TOLERANCE = 1e-5


class _Episode(NamedTuple):
    """The location of an episode in the buffer.

    Attributes:
      env: The environment.
      rows: The rows of its transitions.
      is_cut: True if it may have begun before the first row.
      is_done: True if it ended.
    """

    env: int
    rows: np.ndarray
    is_cut: bool
    is_done: bool


class Sb3Source(RowsSource):
    """The episodes in a replay buffer of Stable-Baselines3, a pickle.

    The transitions of each environment are sorted by time, and cut at the ends of episodes and at
    gaps between observations. An episode that lost rows at an end is not `complete`. Steps also
    have `dones` and `timeouts`, and an episode the index of its `env`. Statistics of `VecNormalize`
    are in another file.

    Without stored timeouts, each done counts as a terminal state, and the episode has the field
    `terminal_is_ambiguous`: whether the done may be a time limit.

    The buffer is loaded into memory, as in Stable-Baselines3.

    Args:
      path: The file.
      actions: "scaled": the actions are scaled to [-1, 1], as by the algorithms of
        Stable-Baselines3; steps have the actions of the environment. "as_stored": they are
        not scaled, as by CleanRL; the default, with a warning if they may be scaled.
      time_limit: For buffers without timeouts, the number of transitions after which the
        environment cuts an episode; 0 if it cuts none. By default unknown, with a warning.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is not a replay buffer, or is damaged.
      ValueError: The time limit is negative; or "scaled" actions are beyond [-1, 1], or have no
        bounds.
    """

    table = RowsTable({"actions": rlds.ACTION, "rewards": rlds.REWARD}, other_fields="transitions")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        actions: Literal["scaled", "as_stored"] | None = None,
        time_limit: int | None = None,
    ) -> None:
        check_option("actions", actions, ("scaled", "as_stored"))
        check_time_limit(time_limit)
        self._options = {"actions": actions, "time_limit": time_limit}
        self._time_limit = time_limit
        (self._file,) = require_files(path)
        self._version = stores.version_of(self._file)
        self._buffer: Mapping[str, Any] | None = None
        with source_errors(self._file):
            self._episodes = self._find_episodes()
            if not self._episodes:
                raise self._error("no transitions")
            self._bounds = self._find_bounds()
            may_be_scaled = self._may_be_scaled()
            arrays = self._arrays().items()
            self.step_fields = {p: Field(array.dtype, array.shape[2:]) for p, array in arrays}
        ambiguous = {} if self._has_timeouts else {_IS_AMBIGUOUS: np.bool_}
        self.value_fields = {"env": np.int64, **ambiguous}
        self._is_scaled = actions == "scaled"
        if self._is_scaled and not may_be_scaled:
            fault = "some are beyond [-1, 1]" if self._bounds else "the action space has no bounds"
            raise ValueError(f"actions: {self._file.name} has no scaled actions: {fault}")
        low, high = (bound.tolist() for bound in self._bounds or (np.empty(0),) * 2)
        if actions is None and may_be_scaled and ({*low}, {*high}) != ({-1}, {1}):
            warn_of_convention(
                self._file,
                f"all actions are in [-1, 1], but the action space is {low} to {high}. "
                "Stable-Baselines3 stores scaled actions, other libraries unscaled ones. They are "
                'read as stored: pass actions="scaled" or actions="as_stored"',
            )
        if time_limit is None and any(map(self._is_end_ambiguous, self._episodes)):
            warn_of_convention(
                self._file,
                "no timeouts are stored (handle_timeout_termination=False), so that a done may be "
                "a terminal state or a time limit. Each is taken for a terminal state: pass "
                "time_limit=... in steps, or time_limit=0 if there is none",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_buffer": None}

    def _error(self, problem: str, field: str | None = None, row: int | None = None) -> SourceError:
        return SourceError(problem, file=self._file, field=field, row=row)

    def _read(self) -> Mapping[str, Any]:
        """Returns the attributes of the buffer."""
        if self._buffer is None:
            if stores.version_of(self._file) != self._version:
                raise changed(os.fspath(self._file))
            content = loads(self._file.read_bytes(), _RECORD_CLASSES)
            if not isinstance(content, Record) or content.name not in _BUFFER_CLASSES:
                kind = content.name if isinstance(content, Record) else type(content).__name__
                raise self._error(f"a pickle of {kind}, expected a replay buffer")
            self._buffer = self._check_state(content.state)
        return self._buffer

    def _check_state(self, state: Any) -> Mapping[str, Any]:
        size, envs, pos = (state[name] for name in ("buffer_size", "n_envs", "pos"))
        if not all(type(value) is int and value >= 0 for value in (size, envs, pos)):
            state_numbers = f"buffer_size {size!r}, n_envs {envs!r}, pos {pos!r}"
            raise self._error(f"{state_numbers}, expected integers of 0 or more")
        if pos > size:
            raise self._error(f"{pos}, expected at most {size}", "pos")
        for name, array in self._all_arrays(state).items():
            if not isinstance(array, np.ndarray) or array.shape[:2] != (size, envs):
                actual = array.shape if isinstance(array, np.ndarray) else type(array).__name__
                raise self._error(f"{actual}, expected {size} rows for {envs} environments", name)
        checked: Mapping[str, Any] = state
        return checked

    def _all_arrays(self, state: Mapping[str, Any]) -> dict[str, Any]:
        arrays = {name: state[name] for name in _ARRAYS}
        for name in ("observations", "next_observations"):
            if (value := state.get(name)) is not None:
                named = _named_arrays(value).items()
                arrays |= {f"{name}/{key}".rstrip("/"): array for key, array in named}
        return arrays

    def _find_episodes(self) -> list[_Episode]:
        state = self._read()
        rows = np.arange(state["pos"])
        if state["full"]:
            rows = np.concatenate([np.arange(state["pos"], state["buffer_size"]), rows])
            if not self._has_next:
                rows = rows[1:]  # The newest final observation overwrote the oldest row.
        episodes = []
        for env in range(state["n_envs"]):
            is_end = state["dones"][rows, env] != 0
            is_end[:-1] |= self._find_discontinuities(rows, env)
            is_end[-1:] = True
            start = 0
            for end in (np.flatnonzero(is_end) + 1).tolist():
                is_done = bool(state["dones"][rows[end - 1], env])
                is_cut = start == 0 and bool(state["full"])
                episodes.append(_Episode(env, rows[start:end], is_cut, is_done))
                start = end
        return episodes

    def _find_bounds(self) -> tuple[np.ndarray, ...]:
        """Returns the lowest and the highest action of a bounded `Box`; empty for other spaces."""
        state = self._read()
        space = getattr(state.get("action_space"), "state", None)
        bounds = [space.get(name) for name in ("low", "high")] if isinstance(space, dict) else []
        flat = tuple(bound.reshape(-1) for bound in bounds if isinstance(bound, np.ndarray))
        actions = state["actions"]
        is_box = [bound.shape for bound in flat] == [actions.shape[2:]] * 2
        is_box &= all(array.dtype.kind == "f" for array in (actions, *flat))
        return flat if is_box and np.isfinite(flat).all() else ()

    def _may_be_scaled(self) -> bool:
        if not self._bounds:
            return False
        actions = self._read()["actions"]
        rows = (actions[episode.rows, episode.env] for episode in self._episodes)
        return all(bool(np.all(np.abs(row) <= 1 + _SCALE_TOLERANCE)) for row in rows)

    @property
    def _has_timeouts(self) -> bool:
        return bool(self._read().get("handle_timeout_termination", True))

    def _is_end_ambiguous(self, episode: _Episode) -> bool:
        """Whether a time limit may have ended an episode, but is not stored."""
        if self._has_timeouts or not episode.is_done or self._time_limit == 0:
            return False
        is_limit = self._time_limit in (None, len(episode.rows))
        return is_limit or episode.is_cut

    @property
    def _has_next(self) -> bool:
        return self._read().get("next_observations") is not None

    def _find_discontinuities(self, rows: np.ndarray, env: int) -> np.ndarray:
        """Returns a mask of rows whose next observation is not the observation of the next row."""
        state = self._read()
        breaks = np.zeros(max(len(rows) - 1, 0), bool)
        if self._has_next:
            observations = _named_arrays(state["observations"])
            for name, next_array in _named_arrays(state["next_observations"]).items():
                breaks |= differ(next_array[rows[:-1], env], observations[name][rows[1:], env])
        return breaks

    def _arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays of the buffer, by the paths of their fields."""
        state = self._read()
        arrays = _named_arrays(state["observations"]).items()
        observations = {f"{rlds.OBSERVATION}/{name}".rstrip("/"): array for name, array in arrays}
        return {**observations, **{self.table.field_path(name): state[name] for name in _ARRAYS}}

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        names = ("action_low", "action_high")
        metadata = {
            **{
                name: value
                for name, value in self._read().items()
                if isinstance(value, bool | int | float | str | None)
            },
            **{name: bound.tolist() for name, bound in zip(names, self._bounds)},
        }
        return SourceInfo(
            description="Episodes in a replay buffer of Stable-Baselines3.",
            homepage="https://stable-baselines3.readthedocs.io",
            metadata={METADATA_KEY: metadata},
            options=self._options,
        )

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(lengths=self._lengths, totals=self._totals)

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return [self._file]

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._episodes)

    def _totals(self, split: str) -> Mapping[str, int]:
        return {"transitions": sum(len(episode.rows) for episode in self._episodes)}

    def key(self, split: str, index: int) -> str:
        """Returns the environment and the first row."""
        episode = self._episodes[index]
        return f"env_{episode.env}-row_{episode.rows[0]}"

    @override
    def _find_rows(self, split: str, index: int) -> EpisodeRows:
        episode = self._episodes[index]
        rows, count = episode.rows, len(episode.rows)
        timeout = bool(self._read()["timeouts"][rows[-1], episode.env])
        timeout |= self._is_end_ambiguous(episode) and count == self._time_limit
        return EpisodeRows(
            Origin(self._file.name, int(rows[0]), int(rows[0]) + count),
            count,
            episode.is_done and not timeout,
            # If next observations are not stored, the reset overwrites the final observation.
            "next" if self._has_next or not episode.is_done else "",
            episode.is_done and not episode.is_cut,
            episode,
        )

    @override
    def _read_rows(self, episode: EpisodeRows, paths: Collection[str]) -> dict[str, np.ndarray]:
        span, arrays = episode.handle, self._arrays().items()
        columns = {p: array[span.rows, span.env] for p, array in arrays if p in paths}
        if self._is_scaled and rlds.ACTION in columns:
            columns[rlds.ACTION] = self._unscale(columns[rlds.ACTION])
        return columns

    @override
    def _values(self, episode: EpisodeRows, paths: Collection[str]) -> Mapping[str, Any]:
        is_ambiguous = np.bool_(self._is_end_ambiguous(episode.handle))
        values = {"env": np.int64(episode.handle.env), _IS_AMBIGUOUS: is_ambiguous}
        return {path: values[path] for path in self.value_fields}

    @override
    def _counts(self, episode: EpisodeRows, rows: Mapping[str, np.ndarray]) -> Mapping[str, int]:
        return {"transitions": episode.num_rows}

    def _unscale(self, actions: np.ndarray) -> np.ndarray:
        """Returns the actions of the environment, with the arithmetic of Stable-Baselines3."""
        low, high = self._bounds
        return (low + 0.5 * (actions + 1.0) * (high - low)).astype(actions.dtype)

    @override
    def _final(self, episode: EpisodeRows) -> Any:
        state, span = self._read(), episode.handle
        row, name = int(span.rows[-1]), "next_observations"
        if not self._has_next:
            row, name = (row + 1) % state["buffer_size"], "observations"
        arrays = _named_arrays(state[name]).items()
        final = {key: array[row, span.env] for key, array in arrays}
        return final if isinstance(state[name], Mapping) else final[""]


def _named_arrays(observation: Any) -> dict[str, np.ndarray]:
    """Returns the arrays of an observation, by name; a single array has no name."""
    return dict(observation) if isinstance(observation, Mapping) else {"": observation}
