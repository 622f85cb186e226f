"""Mixtures of datasets."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from random_episodes import episode_columns, in_both_layouts, rest_after_restoring

from rlds.transformations import mix


def make_range(start: int, count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(start, start + count)


def to_list(dataset: tf.data.Dataset) -> list[int]:
    return list(dataset.as_numpy_iterator())


@pytest.mark.slow
def test_datasets_are_drawn_by_weight() -> None:
    data = [make_range(0, 10), make_range(100, 10), make_range(200, 10)]
    drawn = np.array(to_list(mix(data, [6, 3, 1], seed=0).take(3000))) // 100
    assert np.abs(np.bincount(drawn) / 3000 - [0.6, 0.3, 0.1]).max() < 0.03
    by_size = np.array(to_list(mix(data, sizes=[1, 1, 2], seed=0).take(3000))) // 100
    assert np.abs(np.bincount(by_size) / 3000 - [0.25, 0.25, 0.5]).max() < 0.03
    both = np.array(to_list(mix(data, [1, 1, 0], sizes=[3, 1, 9], seed=0).take(3000))) // 100
    assert np.abs(np.bincount(both) / 3000 - [0.75, 0.25]).max() < 0.03


def test_datasets_keep_their_order_and_stop_ends_the_mixture() -> None:
    data = [make_range(0, 3), make_range(100, 200)]
    all_values = to_list(mix(data, seed=1, stop="all"))
    assert sorted(all_values) == [0, 1, 2, *range(100, 300)]
    assert [v for v in all_values if v >= 100] == list(range(100, 300))
    assert len(mix(data, stop="all")) == 203

    until_first = to_list(mix(data, seed=1, stop="first"))
    assert [v for v in until_first if v < 100] == [0, 1, 2]
    assert len(until_first) < 30

    endless = mix(data, seed=1)
    assert endless.cardinality() == tf.data.experimental.INFINITE_CARDINALITY
    assert [v for v in to_list(endless.take(40)) if v < 100][:7] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.slow
def test_a_mixture_depends_on_its_seed_alone() -> None:
    data = [make_range(0, 50), make_range(100, 50)]
    expected = to_list(mix(data, seed=1, stop="all"))
    assert expected == to_list(mix(data, seed=1, stop="all"))
    assert expected != to_list(mix(data, seed=2, stop="all"))
    repeatable = mix(data, seed=1, stop="all")
    assert to_list(repeatable) == to_list(repeatable)
    rerandomized = mix(data, seed=1, stop="all", rerandomize_each_iteration=True)
    assert to_list(rerandomized) != to_list(rerandomized)


@pytest.mark.slow
def test_episodes_of_both_layouts_are_mixed_alike(tmp_path: Any) -> None:
    first, second = (in_both_layouts(*[episode_columns(n) for n in lengths]) for lengths in
                ((2, 3), (4, 5, 6)))  # fmt: skip
    expected = None
    for a, b in zip(first, second):
        ids = [int(episode["id"]) for episode in mix([a, b], seed=3, stop="all")]
        expected = expected or ids
        assert ids == expected
    mixture = mix([first[1], second[1]], seed=3).map(lambda e: e["steps"]["reward"]).take(12)
    remaining, restored = rest_after_restoring(mixture, 5, tmp_path)
    assert len(remaining) == 7
    for before, after in zip(remaining, restored, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ([[]], {}, ValueError, "there are no datasets"),
        ([[make_range(0, 1)], [1, 2]], {}, ValueError, "got 2 weights for 1 datasets"),
        ([[make_range(0, 1)], [-1]], {}, ValueError, "weights must be finite and not negative"),
        ([[make_range(0, 1)]], {"sizes": [0]}, ValueError, "all weights are 0"),
        ([[make_range(0, 1)]], {"stop": "last"}, ValueError, "stop must be one of .*got 'last'"),
        ([[make_range(0, 0)]], {}, ValueError, r"datasets at \[0\] have no elements to repeat"),
        (
            [[make_range(0, 1), make_range(0, 1).map(lambda i: {"a": i})]],
            {},
            TypeError,
            "dataset 1 has elements .* Map them to the same fields first",
        ),
        (
            [[make_range(0, 1), make_range(0, 1).map(lambda i: tf.cast(i, tf.float32))]],
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
