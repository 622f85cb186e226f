"""Shuffled steps, and episodes dealt to hosts."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from fast_share import one_in
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import (
    Columns,
    assert_equal,
    datasets,
    episode_columns,
    few_examples,
    in_both_layouts,
    rest_after_restoring,
)

from rlds.transformations import shard_episodes, shuffle_steps


@few_examples
@given(
    all_columns=datasets(),
    batch_size=st.sampled_from([None, 1, 4, 100]),
    step_buffer=st.sampled_from([0, 5, 100]),
    seed=st.integers(0, 1000),
)
def test_steps_are_shuffled_alike_in_both_layouts(
    all_columns: list[Columns], batch_size: int | None, step_buffer: int, seed: int
) -> None:
    shuffled = [
        list(
            shuffle_steps(
                data,
                batch_size=batch_size,
                step_buffer=step_buffer,
                episode_buffer=3,
                seed=seed,
            )
        )
        for data in in_both_layouts(*all_columns)
    ]
    for nested, batched in zip(*shuffled, strict=True):
        assert_equal(nested, batched)
    # Every step occurs once.
    states = [np.reshape(step["observation"]["state"], [-1, 2]) for step in shuffled[0]]
    expected = np.concatenate([columns["observation"]["state"] for columns in all_columns])
    assert sorted(np.concatenate(states).tolist()) == sorted(expected.tolist())


def numbered_episodes(count: int, length: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(
        lambda i: {"steps": {"x": i * length + tf.range(length, dtype=tf.int64)}}
    )


def flatten(data: tf.data.Dataset) -> list[int]:
    return np.concatenate([batch["x"] for batch in data]).tolist()


def test_steps_of_many_episodes_are_mixed() -> None:
    data = shuffle_steps(numbered_episodes(100, 50), batch_size=100, step_buffer=2000, seed=0)
    batch = next(iter(data))["x"].numpy()
    assert len(set(batch // 50)) > 30
    assert len(set(batch % 50)) > 30
    assert len(data.element_spec["x"].shape) == 1


@pytest.mark.slow
def test_each_step_is_equally_likely_at_each_position() -> None:
    """Each block of 8 steps has its own permutation."""
    data = shuffle_steps(numbered_episodes(1600, 4), batch_size=8, step_buffer=8, episode_buffer=0)
    counts = np.zeros([8, 8])
    for batch in data:
        counts[np.arange(8), batch["x"].numpy() % 8] += 1
    assert np.abs(counts - 100).max() < 50


@pytest.mark.slow
def test_the_order_depends_on_the_seed() -> None:
    episodes = numbered_episodes(20, 10)

    def shuffled_order(**options: Any) -> list[int]:
        return flatten(shuffle_steps(episodes, batch_size=16, **options))

    assert shuffled_order(seed=1) == shuffled_order(seed=1) != shuffled_order(seed=2)
    assert shuffled_order() != shuffled_order()
    assert shuffled_order(seed=1, episode_buffer=0, step_buffer=0) == list(range(200))
    shuffled = shuffle_steps(episodes, batch_size=16, seed=1)
    assert flatten(shuffled) != flatten(shuffled)
    fixed = shuffle_steps(episodes, batch_size=16, seed=1, reshuffle_each_iteration=False)
    assert flatten(fixed) == flatten(fixed)


def test_batches_have_the_requested_size() -> None:
    episodes = numbered_episodes(5, 7)
    batches = shuffle_steps(episodes, batch_size=8, step_buffer=10)
    assert [len(batch["x"]) for batch in batches] == [8, 8, 8, 8, 3]
    batches = shuffle_steps(episodes, batch_size=8, step_buffer=10, drop_remainder=True)
    assert batches.element_spec["x"].shape == [8]
    assert [len(batch["x"]) for batch in batches] == [8, 8, 8, 8]


@pytest.mark.slow
@pytest.mark.parametrize("layout", [0, 1])
def test_iterators_can_be_restored(layout: int, tmp_path: Any) -> None:
    data = in_both_layouts(*[episode_columns(n, seed=n) for n in range(12)])[layout]
    for batch_size, num_taken in ((None, 21), (4, 6)):
        shuffled = shuffle_steps(
            shard_episodes(data, 2, 1), batch_size=batch_size, step_buffer=8, seed=1
        )
        expected, restored = rest_after_restoring(shuffled, num_taken, tmp_path)
        assert len(expected) > 2
        for before, after in zip(expected, restored, strict=True):
            assert_equal(before, after)


@pytest.mark.parametrize(
    ("count", "is_known", "layout"),
    one_in(
        3,
        [
            *[(0, True, 0), (0, False, 1), (2, True, 1), (3, False, 0), (7, True, 0)],
            *[(7, False, 1), (8, True, 1), (8, False, 0), (9, True, 0), (9, False, 1)],
        ],
    ),
)
def test_hosts_get_disjoint_equal_shards(count: int, is_known: bool, layout: int) -> None:
    data = in_both_layouts(*[episode_columns(2)] * max(count, 1))[layout].take(count)
    if not is_known:
        data = data.filter(lambda _: True)
    hosts = [shard_episodes(data, 3, index) for index in range(3)]
    dealt = [[int(episode["id"]) for episode in host] for host in hosts]
    rounds = count // 3
    assert dealt == [list(range(i, rounds * 3, 3)) for i in range(3)]
    assert {int(host.cardinality()) for host in hosts} == {rounds if is_known else -2}
    shards = [shard_episodes(data, 3, index, drop_remainder=False) for index in range(3)]
    assert sorted(int(e["id"]) for host in shards for e in host) == list(range(count))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d: shuffle_steps(d, batch_size=0), ValueError, "batch_size must be positive"),
        (lambda d: shuffle_steps(d, step_buffer=-1), ValueError, "step_buffer must not be neg"),
        (lambda d: shuffle_steps(d, episode_buffer=-1), ValueError, "episode_buffer must not be"),
        (lambda d: shuffle_steps(d.map(lambda e: e["id"])), KeyError, "have no field 'steps'"),
        (lambda d: shard_episodes(d, 0, 0), ValueError, "num_shards must be positive, got 0"),
        (lambda d: shard_episodes(d, 2, 2), ValueError, "index must be from 0 to 1, got 2"),
    ],
)
def test_bad_input_is_an_error_at_once(call: Any, error: type, message: str) -> None:
    for data in in_both_layouts(episode_columns(3)):
        with pytest.raises(error, match=message):
            call(data)
