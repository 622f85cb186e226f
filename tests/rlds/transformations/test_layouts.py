"""The same episodes in the nested and in the batched layout give the same values."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import few_examples

from rlds import transformations
from rlds.transformations import (
    alignment,
    batched_helpers,
    dataset_concat,
    dataset_truncate,
    flexible_batch,
    layouts,
)

Columns = dict[str, Any]


@st.composite
def columns(draw: st.DrawFn, min_length: int = 0) -> Columns:
    """The steps of one episode: numbers, a text and flags, with a leading time axis."""
    n = draw(st.integers(min_length, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    index = np.arange(n)
    return {
        "observation": {
            "state": rng.normal(size=(n, 2)).astype(np.float32),
            "text": np.array([b"step %d" % i for i in index], dtype="S6"),
        },
        "action": rng.integers(-100, 100, size=n, dtype=np.int32),
        "reward": rng.normal(size=n).astype(np.float32),
        "is_first": index == 0,
        "is_last": index == n - 1,
    }


def in_both_layouts(*all_columns: Columns) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Two datasets of the same episodes: with nested steps, and with batched ones."""
    spec = tf.nest.map_structure(
        lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], tf.as_dtype(leaf.dtype)),
        all_columns[0],
    )
    batched = tf.data.Dataset.from_generator(
        lambda: ({"id": i, "steps": steps} for i, steps in enumerate(all_columns)),
        output_signature={"id": tf.TensorSpec([], tf.int32), "steps": spec},
    )
    nested = batched.map(
        lambda episode: {**episode, "steps": tf.data.Dataset.from_tensor_slices(episode["steps"])}
    )
    return nested, batched


def assert_equal(one: Any, other: Any) -> None:
    """Compares values, and steps of any layout step by step."""
    one, other = as_values(one), as_values(other)
    tree.assert_same_structure(one, other)
    for a, b in zip(tree.flatten(one), tree.flatten(other)):
        assert a.shape == b.shape
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        else:
            assert a.tolist() == b.tolist()


def as_values(steps: Any) -> Any:
    if not isinstance(steps, tf.data.Dataset):
        return tf.nest.map_structure(np.asarray, steps)
    steps_as_list = [tf.nest.map_structure(np.asarray, step) for step in steps]
    if not steps_as_list:
        empty = transformations.zero_dataset_like(steps)
        return tf.nest.map_structure(lambda leaf: np.asarray(leaf)[:0], next(iter(empty.batch(1))))
    return tree.map_structure(lambda *leaves: np.stack(leaves), *steps_as_list)


def assert_same_episodes(nested: tf.data.Dataset, batched: tf.data.Dataset) -> None:
    one, other = list(nested), list(batched)
    assert len(one) == len(other)
    for a, b in zip(one, other):
        assert isinstance(a["steps"], tf.data.Dataset)
        assert not isinstance(b["steps"], tf.data.Dataset)
        assert int(a["id"]) == int(b["id"])
        assert_equal(a["steps"], b["steps"])


def nested(steps: Columns) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(steps)


def transform(step: dict[str, Any]) -> dict[str, Any]:
    if step["is_last"]:
        step["reward"] = tf.zeros_like(step["reward"])
    return {
        "norm": tf.norm(step["observation"]["state"]),
        "text": tf.strings.join([step["observation"]["text"], "!"]),
        "reward": step["reward"] * 2,
    }


def numbers(step: dict[str, Any]) -> dict[str, Any]:
    return {"observation": step["observation"]["state"], "action": step["action"], "steps": 1}


@few_examples
@given(steps=columns())
def test_map_steps(steps: Columns) -> None:
    mapped = transformations.map_steps(nested(steps), transform)
    assert_equal(mapped, transformations.map_steps(steps, transform))


@few_examples
@given(episodes=st.lists(columns(), min_size=1, max_size=3))
def test_map_nested_steps(episodes: list[Columns]) -> None:
    assert_same_episodes(
        *(transformations.map_nested_steps(ds, transform) for ds in in_both_layouts(*episodes))
    )


@few_examples
@given(episodes=st.lists(columns(), min_size=1, max_size=3), size=st.integers(1, 3))
def test_apply_nested_steps(episodes: list[Columns], size: int) -> None:
    def windows(steps: Any) -> Any:
        return transformations.batch(steps, size=size, shift=2, drop_remainder=True)

    assert_same_episodes(
        *(transformations.apply_nested_steps(ds, windows) for ds in in_both_layouts(*episodes))
    )


