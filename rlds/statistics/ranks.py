"""Ranks of numbers in their order."""

import numpy as np

__all__ = ["midranks"]


def midranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each number from 0 on; equal ones share the mean of theirs.

    Args:
      values: Numbers of shape `[n]`, without NaN; they may be infinite.

    >>> midranks(np.array([2.0, np.inf, 2.0, -1.0]))
    array([1.5, 3. , 1.5, 0. ])
    """
    ordered = np.sort(values)
    below, up_to = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    ranks: np.ndarray = (below + up_to - 1) / 2
    return ranks
