"""Relations between elements of actions and of states, row by row at several lags.

The measures are squared correlations over the rows of several episodes. An action is *absolute* if
it correlates with the state some rows later, and a *change* if its sum over some rows correlates
with the change of the state over these rows.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

__all__ = [
    "LAGS",
    "TURNS",
    "WINDOWS",
    "Changes",
    "Levels",
    "Trajectories",
    "compare_changes",
    "compare_levels",
    "find_full_turns",
    "regress",
    "unwrap_angles",
]

LAGS = (-2, -1, 0, 1, 2, 3, 4, 5)
"""The lags of states after actions, in rows."""

WINDOWS = (1, 2, 4, 8)
"""The numbers of rows over which actions are summed."""

TURNS = {"rad": 2 * np.pi, "deg": 360.0}
"""Full turns, by the unit of the angle."""

# The largest step between two rows without a wrap, as a share of a full turn.
_MAX_UNWRAPPED_STEP = 0.75
# Skipped rows at each end of an episode, which may be placeholders.
_NUM_END_ROWS = 1


@dataclasses.dataclass(frozen=True)
class Trajectories:
    """The concatenated rows of several episodes.

    Attributes:
      actions: float64 of shape `[rows, elements of actions]`.
      states: float64 of shape `[rows, elements of states]`; angles are unwrap_angles.
      episode_ends: The row after the last one of each episode; int64 of shape `[episodes]`.
    """

    actions: np.ndarray
    states: np.ndarray
    episode_ends: np.ndarray

    @classmethod
    def join(cls, episodes: Sequence[tuple[np.ndarray, np.ndarray]]) -> Trajectories:
        """Joins the actions and the states of episodes, without their first and last rows.

        Rows with NaN or an infinity split an episode in two.
        """
        pieces: list[tuple[np.ndarray, np.ndarray]] = []
        for actions, states in episodes:
            inner = slice(_NUM_END_ROWS, len(actions) - _NUM_END_ROWS)
            rows = np.concatenate([actions[inner], states[inner]], axis=1, dtype=np.float64)
            bad_rows = np.flatnonzero(~np.isfinite(rows).all(1))
            for piece in np.split(rows, bad_rows):
                sound = piece[np.isfinite(piece).all(1)]
                if len(sound) > max(WINDOWS) + max(LAGS):
                    num_actions = actions.shape[1]
                    pieces.append((sound[:, :num_actions], sound[:, num_actions:]))
        if not pieces:
            num_actions, num_states = (array.shape[1] for array in episodes[0])
            return cls(np.empty((0, num_actions)), np.empty((0, num_states)), np.empty(0, np.int64))
        turns = find_full_turns([states for _, states in pieces])
        pieces = [(actions, unwrap_angles(states, turns)) for actions, states in pieces]
        actions, states = (np.concatenate(columns) for columns in zip(*pieces))
        return cls(actions, states, np.cumsum([len(piece) for piece, _ in pieces]))

    def rows(self, first: int, last: int) -> np.ndarray:
        """Returns the rows whose offsets `first` to `last` are in the same episode."""
        rows = np.arange(len(self.actions))
        episodes = np.searchsorted(self.episode_ends, rows, side="right")
        episode_starts = np.concatenate([[0], self.episode_ends[:-1]])
        is_inside = rows + first >= episode_starts[episodes]
        return rows[is_inside & (rows + last < self.episode_ends[episodes])]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first row of each episode, and the row after its last one."""
        return [*itertools.pairwise([0, *self.episode_ends.tolist()])]

    def episodes_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns the index of the episode of each row."""
        return np.searchsorted(self.episode_ends, rows, side="right")


@dataclasses.dataclass(frozen=True)
class Levels:
    """Correlations of actions with the values of states, by lag.

    Attributes:
      raw: Squared correlations of shape `[lags, actions, states]`: the lower one of all rows
        and within episodes.
      slopes: The slopes of actions over states, of the same shape.
      agree: True where the slope is positive, and the same over all rows and within episodes.
      offsets: The values of actions where the state is zero, of the same shape.
    """

    raw: np.ndarray
    slopes: np.ndarray
    agree: np.ndarray
    offsets: np.ndarray


@dataclasses.dataclass(frozen=True)
class Changes:
    """Correlations of sums of actions with the differences of states, by lag and window.

    Attributes:
      raw: Squared correlations of shape `[lags, windows, actions, states]`.
      slopes: The slopes of states over the sums of actions, of the same shape.
    """

    raw: np.ndarray
    slopes: np.ndarray

    @property
    def settle(self) -> np.ndarray:
        """A mask of slopes that converge with longer windows: `[lags, actions, states]`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            by_eight = self.slopes[:, 3] / self.slopes[:, 2]
            by_four = self.slopes[:, 2] / self.slopes[:, 1]
        return (by_eight > 0.75) & (by_eight < 1.35) & (by_four < 1.6)


