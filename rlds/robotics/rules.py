"""Conversion rules for columns of robot episodes, such as gripper commands.

All rules take the values of one or more elements in each step, of shape `[steps, elements]`, and
return values of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

__all__ = ["RULES", "binarize", "clip", "euler", "invert", "reached", "rel2abs"]

# A gripper is open above the first bound, closed below the second bound, and moving in between.
_MIN_OPEN, _MAX_CLOSED = 0.95, 0.05
# Smaller relative commands change nothing.
_MIN_COMMAND = 0.1


def binarize(values: np.ndarray) -> np.ndarray:
    """Returns 1 where a gripper is open or opening, and 0 where it is closed or closing.

    Values between 0.05 and 0.95 become the next open or closed state; without a next state, the
    last value.

    >>> binarize(np.array([[1.0], [0.6], [0.0], [0.3]])).ravel().tolist()
    [1.0, 0.0, 0.0, 0.3]
    """
    is_final = (values > _MIN_OPEN) | (values < _MAX_CLOSED)
    rows = np.arange(len(values))[:, np.newaxis]
    # The next row with a final state: the running minimum from the end.
    next_row = np.where(is_final, rows, len(values))
    next_row = np.minimum.accumulate(next_row[::-1], axis=0)[::-1]
    next_value = np.take_along_axis(values, np.minimum(next_row, len(values) - 1), axis=0)
    result: np.ndarray = np.where(next_row < len(values), next_value > _MIN_OPEN, values[-1:])
    return result.astype(values.dtype)


def rel2abs(values: np.ndarray) -> np.ndarray:
    """Returns the state of a gripper from commands to close (above 0.1) or to open (below -0.1).

    1 is open. The first command is assumed to change the state, so the gripper starts in the
    opposite state. Without any command, the gripper is open.

    >>> rel2abs(np.array([[0.0], [1.0], [0.0], [-1.0]])).ravel().tolist()
    [1.0, 0.0, 0.0, 1.0]
    """
    is_open, is_closed = values < -_MIN_COMMAND, values > _MIN_COMMAND
    is_command = is_open | is_closed
    rows = np.arange(len(values))[:, np.newaxis]
    last_row = np.maximum.accumulate(np.where(is_command, rows, -1), axis=0)
    is_open_after = np.take_along_axis(is_open, np.maximum(last_row, 0), axis=0)
    first_commands = np.argmax(is_command, axis=0)[np.newaxis]
    is_open_before = ~np.take_along_axis(is_open, first_commands, axis=0) | ~is_command.any(axis=0)
    result: np.ndarray = np.where(last_row >= 0, is_open_after, is_open_before)
    return result.astype(values.dtype)


def invert(values: np.ndarray) -> np.ndarray:
    """Returns 1 minus the values."""
    return 1 - values


def clip(values: np.ndarray) -> np.ndarray:
    """Clips values to the range from 0 to 1."""
    return values.clip(0, 1)


def reached(values: np.ndarray) -> np.ndarray:
    """Returns the change of the values to the next step; 0 in the last step."""
    return np.diff(values, axis=0, append=values[-1:])


def euler(values: np.ndarray) -> np.ndarray:
    """Returns roll, pitch and yaw of unit quaternions x, y, z, w.

    The angles are successive rotations about the fixed axes x, y and z.

    >>> np.round(euler(np.array([[0.0, 0.0, 0.5**0.5, 0.5**0.5]])), 4).tolist()
    [[0.0, 0.0, 1.5708]]
    """
    x, y, z, w = values.T
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin((2 * (w * y - z * x)).clip(-1, 1))
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.stack([roll, pitch, yaw], axis=1)


RULES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    rule.__name__: rule for rule in (binarize, clip, euler, invert, reached, rel2abs)
}
"""The rules, by their names in the table."""
