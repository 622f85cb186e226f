"""Filters of episodes and of steps."""

import operator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import (
    Columns,
    as_columns,
    assert_equal,
    assert_same_episodes,
    datasets,
    episode_columns,
    few_examples,
    in_both_layouts,
    pass_in_sections,
)

from rlds.transformations import (
    drop_idle_steps,
    has_length,
    has_return,
    is_successful,
    is_usable,
    subsample,
)


def list_ids(episodes: tf.data.Dataset) -> list[int]:
    return [int(episode["id"]) for episode in episodes]


@pytest.mark.parametrize("layout", [0, 1])
def test_episodes_are_filtered_by_length_and_return(layout: int) -> None:
    all_columns = [episode_columns(length, seed=length) for length in (0, 1, 4, 6)]
    returns = [float(np.sum(columns["reward"][:-1])) for columns in all_columns]
    data = in_both_layouts(*all_columns)[layout]
    assert list_ids(data.filter(has_length())) == [1, 2, 3]
    assert list_ids(data.filter(has_length(2, 5))) == [2]
    assert list_ids(data.filter(has_length(0, 1))) == [0, 1]
    for low, high in ((0.0, None), (None, -1.0), (returns[2], returns[2])):
        expected = [
            i
            for i, total in enumerate(returns)
            if (low is None or total >= low) and (high is None or total <= high)
        ]
        assert list_ids(data.filter(has_return(low, high))) == expected


@pytest.mark.parametrize("layout", [0, 1])
def test_successful_and_usable_episodes_are_filtered(layout: int) -> None:
    steps = {"x": np.zeros(2), "done": np.array([False, True]), "reward": np.zeros(2)}
    failed = {**steps, "done": np.array([False, False])}
    data = in_both_layouts(steps, failed, success=[0, 1], invalid=[True, False])[layout]
    assert list_ids(data.filter(is_successful())) == [1]
    assert list_ids(data.filter(is_successful("done"))) == [0]
    assert list_ids(data.filter(is_usable)) == [1]
    unmarked = data.map(lambda e: {"steps": e["steps"], "id": e["id"]})
    assert list_ids(unmarked.filter(is_usable)) == [0, 1]


def find_active_rows(
    columns: Columns, min_run: int, unchanged: bool, is_final_known: bool
) -> list[int]:
    """Finds the indices of the remaining steps."""
    actions = columns["action"]
    length = len(actions)
    is_idle = []
    for i in range(length):
        origin = (actions[i - 1] if i else np.inf) if unchanged else 0.0
        is_placeholder = is_final_known and i == length - 1
        is_idle.append(bool(np.all(np.abs(actions[i] - origin) <= 1e-3)) and not is_placeholder)
    active_rows = []
    for i in range(length):
        begin, end = i, i
        while begin > 0 and is_idle[begin - 1]:
            begin -= 1
        while end < length and is_idle[end]:
            end += 1
        is_dropped = is_idle[i] and end - begin >= min_run and 0 < i < length - 1
        if not is_dropped:
            active_rows.append(i)
    return active_rows


