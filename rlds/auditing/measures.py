"""Measures of each episode, against the usual values of the dataset.

A `Profile` is learnt from a sample. The measures of an episode then depend on the profile and its
own rows only, so that several processes compute measures; `rlds.auditing.checks` compares episodes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rlds.auditing.meaning import ElementMeaning
from rlds.auditing.pictures import Pictures
from rlds.auditing.relations import find_full_turns, unwrap_angles
from rlds.auditing.scores import score_episode
from rlds.auditing.times import Times
from rlds.sources.cameras import evenly

__all__ = ["LAGS", "SKETCH_ROWS", "Measures", "Profile", "find_motion", "learn_profile", "measure"]

LAGS = (-3, -2, -1, 0, 1, 2, 3)
"""Delays of the state in addition to the usual lag, in rows."""

# The number of rows of a displacement, which must exceed noise.
_STRIDE_ROWS = 4
# The limit for rows at rest, as a share of the usual displacement: the least limit, the factor of
# the noise, and the largest limit.
_MIN_REST, _NOISE_RATIO, _MAX_REST = 0.15, 3.0, 0.3
SKETCH_ROWS = 16
"""The number of moments at which episodes are compared with each other."""

_SKETCH_ELEMENTS = 16
# The least number of rows for a correlation.
_MIN_CORRELATED_ROWS = 12
# The lower limit of the steps next to a gap, in usual steps.
_MIN_NEIGHBOUR_STEP = 0.6
# The tolerance of equal values, as a share of the range; the largest spread of constant values.
_EQUAL_VALUE_TOLERANCE, _MAX_CONSTANT_SPREAD = 1e-9, 1e-12


@dataclasses.dataclass(frozen=True)
class Profile:
    """The usual values of a dataset, against which episodes are measured.

    Attributes:
      paces: The usual displacement of each moving element of the state in four rows; 0 without
        motion.
      still: The limit for rows at rest, as a share of the usual displacement.
      relations: The meaning of each element of the action.
      turns: The full turn of each element of the state; 0 if it does not wrap.
      rate: The rows per second; None if unknown.
      num_picked: The number of rows that are compared with other episodes.
    """

    paces: np.ndarray
    still: float
    relations: Sequence[ElementMeaning]
    turns: np.ndarray
    rate: float | None = None
    num_picked: int = 64


@dataclasses.dataclass(frozen=True)
class Measures:
    """The measures of an episode; elements are the state, then the action.

    Attributes:
      rows: The number of rows.
      not_finite: The number of rows with NaN or an infinity.
      low: The least value of each element.
      high: The largest value.
      values: The number of distinct values.
      is_whole: True for elements with integers only.
      jump: The largest distance of a row beyond both of its neighbours.
      jump_row: The row of the jump.
      rough: The quantiles 0.5 and 0.9 of the second differences, of shape `[2, elements]`.
      pace: The quantiles 0.5 and 0.9 of the first differences, of shape `[2, elements]`.
      at_end: The share of the moving rows in which an element stays at its minimum or maximum.
      frozen: The longest run of rows in which the state is constant while the action changes.
      frozen_row: The first row of this run.
      repeated: The number of rows that equal the row before.
      idle: The numbers of rows at rest at the start, and at the end.
      gap: The largest ratio of a step of the state to the steps next to it, in most elements.
      gap_row: The row of the gap.
      fits: The correlation of each element of the action with the state that follows it, of shape
        `[LAGS, actions]`; NaN without such a state.
      gains: The logarithm of the ratio of the spread of each element of the action to the spread of
        the state that follows; NaN without such a state.
      sketch: The state and the action at a few evenly spaced rows.
      scores: The result of `score_episode`.
      picked: Evenly spaced rows of the state and the action; float32.
      pictures: The measures of the images; None if images were not assessed.
      times: The measures of the timestamps; None if there are none.
    """

    rows: int
    not_finite: int
    low: np.ndarray
    high: np.ndarray
    values: np.ndarray
    is_whole: np.ndarray
    jump: np.ndarray
    jump_row: np.ndarray
    rough: np.ndarray
    pace: np.ndarray
    at_end: np.ndarray
    frozen: int
    frozen_row: int
    repeated: int
    idle: tuple[int, int]
    gap: float
    gap_row: int
    fits: np.ndarray
    gains: np.ndarray
    sketch: np.ndarray
    scores: tuple[float, ...]
    picked: np.ndarray
    pictures: Pictures | None = None
    times: Times | None = None


def learn_profile(
    sample: Sequence[tuple[np.ndarray, np.ndarray]], relations: Sequence[ElementMeaning]
) -> Profile:
    """Returns the usual values of a sample of episodes.

    Args:
      sample: The actions and the states of some episodes, each of shape `[rows, elements]`.
      relations: The meaning of each element of the action.
    """
    width = sample[0][1].shape[1] if sample else 0
    turns = find_full_turns([states for _, states in sample])
    smooth = [unwrap_angles(states, turns) for _, states in sample if len(states) > _STRIDE_ROWS]
    by_episode = [np.abs(_displace(states)) for states in smooth]
    displacements = np.concatenate([np.empty((0, width)), *by_episode])
    displacements = displacements[np.isfinite(displacements).all(1)]
    if not len(displacements) or not width:
        return Profile(np.zeros(width), _MIN_REST, relations, turns)
    # Large displacements are used for elements that rarely move, to ignore the noise at rest.
    usual_displacements, large_displacements = np.quantile(displacements, (0.75, 0.98), axis=0)
    paces = np.maximum(usual_displacements, 0.25 * large_displacements)
    motion = _compute_motion(displacements, paces)
    floor = float(np.quantile(motion, 0.02))
    still = float(np.clip(_NOISE_RATIO * floor, _MIN_REST, _MAX_REST)) if floor < 0.1 else _MIN_REST
    return Profile(paces, still, relations, turns)


def _displace(states: np.ndarray) -> np.ndarray:
    return states[_STRIDE_ROWS:] - states[:-_STRIDE_ROWS]


def _compute_motion(displacements: np.ndarray, paces: np.ndarray) -> np.ndarray:
    """Returns the displacement that about a third of the elements reach, in usual displacements.

    The remaining elements may be noise at rest, for instance forces.
    """
    moves = paces > 0
    if not moves.any():
        return np.zeros(len(displacements))
    ratios = np.sort(np.abs(displacements[:, moves]) / paces[moves], axis=1)
    motion: np.ndarray = ratios[:, math.ceil(0.7 * ratios.shape[1]) - 1]
    return motion


def find_motion(actions: np.ndarray, states: np.ndarray, profile: Profile) -> np.ndarray:
    """Returns a mask of the rows with motion until the fourth row after them.

    Without a state, a change of the action counts as motion.

    Args:
      actions: float64 of shape `[rows, elements]`.
      states: float64 of shape `[rows, state elements]`.
      profile: The usual values of the dataset.
    """
    if states.shape[1]:
        smooth = unwrap_angles(states, profile.turns)
        return _compute_motion(_displace(smooth), profile.paces) > profile.still
    changes: np.ndarray = (_displace(actions) != 0).any(1)
    return changes


def measure(actions: np.ndarray, states: np.ndarray, profile: Profile) -> Measures:
    """Measures an episode.

    Args:
      actions: float64 of shape `[rows, elements]`.
      states: float64 of shape `[rows, state elements]`.
      profile: The usual values of the dataset.
    """
    values = np.concatenate([states, actions], axis=1)
    is_finite = np.isfinite(values).all(1)
    rows = np.flatnonzero(is_finite)
    num_not_finite = len(values) - len(rows)
    values, actions = values[is_finite], actions[is_finite]
    raw, states = values, unwrap_angles(states[is_finite], profile.turns)
    values = np.concatenate([states, actions], axis=1)
    num_rows, width = values.shape
    steps = np.diff(values, axis=0)
    speeds, jumps = np.abs(steps), _measure_overshoot(steps)
    second = np.abs(np.diff(values, 2, axis=0))
    has_motion = num_rows > _STRIDE_ROWS
    motion = _compute_motion(_displace(states), profile.paces) if has_motion else np.zeros(0)
    moves = motion > profile.still
    rows_moving = _mask_moving_rows(moves, num_rows)
    low = raw.min(0) if num_rows else np.full(width, np.nan)
    high = raw.max(0) if num_rows else np.full(width, np.nan)
    frozen, frozen_row = _find_frozen(states, actions)
    fits, gains = _fits(actions, states, profile.relations)
    pace = np.quantile(speeds, (0.5, 0.9), axis=0) if len(speeds) else np.zeros((2, width))
    num_states = states.shape[1]
    gap, gap_row = _find_gap(speeds[:, :num_states], pace[1, :num_states])
    return Measures(
        rows=num_rows + num_not_finite,
        not_finite=num_not_finite,
        low=low,
        high=high,
        values=1 + (np.diff(np.sort(values, axis=0), axis=0) > 0).sum(0),
        is_whole=(values == np.round(values)).all(0),
        jump=jumps.max(0, initial=0),
        jump_row=rows[jumps.argmax(0) + 1] if len(jumps) else np.zeros(width, int),
        rough=np.quantile(second, (0.5, 0.9), axis=0) if len(second) else np.zeros((2, width)),
        pace=pace,
        at_end=_measure_at_end(values, speeds, rows_moving),
        frozen=frozen,
        frozen_row=int(rows[frozen_row]) if num_rows else 0,
        repeated=int((speeds == 0).all(1).sum()) if width else 0,
        idle=_count_idle(moves, num_rows),
        gap=gap,
        gap_row=int(rows[gap_row]) if num_rows else 0,
        fits=fits,
        gains=gains,
        sketch=_sample_sketch(values),
        scores=score_episode(
            states[:, profile.paces > 0] / profile.paces[profile.paces > 0],
            float(moves.mean()) if len(moves) else float("nan"),
            profile.rate,
        ),
        picked=values[evenly(num_rows, profile.num_picked)].astype(np.float32),
    )


def _measure_overshoot(steps: np.ndarray) -> np.ndarray:
    """Returns the distance of each row above or below both neighbours; 0 for rows between them."""
    before, after = steps[:-1], -steps[1:]
    return np.where(before * after > 0, np.minimum(np.abs(before), np.abs(after)), 0.0)


def _mask_moving_rows(moves: np.ndarray, num_rows: int) -> np.ndarray:
    """Returns a mask of the rows in the middle of a motion."""
    is_moving = np.zeros(num_rows, bool)
    is_moving[_STRIDE_ROWS // 2 : _STRIDE_ROWS // 2 + len(moves)] = moves
    return is_moving


def _count_idle(moves: np.ndarray, num_rows: int) -> tuple[int, int]:
    """Returns the numbers of rows at rest at the start, and at the end."""
    rows = np.flatnonzero(moves)
    if not len(rows):
        return (num_rows, num_rows)
    return int(rows[0]), int(len(moves) - 1 - rows[-1])


def _measure_at_end(values: np.ndarray, speeds: np.ndarray, rows_moving: np.ndarray) -> np.ndarray:
    """Returns the share of the moving rows in which each element stays at an extreme value."""
    moving = rows_moving[1:] & rows_moving[:-1]
    if not moving.any():
        return np.zeros(values.shape[1])
    reach = _EQUAL_VALUE_TOLERANCE * np.ptp(values, axis=0)
    stays = (speeds <= reach) & moving[:, None]
    limit_shares = [
        (stays & (np.abs(values[1:] - end) <= reach)).sum(0) / moving.sum()
        for end in (values.min(0), values.max(0))
    ]
    return np.maximum(*limit_shares)


def _find_longest_run(flags: np.ndarray) -> tuple[int, int]:
    """Returns the length of the longest run of true values, and its first index."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    if not len(edges):
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(lengths.argmax())
    return int(lengths[longest]), int(edges[2 * longest])


