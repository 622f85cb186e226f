"""The same episodes in the nested and in the batched layout give the same values."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from hypothesis import given, settings
from hypothesis import strategies as st

from rlds import transformations
from rlds.transformations import flexible_batch

Columns = dict[str, Any]

# Every example traces graphs anew, which takes most of the time.
few_examples = settings(max_examples=6)


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