def compare_levels(trajectories: Trajectories) -> Levels:
    """Compares actions with the states at each of `LAGS`."""
    by_lag = [_levels_at(trajectories, lag) for lag in LAGS]
    return Levels(*map(np.stack, zip(*by_lag)))


def _levels_at(trajectories: Trajectories, lag: int) -> tuple[np.ndarray, ...]:
    rows = trajectories.rows(min(lag, 0), max(lag, 0))
    actions, states = trajectories.actions[rows], trajectories.states[rows + lag]
    squared, slope = regress(states, actions)
    episodes = trajectories.episodes_of(rows)
    residuals = (_subtract_means(array, episodes) for array in (states, actions))
    within, slope_within = regress(*residuals)
    with np.errstate(divide="ignore", invalid="ignore"):
        is_same = (slope > 0) & (np.abs(slope_within / slope - 1) < 0.15)
    offsets = actions.mean(0)[:, None] - slope.T * states.mean(0)
    return np.minimum(squared, within).T, slope.T, is_same.T, offsets


def compare_changes(trajectories: Trajectories) -> Changes:
    """Compares sums of actions with the differences of states, at each of `LAGS` and `WINDOWS`."""
    by_lag = [[_changes_at(trajectories, lag, window) for window in WINDOWS] for lag in LAGS]
    return Changes(*(np.array([[pair[n] for pair in row] for row in by_lag]) for n in range(2)))


def _changes_at(trajectories: Trajectories, lag: int, window: int) -> tuple[np.ndarray, np.ndarray]:
    rows = trajectories.rows(min(lag, 0), max(lag + window, window - 1))
    actions = trajectories.actions
    sums = np.concatenate([np.zeros((1, actions.shape[1])), actions.cumsum(0)])
    differences = trajectories.states[rows + lag + window] - trajectories.states[rows + lag]
    return regress(sums[rows + window] - sums[rows], differences)


def regress(inputs: np.ndarray, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns squared correlations and slopes of effects over causes: `[causes, effects]`."""
    if not len(inputs):
        shape = inputs.shape[1], outputs.shape[1]
        return np.zeros(shape), np.zeros(shape)
    inputs, outputs = inputs - inputs.mean(0), outputs - outputs.mean(0)
    product = inputs.T @ outputs
    power, effect_power = (inputs**2).sum(0)[:, None], (outputs**2).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        squared, slopes = product**2 / (power * effect_power), product / power
    return np.nan_to_num(squared, posinf=0), np.nan_to_num(slopes, posinf=0, neginf=0)


def _subtract_means(values: np.ndarray, episodes: np.ndarray) -> np.ndarray:
    """Subtracts the mean of each episode."""
    if not len(values):
        return values
    episode_starts = np.flatnonzero(np.diff(episodes, prepend=-1))
    counts = np.diff([*episode_starts, len(values)])
    means = np.add.reduceat(values, episode_starts) / counts[:, None]
    return values - np.repeat(means, counts, axis=0)


def find_full_turns(episodes: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the full turn of each element of states; 0 if it does not wrap."""
    turns = np.zeros(episodes[0].shape[1] if episodes else 0)
    for turn in TURNS.values():
        steps = [np.abs(np.diff(states, axis=0)).max(0, initial=0) for states in episodes]
        sizes = [np.abs(states).max(0, initial=0) for states in episodes]
        if episodes:
            is_angle = np.fmax.reduce(steps) > _MAX_UNWRAPPED_STEP * turn
            is_angle &= np.fmax.reduce(sizes) <= turn * 1.01
            turns[is_angle] = turn
    return turns


def unwrap_angles(states: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Returns states without the wraps of angles."""
    if not turns.any():
        return states
    states = states.copy()
    for turn in TURNS.values():
        is_angle = turns == turn
        states[:, is_angle] = np.unwrap(states[:, is_angle], period=turn, axis=0)
    return states
