"""Quantiles in bounded memory."""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlds.statistics.quantile_sketch import CAPACITY, QuantileSketch

QUANTILES = (0.0, 0.001, 0.01, 0.25, 0.5, 0.99, 1.0)


def make_sketch(rows: np.ndarray, chunk: int = 1000) -> QuantileSketch:
    sketch = QuantileSketch(rows.shape[1])
    for start in range(0, len(rows), chunk):
        sketch.add(rows[start : start + chunk])
    return sketch


def rank_error(rows: np.ndarray, values: np.ndarray, q: float) -> float:
    """Returns the distance of q from the exact ranks of the values."""
    below = (rows < values).mean(axis=0)
    up_to = (rows <= values).mean(axis=0)
    return float(np.max(np.maximum(below - q, q - up_to)))


@settings(max_examples=20)
@given(
    count=st.integers(1, 3000),
    q=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_quantiles_of_few_values_are_exact(count: int, q: float, seed: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 100, size=(count, 3)).astype(np.float64)
    sketch = make_sketch(rows, chunk=777)
    assert sketch.error == 0.0
    np.testing.assert_allclose(sketch.quantile(q), np.quantile(rows, q, axis=0), rtol=1e-12)


def shuffle(rows: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).permutation(rows, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("order", [shuffle, np.sort, np.flip, lambda rows: rows % 7.0])
def test_quantiles_of_many_values_are_within_the_stated_error(order) -> None:
    rows = order(np.random.default_rng(0).normal(size=(300_000, 2)) * 1000)
    sketch = make_sketch(rows, chunk=4321)
    bound = np.log2(len(rows) / CAPACITY) / (2 * CAPACITY) + 2e-4
    assert 0.0 < sketch.error < bound
    for q in QUANTILES:
        assert rank_error(rows, sketch.quantile(q), q) <= sketch.error + 1 / len(rows)
    num_bytes = sketch._buffer.nbytes + sum(
        level.half.nbytes for level in sketch._levels.values() if level.half is not None
    )
    assert num_bytes < rows.nbytes / 5


@settings(max_examples=5)
@given(counts=st.lists(st.integers(0, 40_000), min_size=1, max_size=5))
def test_merged_sketch_is_within_the_error_over_all_values(counts: list[int]) -> None:
    rng = np.random.default_rng(len(counts))
    all_rows = [rng.normal(i, size=(count, 1)) for i, count in enumerate(counts)]
    merged = QuantileSketch(1)
    for rows in all_rows:
        merged.merge(make_sketch(rows))
    rows = np.concatenate(all_rows)
    assert merged.count == len(rows)
    for q in QUANTILES if len(rows) else ():
        assert rank_error(rows, merged.quantile(q), q) <= merged.error + 1 / len(rows)


def test_changes_of_a_copy_leave_the_original() -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 2))
    sketch = make_sketch(rows)
    before = sketch.quantile(0.3)
    copy = deepcopy(sketch)
    copy.add(rows + 100.0)
    assert sketch.count == 20_000
    assert sketch.quantile(0.3).tolist() == before.tolist()
    assert (copy.quantile(0.9) > 50).all()


def test_quantiles_of_no_values_are_nan() -> None:
    assert np.isnan(QuantileSketch(2).quantile(0.5)).all()
