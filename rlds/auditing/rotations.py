"""Unit quaternions in states, and the actions that are their increments."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from rlds.auditing.relations import Trajectories, regress

__all__ = ["QUATERNION", "Turns", "find_quaternions", "find_turns"]

QUATERNION = 4
"""The number of elements of a quaternion."""

_ELEMENT_ORDERS = {"x, y, z, w": (3, 0, 1, 2), "w, x, y, z": (0, 1, 2, 3)}
_FRAMES = ("base", "body")
# Tolerance of the norm of a measured unit quaternion.
_NORM_TOLERANCE = 0.02
_LAGS = (-1, 0, 1, 2)
_WINDOW_ROWS = 4
# Shares of the variance: the least one of an axis, the lead of the best fit; the number of axes.
_MIN_R_SQUARED, _MIN_LEAD, _MIN_AXES = 0.9, 0.01, 2


@dataclasses.dataclass(frozen=True)
class Turns:
    """Three elements of an action that are the increments of a quaternion of the state.

    Attributes:
      first: The index of the first of these elements.
      block: The index of the first element of the quaternion.
      order: The order of the elements of the quaternion.
      frame: The frame of the increments: "base" or "body".
      lag: The delay of the state, in rows.
      scales: The units of the action per radian.
      r_squared: The explained share of the variance of each element.
    """

    first: int
    block: int
    order: str
    frame: str
    lag: int
    scales: Sequence[float]
    r_squared: Sequence[float]


def find_quaternions(states: np.ndarray) -> list[int]:
    """Returns the first indices of blocks of four changing state elements with unit norm.

    >>> find_quaternions(np.array([[9.0, 0, 0, 0, 1], [9, 0.6, 0, 0, 0.8]]))
    [1]
    """
    errors = {}
    for element in range(states.shape[1] - QUATERNION + 1):
        four = states[:, element : element + QUATERNION]
        error = np.abs(np.linalg.norm(four, axis=1) - 1).max(initial=0)
        if error < _NORM_TOLERANCE and (np.ptp(four, axis=0) > 0).any():
            errors[element] = float(error)
    blocks: list[int] = []
    for element in sorted(errors, key=errors.__getitem__):  # The best of overlapping blocks.
        if all(abs(element - other) >= QUATERNION for other in blocks):
            blocks.append(element)
    return sorted(blocks)


def find_turns(trajectories: Trajectories, blocks: Sequence[int]) -> Iterator[Turns]:
    """Yields the actions that turn quaternions of the state with the given first indices."""
    for block in blocks:
        candidates = list(_fit_turns(trajectories, block))
        if not candidates:
            continue
        best = max(candidates, key=_average)
        convention = best.order, best.frame
        rivals = [turns for turns in candidates if (turns.order, turns.frame) != convention]
        lead = _average(best) - max(map(_average, rivals), default=0)
        if sum(r2 >= _MIN_R_SQUARED for r2 in best.r_squared) >= _MIN_AXES and lead >= _MIN_LEAD:
            yield best


def _average(turns: Turns) -> float:
    return float(np.mean(turns.r_squared))


def _fit_turns(trajectories: Trajectories, block: int) -> Iterator[Turns]:
    four = trajectories.states[:, block : block + QUATERNION]
    actions = trajectories.actions
    sums = np.concatenate([np.zeros((1, actions.shape[1])), actions.cumsum(0)])
    for (order, elements), frame, lag in itertools.product(_ELEMENT_ORDERS.items(), _FRAMES, _LAGS):
        rows = trajectories.rows(min(lag, 0), max(lag, 0) + _WINDOW_ROWS)
        increments = _rotation_vectors(four[:, elements], rows + lag, frame)
        summed = sums[rows + _WINDOW_ROWS] - sums[rows]
        squared, slopes = regress(summed, increments)
        for element in range(actions.shape[1] - 2):
            axes = np.arange(3)
            r_squared = squared[element + axes, axes]
            slope = slopes[element + axes, axes]
            if (slope > 0).all():
                scales = tuple((1 / slope).tolist())
                yield Turns(element, block, order, frame, lag, scales, tuple(r_squared.tolist()))


def _rotation_vectors(quaternion: np.ndarray, rows: np.ndarray, frame: str) -> np.ndarray:
    """Returns the rotation vectors over a window; quaternions begin with the real element."""
    before, after = quaternion[rows], quaternion[rows + _WINDOW_ROWS]
    inverse = before * np.array([1, -1, -1, -1])
    rotations = _multiply(after, inverse) if frame == "base" else _multiply(inverse, after)
    rotations = rotations * np.where(rotations[:, :1] < 0, -1, 1)
    norm = np.linalg.norm(rotations[:, 1:], axis=1, keepdims=True)
    angle = 2 * np.arctan2(norm, rotations[:, :1])
    return rotations[:, 1:] * np.divide(angle, norm, out=np.full_like(norm, 2.0), where=norm > 1e-9)


def _multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    a, b, c, d = left.T
    e, f, g, h = right.T
    return np.stack(
        [
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ],
        axis=1,
    )
