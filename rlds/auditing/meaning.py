"""Inference of the meaning of action elements from numbers alone; *unknown* if they leave doubt.

An element is compared with every element of the state (`rlds.auditing.relations`). It has a meaning
if one relation explains it, that relation passes its tests, and no other explains it as well.
With fewer than three episodes or 150 rows, all elements are unknown.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from rlds.auditing.relations import LAGS, Trajectories, changes, levels
from rlds.auditing.rotations import QUATERNION, Turns, quaternions, turns

__all__ = ["LEAST_EPISODES", "LEAST_ROWS", "ElementMeaning", "Kind", "agreed_meanings", "meanings"]

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

LEAST_EPISODES, LEAST_ROWS = 3, 150
"""Nothing is said of fewer."""

_PARTS = 5
# Least share of the variance for a relation, and by how much another may explain more.
_EXPLAINED, _LEAD = 0.9, 0.02
# A state is the rate of another if its sum over four rows explains as much of the other's change.
_RATE_WINDOW = 2
# A state answers an action at once if one row explains the first share of the variance, or if many
# rows explain less than the second share of the remainder.
_AT_ONCE, _REST = 0.95, 0.5
_HISTORY = range(-2, 8)
# For elements that open and close: the share of the range at both ends, and of rows there.
_END, _AT_ENDS, _NEAR, _NEAR_ENDS = 0.05, 0.8, 0.15, 0.6
_FOLLOWS = 0.6
_VALUES = 3


@dataclasses.dataclass(frozen=True)
class ElementMeaning:
    """The meaning of an element of an action, or the form of one of a state.

    Attributes:
      kind: "absolute": the value that the state gets. "delta": the change of the state, or its
        velocity: these differ by a factor. "velocity": the value that the rate of the state gets.
        "force": the change of that rate. "gripper": one of two ends, which the state moves to.
        "binary": few values, which no state follows. "constant", or "unknown". The others are
        forms, see `rlds.auditing.forms`.
      state: The element of the state that follows the action; -1 if none is known to.
      scale: The units of the action for one unit of the state; for a delta, for one unit of the
        change that the state reached. NaN if unknown.
      interval: The bounds of the scale in 95 % of the episodes.
      lag: The delay of the state in rows: at -1, rows hold the result of their action.
      explained: The share of the variance that the relation explains.
      is_relative: Of a gripper: whether the action changes the state, instead of setting it.
      why: The evidence, or what is in doubt, in a sentence without names.
      block: The first of the elements that have a form together; -1 for a form of one element.
      unit: The unit of an angle: "rad" or "deg".
    """

    kind: Kind
    state: int = -1
    scale: float = float("nan")
    interval: tuple[float, float] = (float("nan"), float("nan"))
    lag: int = 0
    explained: float = 0.0
    is_relative: bool = False
    why: str = ""
    block: int = -1
    unit: str = ""


def meanings(episodes: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[ElementMeaning]:
    """Returns the meaning of each element of the actions.

    Args:
      episodes: The actions, of shape `[rows, elements]`, and the states of some episodes.

    >>> rng = np.random.default_rng(0)
    >>> states = [rng.normal(size=(60, 2)).cumsum(0) for _ in range(4)]
    >>> actions = [np.diff(state, axis=0, append=state[-1:]) for state in states]
    >>> [meaning.kind for meaning in meanings([*zip(actions, states)])]
    ['delta', 'delta']
    """
    trajectories = Trajectories.of(episodes) if episodes else None
    if (
        trajectories is None
        or len(trajectories.ends) < LEAST_EPISODES
        or len(trajectories.actions) < LEAST_ROWS
    ):
        reason = f"fewer than {LEAST_EPISODES} episodes or {LEAST_ROWS} rows"
        width = episodes[0][0].shape[1] if episodes else 0
        return [ElementMeaning("unknown", why=reason)] * width
    if not trajectories.states.shape[1]:
        return [ElementMeaning("unknown", why="there is no state")] * trajectories.actions.shape[1]
    return list(_Judge(trajectories).all())


def agreed_meanings(episodes: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[ElementMeaning]:
    """Returns meanings as `meanings` does, robust to a few contradicting episodes.

    If all episodes together leave an element unknown, most of five parts of them decide.

    Args:
      episodes: The actions and the states of some episodes.
    """
    agreed = meanings(episodes)
    if len(episodes) < LEAST_EPISODES * _PARTS or all(it.kind != "unknown" for it in agreed):
        return agreed
    parts = [meanings(episodes[first::_PARTS]) for first in range(_PARTS)]
    for element, meaning in enumerate(agreed):
        if meaning.kind == "unknown":
            votes = [part[element] for part in parts if part[element].state >= 0]
            counted = collections.Counter((it.kind, it.state, it.lag) for it in votes)
            for key, num_votes in counted.most_common(1):
                if 2 * num_votes > _PARTS:
                    agreed[element] = next(it for it in votes if (it.kind, it.state, it.lag) == key)
    return agreed


class _Judge:
    """Infers the meaning of all action elements of trajectories."""

    def __init__(self, trajectories: Trajectories) -> None:
        self._trajectories = trajectories
        self._levels, self._changes = levels(trajectories), changes(trajectories)
        self._blocks = quaternions(trajectories.states)
        rates = changes(dataclasses.replace(trajectories, actions=trajectories.states))
        zero = LAGS.index(0)
        # [i, j]: whether element i is the rate of element j.
        self._rates = rates.raw[zero - 1 : zero + 2, _RATE_WINDOW].max(0) > _EXPLAINED
        np.fill_diagonal(self._rates, False)
        self._is_rate = self._rates.any(1)
        self._is_quaternion = np.zeros(trajectories.states.shape[1], bool)
        for block in self._blocks:
            self._is_quaternion[block : block + QUATERNION] = True

    def all(self) -> Iterator[ElementMeaning]:
        judged = [self._of(element) for element in range(self._trajectories.actions.shape[1])]
        for turned in turns(self._trajectories, self._blocks):
            for element in range(turned.first, turned.first + 3):
                if judged[element].kind == "unknown":
                    judged[element] = self._turned(turned, element)
        yield from judged

    def _of(self, element: int) -> ElementMeaning:
        values = self._trajectories.actions[:, element]
        if np.ptp(values) <= 1e-9 * np.abs(values).max(initial=1e-9):
            return ElementMeaning("constant", why=f"always {values[0]:g}")
        if self._is_two_ended(values, _END, _AT_ENDS) or len(np.unique(values)) <= _VALUES:
            if (gripper := self._gripper(element)) is not None:
                return gripper
            if len(np.unique(values)) <= _VALUES:
                return self._few_values(element)
        return self._followed(element)

    def _followed(self, element: int) -> ElementMeaning:
        """The meaning of an element by the only relation that explains it, if there is one."""
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
        if best[kind] < _EXPLAINED:
            return ElementMeaning("unknown", explained=best[kind], why="no state follows it")
        rivals = [other for other in best if other != kind and best[other] > best[kind] - _LEAD]
        # The change of a state and the level of its rate are the same.
        if {kind, *rivals} == {"delta", "velocity"}:
            kind, rivals = "velocity", []
        if rivals:
            why = f"it may be {kind} or {' or '.join(rivals)}"
            return ElementMeaning("unknown", explained=best[kind], why=why)
        return self._tested(kind, element, by_kind[kind])

    def _tested(self, kind: Kind, element: int, raw: np.ndarray) -> ElementMeaning:
        lag, state = np.unravel_index(int(raw.argmax()), raw.shape)
        explained = float(raw[lag, state])
        if kind in ("delta", "force") and lag in (0, len(LAGS) - 1):
            # The lag may be larger still: in rhythmic data, shifted rows look alike.
            return ElementMeaning("unknown", explained=explained, why="at no lag it is best")
        if kind in ("absolute", "velocity"):
            if not self._levels.agree[lag, element, state]:
                why = "it does not grow with the state in the same way in and between episodes"
                return ElementMeaning("unknown", explained=explained, why=why)
            scale = float(self._levels.slopes[lag, element, state])
        else:
            if kind == "delta" and not self._changes.settle[lag, element, state]:
                why = "the state goes on changing after the action"
                return ElementMeaning("unknown", explained=explained, why=why)
            if kind == "delta" and not self._is_answered_at_once(element, int(state)):
                why = "it acts on the state over many rows, as a force does"
                return ElementMeaning("unknown", explained=explained, why=why)
            slope = float(self._changes.slopes[lag, -1, element, state])
            scale = 1 / slope if slope else float("nan")
        return ElementMeaning(
            kind,
            int(state),
            scale,
            self._interval(kind, element, int(state), LAGS[lag]),
            LAGS[lag],
            explained,
        )

    def _interval(self, kind: str, element: int, state: int, lag: int) -> tuple[float, float]:
        """The bounds of the scale in most episodes."""
        slopes = []
        actions = self._trajectories.actions[:, element]
        states = self._trajectories.states[:, state]
        for begin, end in self._trajectories.spans:
            action, level = actions[begin:end], states[begin:end]
            if kind in ("absolute", "velocity"):
                low, high = max(-min(lag, 0), 0), len(action) - max(lag, 0)
                slopes.append(_slope(level[low + lag : high + lag], action[low:high]))
            else:
                low = max(-min(lag, 0), 0)
                high = len(action) - max(lag, 0) - 8
                sums = np.concatenate([[0.0], np.cumsum(action)])
                rows = np.arange(low, max(high, low))
                displacements = level[rows + lag + 8] - level[rows + lag]
                inverse = _slope(sums[rows + 8] - sums[rows], displacements)
                slopes.append(1 / inverse if inverse else np.nan)
        finite_slopes = np.array([slope for slope in slopes if np.isfinite(slope)])
        if not len(finite_slopes):
            return float("nan"), float("nan")
        low, high = np.quantile(finite_slopes, [0.025, 0.975])
        return float(low), float(high)

    def _is_answered_at_once(self, element: int, state: int) -> bool:
        """Whether the change of a state in one row depends on the action of one row."""
        trajectories = self._trajectories
        rows = trajectories.rows(-max(_HISTORY), -min(_HISTORY) + 1)
        displacements = trajectories.states[rows + 1, state] - trajectories.states[rows, state]
        causes = np.stack([trajectories.actions[rows - back, element] for back in _HISTORY], axis=1)
        displacements, causes = displacements - displacements.mean(), causes - causes.mean(0)
        total = float(displacements @ displacements)
        power = (causes**2).sum(0)
        if not total or not power.all():
            return False
        by_one = float(((displacements @ causes) ** 2 / power).max()) / total
        fitted = causes @ np.linalg.lstsq(causes, displacements, rcond=None)[0]
        by_all = 1 - float(((displacements - fitted) ** 2).sum()) / total
        return by_one >= _AT_ONCE or by_all - by_one < _REST * (1 - by_one)

    def _gripper(self, element: int) -> ElementMeaning | None:
        """Returns the meaning of an action that a state opens and closes with; None if none."""
        indices = [index for index, lag in enumerate(LAGS) if lag >= 0]
        level = self._levels.raw[indices, element]
        change = self._changes.raw[indices, :, element].max(1)
        states = self._trajectories.states.T
        ends = [self._is_two_ended(column, _NEAR, _NEAR_ENDS) for column in states]
        correlations = np.stack([level, change]) * (np.array(ends) & ~self._is_quaternion)
        kind, lag, state = np.unravel_index(int(correlations.argmax()), correlations.shape)
        explained = float(correlations[kind, lag, state])
        if explained < _FOLLOWS**2:
            return None
        slopes = self._levels.slopes[indices] if kind == 0 else self._changes.slopes[indices, -1]
        is_up = slopes[lag, element, state] > 0
        return ElementMeaning(
            "gripper",
            int(state),
            1.0 if is_up else -1.0,
            lag=LAGS[indices[lag]],
            explained=explained,
            is_relative=kind == 1,
        )

    def _few_values(self, element: int) -> ElementMeaning:
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

    def _turned(self, turned: Turns, element: int) -> ElementMeaning:
        axis = element - turned.first
        return ElementMeaning(
            "delta",
            turned.block + axis,
            turned.scales[axis],
            lag=turned.lag,
            explained=turned.explained[axis],
            why=f"rotation vector, {turned.order}, in the frame of the {turned.frame}",
        )


def _slope(causes: np.ndarray, effects: np.ndarray) -> float:
    if len(causes) < 3:
        return float("nan")
    causes = causes - causes.mean()
    power = float(causes @ causes)
    return float(causes @ (effects - effects.mean())) / power if power else float("nan")
