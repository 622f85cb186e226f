"""Ranks of numbers."""

import numpy as np

__all__ = ["midranks"]


def midranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each number, from 0; equal numbers get the mean of their ranks.

    Args:
      values: Numbers of shape `[n]`, without NaN; they may be infinite.

    >>> midranks(np.array([2.0, np.inf, 2.0, -1.0]))
    array([1.5, 3. , 1.5, 0. ])
    """
    ordered = np.sort(values)
    below, up_to = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    ranks: np.ndarray = (below + up_to - 1) / 2
    return ranks
