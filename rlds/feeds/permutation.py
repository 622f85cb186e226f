"""Orders that are computed, not stored: keyed permutations of any number of positions."""

import hashlib
import json
import operator
from typing import overload

import numpy as np
import numpy.typing as npt

from rlds.feeds import _core

__all__ = ["Permutation", "key_of", "uniform_of"]


def key_of(*parts: int | str) -> int:
    """Mixes numbers and texts to a key of 64 bits.

    Other parts, or the same ones in another order, give another key: seed 5 in epoch 1 has nothing
    in common with seed 6 in epoch 0. The key is the same in all releases, and on all machines.

    >>> key_of(5, 1), key_of(6, 0), key_of(5, "epoch", 1)
    (9301130184508411175, 10045742090197648491, 8107139532360900591)
    """
    text = json.dumps([p if isinstance(p, str) else int(operator.index(p)) for p in parts])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def uniform_of(numbers: npt.NDArray[np.int64], key: int) -> npt.NDArray[np.float64]:
    """Returns a random number from 0 on, below 1, for each of some numbers: always the same.

    >>> uniform_of(np.array([3, 4, 3]), key_of("example")).round(3)
    array([0.238, 0.832, 0.238])
    """
    drawn: npt.NDArray[np.float64] = (_core.hash_many(numbers, key) >> np.uint64(11)) / (1 << 53)
    return drawn


class Permutation:
    """A permutation of the numbers below a size, by a key.

    It takes no memory, and any part of it takes as long as any other.

    >>> order = Permutation(10, key=key_of(0, "epoch", 1))
    >>> order[np.arange(10)]
    array([5, 3, 0, 2, 7, 4, 8, 9, 6, 1])
    >>> order[3], order[2:5]
    (2, array([0, 2, 7]))
    >>> order.inverse(order[np.arange(3, 6)])
    array([3, 4, 5])

    Args:
      size: How many numbers, from 1 to 2**62.
      key: Which permutation, such as `key_of(seed, epoch)`.
    """

    def __init__(self, size: int, key: int) -> None:
        self.size = operator.index(size)
        self.key = operator.index(key)
        _core.permute(np.zeros(0, np.int64), self.size, self.key)  # Refuses what cannot be.

    def __repr__(self) -> str:
        return f"Permutation(size={self.size}, key={self.key})"

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, positions: int) -> int: ...
    @overload
    def __getitem__(self, positions: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...
    def __getitem__(
        self, positions: int | slice | npt.NDArray[np.int64]
    ) -> int | npt.NDArray[np.int64]:
        """Returns what is at one position, in a slice of them, or at each in an array."""
        if isinstance(positions, slice):
            chosen = range(self.size)[positions]
            places = np.arange(chosen.start, chosen.stop, chosen.step, dtype=np.int64)
        elif isinstance(positions, np.ndarray):
            places = positions
        else:
            one = np.array([operator.index(positions)], np.int64)
            return int(_core.permute(one, self.size, self.key)[0])
        return _core.permute(places, self.size, self.key)

    def inverse(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the position of each number."""
        return _core.unpermute(numbers, self.size, self.key)