@few_examples
@given(steps=columns())
def test_sum_dataset(steps: Columns) -> None:
    total = transformations.sum_dataset(nested(steps), numbers)
    assert_equal(total, transformations.sum_dataset(steps, numbers))
    assert int(total["steps"]) == len(steps["action"])
    assert int(total["action"]) == steps["action"].sum()


@few_examples
@given(episodes=st.lists(columns(), min_size=1, max_size=3), batch_size=st.sampled_from([-1, 1, 2]))
def test_sum_nested_steps(episodes: list[Columns], batch_size: int) -> None:
    one, other = in_both_layouts(*episodes)
    total = transformations.sum_nested_steps(one, numbers, batch_size)
    assert_equal(total, transformations.sum_nested_steps(other, numbers, batch_size))
    assert int(total["steps"]) == sum(len(steps["action"]) for steps in episodes)


@few_examples
@given(
    episodes=st.lists(columns(3), min_size=1, max_size=3), batch_size=st.sampled_from([-1, 1, 2])
)
def test_mean_and_std(episodes: list[Columns], batch_size: int) -> None:
    def state_action_reward(step: dict[str, Any]) -> Any:
        step = {**step, "observation": step["observation"]["state"]}
        return transformations.sar_fields_mask(step)

    one, other = in_both_layouts(*episodes)
    results = transformations.mean_and_std(one, state_action_reward, batch_size)
    assert_equal(results, transformations.mean_and_std(other, state_action_reward, batch_size))
    actions = np.concatenate([steps["action"][:-1] for steps in episodes])
    mean, std = results
    np.testing.assert_allclose(mean["action"], actions.mean(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(std["action"], actions.std(ddof=1), rtol=1e-12, atol=1e-12)


@few_examples
@given(steps=columns(1))
def test_final_step(steps: Columns) -> None:
    last = transformations.final_step(nested(steps))
    assert_equal(last, transformations.final_step(steps))
    assert bool(last["is_last"])


@few_examples
@given(steps=columns())
def test_episode_length(steps: Columns) -> None:
    for layout in (nested(steps), nested(steps).filter(lambda _: True), steps):
        assert int(transformations.episode_length(layout)) == len(steps["action"])


@few_examples
@given(steps=columns())
def test_zero_dataset_like(steps: Columns) -> None:
    zeros = transformations.zero_dataset_like(nested(steps))
    assert_equal(zeros, transformations.zero_dataset_like(steps))


@few_examples
@given(steps=columns(1))
def test_sar_fields_mask(steps: Columns) -> None:
    one = [transformations.sar_fields_mask(step) for step in nested(steps)]
    data, mask = transformations.sar_fields_mask(steps)
    assert_equal(data["action"], np.array([int(data["action"]) for data, _ in one]))
    assert mask["observation"] is True
    assert mask["action"].numpy().tolist() == [bool(mask["action"]) for _, mask in one]


@few_examples
@given(steps=columns(), shift=st.integers(-3, 3))
def test_shift_keys(steps: Columns, shift: int) -> None:
    keys = ["action", "is_first"]
    shifted = alignment.shift_keys(nested(steps), keys, shift)
    assert_equal(shifted, alignment.shift_keys(steps, keys, shift))


@few_examples
@given(one=columns(), other=columns())
def test_concatenate(one: Columns, other: Columns) -> None:
    other = {"observation": {"state": other["observation"]["state"], "more": other["action"]}}
    joined = dataset_concat.concatenate(nested(one), nested(other))
    assert_equal(joined, dataset_concat.concatenate(one, other))


@few_examples
@given(steps=columns(1), is_terminal=st.booleans())
def test_concat_if_terminal(steps: Columns, is_terminal: bool) -> None:
    steps["is_terminal"] = steps["is_last"] & is_terminal
    joined = dataset_concat.concat_if_terminal(
        nested(steps), lambda last: tf.data.Dataset.from_tensors({**last, "extra": 1})
    )
    batched = dataset_concat.concat_if_terminal(
        steps, lambda last: tf.nest.map_structure(lambda x: tf.stack([x]), {**last, "extra": 1})
    )
    assert_equal(joined, batched)


@few_examples
@given(steps=columns(), set_is_last=st.booleans())
def test_truncate_after_condition(steps: Columns, set_is_last: bool) -> None:
    cut, batched = (
        dataset_truncate.truncate_after_condition(
            either, lambda step: step["reward"] > 0.5, set_is_last=set_is_last
        )
        for either in (nested(steps), steps)
    )
    assert_equal(cut, batched)


@few_examples
@given(steps=columns(), size=st.integers(1, 3), shift=st.integers(0, 3))
def test_batched_map(steps: Columns, size: int, shift: int) -> None:
    def backwards(window: Columns) -> Columns:
        return tf.nest.map_structure(lambda leaf: leaf[::-1], window)

    mapped = batched_helpers.batched_map(nested(steps), backwards, size, shift)
    assert_equal(mapped, batched_helpers.batched_map(steps, backwards, size, shift))


@few_examples
@given(episodes=st.lists(columns(), min_size=1, max_size=3))
def test_conversion_there_and_back(episodes: list[Columns]) -> None:
    one, other = in_both_layouts(*episodes)
    assert_same_episodes(layouts.to_nested(other), layouts.to_batched(one, num_parallel_calls=2))
    assert_same_episodes(one, other)
    assert_same_episodes(layouts.to_nested(one), layouts.to_batched(other))
    for steps in episodes:
        assert_equal(layouts.to_nested(steps), steps)
        assert_equal(layouts.to_batched(nested(steps)), steps)
        assert_equal(layouts.to_batched(steps), steps)


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


def test_lengths_are_kept_in_a_conversion() -> None:
    steps = {"x": np.zeros([3, 2])}
    assert int(layouts.to_nested(steps).cardinality()) == 3
    assert layouts.to_batched(nested(steps).filter(lambda _: True))["x"].shape == [3, 2]
    one, other = in_both_layouts(steps)
    assert int(layouts.to_batched(one).cardinality()) == int(one.cardinality())
    spec = layouts.to_batched(one).element_spec["steps"]["x"]
    assert spec.shape.as_list() == [None, 2]
    assert layouts.to_nested(other).element_spec == one.element_spec


def test_conversion_in_graphs() -> None:
    steps = {"x": np.arange(3)}
    assert tf.function(layouts.to_batched)(nested(steps))["x"].numpy().tolist() == [0, 1, 2]
    assert [int(step["x"]) for step in tf.function(layouts.to_nested)(steps)] == [0, 1, 2]


def test_conversion_of_no_steps() -> None:
    empty = tf.data.Dataset.range(0).map(lambda n: {"x": tf.range(n), "y": (n, "text")})
    steps = layouts.to_batched(empty)
    assert steps["x"].shape == (0, 0)
    assert steps["y"][1].shape == (0,)
    assert steps["y"][1].dtype == tf.string


def test_what_cannot_be_batched_is_named() -> None:
    ragged = tf.data.Dataset.from_tensor_slices({"a": {"b": tf.ragged.constant([[1], [2, 3]])}})
    with pytest.raises(TypeError, match=r"to_batched: field 'a/b' of the steps is a RaggedTensor"):
        layouts.to_batched(ragged)
    growing = tf.data.Dataset.range(3).map(lambda n: {"x": tf.range(n)})
    with pytest.raises(tf.errors.InvalidArgumentError, match="different shapes"):
        layouts.to_batched(growing)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"to_batched: .*infinite"):
        layouts.to_batched(tf.data.Dataset.range(3).repeat())


def test_fields_without_elements_go_through_everything() -> None:
    """`Dataset.unbatch`, on which most functions are built, crashes on such tensors."""
    steps = {"x": np.arange(3), "nothing": np.zeros([3, 0]), "is_terminal": np.arange(3) == 2}
    for function in (
        lambda steps: transformations.map_steps(steps, lambda step: step),
        lambda steps: transformations.batch(steps, 2, 1, drop_remainder=True),
        lambda steps: alignment.shift_keys(steps, ["x"], 1),
        lambda steps: dataset_truncate.truncate_after_condition(steps, lambda s: s["x"] == 1),
    ):
        assert_equal(function(nested(steps)), function(steps))
    one = dataset_concat.concatenate(nested({"x": np.arange(2)}), nested(steps))
    assert_equal(one, dataset_concat.concatenate({"x": np.arange(2)}, steps))


def test_batch_size() -> None:
    steps = {"x": np.zeros([3, 1000], np.float32)}
    one, other = in_both_layouts(steps)
    assert flexible_batch.get_batch_size(one) == flexible_batch.get_batch_size(other) == 50
    assert (
        flexible_batch.get_batch_size(nested(steps)) == flexible_batch.get_batch_size(steps) == 50
    )


@pytest.mark.parametrize("function", [transformations.final_step, transformations.episode_length])
def test_batched_steps_are_checked(function: Callable[[Any], Any]) -> None:
    message = f"{function.__name__}: the fields of the batched steps differ in length: {{'a': 2, "
    with pytest.raises(ValueError, match=re.escape(message + "'b/c': 3}")):
        function({"a": np.zeros(2), "b": {"c": np.zeros(3)}})
