"""Episodes in the nested and in the batched layout give the same values."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import (
    Columns,
    as_columns,
    assert_same_episodes,
    datasets,
    episode_columns,
    few_examples,
    in_both_layouts,
)
from random_episodes import assert_equal as assert_exactly_equal

from rlds import transformations
from rlds.transformations import (
    alignment,
    batched_helpers,
    dataset_concat,
    dataset_truncate,
    flexible_batch,
    layouts,
)


def nested(steps: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(steps)


def assert_equal(one: Any, other: Any) -> None:
    """Compares values, or steps of any layout; floats approximately."""
    tf.nest.map_structure(
        lambda a, b: (
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
            if a.dtype.kind == "f"
            else assert_exactly_equal(a, b)
        ),
        as_columns(one),
        as_columns(other),
    )


def transform(step: dict[str, Any]) -> dict[str, Any]:
    if step["is_last"]:
        step["reward"] = tf.zeros_like(step["reward"])
    return {
        "norm": tf.norm(step["observation"]["state"]),
        "text": tf.strings.join([step["observation"]["text"], "!"]),
        "reward": step["reward"] * 2,
    }


def select_numbers(step: dict[str, Any]) -> dict[str, Any]:
    return {"observation": step["observation"]["state"], "action": step["action"], "steps": 1}


def state_action_reward(step: dict[str, Any]) -> Any:
    return transformations.sar_fields_mask({**step, "observation": step["observation"]["state"]})


def tail(steps: Any, columns: Columns) -> Any:
    """Returns steps to append, with other fields, in the layout of `steps`."""
    columns = {"observation": {"more": columns["action"]}, "extra": columns["reward"]}
    return nested(columns) if isinstance(steps, tf.data.Dataset) else columns


STEP_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "batch": lambda steps: transformations.batch(steps, 2, 1, drop_remainder=True),
    "batched_map": lambda steps: batched_helpers.batched_map(
        steps, lambda window: tf.nest.map_structure(lambda leaf: leaf[::-1], window), 3, 2
    ),
    "concat_if_terminal": lambda steps: dataset_concat.concat_if_terminal(
        steps, lambda last: tail(steps, episode_columns(2))
    ),
    "concatenate": lambda steps: dataset_concat.concatenate(steps, tail(steps, episode_columns(3))),
    "episode_length": transformations.episode_length,
    "final_step": transformations.final_step,
    "map_steps": lambda steps: transformations.map_steps(steps, transform),
    "shift_keys": lambda steps: alignment.shift_keys(steps, ["action", "is_first"], -2),
    "sum_dataset": lambda steps: transformations.sum_dataset(steps, select_numbers),
    "truncate_after_condition": lambda steps: dataset_truncate.truncate_after_condition(
        steps, lambda step: step["reward"] > 0.5, set_is_last=True
    ),
    "zero_dataset_like": transformations.zero_dataset_like,
}


@pytest.mark.slow  # Tests of each function cover both layouts, too.
@pytest.mark.parametrize("name", STEP_FUNCTIONS)
@few_examples
@given(length=st.integers(1, 6), terminal=st.booleans(), seed=st.integers(0, 2**31))
def test_functions_of_steps_agree_in_both_layouts(
    name: str, length: int, terminal: bool, seed: int
) -> None:
    steps = episode_columns(length, terminal=terminal, seed=seed)
    assert_equal(STEP_FUNCTIONS[name](nested(steps)), STEP_FUNCTIONS[name](steps))


@pytest.mark.slow
@few_examples
@given(all_columns=datasets(3), batch_size=st.sampled_from([-1, 1, 2]))
def test_functions_of_episodes_agree_in_both_layouts(
    all_columns: list[Columns], batch_size: int
) -> None:
    both = in_both_layouts(*all_columns)
    assert_same_episodes(*(transformations.map_nested_steps(ds, transform) for ds in both))
    windows = STEP_FUNCTIONS["batch"]
    assert_same_episodes(*(transformations.apply_nested_steps(ds, windows) for ds in both))
    for function in (
        lambda ds: transformations.sum_nested_steps(ds, select_numbers, batch_size),
        lambda ds: transformations.mean_and_std(ds, state_action_reward, batch_size),
    ):
        assert_equal(*map(function, both))


@few_examples
@given(all_columns=datasets(max_length=2))
def test_conversion_to_the_other_layout_and_back_is_lossless(
    all_columns: list[Columns],
) -> None:
    one, other = in_both_layouts(*all_columns)
    assert_same_episodes(layouts.to_nested(other), layouts.to_batched(one, num_parallel_calls=2))
    assert_same_episodes(layouts.to_nested(one), layouts.to_batched(other))
    for steps in all_columns:
        assert_equal(layouts.to_nested(steps), steps)
        assert_equal(layouts.to_batched(nested(steps)), steps)
        assert_equal(layouts.to_batched(steps), steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda steps: transformations.map_steps(steps, lambda step: step),
        lambda steps: transformations.batch(steps, 2, 1),
        lambda steps: alignment.shift_keys(steps, ["x"], 1),
        lambda steps: batched_helpers.batched_map(steps, lambda window: window),
        lambda steps: dataset_concat.concatenate(nested({"y": [1]}), steps),
        lambda steps: dataset_truncate.truncate_after_condition(steps, lambda step: False),
    ],
)
def test_episodes_longer_than_memory_stream(function: Callable[[Any], Any]) -> None:
    endless = tf.data.Dataset.counter().map(lambda i: {"x": i, "wide": tf.zeros([1000])})
    assert len(list(function(endless).skip(500).take(3))) == 3


@pytest.mark.slow
def test_lengths_are_kept_in_a_conversion() -> None:
    steps = {"x": np.zeros([3, 2])}
    assert int(layouts.to_nested(steps).cardinality()) == 3
    assert layouts.to_batched(nested(steps).filter(lambda _: True))["x"].shape == [3, 2]
    one, other = in_both_layouts(steps)
    assert int(layouts.to_batched(one).cardinality()) == int(one.cardinality())
    spec = layouts.to_batched(one).element_spec["steps"]["x"]
    assert spec.shape.as_list() == [None, 2]
    assert layouts.to_nested(other).element_spec == one.element_spec


def test_episodes_without_steps_are_converted() -> None:
    empty = tf.data.Dataset.range(0).map(lambda n: {"x": tf.range(n), "y": (n, "text")})
    steps = layouts.to_batched(empty)
    assert steps["x"].shape == (0, 0)
    assert steps["y"][1].shape == (0,)
    assert steps["y"][1].dtype == tf.string


def test_errors_name_steps_that_cannot_be_batched() -> None:
    ragged = tf.data.Dataset.from_tensor_slices({"a": {"b": tf.ragged.constant([[1], [2, 3]])}})
    with pytest.raises(TypeError, match=r"to_batched: field 'a/b' of the steps is a RaggedTensor"):
        layouts.to_batched(ragged)
    growing = tf.data.Dataset.range(3).map(lambda n: {"x": tf.range(n)})
    with pytest.raises(tf.errors.InvalidArgumentError, match="different shapes"):
        layouts.to_batched(growing)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"to_batched: .*infinite"):
        layouts.to_batched(tf.data.Dataset.range(3).repeat())


@pytest.mark.slow
def test_all_functions_accept_fields_without_elements() -> None:
    """`Dataset.unbatch`, on which most functions are built, crashes on such tensors."""
    steps = {"x": np.arange(3), "nothing": np.zeros([3, 0]), "is_terminal": np.arange(3) == 2}
    for function in (
        lambda steps: transformations.map_steps(steps, lambda step: step),
        lambda steps: transformations.batch(steps, 2, 1, drop_remainder=True),
        lambda steps: alignment.shift_keys(steps, ["x"], 1),
        lambda steps: dataset_truncate.truncate_after_condition(steps, lambda s: s["x"] == 1),
    ):
        assert_equal(function(nested(steps)), function(steps))
    expected = dataset_concat.concatenate(nested({"x": np.arange(2)}), nested(steps))
    assert_equal(expected, dataset_concat.concatenate({"x": np.arange(2)}, steps))


def test_both_layouts_have_the_same_batch_size() -> None:
    steps = {"x": np.zeros([3, 1000], np.float32)}
    one, other = in_both_layouts(steps)
    assert flexible_batch.get_batch_size(one) == flexible_batch.get_batch_size(other) == 50
    assert (
        flexible_batch.get_batch_size(nested(steps)) == flexible_batch.get_batch_size(steps) == 50
    )


@pytest.mark.parametrize("function", [transformations.final_step, transformations.episode_length])
def test_batched_steps_of_different_lengths_are_refused(function: Callable[[Any], Any]) -> None:
    message = f"{function.__name__}: the fields of the batched steps differ in length: {{'a': 2, "
    with pytest.raises(ValueError, match=re.escape(message + "'b/c': 3}")):
        function({"a": np.zeros(2), "b": {"c": np.zeros(3)}})