@few_examples
@given(
    all_columns=datasets(max_length=12),
    min_run=st.integers(1, 3),
    unchanged=st.booleans(),
    unknown=st.sets(st.integers(0, 12)),
    seed=st.integers(0, 1000),
)
def test_dropped_idle_steps_equal_a_computation_by_hand_in_both_layouts(
    all_columns: list[Columns], min_run: int, unchanged: bool, unknown: set[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for columns in all_columns:
        shape = [len(columns["action"]), 1]
        columns["action"] = rng.choice([0.0, 0.0, 0.0005, 1.0], size=shape).astype(np.float32)
    is_known = [i not in unknown for i in range(len(all_columns))]
    both = in_both_layouts(*all_columns, final_observation_known=is_known)
    with pytest.MonkeyPatch.context() as patch:
        pass_in_sections(patch, 8000)
        nested, batched = (
            drop_idle_steps(data, min_run=min_run, unchanged=unchanged) for data in both
        )
        assert_same_episodes(nested, batched)
    for columns, is_final_known, episode in zip(all_columns, is_known, batched, strict=True):
        active_rows = find_active_rows(columns, min_run, unchanged, is_final_known)
        expected = tf.nest.map_structure(operator.itemgetter(active_rows), columns)
        assert_equal(episode["steps"], expected)


def test_nested_actions_are_idle_if_all_are() -> None:
    steps = {"action": {"arm": [1.0, 0.0, 0.0, 0.0, 0.0], "hand": [[1], [0], [2], [0], [0]]}}
    active_rows = drop_idle_steps(steps)["action"]
    assert active_rows["arm"].numpy().tolist() == [1.0, 0.0, 0.0]
    assert active_rows["hand"].numpy().tolist() == [[1], [2], [0]]


@few_examples
@given(
    all_columns=datasets(),
    stride=st.integers(1, 3),
    limit=st.sampled_from([None, 0, 2]),
    seed=st.sampled_from([None, 7]),
)
def test_subsampled_steps_are_equal_in_both_layouts(
    all_columns: list[Columns], stride: int, limit: int | None, seed: int | None
) -> None:
    seed = None if limit is None else seed
    nested, batched = (
        subsample(data, stride=stride, limit=limit, seed=seed)
        for data in in_both_layouts(*all_columns)
    )
    assert_same_episodes(nested, batched)
    for columns, episode in zip(all_columns, batched, strict=True):
        texts = columns["observation"]["text"][::stride].tolist()
        texts_left = as_columns(episode["steps"])["observation"]["text"].tolist()
        assert texts_left == sorted(set(texts_left))
        assert set(texts_left) <= set(texts)
        assert len(texts_left) == min(len(texts), len(texts) if limit is None else limit)
        if seed is None:
            assert texts_left == texts[:limit]


@pytest.mark.slow
def test_random_steps_are_equally_likely() -> None:
    episodes = tf.data.Dataset.from_tensors({"steps": {"x": np.arange(5)}}).repeat(1000)
    chosen = np.concatenate([e["steps"]["x"] for e in subsample(episodes, limit=2, seed=0)])
    counts = np.bincount(chosen)
    assert counts.sum() == 2000
    assert np.abs(counts - 400).max() < 80


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d: has_length(3, 2), ValueError, "has_length: the range from 3 to 2 is empty"),
        (lambda d: has_length(-1), ValueError, "has_length: minimum must not be negative"),
        (lambda d: has_return(1.0, 0.0), ValueError, "has_return: the range from 1.0 to"),
        (
            lambda _: has_return(1.0)({"steps": {"reward": {"a": [1.0], "b": [2.0]}}}),
            TypeError,
            "has_return: field 'reward' must be a number, got several",
        ),
        (lambda d: d.filter(is_successful("won")), KeyError, "is_successful: neither .*'won'"),
        (lambda d: d.filter(is_successful("instruction")), TypeError, "'instruction' must be bool"),
        (lambda d: drop_idle_steps(d, min_run=0), ValueError, "min_run must be positive, got 0"),
        (lambda d: drop_idle_steps(d, tolerance=-1), ValueError, "tolerance must not be negative"),
        (lambda d: drop_idle_steps(d, field="act"), KeyError, "there is no field 'act'"),
        (lambda d: subsample(d, stride=0), ValueError, "subsample: stride must be positive"),
        (lambda d: subsample(d, limit=-1), ValueError, "subsample: limit must not be negative"),
        (lambda d: subsample(d, seed=1), ValueError, "pass a limit"),
    ],
)
@pytest.mark.parametrize("layout", [0, 1])
def test_bad_input_is_an_error_at_once(layout: int, call: Any, error: type, message: str) -> None:
    data = in_both_layouts(episode_columns(3))[layout]
    with pytest.raises(error, match=message):
        call(data)


def test_filtering_steps_instead_of_episodes_is_refused() -> None:
    steps = tf.data.Dataset.from_tensor_slices(episode_columns(3))
    with pytest.raises(KeyError, match="has_length: an episode needs the field 'steps', got"):
        steps.filter(has_length(2))
