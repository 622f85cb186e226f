"""Mixtures of datasets."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from random_episodes import episode_columns, in_both_layouts, rest_after_restoring

from rlds.transformations import mix


def numbered(start: int, count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(start, start + count)


def values(dataset: tf.data.Dataset) -> list[int]:
    return list(dataset.as_numpy_iterator())


@pytest.mark.slow
def test_datasets_are_drawn_by_weight() -> None:
    data = [numbered(0, 10), numbered(100, 10), numbered(200, 10)]
    drawn = np.array(values(mix(data, [6, 3, 1], seed=0).take(3000))) // 100
    assert np.abs(np.bincount(drawn) / 3000 - [0.6, 0.3, 0.1]).max() < 0.03
    by_size = np.array(values(mix(data, sizes=[1, 1, 2], seed=0).take(3000))) // 100
    assert np.abs(np.bincount(by_size) / 3000 - [0.25, 0.25, 0.5]).max() < 0.03
    both = np.array(values(mix(data, [1, 1, 0], sizes=[3, 1, 9], seed=0).take(3000))) // 100
    assert np.abs(np.bincount(both) / 3000 - [0.75, 0.25]).max() < 0.03


def test_each_dataset_keeps_its_order_and_when_to_stop() -> None:
    data = [numbered(0, 3), numbered(100, 200)]
    everything = values(mix(data, seed=1, stop="all"))
    assert sorted(everything) == [0, 1, 2, *range(100, 300)]
    assert [v for v in everything if v >= 100] == list(range(100, 300))
    assert len(mix(data, stop="all")) == 203

    first = values(mix(data, seed=1, stop="first"))
    assert [v for v in first if v < 100] == [0, 1, 2]
    assert len(first) < 30

    forever = mix(data, seed=1)
    assert forever.cardinality() == tf.data.experimental.INFINITE_CARDINALITY
    assert [v for v in values(forever.take(40)) if v < 100][:7] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.slow
def test_a_mixture_depends_on_its_seed_alone() -> None:
    data = [numbered(0, 50), numbered(100, 50)]
    one = values(mix(data, seed=1, stop="all"))
    assert one == values(mix(data, seed=1, stop="all"))
    assert one != values(mix(data, seed=2, stop="all"))
    same = mix(data, seed=1, stop="all")
    assert values(same) == values(same)
    other = mix(data, seed=1, stop="all", rerandomize_each_iteration=True)
    assert values(other) != values(other)


@pytest.mark.slow
def test_episodes_of_both_layouts_are_mixed_alike(tmp_path: Any) -> None:
    one, two = (in_both_layouts(*[episode_columns(n) for n in lengths]) for lengths in
                ((2, 3), (4, 5, 6)))  # fmt: skip
    expected = None
    for a, b in zip(one, two):
        ids = [int(episode["id"]) for episode in mix([a, b], seed=3, stop="all")]
        expected = expected or ids
        assert ids == expected
    mixture = mix([one[1], two[1]], seed=3).map(lambda e: e["steps"]["reward"]).take(12)
    remaining, restored = rest_after_restoring(mixture, 5, tmp_path)
    assert len(remaining) == 7
    for before, after in zip(remaining, restored, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ([[]], {}, ValueError, "there are no datasets"),
        ([[numbered(0, 1)], [1, 2]], {}, ValueError, "got 2 weights for 1 datasets"),
        ([[numbered(0, 1)], [-1]], {}, ValueError, "weights must be finite and not negative"),
        ([[numbered(0, 1)]], {"sizes": [0]}, ValueError, "all weights are 0"),
        ([[numbered(0, 1)]], {"stop": "last"}, ValueError, "stop must be one of .*got 'last'"),
        ([[numbered(0, 0)]], {}, ValueError, r"datasets at \[0\] have no elements to repeat"),
        (
            [[numbered(0, 1), numbered(0, 1).map(lambda i: {"a": i})]],
            {},
            TypeError,
            "dataset 1 has elements .* Map them to the same fields first",
        ),
        (
            [[numbered(0, 1), numbered(0, 1).map(lambda i: tf.cast(i, tf.float32))]],
            {},
            TypeError,
            "dataset 1 has .*float32.* dataset 0 has .*int64.* Cast one of them",
        ),
    ],
)
def test_bad_input_is_an_error_at_once(
    arguments: list, options: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=f"mix: .*{message}"):
        mix(*arguments, **options)
