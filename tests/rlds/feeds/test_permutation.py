"""Computed orders are as random as a shuffle, and all differ."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from feed_datasets import hot

from rlds.feeds.permutation import key_of


def test_keys_of_different_arguments_differ():
    inputs = [(seed, epoch) for seed in range(-20, 80) for epoch in range(100)]
    inputs += [(), (1,), ("1",), (1, ""), ("", 1), ("1,1",), (11,), ("a", "b"), ("ab",), ("a b",)]
    inputs += [(2**64,), (-(2**64), 0), (0, 0, 0)]
    assert len({key_of(*values) for values in inputs}) == len(inputs)
    assert all(0 <= key_of(*values) < 2**64 for values in inputs)


def test_keys_never_change():
    assert key_of(5, 1) == 9301130184508411175
    assert key_of(np.int64(5), np.uint8(1)) == key_of(5, True) == key_of(5, 1)
    assert key_of("épisode", -1) == 11184931957515400226
    with pytest.raises(TypeError):
        key_of(1.5)


def measure_spread(size, keys, cells, cell_of):
    """Returns the deviation of the spread from that of shuffles, in standard deviations.

    The chi-square of a table of `cells` by `cells`, by its degrees of freedom. A result below 0
    means that positions are more even than by chance.
    """
    positions = np.arange(size)
    actual = []
    for key in keys:
        moved = cell_of(hot.permute(positions, size, key_of(key, "spread")))
        table = np.bincount(cell_of(positions) * cells + moved, minlength=cells**2)
        table = table.reshape(cells, cells)
        expected = table.sum(axis=0) * table.sum(axis=1)[:, None] / size
        chi_square = ((table - expected) ** 2 / expected).sum() * (size - 1) / size
        actual.append(chi_square / (cells - 1) ** 2)
    return (np.mean(actual) - 1) / math.sqrt(2 / (cells - 1) ** 2 / len(actual))


@pytest.mark.slow
@pytest.mark.parametrize("size", [300, 10_000, 65_536, 200_003])
def test_positions_spread_as_by_chance(size):
    cells = 64 if size > 300 else 8
    keys = range(20 if size > 300 else 200)
    assert abs(measure_spread(size, keys, cells, lambda positions: positions * cells // size)) < 3
    assert abs(measure_spread(size, keys, cells, lambda positions: positions % cells)) < 3


@pytest.mark.slow
def test_all_orders_of_five_are_equally_frequent():
    num_keys, orders = 4_000, math.factorial(5)
    counts = Counter(tuple(hot.permute(np.arange(5), 5, key).tolist()) for key in range(num_keys))
    assert len(counts) == orders
    expected = num_keys / orders
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values()) / (orders - 1)
    assert abs(chi_square - 1) < 3 * math.sqrt(2 / (orders - 1))


def test_orders_of_different_sizes_differ():
    """Datasets that grow are reshuffled."""
    orders = [hot.permute(np.arange(900), size, 1) for size in range(1000, 1020)]
    for one, other in itertools.combinations(orders, 2):
        assert (one == other).sum() < 10