def _find_frozen(states: np.ndarray, actions: np.ndarray) -> tuple[int, int]:
    if not states.shape[1] or not actions.shape[1]:
        return 0, 0
    stays = (np.diff(states, axis=0) == 0).all(1)
    changes = (np.diff(actions, axis=0) != 0).any(1)
    return _find_longest_run(stays & changes)


def _find_gap(speeds: np.ndarray, usual_steps: np.ndarray) -> tuple[float, int]:
    """Returns the largest ratio of a step to the steps next to it in most elements, and its row.

    Args:
      speeds: The absolute steps of the state.
      usual_steps: The quantile 0.9 of the steps of each element.
    """
    if len(speeds) < _MIN_CORRELATED_ROWS:
        return 0.0, 0
    speeds = speeds[:, usual_steps > 0] / usual_steps[usual_steps > 0]
    if speeds.shape[1] < 2:
        return 0.0, 0
    neighbours = np.maximum(np.maximum(speeds[:-2], speeds[2:]), _MIN_NEIGHBOUR_STEP)
    sizes = np.sort(speeds[1:-1] / neighbours, axis=1)
    steps = sizes[:, (sizes.shape[1] - 1) // 2]
    row = int(steps.argmax())
    return float(steps[row]), row + 2


def _fits(
    actions: np.ndarray, states: np.ndarray, relations: Sequence[ElementMeaning]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the correlations of actions with the states that they lead to, by lag, and gains."""
    correlations = np.full((len(LAGS), actions.shape[1]), np.nan)
    gains = np.full(actions.shape[1], np.nan)
    for element, relation in enumerate(relations):
        if relation.state < 0:
            continue
        is_level = relation.kind in ("absolute", "velocity")
        is_level |= relation.kind == "gripper" and not relation.is_relative
        state = states[:, relation.state] if is_level else np.diff(states[:, relation.state])
        for index, delay in enumerate(LAGS):
            inputs, outputs = _align(actions[:, element], state, relation.lag + delay)
            if len(inputs) < _MIN_CORRELATED_ROWS:
                continue
            (inputs, spread), (outputs, spread_of_effects) = _centre(inputs), _centre(outputs)
            if min(spread, spread_of_effects) <= _MAX_CONSTANT_SPREAD:
                continue
            product = float(np.add.reduce(inputs * outputs)) / len(inputs)
            correlations[index, element] = product / (spread * spread_of_effects)
            if delay == 0:
                gains[element] = np.log(spread / spread_of_effects)
    return correlations, gains


def _centre(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the differences from the mean, and the standard deviation."""
    differences = values - np.add.reduce(values) / len(values)
    return differences, math.sqrt(np.add.reduce(differences * differences) / len(values))


def _align(action: np.ndarray, state: np.ndarray, lag: int) -> tuple[np.ndarray, np.ndarray]:
    begin, end = max(0, -lag), max(0, min(len(action), len(state) - lag))
    return action[begin:end], state[begin + lag : end + lag]


def _sample_sketch(values: np.ndarray) -> np.ndarray:
    width = min(values.shape[1], _SKETCH_ELEMENTS)
    if not len(values) or not width:
        return np.zeros(SKETCH_ROWS * width)
    # Few rows are repeated, so that all sketches have the same length.
    rows = np.linspace(0, len(values) - 1, SKETCH_ROWS).round().astype(int)
    elements = np.array(evenly(values.shape[1], width))
    sketch: np.ndarray = values[np.ix_(rows, elements)].reshape(-1)
    return sketch
