"""Counter-based random numbers: keys, uniform numbers by index, and generators by row."""

import hashlib
import json
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlds.feeds import _core

__all__ = ["RowRandom", "key_of", "uniform_of"]


def key_of(*values: int | str) -> int:
    """Hashes integers and texts to a key of 64 bits.

    Different values, or values in another order, give independent keys: seed 5 in epoch 1 is
    unrelated to seed 6 in epoch 0. The key is the same in all releases, and on all machines.

    >>> key_of(5, 1), key_of(6, 0), key_of(5, "epoch", 1)
    (9301130184508411175, 10045742090197648491, 8107139532360900591)
    """
    text = json.dumps([v if isinstance(v, str) else int(operator.index(v)) for v in values])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def uniform_of(indices: npt.NDArray[np.int64], key: int) -> npt.NDArray[np.float64]:
    """Returns a reproducible random number in [0, 1) for each index.

    >>> uniform_of(np.array([3, 4, 3]), key_of("example")).round(3)
    array([0.238, 0.832, 0.238])
    """
    return (_core.hash_many(indices, key) >> np.uint64(11)) / (1 << 53)


class RowRandom:
    """Random numbers for the rows of a batch; each row has its own sequence.

    A row gets the same numbers in every batch and on every rank. The methods are those of
    `numpy.random.Generator`; the first axis of a shape is the axis of the rows.

    Args:
      positions: The unique position of each row, int64 of shape `[rows]`.
      key: A key, such as `key_of(seed)`.

    >>> rng, other = RowRandom(np.array([3, 4, 5]), 1), RowRandom(np.array([5]), 1)
    >>> rng.normal(0, 0.1, (3, 2))[2] == other.normal(0, 0.1, (1, 2))[0]
    array([ True,  True])
    """

    def __init__(self, positions: npt.NDArray[np.int64], key: int) -> None:
        self._rows, self._calls = _core.hash_many(positions, key), 0

    def random(self, size: int | Sequence[int] | None = None) -> npt.NDArray[np.float64]:
        """Returns uniform random numbers in [0, 1).

        Raises:
          ValueError: The length of the first axis is not the number of rows.
        """
        shape = (size,) if isinstance(size, int) else tuple(size or ())
        if shape[:1] != self._rows.shape:
            raise ValueError(
                f"size {size} does not begin with the number of rows, {len(self._rows)}: each row "
                "gets its own numbers"
            )
        offsets = np.arange(math.prod(shape[1:]), dtype=np.uint64)
        self._calls += 1
        indices = (self._rows[:, np.newaxis] + offsets).reshape(-1).view(np.int64)
        return uniform_of(indices, key_of("draw", self._calls)).reshape(shape)

    def uniform(
        self, low: Any = 0.0, high: Any = 1.0, size: int | Sequence[int] | None = None
    ) -> npt.NDArray[np.float64]:
        """Returns uniform random numbers in [`low`, `high`)."""
        return low + np.subtract(high, low) * self.random(size)

    def normal(
        self, loc: Any = 0.0, scale: Any = 1.0, size: int | Sequence[int] | None = None
    ) -> npt.NDArray[np.float64]:
        """Returns normally distributed random numbers."""
        radius = np.sqrt(-2.0 * np.log1p(-self.random(size)))
        standard = radius * np.cos(2.0 * np.pi * self.random(size))
        return loc + scale * standard

    def integers(
        self, low: Any, high: Any = None, size: int | Sequence[int] | None = None
    ) -> npt.NDArray[np.int64]:
        """Returns random integers in [`low`, `high`); without `high`, in [0, `low`)."""
        low, high = (0, low) if high is None else (low, high)
        return np.floor(self.uniform(low, high, size)).astype(np.int64)

    def of_row(self, row: int) -> np.random.Generator:
        """Returns a NumPy generator for one row, for other distributions."""
        return np.random.Generator(np.random.Philox(key=int(self._rows[row])))
