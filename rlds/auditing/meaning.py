"""Inference of the meaning of action elements from their values; *unknown* in doubt.

An element is compared with every element of the state (`rlds.auditing.relations`). An element has a
meaning if one relation explains the element, passes its tests, and fits better than all other
relations. With fewer than three episodes or 150 rows, all elements are unknown.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from rlds.auditing.relations import LAGS, Trajectories, compare_changes, compare_levels
from rlds.auditing.rotations import QUATERNION, Turns, find_quaternions, find_turns

__all__ = ["MIN_EPISODES", "MIN_ROWS", "ElementMeaning", "Kind", "meanings", "vote_on_meanings"]

Kind: TypeAlias = Literal[
    "absolute",
    "delta",
    "velocity",
    "force",
    "gripper",
    "binary",
    "constant",
    "quaternion",
    "rotation matrix",
    "rotation in six numbers",
    "direction",
    "sine and cosine",
    "angle",
    "unknown",
]

MIN_EPISODES, MIN_ROWS = 3, 150
"""The least numbers of episodes and of rows; with fewer, all elements are unknown."""

_NUM_VOTES = 5
# Least share of the variance for a relation, and the least lead over other relations.
_MIN_R_SQUARED, _MIN_LEAD = 0.9, 0.02
# The index of the window over which the sum of a rate explains the change of another state.
_RATE_WINDOW_INDEX = 2
# A state responds at once if one row explains the first share of the variance, or if many rows
# explain less than the second share of the remainder.
_MIN_ONE_ROW_R_SQUARED, _REMAINDER_SHARE = 0.95, 0.5
_PAST_LAGS = range(-2, 8)
# Grippers: the share of the range at each end, and of the rows there, for actions and for states.
_ACTION_END_SHARE, _ACTION_ROW_SHARE = 0.05, 0.8
_STATE_END_SHARE, _STATE_ROW_SHARE = 0.15, 0.6
_MIN_GRIPPER_CORRELATION, _MAX_GRIPPER_VALUES = 0.6, 3


@dataclasses.dataclass(frozen=True)
class ElementMeaning:
    """The meaning of an action element, or the form of a state element.

    Attributes:
      kind: "absolute": the target of the state. "delta": the change of the state, or its velocity,
        which differ by a factor. "velocity": the target of the rate of the state. "force": the
        change of that rate. "gripper": one of two ends, to which the state moves. "binary": few
        values that no state follows. "constant", or "unknown". All further kinds are forms, see
        `rlds.auditing.forms`.
      state: The index of the state element that follows the action; -1 if unknown.
      scale: The units of the action per unit of the state, or of its change for a delta. NaN if
        unknown.
      interval: The bounds of the scale in 95 % of the episodes.
      lag: The delay of the state in rows: at -1, each row holds the result of its action.
      r_squared: The share of the variance that the relation explains.
      is_relative: True if the action of a gripper changes the state, instead of setting it.
      why: The evidence or the doubt, in a sentence without names.
      block: The index of the first element of a form; -1 for a form of one element.
      unit: The unit of an angle: "rad" or "deg".
    """

    kind: Kind
    state: int = -1
    scale: float = float("nan")
    interval: tuple[float, float] = (float("nan"), float("nan"))
    lag: int = 0
    r_squared: float = 0.0
    is_relative: bool = False
    why: str = ""
    block: int = -1
    unit: str = ""


def meanings(episodes: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[ElementMeaning]:
    """Returns the meaning of each element of the actions.

    Args:
      episodes: The actions and the states of some episodes, of shape `[rows, elements]`.

    >>> rng = np.random.default_rng(0)
    >>> states = [rng.normal(size=(60, 2)).cumsum(0) for _ in range(4)]
    >>> actions = [np.diff(state, axis=0, append=state[-1:]) for state in states]
    >>> [meaning.kind for meaning in meanings([*zip(actions, states)])]
    ['delta', 'delta']
    """
    trajectories = Trajectories.join(episodes) if episodes else None
    if (
        trajectories is None
        or len(trajectories.episode_ends) < MIN_EPISODES
        or len(trajectories.actions) < MIN_ROWS
    ):
        reason = f"fewer than {MIN_EPISODES} episodes or {MIN_ROWS} rows"
        width = episodes[0][0].shape[1] if episodes else 0
        return [ElementMeaning("unknown", why=reason)] * width
    if not trajectories.states.shape[1]:
        return [ElementMeaning("unknown", why="there is no state")] * trajectories.actions.shape[1]
    return list(_Inference(trajectories).all())


def vote_on_meanings(episodes: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[ElementMeaning]:
    """Returns `meanings`, robust to a few contradicting episodes.

    If all episodes together leave an element unknown, the majority of five subsets decides.

    Args:
      episodes: The actions and the states of some episodes.
    """
    pooled = meanings(episodes)
    kinds = {meaning.kind for meaning in pooled}
    if len(episodes) < MIN_EPISODES * _NUM_VOTES or "unknown" not in kinds:
        return pooled
    subsets = [meanings(episodes[first::_NUM_VOTES]) for first in range(_NUM_VOTES)]
    for element, meaning in enumerate(pooled):
        if meaning.kind == "unknown":
            votes = [subset[element] for subset in subsets if subset[element].state >= 0]
            keys = [(vote.kind, vote.state, vote.lag) for vote in votes]
            for key, num_votes in collections.Counter(keys).most_common(1):
                if 2 * num_votes > _NUM_VOTES:
                    pooled[element] = votes[keys.index(key)]
    return pooled


class _Inference:
    """Infers the meaning of all action elements of trajectories."""

    def __init__(self, trajectories: Trajectories) -> None:
        self._trajectories = trajectories
        self._levels, self._changes = compare_levels(trajectories), compare_changes(trajectories)
        self._blocks = find_quaternions(trajectories.states)
        rates = compare_changes(dataclasses.replace(trajectories, actions=trajectories.states))
        zero = LAGS.index(0)
        # [i, j]: true if element i is the rate of element j.
        self._rates = rates.raw[zero - 1 : zero + 2, _RATE_WINDOW_INDEX].max(0) > _MIN_R_SQUARED
        np.fill_diagonal(self._rates, False)
        self._is_rate = self._rates.any(1)
        self._is_quaternion = np.zeros(trajectories.states.shape[1], bool)
        for block in self._blocks:
            self._is_quaternion[block : block + QUATERNION] = True

    def all(self) -> Iterator[ElementMeaning]:
        inferred = [self._infer(element) for element in range(self._trajectories.actions.shape[1])]
        for turns in find_turns(self._trajectories, self._blocks):
            for element in range(turns.first, turns.first + 3):
                if inferred[element].kind == "unknown":
                    inferred[element] = self._infer_increment(turns, element)
        yield from inferred

    def _infer(self, element: int) -> ElementMeaning:
        values = self._trajectories.actions[:, element]
        if np.ptp(values) <= 1e-9 * np.abs(values).max(initial=1e-9):
            return ElementMeaning("constant", why=f"always {values[0]:g}")
        has_few_values = len(np.unique(values)) <= _MAX_GRIPPER_VALUES
        if self._is_two_ended(values, _ACTION_END_SHARE, _ACTION_ROW_SHARE) or has_few_values:
            if (gripper := self._infer_gripper(element)) is not None:
                return gripper
            if has_few_values:
                return self._infer_binary(element)
        return self._explain(element)

    def _explain(self, element: int) -> ElementMeaning:
        """Returns the meaning of an element by the only relation that explains it, if any."""
        level, change = self._levels.raw[:, element], self._changes.raw[:, :, element].max(1)
        change = np.where(self._is_quaternion, 0.0, change)
        by_kind = {
            "absolute": np.where(self._is_rate, 0.0, level),
            "velocity": np.where(self._is_rate, level, 0.0),
            "delta": np.where(self._is_rate, 0.0, change),
            "force": np.where(self._is_rate, change, 0.0),
        }
        best = {kind: float(raw.max()) for kind, raw in by_kind.items()}
        kind: Any = max(best, key=lambda kind: best[kind])
        if best[kind] < _MIN_R_SQUARED:
            return ElementMeaning("unknown", r_squared=best[kind], why="no state follows it")
        rivals = [other for other in best if other != kind and best[other] > best[kind] - _MIN_LEAD]
        # The change of a state is the level of its rate.
        if {kind, *rivals} == {"delta", "velocity"}:
            kind, rivals = "velocity", []
        if rivals:
            why = f"it may be {kind} or {' or '.join(rivals)}"
            return ElementMeaning("unknown", r_squared=best[kind], why=why)
        return self._test(kind, element, by_kind[kind])

    def _test(self, kind: Kind, element: int, raw: np.ndarray) -> ElementMeaning:
        lag, state = np.unravel_index(int(raw.argmax()), raw.shape)
        r_squared = float(raw[lag, state])
        if kind in ("delta", "force") and lag in (0, len(LAGS) - 1):
            # The lag may be even larger: in rhythmic data, shifted rows look alike.
            return ElementMeaning("unknown", r_squared=r_squared, why="no lag fits best")
        if kind in ("absolute", "velocity"):
            if not self._levels.agree[lag, element, state]:
                why = "its slope over the state differs within and between episodes"
                return ElementMeaning("unknown", r_squared=r_squared, why=why)
            scale = float(self._levels.slopes[lag, element, state])
        else:
            if kind == "delta" and not self._changes.settle[lag, element, state]:
                why = "the state goes on changing after the action"
                return ElementMeaning("unknown", r_squared=r_squared, why=why)
            if kind == "delta" and not self._is_answered_at_once(element, int(state)):
                why = "it acts on the state over many rows, like a force"
                return ElementMeaning("unknown", r_squared=r_squared, why=why)
            slope = float(self._changes.slopes[lag, -1, element, state])
            scale = 1 / slope if slope else float("nan")
        return ElementMeaning(
            kind,
            int(state),
            scale,
            self._bound_slope(kind, element, int(state), LAGS[lag]),
            LAGS[lag],
            r_squared,
        )

    def _bound_slope(self, kind: str, element: int, state: int, lag: int) -> tuple[float, float]:
        """Returns the bounds of the scale in most episodes."""
        slopes = []
        actions = self._trajectories.actions[:, element]
        states = self._trajectories.states[:, state]
        for begin, end in self._trajectories.spans:
            action, level = actions[begin:end], states[begin:end]
            if kind in ("absolute", "velocity"):
                low, high = max(-min(lag, 0), 0), len(action) - max(lag, 0)
                slopes.append(_compute_slope(level[low + lag : high + lag], action[low:high]))
            else:
                low = max(-min(lag, 0), 0)
                high = len(action) - max(lag, 0) - 8
                sums = np.concatenate([[0.0], np.cumsum(action)])
                rows = np.arange(low, max(high, low))
                displacements = level[rows + lag + 8] - level[rows + lag]
                inverse = _compute_slope(sums[rows + 8] - sums[rows], displacements)
                slopes.append(1 / inverse if inverse else np.nan)
        finite_slopes = np.array([slope for slope in slopes if np.isfinite(slope)])
        if not len(finite_slopes):
            return float("nan"), float("nan")
        low, high = np.quantile(finite_slopes, [0.025, 0.975])
        return float(low), float(high)

    def _is_answered_at_once(self, element: int, state: int) -> bool:
        """Whether the change of a state in one row depends on the action of one row."""
        trajectories = self._trajectories
        rows = trajectories.rows(-max(_PAST_LAGS), -min(_PAST_LAGS) + 1)
        displacements = trajectories.states[rows + 1, state] - trajectories.states[rows, state]
        past = np.stack([trajectories.actions[rows - back, element] for back in _PAST_LAGS], axis=1)
        displacements, past_actions = displacements - displacements.mean(), past - past.mean(0)
        total = float(displacements @ displacements)
        power = (past_actions**2).sum(0)
        if not total or not power.all():
            return False
        by_one = float(((displacements @ past_actions) ** 2 / power).max()) / total
        fitted = past_actions @ np.linalg.lstsq(past_actions, displacements, rcond=None)[0]
        by_all = 1 - float(((displacements - fitted) ** 2).sum()) / total
        return by_one >= _MIN_ONE_ROW_R_SQUARED or by_all - by_one < _REMAINDER_SHARE * (1 - by_one)

    def _infer_gripper(self, element: int) -> ElementMeaning | None:
        """Returns the meaning of an action that opens and closes a gripper; None if it does not."""
        indices = [index for index, lag in enumerate(LAGS) if lag >= 0]
        level = self._levels.raw[indices, element]
        change = self._changes.raw[indices, :, element].max(1)
        states = self._trajectories.states.T
        has_two_ends = [self._is_two_ended(c, _STATE_END_SHARE, _STATE_ROW_SHARE) for c in states]
        correlations = np.stack([level, change]) * (np.array(has_two_ends) & ~self._is_quaternion)
        kind, lag, state = np.unravel_index(int(correlations.argmax()), correlations.shape)
        r_squared = float(correlations[kind, lag, state])
        if r_squared < _MIN_GRIPPER_CORRELATION**2:
            return None
        slopes = self._levels.slopes[indices] if kind == 0 else self._changes.slopes[indices, -1]
        is_up = slopes[lag, element, state] > 0
        return ElementMeaning(
            "gripper",
            int(state),
            1.0 if is_up else -1.0,
            lag=LAGS[indices[lag]],
            r_squared=r_squared,
            is_relative=kind == 1,
        )

    def _infer_binary(self, element: int) -> ElementMeaning:
        values = self._trajectories.actions[:, element]
        changing = [np.ptp(values[begin:end]) > 0 for begin, end in self._trajectories.spans]
        if np.mean(changing) < 0.5:
            return ElementMeaning("unknown", why="it is constant within episodes")
        return ElementMeaning("binary", why="it has few values, and no state follows it")

    @staticmethod
    def _is_two_ended(values: np.ndarray, near: float, share: float) -> bool:
        low, high = values.min(), values.max()
        if low == high:
            return False
        relative = (values - low) / (high - low)
        at_low, at_high = (relative <= near).mean(), (relative >= 1 - near).mean()
        return bool(at_low + at_high > share and min(at_low, at_high) > 0.01)

    def _infer_increment(self, turns: Turns, element: int) -> ElementMeaning:
        axis = element - turns.first
        return ElementMeaning(
            "delta",
            turns.block + axis,
            turns.scales[axis],
            lag=turns.lag,
            r_squared=turns.r_squared[axis],
            why=f"rotation vector, {turns.order}, in the frame of the {turns.frame}",
        )


def _compute_slope(inputs: np.ndarray, outputs: np.ndarray) -> float:
    if len(inputs) < 3:
        return float("nan")
    inputs = inputs - inputs.mean()
    power = float(inputs @ inputs)
    return float(inputs @ (outputs - outputs.mean())) / power if power else float("nan")
